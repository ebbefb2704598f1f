// Random edit scripts against a scheduler: chats that grow, are cut, edited, branched off, asked again, cancelled and
// forked, several at once, over restarts and under pressure of memory. After every operation what was computed is
// compared with a cold run of the same tokens: the logits of every token of the answer and the bytes of the state.
//
// The cold run is the plain one: an empty sequence of an engine of its own, the tokens from the first to the last in
// chunks, nothing reused. The short form is scheduler_edits_test; the long one is the program session_runs.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_ops.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "waited_guide.h"

namespace lockstep::test {

inline std::unique_ptr<Engine> engine_of(const std::filesystem::path& model, int max_rows = 64, int threads = 1) {
  EngineOptions options;
  options.model = model;
  options.max_rows = max_rows;
  return std::make_unique<Engine>(options, cpu::make_cpu_ops({threads, "auto"}));
}

/// What a run leaves: logits before every token of the answer, and the bytes of the sequence's state at its end.
struct Computed {
  std::vector<float> logits;  // [tokens, vocabulary]
  std::vector<std::byte> state;
  Position length = 0;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Runs all of `tokens` from nothing; logits after the last `wanted` of them.
inline Computed run_cold(Engine& engine, std::span<const Token> tokens, std::size_t wanted) {
  Computed out;
  const int vocabulary = engine.config().vocabulary;
  const auto chunk = static_cast<std::size_t>(engine.forward().max_rows());
  SequenceCache cache = engine.new_sequence();
  Buffer buffer(engine.ops(), chunk * static_cast<std::size_t>(vocabulary) * sizeof(float));
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t n = std::min(chunk, tokens.size() - at), left_after = tokens.size() - at - n;
    const int rows = static_cast<int>(std::min(n, wanted > left_after ? wanted - left_after : 0));
    const BatchItem item{&cache, tokens.subspan(at, n), rows};
    engine.forward().step({&item, 1});
    at += n;
    if (rows == 0) continue;
    engine.forward().logits(0, {buffer.floats(), rows, vocabulary, vocabulary});
    const std::size_t old = out.logits.size();
    out.logits.resize(old + static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocabulary));
    engine.ops().download(out.logits.data() + old, buffer.floats(), (out.logits.size() - old) * sizeof(float));
  }
  out.state = cache.contents();
  out.length = cache.length();
  return out;
}

/// Watches a job: keeps what it computed, and cancels it where it is told to.
class Watcher : public WaitedGuide {
 public:
  int cancel_after_progress = -1, cancel_after_tokens = -1;

  bool is_cancelled() const override { return is_cancelled_; }
  void on_prefill(const PrefillProgress&) override {
    if (cancel_after_progress >= 0 && progress_++ >= cancel_after_progress) is_cancelled_ = true;
    const std::lock_guard lock(mutex_);
    has_begun_ = true;
    changed_.notify_all();
  }
  void mask(std::span<float> logits) override {
    computed_.logits.insert(computed_.logits.end(), logits.begin(), logits.end());
  }
  bool on_token(const Sampled& sampled) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(sampled.token);
    if (cancel_after_tokens >= 0 && static_cast<int>(tokens_.size()) >= cancel_after_tokens) is_cancelled_ = true;
    changed_.notify_all();
    return true;
  }
  void on_state(const SequenceCache& state) override {
    computed_.state = state.contents();
    computed_.length = state.length();
  }

  void cancel() { is_cancelled_ = true; }
  void wait_for_progress() {
    wait_until([&] { return has_begun_; });
  }
  void wait_for_tokens(std::size_t count) {
    wait_until([&] { return tokens_.size() >= count; });
  }
  const std::vector<Token>& tokens() const { return tokens_; }  // after the end
  const Computed& computed() const { return computed_; }

 private:
  std::atomic<bool> is_cancelled_ = false;
  int progress_ = 0;
  bool has_begun_ = false;
  std::vector<Token> tokens_;
  Computed computed_;
};

inline Job job_of(std::vector<Token> prompt, std::int64_t limit, std::uint64_t seed, std::shared_ptr<Guide> guide) {
  Job job;
  job.prompt = std::move(prompt);
  job.limit = limit;
  job.sampling.temperature = 0.8f;
  job.sampling.seed = seed;
  job.guide = std::move(guide);
  return job;
}

/// Compares what a job computed with the cold run of its tokens. Throws std::runtime_error that says what differs.
inline void check_against_cold(Engine& cold_engine, const std::vector<Token>& prompt, Watcher& watcher) {
  const JobResult result = watcher.wait();
  if (result.end == JobResult::End::failed) throw std::runtime_error("failed: " + result.error);
  const Computed& got = watcher.computed();
  if (got.state.empty() && got.length == 0) return;  // it never ran, or nothing of it
  std::vector<Token> tokens = prompt;
  tokens.insert(tokens.end(), watcher.tokens().begin(), watcher.tokens().end());
  const auto length = static_cast<std::size_t>(got.length);
  const auto vocabulary = static_cast<std::size_t>(cold_engine.config().vocabulary);
  const std::size_t rows = got.logits.size() / vocabulary;
  if (length > tokens.size()) throw std::runtime_error("a state of more tokens than there are");
  const std::string what = " of a prompt of " + std::to_string(prompt.size()) + " tokens, " +
                           std::to_string(result.stats.reused) + " reused, " + std::to_string(result.stats.restored) +
                           " from the disk, " + std::to_string(rows) + " sampled, state after " +
                           std::to_string(length);
  // A job whose prompt was not read to its end has no logits; the others one row a token, the last one at the end.
  if (rows > 0 && length != prompt.size() + rows - 1) throw std::runtime_error("lengths differ" + what);
  const Computed expected = run_cold(cold_engine, std::span<const Token>(tokens).first(length), rows);
  if (!same_bits(got.logits, expected.logits)) throw std::runtime_error("the logits differ" + what);
  if (got.state != expected.state) throw std::runtime_error("the state differs" + what);
}

struct EditOptions {
  std::filesystem::path model;
  unsigned seed = 1;
  int operations = 1000;
  std::size_t cache_bytes = 400'000'000;
  int slots = 4;
  std::filesystem::path directory;  // empty: nothing is on disk
  std::uint64_t disk_bytes = std::uint64_t{1} << 30;
  std::size_t longest = 420;  // tokens of a chat
  double long_share = 0;      // of new chats, those of 2,050 to 2,500 tokens, past a segment on disk
  int threads = 1;
};

class EditRun {
 public:
  enum Kind { begin, extend, truncate, edit, branch, regenerate, fork, cancel_reading, cancel_answer, join, restart };
  static constexpr int kKinds = 11;
  static constexpr std::array<const char*, kKinds> kNames = {
      "begin", "extend",         "truncate",      "edit", "branch", "regenerate",
      "fork",  "cancel reading", "cancel answer", "join", "restart"};

  explicit EditRun(const EditOptions& options)
      : options_(options),
        random_(options.seed),
        engine_(engine_of(options.model, 64, options.threads)),
        cold_(engine_of(options.model, 64, options.threads)),
        vocabulary_(engine_->config().vocabulary) {
    open();
  }

  /// Throws std::runtime_error naming the operation after which something differed.
  void run() {
    for (int i = 0; i < options_.operations; ++i) {
      Kind kind = begin;
      try {
        kind = step();
        ++done_[kind];
        if (running_.size() >= static_cast<std::size_t>(at_once_)) check_all();
      } catch (const std::exception& error) {
        throw std::runtime_error("seed " + std::to_string(options_.seed) + ", operation " + std::to_string(i) + " (" +
                                 kNames[kind] + "): " + error.what());
      }
    }
    check_all();
    close();
  }

  const std::array<int, kKinds>& done() const { return done_; }
  std::uint64_t answers() const { return answers_; }
  std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  std::uint64_t reused() const { return reused_; }
  std::uint64_t restored() const { return restored_; }
  std::uint64_t evicted() const { return evicted_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Running {
    std::vector<Token> prompt;
    std::shared_ptr<Watcher> watcher;
    std::size_t chat;
  };

  void open() {
    SchedulerOptions options;
    options.slots = options_.slots;
    options.cache_bytes = options_.cache_bytes;
    options.snapshot_every = 96;
    options.context = 8192;
    options.cache_dir = options_.directory;
    options.cache_disk_bytes = options_.directory.empty() ? 0 : options_.disk_bytes;
    options.note = [this](const std::string& note) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(note);
    };
    scheduler_ = std::make_unique<Scheduler>(*engine_, options);
  }
  void close() {
    const SchedulerStatus status = scheduler_->status();
    evicted_ += status.cache.evictions + status.disk.evicted;
    scheduler_.reset();
  }

  std::size_t pick(std::size_t count) { return random_() % count; }
  std::vector<Token> some(std::size_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random_() % static_cast<unsigned>(vocabulary_));
    return tokens;
  }

  Kind step() {
    at_once_ = at_once_ == 0 || pick(16) == 0 ? static_cast<int>(1 + pick(8)) : at_once_;
    Kind kind = chats_.empty() ? begin : static_cast<Kind>(pick(kKinds));
    if (kind == restart && pick(4) != 0) kind = extend;
    if (kind == begin && chats_.size() >= 8) kind = extend;
    if (kind == join && running_.empty()) kind = regenerate;
    if (kind == restart) {
      check_all();
      close();
      open();
      return kind;
    }
    if (kind == join) {
      const Running& one = running_[pick(running_.size())];
      submit(one.prompt, one.chat, {});
      return kind;
    }
    if (kind == begin) {
      const bool is_long = static_cast<double>(pick(1000)) < options_.long_share * 1000;
      chats_.push_back(some(is_long ? 2050 + pick(450) : 1 + pick(300)));
      submit(chats_.back(), chats_.size() - 1, {});
      return kind;
    }
    const std::size_t chat = pick(chats_.size());
    std::vector<Token> prompt = chats_[chat];
    switch (kind) {
      case truncate:
        // Often within the slack, where moving counters is all there is to it.
        prompt.resize(pick(2) == 0 && prompt.size() > 20 ? prompt.size() - pick(20) : 1 + pick(prompt.size()));
        break;
      case edit:
        prompt[pick(prompt.size())] = some(1)[0];
        break;
      case branch: {
        prompt.resize(1 + pick(prompt.size()));
        for (const Token token : some(1 + pick(60))) prompt.push_back(token);
        break;
      }
      case regenerate:
        prompt = prompts_.empty() ? prompt : prompts_[pick(prompts_.size())];
        break;
      default:
        for (const Token token : some(1 + pick(60))) prompt.push_back(token);
    }
    const std::size_t most = prompt.size() > 2000 ? 2600 : options_.longest;
    if (prompt.size() > most) prompt.resize(most / 2 + pick(most / 2));
    const int copies = kind == fork ? static_cast<int>(2 + pick(3)) : 1;
    for (int i = 0; i < copies; ++i) {
      std::pair<int, int> cancel = {-1, -1};
      if (kind == cancel_reading) cancel.first = static_cast<int>(pick(20));
      if (kind == cancel_answer) cancel.second = static_cast<int>(1 + pick(6));
      submit(prompt, chat, cancel);
    }
    return kind;
  }

  void submit(const std::vector<Token>& prompt, std::size_t chat, std::optional<std::pair<int, int>> cancel) {
    auto watcher = std::make_shared<Watcher>();
    if (cancel) std::tie(watcher->cancel_after_progress, watcher->cancel_after_tokens) = *cancel;
    Job job = job_of(prompt, static_cast<std::int64_t>(1 + pick(10)), random_(), watcher);
    job.use_cache = pick(16) != 0;
    job.priority = pick(8) == 0 ? 1 : 0;
    if (scheduler_->submit(std::move(job))) throw std::runtime_error("refused");
    running_.push_back({prompt, std::move(watcher), chat});
  }

  void check_all() {
    for (Running& one : std::exchange(running_, {})) {
      check_against_cold(*cold_, one.prompt, *one.watcher);
      const JobResult result = one.watcher->wait();
      ++answers_;
      prompt_tokens_ += static_cast<std::uint64_t>(result.stats.prompt);
      reused_ += static_cast<std::uint64_t>(result.stats.reused);
      restored_ += static_cast<std::uint64_t>(result.stats.restored);
      std::vector<Token> chat = one.prompt;
      chat.insert(chat.end(), one.watcher->tokens().begin(), one.watcher->tokens().end());
      chats_[one.chat] = std::move(chat);
      prompts_.push_back(std::move(one.prompt));
      if (prompts_.size() > 12) prompts_.erase(prompts_.begin());
    }
    // Chats are left, too, and others begun in their place.
    if (chats_.size() >= 8 && pick(4) == 0) chats_.erase(chats_.begin() + static_cast<std::ptrdiff_t>(pick(8)));
  }

  EditOptions options_;
  std::mt19937 random_;
  std::unique_ptr<Engine> engine_, cold_;
  int vocabulary_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::vector<Token>> chats_, prompts_;
  std::vector<Running> running_;
  int at_once_ = 0;
  std::array<int, kKinds> done_{};
  std::uint64_t answers_ = 0, prompt_tokens_ = 0, reused_ = 0, restored_ = 0, evicted_ = 0;
  std::mutex mutex_;
  std::vector<std::string> notes_;
};

}  // namespace lockstep::test
