// Tests of the scheduler on nano-a: prompts, jobs, and an engine to compare with.
#pragma once

#include <gtest/gtest.h>

#include "session_edits.h"

namespace lockstep::test {

class NanoScheduler : public testing::Test {
 protected:
  explicit NanoScheduler(unsigned seed) : random_(seed) {}
  static std::filesystem::path nano() { return LOCKSTEP_TEST_DATA "/golden/nano-a.gguf"; }
  SchedulerOptions options(int slots = 4) const {
    SchedulerOptions options;
    options.slots = slots;
    options.cache_bytes = 400'000'000;
    options.context = 16'000;
    return options;
  }
  std::vector<Token> some(std::size_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random_() % 512);
    return tokens;
  }
  std::shared_ptr<Watcher> submit(Scheduler& scheduler, const std::vector<Token>& prompt, std::int64_t limit,
                                  int priority = 0, std::shared_ptr<Watcher> watcher = std::make_shared<Watcher>()) {
    Job job = job_of(prompt, limit, random_(), watcher);
    job.priority = priority;
    EXPECT_FALSE(scheduler.submit(std::move(job)).has_value());
    return watcher;
  }

  std::mt19937 random_;
  std::unique_ptr<Engine> engine_ = engine_of(nano()), cold_ = engine_of(nano());
};

}  // namespace lockstep::test
