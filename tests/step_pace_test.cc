// How many rows a step takes: simulated steps whose time is known say what the rule does with it.
#include "engine/step_pace.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

/// A machine: what every step costs, a row of prefill, a single token.
struct Machine {
  const char* name;
  double fixed, row, token;
  double prefill(int rows) const { return fixed + row * rows; }
  double decode(int decoders) const { return fixed + token * decoders; }
  double both(int rows, int decoders) const { return fixed + row * rows + token * decoders; }
};

constexpr Machine kMachines[] = {
    {"a small model on few cores", 0.005, 0.002, 0.002},
    {"a card that computes fast", 0.015, 0.0003, 0.0004},
    {"a large model in slow memory", 4, 0.01, 0.02},
    {"slow at everything", 0.4, 0.05, 0.03},
};

TEST(StepPace, APromptAloneRunsInStepsAsLongAsAskedForOrAtLeastHalfUseful) {
  for (const Machine& machine : kMachines) {
    StepPace pace(1, 0.5, 512);
    EXPECT_EQ(pace.rows(0), StepPace::kFirstRows);
    int rows = 0;
    for (int step = 0; step < 40; ++step) {
      rows = pace.rows(0);
      pace.measured(rows, 0, machine.prefill(rows));
    }
    const double seconds = machine.prefill(rows);
    const bool is_full = rows == 512;
    const bool is_as_long_as_asked = seconds > 0.7 && seconds < 1.3;
    const bool is_half_useful = machine.row * rows > 0.8 * machine.fixed && seconds < 2.4 * machine.fixed;
    EXPECT_TRUE(is_full || is_as_long_as_asked || is_half_useful) << machine.name << ": " << rows << " rows";
    EXPECT_GE(machine.row * rows, 0.3 * seconds) << machine.name;
    EXPECT_NEAR(pace.seconds_of(rows), seconds, 0.1 * seconds) << machine.name;
  }
}

TEST(StepPace, DecodersLoseTheShareThatPrefillMayTakeAndNotMore) {
  for (const double share : {0.2, 0.5, 0.8})
    for (const Machine& machine : kMachines) {
      StepPace pace(1, share, 4096);
      pace.measured(pace.rows(0), 0, machine.prefill(128));  // the prompt had begun before others decoded
      double seconds = 0, decode = 0;
      int rows_done = 0;
      for (int step = 0; step < 400; ++step) {
        const int rows = pace.rows(3);
        EXPECT_TRUE(rows == 0 || rows >= StepPace::kLeastRows) << rows;
        EXPECT_TRUE(step > 0 || rows == 0) << "first what decoding alone takes is measured";
        const double took = rows == 0 ? machine.decode(3) : machine.both(rows, 3);
        pace.measured(rows, 3, took);
        seconds += took;
        decode += machine.decode(3);
        rows_done += rows;
      }
      const double slower = seconds / decode, allowed = 1 / (1 - share);
      EXPECT_LE(slower, 1.05 * allowed) << machine.name << ", share " << share;
      EXPECT_GE(slower, 1 + 0.7 * (allowed - 1)) << machine.name << ", share " << share << ": prefill starves";
      EXPECT_GT(rows_done, 0);
    }
}

TEST(StepPace, TimeThatPrefillDidNotNeedIsNotSavedUp) {
  StepPace pace(1, 0.5, 4096);
  for (int step = 0; step < 1000; ++step) pace.measured(0, 1, 0.1);  // nobody had a prompt
  pace.measured(64, 0, 0.64);                                        // 10 ms a row
  // Credit for one more step at most: 0.1 s saved, 0.1 s of this step.
  EXPECT_LE(pace.rows(1), 20);
  EXPECT_GE(pace.rows(1), 16);
}

TEST(StepPace, ASlowStepIsPaidBackButNotForEver) {
  StepPace pace(1, 0.5, 4096);
  pace.measured(0, 1, 0.1);
  for (int step = 0; step < 20; ++step) {
    const int rows = pace.rows(1);
    pace.measured(rows, 1, 0.1 + 0.001 * rows);
  }
  pace.measured(100, 1, 60);  // the machine slept
  int waited = 0;
  while (pace.rows(1) == 0) {
    pace.measured(0, 1, 0.1);
    ASSERT_LT(++waited, 10'000);
  }
  EXPECT_GT(waited, 0);
}

TEST(StepPace, RefusesASharePastItsEnds) {
  EXPECT_THROW(StepPace(1, 0, 64), Error);
  EXPECT_THROW(StepPace(1, 1, 64), Error);
  EXPECT_THROW(StepPace(0, 0.5, 64), Error);
}

}  // namespace
}  // namespace lockstep
