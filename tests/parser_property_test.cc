// Any stream of tokens and markers, cut anywhere, under any settings: the promises of text/output_parser.h hold, and
// the events join to the answer of the whole text. And what the renderer writes, the parser reads.
#include <gtest/gtest.h>

#include <random>

#include "parser_promises.h"
#include "text/chat.h"
#include "text/replay.h"

namespace lockstep {
namespace {

const std::vector<std::string> kTools = {
    R"({"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array"}}}})",
    R"({"name": "g"})"};

// Whole markers, their parts, and what stands around them.
const std::vector<std::string> kFragments = {
    "<think>",
    "</think>",
    "｜DSML｜",
    "<",
    "</",
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "tool_calls>",
    "<｜DSML｜invoke name=\"f\">",
    "<｜DSML｜invoke name=\"g\">",
    "<｜DSML｜invoke name='h'>",
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter name=\"a\" string=\"true\">",
    "<｜DSML｜parameter name=\"b\" string=\"false\">",
    "<｜DSML｜parameter name=\"b\">",
    "<｜DSML｜parameter name=\"input\" string=\"true\">",
    "</｜DSML｜parameter>",
    "<DSML｜tool_calls>",
    "<DSML｜invoke name=\"f\">",
    "</DSML｜invoke>",
    "</DSML｜tool_calls>",
    "<|DSML|tool_calls>",
    "<|DSML|invoke name=\"f\">",
    "</|DSML|invoke>",
    "<tool_calls>",
    "<invoke name=\"f\">",
    "</invoke>",
    "</tool_calls>",
    "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>",
    "\n",
    "\n\n",
    "\n```\n",
    " ",
    "text",
    "STOP",
    "ST",
    "\"",
    "\\",
    "{\"a\": \"b\"}",
    "[1, 2",
    "3]",
    "<thi",
    "nk>",
    "<｜",
    "｜",
    "<｜DS",
    "ML｜tool",
    "DSML｜",
    "<｜User｜>",
    "<｜end▁of▁sentence｜>",
    "é",
    "🌦",
    "\xf0\x9f",
    "\x8c\xa6",
    "\xff",
    "\x01",
    "a value that is longer than what is held back before a call is announced, to be streamed"};

// A run of these is often a call.
const std::vector<std::string> kCall = {"\n\n",
                                        "<｜DSML｜tool_calls>",
                                        "\n",
                                        "<｜DSML｜invoke name=\"f\">",
                                        "<｜DSML｜parameter name=\"a\" string=\"true\">",
                                        "text",
                                        "</｜DSML｜parameter>",
                                        "</｜DSML｜invoke>",
                                        "</｜DSML｜tool_calls>"};

bool is_added(const std::string& text) {
  return text == kThinkBegin || text == kThinkEnd || text == kDsml || text == kUserText || text == kEosText;
}

class Streams {
 public:
  explicit Streams(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  bool coin() { return below(2) == 0; }

  std::vector<std::string> fragments() {
    std::vector<std::string> out;
    while (out.size() < 3 + below(20)) {
      if (below(3) > 0) {
        out.push_back(kFragments[below(kFragments.size())]);
        continue;
      }
      for (const std::string& part : kCall)
        if (below(12) > 0) out.push_back(below(10) == 0 ? kFragments[below(kFragments.size())] : part);
    }
    return out;
  }

  ParserOptions options() {
    ParserOptions options;
    options.opening = coin() ? Phase::reasoning : Phase::content;
    if (below(5) > 0) options.tools = kTools;
    options.parses_calls = below(8) > 0;
    options.parallel_tool_calls = below(4) > 0;
    if (below(4) == 0) options.stops = {"STOP", "\n\n"};
    return options;
  }

  std::vector<std::string> cut(std::string_view text) {
    std::vector<std::string> out;
    const std::size_t longest = 1 + below(30);
    while (!text.empty()) {
      const std::size_t size = std::min(text.size(), 1 + below(longest));
      out.emplace_back(text.substr(0, size));
      text.remove_prefix(size);
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

TEST(ParserProperty, AnyTextCutAnywhereJoinsToTheWholeAndKeepsThePromises) {
  Streams streams(1);
  int calls = 0, reasonings = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (const std::string& fragment : streams.fragments()) text += fragment;
    const ParserOptions options = streams.options();
    const GenerationEnd end = streams.coin() ? GenerationEnd::stop : GenerationEnd::length;
    const Parsed whole = parse_bytes({text}, options, end);
    ASSERT_EQ(whole.output, parse_output(text, options, end)) << quote_python(to_valid_utf8(text));
    ASSERT_EQ(broken_promise(whole, text, options, true), "") << quote_python(to_valid_utf8(text));
    const Parsed pieces = parse_bytes(streams.cut(text), options, end);
    ASSERT_EQ(pieces.output, whole.output) << quote_python(to_valid_utf8(text));
    ASSERT_EQ(broken_promise(pieces, text, options, true), "") << quote_python(to_valid_utf8(text));
    calls += static_cast<int>(whole.output.tool_calls.size());
    reasonings += whole.output.reasoning.empty() ? 0 : 1;
  }
  EXPECT_GT(calls, 500) << "the streams are no test of calls";
  EXPECT_GT(reasonings, 500) << "the streams are no test of thoughts";
}

TEST(ParserProperty, ATagThatTheLimitCutsOffIsInNoContent) {
  Streams streams(4);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (const std::string& fragment : streams.fragments()) text += fragment;
    ParserOptions options = streams.options();
    options.tools = kTools;
    options.parses_calls = true;
    ASSERT_EQ(broken_at_the_limit(text, options, streams.below(3), streams.below(100)), "");
  }
}

TEST(ParserProperty, WhereCallsAreNotParsedMarkupIsTextAsWithoutTools) {
  Streams streams(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (const std::string& fragment : streams.fragments()) text += fragment;
    ParserOptions none = streams.options(), bare = none;
    none.parses_calls = false;
    bare.tools.clear();
    const GenerationEnd end = streams.coin() ? GenerationEnd::stop : GenerationEnd::length;
    const Parsed parsed = parse_bytes(streams.cut(text), none, end);
    ASSERT_EQ(parsed.output, parse_output(text, bare, end)) << quote_python(to_valid_utf8(text));
    ASSERT_EQ(broken_promise(parsed, text, none, true), "") << quote_python(to_valid_utf8(text));
    const auto count = [](std::string_view in) {
      std::size_t found = 0;
      for (std::size_t at = in.find(kDsml); at != std::string::npos; at = in.find(kDsml, at + 1)) ++found;
      return found;
    };
    const bool is_whole =
        none.stops.empty() && text.find(kUserText) == std::string::npos && text.find(kEosText) == std::string::npos;
    if (!is_whole) continue;
    ASSERT_GE(count(parsed.output.reasoning) + count(parsed.output.content), count(text)) << text;
  }
}

TEST(ParserProperty, AnyTokensGiveTheSameHoweverTheOrdinaryOnesAreCut) {
  Streams streams(2);
  int calls = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    std::vector<Piece> pieces, cut;
    for (const std::string& fragment : streams.fragments()) {
      text += fragment;
      // A fragment with a marker inside is three tokens; now and then it is spelled by ordinary ones.
      const bool is_spelled = streams.below(10) == 0;
      std::string_view rest = fragment;
      while (!rest.empty()) {
        const std::size_t dsml = is_spelled ? std::string::npos : rest.find(kDsml);
        const bool starts = dsml == 0 || (!is_spelled && is_added(std::string(rest)));
        const std::size_t size = starts ? (dsml == 0 ? kDsml.size() : rest.size()) : std::min(dsml, rest.size());
        pieces.push_back({std::string(rest.substr(0, size)), starts});
        rest.remove_prefix(size);
      }
    }
    for (const Piece& piece : pieces) {
      if (piece.is_added) {
        cut.push_back(piece);
      } else {
        for (const std::string& part : streams.cut(piece.bytes)) cut.push_back({part, false});
      }
    }
    const ParserOptions options = streams.options();
    const GenerationEnd end = streams.coin() ? GenerationEnd::stop : GenerationEnd::length;
    const Parsed once = parse_pieces(pieces, options, end), again = parse_pieces(cut, options, end);
    ASSERT_EQ(once.output, again.output) << quote_python(to_valid_utf8(text));
    ASSERT_EQ(broken_promise(once, text, options, false), "") << quote_python(to_valid_utf8(text));
    ASSERT_EQ(broken_promise(again, text, options, false), "") << quote_python(to_valid_utf8(text));
    calls += static_cast<int>(once.output.tool_calls.size());
  }
  EXPECT_GT(calls, 500) << "the streams are no test of calls";
}

/// A random JSON value, with strings that look like markup.
Json random_value(Streams& streams, int depth) {
  switch (streams.below(depth > 2 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return streams.coin();
    case 2:
      return static_cast<std::int64_t>(streams.below(1000000)) - 500000;
    case 3:
    case 4: {
      std::string text;
      for (std::size_t n = streams.below(6); n > 0; --n) text += kFragments[streams.below(kFragments.size())];
      // A marker in a value is spelled by ordinary tokens; here there is only text, so none may be whole.
      text = to_valid_utf8(text);
      for (const std::string_view marker : {std::string_view("｜"), std::string_view("think>")})
        for (std::size_t at = text.find(marker); at != std::string::npos; at = text.find(marker)) text.erase(at, 1);
      return to_valid_utf8(text);
    }
    case 5: {
      Json array = Json::array();
      for (std::size_t n = streams.below(4); n > 0; --n) array.push_back(random_value(streams, depth + 1));
      return array;
    }
    default: {
      Json object = Json::object();
      for (std::size_t n = streams.below(4); n > 0; --n)
        object["k" + std::to_string(streams.below(9))] = random_value(streams, depth + 1);
      return object;
    }
  }
}

TEST(ParserProperty, WhatTheRendererWritesTheParserReadsAndReplayRepeats) {
  Streams streams(3);
  for (int i = 0; i < 1000; ++i) {
    ChatRequest request;
    request.thinking = streams.coin();
    request.tools = kTools;
    Message user, assistant;
    user.content = "q";
    assistant.role = Role::assistant;
    if (request.thinking) assistant.reasoning = "thought\n";
    assistant.content = streams.coin() ? "" : "Let me look.\n";
    for (std::size_t n = 1 + streams.below(3); n > 0; --n) {
      Json arguments = Json::object();
      for (std::size_t k = streams.below(4); k > 0; --k)
        arguments["a\"b<" + std::to_string(streams.below(9))] = random_value(streams, 0);
      assistant.tool_calls.push_back({"id" + std::to_string(n), streams.coin() ? "f" : "g", dump_python(arguments)});
    }
    request.messages = {user};
    const Prompt prompt = render_chat(request);
    const std::string before = prompt.text();
    request.messages.push_back(assistant);
    const std::string all = render_chat(request).text();
    const std::string sampled = all.substr(before.size(), all.size() - before.size() - kEosText.size());

    const ParserOptions options{.opening = phase_after(prompt), .tools = kTools};
    const Parsed parsed = parse_bytes(streams.cut(sampled), options, GenerationEnd::stop);
    ASSERT_EQ(parsed.output.reasoning, assistant.reasoning);
    ASSERT_EQ(parsed.output.content, assistant.content) << sampled;
    ASSERT_EQ(parsed.output.tool_calls.size(), assistant.tool_calls.size()) << sampled;
    std::vector<std::string> ids;
    for (std::size_t k = 0; k < assistant.tool_calls.size(); ++k) {
      ids.push_back(assistant.tool_calls[k].id);
      ASSERT_EQ(parsed.output.tool_calls[k].name, assistant.tool_calls[k].name);
      ASSERT_EQ(parse_json(parsed.output.tool_calls[k].arguments, "got"),
                parse_json(assistant.tool_calls[k].arguments, "expected"))
          << sampled;
    }
    ASSERT_TRUE(parsed.turn.has_value());
    ReplayMap map(1 << 20);
    map.remember(parsed.output, *parsed.turn, ids);
    ASSERT_TRUE(map.restore(request.messages[1]));
    ASSERT_EQ(render_chat(request).text(), all) << "the canonical form, sampled, is repeated as it was";
  }
}

}  // namespace
}  // namespace lockstep
