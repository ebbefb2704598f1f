#include "cli/generation.h"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/error.h"
#include "cli/options.h"
#include "text/chat_request.h"

namespace lockstep {
namespace {

/// A number or nothing: no sign for unsigned types, no rest.
template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

void add_generation_options(CLI::App& command, GenerationOptions& options) {
  command.add_option("-n", options.limit, "new tokens at most; without it, until the context is full")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_option("--context", options.context, "tokens of prompt and answer together; without it, the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  SamplerParams& sampling = options.sampling;
  command.add_option("--temperature", sampling.temperature, "0 takes the likeliest token")->capture_default_str();
  add_seed_option(command, options.sampling.seed, "the same seed gives the same tokens");
  command.add_option("--top-k", sampling.top_k, "only the K likeliest tokens; 0 = all")->capture_default_str();
  command.add_option("--top-p", sampling.top_p, "only the likeliest tokens that have this much probability together")
      ->capture_default_str();
  command.add_option("--min-p", sampling.min_p, "only tokens at least this likely, as a part of the likeliest one's")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty, "divides the logits of tokens seen; 1 = none")
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", sampling.frequency_penalty, "taken off once for every time a token was seen")
      ->capture_default_str();
  command.add_option("--presence-penalty", sampling.presence_penalty, "taken off once if a token was seen")
      ->capture_default_str();
  command.add_option("--logit-bias", options.logit_bias, "ID:BIAS, added to the logit of a token; may be repeated")
      ->allow_extra_args(false);
}

SamplerParams sampler_params_of(const GenerationOptions& options) {
  SamplerParams params = options.sampling;
  for (const std::string& text : options.logit_bias) {
    LogitBias entry;
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos || !read_number(std::string_view(text).substr(0, colon), entry.token) ||
        !read_number(std::string_view(text).substr(colon + 1), entry.bias))
      throw Error(Error::Kind::bad_argument, "--logit-bias: \"" + text + "\", expected ID:BIAS, for instance 17:-2.5");
    params.logit_bias.push_back(entry);
  }
  check_sampler_params(params, std::numeric_limits<int>::max());
  return params;
}

GenerateRequest request_of(const GenerationOptions& options, const Tokenizer& tokenizer) {
  GenerateRequest request;
  request.limit = options.limit;
  request.context = options.context;
  request.stop_tokens = stop_tokens_of(tokenizer);
  return request;
}

ChatRequest chat_request_of(Engine& engine, const GenerationOptions& options) {
  const Tokenizer& tokenizer = engine.tokenizer();
  try {
    check_chat_vocabulary(tokenizer);
  } catch (const Error& error) {
    throw Error(error.kind(), engine.file().name() + ": cannot chat: " + error.what() +
                                  "; `lockstep complete` without --chat works with any vocabulary");
  }
  ChatRequest request;
  const std::string name = std::string(engine.file().string_or("general.name", "")) + " " + engine.file().name();
  request.profile = detect_profile(tokenizer.chat_template(), name);
  if (!options.effort.empty()) request.effort = effort_named(options.effort, "--effort");
  return request;
}

Message message_of(Role role, std::string content) {
  Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

PrefillLine::PrefillLine() : is_terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now() + std::chrono::seconds(1)) {}

void PrefillLine::show(const PrefillProgress& progress) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  std::string text = fmt::format("reading the prompt: {} of {} tokens", progress.done, progress.total);
  if (progress.tokens_per_second > 0)
    text += fmt::format(", {:.1f} tokens/s, {:.0f} s left", progress.tokens_per_second, progress.seconds_left);
  if (is_terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
  is_shown_ = true;
}

void PrefillLine::clear() {
  if (is_shown_ && is_terminal_) fmt::print(stderr, "\r\033[K");
  is_shown_ = false;
}

std::string stats_text(const Generated& generated, const SamplerParams& params, Engine& engine) {
  const GenerateStats& stats = generated.stats;
  std::string text = fmt::format("prompt {} tokens", stats.prompt);
  if (stats.reused > 0) text += fmt::format(" ({} from the cache)", stats.reused);
  text += fmt::format(", {:.1f} tokens/s; answer {} tokens, {:.1f} tokens/s; ended by {}", stats.prefill_rate(),
                      stats.generated, stats.decode_rate(), name_of(generated.finish));
  if (generated.finish == Finish::stop_string) text += " \"" + generated.stop_string + "\"";
  text += params.temperature == 0 ? "; greedy" : fmt::format("; seed {}", params.seed);
  return text + "; " + engine.ops().description();
}

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(Error::Kind::io, "stdout: cannot be written");
}

}  // namespace lockstep
