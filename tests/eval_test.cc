// Suites of prompts: what is read, what is refused, which answers pass, and a whole suite through a small model.
#include "engine/eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/synth.h"
#include "engine_runs.h"
#include "gguf_build.h"
#include "tensor/gguf_writer.h"

namespace lockstep {
namespace {

const std::string kName = R"("name": "n", "skill": "s")";
const std::string kMessages = R"(, "messages": [{"role": "user", "content": "q"}])";
const std::string kTools = R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";

EvalCase case_of(const std::string& fields) { return parse_suite("{" + fields + "}", "suite").front(); }
EvalCase case_with(const std::string& expect, const std::string& more = "") {
  return case_of(kName + kMessages + R"(, "expect": )" + expect + more);
}

TEST(Suite, CasesAreReadAsTheyStand) {
  const std::string line =
      R"({"name": "a", "skill": "x", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}], )"
      R"("thinking": true, "limit": 9, "tools": [{"type": "function", "function": {"b": 1, "name": "f"}}], )"
      R"("expect": {"content": [" A ", "B"], "reasoning_contains": "c", )"
      R"("tool_calls": [{"name": "f", "arguments": {"k": 1}}]}})";
  const std::vector<EvalCase> cases =
      parse_suite("\n" + line + "\n  \r\n{" + kName + kMessages + R"(, "expect": {"content": ""}})", "suite");
  ASSERT_EQ(cases.size(), 2u);
  const EvalCase& c = cases[0];
  EXPECT_EQ(c.name, "a");
  EXPECT_EQ(c.skill, "x");
  EXPECT_TRUE(c.chat.thinking);
  EXPECT_EQ(c.limit, 9);
  ASSERT_EQ(c.chat.messages.size(), 2u);
  EXPECT_EQ(c.chat.messages[1].content, "Q");
  EXPECT_EQ(c.chat.tools, std::vector<std::string>{R"({"b": 1, "name": "f"})"}) << "keys in their order";
  EXPECT_EQ(c.contents, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(c.reasoning_contains, std::vector<std::string>{"c"});
  ASSERT_EQ(c.calls.size(), 1u);
  EXPECT_EQ(c.calls[0].name, "f");
  EXPECT_FALSE(cases[1].chat.thinking) << "unless it says so";
  EXPECT_EQ(cases[1].limit, 256);
  EXPECT_EQ(cases[1].contents, std::vector<std::string>{""});
}

TEST(Suite, WhatIsWrongIsNamedWithItsLine) {
  const std::string good = kName + kMessages + R"(, "expect": {"content": "a"})";
  const std::string bare = kName + kMessages;
  const struct {
    const char* name;
    std::string fields, message;
  } cases[] = {
      {"not JSON", "a", "line 2: JSON: not JSON"},
      {"unknown field", good + R"(, "expects": 1)", R"("expects": unknown field, expected one of name, skill)"},
      {"no name", R"("skill": "s")" + kMessages, "name: missing, expected a string"},
      {"empty name", R"("name": "", "skill": "s")" + kMessages, "name: empty"},
      {"no skill", R"("name": "s")" + kMessages, "skill: missing"},
      {"name no string", R"("name": 1, "skill": "s")" + kMessages, "name: 1, expected a string"},
      {"no messages", kName + R"(, "expect": {"content": "a"})", "messages: missing"},
      {"messages empty", kName + R"(, "messages": [], "expect": {"content": "a"})", "messages: empty"},
      {"last message is an answer",
       kName + R"(, "messages": [{"role": "assistant", "content": "a"}], "expect": {"content": "a"})",
       "messages: the last one asks nothing"},
      {"unknown role", kName + R"(, "messages": [{"role": "boss"}], "expect": {"content": "a"})", "'boss'"},
      {"no expectation", bare, "expect: missing"},
      {"expectation empty", bare + R"(, "expect": {})", "expect: empty"},
      {"expectation misspelt", bare + R"(, "expect": {"contents": "a"})", R"(expect."contents": unknown field)"},
      {"content a number", bare + R"(, "expect": {"content": 5})", "expect.content: 5, expected a string or an array"},
      {"content of nothing", bare + R"(, "expect": {"content": []})", "expect.content: []"},
      {"reasoning without thinking", bare + R"(, "expect": {"reasoning": "a"})", "a case that does not think"},
      {"calls without tools", bare + R"(, "expect": {"tool_calls": [{"name": "f", "arguments": {}}]})",
       "calls of a case without tools"},
      {"arguments as text", bare + kTools + R"(, "expect": {"tool_calls": [{"name": "f", "arguments": "{}"}]})",
       R"(expect.tool_calls[0].arguments: "{}", expected an object)"},
      {"call without a name", bare + kTools + R"(, "expect": {"tool_calls": [{"arguments": {}}]})",
       "expect.tool_calls[0].name: missing"},
      {"limit of nothing", good + R"(, "limit": 0)", "limit: 0, expected 1 or more tokens"},
      {"thinking a word", good + R"(, "thinking": "yes")", "thinking"},
  };
  for (const auto& c : cases) {
    const std::string text = "\n{" + c.fields + "}\n";
    try {
      parse_suite(text, "my.jsonl");
      ADD_FAILURE() << c.name << ": accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument) << c.name;
      EXPECT_EQ(message.rfind("my.jsonl: line 2: ", 0), 0u) << c.name << ": " << message;
      EXPECT_NE(message.find(c.message), std::string::npos) << c.name << ": " << message;
    }
  }
  EXPECT_THROW(parse_suite(" \n\n", "empty"), Error);
  EXPECT_THROW(parse_suite("{" + good + "}\n{" + good + "}", "twice"), Error);
}

EvalAnswer answer(std::string content, std::vector<ToolCall> calls = {}, std::string reasoning = "") {
  return {std::move(content), std::move(reasoning), std::move(calls), true};
}

TEST(Suite, AnAnswerPassesIfEverythingExpectedIsThere) {
  const std::string call = R"({"tool_calls": [{"name": "f", "arguments": {"a": 1, "b": ["x", {"c": null}]}}]})";
  const EvalCase text = case_with(R"({"content": ["391", "391."]})");
  const EvalCase tool = case_with(call, kTools);
  const EvalCase two = case_with(
      R"({"tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 2}}]})", kTools);
  const EvalCase thought = case_with(R"({"content": "5", "reasoning_contains": ["2", "3"]})", R"(, "thinking": true)");
  const EvalCase exact = case_with(R"({"content": "5", "reasoning": "2 + 3"})", R"(, "thinking": true)");
  const ToolCall right = {"", "f", R"({"b": ["x", {"c": null}], "a": 1.0})"};
  const struct {
    const char* name;
    const EvalCase& expected;
    EvalAnswer got;
    std::string why;
  } cases[] = {
      {"the first form", text, answer("391"), ""},
      {"another form", text, answer("391."), ""},
      {"white space around it", text, answer("\n 391 \n"), ""},
      {"another answer", text, answer("392"), "another content"},
      {"more than the answer", text, answer("391 or so"), "another content"},
      {"did not stop", text, {"391", "", {}, false}, "did not stop by itself"},
      {"a call that nobody wants", text, answer("391", {right}), "1 tool calls, expected 0"},
      {"keys in another order, 1 as 1.0", tool, answer("", {right}), ""},
      {"text before a call does not matter", tool, answer("Let me see.", {right}), ""},
      {"no call", tool, answer("f"), "0 tool calls, expected 1"},
      {"another tool", tool, answer("", {{"", "g", right.arguments}}), "another tool"},
      {"another value", tool, answer("", {{"", "f", R"({"a": 2, "b": ["x", {"c": null}]})"}}), "other arguments"},
      {"text for a number", tool, answer("", {{"", "f", R"({"a": "1", "b": ["x", {"c": null}]})"}}), "other arguments"},
      {"a key too many", tool, answer("", {{"", "f", R"({"a": 1, "b": ["x", {"c": null}], "d": 1})"}}),
       "other arguments"},
      {"arguments that are not JSON", tool, answer("", {{"", "f", "{a}"}}), "other arguments"},
      {"two calls in order", two, answer("", {{"", "f", R"({"a": 1})"}, {"", "f", R"({"a": 2})"}}), ""},
      {"two calls the other way", two, answer("", {{"", "f", R"({"a": 2})"}, {"", "f", R"({"a": 1})"}}),
       "other arguments"},
      {"thinks of both", thought, answer("5", {}, "3 and 2"), ""},
      {"thinks of one", thought, answer("5", {}, "3"), "reasoning without \"2\""},
      {"the same thought", exact, answer("5", {}, "2 + 3"), ""},
      {"another thought", exact, answer("5", {}, "3 + 2"), "another reasoning"},
  };
  for (const auto& c : cases) EXPECT_EQ(why_wrong(c.expected, c.got), c.why) << c.name;
}

TEST(Suite, OnlyAWholeExpectedAnswerIsMeasured) {
  EXPECT_EQ(answered(case_with(R"({"content": ["a", "b"]})"))->messages.back().content, "a");
  EXPECT_FALSE(answered(case_with(R"({"content": "a"})", R"(, "thinking": true)"))) << "the thought is not known";
  EXPECT_FALSE(answered(case_with(R"({"content": "a", "reasoning_contains": "b"})", R"(, "thinking": true)")));
  const auto thought = answered(case_with(R"({"content": "a", "reasoning": "b"})", R"(, "thinking": true)"));
  EXPECT_EQ(thought->messages.back().reasoning, "b");
  const auto call = answered(case_with(R"({"tool_calls": [{"name": "f", "arguments": {"k": "v"}}]})", kTools));
  EXPECT_EQ(call->messages.back().tool_calls.at(0).arguments, R"({"k": "v"})");
}

/// A nano model. If it is `silent`, its head is 0, so that all logits are alike and it always says token 0; and token 0
/// is the end of a sentence.
void write_model(const std::filesystem::path& path, bool is_silent) {
  const std::filesystem::path raw = is_silent ? std::filesystem::path(path.string() + ".raw") : path;
  SynthOptions options;
  options.preset = "nano";
  write_synth(plan_synth(options), raw);
  if (!is_silent) return;
  const Gguf file(raw);
  std::vector<std::string_view> tokens = file.strings_of("tokenizer.ggml.tokens");
  std::swap(tokens[0], tokens[1]);
  GgufWriter writer(path);
  writer.set_all(file);
  writer.set_array("tokenizer.ggml.tokens", std::span<const std::string_view>(tokens));
  writer.set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.set("tokenizer.ggml.eos_token_id", std::uint32_t{0});
  for (const GgufTensor& tensor : file.tensors())
    writer.add_tensor(tensor.name, tensor.dtype, {tensor.ne.data(), static_cast<std::size_t>(tensor.dims)});
  writer.begin();
  for (const GgufTensor& tensor : file.tensors())
    writer.append(tensor.name == "output.weight" ? std::vector<std::byte>(tensor.bytes.size())
                                                 : std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
  writer.finish();
}

std::vector<EvalCase> small_suite() {
  const auto line = [](const char* name, const char* skill, const std::string& rest) {
    return std::string(R"({"name": ")") + name + R"(", "skill": ")" + skill + "\"" + rest + "}\n";
  };
  return parse_suite(
      line("silence", "quiet", kMessages + R"(, "limit": 6, "expect": {"content": ""})") +
          line("word", "talk", kMessages + R"(, "limit": 6, "expect": {"content": "word"})") +
          line("thought", "talk", kMessages + R"(, "limit": 6, "thinking": true, "expect": {"content": "a"})") +
          line(
              "call", "quiet",
              kMessages + kTools + R"(, "limit": 6, "expect": {"tool_calls": [{"name": "f", "arguments": {"a": 1}}]})"),
      "small");
}

TEST(Eval, AModelThatSaysNothingPassesWhereNothingIsRight) {
  const test::TempFolder folder;
  write_model(folder / "silent.gguf", true);
  const auto engine = testing::make_engine(folder / "silent.gguf", Mode::official, "auto", 1);
  std::vector<std::pair<std::int64_t, std::int64_t>> progress;
  const EvalReport report = run_suite(
      *engine, small_suite(), [&](std::int64_t done, std::int64_t total) { progress.emplace_back(done, total); });
  ASSERT_EQ(report.skills.size(), 2u);
  EXPECT_EQ(report.skills[0].skill, "quiet");
  EXPECT_EQ(report.skills[0].cases, 2);
  EXPECT_EQ(report.skills[0].passed, 1);
  EXPECT_EQ(report.skills[0].stopped, 2);
  EXPECT_EQ(report.skills[1].skill, "talk");
  EXPECT_EQ(report.skills[1].passed, 0);
  EXPECT_EQ(report.all.cases, 4);
  EXPECT_EQ(report.all.passed, 1);
  EXPECT_EQ(report.all.stopped, 4);
  EXPECT_EQ(report.generated, 4) << "an end each";
  ASSERT_EQ(report.failures.size(), 3u);
  EXPECT_EQ(report.failures[0].name, "word");
  EXPECT_EQ(report.failures[0].why, "another content");
  EXPECT_EQ(report.failures[0].expected, "\"word\"");
  EXPECT_EQ(report.failures[0].got, "\"\"");
  EXPECT_EQ(report.failures[2].expected, R"(f({"a": 1}))");
  EXPECT_EQ(progress.front(), (std::pair<std::int64_t, std::int64_t>(0, 4)));
  EXPECT_EQ(progress.back(), (std::pair<std::int64_t, std::int64_t>(4, 4)));
}

TEST(Eval, AllLogitsAlikeMeanAPerplexityOfTheVocabulary) {
  const test::TempFolder folder;
  write_model(folder / "silent.gguf", true);
  const auto engine = testing::make_engine(folder / "silent.gguf", Mode::official, "auto", 1);
  const std::vector<Passage> passages = suite_passages(*engine, small_suite());
  ASSERT_EQ(passages.size(), 4u);
  EXPECT_EQ(passages[0].tokens.size(), passages[0].first_scored + 1) << "an empty answer is its end alone";
  EXPECT_EQ(passages[0].tokens.back(), 0);
  EXPECT_GT(passages[1].tokens.size(), passages[1].first_scored + 1);
  EXPECT_EQ(passages[2].tokens.size(), passages[2].first_scored) << "the thought is not known, so nothing is scored";
  const Measurement measured = measure(*engine, engine.get(), passages);
  const double vocabulary = engine->config().vocabulary;
  EXPECT_NEAR(measured.model.perplexity(), vocabulary, 1e-9 * vocabulary);  // by way of f64 logarithms
  EXPECT_EQ(measured.model.likeliest, 3) << "the ends of three answers";
  EXPECT_EQ(measured.compared.mean(), 0);
}

TEST(Eval, ARandomModelGivesTheSameReportOnEveryPath) {
  const test::TempFolder folder;
  write_model(folder / "nano.gguf", false);
  std::vector<EvalCase> cases = small_suite();
  cases.pop_back();  // its tools make a long prompt
  const auto report_of = [&](const std::string& level, int threads, int max_rows) {
    const auto engine = testing::make_engine(folder / "nano.gguf", Mode::official, level, threads, max_rows);
    return run_suite(*engine, cases);
  };
  const EvalReport expected = report_of("auto", 1, 512);
  EXPECT_EQ(expected.all.cases, 3);
  ASSERT_FALSE(expected.failures.empty());
  for (const auto& [level, threads, rows] :
       {std::tuple<const char*, int, int>{"scalar", 1, 512}, {"auto", 2, 16}, {"auto", 1, 1}}) {
    const EvalReport other = report_of(level, threads, rows);
    ASSERT_EQ(other.failures.size(), expected.failures.size()) << level << rows;
    for (std::size_t i = 0; i < other.failures.size(); ++i)
      EXPECT_EQ(other.failures[i].got, expected.failures[i].got) << level << rows;
    EXPECT_EQ(other.generated, expected.generated);
  }
}

TEST(Eval, ACaseThatDoesNotFitFailsAlone) {
  const test::TempFolder folder;
  write_model(folder / "silent.gguf", true);
  const Gguf file(folder / "silent.gguf");
  GgufWriter writer(folder / "short.gguf");
  writer.set_all(file);
  writer.set("deepseek4.context_length", std::uint32_t{40});
  for (const GgufTensor& tensor : file.tensors())
    writer.add_tensor(tensor.name, tensor.dtype, {tensor.ne.data(), static_cast<std::size_t>(tensor.dims)});
  writer.begin();
  for (const GgufTensor& tensor : file.tensors()) writer.append(tensor.bytes);
  writer.finish();
  const auto engine = testing::make_engine(folder / "short.gguf", Mode::official, "auto", 1);
  const EvalReport report = run_suite(*engine, small_suite());
  EXPECT_EQ(report.all.passed, 1) << "the others are asked all the same";
  EXPECT_EQ(report.all.stopped, 3);
  ASSERT_EQ(report.failures.size(), 3u);
  EXPECT_EQ(report.failures.back().why, "not asked");
  EXPECT_NE(report.failures.back().got.find("expected fewer than the context of 40"), std::string::npos)
      << report.failures.back().got;
  EXPECT_EQ(suite_passages(*engine, small_suite()).size(), 3u);
}

}  // namespace
}  // namespace lockstep
