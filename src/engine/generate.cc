#include "engine/generate.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/prefix_cache.h"
#include "text/chat.h"
#include "text/utf8_stream.h"

namespace lockstep {
namespace {

std::int64_t context_of(const GenerateRequest& request, const Config& config) {
  return request.context > 0 ? request.context : config.context_length;
}

void check_request(const GenerateRequest& request, const Config& config) {
  const auto fail = [](const std::string& message) { throw Error(Error::Kind::bad_argument, message); };
  if (request.prompt.empty()) fail("prompt: empty, expected at least one token");
  for (const Token token : request.prompt)
    if (token < 0 || token >= config.vocabulary)
      fail("prompt: token " + std::to_string(token) + ", expected 0 to " + std::to_string(config.vocabulary - 1));
  if (request.limit == 0 || request.limit < -1)
    fail("limit: " + std::to_string(request.limit) + " tokens, expected at least 1, or -1 until the context is full");
  if (request.context < 0 || request.context > config.context_length)
    fail("context: " + std::to_string(request.context) + " tokens, expected 1 to " +
         std::to_string(config.context_length) + ", which the model was made for");
  for (const std::string& stop : request.stop_strings)
    if (stop.empty()) fail("stop strings: one is empty, expected text");
  const std::int64_t context = context_of(request, config);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt >= context)
    fail("prompt: " + std::to_string(prompt) + " tokens, expected fewer than the context of " +
         std::to_string(context));
  if (request.limit > context - prompt)
    fail("limit: " + std::to_string(request.limit) + " new tokens after a prompt of " + std::to_string(prompt) +
         ", expected at most " + std::to_string(context - prompt) + ", what the context of " + std::to_string(context) +
         " leaves");
}

}  // namespace

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::stop_token:
      return "an end token";
    case Finish::stop_string:
      return "a stop string";
    case Finish::limit:
      return "the limit of new tokens";
    case Finish::context:
      return "the end of the context";
    case Finish::cancelled:
      return "the caller";
  }
  return "";
}

double GenerateStats::prefill_rate() const {
  return prefill_seconds > 0 ? static_cast<double>(prompt - reused) / prefill_seconds : 0;
}
double GenerateStats::decode_rate() const {
  return decode_seconds > 0 ? static_cast<double>(generated) / decode_seconds : 0;
}

/// A cache and the tokens that made it.
struct Generator::Held {
  SequenceCache cache;
  std::vector<Token> tokens;

  /// How many tokens of `prompt` need not be run. The last one always is: its logits are wanted.
  std::size_t reusable(std::span<const Token> prompt) const {
    const std::size_t common = common_length(tokens, prompt.first(prompt.size() - 1));
    return static_cast<Position>(common) >= cache.rewind_floor() ? common : 0;
  }
  void rewind(std::size_t length) {
    cache.rewind(static_cast<Position>(length));
    tokens.resize(length);
  }
};

/// The two texts of an answer, made token by token.
class Generator::Answer {
 public:
  Answer(const Tokenizer& tokenizer, const GenerateRequest& request, const GenerateHooks& hooks, Generated& out)
      : thought_end_(request.thought_end),
        hooks_(hooks),
        out_(out),
        thought_(tokenizer),
        text_(tokenizer, request.stop_strings) {}

  void push(Token token) {
    out_.tokens.push_back(token);
    if (thought_end_ == token) {
      thought_end_.reset();
      emit(token, thought_.finish(), true);
    } else if (thought_end_) {
      emit(token, thought_.push(token), true);
    } else {
      emit(token, text_.push(token), false);
    }
  }
  void finish() {
    const std::string text = thought_end_ ? thought_.finish() : text_.finish();
    if (!text.empty()) emit(std::nullopt, text, thought_end_.has_value());
  }
  bool is_stopped() const { return text_.is_stopped(); }
  const std::string& matched() const { return text_.matched(); }

 private:
  void emit(std::optional<Token> token, const std::string& text, bool is_thought) {
    (is_thought ? out_.thought : out_.text) += text;
    if (hooks_.piece) hooks_.piece({token, text, is_thought});
  }

  std::optional<Token> thought_end_;  // set while in a thought
  const GenerateHooks& hooks_;
  Generated& out_;
  Detokenizer thought_, text_;
};

Generator::Generator(Engine& engine, int chunk)
    : engine_(engine),
      tokenizer_(engine.tokenizer()),
      chunk_(chunk <= 0 ? engine.forward().max_rows() : std::min(chunk, engine.forward().max_rows())),
      logits_(engine.ops(), sizeof(float) * static_cast<std::size_t>(engine.config().vocabulary)),
      choice_(engine.ops(), sizeof(DrawChoice)),
      drawn_(engine.ops(), sizeof(Token)),
      host_logits_(static_cast<std::size_t>(engine.config().vocabulary)) {}

Generator::~Generator() = default;

std::span<const Token> Generator::cached() const {
  return live_ ? std::span<const Token>(live_->tokens) : std::span<const Token>();
}

Generated Generator::generate(const GenerateRequest& request, const GenerateHooks& hooks) {
  check_request(request, engine_.config());
  check_sampler_params(request.sampling, engine_.config().vocabulary);
  Generated out;
  const double start = steady_seconds();
  bool has_prefilled = false;
  try {
    prefill(request, hooks, out.stats);
    has_prefilled = true;
    decode(request, hooks, out);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::cancelled) throw;
    out.finish = Finish::cancelled;
  }
  if (!has_prefilled) out.stats.prefill_seconds = steady_seconds() - start;
  return out;
}

/// Makes live_ the longest part of the prompt that there is, and drops what was used up.
void Generator::take_up(std::span<const Token> prompt) {
  const std::size_t live = live_ ? live_->reusable(prompt) : 0;
  const std::size_t earlier = prompt_end_ ? prompt_end_->reusable(prompt) : 0;
  if (earlier > live) live_ = std::move(prompt_end_);
  if (earlier == 0) prompt_end_.reset();
  if (std::max(live, earlier) == 0) {
    live_.reset();  // first, so that its memory can be used again
    live_ = std::make_unique<Held>(Held{engine_.new_sequence(), {}});
  } else {
    live_->rewind(std::max(live, earlier));
  }
}

void Generator::prefill(const GenerateRequest& request, const GenerateHooks& hooks, GenerateStats& stats) {
  const std::span<const Token> prompt = request.prompt;
  const double start = steady_seconds();
  take_up(prompt);
  stats.prompt = static_cast<std::int64_t>(prompt.size());
  stats.reused = static_cast<std::int64_t>(live_->tokens.size());

  const auto layers = static_cast<std::int64_t>(engine_.config().layers.size());
  const auto report = [&](std::int64_t done) {
    if (!hooks.progress) return;
    PrefillProgress progress{done, stats.prompt, 0, 0};
    const double seconds = steady_seconds() - start;
    if (done > stats.reused && seconds > 0) {
      progress.tokens_per_second = static_cast<double>(done - stats.reused) / seconds;
      progress.seconds_left = static_cast<double>(stats.prompt - done) / progress.tokens_per_second;
    }
    hooks.progress(progress);
  };
  report(stats.reused);
  while (live_->tokens.size() < prompt.size()) {
    const std::size_t done = live_->tokens.size();
    const std::size_t rows = std::min(prompt.size() - done, static_cast<std::size_t>(chunk_));
    std::int64_t layer = 0;
    step(prompt.subspan(done, rows), done + rows == prompt.size() ? &request.sampling : nullptr, [&] {
      if (layer > 0) report(static_cast<std::int64_t>(done) + static_cast<std::int64_t>(rows) * layer / layers);
      ++layer;
      return hooks.cancelled != nullptr && hooks.cancelled->load(std::memory_order_relaxed);
    });
  }
  report(stats.prompt);
  stats.prefill_seconds = steady_seconds() - start;
  // A chat's next prompt often differs from here on: reasoning is left out of it, and is longer than the slack.
  prompt_end_ = std::make_unique<Held>(Held{live_->cache.fork(), live_->tokens});
}

void Generator::decode(const GenerateRequest& request, const GenerateHooks& hooks, Generated& out) {
  const double start = steady_seconds();
  const std::int64_t context = context_of(request, engine_.config());
  Sampler sampler(request.sampling, engine_.config().vocabulary);
  std::vector<Token> history = request.prompt;
  Answer answer(tokenizer_, request, hooks, out);
  const auto is_cancelled = [&] {
    return hooks.cancelled != nullptr && hooks.cancelled->load(std::memory_order_relaxed);
  };

  const auto run = [&]() -> Finish {
    for (;;) {
      if (is_cancelled()) return Finish::cancelled;
      Token token = chosen_;
      if (token < 0) {
        engine_.ops().enter(StepPhase::sample);
        token = sampler.sample(host_logits_, history, static_cast<Position>(history.size()));
        engine_.ops().enter(StepPhase::none);
      }
      ++out.stats.generated;
      if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) != request.stop_tokens.end())
        return Finish::stop_token;
      history.push_back(token);
      answer.push(token);
      if (answer.is_stopped()) return Finish::stop_string;
      if (out.stats.generated == request.limit) return Finish::limit;
      if (static_cast<std::int64_t>(history.size()) == context) return Finish::context;
      try {
        step({&token, 1}, &request.sampling, is_cancelled);
      } catch (const Error& error) {
        if (error.kind() != Error::Kind::cancelled) throw;
        return Finish::cancelled;
      }
    }
  };
  out.finish = run();
  if (answer.is_stopped()) out.stop_string = answer.matched();
  answer.finish();
  out.stats.decode_seconds = steady_seconds() - start;
}

/// One step of live_; it and its tokens change together or not at all. With `sampling`, then draws the token that comes
/// next where the logits are, or fetches them.
void Generator::step(std::span<const Token> tokens, const SamplerParams* sampling,
                     const std::function<bool()>& cancelled) {
  live_->tokens.reserve(live_->tokens.size() + tokens.size());
  const BatchItem item{&live_->cache, tokens, sampling == nullptr ? 0 : 1};
  const auto choose = [&] {
    if (sampling == nullptr) return;
    Ops& ops = engine_.ops();
    const int vocabulary = engine_.config().vocabulary;
    const Rows logits{logits_.floats(), 1, vocabulary, vocabulary};
    engine_.forward().logits(0, logits);
    chosen_ = -1;
    if (is_plain_draw(*sampling)) {  // one number instead of a row
      const DrawChoice choice = draw_choice(*sampling, static_cast<Position>(live_->tokens.size() + tokens.size()));
      auto* choices = reinterpret_cast<DrawChoice*>(choice_.bytes());
      auto* drawn = reinterpret_cast<Token*>(drawn_.bytes());
      ops.enter(StepPhase::sample);
      ops.upload(choices, &choice, sizeof choice);
      ops.draw(drawn, logits, choices, 1);
      ops.download(&chosen_, drawn, sizeof chosen_);
      ops.enter(StepPhase::none);
    }
    if (chosen_ < 0)  // also when nothing can be drawn: the sampler says what is wrong
      ops.download(host_logits_.data(), logits_.floats(), host_logits_.size() * sizeof(float));
  };
  engine_.forward().step({&item, 1}, cancelled, choose);
  live_->tokens.insert(live_->tokens.end(), tokens.begin(), tokens.end());
}

std::vector<Token> stop_tokens_of(const Tokenizer& tokenizer) {
  std::vector<Token> out;
  const auto add = [&](std::optional<Token> token) {
    if (token && std::find(out.begin(), out.end(), *token) == out.end()) out.push_back(*token);
  };
  add(tokenizer.eos());
  add(tokenizer.bos());
  for (const std::string_view text : {kEosText, kBosText, kUserText, kAssistantText, std::string_view("<|EOT|>")})
    add(tokenizer.find_added(text));
  return out;
}

std::vector<Token> completion_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> out = tokenizer.encode(text, Trust::trusted);
  const std::optional<Token> bos = tokenizer.bos();
  if (bos && (out.empty() || out.front() != *bos)) out.insert(out.begin(), *bos);
  return out;
}

}  // namespace lockstep
