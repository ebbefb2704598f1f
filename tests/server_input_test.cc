// What is asked for is either done or refused: parts of requests that would change the answer if they were passed over,
// and what is of another type than it should be.
#include "api_fixture.h"

namespace lockstep::test {
namespace {

constexpr const char* kTools = R"(, "tools": [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}},
     "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}},
     "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}])";

std::string chat_body(const std::string& more) {
  return R"({"thinking": false, "messages": [{"role": "user", "content": "x"}])" + more + "}";
}
std::string response_body(const std::string& more) { return R"({"thinking": false, "input": "x")" + more + "}"; }

TEST(ServerInput, OnlyAllowedToolsCanBeCalledThoughAllAreShown) {
  const struct {
    const char *name, *target, *choice;
    bool may_f, may_g, may_speak;
  } kCases[] = {
      {"chat, automatic", "/chat/completions",
       R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
           "tools": [{"type": "function", "function": {"name": "g"}}]}})",
       false, true, true},
      {"chat, required", "/chat/completions",
       R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
           "tools": [{"type": "function", "function": {"name": "g"}}]}})",
       false, true, false},
      {"chat, both", "/chat/completions",
       R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
           {"type": "function", "function": {"name": "g"}}, {"type": "function", "function": {"name": "f"}}]}})",
       true, true, false},
      {"responses, automatic", "/responses",
       R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})", true, false, true},
      {"responses, required", "/responses",
       R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]})", true, false,
       false},
      {"responses, beside one that a server would run", "/responses",
       R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"},
           {"type": "function", "name": "f"}]})",
       true, false, false},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto body = [&](const std::string& choice) {
      const std::string more = kTools + (choice.empty() ? choice : ", \"tool_choice\": " + choice);
      return std::string_view(c.target) == "/responses" ? response_body(more) : chat_body(more);
    };
    for (const auto& [text, may] : {std::pair(call_block("f", ""), c.may_f), std::pair(call_block("g", ""), c.may_g),
                                    std::pair(std::string("Hello"), c.may_speak)}) {
      ApiFixture api;
      const auto exchange = api.send(c.target, body(c.choice));
      ASSERT_EQ(api.source.jobs.size(), 1u) << exchange->body;
      const std::string prompt = api.prompt_of_last_job();
      EXPECT_EQ(may_say(api, text), may) << text;
      api.send(c.target, body(""));
      EXPECT_EQ(prompt, api.prompt_of_last_job());
    }
  }
  // With none left, markup is text.
  ApiFixture api;
  api.source.scripts = {call_block("f", "")};
  const auto exchange = api.ask("/responses", parse_json(response_body(std::string(kTools) + R"(, "tool_choice":
      {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]})"),
                                                         "body"));
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  EXPECT_EQ(exchange->json()["output"][0]["content"][0]["text"], call_block("f", ""));
}

TEST(ServerInput, WhatIsNotAsItShouldBeIsRefusedByName) {
  const std::string call = R"({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}, )";
  const std::string use = R"({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}, )";
  const auto chat = [](const std::string& message) { return R"({"messages": [)" + message + "]}"; };
  const auto result = [&](const std::string& block) {
    return chat(use + R"({"role": "user", "content": [)" + block + "]}");
  };
  const auto items = [](const std::string& item) {
    return R"({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, )" + item + "]}";
  };
  const auto allowed = [](const std::string& more) {
    return chat_body(kTools + (R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {)" + more + "}}"));
  };
  const struct {
    const char *name, *target;
    std::string body;
    const char *param, *message;
  } kCases[] = {
      {"a tool's result as a number", "/chat/completions",
       chat(call + R"({"role": "tool", "tool_call_id": "c", "content": 5})"), "messages[1].content",
       "5, expected a str"},
      {"a tool's result as an object", "/chat/completions",
       chat(call + R"({"role": "tool", "tool_call_id": "c", "content": {"a": 1}})"), "messages[1].content",
       "an object, expected a string or an array"},
      {"a tool's result without the id of its call", "/chat/completions",
       chat(call + R"({"role": "tool", "content": "x"})"), "messages[1].tool_call_id", "missing"},
      {"messages that are none", "/chat/completions", chat(""), "messages", "messages: empty, expected at least one"},
      {"anthropic: messages that are none", "/messages", chat(""), "", "messages: empty, expected at least one"},
      {"anthropic: a result as a number", "/messages",
       result(R"({"type": "tool_result", "tool_use_id": "c", "content": 5})"), "",
       "messages[1].content[0].content: 5, expected a string"},
      {"anthropic: a result without the id of its call", "/messages",
       result(R"({"type": "tool_result", "content": "x"})"), "", "messages[1].content[0].tool_use_id: missing"},
      {"anthropic: a choice of OpenAI's", "/messages",
       R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "allowed_tools"}})", "",
       "expected auto, any, tool or none"},
      {"responses: an output as a number", "/responses",
       items(R"({"type": "function_call_output", "call_id": "c", "output": 5})"), "input[1].output",
       "5, expected a string"},
      {"responses: an output that is not there", "/responses",
       items(R"({"type": "function_call_output", "call_id": "c"})"), "input[1].output", "missing"},
      {"responses: a reference without its type", "/responses", items(R"({"id": "msg_nope"})"), "input[1].id",
       "'msg_nope' is no item"},
      {"responses: a reference whose type is null", "/responses", items(R"({"id": "msg_nope", "type": null})"),
       "input[1].id", "'msg_nope' is no item"},
      {"responses: a reference to nothing", "/responses", items(R"({"type": "item_reference"})"), "input[1].id",
       "missing"},
      {"responses: an item of no type", "/responses", items(R"({"content": "x"})"), "input[1].type", "missing"},
      {"responses: a response without a name", "/responses", response_body(R"(, "previous_response_id": "")"),
       "previous_response_id", "'' is not kept here"},
      {"responses: a prompt that is kept elsewhere", "/responses", response_body(R"(, "prompt": {"id": "pmpt_1"})"),
       "prompt", "no prompts are kept here"},
      {"allowed tools that are none", "/chat/completions", allowed(R"("mode": "auto", "tools": [])"),
       "tool_choice.allowed_tools.tools", "empty"},
      {"allowed tools that are not there", "/chat/completions", allowed(R"("mode": "auto")"),
       "tool_choice.allowed_tools.tools", "missing"},
      {"an allowed tool that is not there", "/chat/completions",
       allowed(R"("mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}])"),
       "tool_choice.allowed_tools.tools[0].function.name", "'h'"},
      {"an allowed tool of no kind", "/chat/completions", allowed(R"("mode": "auto", "tools": [{"type": "robot"}])"),
       "tool_choice.allowed_tools.tools[0].type", "robot"},
      {"a mode that is none", "/chat/completions",
       allowed(R"("mode": "none", "tools": [{"type": "function", "function": {"name": "f"}}])"),
       "tool_choice.allowed_tools.mode", "auto or required"},
      {"allowed tools that only a server could run", "/responses",
       response_body(std::string(kTools) +
                     R"(, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp"}]})"),
       "tool_choice", "a server would have to run"},
      {"a number beyond a double", "/chat/completions", chat_body(R"(, "top_p": 1e999)"), "",
       "body: a number past the range of a double: 1e999"},
      {"a number beyond 64 bits", "/chat/completions", chat_body(R"(, "top_k": 1000000000000000000000000000000)"),
       "top_k", "top_k: 1000000000000000000000000000000, expected a whole number of 64 bits"},
      {"one that need not be whole", "/chat/completions", chat_body(R"(, "temperature": 1000000000000000000000000)"),
       "temperature", "temperature: 1000000000000000000000000, expected 0 to 100"},
      {"a number of a hundred digits", "/chat/completions", chat_body(", \"top_k\": 1" + std::string(99, '0')), "top_k",
       "top_k: a number of 100 bytes, expected"},
  };
  ApiFixture api;
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto exchange = api.send(c.target, c.body);
    EXPECT_TRUE(api.source.jobs.empty());
    api.source.jobs.clear();
    EXPECT_EQ(exchange->status, 400) << exchange->body;
    const Json error = exchange->json()["error"];
    EXPECT_NE(error["message"].get<std::string>().find(c.message), std::string::npos) << exchange->body;
    if (std::string_view(c.target) == "/messages") continue;
    EXPECT_EQ(error["param"], *c.param == 0 ? Json(nullptr) : Json(c.param)) << exchange->body;
  }
}

TEST(ServerInput, WhatMayBeLeftOutMayBe) {
  const struct {
    const char *name, *target, *body;
  } kCases[] = {
      {"the id of the older role", "/chat/completions",
       R"({"messages": [{"role": "assistant", "function_call": {"name": "f"}}, {"role": "function", "content": "x"}]})"},
      {"a result of nothing", "/chat/completions",
       R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
           {"role": "tool", "tool_call_id": "c", "content": null}]})"},
      {"a result of a call that is not there", "/chat/completions",
       R"({"messages": [{"role": "user"}, {"role": "tool", "tool_call_id": "c", "content": "x"}]})"},
      {"anthropic: a result of nothing", "/messages",
       R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}]})"},
      {"responses: an item of a kind that is not known", "/responses",
       R"({"input": [{"type": "robot_call", "id": "x"}, {"role": "user", "content": "x"}]})"},
      {"responses: null is absent", "/responses", R"({"input": "x", "previous_response_id": null, "prompt": null})"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    ApiFixture api;
    const auto exchange = api.send(c.target, c.body);
    EXPECT_EQ(api.source.jobs.size(), 1u) << exchange->body;
  }
}

TEST(ServerInput, AReferenceNeedsNoType) {
  ApiFixture api;
  api.source.scripts = {"Think.</think>Hello."};
  const Json first = api.ask("/responses", parse_json(R"({"input": "hi"})", "body"))->json();
  const auto prompt = [&](Json type) {
    Json items = Json::array({{{"role", "user"}, {"content", "hi"}}});
    for (const Json& item : first["output"]) {
      items.push_back({{"id", item["id"]}});
      if (type != "") items.back()["type"] = type;
    }
    items.push_back({{"role", "user"}, {"content", "more"}});
    api.source.jobs.clear();
    const auto exchange = api.send("/responses", json_text({{"input", items}}));
    EXPECT_EQ(api.source.jobs.size(), 1u) << exchange->body;
    return api.prompt_of_last_job();
  };
  const std::string typed = prompt("item_reference");
  EXPECT_NE(typed.find("Hello."), std::string::npos) << typed;
  EXPECT_EQ(prompt(""), typed);
  EXPECT_EQ(prompt(nullptr), typed);
}

TEST(ServerInput, AStrictServerTellsAllItsNames) {
  ApiFixture api;
  api.settings.is_strict_model = true;
  api.settings.aliases = {"flash", "small"};
  const auto exchange = api.send("/chat/completions", chat_body(R"(, "model": "gpt-x")"));
  EXPECT_EQ(exchange->status, 404);
  EXPECT_EQ(exchange->json()["error"]["message"],
            "model: 'gpt-x' is not served here, expected 'deepseek-v4-flash', 'flash' or 'small'");
}

}  // namespace
}  // namespace lockstep::test
