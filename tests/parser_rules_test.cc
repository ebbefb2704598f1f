// Rules of the output parser that parse.jsonl does not show. Expected values by hand from docs/chat.md.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "text/chat.h"
#include "text/output_parser.h"

namespace lockstep {
namespace {

#define D "｜DSML｜"
#define BLOCK "<" D "tool_calls>\n"
#define BLOCK_END "</" D "tool_calls>"
#define INVOKE(name) "<" D "invoke name=\"" name "\">\n"
#define INVOKE_END "</" D "invoke>\n"
#define STRING(name, value) "<" D "parameter name=\"" name "\" string=\"true\">" value "</" D "parameter>\n"
#define OTHER(name, value) "<" D "parameter name=\"" name "\" string=\"false\">" value "</" D "parameter>\n"
#define PLAIN(name, value) "<" D "parameter name=\"" name "\">" value "</" D "parameter>"
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"  // kStreamedBytes
#define CALL_F INVOKE("f") STRING("s", "x") INVOKE_END

const std::vector<std::string> kTools = {
    R"({"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"},
        "n": {"type": ["integer", "null"]}, "u": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/b"}]},
        "e": {"enum": [1, 2]}, "any": {}}, "$defs": {"b": {"type": "boolean"}}}})",
    R"({"name": "g"})",
    R"({"name": "r", "parameters": {"type": "object", "properties": {
        "escaped": {"$ref": "#/$defs/a~1b%20c"}, "anchored": {"$ref": "#count"}, "named": {"$ref": "own.json#/x"},
        "itself": {"$ref": "#/properties/itself"}, "nowhere": {"$ref": "#/$defs/missing"}},
        "$defs": {"a/b c": {"type": "integer"}, "n": {"$anchor": "count", "type": "integer"},
                  "o": {"$id": "own.json", "x": {"type": "integer"}}}}})"};

ParserOptions options(Phase opening = Phase::content) { return {.opening = opening, .tools = kTools}; }

std::string shown(const ParsedOutput& output) {
  std::string text = "[" + output.reasoning + "][" + output.content + "]";
  for (const ParsedCall& call : output.tool_calls) text += " " + call.name + call.arguments;
  return text + " " + std::string(name_of(output.finish_reason));
}

struct Case {
  const char* name;
  const char* text;
  const char* expected;
  Phase opening = Phase::content;
  GenerationEnd end = GenerationEnd::stop;
};
constexpr Phase kThinking = Phase::reasoning;
constexpr GenerationEnd kLength = GenerationEnd::length;

const Case kCases[] = {
    {"a role token ends the turn", "a<｜User｜>b", "[][a] stop"},
    {"the end token ends the turn, whatever the limit says", "a<｜end▁of▁sentence｜>b", "[][a] stop", Phase::content,
     kLength},
    {"a role token ends a thought", "a<｜Assistant｜>b", "[a][] stop", kThinking},
    {"<think> later in the content is swallowed", "a<think>b", "[][ab] stop"},
    {"<think> later in reasoning is text", "a<think>b</think>c", "[a<think>b][c] stop", kThinking},
    {"a second thought before any content is reasoning too", "a</think><think>b</think>c", "[ab][c] stop", kThinking},
    {"taking a marker out joins no other", "<th</think>ink>a", "[][a] stop"},
    {"taking a marker out joins no other in a call that breaks off",
     BLOCK INVOKE("f") "<" D "parameter name=\"s\" string=\"true\">" LONG "<th<think>ink>",
     "[][" BLOCK INVOKE("f") "<" D "parameter name=\"s\" string=\"true\">" LONG "] stop"},
    {"an empty block is no content, and what follows is", "a\n\n" BLOCK BLOCK_END "b", "[][ab] stop"},
    {"text between two invokes is left out", BLOCK CALL_F "and\n" INVOKE("g") INVOKE_END BLOCK_END,
     R"([][] f{"s": "x"} g{} tool_calls)"},
    {"text before the first invoke is content", "a\n\n" BLOCK "I call.\n" CALL_F BLOCK_END,
     "[][a\n\nI call.] f{\"s\": \"x\"} tool_calls"},
    {"an opening tag that is only mentioned is content, the block after it is one",
     "The tag <" D "tool_calls> opens.\n\n" BLOCK CALL_F BLOCK_END,
     "[][The tag <" D "tool_calls> opens.] f{\"s\": \"x\"} tool_calls"},
    {"a variant's opening tag that is only mentioned is content, the native block after it is one",
     "The tag\n<tool_calls>\nopens.\n\n" BLOCK CALL_F BLOCK_END,
     "[][The tag\n<tool_calls>\nopens.] f{\"s\": \"x\"} tool_calls"},
    {"a variant's opening tag right before a native block is content", "<tool_calls>\n\n" BLOCK CALL_F BLOCK_END,
     "[][<tool_calls>] f{\"s\": \"x\"} tool_calls"},
    {"a native block after a call of a variant is left out",
     "<tool_calls><invoke name=\"g\"></invoke>" BLOCK CALL_F BLOCK_END, "[][] g{} tool_calls"},
    {"a doubled opening tag counts once", BLOCK BLOCK CALL_F BLOCK_END, R"([][] f{"s": "x"} tool_calls)"},
    {"an invoke end that is missing before the next invoke", BLOCK INVOKE("f") STRING("s", "x") INVOKE("g") INVOKE_END,
     R"([][] f{"s": "x"} g{} tool_calls)"},
    {"text inside an invoke makes the block content", BLOCK INVOKE("f") "text" INVOKE_END BLOCK_END,
     "[][" BLOCK INVOKE("f") "text" INVOKE_END BLOCK_END "] stop"},
    {"no invoke inside such a block counts by itself", BLOCK INVOKE("f") "text" INVOKE_END CALL_F BLOCK_END "\nb",
     "[][" BLOCK INVOKE("f") "text" INVOKE_END CALL_F BLOCK_END "\nb] stop"},
    {"a complete call stands, a broken one after it is left out", BLOCK CALL_F INVOKE("f") "text" INVOKE_END,
     R"([][] f{"s": "x"} stop)"},
    {"a complete call stands when a parameter after it is open",
     BLOCK CALL_F INVOKE("f") "<" D "parameter name=\"s\">y", R"([][] f{"s": "x"} stop)"},
    {"the limit inside a tag leaves the call out", BLOCK CALL_F "<" D "inv", R"([][] f{"s": "x"} length)",
     Phase::content, kLength},
    {"the limit in a call without its end tag leaves it out", "a\n\n" BLOCK INVOKE("f") STRING("s", "x"),
     "[][a] length", Phase::content, kLength},
    {"the limit in a block of mere text: the text is content", "a\n\n" BLOCK "text\n<" D "inv", "[][a\n\ntext] length",
     Phase::content, kLength},
    {"the limit in a doubled block of mere text", BLOCK BLOCK "text", "[][text] length", Phase::content, kLength},
    {"the end in a block of mere text makes it content", "a\n\n" BLOCK "text", "[][a\n\n" BLOCK "text] stop"},
    {"a doubled opening tag is no text before the first invoke", BLOCK BLOCK "I call.\n" CALL_F BLOCK_END,
     "[][I call.] f{\"s\": \"x\"} tool_calls"},
    {"the limit in an opening tag leaves it out", "a\n\n<" D "tool_calls", "[][a] length", Phase::content, kLength},
    {"the limit after the marker", "a\n\n\n<" D, "[][a\n] length", Phase::content, kLength},
    {"the limit in an opening tag and nothing before it", "<" D "tool_c", "[][] length", Phase::content, kLength},
    {"the limit in an opening tag after a thought", "a</think>\n\n<" D "tool_calls", "[a][] length", kThinking,
     kLength},
    {"the limit in an opening tag in a thought", "a\n\n<" D "tool_calls", "[a\n\n<" D "tool_calls][] length", kThinking,
     kLength},
    {"the limit in an invoke without a block", "a\n<" D "inv", "[][a] length", Phase::content, kLength},
    {"the limit in the name of an invoke without a block", "a\n<" D "invoke name=\"f", "[][a] length", Phase::content,
     kLength},
    {"the limit in an opening tag without its first bar", "a\n\n<DSML｜tool_c", "[][a] length", Phase::content,
     kLength},
    {"the limit in an opening tag with ASCII bars", "a\n\n<|DSML|tool_c", "[][a] length", Phase::content, kLength},
    {"the limit in a variant in a code fence", "```\n<|DSML|tool_c", "[][```\n<|DSML|tool_c] length", Phase::content,
     kLength},
    {"the limit in what may be a plain tag", "a\n\n<tool_c", "[][a\n\n<tool_c] length", Phase::content, kLength},
    {"the limit before the marker is whole", "a\n\n<｜DSML", "[][a\n\n<｜DSML] length", Phase::content, kLength},
    {"the limit in a tag that opens nothing", "a\n\n<" D "tools", "[][a\n\n<" D "tools] length", Phase::content,
     kLength},
    {"the limit in the end tag of function_calls", "<" D "function_calls>a</" D "func",
     "[][<" D "function_calls>a</" D "func] length", Phase::content, kLength},
    {"a block in what may have been a tag that never ended is one", "a\n<invoke name=\"f>\n\n" BLOCK CALL_F BLOCK_END,
     "[][a\n<invoke name=\"f>] f{\"s\": \"x\"} tool_calls"},
    {"the limit in an opening tag in what may have been a tag", "a\n<invoke name=\"f>\n\n<" D "tool",
     "[][a\n<invoke name=\"f>] length", Phase::content, kLength},
    {"the end in an opening tag makes it content", "a\n\n<" D "tool_calls", "[][a\n\n<" D "tool_calls] stop"},
    {"a cut-off end tag is an end", BLOCK INVOKE("f") STRING("s", "x") "</" D "inv", R"([][] f{"s": "x"} tool_calls)"},
    {"several invokes without a block", INVOKE("f") INVOKE_END INVOKE("g") INVOKE_END "text",
     R"([][] f{} g{} tool_calls)"},
    {"an invoke without a block not at a line's start is text", "a " INVOKE("f") INVOKE_END,
     "[][a " INVOKE("f") INVOKE_END "] stop"},
    {"a variant in a code fence is text", "```\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>\n```\n",
     "[][```\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>\n```\n] stop"},
    {"a variant after a code fence is a call",
     "```\nx\n```\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>", "[][```\nx\n```] f{} tool_calls"},
    {"a shorter fence does not close a longer one",
     "````\n```\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>",
     "[][````\n```\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>] stop"},
    {"plain tags inside a line are text", "a <tool_calls>\n<invoke name=\"g\">\n</invoke>\n</tool_calls>",
     "[][a <tool_calls>] g{} tool_calls"},
    {"tags of another variant do not mix", BLOCK "<invoke name=\"f\">\n</invoke>\n" BLOCK_END,
     "[][" BLOCK "<invoke name=\"f\">\n</invoke>\n" BLOCK_END "] stop"},
    {"inside function_calls a native block still counts",
     "<" D "function_calls>\n" INVOKE("f") INVOKE_END "\n" BLOCK CALL_F BLOCK_END,
     "[][<" D "function_calls>\n" INVOKE("f") "</" D "invoke>] f{\"s\": \"x\"} tool_calls"},
    {"after function_calls an invoke counts again",
     "<" D "function_calls>\n" INVOKE("f") INVOKE_END "</" D "function_calls>\n" INVOKE("g") INVOKE_END,
     "[][<" D "function_calls>\n" INVOKE("f") INVOKE_END "</" D "function_calls>] g{} tool_calls"},
    {"attributes in any order, without quotes, and others",
     BLOCK "<" D "invoke id=1 name=f>"
           "<" D "parameter string='false'  name = \"n\" >1</" D "parameter></" D "invoke>" BLOCK_END,
     R"([][] f{"n": 1} tool_calls)"},
    {"a quote inside a name", BLOCK INVOKE("f") STRING("a\"b", "x") INVOKE_END BLOCK_END,
     R"([][] f{"a\"b": "x"} tool_calls)"},
    {"an invoke without a name is no call", BLOCK "<" D "invoke>\n" INVOKE_END BLOCK_END,
     "[][" BLOCK "<" D "invoke>\n" INVOKE_END BLOCK_END "] stop"},
    {"what the schema says counts where the attribute is missing",
     BLOCK INVOKE("f") PLAIN("n", "1") PLAIN("u", "true") PLAIN("e", "2") PLAIN("any", "3") PLAIN("unknown", "4")
         INVOKE_END BLOCK_END,
     R"([][] f{"n": 1, "u": true, "e": 2, "any": "3", "unknown": "4"} tool_calls)"},
    {"a reference is followed as in a schema, wherever it leads to",
     BLOCK INVOKE("r") PLAIN("escaped", "1") PLAIN("anchored", "2") PLAIN("named", "3") PLAIN("itself", "4")
         PLAIN("nowhere", "5") INVOKE_END BLOCK_END,
     R"([][] r{"escaped": 1, "anchored": 2, "named": 3, "itself": "4", "nowhere": "5"} tool_calls)"},
    {"a value that is no JSON keeps its whitespace as a string", BLOCK INVOKE("f") OTHER("n", " one ") INVOKE_END,
     R"([][] f{"n": " one "} tool_calls)"},
    {"a JSON value keeps its text",
     BLOCK INVOKE("f") OTHER("n", " 1.50e1 ") OTHER("e", "[ 12345678901234567890123 ]") INVOKE_END,
     R"([][] f{"n": 1.50e1, "e": [ 12345678901234567890123 ]} tool_calls)"},
    {"a lone surrogate in a JSON value becomes U+FFFD", BLOCK INVOKE("f") OTHER("n", "[\"\\ud800\"]") INVOKE_END,
     "[][] f{\"n\": [\"\xef\xbf\xbd\"]} tool_calls"},
    {"a later value of a name wins, in the first one's place",
     BLOCK INVOKE("f") STRING("a", "1") STRING("b", "2") STRING("a", "3") INVOKE_END BLOCK_END,
     R"([][] f{"a": "3", "b": "2"} tool_calls)"},
    {"arguments in a string are unwrapped", BLOCK INVOKE("f") STRING("input", " {\"n\": 1} ") INVOKE_END BLOCK_END,
     R"([][] f{"n": 1} tool_calls)"},
    {"an object with other keys is not unwrapped", BLOCK INVOKE("f") OTHER("input", "{\"z\": 1}") INVOKE_END BLOCK_END,
     R"([][] f{"input": {"z": 1}} tool_calls)"},
    {"two parameters are not unwrapped", BLOCK INVOKE("f") OTHER("input", "{\"n\": 1}") OTHER("n", "2") INVOKE_END,
     R"([][] f{"input": {"n": 1}, "n": 2} tool_calls)"},
    {"control tokens in a value are its text", BLOCK INVOKE("f") STRING("s", "<think></think>") INVOKE_END BLOCK_END,
     R"([][] f{"s": "<think></think>"} tool_calls)"},
    {"a block in a thought that is closed is reasoning", "a\n\n" BLOCK CALL_F BLOCK_END "</think>b",
     "[a\n\n" BLOCK CALL_F BLOCK_END "][b] stop", kThinking},
    {"a block in a thought may have whitespace after it", "a\n\n" BLOCK CALL_F BLOCK_END "\n \n",
     R"([a][] f{"s": "x"} tool_calls)", kThinking},
    {"a block of an unknown tool in a thought is reasoning", "a\n\n" BLOCK INVOKE("h") INVOKE_END BLOCK_END,
     "[a\n\n" BLOCK INVOKE("h") INVOKE_END BLOCK_END "][] stop", kThinking},
    {"a block in a thought without its end tag is reasoning", "a\n\n" BLOCK CALL_F, "[a\n\n" BLOCK CALL_F "][] stop",
     kThinking},
    {"a block in a thought at the limit is reasoning", "a\n\n" BLOCK CALL_F BLOCK_END,
     "[a\n\n" BLOCK CALL_F BLOCK_END "][] length", kThinking, kLength},
    {"the last of two blocks in a thought is the call", "a " BLOCK CALL_F BLOCK_END " b\n\n" BLOCK CALL_F BLOCK_END,
     "[a " BLOCK CALL_F BLOCK_END " b][] f{\"s\": \"x\"} tool_calls", kThinking},
    {"half a character at the end is U+FFFD", "a\xf0\x9f\x8d", "[][a\xef\xbf\xbd] stop"},
    {"newlines at the end are content", "a\n\n\n", "[][a\n\n\n] stop"},
};

TEST(ParserRules, EveryCaseGivesWhatItsRuleSays) {
  for (const Case& c : kCases) EXPECT_EQ(shown(parse_output(c.text, options(c.opening), c.end)), c.expected) << c.name;
}

TEST(ParserRules, EveryCaseGivesTheSameByteByByte) {
  for (const Case& c : kCases) {
    OutputParser parser(options(c.opening));
    ParsedOutput output;
    for (const char byte : std::string_view(c.text))
      for (const ParserEvent& event : parser.feed({&byte, 1})) append(output, event);
    for (const ParserEvent& event : parser.finish(c.end)) append(output, event);
    output.finish_reason = parser.finish_reason();
    EXPECT_EQ(shown(output), c.expected) << c.name;
  }
}

std::string fed(OutputParser& parser, std::string_view text, bool is_added = false) {
  std::string out;
  for (const ParserEvent& event : parser.feed_token(text, is_added)) {
    switch (event.kind) {
      case ParserEvent::Kind::reasoning:
        out += "r:" + event.text;
        break;
      case ParserEvent::Kind::content:
        out += "c:" + event.text;
        break;
      case ParserEvent::Kind::call_begin:
        out += "(" + event.name + " ";
        break;
      case ParserEvent::Kind::arguments:
        out += event.text;
        break;
      case ParserEvent::Kind::call_end:
        out += event.is_complete ? ")" : "!" + event.closing + "!" + event.markup;
        break;
    }
  }
  return out;
}

TEST(ParserTokens, SpelledMarkersAreText) {
  OutputParser parser(options(Phase::reasoning));
  EXPECT_EQ(fed(parser, "a</think>"), "r:a</think>");
  EXPECT_EQ(fed(parser, "</think>", true), "");
  EXPECT_EQ(fed(parser, "</think><｜User｜>"), "c:</think><｜User｜>");
  EXPECT_EQ(fed(parser, "\n\n" BLOCK CALL_F BLOCK_END "."), "c:\n\n" BLOCK CALL_F BLOCK_END ".");
  EXPECT_EQ(fed(parser, "<｜fim▁hole｜>", true), "") << "a control token that means nothing here is left out";
  EXPECT_EQ(fed(parser, "<｜User｜>", true), "");
  EXPECT_TRUE(parser.is_done());
  EXPECT_EQ(fed(parser, "b"), "");
  EXPECT_EQ(parser.finish_reason(), FinishReason::stop);
}

TEST(ParserTokens, TheLimitInAnOpeningTagLeavesItOutAndASpelledOneIsText) {
  for (const bool is_added : {true, false}) {
    OutputParser parser(options());
    std::string out = fed(parser, "a\n\n<");
    out += fed(parser, D, is_added);
    out += fed(parser, "tool_ca");
    for (const ParserEvent& event : parser.finish(kLength)) out += event.text;
    EXPECT_EQ(out, is_added ? "c:a" : "c:ac:\n\n<" D "c:tool_ca");
    EXPECT_EQ(parser.finish_reason(), FinishReason::length);
    EXPECT_NE(parser.sampled_turn().has_value(), is_added) << "the client saw less than was sampled";
  }
}

TEST(ParserTokens, NothingIsHeldBackThatCannotBecomeAMarker) {
  OutputParser plain({.opening = Phase::content});
  EXPECT_EQ(fed(plain, "a\n\n<"), "c:a\n\n<") << "without tools";
  OutputParser parser(options());
  EXPECT_EQ(fed(parser, "a\n\n\n"), "c:a\n");
  EXPECT_EQ(fed(parser, "b"), "c:\n\nb");
  EXPECT_EQ(fed(parser, " <"), "c: ");
  EXPECT_EQ(fed(parser, "= 3"), "c:<= 3");
  EXPECT_EQ(fed(parser, "caf\xc3"), "c:caf");
  EXPECT_EQ(fed(parser, "\xa9"), "c:é");
}

TEST(ParserTokens, ALongStringStreamsAndAShortCallComesWhole) {
  OutputParser parser(options());
  for (const char* piece : {"\n\n", "<"}) EXPECT_EQ(fed(parser, piece), "");
  EXPECT_EQ(fed(parser, D, true), "");
  EXPECT_EQ(fed(parser, "tool_calls>\n<"), "");
  const auto tag = [&](std::string_view text) {
    const std::string out = fed(parser, D, true);
    return out + fed(parser, text);
  };
  EXPECT_EQ(tag("invoke name=\"f\">\n<"), "");
  EXPECT_TRUE(parser.is_in_structure());
  EXPECT_EQ(tag("parameter name=\"n\" string=\"false\">1"), "");
  EXPECT_FALSE(parser.is_in_structure());
  EXPECT_EQ(fed(parser, "</"), "");
  EXPECT_EQ(tag("parameter>\n<"), "");
  EXPECT_EQ(tag("parameter name=\"s\" string=\"true\">"), "");
  const std::string part(kStreamedBytes - 1, 'x');
  EXPECT_EQ(fed(parser, part), "");
  EXPECT_EQ(fed(parser, "\""), "(f {\"n\": 1, \"s\": \"" + part + "\\\"");
  EXPECT_EQ(fed(parser, "y</parameter"), "y</parameter") << "spelled, so it is text";
  EXPECT_EQ(fed(parser, "\n</"), "\\n");
  EXPECT_EQ(tag("parameter>\n</"), "\"");
  EXPECT_EQ(tag("invoke>\n<"), "})");
  EXPECT_EQ(tag("invoke name=\"g\">\n\n</"), "");
  EXPECT_EQ(tag("invoke>\n</"), "(g {})");
  EXPECT_FALSE(parser.is_done());
  EXPECT_EQ(tag("tool_calls>"), "");
  EXPECT_TRUE(parser.is_done());
  EXPECT_EQ(parser.finish_reason(), FinishReason::tool_calls);
}

struct Broken {
  const char* name;
  GenerationEnd end;
  const char* closing;
  const char* content;  // of the joined answer
  const char* reason;
};
const std::string kLong(kStreamedBytes, 'x');
const std::string kOpen = "a\n\n" BLOCK INVOKE("f") "<" D "parameter name=\"s\" string=\"true\">" + kLong;

TEST(ParserStream, ACallThatBreaksOffIsClosedIfTheModelStoppedAndNotAtTheLimit) {
  const Broken cases[] = {{"stop", GenerationEnd::stop, "\"}", "text", "stop"},
                          {"limit", GenerationEnd::length, "", "", "length"}};
  for (const Broken& c : cases) {
    OutputParser parser(options());
    std::vector<ParserEvent> events = parser.feed(kOpen);
    for (const ParserEvent& event : parser.finish(c.end)) events.push_back(event);
    ASSERT_EQ(events.size(), 4u) << c.name;
    EXPECT_EQ(events[2].text, "{\"s\": \"" + kLong) << c.name;
    EXPECT_FALSE(events[3].is_complete) << c.name;
    EXPECT_EQ(events[3].closing, c.closing) << c.name;
    ParsedOutput output;
    for (const ParserEvent& event : events) append(output, event);
    EXPECT_TRUE(output.tool_calls.empty()) << c.name;
    EXPECT_EQ(output.content, *c.content == 0 ? "a" : kOpen) << c.name;
    EXPECT_EQ(name_of(parser.finish_reason()), c.reason) << c.name;
    EXPECT_FALSE(parser.sampled_turn()) << c.name;
  }
}

TEST(ParserStream, WithoutParallelCallsTheFirstOneEndsTheTurn) {
  ParserOptions one = options();
  one.parallel_tool_calls = false;
  EXPECT_EQ(shown(parse_output(BLOCK CALL_F CALL_F BLOCK_END, one, GenerationEnd::length)),
            R"([][] f{"s": "x"} tool_calls)");
  one.opening = Phase::reasoning;
  for (const char* rest : {CALL_F BLOCK_END, "\nand on", "</think>b", ""}) {  // which is not sampled
    const std::string call = "a\n\n" BLOCK CALL_F;
    EXPECT_EQ(shown(parse_output(call + rest, one, GenerationEnd::stop)), R"([a][] f{"s": "x"} tool_calls)") << rest;
    OutputParser parser(one);
    parser.feed(call);
    EXPECT_TRUE(parser.is_done()) << "after the first complete call";
    ASSERT_TRUE(parser.sampled_turn());
    EXPECT_EQ(parser.sampled_turn()->whole.text(), call.substr(0, call.size() - 1)) << "all but the newline is kept";
  }
}

TEST(ParserStream, AStopStringCountsInContentOnly) {
  ParserOptions stops = options(Phase::reasoning);
  stops.stops = {"xy", "\n\n"};
  OutputParser parser(stops);
  EXPECT_EQ(fed(parser, "xy"), "r:xy");
  EXPECT_EQ(fed(parser, "</think>", true), "");
  EXPECT_EQ(fed(parser, "ax"), "c:a");
  EXPECT_EQ(fed(parser, "yz"), "");
  EXPECT_TRUE(parser.is_done());
  EXPECT_EQ(parser.matched_stop(), "xy");
  EXPECT_EQ(shown(parse_output("a</think>b\n\n" BLOCK INVOKE("f") STRING("s", "xy") INVOKE_END BLOCK_END, stops,
                               GenerationEnd::stop)),
            R"([a][b] f{"s": "xy"} tool_calls)")
      << "neither in a call nor in the newlines that belong to it";
}

TEST(ParserStream, ContentNamesThePiecesThatItCameFrom) {
  OutputParser parser(options());
  struct Piece {
    const char* text;
    bool is_added;
    const char* shown;
    std::vector<std::int64_t> pieces;
  };
  const Piece pieces[] = {{"a", false, "a", {0}},
                          {"b\n", false, "b", {1}},
                          {"\n<", false, "", {}},
                          {"x", false, "\n\n<x", {1, 2, 3}},
                          {"</think>", true, "", {}},
                          {"\xc3", false, "", {}},
                          {"\xa9", false, "é", {5, 6}},
                          {"\xc3", false, "", {}},
                          {D, true, "\xef\xbf\xbd" D, {7, 8}}};
  for (const Piece& piece : pieces) {
    const std::vector<ParserEvent> events = parser.feed_token(piece.text, piece.is_added);
    ASSERT_EQ(events.size(), *piece.shown == 0 ? 0u : 1u) << piece.text;
    if (events.empty()) continue;
    EXPECT_EQ(events[0].text, piece.shown);
    EXPECT_EQ(events[0].pieces, piece.pieces) << piece.text;
    ASSERT_EQ(events[0].piece_bytes.size(), piece.pieces.size());
    const auto& bytes = events[0].piece_bytes;
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}), events[0].text.size());
  }
}

TEST(ParserStream, AThoughtOfManyUnfinishedCallsIsReasoning) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += BLOCK INVOKE("f") "<" D "parameter name=\"s\" string=\"true\">";
  EXPECT_EQ(shown(parse_output(text, options(Phase::reasoning), GenerationEnd::stop)), "[" + text + "][] stop");
}

TEST(ThoughtBudget, ClosesWhenSpentButNotInsideACallOrACharacter) {
  EXPECT_FALSE(ThoughtBudget(std::nullopt).is_spent());
  EXPECT_TRUE(ThoughtBudget(0).is_spent());
  EXPECT_THROW(ThoughtBudget(-1), Error);
  ThoughtBudget budget(2);
  OutputParser parser(options(Phase::reasoning));
  for (const char* token : {"a", "\xc3"}) {
    EXPECT_FALSE(budget.is_spent());
    if (parser.phase() == Phase::reasoning) budget.count();
    parser.feed_token(token, false);
  }
  EXPECT_TRUE(budget.is_spent());
  EXPECT_FALSE(parser.can_close_thought());
  parser.feed_token("\xa9\n<", false);
  EXPECT_TRUE(parser.can_close_thought());
  parser.feed_token(D, true);
  parser.feed_token("tool_calls>", false);
  EXPECT_FALSE(parser.can_close_thought());
  parser.feed_token("no", false);
  EXPECT_TRUE(parser.can_close_thought());
  EXPECT_EQ(fed(parser, kThinkEnd, true), "");
  EXPECT_EQ(parser.phase(), Phase::content);
  EXPECT_FALSE(parser.can_close_thought());
}

TEST(Thought, ThePromptSaysWhereTheOutputBegins) {
  Message user, begun;
  user.content = "quoted </think><think>";
  begun.role = Role::assistant;
  begun.content = "begun";
  for (const bool thinking : {false, true}) {
    ChatRequest request;
    request.thinking = thinking;
    request.messages = {user};
    request.tools = kTools;
    const Phase phase = thinking ? Phase::reasoning : Phase::content;
    EXPECT_EQ(phase_after(render_chat(request)), phase);
    request.messages.push_back(begun);
    request.final_assistant = FinalAssistant::is_continued;
    EXPECT_EQ(phase_after(render_chat(request)), Phase::content) << "an answer that goes on";
    request.final_assistant = FinalAssistant::opens_a_turn;
    EXPECT_EQ(phase_after(render_chat(request)), phase);
  }
}

}  // namespace
}  // namespace lockstep
