// The scheduler: whatever runs beside a job, whatever was kept from before and whenever it came, its tokens are those
// of a run alone. And what it must not do: lose a job, run a prompt twice, let one job's end touch another's.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "engine/generate.h"
#include "ops/forwarding_ops.h"
#include "waited_guide.h"

namespace lockstep {
namespace {

constexpr int kVocabulary = 512;

std::unique_ptr<Engine> nano(int max_rows = 64, std::unique_ptr<Ops> ops = cpu::make_cpu_ops({1, "auto"})) {
  EngineOptions options;
  options.model = LOCKSTEP_TEST_DATA "/golden/nano-a.gguf";
  options.max_rows = max_rows;
  return std::make_unique<Engine>(options, std::move(ops));
}

std::vector<Token> random_tokens(std::mt19937& random, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % kVocabulary);
  return tokens;
}

/// Collects an answer and can be waited for.
class Collector : public test::WaitedGuide {
 public:
  explicit Collector(std::size_t cancel_after = SIZE_MAX) : cancel_after_(cancel_after) {}

  bool is_cancelled() const override { return is_cancelled_; }
  bool masks() const override { return false; }
  void on_prefill(const PrefillProgress& progress) override {
    const std::lock_guard lock(mutex_);
    progress_.push_back(progress.done);
    changed_.notify_all();
  }
  void on_prompt_token(const Sampled& sampled) override { prompt_.push_back(sampled); }
  bool on_token(const Sampled& sampled) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(sampled);
    if (tokens_.size() >= cancel_after_) is_cancelled_ = true;
    changed_.notify_all();
    return true;
  }
  void on_end(const JobResult& result) override {
    EXPECT_FALSE(has_ended()) << "ended twice";
    WaitedGuide::on_end(result);
  }

  void cancel() { is_cancelled_ = true; }
  void wait_for_progress() {
    wait_until([&] { return !progress_.empty(); });
  }
  void wait_for_tokens(std::size_t count) {
    wait_until([&] { return tokens_.size() >= count; });
  }
  std::vector<Token> tokens() const {
    std::vector<Token> out;
    for (const Sampled& sampled : tokens_) out.push_back(sampled.token);
    return out;
  }
  std::vector<Sampled> tokens_, prompt_;

 private:
  std::size_t cancel_after_;
  std::atomic<bool> is_cancelled_ = false;
  std::vector<std::int64_t> progress_;
};

Job job_for(std::vector<Token> prompt, std::int64_t limit, std::uint64_t seed, std::shared_ptr<Guide> guide) {
  Job job;
  job.prompt = std::move(prompt);
  job.limit = limit;
  job.sampling.temperature = 0.8f;
  job.sampling.top_p = 0.95f;
  job.sampling.frequency_penalty = 0.1f;
  job.sampling.seed = seed;
  job.guide = std::move(guide);
  return job;
}

/// Settings by which a token is drawn where the logits are.
SamplerParams plain(int kind, std::uint64_t seed) {
  SamplerParams params;
  params.seed = seed;
  params.temperature = kind % 4 == 0 ? 0 : 0.5f + 0.25f * static_cast<float>(kind % 4);
  params.top_k = kind % 3 == 0 ? 0 : 20;
  params.top_p = kind % 2 == 0 ? 1 : 0.95f;
  params.min_p = kind % 5 == 0 ? 0.02f : 0;
  return params;
}

std::vector<Token> alone(Engine& engine, const Job& job) {
  GenerateRequest request;
  request.prompt = job.prompt;
  request.limit = job.limit;
  request.sampling = job.sampling;
  return Generator(engine).generate(request).tokens;
}

SchedulerOptions options_with(std::size_t cache_bytes, int slots = 4) {
  SchedulerOptions options;
  options.slots = slots;
  options.cache_bytes = cache_bytes;
  options.snapshot_every = 96;
  return options;
}

/// Prompts that grow, are cut, changed in the middle, sent again and branch off, as those of chats do.
std::vector<Token> next_prompt(std::mt19937& random, const std::vector<std::vector<Token>>& before) {
  if (before.empty() || random() % 6 == 0) return random_tokens(random, 1 + random() % 300);
  std::vector<Token> prompt = before[random() % before.size()];
  switch (random() % 4) {
    case 0:
      break;  // the same again
    case 1: {
      const std::vector<Token> more = random_tokens(random, 1 + random() % 60);
      prompt.insert(prompt.end(), more.begin(), more.end());
      break;
    }
    case 2:
      prompt.resize(1 + random() % prompt.size());
      break;
    default:
      prompt[random() % prompt.size()] = static_cast<Token>(random() % kVocabulary);
  }
  if (prompt.size() > 500) prompt.resize(500);
  return prompt;
}

struct MixCase {
  const char* name;
  std::size_t cache_bytes;
  int slots;
  unsigned seed;
};

class SchedulerMix : public testing::TestWithParam<MixCase> {};

TEST_P(SchedulerMix, EveryAnswerIsItsSoloRunWhateverRunsBesideIt) {
  const MixCase& param = GetParam();
  const auto solo = nano();
  const auto engine = nano();
  Scheduler scheduler(*engine, options_with(param.cache_bytes, param.slots));
  std::mt19937 random(param.seed);
  std::vector<std::vector<Token>> prompts;
  std::vector<std::pair<Job, std::shared_ptr<Collector>>> running;
  const auto check_all = [&] {
    for (auto& [job, collector] : running) {
      const JobResult result = collector->wait();
      ASSERT_NE(result.end, JobResult::End::failed) << result.error;
      const std::vector<Token> expected = alone(*solo, job), got = collector->tokens();
      if (result.end == JobResult::End::cancelled) {
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin())) << "a cancelled answer is a beginning";
        continue;
      }
      ASSERT_EQ(got, expected) << "prompt of " << job.prompt.size() << ", reused " << result.stats.reused;
      std::vector<Token> whole = job.prompt;
      whole.insert(whole.end(), got.begin(), got.end());
      prompts.push_back(std::move(whole));
    }
    running.clear();
  };
  for (int i = 0; i < 40; ++i) {
    const auto collector = std::make_shared<Collector>(random() % 8 == 0 ? 1 + random() % 4 : SIZE_MAX);
    Job job = job_for(next_prompt(random, prompts), 1 + random() % 12, random(), collector);
    job.use_cache = random() % 10 != 0;
    if (random() % 3 != 0) job.sampling = plain(i, job.sampling.seed);
    running.emplace_back(job, collector);
    prompts.push_back(job.prompt);
    ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
    if (running.size() == 8 || random() % 4 == 0) check_all();
    if (HasFatalFailure()) return;
  }
  check_all();
  if (param.cache_bytes > 10'000'000) {
    EXPECT_GT(scheduler.status().reused_tokens, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerMix,
                         testing::Values(MixCase{"no_cache", 0, 3, 1},
                                         MixCase{"a_cache_under_pressure", 1'500'000, 4, 2},
                                         MixCase{"a_large_cache", 400'000'000, 8, 3},
                                         MixCase{"one_slot", 400'000'000, 1, 4}),
                         [](const auto& mix) { return std::string(mix.param.name); });

TEST(Scheduler, TheSamePromptAgainRunsNothingAndAGrownOneItsGrowth) {
  const auto engine = nano();
  Scheduler scheduler(*engine, options_with(400'000'000));
  std::mt19937 random(5);
  std::vector<Token> prompt = random_tokens(random, 200);
  const auto run = [&](const std::vector<Token>& tokens) {
    const auto collector = std::make_shared<Collector>();
    EXPECT_FALSE(scheduler.submit(job_for(tokens, 30, 1, collector)).has_value());
    const JobResult result = collector->wait();
    return std::pair(result, collector->tokens());
  };
  const auto [first, answer] = run(prompt);
  EXPECT_EQ(first.stats.reused, 0);
  EXPECT_EQ(first.stats.miss, Miss::nothing_kept);
  const auto [again, same] = run(prompt);
  EXPECT_EQ(again.stats.reused, 200);
  EXPECT_EQ(again.stats.miss, Miss::none);
  EXPECT_EQ(same, answer);

  std::vector<Token> grown = prompt;
  grown.insert(grown.end(), answer.begin(), answer.end());
  const std::vector<Token> more = random_tokens(random, 20);
  grown.insert(grown.end(), more.begin(), more.end());
  // The answer's last token was never run, so its place is part of the growth.
  EXPECT_EQ(run(grown).first.stats.reused, 229);

  // A change in the middle: the first time from the snapshot before it, the second time from the place itself.
  std::vector<Token> changed = prompt;
  changed[150] = (changed[150] + 1) % kVocabulary;
  const JobResult edited = run(changed).first;
  EXPECT_EQ(edited.stats.reused, 96);
  EXPECT_EQ(edited.stats.shared, 150);
  EXPECT_EQ(edited.stats.miss, Miss::no_snapshot);
  changed[150] = (changed[150] + 1) % kVocabulary;
  EXPECT_EQ(run(changed).first.stats.reused, 150);
}

TEST(Scheduler, TheSamePromptTwiceAtOnceIsPrefilledOnce) {
  const auto engine = nano();
  Scheduler scheduler(*engine, options_with(400'000'000));
  std::mt19937 random(6);
  const std::vector<Token> prompt = random_tokens(random, 400);
  std::vector<Token> branch = prompt;
  branch[330] = (branch[330] + 1) % kVocabulary;
  const auto a = std::make_shared<Collector>(), b = std::make_shared<Collector>(), c = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, a)).has_value());
  a->wait_for_progress();
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, b)).has_value());
  ASSERT_FALSE(scheduler.submit(job_for(branch, 5, 1, c)).has_value());
  a->wait();
  // Of what is about to be computed all but a few tokens are waited for: 384 is the last regular snapshot.
  EXPECT_GE(b->wait().stats.reused, 384);
  EXPECT_EQ(b->tokens(), a->tokens());
  EXPECT_EQ(c->wait().stats.reused, 330);
}

TEST(Scheduler, ACancelledJobKeepsWhatItComputedAndTouchesNoOther) {
  const auto engine = nano(16);
  const auto solo = nano();
  SchedulerOptions options = options_with(400'000'000, 1);
  Scheduler scheduler(*engine, options);
  std::mt19937 random(7);
  const auto running = std::make_shared<Collector>(), queued = std::make_shared<Collector>();
  const Job job = job_for(random_tokens(random, 120), 40, 1, running);
  ASSERT_FALSE(scheduler.submit(job).has_value());
  ASSERT_FALSE(scheduler.submit(job_for(random_tokens(random, 50), 40, 1, queued)).has_value());
  queued->cancel();
  EXPECT_EQ(queued->wait().end, JobResult::End::cancelled);
  EXPECT_EQ(queued->tokens().size(), 0u);
  EXPECT_EQ(running->wait().end, JobResult::End::limit);
  EXPECT_EQ(running->tokens(), alone(*solo, job));

  const auto dropped = std::make_shared<Collector>();
  const std::vector<Token> prompt = random_tokens(random, 450);
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, dropped)).has_value());
  dropped->wait_for_progress();
  dropped->cancel();
  const JobResult cancelled = dropped->wait();
  if (cancelled.end == JobResult::End::cancelled) {
    EXPECT_EQ(dropped->tokens().size(), 0u);
  }
  const auto retried = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, retried)).has_value());
  EXPECT_EQ(retried->wait().end, JobResult::End::limit);
  EXPECT_EQ(retried->tokens(), alone(*solo, job_for(prompt, 5, 1, nullptr)));
}

TEST(Scheduler, ScoresThePromptAsItsOwnLogitsSay) {
  const auto engine = nano(16);
  Scheduler scheduler(*engine, options_with(0));
  std::mt19937 random(8);
  const std::vector<Token> prompt = random_tokens(random, 40);
  const auto collector = std::make_shared<Collector>();
  Job job = job_for(prompt, 0, 1, collector);
  job.score_prompt = true;
  job.logprobs = 3;
  ASSERT_FALSE(scheduler.submit(job).has_value());
  EXPECT_EQ(collector->wait().end, JobResult::End::limit);
  EXPECT_EQ(collector->tokens_.size(), 0u);
  ASSERT_EQ(collector->prompt_.size(), 39u);

  const auto plain = nano();
  SequenceCache cache = plain->new_sequence();
  const BatchItem item{&cache, prompt, 40};
  plain->forward().step({&item, 1});
  std::vector<float> logits(40 * kVocabulary);
  Buffer buffer(plain->ops(), logits.size() * sizeof(float));
  plain->forward().logits(0, {buffer.floats(), 40, kVocabulary, kVocabulary});
  plain->ops().download(logits.data(), buffer.floats(), buffer.size());
  for (std::size_t i = 0; i < 39; ++i) {
    const Sampled expected = score(std::span<const float>(logits).subspan(i * kVocabulary, kVocabulary), prompt[i + 1],
                                   static_cast<Position>(i + 1), 3);
    EXPECT_EQ(collector->prompt_[i].token, expected.token);
    EXPECT_EQ(*collector->prompt_[i].logprob, *expected.logprob);
    ASSERT_EQ(collector->prompt_[i].alternatives.size(), 3u);
    EXPECT_EQ(collector->prompt_[i].alternatives[0].token, expected.alternatives[0].token);
  }
}

TEST(Scheduler, LogProbabilitiesAddUpToOneAndTheLikeliestComeFirst) {
  const std::vector<float> logits = {1, 3, 2, 3};
  double sum = 0;
  for (Token t = 0; t < 4; ++t) sum += std::exp(static_cast<double>(*score(logits, t, 0, 0).logprob));
  EXPECT_NEAR(sum, 1, 1e-6);
  const Sampled s = score(logits, 0, 7, 9);
  ASSERT_EQ(s.alternatives.size(), 4u);
  EXPECT_EQ(s.alternatives[0].token, 1) << "ties go to the lower id";
  EXPECT_EQ(s.alternatives[1].token, 3);
  EXPECT_EQ(s.alternatives[3].token, 0);
  EXPECT_EQ(s.alternatives[3].logprob, *s.logprob);
  EXPECT_EQ(s.position, 7);
}

/// Counts the rows of logits that come to the host; at the draw of token number `spoilt` the first row turns out to be
/// no numbers.
class CountingRows final : public ForwardingOps {
 public:
  struct Counts {
    std::atomic<int> rows = 0, draws = 0, drawn = 0;
    int spoilt = -1;
  };
  CountingRows(std::unique_ptr<Ops> owned, Counts& counts)
      : ForwardingOps(*owned), owned_(std::move(owned)), counts_(counts) {}

  void download(void* to, const void* from, std::size_t bytes) override {
    counts_.rows += bytes >= kVocabulary * sizeof(float);
    ForwardingOps::download(to, from, bytes);
  }
  void draw(Token* out, ConstRows x, const DrawChoice* choices, int count) override {
    ++counts_.draws;
    if (counts_.spoilt >= counts_.drawn && counts_.spoilt < counts_.drawn + count)
      const_cast<float*>(x.row(choices[0].row))[7] = std::numeric_limits<float>::quiet_NaN();
    counts_.drawn += count;
    ForwardingOps::draw(out, x, choices, count);
  }

 private:
  std::unique_ptr<Ops> owned_;
  Counts& counts_;
};

TEST(Scheduler, TokensAreDrawnWhereTheLogitsAreAndOnlyRowsThatNeedMoreAreFetched) {
  CountingRows::Counts counts;
  const auto solo = nano();
  const auto engine = nano(64, std::make_unique<CountingRows>(cpu::make_cpu_ops({1, "auto"}), counts));
  std::mt19937 random(21);
  const auto run = [&](const std::vector<Job>& jobs, std::size_t cache_bytes) {
    Scheduler scheduler(*engine, options_with(cache_bytes, 6));
    counts.rows = counts.draws = counts.drawn = 0;
    std::vector<std::shared_ptr<Collector>> collectors;
    for (Job job : jobs) {
      collectors.push_back(std::make_shared<Collector>());
      job.guide = collectors.back();
      ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(collectors[i]->wait().end, JobResult::End::limit);
      EXPECT_EQ(collectors[i]->tokens(), alone(*solo, jobs[i])) << i;
    }
  };
  std::vector<Job> jobs;
  for (int kind = 0; kind < 6; ++kind) {
    jobs.push_back(job_for(random_tokens(random, 5), 10, 1, nullptr));
    jobs.back().sampling = plain(kind, 30 + static_cast<std::uint64_t>(kind));
  }
  run(jobs, 0);
  EXPECT_EQ(counts.rows, 0);
  EXPECT_EQ(counts.drawn, 60);
  EXPECT_LT(counts.draws, 60) << "one call for all of a step";
  run(jobs, 400'000'000);
  EXPECT_EQ(counts.rows, 6) << "those behind the prompts, which are kept";
  EXPECT_EQ(counts.drawn, 60);
  jobs[1].sampling.presence_penalty = 0.5f;
  jobs[2].sampling.logit_bias = {{3, 1}};
  jobs[4].logprobs = 2;
  run(jobs, 0);
  EXPECT_EQ(counts.rows, 30);
  EXPECT_EQ(counts.drawn, 30);
}

TEST(Scheduler, ARowThatNothingCanBeDrawnFromFailsItsJobAndNoOther) {
  CountingRows::Counts counts;
  const auto solo = nano();
  const auto engine = nano(64, std::make_unique<CountingRows>(cpu::make_cpu_ops({1, "auto"}), counts));
  Scheduler scheduler(*engine, options_with(0, 4));
  std::mt19937 random(22);
  counts.spoilt = 17;
  std::vector<std::pair<Job, std::shared_ptr<Collector>>> running;
  for (int kind = 0; kind < 4; ++kind) {
    const auto collector = std::make_shared<Collector>();
    Job job = job_for(random_tokens(random, 4), 12, 1, collector);
    job.sampling = plain(kind, 5);
    running.emplace_back(job, collector);
    ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
  }
  int failed = 0;
  for (auto& [job, collector] : running) {
    const JobResult result = collector->wait();
    if (result.end == JobResult::End::failed) {
      ++failed;
      EXPECT_NE(result.error.find("logits: token 7 is NaN at position "), std::string::npos) << result.error;
    } else {
      EXPECT_EQ(collector->tokens(), alone(*solo, job));
    }
  }
  EXPECT_EQ(failed, 1);
}

/// Bans all tokens but one, then forces another.
class Narrow : public Collector {
 public:
  std::optional<Token> forced() override { return tokens_.size() == 2 ? std::optional<Token>(9) : std::nullopt; }
  bool masks() const override { return true; }
  void mask(std::span<float> logits) override {
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (i != 5) logits[i] = -std::numeric_limits<float>::infinity();
  }
};

TEST(Scheduler, AGuideMasksAndForcesAndLogProbabilitiesAreTheModelsOwn) {
  const auto engine = nano();
  Scheduler scheduler(*engine, options_with(0));
  std::mt19937 random(9);
  const auto guide = std::make_shared<Narrow>();
  Job job = job_for(random_tokens(random, 10), 4, 1, guide);
  job.logprobs = 1;
  ASSERT_FALSE(scheduler.submit(job).has_value());
  guide->wait();
  EXPECT_EQ(guide->tokens(), (std::vector<Token>{5, 5, 9, 5}));
  for (const Sampled& sampled : guide->tokens_) EXPECT_TRUE(std::isfinite(*sampled.logprob));
}

TEST(Scheduler, RefusesWhatDoesNotFitByName) {
  const auto engine = nano();
  SchedulerOptions options = options_with(0, 1);
  options.queue = 2;
  options.context = 100;
  options.session_bytes = SequenceCache::plan_bytes(engine->config(), Mode::official, 0);
  Scheduler scheduler(*engine, options);
  std::mt19937 random(10);
  const auto guide = std::make_shared<Collector>();
  const auto message_of = [&](Job job) -> std::string {
    try {
      scheduler.submit(std::move(job));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of(job_for({}, 1, 1, guide)), "prompt: empty, expected at least one token");
  EXPECT_EQ(message_of(job_for({1, 512}, 1, 1, guide)), "prompt: token 512, expected 0 to 511");
  EXPECT_EQ(message_of(job_for(random_tokens(random, 101), 1, 1, guide)),
            "prompt: 101 tokens, expected at most the context of 100");
  EXPECT_NE(message_of(job_for(random_tokens(random, 90), 10, 1, guide)).find("what running answers may take"),
            std::string::npos);
}

TEST(Scheduler, AFullQueueAndAStoppingOneRefuseAndEveryAcceptedJobEnds) {
  const auto engine = nano();
  SchedulerOptions options = options_with(0, 1);
  options.queue = 3;
  auto scheduler = std::make_unique<Scheduler>(*engine, options);
  std::mt19937 random(11);
  std::vector<std::shared_ptr<Collector>> accepted;
  std::size_t refused = 0;
  for (int i = 0; i < 40; ++i) {
    const auto guide = std::make_shared<Collector>();
    const auto refusal = scheduler->submit(job_for(random_tokens(random, 60), 20, 1, guide));
    if (!refusal) accepted.push_back(guide);
    EXPECT_TRUE(!refusal || *refusal == Scheduler::Refusal::queue_full);
    refused += refusal.has_value();
  }
  EXPECT_GT(refused, 0u);
  scheduler->stop(60);
  for (const auto& guide : accepted) EXPECT_EQ(guide->wait().end, JobResult::End::limit);
  EXPECT_EQ(scheduler->submit(job_for({1}, 1, 1, std::make_shared<Collector>())), Scheduler::Refusal::stopping);
}

TEST(Scheduler, StoppingWithoutPatienceCancelsWhatRuns) {
  const auto engine = nano();
  auto scheduler = std::make_unique<Scheduler>(*engine, options_with(0, 1));
  std::mt19937 random(12);
  const auto running = std::make_shared<Collector>(), queued = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler->submit(job_for(random_tokens(random, 30), 5000, 1, running)).has_value());
  ASSERT_FALSE(scheduler->submit(job_for(random_tokens(random, 30), 5000, 1, queued)).has_value());
  running->wait_for_tokens(2);
  scheduler.reset();
  EXPECT_EQ(running->wait().end, JobResult::End::cancelled);
  EXPECT_EQ(queued->wait().end, JobResult::End::cancelled);
}

/// Leaves in the middle of its `steps`-th step that has some of its prompt, and knows how far that step had come.
class Leaver : public Collector {
 public:
  explicit Leaver(int steps) : calls_left_((steps - 1) * kCalls + 5) {}
  void on_prefill(const PrefillProgress& progress) override {
    Collector::on_prefill(progress);
    if (--calls_left_ > 0) return;
    if (calls_left_ == 0) reached_ = progress.done;
    cancel();
  }
  std::int64_t reached() const { return reached_; }

 private:
  static constexpr int kCalls = 7;  // one before the step and one before each of nano's layers
  int calls_left_;
  std::int64_t reached_ = 0;
};

TEST(Scheduler, AStepThatOthersNeedIsKeptForOneWhoLeavesInIt) {
  const auto engine = nano(64);
  Scheduler scheduler(*engine, options_with(400'000'000));
  std::mt19937 random(14);
  const auto other = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for(random_tokens(random, 30), 5000, 1, other)).has_value());
  other->wait_for_tokens(2);
  const std::vector<Token> prompt = random_tokens(random, 500);
  const auto leaver = std::make_shared<Leaver>(4);
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, leaver)).has_value());
  EXPECT_EQ(leaver->wait().end, JobResult::End::cancelled);
  const auto retried = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, retried)).has_value());
  EXPECT_GT(leaver->reached(), 0);
  EXPECT_GE(retried->wait().stats.reused, leaver->reached());
  EXPECT_EQ(retried->tokens(), alone(*nano(), job_for(prompt, 5, 1, nullptr)));
  other->cancel();
  other->wait();
}

TEST(Scheduler, WorkIsCountedStepByStepAndOnlyWhatWasDone) {
  const auto engine = nano(64);
  Scheduler scheduler(*engine, options_with(400'000'000));
  std::mt19937 random(15);
  const std::vector<Token> prompt = random_tokens(random, 700);
  const auto leaver = std::make_shared<Leaver>(6);
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 5, 1, leaver)).has_value());
  leaver->wait();
  SchedulerStatus status = scheduler.status();
  EXPECT_EQ(status.steps, 5u);
  EXPECT_EQ(status.rows, status.prompt_tokens);
  EXPECT_GT(status.prompt_tokens, 100u);
  EXPECT_LT(status.prompt_tokens, 700u);
  EXPECT_GT(status.prefill_seconds, 0);

  /// Looks from within, where no step ends meanwhile.
  class Looker : public Collector {
   public:
    explicit Looker(const Scheduler& scheduler) : scheduler_(scheduler) {}
    void on_prefill(const PrefillProgress&) override { look(); }
    bool on_token(const Sampled& sampled) override {
      look();
      return Collector::on_token(sampled);
    }
    std::vector<SchedulerStatus> seen;

   private:
    void look() { seen.push_back(scheduler_.status()); }
    const Scheduler& scheduler_;
  };
  const auto looker = std::make_shared<Looker>(scheduler);
  ASSERT_FALSE(scheduler.submit(job_for(prompt, 20, 1, looker)).has_value());
  const std::int64_t reused = looker->wait().stats.reused;
  for (std::size_t i = 1; i < looker->seen.size(); ++i) {
    const SchedulerStatus &before = looker->seen[i - 1], &now = looker->seen[i];
    EXPECT_LE(now.prompt_tokens - before.prompt_tokens, 64u + static_cast<std::uint64_t>(reused));
    EXPECT_LE(now.generated_tokens - before.generated_tokens, 1u);
    EXPECT_GE(now.prefill_seconds, before.prefill_seconds);
    EXPECT_GE(now.decode_seconds, before.decode_seconds);
  }
  const SchedulerStatus& last = looker->seen.back();
  EXPECT_EQ(last.prompt_tokens, status.prompt_tokens + 700u);
  EXPECT_GE(last.generated_tokens, 18u);
  status = scheduler.status();
  EXPECT_EQ(status.reused_tokens, static_cast<std::uint64_t>(reused));
  EXPECT_EQ(status.generated_tokens, 20u);
}

TEST(Scheduler, TheStatusTellsWhatEachSlotWasAskedFor) {
  const auto engine = nano();
  Scheduler scheduler(*engine, options_with(0, 2));
  std::mt19937 random(16);
  const auto collector = std::make_shared<Collector>();
  Job job = job_for(random_tokens(random, 30), 5000, 77, collector);
  job.logprobs = 2;
  job.stops = 3;
  ASSERT_FALSE(scheduler.submit(std::move(job)).has_value());
  collector->wait_for_tokens(3);
  const SchedulerStatus::Slot slot = scheduler.status().slots.at(0);
  EXPECT_EQ(slot.sampling.temperature, 0.8f);
  EXPECT_EQ(slot.sampling.seed, 77u);
  EXPECT_EQ(slot.wanted, 5000);
  EXPECT_EQ(slot.logprobs, 2);
  EXPECT_EQ(slot.stops, 3u);
  collector->cancel();
  collector->wait();
}

TEST(Scheduler, ALimitMayBeAnyNumber) {
  const auto engine = nano();
  SchedulerOptions options = options_with(0, 2);
  options.context = 40;
  options.session_bytes = std::size_t{1} << 40;
  Scheduler scheduler(*engine, options);
  const auto collector = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for({1, 2, 3}, INT64_MAX, 1, collector)).has_value());
  EXPECT_EQ(collector->wait().end, JobResult::End::context);
  EXPECT_EQ(collector->tokens().size(), 37u);
}

TEST(Scheduler, AShortPromptIsNotStuckBehindALongOne) {
  const auto engine = nano(64);
  SchedulerOptions options = options_with(0, 2);
  options.step_seconds = 0.02;
  Scheduler scheduler(*engine, options);
  std::mt19937 random(13);
  const auto slow = std::make_shared<Collector>(), quick = std::make_shared<Collector>();
  ASSERT_FALSE(scheduler.submit(job_for(random_tokens(random, 3000), 1, 1, slow)).has_value());
  slow->wait_for_progress();
  ASSERT_FALSE(scheduler.submit(job_for(random_tokens(random, 20), 1, 1, quick)).has_value());
  quick->wait();
  std::int64_t done = 0;
  for (const SchedulerStatus::Slot& slot : scheduler.status().slots) done = std::max(done, slot.done);
  EXPECT_LT(done, 3000);
  slow->wait();
}

}  // namespace
}  // namespace lockstep
