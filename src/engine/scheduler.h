// Many answers at once: one thread owns the sequences and the device, and every step mixes prefill chunks of some with
// single tokens of others.
//
// What an answer is does not depend on any of it: the steps it shared, what was reused, when it was admitted. A step
// that fails ends the jobs in it and no other. Memory for a job's whole context is counted before it is admitted, so
// that a running job never dies for lack of it. It knows no HTTP and no text.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/disk_cache.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/step_pace.h"
#include "ops/phase.h"

namespace lockstep {

/// A token with its log probability: natural log of the softmax of the model's own logits, before any parameter.
struct ScoredToken {
  Token token = 0;
  float logprob = 0;
};

struct Sampled {
  Token token = 0;
  Position position = 0;                  // the place it has in the sequence
  std::optional<float> logprob;           // if the job asked
  std::vector<ScoredToken> alternatives;  // the likeliest, if the job asked, likeliest first
};

/// Seconds by StepPhase; zeros unless the engine takes the time (EngineOptions::timing).
using PhaseSeconds = std::array<double, kPhases>;

struct JobStats {
  std::int64_t prompt = 0;
  std::int64_t reused = 0;     // of them, those that were in the cache
  std::int64_t generated = 0;  // tokens sampled, a stop token too
  std::int64_t shared = 0;     // tokens of the prompt that some earlier one began with, reused or not
  Miss miss = Miss::none;
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  std::int64_t restored = 0;  // of the reused tokens, those that came from the disk
  PhaseSeconds phases{};      // of the steps it was in, by its share of their rows; without its last sampling
};

struct JobResult {
  enum class End { stop_token, stopped, limit, context, cancelled, failed } end = End::failed;
  Token stop_token = 0;  // which one it was
  std::string error;     // failed: what happened
  JobStats stats;
};

/// One answer's consumer and its constraints. All calls come from the scheduler's thread, one at a time, and must be
/// quick: every other answer waits for them. None may throw.
class Guide {
 public:
  virtual ~Guide() = default;

  /// Asked before every layer and token: the answer is not wanted any more.
  virtual bool is_cancelled() const { return false; }
  virtual void on_prefill(const PrefillProgress&) {}
  /// With score_prompt: tokens 1 to the end of the prompt with their log probabilities, in order.
  virtual void on_prompt_token(const Sampled&) {}
  /// The next token, if it is not for the model to choose. It is then not sampled.
  virtual std::optional<Token> forced() { return std::nullopt; }
  /// Sets logits of tokens that must not come to -infinity. At least one must remain.
  virtual void mask(std::span<float> /*logits*/) {}
  /// False: mask would leave the next token's logits as they are, and need not be called. The token is then drawn where
  /// the logits are.
  virtual bool masks() const { return true; }
  /// A token of the answer, stop tokens left out. False ends the answer here.
  virtual bool on_token(const Sampled& sampled) = 0;
  /// The sequence as the answer leaves it, just before the end of a job that ran: for checks of what was computed.
  virtual void on_state(const SequenceCache& /*state*/) {}
  /// The last call, always made exactly once for a job that was accepted.
  virtual void on_end(const JobResult& result) = 0;
};

struct Job {
  std::vector<Token> prompt;
  SamplerParams sampling;
  std::int64_t limit = -1;   // new tokens at most; -1 = until the context is full; 0 = only read the prompt
  std::int64_t context = 0;  // tokens of prompt and answer together; 0 = the scheduler's
  std::vector<Token> stop_tokens;
  std::size_t penalty_last_n = 0;  // tokens that penalties look back on; 0 = all
  bool penalise_prompt = true;     // penalties count the prompt's tokens too
  int logprobs = -1;               // -1: none; otherwise how many alternatives a token
  bool score_prompt = false;       // tell log probabilities of the prompt's tokens; it is then run from its start
  bool use_cache = true;
  int priority = 0;                // greater first
  std::size_t stops = 0;           // strings that end the answer: the guide's affair, told in the status
  std::vector<std::size_t> marks;  // lengths of the prompt that others are likely to begin with: states are kept there
  std::shared_ptr<Guide> guide;
};

struct SchedulerOptions {
  int slots = 4;                                 // jobs that run at once
  std::size_t queue = 64;                        // jobs that wait, at most, beside those that slots are free for
  std::int64_t context = 0;                      // a job's tokens at most; 0 = the model's
  std::size_t cache_bytes = 0;                   // of the prefix cache
  std::size_t session_bytes = 0;                 // for the contexts of running jobs together; 0 = no bound
  std::int64_t snapshot_every = 4096;            // tokens of a prompt between states kept for later
  double prefill_share = 0.5;                    // of a step's time, while others decode
  double step_seconds = 1;                       // a prefill step while nobody decodes, about
  std::filesystem::path cache_dir;               // where states outlive the process; empty: nowhere
  std::uint64_t cache_disk_bytes = 0;            // of the files there, at most
  std::function<void(const std::string&)> note;  // told what goes wrong with states, from any thread
};

/// What the scheduler is doing, for status pages and metrics.
struct SchedulerStatus {
  struct Slot {
    bool is_busy = false;
    std::uint64_t job = 0;
    JobStats stats;
    std::int64_t done = 0;   // tokens in its sequence
    std::int64_t limit = 0;  // tokens it may have
    bool is_prefilling = false;
    // What was asked for; never its text.
    SamplerParams sampling;
    std::int64_t wanted = -1;  // new tokens at most
    int logprobs = -1;
    std::size_t stops = 0;
    std::size_t penalty_last_n = 0;  // as in Job
  };
  std::vector<Slot> slots;
  std::size_t queued = 0;
  PrefixCache::Stats cache;
  DiskCache::Stats disk;
  std::uint64_t steps = 0, rows = 0;
  std::uint64_t answers_in_steps = 0;  // of every step, how many answers it went on with
  std::uint64_t given_up = 0;          // steps of prefill that made way for a shorter prompt, and were run again
  std::uint64_t jobs_done = 0, jobs_failed = 0, jobs_cancelled = 0;
  // Of jobs, as far as they have come: counted after every step.
  std::uint64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  double step_seconds = 0;
  PhaseSeconds phases{};       // of step_seconds
  double seconds_in_step = 0;  // since the running step, or reading a kept state, began; 0 if neither runs
  bool is_stopping = false;
  std::string device_failure;  // what happened to the device; then every job fails and none is taken
};

class Scheduler {
 public:
  /// Borrows the engine, which nothing else may use meanwhile but its tokenizer, config and file. Starts the thread.
  /// With a cache directory, throws what DiskCache and state_fingerprint throw. The destructor writes what is still to
  /// be kept there; after stop() as much as that allows.
  Scheduler(Engine& engine, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  enum class Refusal { queue_full, stopping };
  /// Takes the job, or says why not; then its guide is never called. Throws Error::bad_argument for a prompt or
  /// parameters out of range, and Error::no_memory if the job's context could never fit.
  std::optional<Refusal> submit(Job job);

  /// Accepts no more jobs. Waits until all are done, at most `seconds`; then cancels what is left. What of `seconds` is
  /// then left, and a few in any case, are for states that are still to be written; the others are lost.
  void stop(double seconds);

  SchedulerStatus status() const;
  const SchedulerOptions& options() const { return options_; }

 private:
  struct Active;
  struct Waiting {
    Job job;
    std::uint64_t id = 0;
    double submitted = 0;
    std::optional<std::size_t> to_run = {};  // tokens of its prompt, if it was asked; SIZE_MAX: it waits for another
  };
  struct Work {
    std::uint64_t prompt = 0, reused = 0, generated = 0;  // tokens
    double prefill_seconds = 0, decode_seconds = 0;
  };
  struct Owed {
    PrefixCache::Tokens tokens;
    std::size_t length = 0;
    int tries = 0;
  };

  void check(const Job& job) const;
  std::int64_t context_of(const Job& job) const;
  std::size_t bytes_of(const Job& job) const;
  void end_jobs(double seconds);
  void run();
  bool admit();
  void start(Waiting waiting);
  void plan_step(std::vector<BatchItem>& items, std::vector<Active*>& order);
  bool gives_way(const std::vector<Active*>& order, int rows, double left, double spent);
  void run_step();
  bool is_plain(Active& active, int rows) const;
  void plan_draws(std::span<Active* const> order, std::span<const BatchItem> items);
  void make_logits(int wanted_row);
  void fetch(int wanted_row);
  void take_times(std::span<Active* const> order, std::span<const BatchItem> items, int rows);
  void after_step(Active& active, int rows, int first_wanted, int wanted);
  void next_token(Active& active, Token drawn);
  PrefixCache::Found find(const Waiting& waiting, std::int64_t& restored);
  void show_reading(const Waiting& waiting);
  void leave_last(PrefixCache::Found& found, std::size_t prompt) const;
  bool fits(const Job& job) const;
  bool has_room(std::size_t to_run) const;
  bool is_alone() const;
  bool is_coming(const Job& job, std::size_t reusable, bool notes_forks);
  std::size_t locked_reusable(const Job& job) const;
  bool keeps_states() const { return options_.cache_bytes > 0 || disk_ != nullptr; }
  void keep(const Active& active, SequenceCache cache, std::vector<float> logits);
  void snapshot(Active& active, bool with_logits);
  void remember(PrefixCache::Tokens tokens, std::size_t length, SequenceCache cache, std::vector<float> logits);
  bool put_on_disk(Owed state, const SequenceCache& cache, std::span<const float> logits,
                   const DiskCache::GoesOnWaiting& goes_on_waiting);
  void take_back();
  void write_owed(bool waits);
  void note_failure(const std::exception& failure);
  void tell(const std::string& message) const;
  void end(Active& active, JobResult::End how, const std::string& error = {});
  void end_cancelled();
  void count_work(Active& active);
  void count_finished();
  void remove_ended();
  std::vector<std::span<const Token>> locked_waiting_prompts() const;
  void publish();

  Engine& engine_;
  SchedulerOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // work came, or stopping
  std::condition_variable idle_;     // nothing is left to do
  std::deque<Waiting> queue_;
  std::size_t unfinished_ = 0;  // jobs accepted whose guides have not been told the end
  bool is_stopping_ = false;
  std::atomic<bool> is_aborting_ = false;
  SchedulerStatus status_;
  std::atomic<double> step_began_ = 0;
  std::uint64_t next_id_ = 1;

  // The thread's own.
  PrefixCache cache_;
  std::unique_ptr<DiskCache> disk_;  // none without a directory
  std::vector<std::unique_ptr<Active>> active_;
  Buffer logits_;  // some rows of the last step, in the back end's memory: wanted rows [fetched_from_, fetched_to_)
  int fetched_from_ = 0, fetched_to_ = 0;
  Buffer choices_, tokens_;        // of the rows there that are drawn from
  std::vector<DrawChoice> draws_;  // of the step: what is drawn where the logits are, by wanted row
  std::vector<Token> drawn_;       // by wanted row; -1: its token is chosen here
  std::vector<float> row_;         // the row that the next token is chosen from
  std::vector<float> unmasked_;    // the same as the model gave it, for log probabilities
  PhaseSeconds counted_{};         // of the engine's times, what has been taken over
  StepPace pace_;
  double prefill_seconds_ = 0, given_up_seconds_ = 0;  // of steps of prefill alone
  std::uint64_t considered_ = 0;                       // the newest job when jobs were admitted last; with the mutex
  std::vector<Owed> owed_;                             // states that the disk had no time for
  std::optional<Owed> taken_;                          // the state that the disk took last, until it is written
  std::uint64_t failed_ = 0;                           // of the disk's failures to write, those that are known
  bool is_small_told_ = false;                         // that a state is too large for memory
  std::string device_failure_;
  std::thread thread_;
};

/// Log probability of `token` and the `count` likeliest tokens, from one row of logits. Sums are f64 in token order.
Sampled score(std::span<const float> logits, Token token, Position position, int count);

}  // namespace lockstep
