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

ThoughtBudget::ThoughtBudget(std::optional<std::int64_t> tokens) : limit_(tokens) {
  if (tokens && *tokens < 0)
    throw Error(Error::Kind::bad_argument,
                "thinking budget: " + std::to_string(*tokens) + ", expected a number of tokens from 0 on");
}

}  // namespace lockstep
