#include "text/thought.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "text/chat.h"

namespace lockstep {

std::string_view opening_of(Phase phase) { return phase == Phase::reasoning ? kThinkBegin : kThinkEnd; }

ThinkEffect effect_of(ThinkMarker marker, Phase phase, bool is_first) {
  const bool is_reasoning = phase == Phase::reasoning;
  if (marker == ThinkMarker::end) return is_reasoning ? ThinkEffect::turns : ThinkEffect::is_swallowed;
  if (is_reasoning) return is_first ? ThinkEffect::is_swallowed : ThinkEffect::is_text;
  return is_first ? ThinkEffect::turns : ThinkEffect::is_swallowed;
}

Phase phase_after(const Prompt& prompt) {
  // Only trusted text holds markers; a file that quotes one opens nothing.
  Phase phase = Phase::content;
  for (const Span& span : prompt.spans) {
    if (span.trust != Trust::trusted) continue;
    const std::string_view text = span.text;
    for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
      const std::string_view rest = text.substr(at);
      if (rest.starts_with(kThinkBegin)) phase = Phase::reasoning;
      if (rest.starts_with(kThinkEnd) || rest.starts_with(kAssistantText)) phase = Phase::content;
    }
  }
  return phase;
}

SampledTurn begun_turn(const Prompt& prompt) {
  std::optional<std::size_t> begin;
  std::size_t bytes = 0;
  for (const Span& span : prompt.spans) {
    const std::size_t found = span.trust == Trust::trusted ? span.text.rfind(kAssistantText) : std::string::npos;
    if (found != std::string::npos) begin = bytes + found + kAssistantText.size();
    bytes += span.text.size();
  }
  if (!begin) return {};
  const Prompt open = prompt.from(*begin);
  if (open.spans.empty() || open.spans[0].trust == Trust::untrusted) return {};
  const bool has_thought = open.spans[0].text.starts_with(kThinkBegin);
  if (!has_thought && !open.spans[0].text.starts_with(kThinkEnd)) return {};
  SampledTurn turn{has_thought ? Phase::reasoning : Phase::content, {}, 0};
  turn.whole = open.from(opening_of(turn.opening).size());
  bytes = 0;
  for (const Span& span : turn.whole.spans) {
    const std::size_t found = span.trust == Trust::trusted ? span.text.find(kThinkEnd) : std::string::npos;
    if (has_thought && found != std::string::npos && turn.answer_begin == 0)
      turn.answer_begin = bytes + found + kThinkEnd.size();
    bytes += span.text.size();
  }
  return turn;
}

SampledTurn joined(const SampledTurn& begun, const SampledTurn& sampled) {
  if (begun.is_empty()) return sampled;
  SampledTurn out = begun;
  if (sampled.opening == Phase::reasoning || sampled.answer_begin > 0)
    out.answer_begin = begun.whole.text().size() + sampled.answer_begin;
  for (const Span& span : sampled.whole.spans) out.whole.append(span);
  return out;
}

ThoughtBudget::ThoughtBudget(std::optional<std::int64_t> tokens) : limit_(tokens) {
  if (tokens && *tokens < 0)
    throw Error(Error::Kind::bad_argument,
                "thinking budget: " + std::to_string(*tokens) + ", expected a number of tokens from 0 on");
}

}  // namespace lockstep
