// tests/data/text/parse.jsonl (65 lines: DeepSeek's published parser on well-formed output, and this project's
// decisions for other output), each line in every way it can be cut.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/parse.h"
#include "text/output_parser.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

struct Line {
  std::string name, text, json;
  ParserOptions options;
  GenerationEnd end;
  Json expect;
};

std::vector<Line> read_lines() {
  std::ifstream file(LOCKSTEP_TEST_DATA "/text/parse.jsonl", std::ios::binary);
  std::vector<Line> lines;
  for (std::string json; std::getline(file, json);) {
    const Json value = parse_json(json, "line");
    Line line{value["name"], value["text"], json, {}, GenerationEnd::stop, value["expect"]};
    line.options.opening = value["thinking"].get<bool>() ? Phase::reasoning : Phase::content;
    for (const Json& tool : value["tools"]) line.options.tools.push_back(dump_python(tool["function"]));
    line.options.parses_calls = value.value("tool_choice", "auto") != "none";
    if (value["finish"] == "length") line.end = GenerationEnd::length;
    lines.push_back(std::move(line));
  }
  return lines;
}

/// The text in pieces, by its cuts.
ParsedOutput streamed(const Line& line, const std::vector<std::size_t>& cuts) {
  OutputParser parser(line.options);
  ParsedOutput output;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i == cuts.size() ? line.text.size() : cuts[i];
    for (const ParserEvent& event : parser.feed(line.text.substr(begin, end - begin))) append(output, event);
    begin = end;
  }
  for (const ParserEvent& event : parser.finish(line.end)) append(output, event);
  output.finish_reason = parser.finish_reason();
  return output;
}

void expect_as_said(const Json& expect, const ParsedOutput& output, const std::string& name) {
  EXPECT_EQ(output.reasoning, expect["reasoning"].get<std::string>()) << name;
  EXPECT_EQ(output.content, expect["content"].get<std::string>()) << name;
  EXPECT_EQ(name_of(output.finish_reason), expect["finish_reason"].get<std::string>()) << name;
  ASSERT_EQ(output.tool_calls.size(), expect["tool_calls"].size()) << name;
  for (std::size_t i = 0; i < output.tool_calls.size(); ++i) {
    EXPECT_EQ(output.tool_calls[i].name, expect["tool_calls"][i]["name"].get<std::string>()) << name;
    const std::string arguments = expect["tool_calls"][i]["arguments"].get<std::string>();
    // Compared with the order of their keys.
    EXPECT_EQ(parse_json(output.tool_calls[i].arguments, "got"), parse_json(arguments, "expected")) << name;
  }
}

TEST(ParserLines, EveryTextGivesWhatItsLineSays) {
  const std::vector<Line> lines = read_lines();
  ASSERT_EQ(lines.size(), 65u);
  for (const Line& line : lines) {
    expect_as_said(line.expect, parse_output(line.text, line.options, line.end), line.name);
    EXPECT_EQ(streamed(line, {}), parse_output(line.text, line.options, line.end)) << line.name;
  }
}

TEST(ParserLines, ByteByByteGivesTheSame) {
  for (const Line& line : read_lines()) {
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < line.text.size(); ++i) cuts.push_back(i);
    EXPECT_EQ(streamed(line, cuts), parse_output(line.text, line.options, line.end)) << line.name;
  }
}

TEST(ParserLines, CutInTwoAnywhereGivesTheSame) {
  for (const Line& line : read_lines()) {
    const ParsedOutput whole = parse_output(line.text, line.options, line.end);
    for (std::size_t i = 0; i <= line.text.size(); ++i)
      ASSERT_EQ(streamed(line, {i}), whole) << line.name << " at " << i;
  }
}

/// What the command writes for all the lines.
std::string answers(std::size_t chunk) {
  std::stringstream in, out, errors;
  for (const Line& line : read_lines()) in << line.json << '\n';
  EXPECT_EQ(run_parse(in, out, errors, chunk), 0) << errors.str();
  return out.str();
}

TEST(ParserLines, TheCommandAnswersEveryLine) {
  std::stringstream out(answers(0));
  for (const Line& line : read_lines()) {
    std::string answer;
    ASSERT_TRUE(std::getline(out, answer)) << line.name;
    const Json json = parse_json(answer, "answer");
    EXPECT_EQ(json["name"].get<std::string>(), line.name);
    ParsedOutput output;
    output.reasoning = json["result"]["reasoning"];
    output.content = json["result"]["content"];
    for (const Json& call : json["result"]["tool_calls"])
      output.tool_calls.push_back({call["name"].get<std::string>(), call["arguments"].get<std::string>()});
    output.finish_reason = parse_output(line.text, line.options, line.end).finish_reason;
    EXPECT_EQ(name_of(output.finish_reason), json["result"]["finish_reason"].get<std::string>());
    expect_as_said(line.expect, output, line.name);
  }
}

TEST(ParserLines, TheCommandAnswersTheSameInChunksOfAnySizeAlsoWithinCharacters) {
  const std::string whole = answers(0);
  for (std::size_t chunk = 1; chunk <= 64; ++chunk) ASSERT_EQ(answers(chunk), whole) << chunk;
  EXPECT_EQ(answers(100000), whole);
}

TEST(ParserLines, TheCommandNamesABadLineAndGoesOn) {
  constexpr struct {
    const char* line;
    const char* error;
  } kBad[] = {
      {R"({"name": "x"})", "text: null, expected a string"},
      {R"({"text": 3})", "text: 3, expected a string"},
      {R"({"text": "", "thinking": "yes"})", R"(thinking: "yes", expected true or false)"},
      {R"({"text": "", "finish": "eos"})", R"(finish: "eos", expected "stop" or "length")"},
      {R"({"text": "", "tools": {}})", "tools: {}, expected an array"},
      {R"({"text": "", "tools": [1]})", "tools: 1, expected objects"},
      {R"({"text": "", "tools": [{"parameters": {}}]})",
       R"(tools[0]: no name, expected a function as {"name", "parameters"})"},
      {R"({"text": "", "tool_choice": "any"})",
       R"(tool_choice: "any", expected "none", "auto", "required" or a function)"},
      {"[]", "not a JSON object, expected one a line"},
  };
  for (const auto& [line, error] : kBad) {
    std::stringstream in(std::string(line) + "\n{\"text\": \"a\"}\n"), out, errors;
    EXPECT_EQ(run_parse(in, out, errors, 0), 2) << line;
    EXPECT_EQ(errors.str(), "line 1: " + std::string(error) + "\n");
    EXPECT_EQ(out.str(),
              "{\"name\": null, \"result\": {\"reasoning\": \"\", \"content\": \"a\", \"tool_calls\": [], "
              "\"finish_reason\": \"stop\"}}\n");
  }
}

}  // namespace
}  // namespace lockstep
