// What clients send and what becomes of it: recorded requests of real clients are accepted and keep their prefixes, the
// messages are normalised as docs/api.md says, and what is wrong is refused by name.
#include <filesystem>
#include <set>

#include "api_fixture.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

Json recorded(const std::string& name) {
  return parse_json(read_file(LOCKSTEP_TEST_DATA "/clients/" + name + ".json"), name);
}

TEST(ServerRequests, RecordedRequestsOfRealClientsAreAnswered) {
  ApiFixture api;
  api.source.scripts = {"A thought.</think>Hello."};
  api.source.checks_masks = false;  // one script for all, whatever form they ask for
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_TEST_DATA "/clients")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const Json request = recorded(name);
    ++count;
    if (request["method"] != "POST") continue;
    const auto exchange = api.ask(request["path"].get<std::string>(), request["body"]);
    if (name == "ai-sdk-responses-tool-result") {  // refers to an item of a response that was never made
      EXPECT_EQ(exchange->status, 400);
      EXPECT_NE(exchange->body.find("ID_1"), std::string::npos) << exchange->body;
      continue;
    }
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    EXPECT_TRUE(exchange->is_done());
    EXPECT_EQ(exchange->is_stream, request["body"].value("stream", false));
  }
  EXPECT_GT(count, 50);
  EXPECT_TRUE(api.warnings.empty()) << api.warnings.front();
}

/// The prompt of a recorded request, with the tools of another session's, since those were cut differently.
std::string recorded_prompt(const std::string& name, const std::string& tools_of) {
  ApiFixture api;
  api.source.checks_masks = false;
  Json request = recorded(name);
  if (name != tools_of) {
    Json tools = recorded(tools_of)["body"]["tools"];
    for (Json tool : request["body"]["tools"]) {
      if (!tool.value("defer_loading", false)) continue;
      tool["name"] = "deferred_" + tool["name"].get<std::string>();  // the other session's list may have its name
      tools.insert(tools.begin(), tool);
    }
    request["body"]["tools"] = tools;
  }
  const auto exchange = api.send(request["path"].get<std::string>(), json_text(request["body"]));
  EXPECT_EQ(api.source.jobs.size(), 1u) << exchange->body;
  return api.source.jobs.empty() ? "" : api.prompt_of_last_job();
}

TEST(ServerRequests, ConversationsOfRealClientsKeepTheirPrefix) {
  constexpr struct {
    const char *first, *second;
    bool is_whole;  // all of the first prompt; otherwise up to the model's first turn
  } kPairs[] = {
      {"claude-code-first-turn", "claude-code-tool-result", true},
      {"claude-code-tool-result", "claude-code-deferred-tools", false},
      {"codex-first-turn", "codex-tool-result", true},
      {"codex-custom-tool", "codex-custom-tool-result", true},
      {"opencode-first-turn", "opencode-tool-result", true},
      {"pi-first-turn", "pi-tool-result", true},
      {"cline-first-turn", "cline-tool-result", true},
      {"continue-first-turn", "continue-tool-result", true},
      {"qwen-code-first-turn", "qwen-code-tool-result", true},
  };
  for (const auto& pair : kPairs) {
    SCOPED_TRACE(pair.first);
    std::string first = recorded_prompt(pair.first, pair.first);
    const std::string second = recorded_prompt(pair.second, pair.first);
    constexpr std::string_view kTurn = "<｜Assistant｜>";
    if (!pair.is_whole) first.resize(first.find(kTurn) + kTurn.size());
    ASSERT_GT(first.size(), 100u);
    EXPECT_TRUE(second.starts_with(first)) << first << "\n----\n" << second;
    EXPECT_GT(second.size(), first.size());
  }
}

TEST(ServerRequests, DeferredToolsAreShownWhereAResultRefersToThem) {
  ApiFixture api;
  const Json tool = {
      {"name", "later"}, {"description", "D"}, {"input_schema", {{"type", "object"}}}, {"defer_loading", true}};
  const Json body =
      parse_json(R"({"model": "m", "tools": [{"name": "now", "input_schema": {"type": "object"}}], "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "now", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
          {"type": "tool_reference", "tool_name": "later"}, {"type": "tool_reference", "tool_name": "unknown"}]}]}]})",
                 "body");
  Json with = body;
  with["tools"].insert(with["tools"].begin(), tool);
  api.send("/v1/messages", json_text(with));
  ASSERT_EQ(api.source.jobs.size(), 1u);
  const std::string prompt = api.prompt_of_last_job();
  const std::string line = R"({"name": "later", "description": "D", "parameters": {"type": "object"}})";
  EXPECT_NE(prompt.find("<tool_result>" + line + "\n\nunknown</tool_result>"), std::string::npos) << prompt;
  EXPECT_EQ(prompt.find(line), prompt.rfind(line)) << "also in the tools block";
}

TEST(ServerRequests, OnlyToolsThatTheModelHasBeenShownCanBeCalled) {
  const auto body = [](const char* choice, bool is_referred) {
    Json out = parse_json(R"({"model": "m", "tools": [
        {"name": "later", "input_schema": {"type": "object", "properties": {}}, "defer_loading": true},
        {"name": "now", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [{"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "now", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": []}]}]})",
                          "body");
    if (is_referred)
      out["messages"][2]["content"][0]["content"].push_back({{"type", "tool_reference"}, {"tool_name", "later"}});
    out["tool_choice"] = {{"type", choice}};
    return json_text(out);
  };
  for (const char* choice : {"any", "auto"})
    for (const char* name : {"now", "later"})
      for (const bool is_referred : {false, true}) {
        SCOPED_TRACE(std::string(choice) + " " + name + (is_referred ? " referred to" : ""));
        ApiFixture api;
        ASSERT_EQ(api.send("/v1/messages", body(choice, is_referred))->status, 0);
        ASSERT_EQ(api.source.jobs.size(), 1u);
        EXPECT_EQ(may_say(api, call_block(name, "")), is_referred || std::string_view(name) == "now");
      }
  // With none that it was shown, markup is text.
  ApiFixture api;
  api.source.scripts = {call_block("later", "")};
  const auto exchange = api.ask("/v1/messages", parse_json(R"({"messages": [{"role": "user", "content": "hi"}],
      "tools": [{"name": "later", "input_schema": {}, "defer_loading": true}]})",
                                                           "body"));
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  const Json answer = exchange->json();
  for (const Json& block : answer["content"]) EXPECT_EQ(block["type"], "text") << exchange->body;
}

TEST(ServerRequests, WhatAFormLeavesOutIsLoggedWithTheRequestsIdAndTheRestIsHeld) {
  const Json schema = parse_json(R"({"type": "object", "properties": {"a": {"type": "file"}, "b": {"type": "integer"}},
      "required": ["a", "b"]})",
                                 "schema");
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}};
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const struct {
    const char *target, *field;
    Json body;
  } kForms[] = {
      {"/chat/completions",
       "response_format",
       {{"thinking", false},
        {"messages", messages},
        {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}}},
      {"/chat/completions", "json_schema", {{"thinking", false}, {"messages", messages}, {"json_schema", schema}}},
      {"/responses", "text.format", {{"thinking", false}, {"input", "x"}, {"text", {{"format", format}}}}},
      {"/messages", "output_config.format", {{"messages", messages}, {"output_config", {{"format", format}}}}},
  };
  for (const auto& form : kForms) {
    SCOPED_TRACE(form.field);
    for (const auto& [text, is_held] :
         {std::pair(R"({"a": ["any"], "b": 1})", true), std::pair(R"({"a": 1, "b": "x"})", false)}) {
      ApiFixture api;
      const auto exchange = api.send(form.target, json_text(form.body));
      ASSERT_EQ(api.source.jobs.size(), 1u) << exchange->body;
      EXPECT_EQ(may_say(api, text), is_held) << text;
      ASSERT_EQ(api.warnings.size(), 1u);
      EXPECT_TRUE(api.warnings[0].starts_with("req_1: " + std::string(form.field) + ": schema at /properties/*: "))
          << api.warnings[0];
    }
  }
}

TEST(ServerRequests, AServerThatStopsSaysSo) {
  ApiFixture api;
  api.source.refusal = Scheduler::Refusal::stopping;
  const auto exchange = api.send("/chat/completions", R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(exchange->status, 503);
  EXPECT_EQ(exchange->json()["error"]["code"], "shutting_down");
  const auto below = api.send("/responses/resp_1/input_items", "", "GET");
  EXPECT_EQ(below->status, 404);
  EXPECT_NE(below->json()["error"]["message"].get<std::string>().find("no such path: GET /v1/responses/resp_1/input"),
            std::string::npos)
      << below->body;
}

constexpr struct {
  const char *name, *body, *prompt;
} kPrompts[] = {
    {"no system text: nothing stands there", R"({"messages": [{"role": "user", "content": "Hello"}]})",
     "<｜User｜>Hello<｜Assistant｜><think>"},
    {"a missing content and an empty one are empty texts",
     R"({"messages": [{"role": "user"}, {"role": "assistant", "content": null}, {"role": "user", "content": ""}]})",
     "<｜User｜><｜Assistant｜></think><｜end▁of▁sentence｜><｜User｜><｜Assistant｜><think>"},
    {"text parts are joined as they are",
     R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})",
     "<｜User｜>ab<｜Assistant｜><think>"},
    {"leading system and developer texts become one",
     R"({"messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"},
         {"role": "user", "content": "c"}]})",
     "A\n\nB<｜User｜>c<｜Assistant｜><think>"},
    {"a late system text is a reminder in the user's turn, and the model still has its own",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "S"}]})",
     "<｜User｜>a\n\n<system-reminder>\nS\n</system-reminder><｜Assistant｜><think>"},
    {"users in a row are one turn",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})",
     "<｜User｜>a\n\nb<｜Assistant｜><think>"},
    {"an assistant turn that came in pieces is one",
     R"({"reasoning_effort": "none", "messages": [{"role": "user", "content": "a"},
         {"role": "assistant", "reasoning_content": "r"},
         {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]})",
     "<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>c<｜Assistant｜></think>"},
    {"system text alone gets an empty user turn", R"({"messages": [{"role": "system", "content": "S"}]})",
     "S<｜User｜><｜Assistant｜><think>"},
    {"an assistant's last word opens another turn",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
     "<｜User｜>a<｜Assistant｜><think></think>b<｜end▁of▁sentence｜><｜Assistant｜><think>"},
    {"a prefix is continued",
     R"({"thinking": false, "messages": [{"role": "user", "content": "a"},
         {"role": "assistant", "content": "b", "prefix": true}]})",
     "<｜User｜>a<｜Assistant｜></think>b"},
    {"so is a final message that is to be",
     R"({"continue_final_message": true, "messages": [
         {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
     "<｜User｜>a<｜Assistant｜><think></think>b"},
    {"the legacy function role is a tool's",
     R"({"thinking": false, "messages": [{"role": "user", "content": "a"},
         {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
         {"role": "function", "name": "f", "content": "1"}]})",
     "<｜User｜>a<｜Assistant｜></think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n"
     "</｜DSML｜tool_calls><｜end▁of▁sentence｜><｜User｜><tool_result>1</tool_result><｜Assistant｜></think>"},
    {"a response format follows the system text",
     R"({"thinking": false, "response_format": {"type": "json_object"},
         "messages": [{"role": "user", "content": "a"}]})",
     "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": \"object\"}"
     "<｜User｜>a<｜Assistant｜></think>"},
};

TEST(ServerRequests, MessagesAreNormalised) {
  for (const auto& c : kPrompts) {
    SCOPED_TRACE(c.name);
    ApiFixture api;
    const auto exchange = api.send("/apply-template", c.body);
    ASSERT_EQ(exchange->status, 200) << exchange->body;
    EXPECT_EQ(exchange->json()["prompt"], "<｜begin▁of▁sentence｜>" + std::string(c.prompt));
  }
}

TEST(ServerRequests, ADefaultSystemTextStandsOnlyWhereThereIsNone) {
  ApiFixture api;
  api.settings.default_system = "D";
  const auto prompt = [&](const char* body) {
    return api.send("/apply-template", body)->json()["prompt"].get<std::string>();
  };
  EXPECT_TRUE(
      prompt(R"({"messages": [{"role": "user", "content": "a"}]})").starts_with("<｜begin▁of▁sentence｜>D<｜User｜>a"));
  EXPECT_TRUE(prompt(R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}]})")
                  .starts_with("<｜begin▁of▁sentence｜>S<｜User｜>a"));
  EXPECT_TRUE(prompt(
                  R"({"messages": [{"role": "user", "content": "a"}],
              "tools": [{"type": "function", "function": {"name": "f"}}]})")
                  .starts_with("<｜begin▁of▁sentence｜>D\n\n## Tools\n\n"));
}

TEST(ServerRequests, AnthropicSystemTextLosesTheBillingLine) {
  for (const char* system :
       {R"("x-anthropic-billing-header: a=1;\nA\n\nB")",
        R"([{"type": "text", "text": "x-anthropic-billing-header: a=2;"}, {"type": "text", "text": "A"},
                                 {"type": "text", "text": "B", "cache_control": {"type": "ephemeral"}}])"}) {
    ApiFixture api;
    api.send(
        "/v1/messages",
        std::string(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "u"}], "system": )") + system + "}");
    ASSERT_EQ(api.source.jobs.size(), 1u);
    EXPECT_EQ(api.prompt_of_last_job(), "<｜begin▁of▁sentence｜>A\n\nB<｜User｜>u<｜Assistant｜></think>");
  }
}

constexpr struct {
  const char *name, *target, *fields;
  bool thinks;
  const char* profile;
  const char* preamble;  // what its first word after the colon is; empty: none
} kModes[] = {
    {"the server's default is on", "/chat/completions", "", true, "preview", ""},
    {"an effort is on", "/chat/completions", R"("reasoning_effort": "low")", true, "preview", ""},
    {"effort none is off", "/chat/completions", R"("reasoning_effort": "none")", false, "preview", ""},
    {"an object counts before the effort", "/chat/completions",
     R"("thinking": {"type": "disabled"}, "reasoning_effort": "high")", false, "preview", ""},
    {"enable_thinking", "/chat/completions", R"("enable_thinking": false)", false, "preview", ""},
    {"template arguments", "/chat/completions", R"("chat_template_kwargs": {"thinking": false})", false, "preview", ""},
    {"deepseek-chat", "/chat/completions", R"("model": "deepseek-chat")", false, "preview", ""},
    {"deepseek-reasoner", "/chat/completions", R"("model": "deepseek-reasoner")", true, "preview", ""},
    {"max has a preamble in preview", "/chat/completions", R"("reasoning_effort": "max")", true, "preview", "Absolute"},
    {"high has it in 0731", "/chat/completions", R"("reasoning_effort": "xhigh")", true, "0731", "Absolute"},
    {"max has another in 0731", "/chat/completions", R"("reasoning_effort": "max")", true, "0731", "Beyond"},
    {"no preamble without thought", "/chat/completions", R"("reasoning_effort": "max", "think": false)", false, "0731",
     ""},
    {"anthropic: off unless it is asked for", "/messages", "", false, "preview", ""},
    {"anthropic: effort alone does not turn it on", "/messages", R"("output_config": {"effort": "high"})", false,
     "preview", ""},
    {"anthropic: adaptive", "/messages", R"("thinking": {"type": "adaptive"}, "output_config": {"effort": "max"})",
     true, "preview", "Absolute"},
    {"responses: effort in its object", "/responses", R"("reasoning": {"effort": "none"})", false, "preview", ""},
    {"responses: a summary alone says nothing", "/responses", R"("reasoning": {"summary": "auto"})", true, "preview",
     ""},
};

TEST(ServerRequests, TheFirstRuleThatAppliesDecidesWhetherToThink) {
  for (const auto& c : kModes) {
    SCOPED_TRACE(c.name);
    ApiFixture api;
    api.settings.profile = c.profile;
    const bool is_responses = std::string_view(c.target) == "/responses";
    std::string body = is_responses ? R"({"input": "u")" : R"({"messages": [{"role": "user", "content": "u"}])";
    if (*c.fields != 0) body += std::string(", ") + c.fields;
    const auto exchange = api.send(c.target, body + "}");
    ASSERT_EQ(api.source.jobs.size(), 1u) << exchange->body;
    const std::string prompt = api.prompt_of_last_job();
    EXPECT_EQ(prompt.ends_with("<｜Assistant｜><think>"), c.thinks) << prompt;
    const std::string preamble = "<｜begin▁of▁sentence｜>Reasoning Effort: " + std::string(c.preamble);
    EXPECT_EQ(prompt.starts_with(*c.preamble != 0 ? preamble : "<｜begin▁of▁sentence｜><｜User｜>"), true) << prompt;
  }
}

constexpr struct {
  const char *name, *target, *body;
  int status;
  const char* param;    // null in the body if empty
  const char* message;  // a part of it
} kErrors[] = {
    {"no JSON", "/chat/completions", "{", 400, "", "not JSON"},
    {"not an object", "/chat/completions", "[1]", 400, "body", "expected an object"},
    {"no messages", "/chat/completions", "{}", 400, "messages", "missing"},
    {"empty messages", "/chat/completions", R"({"messages": []})", 400, "messages", "empty, expected at least one"},
    {"messages of another type", "/chat/completions", R"({"messages": "hi"})", 400, "messages", "an array"},
    {"an unknown role", "/chat/completions", R"({"messages": [{"role": "robot", "content": "x"}]})", 400,
     "messages[0].role", "robot"},
    {"an image", "/chat/completions",
     R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})", 400,
     "messages[0].content[0].type", "image_url"},
    {"a number as content", "/chat/completions", R"({"messages": [{"role": "user", "content": 5}]})", 400,
     "messages[0].content", "5"},
    {"a temperature in words", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "temperature": "hot"})", 400, "temperature", "\"hot\""},
    {"a top_p out of range", "/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "top_p": 1.5})",
     400, "top_p", "1.5"},
    {"no tokens", "/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0})", 400,
     "max_tokens", "at least 1"},
    {"half a token", "/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1.5})", 400,
     "max_tokens", "whole"},
    {"an unknown effort", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "some"})", 400, "reasoning_effort",
     "some"},
    {"too many answers", "/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "n": 99})", 400, "n",
     "1 to 16"},
    {"alternatives without logprobs", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3})", 400, "top_logprobs", "logprobs"},
    {"an unknown tool type", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "robot"}]})", 400, "tools[0].type",
     "function"},
    {"a tool without a name", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {}}]})", 400,
     "tools[0].function.name", "missing"},
    {"the choice of a tool that is not there", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}],
         "tool_choice": {"type": "function", "function": {"name": "g"}}})",
     400, "tool_choice", "'g'"},
    {"a required call without tools", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})", 400, "tool_choice", "tools"},
    {"a strict schema with an unknown keyword", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema",
         "json_schema": {"strict": true, "schema": {"type": "object", "properties": {"a": {"not": {}}}}}}})",
     400, "response_format", "not"},
    {"GBNF", "/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "grammar": "root ::= x"})", 400,
     "grammar", "JSON schema"},
    {"audio", "/chat/completions",
     R"({"messages": [{"role": "user", "content": "x"}], "modalities": ["text", "audio"]})", 400, "modalities", "text"},
    {"no prompt", "/completions", "{}", 400, "prompt", "missing"},
    {"a token that is none", "/completions", R"({"prompt": [1, 999999]})", 400, "prompt", "999999"},
    {"best_of", "/completions", R"({"prompt": "x", "best_of": 3})", 400, "best_of", "n"},
    {"no input", "/responses", "{}", 400, "input", "missing"},
    {"a response that is not kept", "/responses", R"({"input": "x", "previous_response_id": "resp_1"})", 400,
     "previous_response_id", "full input"},
    {"an item that is not kept", "/responses", R"({"input": [{"type": "item_reference", "id": "msg_1"}]})", 400,
     "input[0].id", "msg_1"},
    {"an output without its call", "/responses",
     R"({"input": [{"type": "function_call_output", "call_id": "call_9", "output": "x"}]})", 400, "input[0].call_id",
     "call_9"},
    {"in the background", "/responses", R"({"input": "x", "background": true})", 400, "background", "waits"},
    {"anthropic: an unknown role", "/messages", R"({"messages": [{"role": "tool", "content": "x"}]})", 400, "",
     "messages[0].role"},
    {"anthropic: an image", "/messages", R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", 400, "",
     "image"},
    {"a temperature out of range", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "temperature": 101})~", 400, "temperature",
     R"~(101, expected 0 to 100)~"},
    {"which stop is none", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "stop": ["a", 1]})~", 400, "stop[1]",
     R"~(stop[1]: 1, expected a string)~"},
    {"a stop that is a number", "/chat/completions", R"~({"messages": [{"role": "user", "content": "x"}], "stop": 1})~",
     400, "stop", R"~(a string or an array of strings)~"},
    {"an unknown effort", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "huge"})~", 400, "reasoning_effort",
     R"~(expected none, minimal, low)~"},
    {"thinking in words", "/chat/completions", R"~({"messages": [{"role": "user", "content": "x"}], "thinking": "x"})~",
     400, "thinking", R"~(or true or false)~"},
    {"a budget in words", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled", "budget_tokens": "x"}})~",
     400, "thinking.budget_tokens", R"~(a whole number)~"},
    {"reasoning as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "reasoning": 5})~", 400, "reasoning",
     R"~(expected an object)~"},
    {"a tier as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "service_tier": 5})~", 400, "service_tier", R"~(a string)~"},
    {"parameters as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]})~",
     400, "tools[0].function.parameters", R"~(expected an object)~"},
    {"a description as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f", "description": 5}}]})~",
     400, "tools[0].function.description", R"~(a string)~"},
    {"strict in words", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f", "strict": "x"}}]})~",
     400, "tools[0].function.strict", R"~(true or false)~"},
    {"parameters of an older function", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "functions": [{"name": "f", "parameters": []}]})~", 400,
     "functions[0].parameters", R"~(an object)~"},
    {"the older choice has its own name", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "functions": [{"name": "f"}], "function_call": {"name": "g"}})~",
     400, "function_call", R"~(function_call: 'g')~"},
    {"a choice of no kind", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "x"}})~",
     400, "tool_choice.type", R"~(expected function, custom)~"},
    {"a choice as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tool_choice": 5})~", 400, "tool_choice",
     R"~(expected auto, none)~"},
    {"a schema as a number", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "json_schema": 5})~", 400, "json_schema",
     R"~(a JSON schema)~"},
    {"a top-level schema that is hopeless", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "json_schema": {"type": "integer", "minimum": 9, "maximum": 5}})~",
     400, "json_schema", R"~(there is none)~"},
    {"a malformed schema that is not strict", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": 5}}}})~",
     400, "response_format", R"~(pattern: 5, expected a string)~"},
    {"a strict tool with an unsupported keyword", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}}]})~",
     400, "tools", R"~(/properties/a: keyword "not" is not supported)~"},
    {"a text part without text", "/chat/completions",
     R"~({"messages": [{"role": "user", "content": [{"type": "text"}]}]})~", 400, "messages[0].content[0].text",
     R"~(missing)~"},
    {"reasoning content as a number", "/chat/completions",
     R"~({"messages": [{"role": "assistant", "reasoning_content": 5}]})~", 400, "messages[0].reasoning_content",
     R"~(a string)~"},
    {"no items", "/responses", R"~({"input": []})~", 400, "input", R"~(at least one item)~"},
    {"an empty input", "/responses", R"~({"input": ""})~", 400, "input", R"~(at least one item)~"},
    {"responses: reasoning as a number", "/responses", R"~({"input": "x", "reasoning": 5})~", 400, "reasoning",
     R"~(expected an object)~"},
    {"responses: parameters as a number", "/responses",
     R"~({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": 5}]})~", 400, "tools[0].parameters",
     R"~(an object)~"},
    {"responses: a choice of no kind", "/responses", R"~({"input": "x", "tool_choice": {"type": "x"}})~", 400,
     "tool_choice.type", R"~(function)~"},
    {"responses: a summary as a number", "/responses", R"~({"input": [{"type": "reasoning", "summary": 5}]})~", 400,
     "input[0].summary", R"~(an array of parts)~"},
    {"responses: a form by its own name", "/responses",
     R"~({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array", "minItems": 2, "maxItems": 1}}}})~",
     400, "text.format", R"~(text.format: schema at its root: maxItems)~"},
    {"responses: a strict tool", "/responses",
     R"~({"input": "x", "tools": [{"type": "function", "name": "f", "strict": true, "parameters": {"type": "object", "if": {}}}]})~",
     400, "tools", R"~(keyword "if" is not supported)~"},
    {"anthropic: a choice as a word", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "input_schema": {}}], "tool_choice": "any"})~",
     400, "", R"~(tool_choice: "any", expected an object)~"},
    {"anthropic: a choice of no kind", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "x"}})~",
     400, "", R"~(tool_choice.type: "x", expected auto, any, tool or none)~"},
    {"anthropic: a system that is an image", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "system": [{"type": "image"}]})~", 400, "",
     R"~(system[0].type)~"},
    {"anthropic: a system block without text", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "system": [{"type": "text"}]})~", 400, "",
     R"~(system[0].text: missing)~"},
    {"anthropic: a budget in words", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled", "budget_tokens": "x"}})~",
     400, "", R"~(thinking.budget_tokens)~"},
    {"anthropic: a schema as a number", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "input_schema": 5}]})~", 400, "",
     R"~(tools[0].input_schema: 5, expected an object)~"},
    {"anthropic: a form by its own name", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "output_config": {"format": {"type": "json_schema", "schema": {"type": "string", "minLength": 5, "maxLength": 3}}}})~",
     400, "", R"~(output_config.format: schema at its root: maxLength)~"},
    {"anthropic: a strict tool", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "strict": true, "input_schema": {"type": "object", "contains": {}}}]})~",
     400, "", R"~(keyword "contains" is not supported)~"},
    {"anthropic: a text block without text", "/messages",
     R"~({"messages": [{"role": "user", "content": [{"type": "text"}]}]})~", 400, "",
     R"~(messages[0].content[0].text: missing)~"},
    {"anthropic: a call whose input is a number", "/messages",
     R"~({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": 5}]}]})~", 400, "",
     R"~(messages[0].content[0].input)~"},
    {"anthropic: any of tools that were never shown", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "input_schema": {}, "defer_loading": true}], "tool_choice": {"type": "any"}})~",
     400, "", R"~(tool_choice: a call is required, expected tools that can be called: all have defer_loading)~"},
    {"anthropic: one tool that was never shown", "/messages",
     R"~({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "g", "input_schema": {}}, {"name": "f", "input_schema": {}, "defer_loading": true}], "tool_choice": {"type": "tool", "name": "f"}})~",
     400, "", R"~(tool_choice: 'f', expected a tool that the model has been shown)~"},
};

TEST(ServerRequests, WhatIsWrongIsRefusedByName) {
  for (const auto& c : kErrors) {
    SCOPED_TRACE(c.name);
    ApiFixture api;
    const auto exchange = api.send(c.target, c.body);
    EXPECT_EQ(exchange->status, c.status) << exchange->body;
    EXPECT_FALSE(exchange->is_stream);
    EXPECT_TRUE(api.source.jobs.empty());
    const Json body = exchange->json();
    const Json& error = body["error"];
    EXPECT_NE(error["message"].get<std::string>().find(c.message), std::string::npos) << exchange->body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    if (std::string_view(c.target) == "/messages") {
      EXPECT_EQ(body["type"], "error");
      EXPECT_TRUE(body.contains("request_id"));
      continue;
    }
    EXPECT_EQ(error["param"], *c.param == 0 ? Json(nullptr) : Json(c.param)) << exchange->body;
    EXPECT_TRUE(error.contains("code"));
  }
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  out.reserve(text.size() * static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// A chat body whose one message has this content, and more fields after it.
std::string chat_with(const std::string& content, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": )" + content + "}]" + more + "}";
}

TEST(ServerRequests, HostileBodiesAreRefusedInWordsAndReachNoModel) {
  const std::string deep = repeated("[", 1'000'000), name(100'000, 'n');
  const std::string schema = repeated(R"({"type":"array","items":)", 200) + "{}" + repeated("}", 200);
  const struct {
    const char* name;
    std::string body;
    bool is_of_chat = false;  // other protocols do not know the field
  } kCases[] = {
      {"nothing", ""},
      {"a million open brackets", deep},
      {"a million open objects", repeated(R"({"a":)", 1'000'000)},
      {"a deep value in an unknown field", chat_with("\"x\"", ", \"x\": " + deep)},
      {"deep content", chat_with(deep + repeated("]", 1'000'000))},
      {"bytes that are not UTF-8", chat_with("\"\xff\xfe\"")},
      {"an overlong form", chat_with("\"\xc0\xaf\"")},
      {"an encoded surrogate", chat_with("\"\xed\xa0\x80\"")},
      {"UTF-16", std::string("{\0\"\0", 4)},
      {"a NUL", chat_with(std::string("\"a\0b\"", 5))},
      {"a broken escape", chat_with(R"("\ud8")")},
      {"an unclosed string of 8 MiB", "{\"messages\": \"" + std::string(std::size_t{8} << 20, 'a')},
      {"a strict schema deeper than any",
       chat_with("\"x\"", R"(, "response_format": {"type": "json_schema",
           "json_schema": {"strict": true, "schema": )" +
                              schema + "}}"),
       true},
      {"a strict schema that refers to itself alone", chat_with("\"x\"", R"(, "response_format": {"type": "json_schema",
           "json_schema": {"strict": true, "schema": {"$ref": "#"}}})"),
       true},
      {"a pattern of a hundred million states", chat_with("\"x\"", R"~(, "response_format": {"type": "json_schema",
           "json_schema": {"strict": true, "schema": {"type": "string", "pattern": "((((a{100}){100}){100}){100})"}}})~"),
       true},
      {"a hundred thousand messages that do not fit",
       R"({"messages": [)" + repeated(R"({"role":"user","content":"x"},)", 100'000) + R"({"role":"user"}]})"},
      {"a tool's name of 100,000 bytes",
       chat_with("\"x\"", R"(, "tool_choice": {"type": "function", "function": {"name": ")" + name +
                              R"("}}, "tools": [{"type": "function", "function": {"name": "f"}}])"),
       true},
      {"a NUL behind the end", chat_with("\"x\"", "") + '\0'},
      {"a NUL and more behind the end", chat_with("\"x\"", "") + '\0' + "}"},
      {"a limit past 64 bits", chat_with("\"x\"", R"(, "max_tokens": 99999999999999999999999999)")},
      {"a bias of every kind", chat_with("\"x\"", R"(, "logit_bias": {"-1": 1, "x": {}, "99999999999999": 1e999})")},
  };
  ApiFixture api;
  for (const auto& c : kCases)
    for (const char* target : {"/chat/completions", "/messages", "/responses", "/completions"}) {
      if (c.is_of_chat && std::string_view(target) != "/chat/completions") continue;
      SCOPED_TRACE(std::string(c.name) + " to " + target);
      const auto exchange = api.send(target, c.body);
      EXPECT_TRUE(api.source.jobs.empty());
      EXPECT_EQ(exchange->status, 400) << exchange->body.substr(0, 1000);
      EXPECT_LT(exchange->body.size(), 4096u) << "what is wrong is not said back whole";
      EXPECT_TRUE(exchange->json()["error"]["message"].is_string());
    }
}

TEST(ServerRequests, APromptThatDoesNotFitIsRefusedInTheWordsThatAgentsLookFor) {
  ApiFixture api;
  api.settings.context = 100;
  const std::string text(150, '!');
  const auto chat = api.send("/v1/chat/completions",
                             R"({"stream": true, "messages": [{"role": "user", "content": ")" + text + R"("}]})");
  EXPECT_EQ(chat->status, 400);
  EXPECT_FALSE(chat->is_stream);
  Json error = chat->json()["error"];
  const std::string n = std::to_string(error["n_prompt_tokens"].get<int>());
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_ctx"], 100);
  EXPECT_EQ(error["message"], "This model's maximum context length is 100 tokens. However, your messages resulted in " +
                                  n + " tokens. Your input exceeds the context window of this model.");
  const auto message =
      api.send("/v1/messages", R"({"max_tokens": 9, "messages": [{"role": "user", "content": ")" + text + R"("}]})");
  EXPECT_EQ(message->status, 400);
  EXPECT_EQ(message->json()["error"]["message"], "prompt is too long: " + n + " tokens > 100 maximum");
  // One that is far too long is not counted to its end.
  const auto far = api.send("/v1/messages", R"({"max_tokens": 9, "messages": [{"role": "user", "content": ")" +
                                                std::string(5000, '!') + R"("}]})");
  EXPECT_EQ(far->status, 400);
  const std::string words = far->json()["error"]["message"];
  EXPECT_TRUE(words.starts_with("prompt is too long: ") && words.ends_with(" tokens > 100 maximum")) << words;
  const auto far_chat = api.send("/v1/chat/completions",
                                 R"({"messages": [{"role": "user", "content": ")" + std::string(5000, '!') + R"("}]})");
  const Json far_error = far_chat->json()["error"];
  const std::string least = std::to_string(far_error["n_prompt_tokens"].get<int>());
  EXPECT_EQ(far_error["message"],
            "This model's maximum context length is 100 tokens. However, your messages resulted in " + least +
                " tokens. Your input exceeds the context window of this model. It has at least " + least +
                ": they were not counted further.");
  // A limit that would go past the end is no error.
  const auto clamped =
      api.send("/v1/chat/completions", R"({"max_tokens": 100000, "messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(api.source.jobs.size(), 1u) << clamped->body;
}

TEST(ServerRequests, WhereAPromptThatDoesNotFitStandsIsTold) {
  const std::string text(150, '!');
  const struct {
    const char* target;
    Json body;
    const char* field;
  } cases[] = {
      {"/chat/completions", {{"messages", {{{"role", "user"}, {"content", text}}}}}, "messages"},
      {"/responses", {{"input", text}}, "input"},
      {"/completions", {{"prompt", text}}, "prompt"},
      {"/completion", {{"prompt", text}}, "prompt"},
      {"/completions", {{"prompt", std::string(5000, '!')}}, "prompt"},
      {"/infill", {{"input_prefix", text}, {"input_suffix", ""}}, "input_prefix"},
  };
  for (const auto& c : cases) {
    ApiFixture api;
    api.settings.context = 100;
    const Json error = api.ask(c.target, c.body)->json()["error"];
    EXPECT_EQ(error["param"], c.field) << c.target;
    EXPECT_EQ(error["code"], "context_length_exceeded") << c.target;
  }
}

TEST(ServerRequests, AModelsNameIsBounded) {
  for (const std::size_t bytes : {1000, 1001})
    for (const char* target : {"/chat/completions", "/completions", "/completion", "/messages", "/responses"}) {
      ApiFixture api;
      const auto exchange = api.send(target, R"({"max_tokens": 9, "prompt": "a", "input": "a",
          "messages": [{"role": "user", "content": "a"}], "model": ")" +
                                                 std::string(bytes, 'm') + R"("})");
      EXPECT_EQ(api.source.jobs.size(), bytes == 1000 ? 1u : 0u) << target << exchange->body;
      if (bytes == 1000) continue;
      EXPECT_EQ(exchange->status, 400) << target;
      EXPECT_LT(exchange->body.size(), 500u) << target;
    }
}

TEST(ServerRequests, ImagesBecomePlaceholdersIfTheServerIsToldSo) {
  ApiFixture api;
  api.replaces_unsupported = true;
  const auto exchange = api.send(
      "/apply-template",
      R"({"messages": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "a"}]}]})");
  EXPECT_EQ(exchange->json()["prompt"],
            "<｜begin▁of▁sentence｜><｜User｜>[Unsupported image_url]a<｜Assistant｜><think>");
}

TEST(ServerRequests, StatesAreToBeKeptWhereMessagesThatMayBeEditedBegin) {
  ApiFixture api;
  std::string words;
  for (int i = 0; i < 1200; ++i) words += "word ";
  const auto message = [](const char* role, const std::string& text) {
    return Json{{"role", role}, {"content", text}};
  };
  const Json messages = {message("system", "Be brief."), message("user", "one"),      message("assistant", "1"),
                         message("user", "two"),         message("assistant", words), message("user", "three"),
                         message("assistant", "3"),      message("user", "four")};
  api.send("/chat/completions", Json{{"messages", messages}}.dump());
  ASSERT_EQ(api.source.jobs.size(), 1u);
  const Job& job = api.source.jobs[0];
  std::vector<std::size_t> users;  // where the messages of the user's begin
  const std::optional<Token> user = api.tokenizer.find_added(kUserText);
  ASSERT_TRUE(user);
  for (std::size_t i = 0; i < job.prompt.size(); ++i)
    if (job.prompt[i] == *user) users.push_back(i);
  ASSERT_EQ(users.size(), 4u);
  EXPECT_EQ(job.marks, (std::vector<std::size_t>{users[0], users[2], users[3]})) << "the second is close to the first";
}

TEST(ServerRequests, SamplingFieldsReachTheJob) {
  ApiFixture api;
  api.send(
      "/chat/completions",
      R"({"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
               "seed": -5, "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"5": 100, "6": -100},
               "stop": ["a", ""],
               "max_tokens": 3, "max_completion_tokens": 9, "cache_prompt": false, "service_tier": "flex", "unknown": {"is": "ignored"}})");
  ASSERT_EQ(api.source.jobs.size(), 1u);
  const Job& job = api.source.jobs[0];
  EXPECT_EQ(job.sampling.temperature, 0.5f);
  EXPECT_EQ(job.sampling.top_p, 0.25f);
  EXPECT_EQ(job.sampling.top_k, 7);
  EXPECT_EQ(job.sampling.min_p, 0.125f);
  EXPECT_EQ(job.sampling.seed, static_cast<std::uint64_t>(-5));
  EXPECT_EQ(job.sampling.presence_penalty, 1);
  EXPECT_EQ(job.sampling.frequency_penalty, -1);
  ASSERT_EQ(job.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(job.sampling.logit_bias[1].token, 6);
  EXPECT_EQ(job.sampling.logit_bias[1].bias, -100);
  EXPECT_FALSE(job.penalise_prompt);
  EXPECT_FALSE(job.use_cache);
  EXPECT_EQ(job.priority, -1) << "service_tier: flex";
  EXPECT_EQ(job.limit, 9) << "the last one named counts";
  EXPECT_EQ(job.stop_tokens, stop_tokens_of(api.tokenizer));

  api.source.jobs.clear();
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 5; ++i)
    api.send("/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "seed": -1, "max_tokens": -1})");
  for (const Job& random : api.source.jobs) {
    seeds.insert(random.sampling.seed);
    EXPECT_EQ(random.limit, -1);
  }
  EXPECT_EQ(seeds.size(), 5u);
}

TEST(ServerRequests, AStrictServerServesOneNameAndOthersAnswerToAny) {
  ApiFixture api;
  EXPECT_EQ(api.ask("/chat/completions", {{"model", "gpt-x"}, {"messages", {{{"role", "user"}, {"content", "x"}}}}})
                ->json()["model"],
            "gpt-x");
  ApiFixture strict;
  strict.settings.is_strict_model = true;
  const auto refused =
      strict.send("/chat/completions", R"({"model": "gpt-x", "messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(refused->status, 404);
  EXPECT_EQ(refused->json()["error"]["code"], "model_not_found");
}

TEST(ServerRequests, CountingTokensNeedsNoSlotAndCountsWhatAMessageWouldHave) {
  ApiFixture api;
  for (const char* name : {"claude-code-first-turn", "claude-code-count-tokens", "claude-code-count-tokens-text"}) {
    SCOPED_TRACE(name);
    const Json body = recorded(name)["body"];
    const auto count = api.send("/v1/messages/count_tokens", json_text(body));
    EXPECT_TRUE(api.source.jobs.empty());
    api.send("/v1/messages", json_text(body));
    ASSERT_EQ(api.source.jobs.size(), 1u);
    EXPECT_EQ(count->json()["input_tokens"], api.source.jobs[0].prompt.size());
    api.source.jobs.clear();
  }
}

}  // namespace
}  // namespace lockstep::test
