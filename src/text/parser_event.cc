#include "text/parser_event.h"

#include "base/error.h"

namespace lockstep {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

void append(ParsedOutput& output, const ParserEvent& event) {
  using Kind = ParserEvent::Kind;
  switch (event.kind) {
    case Kind::reasoning:
      output.reasoning += event.text;
      return;
    case Kind::content:
      output.content += event.text;
      return;
    case Kind::call_begin:
      LOCKSTEP_CHECK(event.call == static_cast<int>(output.tool_calls.size()));
      output.tool_calls.push_back({event.name, {}});
      return;
    case Kind::arguments:
      LOCKSTEP_CHECK(event.call + 1 == static_cast<int>(output.tool_calls.size()));
      output.tool_calls.back().arguments += event.text;
      return;
    case Kind::call_end:
      LOCKSTEP_CHECK(event.call + 1 == static_cast<int>(output.tool_calls.size()));
      if (event.is_complete) return;
      output.tool_calls.pop_back();
      output.content += event.markup;
      return;
  }
}

}  // namespace lockstep
