// Whether the load's judgement of memory (load/memory.h) finds what grows, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

#include "load/memory.h"

namespace lockstep::load {
namespace {

/// What a server may tell at `seconds`: 100 MB in use that go up and down with what runs, and 30 MB of holes.
Memory::Metrics usual(double seconds) {
  const double running = 4e6 * std::sin(seconds), in_use = 100e6 + running;
  return {{"lockstep_cache_bytes", 16e6},
          {"lockstep_turn_bytes", 1000 * seconds},
          {"lockstep_cache_evictions_total", seconds > 5 ? 10 : 0},
          {"lockstep_responses", std::min(256.0, 8 * seconds)},
          {"lockstep_responses_limit", 256},
          {"lockstep_allocated_bytes", in_use + 1000 * seconds},
          {"lockstep_resident_bytes", in_use + 30e6 + 1000 * seconds}};
}

using Change = std::function<void(Memory::Metrics&, double seconds)>;

std::string problem_of(const Change& change, double seconds = 240) {
  Memory memory;
  for (double t = 0; t < seconds; t += 0.5) {
    Memory::Metrics metrics = usual(t);
    change(metrics, t);
    memory.add(t, metrics);
  }
  return memory.problem(seconds);
}

TEST(LoadMemory, WhatGrowsIsFound) {
  const struct {
    const char* name;
    Change change;
    const char* words;  // empty: nothing is wrong
  } kCases[] = {
      {"memory that goes up and down", [](Memory::Metrics&, double) {}, ""},
      {"a leak of 20 kB/s",
       [](Memory::Metrics& m, double t) {
         m["lockstep_allocated_bytes"] += 2e4 * t;
         m["lockstep_resident_bytes"] += 2e4 * t;
       },
       "memory in use grew by"},
      {"holes that grow by 60 kB/s", [](Memory::Metrics& m, double t) { m["lockstep_resident_bytes"] += 6e4 * t; },
       "resident memory grew by"},
      {"a cache that fills up until its limit",
       [](Memory::Metrics& m, double t) {
         const double more = std::min(t, 100.0) * 1e6;
         for (const char* name : {"lockstep_cache_bytes", "lockstep_allocated_bytes", "lockstep_resident_bytes"})
           m[name] += more;
         m["lockstep_cache_evictions_total"] = t > 100 ? 1 : 0;
       },
       ""},
      {"what is taken until everything is full",
       [](Memory::Metrics& m, double t) {
         m["lockstep_allocated_bytes"] += std::min(t, 32.0) * 1e6;
         m["lockstep_resident_bytes"] += std::min(t, 32.0) * 1e6;
       },
       ""},
      {"limits that are never met", [](Memory::Metrics& m, double) { m["lockstep_responses"] = 255; },
       "memory cannot be judged"},
      {"limits that are met too late",
       [](Memory::Metrics& m, double t) { m["lockstep_cache_evictions_total"] = t > 200 ? 1 : 0; },
       "memory cannot be judged"},
  };
  for (const auto& c : kCases) {
    const std::string problem = problem_of(c.change);
    if (*c.words == 0) {
      EXPECT_EQ(problem, "") << c.name << ": " << problem;
    } else {
      EXPECT_EQ(problem.rfind(c.words, 0), 0u) << c.name << ": " << problem;
    }
  }
}

TEST(LoadMemory, AShortLoadIsNotJudged) {
  const Change leak = [](Memory::Metrics& m, double t) { m["lockstep_allocated_bytes"] += 1e6 * t; };
  EXPECT_EQ(problem_of(leak, 10), "");
  EXPECT_NE(problem_of(leak, 60), "");
}

TEST(LoadMemory, AServerThatDoesNotTellIsAnError) {
  Memory memory;
  EXPECT_THROW(memory.add(0, {}), std::out_of_range);
}

}  // namespace
}  // namespace lockstep::load
