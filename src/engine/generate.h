// Tokens in, an answer out: prefill in chunks, then sample and step until something says stop.
//
// A Generator owns one sequence and keeps it between calls. A prompt that continues what is there only runs what is
// new; what must be taken back is taken back by moving counters, if it is within the cache's slack, and otherwise the
// sequence starts again. The answer does not depend on any of it: the same prompt, parameters and seed give the same
// tokens whatever the chunks were and whatever was reused. Not for use by several threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace lockstep {

class Detokenizer;

struct GenerateRequest {
  std::vector<Token> prompt;
  SamplerParams sampling;
  std::int64_t limit = -1;   // new tokens at most; -1 = until the context is full
  std::int64_t context = 0;  // tokens of prompt and answer together; 0 = as many as the model was made for
  std::vector<Token> stop_tokens;
  std::vector<std::string> stop_strings;  // looked for in the answer, not in a thought
  /// Set if the prompt opened a thought: the token that closes it. It is part of neither text.
  std::optional<Token> thought_end;
};

enum class Finish { stop_token, stop_string, limit, context, cancelled };
std::string_view name_of(Finish finish);

struct PrefillProgress {
  std::int64_t done = 0;   // tokens of the prompt, reused ones too; of a running step, in proportion to its layers
  std::int64_t total = 0;  // tokens of the prompt
  double tokens_per_second = 0;  // without the reused ones; 0 while unknown
  double seconds_left = 0;       // 0 while unknown
};

/// What one token adds to the text: nothing, or whole characters.
struct Piece {
  std::optional<Token> token;  // none: what was held back, at the end
  std::string_view text;
  bool is_thought = false;
};

struct GenerateHooks {
  std::function<void(const PrefillProgress&)> progress;  // at the start, after every layer and at the end
  std::function<void(const Piece&)> piece;               // for every new token but a stop token
  const std::atomic<bool>* cancelled = nullptr;          // looked at before every layer and every token
};

struct GenerateStats {
  std::int64_t prompt = 0;     // tokens
  std::int64_t reused = 0;     // of them, those that were in the cache
  std::int64_t generated = 0;  // tokens sampled, a stop token too
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double prefill_rate() const;  // tokens a second, without the reused ones; 0 if there is no telling
  double decode_rate() const;
};

struct Generated {
  std::vector<Token> tokens;  // without a stop token
  std::string thought, text;
  Finish finish = Finish::limit;
  std::string stop_string;  // which one it was
  GenerateStats stats;
};

class Generator {
 public:
  /// Prefills in steps of `chunk` tokens; 0 = as many as a step takes, and never more. Borrows the engine. Throws
  /// Error::no_memory, and what Engine::tokenizer throws.
  explicit Generator(Engine& engine, int chunk = 0);
  ~Generator();

  /// A cancelled call returns what there is, with Finish::cancelled. Throws Error::bad_argument for an empty prompt, a
  /// token outside the vocabulary, a prompt or limit that does not fit the context, and parameters out of range; what
  /// Sampler::sample throws; what the back end throws. After any of them the Generator can be used again.
  Generated generate(const GenerateRequest& request, const GenerateHooks& hooks = {});

  /// Tokens that the cache holds.
  std::span<const Token> cached() const;

 private:
  struct Held;
  class Answer;

  void take_up(std::span<const Token> prompt);
  void prefill(const GenerateRequest& request, const GenerateHooks& hooks, GenerateStats& stats);
  void decode(const GenerateRequest& request, const GenerateHooks& hooks, Generated& out);
  void step(std::span<const Token> tokens, const SamplerParams* sampling, const std::function<bool()>& cancelled);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  int chunk_;
  std::unique_ptr<Held> live_;
  std::unique_ptr<Held> prompt_end_;  // as it was when the last prompt had been read
  Buffer logits_;                     // one row, in the back end's memory
  Buffer choice_;                     // how the next token is drawn, likewise
  Buffer drawn_;                      // and that token
  Token chosen_ = -1;                 // the same here, or -1: host_logits_ holds the row
  std::vector<float> host_logits_;
};

/// What ends a turn: the vocabulary's EOS, and defensively those that only a client may write (BOS, User, Assistant,
/// EOT), as far as it has them. Source: docs of the tokenizer, "stop ids".
std::vector<Token> stop_tokens_of(const Tokenizer& tokenizer);

/// A plain text as a prompt: its tokens, after BOS if the vocabulary has one and the text does not begin with it.
std::vector<Token> completion_prompt(const Tokenizer& tokenizer, std::string_view text);

}  // namespace lockstep
