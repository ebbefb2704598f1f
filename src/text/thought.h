// Where a generation stands: in its reasoning or in its answer. One small machine for all who must agree on it: the
// renderer writes the marker that opens a turn, the parser starts where the prompt ended and follows the markers that
// the model writes, and the budget closes a thought that has become too long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/prompt.h"

namespace lockstep {

enum class Phase { reasoning, content };
enum class ThinkMarker { begin, end };  // <think>, </think>

/// The marker that a prompt ends with so that the model goes on in this phase.
std::string_view opening_of(Phase phase);

/// What a marker that the model wrote does. `is_first`: nothing of this phase was written yet.
enum class ThinkEffect { turns, is_swallowed, is_text };
ThinkEffect effect_of(ThinkMarker marker, Phase phase, bool is_first);

/// The phase in which the model goes on after a rendered prompt: what the last assistant turn's trusted text leaves
/// open. Without an assistant turn: content.
Phase phase_after(const Prompt& prompt);

/// An assistant turn as it was sampled, for a later prompt to repeat: control tokens trusted, all else not.
struct SampledTurn {
  Phase opening = Phase::content;  // what the prompt ended with
  Prompt whole;                    // to the end of the turn, without its end-of-sentence token
  std::size_t answer_begin = 0;    // in whole.text(): behind the </think> that ended the thought, if there was one

  bool is_empty() const { return whole.spans.empty(); }
};

/// What a prompt already holds of the turn that it leaves open: nothing, unless it ends with a message to be continued.
SampledTurn begun_turn(const Prompt& prompt);

/// A turn with what the prompt held of it before.
SampledTurn joined(const SampledTurn& begun, const SampledTurn& sampled);

/// Tokens that a thought may take. The caller counts every token sampled while OutputParser::phase() is reasoning;
/// once the budget is spent and OutputParser::can_close_thought(), it feeds </think> in place of a sampled token.
class ThoughtBudget {
 public:
  /// Nothing: no limit. 0: the thought is closed at once. Throws Error::bad_argument for a negative number.
  explicit ThoughtBudget(std::optional<std::int64_t> tokens);
  void count() { ++used_; }
  bool is_spent() const { return limit_ && used_ >= *limit_; }
  std::int64_t used() const { return used_; }

 private:
  std::optional<std::int64_t> limit_;
  std::int64_t used_ = 0;
};

}  // namespace lockstep
