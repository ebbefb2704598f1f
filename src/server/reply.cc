#include "server/reply.h"

#include <cmath>
#include <utility>

#include "server/http_error.h"
#include "server/random_id.h"

namespace lockstep {
namespace {

std::int64_t unix_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

/// Tokens a second, to a tenth; 0 if there is no telling.
double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 && tokens > 0 ? std::round(10 * static_cast<double>(tokens) / seconds) / 10 : 0;
}

/// The first token comes with the prompt: the time of an answer that has no other is next to none, and says nothing.
double decode_rate(std::int64_t tokens, double seconds) { return tokens < 2 ? 0 : rate(tokens, seconds); }

double milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

Json trace_of(const ParserEvent& event) {
  using Kind = ParserEvent::Kind;
  switch (event.kind) {
    case Kind::reasoning:
      return {{"reasoning", event.text}};
    case Kind::content:
      return {{"content", event.text}};
    case Kind::call_begin:
      return {{"call_begin", event.call}, {"name", event.name}};
    case Kind::arguments:
      return {{"arguments", event.text}, {"call", event.call}};
    case Kind::call_end:
      return {{"call_end", event.call}, {"is_complete", event.is_complete}};
  }
  return nullptr;
}

}  // namespace

Reply::Reply(ApiShared api, std::shared_ptr<Exchange> exchange, std::string model, bool is_stream)
    : api_(std::move(api)),
      exchange_(std::move(exchange)),
      model_(std::move(model)),
      is_stream_(is_stream),
      created_(unix_seconds()),
      last_event_(Clock::now()) {}

void Reply::start(const Plan& plan, int count) {
  prompt_tokens_ = static_cast<std::int64_t>(plan.tokens.size());
  answers_per_prompt_ = count;
  seed_ = seed_told(plan.job.sampling);
  begun_ = plan.answer.begun;
  if (api_->trace)
    trace_ = {{"path", exchange_->request().path}, {"prompt", plan.prompt.text()}, {"prompt_tokens", plan.tokens}};
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    Job job = plan.job;
    job.prompt = plan.tokens;
    job.sampling.seed += static_cast<std::uint64_t>(i);
    job.guide = std::make_shared<Answer>(plan.answer, i, api_->tokenizer(), shared_from_this());
    jobs.push_back(std::move(job));
  }
  submit(std::move(jobs));
}

void Reply::submit(std::vector<Job> jobs) {
  const SchedulerOptions& scheduler = api_->settings().scheduler;
  const std::size_t most = scheduler.queue + static_cast<std::size_t>(scheduler.slots);
  if (jobs.size() > most)
    throw ApiError(400,
                   "n: " + std::to_string(jobs.size()) + " answers at once, expected at most " + std::to_string(most) +
                       ", the server's slots and queue",
                   "n");
  const std::lock_guard lock(mutex_);  // answers wait until the headers are out
  choices_.resize(jobs.size());
  if (!trace_.is_null())
    for (Choice& one : choices_) one.trace = {{"tokens", Json::array()}, {"events", Json::array()}};
  left_ = static_cast<int>(jobs.size());
  for (Job& job : jobs) {
    std::optional<Scheduler::Refusal> refusal;
    try {
      refusal = api_->sources.source.submit(std::move(job));
    } catch (const Error& error) {
      is_cancelled_ = is_over_ = true;
      if (error.kind() == Error::Kind::no_memory) throw ApiError(400, error.what(), "max_tokens");
      throw;
    }
    if (!refusal) continue;
    is_cancelled_ = is_over_ = true;  // those that were taken end without a word
    if (*refusal == Scheduler::Refusal::stopping)
      throw ApiError(503, "The server is shutting down", {}, "shutting_down");
    throw ApiError(429, "The queue is full: too many answers are waiting, try again");
  }
  if (!is_stream_) return;
  exchange_->begin_stream();
  exchange_->on_silence(api_->settings().keep_alive_seconds, [weak = weak_from_this()] {
    const auto reply = weak.lock();
    if (!reply) return;
    const std::lock_guard silence_lock(reply->mutex_);
    if (reply->is_over_) return;
    const std::chrono::duration<double> since = Clock::now() - reply->last_event_;
    reply->stream_silence(since.count());
  });
  stream_begin();
}

/// Runs a callback under the lock, unless all has been said. A guide must not throw: what goes wrong ends the reply.
template <class Call>
void Reply::guarded(Call call) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  try {
    call();
  } catch (const std::exception& error) {
    fail(as_api_error(error));
  }
}

void Reply::on_prefill(int, const PrefillProgress& progress) {
  guarded([&] {
    if (!std::exchange(has_prefilled_, true)) cached_ = progress.done;
    if (is_stream_) stream_prefill(progress);
  });
}

void Reply::on_token(int i, Token token, bool is_first) {
  guarded([&] {
    if (!std::exchange(has_prefilled_, true)) {  // all of the prompt was in the cache
      cached_ = prompt_tokens_;
      if (is_stream_) stream_prefill({prompt_tokens_, prompt_tokens_, 0, 0});
    }
    ++choice(i).sampled;
    if (!trace_.is_null()) choice(i).trace["tokens"].push_back(token);
    if (is_first && is_stream_) stream_first_token(i);
  });
}

void Reply::on_piece(int i, AnswerPiece piece) {
  guarded([&] {
    Choice& to = choice(i);
    const ParserEvent& event = piece.event;
    if (event.kind == ParserEvent::Kind::call_begin) {
      to.call_ids.push_back(random_id(call_id_prefix()));
      to.has_called = true;
    }
    if (!trace_.is_null()) to.trace["events"].push_back(trace_of(event));
    if (is_stream_) stream_piece(i, piece);
    append(to.output, event);
    if (event.kind == ParserEvent::Kind::call_end && !event.is_complete) to.call_ids.pop_back();
    for (AnswerToken& token : piece.tokens) to.tokens.push_back(std::move(token));
  });
}

void Reply::on_end(int i, AnswerEnd end) {
  guarded([&] {
    Choice& ended = choice(i);
    ended.end = std::move(end);
    ended.has_ended = true;
    ended.output.finish_reason = ended.end.reason;
    --left_;
    const JobResult& result = ended.end.result;
    if (result.end == JobResult::End::failed) return fail(ApiError(500, result.error));
    if (result.end == JobResult::End::cancelled)
      return fail(ApiError(503, "The answer was cancelled: the server is shutting down", {}, "shutting_down"));
    if (is_stream_) stream_choice_end(i);
    if (left_ == 0) finish();
  });
}

void Reply::finish() {
  const Usage total = usage();
  exchange_->note({{"prompt_tokens", total.prompt},
                   {"cached_tokens", total.cached},
                   {"completion_tokens", total.completion},
                   {"lockstep", lockstep_object()}});
  settle();
  if (is_stream_) {
    stream_end();
    exchange_->end();
  } else {
    respond(*exchange_, whole());
  }
  is_over_ = true;
  write_trace();
}

void Reply::fail(const ApiError& error) {
  is_over_ = is_cancelled_ = true;
  if (!exchange_->is_gone()) exchange_->note({{"error", error.what()}});
  if (is_stream_) {
    stream_error(error);
    exchange_->end();
  } else {
    exchange_->fail(error);
  }
  if (!trace_.is_null()) trace_["error"] = error.what();
  write_trace();
}

void Reply::write_trace() {
  if (trace_.is_null()) return;
  for (Choice& one : choices_) {
    one.trace["finish_reason"] = name_of(one.output.finish_reason);
    trace_["choices"].push_back(std::move(one.trace));
  }
  trace_["lockstep"] = lockstep_object();
  api_->trace->add(exchange_->request().id, std::move(trace_));
  trace_ = nullptr;
}

void Reply::send(std::string bytes) {
  if (!exchange_->send(std::move(bytes))) is_cancelled_ = true;
}

void Reply::send_event(const std::string& name, const Json& data) {
  last_event_ = Clock::now();
  send("event: " + name + "\ndata: " + json_text(data) + "\n\n");
}

void Reply::send_data(const Json& data) {
  last_event_ = Clock::now();
  send("data: " + json_text(data) + "\n\n");
}

void Reply::send_comment() { send(": keep-alive\n\n"); }

Reply::Usage Reply::usage() const {
  Usage out;
  out.prompt = prompt_tokens_;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const AnswerEnd& end = choices_[i].end;
    if (i % static_cast<std::size_t>(answers_per_prompt_) == 0) out.cached += end.result.stats.reused;
    out.completion += end.result.stats.generated;
    out.reasoning += end.reasoning_tokens;
  }
  return out;
}

Json Reply::lockstep_object() const {
  JobStats sum;
  std::int64_t decoded = 0;               // tokens of answers that have a rate
  std::int64_t cached = 0, restored = 0;  // of the prompts, each counted once however many answers it has
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const JobStats& stats = choices_[i].end.result.stats;
    if (i % static_cast<std::size_t>(answers_per_prompt_) == 0) {
      cached += stats.reused;
      restored += stats.restored;
    }
    for (std::size_t k = 0; k < stats.phases.size(); ++k) sum.phases[k] += stats.phases[k];
    sum.prompt += stats.prompt;
    sum.reused += stats.reused;
    sum.prefill_seconds += stats.prefill_seconds;
    if (stats.generated >= 2) {
      decoded += stats.generated;
      sum.decode_seconds += stats.decode_seconds;
    }
    sum.queue_seconds = std::max(sum.queue_seconds, stats.queue_seconds);
  }
  Json out = {{"prefill_tokens_per_second", rate(sum.prompt - sum.reused, sum.prefill_seconds)},
              {"decode_tokens_per_second", decode_rate(decoded, sum.decode_seconds)},
              {"queue_ms", milliseconds(sum.queue_seconds)},
              {"cached_tokens", cached},
              {"restored_tokens", restored},  // of the cached ones, those that came from the disk
              {"drafted_tokens", 0},          // one token a step
              {"accepted_tokens", 0},
              {"seed", seed_},
              {"back_end", api_->settings().back_end},
              {"system_fingerprint", api_->sources.fingerprint}};
  if (!choices_.empty() && choices_[0].end.result.stats.miss != Miss::none) {
    const JobStats& stats = choices_[0].end.result.stats;
    out["cache_miss"] = name_of(stats.miss);
    if (stats.shared > stats.reused || stats.miss == Miss::differs) out["first_difference"] = stats.shared;
  }
  Json phases = Json::object();
  for (std::size_t k = 0; k < sum.phases.size(); ++k)
    if (sum.phases[k] > 0) phases[std::string(name_of(static_cast<StepPhase>(k)))] = milliseconds(sum.phases[k]);
  if (!phases.empty()) out["phase_ms"] = std::move(phases);
  return out;
}

Json Reply::timings() const {
  if (choices_.empty()) return nullptr;
  const JobStats& stats = choices_[0].end.result.stats;
  const std::int64_t read = stats.prompt - stats.reused;
  return {{"cache_n", stats.reused},
          {"prompt_n", read},
          {"prompt_ms", milliseconds(stats.prefill_seconds)},
          {"prompt_per_second", rate(read, stats.prefill_seconds)},
          {"predicted_n", stats.generated},
          {"predicted_ms", milliseconds(stats.decode_seconds)},
          {"predicted_per_second", decode_rate(stats.generated, stats.decode_seconds)}};
}

void Reply::remember(Choice& one, std::vector<std::string> keys) {
  std::erase_if(keys, [](const std::string& key) { return key.empty(); });
  if (!one.end.turn || (keys.empty() && one.call_ids.empty())) return;
  if (one.output.finish_reason == FinishReason::length && !one.call_ids.empty()) return;  // its block is still open
  ParsedOutput output = one.output;
  output.reasoning.insert(0, begun_.reasoning);
  output.content.insert(0, begun_.content);
  api_->replay->remember(output, joined(begun_.turn, *one.end.turn), one.call_ids, keys);
  one.end.turn.reset();
}

}  // namespace lockstep
