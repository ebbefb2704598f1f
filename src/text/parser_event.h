// What the output parser says, and the answer that its events join to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class GenerationEnd { stop, length };  // the model ended its turn, or the token limit did
enum class FinishReason { stop, length, tool_calls };
std::string_view name_of(FinishReason reason);  // as OpenAI spells it

struct ParserEvent {
  enum class Kind { reasoning, content, call_begin, arguments, call_end };
  Kind kind = Kind::content;
  std::string text = {};  // of reasoning, content and arguments: the next piece
  int call = 0;           // of the three call events: its index, from 0
  std::string name = {};  // of call_begin

  // Of call_end. A call may turn out to be cut off after its long value was partly streamed. The joined answer leaves
  // it out and has `markup` in its content instead; a stream that has already sent its pieces sends `closing`, which
  // makes them a JSON object (empty when the token limit did it: a cut-off call should not look whole).
  bool is_complete = true;
  std::string closing = {}, markup = {};

  // Of content: the feed_token calls, counted from 0, whose text this is. The last one's may go on in the next event.
  // Empty for text that came by feed().
  std::vector<std::int64_t> pieces = {};
  std::vector<std::size_t> piece_bytes = {};  // of the text, of each of them

  bool operator==(const ParserEvent&) const = default;
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // a JSON object
  bool operator==(const ParsedCall&) const = default;
};

struct ParsedOutput {
  std::string reasoning, content;
  std::vector<ParsedCall> tool_calls;
  FinishReason finish_reason = FinishReason::stop;
  bool operator==(const ParsedOutput&) const = default;
};

/// Joins events, one after another, to the whole answer. Does not know the finish reason.
void append(ParsedOutput& output, const ParserEvent& event);

}  // namespace lockstep
