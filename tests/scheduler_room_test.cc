// Who is let in when everything is taken, and what one job's fault does to the others.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "cpu/cpu_ops.h"
#include "disk_cache_support.h"
#include "nano_scheduler.h"
#include "ops/forwarding_ops.h"

namespace lockstep {
namespace {

using test::check_against_cold;
using test::job_of;
using test::TempDirectory;
using test::Watcher;

/// Its logits turn out to be no numbers at the `at`-th token.
class Spoilt : public Watcher {
 public:
  explicit Spoilt(int at = 0) : at_(at) {}
  void mask(std::span<float> logits) override {
    if (count_++ == at_) logits[3] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  int at_, count_ = 0;
};

class Room : public test::NanoScheduler {
 protected:
  Room() : NanoScheduler(11) {}

  SchedulerOptions options_with_disk(int slots, const TempDirectory& directory) const {
    SchedulerOptions out = options(slots);
    out.cache_dir = directory.path();
    out.cache_disk_bytes = 1 << 30;
    return out;
  }
  /// Waits until so many states are on the disk, for ten seconds at most; how many there are then.
  static std::size_t states_on_disk(const Scheduler& scheduler, std::size_t wanted) {
    for (int i = 0; i < 500 && scheduler.status().disk.states < wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return scheduler.status().disk.states;
  }
};

TEST_F(Room, LogitsThatAreNoNumbersFailTheirJobAndNoOtherWhereverTheyComeFrom) {
  Scheduler scheduler(*engine_, options(4));
  const std::vector<Token> prompt = some(60), other = some(40);
  // After a step, beside others.
  const auto stays = submit(scheduler, other, 30);
  stays->wait_for_tokens(2);
  for (const int at : {0, 3}) {
    const JobResult spoilt = submit(scheduler, prompt, 10, 0, std::make_shared<Spoilt>(at))->wait();
    EXPECT_EQ(spoilt.end, JobResult::End::failed);
    EXPECT_NE(spoilt.error.find("NaN"), std::string::npos) << spoilt.error;
  }
  EXPECT_NO_THROW(check_against_cold(*cold_, other, *stays));
  EXPECT_EQ(stays->wait().end, JobResult::End::limit);
  // From logits that are kept, where no step is run.
  EXPECT_EQ(submit(scheduler, prompt, 10, 0, std::make_shared<Spoilt>())->wait().end, JobResult::End::failed);
  const auto good = submit(scheduler, prompt, 10);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *good));
  EXPECT_EQ(good->wait().stats.reused, 60);
}

TEST_F(Room, AShortPromptNeedNotWaitUntilEverySlotHasReadALongOne) {
  Scheduler scheduler(*engine_, options(2));
  const std::vector<Token> a = some(3000), b = some(3000), brief = some(30);
  const auto first = submit(scheduler, a, 2), second = submit(scheduler, b, 2);
  first->wait_for_progress();
  const auto guest = submit(scheduler, brief, 3);
  EXPECT_EQ(guest->wait().end, JobResult::End::limit);
  const SchedulerStatus then = scheduler.status();
  EXPECT_EQ(then.jobs_done, 1u) << "while both long ones were read";
  // What is nearly as long waits for its turn.
  const auto third = submit(scheduler, some(2900), 2);
  EXPECT_EQ(third->wait().end, JobResult::End::limit);
  EXPECT_GE(scheduler.status().jobs_done, 3u);
  EXPECT_NO_THROW(check_against_cold(*cold_, brief, *guest));
  EXPECT_NO_THROW(check_against_cold(*cold_, a, *first));
  EXPECT_NO_THROW(check_against_cold(*cold_, b, *second));
}

// Those that end while others run do not wait for the disk.
TEST_F(Room, StatesThatTheDiskHadNoTimeForAreWrittenWhenThereIsNothingToDo) {
  TempDirectory directory;
  Scheduler scheduler(*engine_, options_with_disk(4, directory));
  std::vector<std::shared_ptr<Watcher>> watchers;
  for (int i = 0; i < 8; ++i) watchers.push_back(submit(scheduler, some(100), 5));
  for (const auto& watcher : watchers) EXPECT_EQ(watcher->wait().end, JobResult::End::limit);
  // A state at the end of each prompt, and one at the end of each answer.
  EXPECT_EQ(states_on_disk(scheduler, 16), 16u);
  EXPECT_EQ(submit(scheduler, some(10), 2)->wait().end, JobResult::End::limit) << "and whoever comes is served";
}

// Another process holds the lock, or the disk is slow.
TEST_F(Room, ADirectoryThatIsLockedDelaysNoAnswerAndHasAllStatesInTheEnd) {
  TempDirectory directory;
  Scheduler scheduler(*engine_, options_with_disk(1, directory));
  EXPECT_EQ(submit(scheduler, some(100), 5)->wait().end, JobResult::End::limit);
  EXPECT_EQ(states_on_disk(scheduler, 2), 2u);
  auto lock = DirectoryLock::take(directory.path(), DirectoryLock::How::alone, 10);
  ASSERT_TRUE(lock);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(submit(scheduler, some(100), 5)->wait().end, JobResult::End::limit);
  submit(scheduler, some(100), 0)->wait();  // behind what the one before left
  EXPECT_LT(scheduler.status().disk.wait_seconds, 0.5) << "all of them, for the one that is stuck";
  lock.reset();
  EXPECT_EQ(states_on_disk(scheduler, 11), 11u);
}

TEST_F(Room, AStateThatAnotherServerReplacedByOneWithoutLogitsIsNotTakenForAWholePrompt) {
  TempDirectory directory;
  const std::vector<Token> prompt = some(100);
  std::vector<Token> one = prompt, two = prompt;
  one.insert(one.end(), 40, 1);
  two.insert(two.end(), 40, 2);
  SchedulerOptions without_memory = options_with_disk(2, directory);
  without_memory.cache_bytes = 0;
  Scheduler scheduler(*engine_, without_memory);
  submit(scheduler, prompt, 0)->wait();
  EXPECT_EQ(states_on_disk(scheduler, 1), 1u);
  for (const auto& tail : test::files_in(directory.path(), ".tail")) std::filesystem::remove(tail);
  {
    const auto engine = test::engine_of(nano());
    Scheduler other(*engine, options_with_disk(2, directory));
    submit(other, one, 0)->wait();
    submit(other, two, 0)->wait();  // keeps a state where the two part
    EXPECT_EQ(states_on_disk(other, 3), 3u);
  }
  const auto again = submit(scheduler, prompt, 5);
  EXPECT_EQ(again->wait().end, JobResult::End::limit);
  EXPECT_EQ(again->wait().stats.reused, 99) << "its last token was run";
  EXPECT_EQ(again->wait().stats.restored, 99);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *again));
}

/// Takes nothing while it is shut.
class Gate final : public ForwardingOps {
 public:
  Gate() : Gate(cpu::make_cpu_ops({1, "auto"})) {}
  void upload(void* to, const void* from, std::size_t bytes) override {
    while (is_shut) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ForwardingOps::upload(to, from, bytes);
  }
  std::atomic<bool> is_shut = false;

 private:
  explicit Gate(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}
  std::unique_ptr<Ops> owned_;
};

TEST_F(Room, AStateThatIsReadForLongShowsAsAJobAndAsAStep) {
  TempDirectory directory;
  const std::vector<Token> prompt = some(100);
  {
    Scheduler scheduler(*engine_, options_with_disk(2, directory));
    submit(scheduler, prompt, 0)->wait();
  }
  EngineOptions official;
  official.model = nano();
  official.max_rows = 64;
  auto owned = std::make_unique<Gate>();
  Gate& gate = *owned;
  Engine engine(official, std::move(owned));
  Scheduler scheduler(engine, options_with_disk(2, directory));
  gate.is_shut = true;
  const auto watcher = submit(scheduler, prompt, 3);
  SchedulerStatus status;
  for (int i = 0; i < 500 && status.seconds_in_step < 0.02; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = scheduler.status();
  }
  EXPECT_GE(status.seconds_in_step, 0.02);
  EXPECT_EQ(status.disk.hits, 0u) << "it is still read";
  EXPECT_TRUE(status.slots.at(0).is_busy);
  EXPECT_EQ(status.slots.at(0).stats.prompt, 100);
  EXPECT_TRUE(status.slots.at(0).is_prefilling);
  EXPECT_FALSE(status.slots.at(1).is_busy);
  gate.is_shut = false;
  EXPECT_EQ(watcher->wait().stats.restored, 100);
  EXPECT_NO_THROW(check_against_cold(*cold_, prompt, *watcher));
  for (int i = 0; i < 500 && scheduler.status().seconds_in_step > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(scheduler.status().seconds_in_step, 0);
}

TEST_F(Room, MemoryThatHasNoRoomForAStateSaysSoOnceAndKeepsTheSmallerOnes) {
  const std::vector<Token> small = some(40), large = some(2000);
  test::Notes notes;
  SchedulerOptions little = options(1);
  little.note = [&](const std::string& note) { notes.add(note); };
  little.snapshot_every = 0;
  little.cache_bytes = SequenceCache::plan_bytes(engine_->config(), engine_->mode(), 400);
  Scheduler scheduler(*engine_, little);
  submit(scheduler, small, 0)->wait();
  EXPECT_EQ(notes.text(), "");
  submit(scheduler, large, 0)->wait();
  submit(scheduler, large, 0)->wait();
  ASSERT_EQ(notes.all().size(), 1u) << notes.text();
  EXPECT_EQ(notes.count_with("a state of 2000 tokens takes"), 1u) << notes.text();
  EXPECT_EQ(submit(scheduler, small, 0)->wait().stats.reused, 40) << "which did not make room for nothing";
}

TEST_F(Room, WithoutAQueueAsManyAreTakenAsThereAreSlots) {
  SchedulerOptions no_queue = options(2);
  no_queue.queue = 0;
  Scheduler scheduler(*engine_, no_queue);
  const auto a = submit(scheduler, some(20), 400), b = submit(scheduler, some(20), 400);
  a->wait_for_tokens(1);
  EXPECT_EQ(scheduler.submit(job_of(some(5), 1, 1, std::make_shared<Watcher>())), Scheduler::Refusal::queue_full);
  a->cancel();
  a->wait();
  scheduler.stop(0.0);
  b->wait();
}

TEST_F(Room, ReasonsOfAMissTellWhatHappened) {
  const std::vector<Token> prompt = some(200);
  std::vector<Token> longer = prompt, edited = prompt;
  for (const Token token : some(50)) longer.push_back(token);
  edited[150] = (edited[150] + 1) % 512;
  {
    Scheduler scheduler(*engine_, options(1));
    EXPECT_EQ(submit(scheduler, prompt, 0)->wait().stats.miss, Miss::nothing_kept);
    const JobStats grown = submit(scheduler, longer, 0)->wait().stats;
    EXPECT_EQ(grown.miss, Miss::none) << "nothing differs: what was kept ended there";
    EXPECT_EQ(grown.reused, 200);
    const JobStats changed = submit(scheduler, edited, 0)->wait().stats;
    EXPECT_EQ(changed.miss, Miss::no_snapshot);
    EXPECT_EQ(changed.shared, 150) << "where the prompt first differs";
    edited[170] = (edited[170] + 1) % 512;
    const JobStats changed_again = submit(scheduler, edited, 0)->wait().stats;
    EXPECT_EQ(changed_again.shared, 170);
    std::vector<Token> few(prompt.begin(), prompt.begin() + 9);
    for (const Token token : some(90)) few.push_back(token);
    few[9] = (prompt[9] + 1) % 512;
    for (int i = 0; i < 2; ++i, few[9] = (few[9] + 1) % 512) {
      const JobStats apart = submit(scheduler, few, 0)->wait().stats;
      EXPECT_EQ(apart.miss, Miss::differs);
      EXPECT_EQ(apart.shared, 9);
      EXPECT_EQ(apart.reused, 0) << "no state of so few tokens is kept where prompts part";
    }
    Job cold = job_of(prompt, 0, 1, std::make_shared<Watcher>());
    cold.use_cache = false;
    const auto watcher = std::static_pointer_cast<Watcher>(cold.guide);
    EXPECT_FALSE(scheduler.submit(std::move(cold)).has_value());
    EXPECT_EQ(watcher->wait().stats.miss, Miss::disabled);
  }
  SchedulerOptions keeps_nothing = options(1);
  keeps_nothing.cache_bytes = 0;
  Scheduler scheduler(*engine_, keeps_nothing);
  EXPECT_EQ(submit(scheduler, prompt, 0)->wait().stats.miss, Miss::disabled);
}

TEST_F(Room, StatesOfAnotherModelAreAReasonOfAMiss) {
  const TempDirectory directory;
  const std::vector<Token> prompt = some(100);
  SchedulerOptions on_disk = options(1);
  on_disk.cache_dir = directory.path();
  on_disk.cache_disk_bytes = 100'000'000;
  {
    Scheduler scheduler(*engine_, on_disk);
    submit(scheduler, prompt, 0)->wait();
  }
  EngineOptions official;
  official.model = nano();
  official.mode = engine_->mode() == Mode::plain ? Mode::official : Mode::plain;
  official.max_rows = 64;
  Engine other(official, cpu::make_cpu_ops({1, "auto"}));
  Scheduler scheduler(other, on_disk);
  EXPECT_EQ(submit(scheduler, prompt, 0)->wait().stats.miss, Miss::fingerprint);
}

}  // namespace
}  // namespace lockstep
