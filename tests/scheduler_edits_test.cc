// Whatever was kept, cut, evicted, restored or shared: what is computed is what a cold run computes, bit for bit. The
// long form, many seeds of 1,000 operations, is `session_runs edits`.
#include <gtest/gtest.h>

#include "disk_cache_support.h"
#include "session_edits.h"

namespace lockstep {
namespace {

using test::check_against_cold;
using test::EditOptions;
using test::EditRun;
using test::engine_of;
using test::job_of;
using test::TempDirectory;
using test::Watcher;

const std::filesystem::path kNano = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";

struct EditCase {
  const char* name;
  unsigned seed;
  std::size_t cache_bytes;
  int slots;
  std::uint64_t disk_bytes;  // 0: nothing is on disk
};

class SessionEdits : public testing::TestWithParam<EditCase> {};

TEST_P(SessionEdits, GiveTheLogitsAndTheStateOfAColdRunAfterEveryOperation) {
  const EditCase& param = GetParam();
  TempDirectory directory;
  EditOptions options;
  options.model = kNano;
  options.seed = param.seed;
  options.operations = 40;
  options.cache_bytes = param.cache_bytes;
  options.slots = param.slots;
  if (param.disk_bytes > 0) options.directory = directory.path();
  options.disk_bytes = param.disk_bytes;
  EditRun run(options);
  ASSERT_NO_THROW(run.run());
  EXPECT_EQ(run.notes(), std::vector<std::string>());
  if (param.cache_bytes > 0 || param.disk_bytes > 0) {
    EXPECT_GT(run.reused(), 0u);
  }
  if (param.disk_bytes > 0) {
    EXPECT_GT(run.restored(), 0u);
  }
  if (std::string(param.name).find("pressure") != std::string::npos) {
    EXPECT_GT(run.evicted(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SessionEdits,
                         testing::Values(EditCase{"memory", 1, 400'000'000, 8, 0},
                                         EditCase{"memory_under_pressure", 2, 4'000'000, 4, 0},
                                         EditCase{"memory_and_disk", 3, 400'000'000, 4, 1 << 30},
                                         EditCase{"disk_alone_under_pressure", 4, 0, 2, 12'000'000}),
                         [](const auto& one) { return std::string(one.param.name); });

// ---- Every kind of place ----

constexpr std::int64_t kNotRead = 16;  // tokens that a state must save more than to be read from the disk

/// A prompt of `kept` tokens is answered; then one that shares `shared` tokens with prompt and answer, and has
/// `more` of its own, is asked for.
struct PlaceCase {
  const char* name;
  std::size_t kept, shared, more;
  std::int64_t reused;  // tokens, at least
};

class SessionPlaces : public testing::TestWithParam<PlaceCase> {};

TEST_P(SessionPlaces, AreResumedFromAsAColdRunWouldGoOn) {
  const PlaceCase& param = GetParam();
  TempDirectory directory;
  const auto engine = engine_of(kNano), cold = engine_of(kNano);
  for (const bool from_disk : {false, true}) {
    SchedulerOptions options;
    options.cache_bytes = 400'000'000;
    options.snapshot_every = 1024;
    if (from_disk) {
      options.cache_dir = directory.path();
      options.cache_disk_bytes = 1 << 30;
    }
    auto scheduler = std::make_unique<Scheduler>(*engine, options);
    std::mt19937 random(static_cast<unsigned>(param.kept));
    const auto some = [&](std::size_t count) {
      std::vector<Token> tokens(count);
      for (Token& token : tokens) token = static_cast<Token>(random() % 512);
      return tokens;
    };
    const auto first = std::make_shared<Watcher>();
    const std::vector<Token> prompt = some(param.kept);
    ASSERT_FALSE(scheduler->submit(job_of(prompt, 20, 1, first)));
    ASSERT_NO_THROW(check_against_cold(*cold, prompt, *first));
    if (from_disk) {
      scheduler.reset();
      scheduler = std::make_unique<Scheduler>(*engine, options);
    }
    std::vector<Token> next = prompt;
    next.insert(next.end(), first->tokens().begin(), first->tokens().end());
    ASSERT_GE(next.size(), param.shared);
    next.resize(param.shared);
    for (const Token token : some(param.more)) next.push_back(token);
    if (param.more > 0 && param.shared < prompt.size()) next[param.shared] = (prompt[param.shared] + 1) % 512;
    const auto second = std::make_shared<Watcher>();
    ASSERT_FALSE(scheduler->submit(job_of(next, 20, 2, second)));
    ASSERT_NO_THROW(check_against_cold(*cold, next, *second)) << (from_disk ? "from disk" : "from memory");
    const std::int64_t reused = second->wait().stats.reused;
    if (from_disk && param.reused <= kNotRead) {
      EXPECT_EQ(reused, 0) << "so few tokens are sooner run";
    } else {
      EXPECT_GE(reused, param.reused) << (from_disk ? "from disk" : "from memory");
    }
  }
}

// Windows of compression are 4 and 128 tokens; rings hold 128 + 16 rows, 8 + 16 and 128 + 16 compressor inputs, so
// they wrap at 24, 144, 288; a state rewinds by 16. An answer of 20 tokens leaves 19 in the state.
INSTANTIATE_TEST_SUITE_P(
    All, SessionPlaces,
    testing::Values(
        PlaceCase{"one_token", 1, 1, 5, 1}, PlaceCase{"inside_a_window_of_4", 5, 5, 9, 5},
        PlaceCase{"at_a_window_of_4", 8, 8, 9, 8}, PlaceCase{"after_a_window_of_4", 9, 9, 9, 9},
        PlaceCase{"the_least_from_the_disk", 17, 17, 9, 17}, PlaceCase{"at_a_fifth_window_of_4", 20, 20, 9, 20},
        PlaceCase{"a_small_ring_about_to_wrap", 23, 23, 9, 23}, PlaceCase{"a_small_ring_wrapped", 25, 25, 9, 25},
        PlaceCase{"inside_a_window_of_128", 100, 100, 50, 100}, PlaceCase{"before_a_window_of_128", 127, 127, 9, 127},
        PlaceCase{"at_a_window_of_128", 128, 128, 9, 128}, PlaceCase{"after_a_window_of_128", 129, 129, 9, 129},
        PlaceCase{"rings_about_to_wrap", 143, 143, 9, 143}, PlaceCase{"rings_just_full", 144, 144, 9, 144},
        PlaceCase{"rings_wrapped", 145, 145, 9, 145}, PlaceCase{"rings_wrapped_twice", 289, 289, 9, 289},
        PlaceCase{"before_a_second_window", 255, 255, 9, 255}, PlaceCase{"at_a_second_window", 256, 256, 9, 256},
        PlaceCase{"after_a_second_window", 257, 257, 9, 257}, PlaceCase{"the_answer_is_gone_on_from", 120, 139, 9, 139},
        PlaceCase{"the_answer_is_cut_over_a_window", 120, 125, 9, 125},
        PlaceCase{"the_answer_is_cut_at_a_window", 120, 128, 9, 128},
        PlaceCase{"back_by_the_slack_from_the_prompt", 160, 144, 9, 144},
        PlaceCase{"back_by_the_slack_over_a_window_of_128", 264, 248, 9, 248},
        PlaceCase{"back_by_one_over_a_window_of_4", 200, 199, 9, 199},
        PlaceCase{"back_by_more_than_the_slack", 160, 143, 9, 0}, PlaceCase{"the_same_again", 150, 150, 0, 150},
        PlaceCase{"a_beginning_alone", 150, 140, 0, 139},
        PlaceCase{"back_to_a_page_of_rows_and_a_regular_snapshot", 1030, 1024, 9, 1024},
        PlaceCase{"after_a_segment_on_disk", 2100, 2100, 9, 2100},
        PlaceCase{"back_over_a_segment_on_disk", 2050, 2040, 9, 2040}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
