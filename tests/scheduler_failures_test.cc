// What users of other engines of this model report, each as a test with its name: prompts that are prefilled again
// though nothing of them changed, caches that lose the wrong entry, requests that touch each other. Also fairness.
// Numbers are tokens that were run, not times.
#include <gtest/gtest.h>

#include <thread>

#include "disk_cache_support.h"
#include "nano_scheduler.h"

namespace lockstep {
namespace {

using test::check_against_cold;
using test::engine_of;
using test::job_of;
using test::TempDirectory;
using test::Watcher;

class PublicFailures : public test::NanoScheduler {
 protected:
  PublicFailures() : NanoScheduler(7) {}
  /// One turn of a chat: asks, checks the answer, and lets the chat grow by it and `more` tokens of the user's.
  JobStats turn(Scheduler& scheduler, std::vector<Token>& chat, std::int64_t limit = 5, std::size_t more = 20) {
    const auto watcher = submit(scheduler, chat, limit);
    EXPECT_NO_THROW(check_against_cold(*cold_, chat, *watcher));
    const JobStats stats = watcher->wait().stats;
    chat.insert(chat.end(), watcher->tokens().begin(), watcher->tokens().end());
    for (const Token token : some(more)) chat.push_back(token);
    return stats;
  }
  /// What a turn has to run at least: the user's tokens, and the answer's last one, which was only sampled.
  static constexpr std::int64_t kNew = 21;
};

TEST_F(PublicFailures, AStrictlyGrowingPromptRunsItsGrowth) {
  Scheduler scheduler(*engine_, options());
  std::vector<Token> chat = some(100);
  EXPECT_EQ(turn(scheduler, chat).reused, 0);
  for (int i = 0; i < 8; ++i) {
    const JobStats stats = turn(scheduler, chat);
    EXPECT_EQ(stats.prompt - stats.reused, kNew) << "turn " << i;
  }
}

TEST_F(PublicFailures, AlternatingChatsBothStayWarm) {
  Scheduler scheduler(*engine_, options(1));
  std::vector<Token> a = some(120), b = some(90);
  turn(scheduler, a);
  turn(scheduler, b);
  for (int i = 0; i < 4; ++i)
    for (std::vector<Token>* chat : {&a, &b}) {
      const JobStats stats = turn(scheduler, *chat);
      EXPECT_EQ(stats.prompt - stats.reused, kNew) << "turn " << i;
    }
}

TEST_F(PublicFailures, AResentPromptOf2048TokensRunsNothing) {
  Scheduler scheduler(*engine_, options());
  const std::vector<Token> prompt = some(2048);
  submit(scheduler, prompt, 1)->wait();
  const auto again = submit(scheduler, prompt, 1);
  const JobStats stats = again->wait().stats;
  EXPECT_EQ(stats.reused, 2048);
  EXPECT_EQ(stats.miss, Miss::none);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *again));
  EXPECT_EQ(scheduler.status().rows, 2048u) << "of both";
}

TEST_F(PublicFailures, RegenerateRunsNoTokenOfThePrompt) {
  Scheduler scheduler(*engine_, options());
  std::vector<Token> chat = some(150);
  turn(scheduler, chat, 30);
  chat.resize(150);
  for (int i = 0; i < 3; ++i) {
    std::vector<Token> copy = chat;
    EXPECT_EQ(turn(scheduler, copy, 30).reused, 150);
  }
}

TEST_F(PublicFailures, AnEditOfTheLastTurnRunsThatTurnOnly) {
  Scheduler scheduler(*engine_, options());
  std::vector<Token> chat = some(150);
  turn(scheduler, chat, 30, 0);
  const std::size_t before = chat.size();
  for (const Token token : some(40)) chat.push_back(token);
  std::vector<Token> other(chat.begin(), chat.begin() + static_cast<std::ptrdiff_t>(before));
  for (const Token token : some(40)) other.push_back(token);
  turn(scheduler, chat);
  const JobStats stats = turn(scheduler, other);
  EXPECT_EQ(stats.prompt - stats.reused, 41);
}

TEST_F(PublicFailures, AChangedBlockInTheMiddleCostsTheSecondTimeOnlyWhatFollowsIt) {
  Scheduler scheduler(*engine_, options());
  const std::vector<Token> prompt = some(400);
  submit(scheduler, prompt, 1)->wait();
  for (const std::int64_t reused : {0, 300, 300}) {
    std::vector<Token> changed = prompt;
    changed[300] = (prompt[300] + 1 + static_cast<Token>(random_() % 500)) % 512;
    const auto watcher = submit(scheduler, changed, 1);
    EXPECT_NO_THROW(check_against_cold(*cold_, changed, *watcher));
    EXPECT_EQ(watcher->wait().stats.reused, reused);
    EXPECT_EQ(watcher->wait().stats.shared, 300) << "where it differs";
  }
}

TEST_F(PublicFailures, AStopAfterAnotherChatKeepsBothForTheNextStart) {
  TempDirectory directory;
  SchedulerOptions with_disk = options(1);
  with_disk.cache_dir = directory.path();
  with_disk.cache_disk_bytes = 1 << 30;
  std::vector<Token> a = some(120), b = some(90);
  {
    Scheduler scheduler(*engine_, with_disk);
    turn(scheduler, a);
    turn(scheduler, b);
  }
  Scheduler scheduler(*engine_, with_disk);
  for (std::vector<Token>* chat : {&a, &b}) {
    const JobStats stats = turn(scheduler, *chat);
    EXPECT_EQ(stats.prompt - stats.reused, kNew);
    EXPECT_EQ(stats.restored, stats.reused);
  }
}

TEST_F(PublicFailures, TwoChatsWithACommonSystemTextRunItOnceInTwoSlots) {
  Scheduler scheduler(*engine_, options(2));
  const std::vector<Token> system = some(300);
  std::vector<std::shared_ptr<Watcher>> watchers;
  std::vector<std::vector<Token>> chats;
  for (int i = 0; i < 2; ++i) {
    chats.push_back(system);
    for (const Token token : some(30)) chats.back().push_back(token);
    chats.back()[300] = 5 + i;
    auto watcher = std::make_shared<Watcher>();
    Job job = job_of(chats.back(), 10, 1, watcher);
    job.marks = {300};
    ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
    watchers.push_back(std::move(watcher));
  }
  for (int i = 0; i < 2; ++i)
    EXPECT_NO_THROW(
        check_against_cold(*cold_, chats[static_cast<std::size_t>(i)], *watchers[static_cast<std::size_t>(i)]));
  EXPECT_EQ(watchers[0]->wait().stats.reused, 0);
  EXPECT_EQ(watchers[1]->wait().stats.reused, 300);
}

TEST_F(PublicFailures, AMarkIsReusedByTheFirstThatComesAfterIt) {
  Scheduler scheduler(*engine_, options());
  std::vector<Token> first = some(330), second(first.begin(), first.begin() + 300);
  for (const Token token : some(30)) second.push_back(token);
  second[300] = (first[300] + 1) % 512;
  const auto watcher = std::make_shared<Watcher>();
  Job job = job_of(first, 1, 1, watcher);
  job.marks = {300};
  ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
  watcher->wait();
  EXPECT_EQ(turn(scheduler, second).reused, 300);
}

TEST_F(PublicFailures, AFullDiskDoesNotEvictThePrefixThatIsAboutToBeUsed) {
  TempDirectory directory;
  SchedulerOptions with_disk = options(1);
  with_disk.cache_bytes = 0;
  with_disk.cache_dir = directory.path();
  with_disk.cache_disk_bytes = 1 << 30;
  std::vector<Token> a = some(300);
  {
    Scheduler scheduler(*engine_, with_disk);
    turn(scheduler, a);
  }
  std::uint64_t bytes = 0;
  for (const auto& file : test::files_in(directory.path(), ".tail")) bytes += std::filesystem::file_size(file);
  with_disk.cache_disk_bytes = bytes + bytes / 2;  // what follows does not fit beside it
  Scheduler scheduler(*engine_, with_disk);
  const auto others = submit(scheduler, some(600), 20);
  others->wait_for_progress();
  const JobStats stats = turn(scheduler, a);  // waits in the queue while the other's states are written
  EXPECT_EQ(stats.prompt - stats.reused, kNew);
  others->wait();
}

TEST_F(PublicFailures, CancellingAQueuedRequestDoesNotTouchTheRunningOne) {
  Scheduler scheduler(*engine_, options(1));
  const std::vector<Token> prompt = some(60);
  const auto running = submit(scheduler, prompt, 40);
  running->wait_for_tokens(3);
  const auto queued = submit(scheduler, prompt, 40);
  queued->cancel();
  EXPECT_EQ(queued->wait().end, JobResult::End::cancelled);
  EXPECT_TRUE(queued->tokens().empty());
  EXPECT_EQ(running->wait().end, JobResult::End::limit);
  EXPECT_EQ(running->tokens().size(), 40u);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *running));
}

TEST_F(PublicFailures, AQueueOf32WithOneSlotAnswersAllAndRefusesTheNext) {
  SchedulerOptions with_queue = options(1);
  with_queue.queue = 32;
  Scheduler scheduler(*engine_, with_queue);
  std::vector<std::vector<Token>> prompts = {some(400)};
  std::vector<std::shared_ptr<Watcher>> watchers = {submit(scheduler, prompts[0], 100)};
  watchers[0]->wait_for_progress();
  for (int i = 0; i < 32; ++i) {
    prompts.push_back(some(10 + static_cast<std::size_t>(i)));
    watchers.push_back(submit(scheduler, prompts.back(), 3));
  }
  EXPECT_EQ(scheduler.submit(job_of(some(10), 3, 1, std::make_shared<Watcher>())), Scheduler::Refusal::queue_full);
  for (std::size_t i = 0; i < watchers.size(); ++i) {
    EXPECT_EQ(watchers[i]->wait().end, JobResult::End::limit);
    EXPECT_NO_THROW(check_against_cold(*cold_, prompts[i], *watchers[i]));
  }
}

// A client that gives up and asks again while a long prompt is read: 1,500 tokens here, and no step knows how many
// are still to come.
TEST_F(PublicFailures, AClientThatTimesOutAndRetriesGoesOnWhereItWas) {
  Scheduler scheduler(*engine_, options(2));
  const std::vector<Token> prompt = some(1500);
  std::int64_t before = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto watcher = std::make_shared<Watcher>();
    watcher->cancel_after_progress = 7 * 5;  // 7 calls a step of nano's 6 layers
    ASSERT_FALSE(scheduler.submit(job_of(prompt, 5, 1, watcher)).has_value());
    const JobResult result = watcher->wait();
    ASSERT_EQ(result.end, JobResult::End::cancelled);
    EXPECT_EQ(result.stats.reused, before) << "nothing that was computed is lost";
    EXPECT_GE(watcher->computed().length, before + 4 * 16);
    before = watcher->computed().length;
  }
  // Two that wait for the same prompt share one prefill; the first of them leaves.
  const auto leaves = submit(scheduler, prompt, 5), stays = submit(scheduler, prompt, 5);
  leaves->wait_for_progress();
  leaves->cancel();
  leaves->wait();
  EXPECT_GE(stays->wait().stats.reused, before);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *stays));
}

TEST_F(PublicFailures, SeveralAnswersToOnePromptReadItOnce) {
  Scheduler scheduler(*engine_, options(4));
  const std::vector<Token> prompt = some(300);
  std::vector<std::shared_ptr<Watcher>> forks;
  for (int i = 0; i < 4; ++i) forks.push_back(submit(scheduler, prompt, 10));
  std::int64_t run = 0;
  for (const auto& fork : forks) {
    EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *fork));
    run += fork->wait().stats.prompt - fork->wait().stats.reused;
  }
  EXPECT_EQ(run, 300);
}

// ---- Fairness ----

/// Reads a long prompt and has something done before a given layer of it is run, on the scheduler's thread.
class Interrupted : public Watcher {
 public:
  std::function<void(int call)> act;
  std::atomic<std::int64_t> done = 0;
  void on_prefill(const PrefillProgress& progress) override {
    done = progress.done;
    act(calls_++);
    Watcher::on_prefill(progress);
  }

 private:
  int calls_ = 0;
};

/// Knows how far another one was when its first token came.
class Short : public Watcher {
 public:
  explicit Short(const Interrupted& other) : other_(other) {}
  std::int64_t seen = -1;
  bool on_token(const Sampled& sampled) override {
    if (seen < 0) seen = other_.done;
    return Watcher::on_token(sampled);
  }

 private:
  const Interrupted& other_;
};

TEST_F(PublicFailures, AShortPromptHasItsFirstTokenWithinThriceItsOwnWorkWhileALongOneIsRead) {
  const auto engine = engine_of(nano(), 512);
  SchedulerOptions unhurried = options(2);
  unhurried.step_seconds = 1000;  // steps are cut by nothing but this
  Scheduler scheduler(*engine, unhurried);
  constexpr std::int64_t kShort = 32;
  const std::vector<Token> long_prompt = some(2000), short_prompt = some(kShort);
  const auto slow = std::make_shared<Interrupted>();
  const auto quick = std::make_shared<Short>(*slow);
  slow->act = [&](int call) {
    // Within the first step of 128 rows, before its second layer.
    if (call != 2) return;
    EXPECT_FALSE(scheduler.submit(job_of(short_prompt, 3, 1, quick)).has_value());
  };
  ASSERT_FALSE(scheduler.submit(job_of(long_prompt, 3, 1, slow)).has_value());
  EXPECT_NO_THROW(check_against_cold(*cold_, short_prompt, *quick));
  EXPECT_NO_THROW(check_against_cold(*cold_, long_prompt, *slow));
  EXPECT_EQ(scheduler.status().given_up, 1u) << "the step it found running";
  // Alone: 32 rows. Here: the layer that was running, its own rows, and what the long prompt had beside them.
  const std::int64_t layer = 128 / 6 + 1;
  EXPECT_LE(layer + kShort + quick->seen, 3 * kShort) << quick->seen << " rows of the long prompt beside it";
}

TEST_F(PublicFailures, ALongPromptComesToItsEndThoughShortOnesComeAllTheTime) {
  const auto engine = engine_of(nano(), 128);
  SchedulerOptions hurried = options(3);
  hurried.step_seconds = 0.001;
  hurried.queue = 1000;
  Scheduler scheduler(*engine, hurried);
  const std::vector<Token> long_prompt = some(700);
  std::vector<std::shared_ptr<Watcher>> quick;
  const auto slow = std::make_shared<Interrupted>();
  slow->act = [&](int) {
    if (quick.size() >= 60) return;
    quick.push_back(std::make_shared<Watcher>());
    EXPECT_FALSE(scheduler.submit(job_of(some(17), 1, 1, quick.back())).has_value());
  };
  ASSERT_FALSE(scheduler.submit(job_of(long_prompt, 2, 1, slow)).has_value());
  EXPECT_NO_THROW(check_against_cold(*cold_, long_prompt, *slow));
  EXPECT_EQ(slow->wait().end, JobResult::End::limit);
  for (const auto& one : quick) EXPECT_EQ(one->wait().end, JobResult::End::limit);
}

TEST_F(PublicFailures, AnInteractiveRequestIsAdmittedFirst) {
  Scheduler scheduler(*engine_, options(1));
  const auto running = submit(scheduler, some(50), 60);
  running->wait_for_tokens(2);
  const auto batch = submit(scheduler, some(300), 20), interactive = submit(scheduler, some(300), 20, 1);
  const double queued = interactive->wait().stats.queue_seconds;
  EXPECT_LT(queued, batch->wait().stats.queue_seconds);
}

// ---- A device that fails ----

TEST_F(PublicFailures, WhatFailsIsToldAndTheNextRequestIsServed) {
  SchedulerOptions limited = options(2);
  limited.session_bytes = SequenceCache::plan_bytes(engine_->config(), Mode::official, 600);
  Scheduler scheduler(*engine_, limited);
  EXPECT_THROW(scheduler.submit(job_of(some(5000), 1, 1, std::make_shared<Watcher>())), Error);
  std::vector<Token> chat = some(100);
  EXPECT_EQ(turn(scheduler, chat).reused, 0);
}

}  // namespace
}  // namespace lockstep
