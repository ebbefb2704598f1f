// What `complete` and `chat` share: the options of an answer, and how its progress and its rates are shown.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generate.h"
#include "text/chat.h"

namespace lockstep {

struct GenerationOptions {
  std::int64_t limit = -1;
  std::int64_t context = 0;
  SamplerParams sampling;
  std::vector<std::string> logit_bias;  // ID:BIAS
  std::string effort;                   // of a chat
};

/// -n, --context, --temperature, --seed and the other knobs of the sampler.
void add_generation_options(CLI::App& command, GenerationOptions& options);

/// The parameters with what stands in strings read. To be called before a model is loaded: all but the ids of a bias is
/// checked. Throws Error::bad_argument.
SamplerParams sampler_params_of(const GenerationOptions& options);

/// A request without prompt and sampling: limits and stop tokens.
GenerateRequest request_of(const GenerationOptions& options, const Tokenizer& tokenizer);

/// A chat request without messages: profile by the model file, and effort. Throws Error::unsupported if the model's
/// vocabulary cannot carry a chat.
ChatRequest chat_request_of(Engine& engine, const GenerationOptions& options);

Message message_of(Role role, std::string content);

/// One line on stderr while a long prompt is read: rewritten on a terminal, now and then a new one elsewhere. Nothing
/// for the first second.
class PrefillLine {
 public:
  PrefillLine();
  ~PrefillLine() { clear(); }
  PrefillLine(const PrefillLine&) = delete;
  PrefillLine& operator=(const PrefillLine&) = delete;

  void show(const PrefillProgress& progress);
  /// Takes it off a terminal again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_terminal_;
  bool is_shown_ = false;
  Clock::time_point next_;
};

/// "prompt 12 tokens, 350.1 tokens/s; answer ...": what really ran.
std::string stats_text(const Generated& generated, const SamplerParams& params, Engine& engine);

/// Writes to stdout at once. Throws Error::io.
void write_out(std::string_view text);

}  // namespace lockstep
