// Rules of the chat encoder that chat.jsonl does not show, or shows only once. Expected values by hand from
// docs/chat.md.
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/chat.h"
#include "text/chat_request.h"
#include "text/chat_text.h"

namespace lockstep {
namespace {

#define BOS "<｜begin▁of▁sentence｜>"
#define EOS "<｜end▁of▁sentence｜>"
#define USER "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"

std::string rendered(std::string_view json) {
  return render_chat(chat_request_from_json(parse_json(json, "case"))).text();
}

struct Case {
  const char* name;
  const char* request;
  const char* prompt;
};

const std::vector<Case> kCases = {
    {"thinking is the default", R"({"messages": [{"role": "user", "content": "a"}]})",
     BOS USER "a" ASSISTANT "<think>"},
    {"only a system text: nothing to answer", R"({"messages": [{"role": "system", "content": "s"}]})", BOS "s"},
    {"a late system text takes the generation prompt away",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "s"}]})",
     BOS USER "a"
              "s"},
    {"developer as system",
     R"({"developer_as_system": true, "messages": [{"role": "developer", "content": "s"},
        {"role": "user", "content": "a"}]})",
     BOS "s" USER "a" ASSISTANT "<think>"},
    {"developer as the encoder's own",
     R"({"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "a"}]})",
     BOS USER "s" USER "a" ASSISTANT "<think>"},
    {"text parts are joined as they are",
     R"({"thinking": false, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
        {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]}]})",
     BOS USER "abc" ASSISTANT "</think>"},
    {"three user messages are one turn",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": ""},
        {"role": "user", "content": "c"}]})",
     BOS USER "a\n\n\n\nc" ASSISTANT "<think>"},
    {"a user message with a task takes no further text",
     R"({"thinking": false, "messages": [{"role": "user", "content": "a", "task": "query"},
        {"role": "user", "content": "b"}]})",
     BOS USER "a" USER "b" ASSISTANT "</think>"},
    {"a task joins the turn it ends",
     R"({"thinking": false, "messages": [{"role": "user", "content": "a"},
        {"role": "user", "content": "b", "task": "query"}]})",
     BOS USER "a\n\nb"
              "<｜query｜>"},
    {"results take the order of the calls and texts keep their places",
     R"({"thinking": false, "messages": [{"role": "assistant", "tool_calls": [
          {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "function": {"name": "f", "arguments": "{}"}},
          {"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "3"}, {"role": "user", "content": "text"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"}]})",
     BOS "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"f\">\n\n</｜DSML｜invoke>\n"
         "<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" EOS USER
         "<tool_result>1</tool_result>\n\ntext\n\n"
         "<tool_result>2</tool_result>\n\n<tool_result>3</tool_result>" ASSISTANT "</think>"},
    {"an unknown result counts as the first call's and the sort is stable",
     R"({"thinking": false, "messages": [{"role": "assistant", "tool_calls": [
          {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "tool", "tool_call_id": "?", "content": "u"},
        {"role": "tool", "tool_call_id": "a", "content": "1"}]})",
     BOS "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"f\">\n\n</｜DSML｜invoke>\n"
         "</｜DSML｜tool_calls>" EOS USER "<tool_result>u</tool_result>\n\n<tool_result>1</tool_result>\n\n"
         "<tool_result>2</tool_result>" ASSISTANT "</think>"},
    {"a result without a call is a user turn", R"({"messages": [{"role": "tool", "content": "r"}]})",
     BOS USER "<tool_result>r</tool_result>" ASSISTANT "<think>"},
    {"after the last user the reasoning stays, before it goes",
     R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "reasoning_content": "r1", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "reasoning": "r2", "content": "d"}]})",
     BOS USER "a" ASSISTANT "</think>b" EOS USER "c" ASSISTANT "<think>r2</think>d" EOS},
    {"reasoning_content wins over reasoning",
     R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "reasoning": "no", "reasoning_content": "yes", "content": "b"}]})",
     BOS USER "a" ASSISTANT "<think>yes</think>b" EOS},
    {"an empty list of tools is no tools",
     R"({"tools": [], "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "reasoning_content": "r", "content": "b"},
        {"role": "user", "content": "c"}]})",
     BOS USER "a" ASSISTANT "</think>b" EOS USER "c" ASSISTANT "<think>"},
    {"a reminder after a user message opens a turn first",
     R"({"thinking": false, "messages": [{"role": "user", "content": "a"},
        {"role": "latest_reminder", "content": "d"}]})",
     BOS USER "a" ASSISTANT "</think><｜latest_reminder｜>d"},
    {"an object of arguments is as good as its text",
     R"({"thinking": false, "messages": [{"role": "assistant", "tool_calls": [
          {"function": {"name": "f", "arguments": {"b": 1.0, "a": "x"}}}]}]})",
     BOS "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"b\" "
         "string=\"false\">1.0</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"a\" "
         "string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" EOS},
    {"arguments that are an array are raw text",
     R"({"thinking": false, "messages": [{"role": "assistant", "tool_calls": [
        {"function": {"name": "f", "arguments": "[1,2]"}}]}]})",
     BOS "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"arguments\" "
         "string=\"true\">[1,2]"
         "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" EOS},
    {"numbers in arguments keep their kind and size",
     R"({"thinking": false, "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
        "arguments": "{\"a\":1.0,\"b\":123456789012345678901234567890,\"c\":[1e-7,1E20]}"}}]}]})",
     BOS "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
         "string=\"false\">1.0</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"b\" string=\"false\">123456789012345678901234567890</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"c\" string=\"false\">[1e-07, "
         "1e+20]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" EOS},
    {"a response format without a system text",
     R"({"thinking": false, "response_format": {"type": "object"}, "messages": [{"role": "user", "content": "a"}]})",
     BOS "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": "
         "\"object\"}" USER "a" ASSISTANT "</think>"},
};

TEST(Chat, RendersByTheRules) {
  for (const Case& c : kCases) EXPECT_EQ(rendered(c.request), c.prompt) << c.name;
}

ChatRequest with_final_assistant(FinalAssistant final_assistant, bool thinking) {
  ChatRequest request;
  request.thinking = thinking;
  request.final_assistant = final_assistant;
  request.messages.push_back({Role::user, "a", {}, {}, {}, {}, false});
  request.messages.push_back({Role::assistant, "b", "r", {}, {}, {}, false});
  return request;
}

TEST(Chat, AFinalAssistantMessageIsClosedContinuedOrFollowed) {
  using enum FinalAssistant;
  const auto text = [](FinalAssistant what, bool thinking) {
    return render_chat(with_final_assistant(what, thinking)).text();
  };
  EXPECT_EQ(text(as_it_is, true), BOS USER "a" ASSISTANT "<think>r</think>b" EOS);
  EXPECT_EQ(text(is_continued, true), BOS USER "a" ASSISTANT "<think>r</think>b");
  EXPECT_EQ(text(is_continued, false), BOS USER "a" ASSISTANT "</think>b");
  EXPECT_EQ(text(opens_a_turn, true), BOS USER "a" ASSISTANT "<think>r</think>b" EOS ASSISTANT "<think>");
  EXPECT_EQ(text(opens_a_turn, false), BOS USER "a" ASSISTANT "</think>b" EOS ASSISTANT "</think>");
}

TEST(Chat, TheEffortOfEachProfile) {
  const auto preamble = [](Profile profile, Effort effort, bool thinking) {
    ChatRequest request;
    request.profile = profile;
    request.effort = effort;
    request.thinking = thinking;
    request.messages.push_back({Role::user, "a", {}, {}, {}, {}, false});
    const std::string text = render_chat(request).text();
    const std::size_t begin = std::string_view(BOS).size();
    return text.substr(begin, text.find(USER) - begin);
  };
  using enum Effort;
  for (const Effort effort : {unset, low, high}) EXPECT_EQ(preamble(Profile::preview, effort, true), "");
  EXPECT_EQ(preamble(Profile::preview, max, true), kEffortAbsolute);
  for (const Effort effort : {unset, low}) EXPECT_EQ(preamble(Profile::release_0731, effort, true), "");
  EXPECT_EQ(preamble(Profile::release_0731, high, true), kEffortAbsolute);
  EXPECT_EQ(preamble(Profile::release_0731, max, true), kEffortBeyond);
  for (const Effort effort : {unset, low, high, max})
    for (const Profile profile : {Profile::preview, Profile::release_0731})
      EXPECT_EQ(preamble(profile, effort, false), "");
}

TEST(Chat, OnlyTheTemplatesOwnTextIsTrusted) {
  const Prompt prompt = render_chat(chat_request_from_json(parse_json(
      R"({"tools": [{"type": "function", "function": {"name": "T1"}}], "response_format": {"F1": 1}, "messages": [
          {"role": "system", "content": "S1"}, {"role": "user", "content": "U1"},
          {"role": "assistant", "reasoning_content": "R1", "content": "A1", "tool_calls": [
            {"id": "c", "function": {"name": "N1", "arguments": "{\"K1\": \"V1\", \"K2\": [\"V2\"]}"}}]},
          {"role": "tool", "tool_call_id": "c", "content": "O1"}]})",
      "case")));
  std::string untrusted, trusted;
  for (const Span& span : prompt.spans) (span.trust == Trust::trusted ? trusted : untrusted) += span.text + ";";
  EXPECT_EQ(untrusted, "S1;{\"name\": \"T1\"};{\"F1\": 1};U1;R1;A1;N1;K1;V1;K2;[\"V2\"];O1;");
  for (const char* text : {"S1", "T1", "F1", "U1", "R1", "A1", "N1", "K1", "V1", "O1"})
    EXPECT_EQ(trusted.find(text), std::string::npos) << text;
  for (std::size_t i = 1; i < prompt.spans.size(); ++i) EXPECT_NE(prompt.spans[i].trust, prompt.spans[i - 1].trust);
}

TEST(Chat, TheProfileIsFoundFromTheFile) {
  EXPECT_EQ(detect_profile("... Beyond maximum ...", ""), Profile::release_0731);
  EXPECT_EQ(detect_profile("", "DeepSeek-V4-Flash-0731"), Profile::release_0731);
  EXPECT_EQ(detect_profile("Absolute maximum", "DeepSeek-V4-Flash"), Profile::preview);
}

constexpr struct {
  const char* request;
  const char* message;
} kBad[] = {
    {R"([])", "request: [], expected an object"},
    {R"({})", "messages: missing"},
    {R"({"messages": {}})", "messages: {}, expected an array"},
    {R"({"messages": [{}]})", "messages[0].role: ''"},
    {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
     "messages[0].content[0].type: 'image_url'"},
    {R"({"messages": [{"role": "user", "content": ["x"]}]})", "messages[0].content[0]: \"x\", expected an object"},
    {R"({"messages": [{"role": "user", "task": "sing"}]})", "messages[0].task: 'sing', expected one of action"},
    {R"({"messages": [{"role": "user", "tools": [1]}]})", "messages[0].tools: on a message"},
    {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})", "messages[0].tool_calls[0].function: missing"},
    {R"({"messages": [{"role": "assistant", "wo_eos": 1}]})", "messages[0].wo_eos: 1, expected true or false"},
    {R"({"messages": [], "effort": "extreme"})", "effort: 'extreme', expected one of minimal, low"},
    {R"({"messages": [], "profile": "v3"})", "profile: 'v3', expected one of preview, 0731"},
    {R"({"messages": [], "tools": [{"name": "flat"}]})", "tools[0].function: missing"},
    {R"({"messages": [], "thinking": "yes"})", "thinking: \"yes\""},
};

TEST(Chat, ABadRequestNamesItsField) {
  for (const auto& c : kBad) {
    try {
      chat_request_from_json(parse_json(c.request, "case"));
      ADD_FAILURE() << c.request << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << c.request << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
