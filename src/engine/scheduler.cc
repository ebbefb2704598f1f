#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/scheduler_active.h"
#include "engine/state_fingerprint.h"
#include "numerics/functions.h"

namespace lockstep {
namespace {

constexpr int kFetchedRows = 16;       // rows of logits that are computed and fetched together, at least
constexpr std::size_t kGain = 16;      // tokens that a state must save to be waited for, or read, or kept on the way
constexpr double kShortWait = 0.05;    // seconds at most that an answer waits for the disk to write one state
constexpr double kLongWait = 1;        // the same if memory keeps nothing: what is passed over is lost
constexpr std::size_t kMostOwed = 32;  // states that are still to be written
constexpr int kMostTries = 32;         // to write one: a large one is written in several parts
constexpr double kOwedSeconds = 0.05;  // between looks whether the disk is ready for one of them
constexpr double kEndSeconds = 5;      // for states that are still to be written at the end, at least
constexpr double kLongEnd = 1;         // that takes longer is told

/// What is done meanwhile can hang as a step can, and shows as one.
class StepClock {
 public:
  explicit StepClock(std::atomic<double>& began) : began_(began) { began_ = steady_seconds(); }
  ~StepClock() { began_ = 0; }
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

 private:
  std::atomic<double>& began_;
};

}  // namespace

Sampled score(std::span<const float> logits, Token token, Position position, int count) {
  Sampled out{token, position, {}, {}};
  const float greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) {
    const double x = static_cast<double>(l) - static_cast<double>(greatest);
    if (x > -200) sum += exp_f64(x);
  }
  const double log_sum = static_cast<double>(greatest) + log_f64(sum);
  const auto logprob = [&](Token t) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(t)]) - log_sum);
  };
  out.logprob = logprob(token);
  std::vector<Token> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  const auto likelier = [&](Token a, Token b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const std::size_t n = std::min(static_cast<std::size_t>(std::max(count, 0)), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(), likelier);
  for (std::size_t i = 0; i < n; ++i) out.alternatives.push_back({order[i], logprob(order[i])});
  return out;
}

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      cache_(options.cache_bytes),
      logits_(engine.ops(), sizeof(float) * static_cast<std::size_t>(engine.config().vocabulary) *
                                static_cast<std::size_t>(std::max(options.slots, kFetchedRows))),
      choices_(engine.ops(), sizeof(DrawChoice) * static_cast<std::size_t>(std::max(options.slots, kFetchedRows))),
      tokens_(engine.ops(), sizeof(Token) * static_cast<std::size_t>(std::max(options.slots, kFetchedRows))),
      row_(static_cast<std::size_t>(engine.config().vocabulary)),
      pace_(options.step_seconds, options.prefill_share, engine.forward().max_rows()) {
  if (options_.slots < 1 || options_.slots > engine.forward().max_rows())
    throw Error(Error::Kind::bad_argument, "slots: " + std::to_string(options_.slots) + ", expected 1 to " +
                                               std::to_string(engine.forward().max_rows()));
  if (options_.context <= 0) options_.context = engine.config().context_length;
  status_.slots.resize(static_cast<std::size_t>(options_.slots));
  if (!options_.cache_dir.empty()) {
    DiskCacheOptions disk;
    disk.directory = options_.cache_dir;
    disk.budget_bytes = options_.cache_disk_bytes;
    disk.fingerprint = state_fingerprint(engine, options_.cache_dir, options_.note);
    disk.note = options_.note;
    disk_ = std::make_unique<DiskCache>(std::move(disk));
  }
  thread_ = std::thread([this] { run(); });
}

Scheduler::~Scheduler() {
  end_jobs(0);
  thread_.join();
}

std::int64_t Scheduler::context_of(const Job& job) const {
  std::int64_t context = job.context > 0 ? std::min(job.context, options_.context) : options_.context;
  if (job.limit >= 0) {  // which may be any number
    const auto prompt = static_cast<std::int64_t>(job.prompt.size());
    context = std::min(context, prompt + std::min(job.limit, context));
  }
  return context;
}

std::size_t Scheduler::bytes_of(const Job& job) const {
  return SequenceCache::plan_bytes(engine_.config(), engine_.mode(), context_of(job));
}

void Scheduler::check(const Job& job) const {
  const auto fail = [](const std::string& message) { throw Error(Error::Kind::bad_argument, message); };
  const int vocabulary = engine_.config().vocabulary;
  if (job.prompt.empty()) fail("prompt: empty, expected at least one token");
  for (const Token token : job.prompt)
    if (token < 0 || token >= vocabulary)
      fail("prompt: token " + std::to_string(token) + ", expected 0 to " + std::to_string(vocabulary - 1));
  if (job.limit < -1) fail("limit: " + std::to_string(job.limit) + " tokens, expected at least 0, or -1 for no limit");
  if (static_cast<std::int64_t>(job.prompt.size()) > options_.context)
    fail("prompt: " + std::to_string(job.prompt.size()) + " tokens, expected at most the context of " +
         std::to_string(options_.context));
  check_sampler_params(job.sampling, vocabulary);
  if (options_.session_bytes > 0 && bytes_of(job) > options_.session_bytes)
    throw Error(Error::Kind::no_memory, "context of " + std::to_string(context_of(job)) +
                                            " tokens: " + std::to_string(bytes_of(job)) + " bytes, expected at most " +
                                            std::to_string(options_.session_bytes) + ", what running answers may take");
}

std::optional<Scheduler::Refusal> Scheduler::submit(Job job) {
  LOCKSTEP_CHECK(job.guide != nullptr);
  check(job);
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || !status_.device_failure.empty()) return Refusal::stopping;
    if (unfinished_ >= options_.queue + static_cast<std::size_t>(options_.slots)) return Refusal::queue_full;
    queue_.push_back({std::move(job), next_id_++, steady_seconds()});
    status_.queued = queue_.size();
    ++unfinished_;
  }
  changed_.notify_one();
  return std::nullopt;
}

void Scheduler::stop(double seconds) {
  const double end = steady_seconds() + seconds;
  end_jobs(seconds);
  if (disk_ != nullptr) disk_->end_by(std::max(end, steady_seconds() + kEndSeconds));
}

void Scheduler::end_jobs(double seconds) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  status_.is_stopping = true;
  changed_.notify_one();
  idle_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return unfinished_ == 0; });
  is_aborting_ = true;
  changed_.notify_one();
}

SchedulerStatus Scheduler::status() const {
  const DiskCache::Stats disk = disk_ == nullptr ? DiskCache::Stats() : disk_->stats();  // it writes by itself
  const std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  const double began = step_began_.load();
  status.seconds_in_step = began > 0 ? steady_seconds() - began : 0;
  status.disk = disk;
  return status;
}

void Scheduler::run() {
  for (;;) {
    const auto is_idle = [&] { return active_.empty() && queue_.empty(); };
    const auto is_woken = [&] { return !is_idle() || is_aborting_; };
    {
      std::unique_lock lock(mutex_);
      // What the disk had no time for is written while there is nothing to do, one by one, and whoever comes is served.
      while (!is_woken()) {
        if (owed_.empty() && !taken_) {
          changed_.wait(lock, is_woken);
          break;
        }
        lock.unlock();
        write_owed(false);
        lock.lock();
        changed_.wait_for(lock, std::chrono::duration<double>(kOwedSeconds), is_woken);
      }
      if (is_idle()) break;
    }
    // What those have computed that do not want it any more is kept first, and their places are free.
    end_cancelled();
    while (admit()) {
    }
    end_cancelled();
    if (!active_.empty()) run_step();
    if (!device_failure_.empty())
      for (const auto& active : active_) end(*active, JobResult::End::failed, device_failure_);
    remove_ended();
    publish();
  }
  write_owed(true);
}

/// Takes one waiting job into a slot: the first of the greatest priority that fits and need not wait for another's
/// prefill. False if there is none.
bool Scheduler::admit() {
  Waiting chosen;
  {
    const std::lock_guard lock(mutex_);
    considered_ = next_id_ - 1;
    std::size_t best = queue_.size();
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const Job& job = queue_[i].job;
      const bool is_dropped = is_aborting_ || !device_failure_.empty() || job.guide->is_cancelled();
      if (!is_dropped) {
        if (best < queue_.size() && queue_[best].job.priority >= job.priority) continue;
        if (active_.size() > static_cast<std::size_t>(options_.slots) || !fits(job)) continue;
        const std::size_t reusable = locked_reusable(job);
        if (!has_room(job.prompt.size() - reusable) || is_coming(job, reusable, true)) continue;
      }
      best = i;
      if (is_dropped) break;
    }
    if (best == queue_.size()) return false;
    chosen = std::move(queue_[best]);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(best));
    status_.queued = queue_.size();
  }
  start(std::move(chosen));
  return true;
}

/// Whether there is memory for the job's whole context beside those that run.
bool Scheduler::fits(const Job& job) const {
  if (options_.session_bytes == 0) return true;
  std::size_t in_use = bytes_of(job);
  for (const auto& active : active_) in_use += bytes_of(active->job());
  return in_use <= options_.session_bytes;
}

/// Whether a job that has `to_run` tokens of its prompt to run may start: there is a free slot, or all are taken and
/// one of them reads a prompt that has much more left. Then it need not wait for that: one job more than there are
/// slots.
bool Scheduler::has_room(std::size_t to_run) const {
  constexpr std::size_t kMuchMore = 4;  // times
  const auto slots = static_cast<std::size_t>(options_.slots);
  if (active_.size() < slots) return true;
  if (active_.size() > slots || slots >= static_cast<std::size_t>(engine_.forward().max_rows())) return false;
  return std::any_of(active_.begin(), active_.end(), [&](const std::unique_ptr<Active>& active) {
    return active->is_prefilling() && active->prompt - active->done > kMuchMore * std::max(to_run, std::size_t{1});
  });
}

/// Whether nobody else waits while this job is looked after.
bool Scheduler::is_alone() const {
  const auto running = std::count_if(active_.begin(), active_.end(), [](const auto& a) { return !a->has_ended; });
  const std::lock_guard lock(mutex_);
  return running <= 1 && queue_.empty();
}

/// Whether a running job is about to compute what the job could reuse: that is waited for, not computed twice. A state
/// is then to be kept where the two part, if `notes_forks`.
bool Scheduler::is_coming(const Job& job, std::size_t reusable, bool notes_forks) {
  if (options_.cache_bytes == 0 || !job.use_cache || job.score_prompt) return false;
  return std::any_of(active_.begin(), active_.end(), [&](const std::unique_ptr<Active>& active) {
    if (!active->is_prefilling()) return false;
    const std::size_t common = common_length(*active->tokens, job.prompt);
    const bool gains = common > reusable + kGain && common > active->done;
    if (gains && notes_forks && common < active->prompt) active->forks.insert(common);
    return gains;
  });
}

/// Tokens of the job's prompt that states that are kept would save. With the mutex held or not.
std::size_t Scheduler::locked_reusable(const Job& job) const {
  if (!job.use_cache || job.score_prompt) return 0;
  const std::size_t in_memory = cache_.reusable(job.prompt);
  if (disk_ == nullptr) return in_memory;
  const std::size_t on_disk = disk_->match(job.prompt).reused;
  return on_disk > in_memory + kGain ? on_disk : in_memory;
}

void Scheduler::start(Waiting waiting) {
  JobResult refused{JobResult::End::cancelled, 0, {}, {}};
  refused.stats.prompt = static_cast<std::int64_t>(waiting.job.prompt.size());
  refused.stats.queue_seconds = steady_seconds() - waiting.submitted;
  const std::shared_ptr<Guide> guide = waiting.job.guide;
  const auto refuse = [&](JobResult::End how, const std::string& error) {
    refused.end = how;
    refused.error = error;
    {
      const std::lock_guard lock(mutex_);
      ++(how == JobResult::End::failed ? status_.jobs_failed : status_.jobs_cancelled);
    }
    guide->on_end(refused);
    const std::lock_guard lock(mutex_);
    count_finished();
  };
  if (is_aborting_ || guide->is_cancelled()) return refuse(JobResult::End::cancelled, "");
  if (!device_failure_.empty()) return refuse(JobResult::End::failed, device_failure_);
  try {
    PrefixCache::Found found;
    found.miss = Miss::disabled;
    if (waiting.job.use_cache && !waiting.job.score_prompt && keeps_states())
      found = find(waiting, refused.stats.restored);
    leave_last(found, waiting.job.prompt.size());
    refused.stats.restored = std::min(refused.stats.restored, static_cast<std::int64_t>(found.reused));
    const SamplerParams sampling = waiting.job.sampling;
    auto tokens = std::make_shared<std::vector<Token>>(waiting.job.prompt);
    SequenceCache cache = found.cache ? std::move(*found.cache) : engine_.new_sequence();
    Active active{std::move(waiting),
                  std::move(cache),
                  std::move(tokens),
                  found.reused,
                  0,
                  0,
                  {},
                  Sampler(sampling, engine_.config().vocabulary),
                  refused.stats,
                  steady_seconds(),
                  steady_seconds(),
                  false,
                  std::move(found.logits),
                  0};
    active.prompt = active.tokens->size();
    active.context = context_of(active.job());
    // Prompts that have nothing to do with each other begin alike too, by a token or a few.
    const auto keep_at = [&](std::size_t place) {
      if (place > std::max(found.reused, kGain) && place < active.prompt) active.forks.insert(place);
    };
    keep_at(found.common);
    for (const std::size_t mark : active.job().marks) keep_at(mark);
    active.stats.reused = static_cast<std::int64_t>(found.reused);
    active.stats.shared = static_cast<std::int64_t>(found.common);
    active.stats.miss = found.miss;
    active_.push_back(std::make_unique<Active>(std::move(active)));
  } catch (const std::exception& error) {
    note_failure(error);
    return refuse(JobResult::End::failed, error.what());
  }
  Active& active = *active_.back();
  if (active.is_prefilling()) return;
  row_ = active.logits;  // the whole prompt was there, and its logits
  active.stats.prefill_seconds = steady_seconds() - active.started;
  active.started = steady_seconds();
  try {
    next_token(active, -1);
  } catch (const std::exception& error) {
    note_failure(error);
    end(active, JobResult::End::failed, error.what());
  }
}

/// A prompt is complete only with the logits of its last token: otherwise that is run, whatever a cache says.
void Scheduler::leave_last(PrefixCache::Found& found, std::size_t prompt) const {
  if (found.reused < prompt) return;
  LOCKSTEP_CHECK(found.reused == prompt);
  if (found.logits.size() == row_.size()) return;
  found.logits.clear();
  found.reused = found.cache->rewind_floor() < static_cast<Position>(prompt) ? prompt - 1 : 0;
  if (found.reused > 0)
    found.cache->rewind(static_cast<Position>(found.reused));
  else
    found.cache.reset();
}

/// What the states in memory and on disk save of a prompt. A state of the disk goes into the memory's cache as well, so
/// that it is restored once.
PrefixCache::Found Scheduler::find(const Waiting& waiting, std::int64_t& restored) {
  const std::span<const Token> prompt = waiting.job.prompt;
  PrefixCache::Found found = cache_.find(prompt);
  if (disk_ == nullptr) return found;
  const DiskCache::Match match = disk_->match(prompt);
  // A state costs its reading; a few tokens are sooner run.
  const std::size_t more_than = found.reused + kGain;
  bool is_lost = false;
  if (match.reused > more_than) {
    show_reading(waiting);
    const StepClock clock(step_began_);
    std::optional<DiskCache::Restored> state =
        disk_->restore(prompt, more_than, [&] { return engine_.new_sequence(); });
    if (state) {
      remember(std::make_shared<const std::vector<Token>>(prompt.begin(),
                                                          prompt.begin() + static_cast<std::ptrdiff_t>(state->reused)),
               state->reused, state->cache.fork(), state->logits);
      restored = static_cast<std::int64_t>(state->reused);
      found.reused = state->reused;
      found.cache = std::move(state->cache);
      found.logits = std::move(state->logits);
    }
    is_lost = found.reused < match.reused;  // its file was damaged, or somebody else made room
  }
  // The reason of both together.
  const bool was_evicted = found.miss == Miss::evicted;
  const bool goes_on =
      (found.goes_on && found.common >= match.common) || (match.goes_on && match.common >= found.common);
  found.common = std::max(found.common, match.common);
  if (found.reused + 1 >= prompt.size()) {
    found.miss = Miss::none;
  } else if (is_lost) {
    found.miss = Miss::evicted;
  } else if (found.common > found.reused + kGain) {
    found.miss = was_evicted ? Miss::evicted : Miss::no_snapshot;
  } else if (found.common == 0) {
    found.miss = disk_->has_others() ? Miss::fingerprint : Miss::nothing_kept;
  } else {
    found.miss = goes_on || found.common > found.reused ? Miss::differs : Miss::none;
  }
  return found;
}

/// A job whose state is being read, which a slow disk may make long, is one that runs: until the next publish().
void Scheduler::show_reading(const Waiting& waiting) {
  const std::lock_guard lock(mutex_);
  auto slot = std::find_if(status_.slots.begin(), status_.slots.end(), [](const auto& s) { return !s.is_busy; });
  if (slot == status_.slots.end()) slot = status_.slots.insert(slot, SchedulerStatus::Slot());
  *slot = {};
  slot->is_busy = true;
  slot->job = waiting.id;
  slot->stats.prompt = static_cast<std::int64_t>(waiting.job.prompt.size());
  slot->limit = context_of(waiting.job);
  slot->is_prefilling = true;
  slot->sampling = waiting.job.sampling;
  slot->wanted = waiting.job.limit;
  slot->logprobs = waiting.job.logprobs;
  slot->stops = waiting.job.stops;
  slot->penalty_last_n = waiting.job.penalty_last_n;
}

void Scheduler::after_step(Active& active, int rows, int first_wanted, int wanted) {
  const std::size_t from = active.done;
  const bool was_prefilling = active.is_prefilling();
  active.done += static_cast<std::size_t>(rows);
  Guide& guide = *active.job().guide;
  Token drawn = -1;
  for (int i = 0; i < wanted; ++i) {
    make_logits(first_wanted + i);
    drawn = drawn_[static_cast<std::size_t>(first_wanted + i)];
    if (drawn >= 0 && !(was_prefilling && keeps_states())) continue;
    fetch(first_wanted + i);
    const std::size_t next = from + static_cast<std::size_t>(i) + 1;
    if (active.job().score_prompt && next < active.prompt)
      guide.on_prompt_token(score(row_, (*active.tokens)[next], static_cast<Position>(next), active.job().logprobs));
  }
  if (!was_prefilling) return next_token(active, drawn);
  if (active.done < active.prompt) {
    const bool is_due =
        options_.snapshot_every > 0 && active.done % static_cast<std::size_t>(options_.snapshot_every) == 0;
    if (is_due || active.forks.contains(active.done)) snapshot(active, false);
    return;
  }
  snapshot(active, true);
  active.stats.prefill_seconds = steady_seconds() - active.started;
  active.started = steady_seconds();
  next_token(active, drawn);
}

/// Chooses the token after all there are, `drawn` or, if that is -1, from row_, and ends the job if it was the last.
void Scheduler::next_token(Active& active, Token drawn) {
  Job& job = active.job();
  if (job.limit == 0) return end(active, JobResult::End::limit);
  std::vector<Token>& tokens = *active.tokens;
  if (static_cast<std::int64_t>(tokens.size()) >= active.context) return end(active, JobResult::End::context);
  const auto position = static_cast<Position>(tokens.size());
  Sampled sampled{0, position, {}, {}};
  const std::vector<float>* scored = nullptr;
  if (job.logprobs >= 0) {
    unmasked_ = row_;
    scored = &unmasked_;
  }
  if (const std::optional<Token> forced = job.guide->forced()) {
    sampled.token = *forced;
  } else if (drawn >= 0) {
    sampled.token = drawn;
  } else {
    engine_.ops().enter(StepPhase::sample);
    job.guide->mask(row_);
    std::size_t begin = job.penalise_prompt ? 0 : active.prompt;
    if (job.penalty_last_n > 0 && tokens.size() - begin > job.penalty_last_n)
      begin = tokens.size() - job.penalty_last_n;
    sampled.token = active.sampler.sample(row_, std::span<const Token>(tokens).subspan(begin), position);
    engine_.ops().enter(StepPhase::none);
  }
  if (scored != nullptr) sampled = score(*scored, sampled.token, position, job.logprobs);
  ++active.stats.generated;
  if (std::find(job.stop_tokens.begin(), job.stop_tokens.end(), sampled.token) != job.stop_tokens.end()) {
    active.stop_token = sampled.token;
    return end(active, JobResult::End::stop_token);
  }
  // The prompt's tokens may be shared with the cache; the answer's go behind them.
  if (active.tokens.use_count() > 1) {
    auto own = std::make_shared<std::vector<Token>>();
    own->reserve(tokens.size() + 1024);
    own->assign(tokens.begin(), tokens.end());
    active.tokens = std::move(own);
  }
  active.tokens->push_back(sampled.token);
  if (!job.guide->on_token(sampled)) return end(active, JobResult::End::stopped);
  if (active.stats.generated == job.limit) return end(active, JobResult::End::limit);
  if (static_cast<std::int64_t>(active.tokens->size()) >= active.context) return end(active, JobResult::End::context);
}

/// Keeps the state as it is now.
void Scheduler::snapshot(Active& active, bool with_logits) {
  if (!keeps_states()) return;
  // Logits that nothing can be chosen from are an error each time they are computed, and not to be remembered.
  const bool are_good = with_logits && std::all_of(row_.begin(), row_.end(), [](float l) { return std::isfinite(l); });
  keep(active, active.cache.fork(), are_good ? row_ : std::vector<float>());
}

/// The disk may be slow, or locked by another process. One state that it writes makes answers wait for a moment at
/// most, all of them together; what it has no time for is owed to it, if memory keeps that.
void Scheduler::keep(const Active& active, SequenceCache cache, std::vector<float> logits) {
  if (disk_ != nullptr && disk_->fits(cache, logits.size())) {
    const double most = options_.cache_bytes == 0 ? kLongWait : kShortWait;
    const auto goes_on_waiting = [&](double seconds) { return seconds < most && is_alone(); };
    if (!put_on_disk({active.tokens, active.done}, cache, logits, goes_on_waiting) && owed_.size() < kMostOwed &&
        !disk_->stats().is_read_only)
      owed_.push_back({active.tokens, active.done});
  }
  remember(active.tokens, active.done, std::move(cache), std::move(logits));
}

/// In memory.
void Scheduler::remember(PrefixCache::Tokens tokens, std::size_t length, SequenceCache cache,
                         std::vector<float> logits) {
  const std::size_t bytes = cache.memory_bytes() + logits.size() * sizeof(float);
  if (options_.cache_bytes > 0 && bytes > options_.cache_bytes && !std::exchange(is_small_told_, true))
    tell("cache: a state of " + std::to_string(length) + " tokens takes " + std::to_string(bytes) +
         " bytes of memory, and all of them may take " + std::to_string(options_.cache_bytes) +
         "; such states are not kept in memory");
  cache_.put(std::move(tokens), length, std::move(cache), std::move(logits), locked_waiting_prompts());
}

/// Whether the disk has the state or took it.
bool Scheduler::put_on_disk(Owed state, const SequenceCache& cache, std::span<const float> logits,
                            const DiskCache::GoesOnWaiting& goes_on_waiting) {
  take_back();
  const std::span<const Token> tokens = std::span<const Token>(*state.tokens).first(state.length);
  const bool is_taken = disk_->put(tokens, cache, logits, locked_waiting_prompts(), goes_on_waiting);
  if (is_taken) taken_ = std::move(state);
  return is_taken;
}

/// What the disk took and could not write is owed to it again.
void Scheduler::take_back() {
  const bool is_writing = disk_->is_writing();
  const std::uint64_t failed = disk_->stats().failed;
  if (failed != std::exchange(failed_, failed) && taken_ && ++taken_->tries < kMostTries && owed_.size() < kMostOwed)
    owed_.push_back(std::move(*taken_));
  else if (is_writing)
    return;
  taken_.reset();
}

/// States that the disk had no time for, if memory still has them: what was kept last first. `waits` for the disk as
/// long as it takes, at the end; otherwise it is the next one at most, if the disk is ready for it.
void Scheduler::write_owed(bool waits) {
  if (disk_ == nullptr) return;
  if (!device_failure_.empty()) owed_.clear();
  const double began = steady_seconds();
  try {
    if (waits) disk_->flush();
    take_back();
    if (waits && !owed_.empty()) disk_->end_pause();
    bool is_told = false;
    for (; !owed_.empty(); owed_.pop_back()) {
      if (waits && disk_->is_over()) {
        tell("cache: " + std::to_string(owed_.size()) + " states are lost, there was no time to write them");
        owed_.clear();
        break;
      }
      if (waits && steady_seconds() - began > kLongEnd && !std::exchange(is_told, true))
        tell("cache: writing " + std::to_string(owed_.size()) + " states before the end");
      const Owed& owed = owed_.back();
      const std::span<const Token> tokens = std::span<const Token>(*owed.tokens).first(owed.length);
      const PrefixCache::State state = cache_.state(tokens);
      if (state.cache == nullptr) continue;
      if (waits) {
        disk_->put_whole(tokens, *state.cache, state.logits);
        continue;
      }
      if (!disk_->is_ready()) return;
      Owed next = owed;
      owed_.pop_back();
      if (!put_on_disk(next, *state.cache, state.logits, {}) && ++next.tries < kMostTries)
        owed_.push_back(std::move(next));
      return;
    }
  } catch (const std::exception& error) {
    note_failure(error);
    tell(error.what());
  }
}

/// A failure of the device is the end: what its memory held is lost.
void Scheduler::note_failure(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  if (error == nullptr || error->kind() != Error::Kind::device || !device_failure_.empty()) return;
  device_failure_ = error->what();
  const std::lock_guard lock(mutex_);
  status_.device_failure = device_failure_;
}

void Scheduler::tell(const std::string& message) const {
  if (options_.note) options_.note(message);
}

void Scheduler::end(Active& active, JobResult::End how, const std::string& error) {
  if (active.has_ended) return;
  active.has_ended = true;
  const double elapsed = steady_seconds() - active.started;
  (active.is_prefilling() ? active.stats.prefill_seconds : active.stats.decode_seconds) = elapsed;
  {
    const std::lock_guard lock(mutex_);
    status_.jobs_done += how != JobResult::End::failed && how != JobResult::End::cancelled;
    status_.jobs_failed += how == JobResult::End::failed;
    status_.jobs_cancelled += how == JobResult::End::cancelled;
    count_work(active);
  }
  const std::shared_ptr<Guide> guide = active.job().guide;
  if (device_failure_.empty()) guide->on_state(active.cache);
  guide->on_end({how, active.stop_token, error, active.stats});
  // What was computed is kept: the client may come back with the same prompt, or go on from the answer. A failed step
  // has changed nothing, so the state before it is as good as any. The client need not wait for it.
  if (active.done > 0 && keeps_states() && device_failure_.empty()) {
    try {
      keep(active, std::move(active.cache), {});
    } catch (const std::exception& failure) {
      note_failure(failure);
      tell(std::string("the state of an answer is not kept: ") + failure.what());
    }
  }
  const std::lock_guard lock(mutex_);
  count_finished();
}

void Scheduler::end_cancelled() {
  for (const auto& active : active_)
    if (is_aborting_ || active->job().guide->is_cancelled()) end(*active, JobResult::End::cancelled);
  remove_ended();
}

/// Adds to the status what the job has done since it was counted last. With the mutex held.
void Scheduler::count_work(Active& active) {
  const JobStats& stats = active.stats;
  Work now;
  now.prompt = std::min(active.done, active.prompt);
  now.reused = static_cast<std::uint64_t>(stats.reused);
  now.generated = static_cast<std::uint64_t>(stats.generated);
  now.prefill_seconds = stats.prefill_seconds;
  now.decode_seconds = stats.decode_seconds;
  if (!active.has_ended)
    (active.is_prefilling() ? now.prefill_seconds : now.decode_seconds) = steady_seconds() - active.started;
  // A job that fails just behind its prompt has all its time counted as the answer's.
  now.prefill_seconds = std::max(now.prefill_seconds, active.counted.prefill_seconds);
  const Work before = std::exchange(active.counted, now);
  status_.prompt_tokens += now.prompt - before.prompt;
  status_.reused_tokens += now.reused - before.reused;
  status_.generated_tokens += now.generated - before.generated;
  status_.prefill_seconds += now.prefill_seconds - before.prefill_seconds;
  status_.decode_seconds += now.decode_seconds - before.decode_seconds;
}

/// With the mutex held.
void Scheduler::count_finished() {
  if (--unfinished_ == 0) idle_.notify_all();
}

void Scheduler::remove_ended() {
  std::erase_if(active_, [](const std::unique_ptr<Active>& active) { return active->has_ended; });
}

std::vector<std::span<const Token>> Scheduler::locked_waiting_prompts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::span<const Token>> prompts;
  for (const Waiting& waiting : queue_) prompts.emplace_back(waiting.job.prompt);
  return prompts;
}

void Scheduler::publish() {
  const PrefixCache::Stats cache = cache_.stats();
  const std::lock_guard lock(mutex_);
  status_.cache = cache;
  status_.slots.resize(std::max(static_cast<std::size_t>(options_.slots), active_.size()));
  for (std::size_t i = 0; i < status_.slots.size(); ++i) {
    SchedulerStatus::Slot& slot = status_.slots[i];
    slot = {};
    if (i >= active_.size()) continue;
    Active& active = *active_[i];
    count_work(active);
    slot.is_busy = true;
    slot.job = active.from.id;
    slot.stats = active.stats;
    slot.done = static_cast<std::int64_t>(active.done);
    slot.limit = active.context;
    slot.is_prefilling = active.is_prefilling();
    slot.sampling = active.sampler.params();
    slot.wanted = active.job().limit;
    slot.logprobs = active.job().logprobs;
    slot.stops = active.job().stops;
    slot.penalty_last_n = active.job().penalty_last_n;
  }
}

}  // namespace lockstep
