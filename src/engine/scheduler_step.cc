// What a step of the scheduler holds, how it is run, and when it is given up for somebody else's sake.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"
#include "engine/scheduler_active.h"

namespace lockstep {
namespace {

constexpr double kGivenUpShare = 0.25;  // of the time of prefill, what may be lost by giving steps up

}  // namespace

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
  int rows = pace_.rows(static_cast<int>(items.size()));
  // Whoever needs least goes first, so that a short prompt is not stuck behind a long one; a quarter is kept for the
  // one that waits longest, so that the long one comes to its end.
  Active* oldest = *std::min_element(prefilling.begin(), prefilling.end(),
                                     [](const Active* a, const Active* b) { return a->from.id < b->from.id; });
  std::stable_sort(prefilling.begin(), prefilling.end(), [](const Active* a, const Active* b) {
    if (a->from.job.priority != b->from.job.priority) return a->from.job.priority > b->from.job.priority;
    return a->prompt - a->done < b->prompt - b->done;
  });
  if (prefilling.size() > 1) {
    // A step ends with the first prompt that does, and is not made much longer by what others have beside it.
    const std::size_t left = prefilling.front()->prompt - prefilling.front()->done;
    const std::size_t most = std::max<std::size_t>(left + (left + 2) / 3, static_cast<std::size_t>(pace_.even_rows()));
    if (most < static_cast<std::size_t>(rows)) rows = static_cast<int>(most);
  }
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

/// Whether a step of prefill alone, `rows` rows of which `left` is still to be done, is given up for a job that came
/// meanwhile: if that would otherwise wait for longer than its own prompt takes. What is lost is bounded by what has
/// been done, so that long prompts come to their end whatever comes.
bool Scheduler::gives_way(const std::vector<Active*>& order, int rows, double left, double spent) {
  if (given_up_seconds_ + spent > options_.step_seconds + kGivenUpShare * prefill_seconds_) return false;
  int priority = 0;
  for (const Active* active : order) priority = std::max(priority, active->from.job.priority);
  const double rows_left = left * rows;
  const std::lock_guard lock(mutex_);
  return std::any_of(queue_.begin(), queue_.end(), [&](Waiting& waiting) {
    const Job& job = waiting.job;
    if (waiting.id <= considered_ || job.priority < priority || job.guide->is_cancelled() || !fits(job)) return false;
    if (!waiting.to_run) {
      const std::size_t reusable = locked_reusable(job);
      waiting.to_run = is_coming(job, reusable, false) ? SIZE_MAX : job.prompt.size() - reusable;
    }
    if (*waiting.to_run == SIZE_MAX || !has_room(*waiting.to_run)) return false;
    const double own = job.priority > priority ? StepPace::kLeastRows : static_cast<double>(*waiting.to_run);
    return rows_left >= own;
  });
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
  const double began = steady_seconds();
  step_began_ = began;
  const auto is_unwanted = [&] {
    return is_aborting_ ||
           std::all_of(order.begin(), order.end(), [](const Active* a) { return a->from.job.guide->is_cancelled(); });
  };
  bool is_given_up = false, is_done = false;
  std::int64_t calls = 0;  // the first before the step, then one before every layer
  const auto layers = static_cast<std::int64_t>(engine_.config().layers.size());
  const auto between_layers = [&] {
    const std::int64_t layer = std::max<std::int64_t>(calls++ - 1, 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      Active& active = *order[i];
      if (!active.is_prefilling()) continue;
      const auto in_step = static_cast<std::int64_t>(items[i].tokens.size()) * layer / layers;
      PrefillProgress progress{static_cast<std::int64_t>(active.done) + in_step, active.stats.prompt, 0, 0};
      const double seconds = steady_seconds() - active.prefill_began;
      if (progress.done > active.stats.reused && seconds > 0) {
        progress.tokens_per_second = static_cast<double>(progress.done - active.stats.reused) / seconds;
        progress.seconds_left = static_cast<double>(progress.total - progress.done) / progress.tokens_per_second;
      }
      active.job().guide->on_prefill(progress);
    }
    if (is_unwanted()) return true;
    if (decoders == 0 && !is_given_up)
      is_given_up = gives_way(order, rows, 1 - static_cast<double>(layer) / static_cast<double>(layers),
                              steady_seconds() - began);
    return is_given_up;
  };
  try {
    engine_.forward().step(items, between_layers, [&] {
      plan_draws(order, items);
      if (!drawn_.empty()) make_logits(0);
    });
    is_given_up = false;
    is_done = true;
    take_times(order, items, rows);
    int first = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      try {
        after_step(*order[i], static_cast<int>(items[i].tokens.size()), first, items[i].wanted);
      } catch (const std::exception& error) {
        note_failure(error);
        if (!device_failure_.empty()) throw;
        end(*order[i], JobResult::End::failed, error.what());  // its own fault: the others go on
      }
      first += items[i].wanted;
    }
  } catch (const Error& error) {
    note_failure(error);
    const bool is_cancelled = error.kind() == Error::Kind::cancelled;
    if (!is_cancelled) is_given_up = false;
    for (Active* active : order)
      if (!active->has_ended && !is_given_up)
        end(*active, is_cancelled ? JobResult::End::cancelled : JobResult::End::failed,
            is_cancelled ? "" : error.what());
  } catch (const std::exception& error) {
    is_given_up = false;
    for (Active* active : order)
      if (!active->has_ended) end(*active, JobResult::End::failed, error.what());
  }
  const double seconds = steady_seconds() - began;
  step_began_ = 0;
  take_times(order, items, rows);
  if (is_given_up) {
    given_up_seconds_ += seconds;
  } else if (is_done) {  // what ended between layers tells nothing of what a step takes
    pace_.measured(rows - decoders, decoders, seconds);
    if (decoders == 0) prefill_seconds_ += seconds;
  }
  const std::lock_guard lock(mutex_);
  status_.step_seconds += seconds;
  if (is_given_up) ++status_.given_up;
  if (!is_done) return;
  ++status_.steps;
  status_.rows += static_cast<std::uint64_t>(rows);
  status_.answers_in_steps += order.size();
}

/// Adds what the engine has timed since the last call to the whole and to the jobs of the step.
void Scheduler::take_times(std::span<Active* const> order, std::span<const BatchItem> items, int rows) {
  const TimedOps* timer = engine_.timer();
  if (timer == nullptr) return;
  PhaseSeconds spent{};
  for (std::size_t i = 0; i < spent.size(); ++i) {
    const double total = timer->times().phases[i].seconds;
    spent[i] = std::max(0.0, total - counted_[i]);
    counted_[i] = total;
  }
  for (std::size_t k = 0; k < order.size(); ++k)
    for (std::size_t i = 0; i < spent.size(); ++i)
      order[k]->stats.phases[i] += spent[i] * static_cast<double>(items[k].tokens.size()) / rows;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < spent.size(); ++i) status_.phases[i] += spent[i];
}

/// Whether the token behind the next `rows` tokens of a job takes no more than logits and settings.
bool Scheduler::is_plain(Active& active, int rows) const {
  const Job& job = active.job();
  if (active.is_prefilling() && (active.done + static_cast<std::size_t>(rows) < active.prompt || job.score_prompt))
    return false;
  return is_plain_draw(active.sampler.params()) && job.logprobs < 0 && job.limit != 0 && !job.guide->masks();
}

/// Says what is drawn from which of the step's wanted rows.
void Scheduler::plan_draws(std::span<Active* const> order, std::span<const BatchItem> items) {
  fetched_from_ = fetched_to_ = 0;
  draws_.clear();
  int row = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    row += items[i].wanted;
    Active& active = *order[i];
    if (items[i].wanted == 0 || !is_plain(active, static_cast<int>(items[i].tokens.size()))) continue;
    draws_.push_back(draw_choice(active.sampler.params(), static_cast<Position>(active.tokens->size())));
    draws_.back().row = row - 1;
  }
  drawn_.assign(static_cast<std::size_t>(row), -1);
}

/// Makes logits of the step's wanted rows from this one on, as many as there is room for, if they are not there, and
/// draws from those of them that take no more.
void Scheduler::make_logits(int wanted_row) {
  if (wanted_row >= fetched_from_ && wanted_row < fetched_to_) return;
  Ops& ops = engine_.ops();
  const int vocabulary = engine_.config().vocabulary;
  const int capacity = static_cast<int>(logits_.size() / sizeof(float) / static_cast<std::size_t>(vocabulary));
  fetched_from_ = fetched_to_ = wanted_row;
  const int end = std::min(wanted_row + capacity, engine_.forward().wanted_rows());
  const Rows logits{logits_.floats(), end - wanted_row, vocabulary, vocabulary};
  engine_.forward().logits(wanted_row, logits);
  fetched_to_ = end;

  std::vector<DrawChoice> here;
  for (DrawChoice choice : draws_)
    if (choice.row >= wanted_row && choice.row < end) {
      choice.row -= wanted_row;
      here.push_back(choice);
    }
  if (here.empty()) return;
  auto* choices = reinterpret_cast<DrawChoice*>(choices_.bytes());
  auto* tokens = reinterpret_cast<Token*>(tokens_.bytes());
  std::vector<Token> drawn(here.size());
  ops.enter(StepPhase::sample);
  ops.upload(choices, here.data(), here.size() * sizeof(DrawChoice));
  ops.draw(tokens, logits, choices, static_cast<int>(here.size()));
  ops.download(drawn.data(), tokens, drawn.size() * sizeof(Token));
  ops.enter(StepPhase::none);
  for (std::size_t i = 0; i < here.size(); ++i) drawn_[static_cast<std::size_t>(wanted_row + here[i].row)] = drawn[i];
}

/// Fetches one row of the step's logits into row_. make_logits has been called for it.
void Scheduler::fetch(int wanted_row) {
  const std::size_t width = row_.size();
  engine_.ops().download(row_.data(), logits_.floats() + static_cast<std::size_t>(wanted_row - fetched_from_) * width,
                         width * sizeof(float));
}

}  // namespace lockstep
