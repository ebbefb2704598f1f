#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "engine/state_fingerprint.h"
#include "numerics/functions.h"

namespace lockstep {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Follows what was measured; the first measurement is taken as it is.
void smooth(double& average, double value) { average = average == 0 ? value : 0.75 * average + 0.25 * value; }

constexpr int kLeastChunk =
    16;  // rows of prefill that a step takes at least: below, reading the weights is all it does
constexpr int kFetchedRows = 16;  // rows of logits that are computed and fetched together, at least

}  // namespace

/// A running job. Its sequence holds `tokens[0, done)`; tokens from the prompt's end on are the answer's.
struct Scheduler::Active {
  Waiting from;
  SequenceCache cache;
  std::shared_ptr<std::vector<Token>> tokens;
  std::size_t done = 0;
  std::size_t prompt = 0;
  std::int64_t context = 0;
  std::set<std::size_t> forks;  // where other prompts leave this one: a state is kept there
  Sampler sampler;
  JobStats stats;
  double started = 0;        // prefill, then decode
  double prefill_began = 0;  // of this job's own run
  bool has_ended = false;
  std::vector<float> logits;  // of the prompt's last token, if they came from the cache
  Token stop_token = 0;

  Job& job() { return from.job; }
  bool is_prefilling() const { return done < prompt; }
  std::span<const Token> pending() const { return std::span<const Token>(*tokens).subspan(done); }
};

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
      row_(static_cast<std::size_t>(engine.config().vocabulary)) {
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
  stop(0);
  thread_.join();
}

std::int64_t Scheduler::context_of(const Job& job) const {
  std::int64_t context = job.context > 0 ? std::min(job.context, options_.context) : options_.context;
  if (job.limit >= 0) context = std::min(context, static_cast<std::int64_t>(job.prompt.size()) + job.limit);
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
    if (is_stopping_) return Refusal::stopping;
    if (queue_.size() >= options_.queue) return Refusal::queue_full;
    queue_.push_back({std::move(job), next_id_++, now()});
    status_.queued = queue_.size();
    ++unfinished_;
  }
  changed_.notify_one();
  return std::nullopt;
}

void Scheduler::stop(double seconds) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  status_.is_stopping = true;
  changed_.notify_one();
  idle_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return unfinished_ == 0; });
  is_aborting_ = true;
  changed_.notify_one();
}

SchedulerStatus Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  const double began = step_began_.load();
  status.seconds_in_step = began > 0 ? now() - began : 0;
  return status;
}

void Scheduler::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !active_.empty() || !queue_.empty() || is_stopping_; });
      if (active_.empty() && queue_.empty()) {
        if (is_aborting_) return;
        changed_.wait(lock, [&] { return is_aborting_ || !queue_.empty(); });
        continue;
      }
    }
    while (admit()) {
    }
    for (const auto& active : active_)
      if (is_aborting_ || active->job().guide->is_cancelled()) end(*active, JobResult::End::cancelled);
    remove_ended();
    if (!active_.empty()) run_step();
    remove_ended();
    publish();
  }
}

/// Takes one waiting job into a slot: the first of the greatest priority that fits and need not wait for another's
/// prefill. False if there is none.
bool Scheduler::admit() {
  Waiting chosen;
  {
    const std::lock_guard lock(mutex_);
    std::size_t best = queue_.size();
    std::size_t in_use = 0;
    for (const auto& active : active_) in_use += bytes_of(active->job());
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const Job& job = queue_[i].job;
      const bool is_dropped = is_aborting_ || job.guide->is_cancelled();
      if (!is_dropped) {
        if (active_.size() >= static_cast<std::size_t>(options_.slots)) continue;
        if (options_.session_bytes > 0 && in_use + bytes_of(job) > options_.session_bytes) continue;
        if (best < queue_.size() && queue_[best].job.priority >= job.priority) continue;
        // What another job is about to compute is waited for, not computed twice.
        const std::size_t reusable = job.use_cache && !job.score_prompt ? reusable_of(job.prompt) : job.prompt.size();
        const bool is_coming = std::any_of(active_.begin(), active_.end(), [&](const std::unique_ptr<Active>& active) {
          if (!active->is_prefilling() || options_.cache_bytes == 0) return false;
          const std::size_t common = common_length(*active->tokens, job.prompt);
          const bool gains = common > reusable + static_cast<std::size_t>(kLeastChunk) && common > active->done;
          if (gains && common < active->prompt) active->forks.insert(common);
          return gains;
        });
        if (is_coming) continue;
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

void Scheduler::start(Waiting waiting) {
  JobResult refused{JobResult::End::cancelled, 0, {}, {}};
  refused.stats.prompt = static_cast<std::int64_t>(waiting.job.prompt.size());
  refused.stats.queue_seconds = now() - waiting.submitted;
  const std::shared_ptr<Guide> guide = waiting.job.guide;
  if (is_aborting_ || guide->is_cancelled()) {
    guide->on_end(refused);
    const std::lock_guard lock(mutex_);
    ++status_.jobs_cancelled;
    count_finished();
    return;
  }
  try {
    PrefixCache::Found found;
    found.miss = Miss::disabled;
    if (waiting.job.use_cache && !waiting.job.score_prompt) found = find(waiting.job.prompt, refused.stats.restored);
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
                  now(),
                  now(),
                  false,
                  std::move(found.logits),
                  0};
    active.prompt = active.tokens->size();
    active.context = context_of(active.job());
    if (found.common > found.reused && found.common < active.prompt) active.forks.insert(found.common);
    active.stats.reused = static_cast<std::int64_t>(found.reused);
    active.stats.shared = static_cast<std::int64_t>(found.common);
    active.stats.miss = found.miss;
    active_.push_back(std::make_unique<Active>(std::move(active)));
  } catch (const std::exception& error) {
    refused.end = JobResult::End::failed;
    refused.error = error.what();
    guide->on_end(refused);
    const std::lock_guard lock(mutex_);
    ++status_.jobs_failed;
    count_finished();
    return;
  }
  Active& active = *active_.back();
  if (active.is_prefilling()) return;
  row_ = active.logits;  // the whole prompt was there, and its logits
  active.stats.prefill_seconds = now() - active.started;
  active.started = now();
  next_token(active);
}

/// What the states in memory and on disk save of a prompt. A state of the disk goes into the memory's cache as well, so
/// that it is restored once.
PrefixCache::Found Scheduler::find(std::span<const Token> prompt, std::int64_t& restored) {
  PrefixCache::Found found = cache_.find(prompt);
  if (disk_ == nullptr) return found;
  const DiskCache::Match match = disk_->match(prompt);
  found.common = std::max(found.common, match.common);
  // A state costs its reading; a few tokens are sooner run.
  const bool is_worth_it = match.reused > found.reused + kLeastChunk || (found.reused == 0 && match.reused > 0);
  if (!is_worth_it) return found;
  std::optional<DiskCache::Restored> state =
      disk_->restore(prompt, found.reused, [&] { return engine_.new_sequence(); });
  if (!state) return found;
  cache_.put(std::make_shared<const std::vector<Token>>(prompt.begin(),
                                                        prompt.begin() + static_cast<std::ptrdiff_t>(state->reused)),
             state->reused, state->cache.fork(), state->logits, locked_waiting_prompts());
  restored = static_cast<std::int64_t>(state->reused);
  found.reused = state->reused;
  found.cache = std::move(state->cache);
  found.logits = std::move(state->logits);
  if (found.common <= found.reused + 1 && found.reused + 1 >= prompt.size()) {
    found.miss = Miss::none;
  } else if (found.common <= found.reused) {
    found.miss = Miss::differs;
  } else if (found.miss != Miss::evicted) {
    found.miss = Miss::no_snapshot;
  }
  return found;
}

std::size_t Scheduler::reusable_of(std::span<const Token> prompt) const {
  const std::size_t in_memory = cache_.reusable(prompt);
  return disk_ == nullptr ? in_memory : std::max(in_memory, disk_->match(prompt).reused);
}

/// Rows of prefill that a step may take beside `decoders` single tokens.
int Scheduler::prefill_rows(int decoders) const {
  const int room = engine_.forward().max_rows() - decoders;
  if (row_seconds_ == 0) return std::min(room, 128);  // nothing measured yet
  double seconds = options_.step_seconds;
  if (decoders > 0) seconds = decode_step_seconds_ * options_.prefill_share / (1 - options_.prefill_share);
  const double rows = seconds / row_seconds_;
  return std::clamp(rows < static_cast<double>(room) ? static_cast<int>(rows) : room, std::min(room, kLeastChunk),
                    room);
}

void Scheduler::plan_step(std::vector<BatchItem>& items, std::vector<Active*>& order) {
  std::vector<Active*> prefilling;
  for (const auto& active : active_) {
    if (active->is_prefilling()) {
      prefilling.push_back(active.get());
    } else {
      order.push_back(active.get());
      items.push_back({&active->cache, active->pending(), 1});
    }
  }
  if (prefilling.empty()) return;
  int rows = prefill_rows(static_cast<int>(items.size()));
  // Whoever needs least goes first, so that a short prompt is not stuck behind a long one; a quarter is kept for the
  // one that waits longest, so that the long one comes to its end.
  Active* oldest = *std::min_element(prefilling.begin(), prefilling.end(),
                                     [](const Active* a, const Active* b) { return a->from.id < b->from.id; });
  std::stable_sort(prefilling.begin(), prefilling.end(), [](const Active* a, const Active* b) {
    if (a->from.job.priority != b->from.job.priority) return a->from.job.priority > b->from.job.priority;
    return a->prompt - a->done < b->prompt - b->done;
  });
  const int reserved = prefilling.size() > 1 ? rows / 4 : 0;
  for (Active* active : prefilling) {
    const int allowed = active == oldest ? rows : rows - (oldest == nullptr ? 0 : reserved);
    std::size_t end = std::min(active->prompt, active->done + static_cast<std::size_t>(std::max(allowed, 0)));
    // Steps end where a state is to be kept.
    const auto cut = [&](std::size_t place) {
      if (place > active->done && place < end) end = place;
    };
    if (const auto next = active->forks.upper_bound(active->done); next != active->forks.end()) cut(*next);
    if (options_.snapshot_every > 0 && keeps_states()) {
      const auto every = static_cast<std::size_t>(options_.snapshot_every);
      cut((active->done / every + 1) * every);
    }
    const int taken = static_cast<int>(end - active->done);
    if (active == oldest) oldest = nullptr;
    if (taken == 0) continue;
    rows -= taken;
    const bool is_last = end == active->prompt;
    const int wanted = active->job().score_prompt ? taken : is_last ? 1 : 0;
    order.push_back(active);
    items.push_back({&active->cache, active->pending().first(static_cast<std::size_t>(taken)), wanted});
  }
}

void Scheduler::run_step() {
  std::vector<BatchItem> items;
  std::vector<Active*> order;
  plan_step(items, order);
  int rows = 0, decoders = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    rows += static_cast<int>(items[i].tokens.size());
    decoders += !order[i]->is_prefilling();
  }
  const double began = now();
  step_began_ = began;
  const auto is_unwanted = [&] {
    return is_aborting_ ||
           std::all_of(order.begin(), order.end(), [](const Active* a) { return a->from.job.guide->is_cancelled(); });
  };
  std::int64_t layer = 0;
  const auto layers = static_cast<std::int64_t>(engine_.config().layers.size());
  const auto between_layers = [&] {
    for (std::size_t i = 0; i < order.size(); ++i) {
      Active& active = *order[i];
      if (!active.is_prefilling()) continue;
      const auto in_step = static_cast<std::int64_t>(items[i].tokens.size()) * layer / layers;
      PrefillProgress progress{static_cast<std::int64_t>(active.done) + in_step, active.stats.prompt, 0, 0};
      const double seconds = now() - active.prefill_began;
      if (progress.done > active.stats.reused && seconds > 0) {
        progress.tokens_per_second = static_cast<double>(progress.done - active.stats.reused) / seconds;
        progress.seconds_left = static_cast<double>(progress.total - progress.done) / progress.tokens_per_second;
      }
      active.job().guide->on_prefill(progress);
    }
    ++layer;
    return is_unwanted();
  };
  try {
    engine_.forward().step(items, between_layers);
    fetched_from_ = fetched_to_ = 0;
    int first = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      after_step(*order[i], static_cast<int>(items[i].tokens.size()), first, items[i].wanted);
      first += items[i].wanted;
    }
  } catch (const Error& error) {
    const bool is_cancelled = error.kind() == Error::Kind::cancelled;
    for (Active* active : order)
      if (!active->has_ended)
        end(*active, is_cancelled ? JobResult::End::cancelled : JobResult::End::failed,
            is_cancelled ? "" : error.what());
  } catch (const std::exception& error) {
    for (Active* active : order)
      if (!active->has_ended) end(*active, JobResult::End::failed, error.what());
  }
  const double seconds = now() - began;
  step_began_ = 0;
  if (decoders == rows) {
    smooth(decode_step_seconds_, seconds);
  } else {
    const double beside = decoders > 0 ? std::min(decode_step_seconds_, seconds) : 0;
    smooth(row_seconds_, (seconds - beside) / (rows - decoders));
  }
  const std::lock_guard lock(mutex_);
  ++status_.steps;
  status_.rows += static_cast<std::uint64_t>(rows);
  status_.step_seconds += seconds;
}

/// Fetches one row of the step's logits into row_.
void Scheduler::fetch(int wanted_row) {
  const int vocabulary = engine_.config().vocabulary;
  const int capacity = static_cast<int>(logits_.size() / sizeof(float) / static_cast<std::size_t>(vocabulary));
  if (wanted_row < fetched_from_ || wanted_row >= fetched_to_) {
    fetched_from_ = wanted_row;
    fetched_to_ = std::min(wanted_row + capacity, engine_.forward().wanted_rows());
    engine_.forward().logits(fetched_from_, {logits_.floats(), fetched_to_ - fetched_from_, vocabulary, vocabulary});
  }
  engine_.ops().download(row_.data(),
                         logits_.floats() + static_cast<std::size_t>(wanted_row - fetched_from_) * vocabulary,
                         row_.size() * sizeof(float));
}

void Scheduler::after_step(Active& active, int rows, int first_wanted, int wanted) {
  const std::size_t from = active.done;
  const bool was_prefilling = active.is_prefilling();
  active.done += static_cast<std::size_t>(rows);
  Guide& guide = *active.job().guide;
  for (int i = 0; i < wanted; ++i) {
    fetch(first_wanted + i);
    const std::size_t next = from + static_cast<std::size_t>(i) + 1;
    if (active.job().score_prompt && next < active.prompt)
      guide.on_prompt_token(score(row_, (*active.tokens)[next], static_cast<Position>(next), active.job().logprobs));
  }
  if (!was_prefilling) return next_token(active);
  if (active.done < active.prompt) {
    const bool is_due =
        options_.snapshot_every > 0 && active.done % static_cast<std::size_t>(options_.snapshot_every) == 0;
    if (is_due || active.forks.contains(active.done)) snapshot(active, false);
    return;
  }
  snapshot(active, true);
  active.stats.prefill_seconds = now() - active.started;
  active.started = now();
  next_token(active);
}

/// Chooses the token after all there are, from row_, and ends the job if it was the last.
void Scheduler::next_token(Active& active) {
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
  } else {
    job.guide->mask(row_);
    std::size_t begin = job.penalise_prompt ? 0 : active.prompt;
    if (job.penalty_last_n > 0 && tokens.size() - begin > job.penalty_last_n)
      begin = tokens.size() - job.penalty_last_n;
    sampled.token = active.sampler.sample(row_, std::span<const Token>(tokens).subspan(begin), position);
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
  if (keeps_states()) keep(active, active.cache.fork(), with_logits ? row_ : std::vector<float>());
}

void Scheduler::keep(const Active& active, SequenceCache cache, std::vector<float> logits) {
  const std::vector<std::span<const Token>> waiting = locked_waiting_prompts();
  if (disk_ != nullptr) disk_->put(std::span<const Token>(*active.tokens).first(active.done), cache, logits, waiting);
  cache_.put(active.tokens, active.done, std::move(cache), std::move(logits), waiting);
}

void Scheduler::end(Active& active, JobResult::End how, const std::string& error) {
  if (active.has_ended) return;
  active.has_ended = true;
  const double elapsed = now() - active.started;
  (active.is_prefilling() ? active.stats.prefill_seconds : active.stats.decode_seconds) = elapsed;
  // What was computed is kept: the client may come back with the same prompt, or go on from the answer. A failed step
  // has changed nothing, so the state before it is as good as any.
  std::string message = error;
  if (active.done > 0 && keeps_states()) {
    try {
      keep(active, std::move(active.cache), {});
    } catch (const std::exception& failure) {
      message = message.empty() ? message : message + "; " + failure.what();  // the answer itself is whole
    }
  }
  {
    const std::lock_guard lock(mutex_);
    status_.jobs_done += how != JobResult::End::failed && how != JobResult::End::cancelled;
    status_.jobs_failed += how == JobResult::End::failed;
    status_.jobs_cancelled += how == JobResult::End::cancelled;
    const JobStats& stats = active.stats;
    status_.prompt_tokens += static_cast<std::uint64_t>(stats.prompt);
    status_.reused_tokens += static_cast<std::uint64_t>(stats.reused);
    status_.generated_tokens += static_cast<std::uint64_t>(stats.generated);
    status_.prefill_seconds += stats.prefill_seconds;
    status_.decode_seconds += stats.decode_seconds;
  }
  active.job().guide->on_end({how, active.stop_token, message, active.stats});
  const std::lock_guard lock(mutex_);
  count_finished();
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
  const DiskCache::Stats disk = disk_ == nullptr ? DiskCache::Stats() : disk_->stats();
  const std::lock_guard lock(mutex_);
  status_.cache = cache;
  status_.disk = disk;
  for (std::size_t i = 0; i < status_.slots.size(); ++i) {
    SchedulerStatus::Slot& slot = status_.slots[i];
    slot = {};
    if (i >= active_.size()) continue;
    const Active& active = *active_[i];
    slot.is_busy = true;
    slot.job = active.from.id;
    slot.stats = active.stats;
    slot.done = static_cast<std::int64_t>(active.done);
    slot.limit = active.context;
    slot.is_prefilling = active.is_prefilling();
  }
}

}  // namespace lockstep
