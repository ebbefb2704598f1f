// What the output parser promises of any output whatever, checked by the property test and by the fuzzer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat.h"
#include "text/output_parser.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace lockstep {

struct Piece {
  std::string bytes;
  bool is_added = false;
};

struct Parsed {
  std::vector<ParserEvent> events;
  ParsedOutput output;
  std::optional<SampledTurn> turn;
};

inline void take_events(Parsed& parsed, std::vector<ParserEvent> events) {
  for (ParserEvent& event : events) {
    append(parsed.output, event);
    parsed.events.push_back(std::move(event));
  }
}

inline Parsed parse_bytes(const std::vector<std::string>& pieces, const ParserOptions& options, GenerationEnd end) {
  OutputParser parser(options);
  Parsed parsed;
  for (const std::string& piece : pieces) take_events(parsed, parser.feed(piece));
  take_events(parsed, parser.finish(end));
  parsed.output.finish_reason = parser.finish_reason();
  parsed.turn = parser.sampled_turn();
  return parsed;
}

inline Parsed parse_pieces(const std::vector<Piece>& pieces, const ParserOptions& options, GenerationEnd end) {
  OutputParser parser(options);
  Parsed parsed;
  for (const Piece& piece : pieces) {
    const bool was_done = parser.is_done();
    std::vector<ParserEvent> events = parser.feed_token(piece.bytes, piece.is_added);
    LOCKSTEP_CHECK(!was_done || events.empty());
    take_events(parsed, std::move(events));
  }
  take_events(parsed, parser.finish(end));
  parsed.output.finish_reason = parser.finish_reason();
  parsed.turn = parser.sampled_turn();
  return parsed;
}

inline bool is_json_object(std::string_view text) {
  try {
    return Json::accept(text) && parse_json(text, "arguments").is_object();
  } catch (const Error&) {
    return false;
  }
}

/// The promise that is broken, or "". `input` is all that was fed; `is_spelled`: by feed().
inline std::string broken_promise(const Parsed& parsed, std::string_view input, const ParserOptions& options,
                                  bool is_spelled) {
  using Kind = ParserEvent::Kind;
  bool has_content = false, is_open = false;
  int calls = 0;
  std::string arguments;
  for (const ParserEvent& event : parsed.events) {
    for (const std::string* text : {&event.text, &event.name, &event.closing, &event.markup})
      if (!is_valid_utf8(*text)) return "an event is not UTF-8";
    const bool is_text = event.kind == Kind::reasoning || event.kind == Kind::content;
    if ((is_text || event.kind == Kind::arguments) && event.text.empty()) return "an empty piece";
    if (event.kind == Kind::reasoning && has_content) return "reasoning after content";
    if (is_text && (is_open || calls > 0)) return "text after a call began";
    has_content = has_content || event.kind == Kind::content;
    if (event.kind == Kind::call_begin) {
      if (is_open || event.call != calls) return "a call out of order";
      is_open = true;
      arguments.clear();
    }
    if (event.kind == Kind::arguments || event.kind == Kind::call_end) {
      if (!is_open || event.call != calls) return "a piece of no open call";
      arguments += event.text;
    }
    if (event.kind != Kind::call_end) continue;
    is_open = false;
    ++calls;
    if (event.is_complete && !is_json_object(arguments)) return "arguments are no JSON object: " + arguments;
    if (!event.closing.empty() && !is_json_object(arguments + event.closing)) return "closed arguments are no JSON";
  }
  if (is_open) return "a call has no end";
  if (calls > 0 && (options.tools.empty() || !options.parses_calls)) return "calls that were not asked for";
  const bool says_calls = parsed.output.finish_reason == FinishReason::tool_calls;
  if (says_calls && parsed.output.tool_calls.empty()) return "finish_reason tool_calls without one";
  if (is_spelled)
    for (const std::string_view marker : {kThinkBegin, kThinkEnd, kUserText, kAssistantText, kBosText, kEosText})
      if (parsed.output.content.find(marker) != std::string::npos) return "a control marker in the content";
  if (parsed.turn) {
    // Spelled markers are as they came, so the turn is the beginning of the input.
    const std::string text = parsed.turn->whole.text();
    if (!to_valid_utf8(input).starts_with(text)) return "the sampled turn is not what was fed";
  }
  return {};
}

/// The opening tag of a block, its marker being whole, is in no content when the limit cuts it off. Returns what is
/// broken, or "". `size`: how much of the tag is there; `newlines`: before it, up to 2.
inline std::string broken_at_the_limit(const std::string& text, const ParserOptions& options, std::size_t newlines,
                                       std::size_t size) {
  constexpr std::string_view kTag = "<｜DSML｜tool_calls>";
  constexpr std::size_t kMarkerEnd = 1 + kDsml.size();
  if (text.find("§§") != std::string::npos) return {};  // a fuzzer finds out that it matters
  std::string tail = "§§" + std::string(newlines % 3, '\n');
  tail += kTag.substr(0, kMarkerEnd + size % (kTag.size() - kMarkerEnd));
  const Parsed parsed = parse_bytes({text + tail}, options, GenerationEnd::length);
  if (parsed.output.content.ends_with(tail)) return "a tag that is cut off is in the content: " + text + tail;
  return broken_promise(parsed, text + tail, options, true);
}

}  // namespace lockstep
