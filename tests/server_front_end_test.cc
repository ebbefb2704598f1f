// What a chat front end sends: Open WebUI, which could not be run here. The shapes of its requests are written down by
// hand, from its documentation and its source (routers/openai.py, routers/tasks.py, utils/payload.py): a chat, its
// tools in both of its modes, files, the tasks that it runs in the background, and what it reads of the answers.
#include "api_fixture.h"

namespace lockstep::test {
namespace {

const std::string kHistory = R"({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "What color is the sky?"})";

/// The body of a chat with `more` members.
std::string chat(const std::string& messages, const std::string& more) {
  return R"({"stream": true, "model": "deepseek-v4-flash", "messages": [)" + messages + "]" + more + "}";
}

/// A task in the background: one message, not streamed.
std::string task(const std::string& name, const std::string& more) {
  return R"({"model": "deepseek-v4-flash", "messages": [{"role": "user", "content": "### Task:\nGenerate )" + name +
         R"(.\n### Output:\nJSON format: { \"x\": \"...\" }\n### Chat History:\n<chat_history>\nUSER: Hi.\n)" +
         R"(</chat_history>"}], "stream": false)" + more + "}";
}

const std::string kSearch = R"({"type": "function", "function": {"name": "search_web", "description": "Search the web.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string", "description": ""},
    "count": {"type": "integer", "default": 5}}, "required": ["query"]}}})";

TEST(ServerFrontEnd, ChatsAndTheTasksBehindThemAreAnswered) {
  const struct {
    const char* name;
    std::string body;
  } kCases[] = {
      {"a chat", chat(kHistory, R"(, "stream_options": {"include_usage": true})")},
      {"every advanced parameter",
       chat(kHistory, R"(, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 128, "seed": 42,
            "frequency_penalty": 0.5, "presence_penalty": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64,
            "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0, "tfs_z": 1, "num_ctx": 2048, "num_keep": 24,
            "num_batch": 512, "num_thread": 4, "num_gpu": 0, "think": true, "keep_alive": "5m",
            "stop": ["<end>"], "logit_bias": {"5": -100}, "reasoning_effort": "medium",
            "response_format": {"type": "text"})")},
      {"parameters that are empty",
       chat(kHistory, R"(, "temperature": null, "top_p": null, "max_tokens": null, "stop": null, "seed": null,
            "logit_bias": null, "reasoning_effort": null, "response_format": null, "tools": null)")},
      {"a connection straight from the browser",
       chat(kHistory, R"(, "params": {}, "files": [{"type": "file", "id": "a", "name": "a.txt", "file": {"data": {}}}],
            "filter_ids": [], "tool_servers": [], "features": {"web_search": false, "image_generation": false},
            "variables": {"{{USER_NAME}}": "A", "{{CURRENT_DATE}}": "2026-11-30"}, "session_id": "s", "chat_id": "c",
            "id": "m", "background_tasks": {"title_generation": true, "tags_generation": true},
            "model_item": {"id": "deepseek-v4-flash", "owned_by": "openai", "urlIdx": 0},
            "metadata": {"user_id": "u", "task": null})")},
      {"a person and the valves of a pipeline",
       chat(kHistory, R"(, "user": {"name": "A", "id": "1", "email": "a@b.c", "role": "admin"}, "chat_id": "c",
            "title": true)")},
      {"a title", task("a title", R"(, "max_completion_tokens": 1000)")},
      {"a title, with the older limit", task("a title", R"(, "max_tokens": 1000)")},
      {"tags", task("tags", R"(, "metadata": {"task": "tags_generation", "chat_id": "c"})")},
      {"what may be asked next", task("follow-ups", "")},
      {"a query for its search", task("queries", "")},
      {"the end of what is being typed", task("the rest", R"(, "stop": ["\n"], "temperature": 0.1)")},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    ApiFixture api;
    api.source.scripts = {"A thought.</think>Hello."};
    const Json body = parse_json(c.body, "body");
    const auto exchange = api.ask("/v1/chat/completions", body);
    ASSERT_EQ(exchange->status, 200) << exchange->body;
    EXPECT_TRUE(exchange->is_done());
    ASSERT_EQ(exchange->is_stream, body["stream"].get<bool>());
    if (exchange->is_stream) {
      const std::vector<Event> events = events_of(exchange->stream);
      ASSERT_GE(events.size(), 3u);
      EXPECT_EQ(events.back().data, "[DONE]");
      const Json& last = events[events.size() - 2].data;
      EXPECT_EQ(last.contains("usage") && last["choices"].empty(), body.contains("stream_options"));
    } else {  // it takes the JSON out of the content, where no thought may stand
      const Json message = exchange->json()["choices"][0]["message"];
      EXPECT_EQ(message["content"], "Hello.");
      EXPECT_EQ(message["reasoning_content"], "A thought.");
    }
  }
}

TEST(ServerFrontEnd, LimitsOfTasksAreHeld) {
  ApiFixture api;
  api.send("/v1/chat/completions", task("a title", R"(, "max_completion_tokens": 1000)"));
  EXPECT_EQ(api.source.jobs.back().limit, 1000);
  api.send("/v1/chat/completions", task("a title", R"(, "max_tokens": 50)"));
  EXPECT_EQ(api.source.jobs.back().limit, 50);
  const auto emoji = api.send("/v1/chat/completions", task("an emoji", R"(, "max_completion_tokens": 4)"));
  EXPECT_EQ(api.source.jobs.back().limit, 4);
  api.source.scripts = {"A thought that takes more than this.</think>Hello."};
  api.source.play();
  EXPECT_EQ(emoji->json()["choices"][0]["finish_reason"], "length");
}

/// The text of files and of the web comes as a part of the message, or of the system text.
TEST(ServerFrontEnd, FilesThatBecameTextAreRead) {
  ApiFixture api;
  const std::string source = "<source id=\"1\" name=\"notes.txt\">The color is green.</source>";
  const Json messages =
      Json::array({{{"role", "system"}, {"content", "Be brief."}},
                   {{"role", "user"},
                    {"content", "### Task:\nRespond.\n\n<context>\n" + source + "\n</context>\n\nWhich color?"}}});
  api.send("/v1/chat/completions", json_text({{"model", "m"}, {"stream", true}, {"messages", messages}}));
  const std::string prompt = api.prompt_of_last_job();
  EXPECT_NE(prompt.find(source), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("Be brief."), std::string::npos);
}

TEST(ServerFrontEnd, FilesThatAreNoTextAreRefusedByNameOrReplaced) {
  const struct {
    const char *type, *part;
  } kParts[] = {
      {"image_url", R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}})"},
      {"file", R"({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:text/plain;base64,YQ=="}})"},
      {"input_audio", R"({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})"},
  };
  for (const auto& part : kParts) {
    SCOPED_TRACE(part.type);
    const std::string body = chat(
        R"({"role": "user", "content": [{"type": "text", "text": "What is this?"}, )" + std::string(part.part) + "]}",
        "");
    ApiFixture strict;
    const auto refused = strict.send("/v1/chat/completions", body);
    EXPECT_EQ(refused->status, 400);
    EXPECT_FALSE(refused->is_stream);
    EXPECT_NE(refused->json()["error"]["message"].get<std::string>().find(part.type), std::string::npos)
        << refused->body;
    ApiFixture lenient;
    lenient.replaces_unsupported = true;
    lenient.source.scripts = {"A thought.</think>Hello."};
    EXPECT_EQ(lenient.ask("/v1/chat/completions", parse_json(body, "body"))->status, 200);
  }
}

TEST(ServerFrontEnd, ToolsOfTheNativeModeAreCalledAndTheirResultsRead) {
  ApiFixture api;
  api.source.scripts = {
      "Look.</think>" +
          call_block("search_web", "<｜DSML｜parameter name=\"query\" string=\"true\">sky</｜DSML｜parameter>"),
      "Done.</think>Blue."};
  const std::string more = R"(, "tools": [)" + kSearch + R"(], "stream_options": {"include_usage": true})";
  const auto first = api.ask("/v1/chat/completions", parse_json(chat(kHistory, more), "body"));
  ASSERT_TRUE(first->is_stream) << first->body;
  // It puts the pieces of a call together by their index, and runs the tool when the reason to end says so.
  std::string id, name, arguments, finish;
  for (const Event& event : events_of(first->stream)) {
    if (!event.data.is_object() || event.data["choices"].empty()) continue;
    const Json& choice = event.data["choices"][0];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"].get<std::string>();
    if (!choice["delta"].contains("tool_calls")) continue;
    for (const Json& call : choice["delta"]["tool_calls"]) {
      EXPECT_EQ(call["index"], 0);
      if (call.contains("id")) id += call["id"].get<std::string>();
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(name, "search_web");
  EXPECT_EQ(arguments, R"({"query": "sky"})");
  EXPECT_EQ(finish, "tool_calls");
  // The turn goes back with an empty content, whole calls with their index, and the result as a string.
  const Json function = {{"name", name}, {"arguments", arguments}};
  const Json call = {{"index", 0}, {"id", id}, {"type", "function"}, {"function", function}};
  const Json turn = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}};
  const Json result = {{"role", "tool"}, {"tool_call_id", id}, {"content", "The sky is blue."}};
  const std::string messages = kHistory + ", " + json_text(turn) + ", " + json_text(result);
  const auto second = api.send("/v1/chat/completions", chat(messages, more));
  const std::string prompt = api.prompt_of_last_job();
  EXPECT_NE(prompt.find("The sky is blue."), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("Look.</think>"), std::string::npos) << "the turn is repeated as it was sampled";
  api.source.play();
  EXPECT_EQ(events_of(second->stream).back().data, "[DONE]");
}

/// In its other mode the tools are told in a text and the answer is expected to be JSON; their results come as text.
TEST(ServerFrontEnd, ToolsOfTheDefaultModeAreText) {
  ApiFixture api;
  api.source.scripts = {"A thought.</think>{\"tool_calls\": []}"};
  const std::string tools = R"(Available Tools: [{"name": "search_web", "parameters": {}}] Return {"tool_calls": []})";
  const Json messages = Json::array(
      {{{"role", "system"}, {"content", tools}}, {{"role", "user"}, {"content", "Query: What color is the sky?"}}});
  const auto exchange = api.ask(
      "/v1/chat/completions",
      {{"model", "m"}, {"stream", false}, {"metadata", {{"task", "function_calling"}}}, {"messages", messages}});
  EXPECT_EQ(exchange->json()["choices"][0]["message"]["content"], "{\"tool_calls\": []}");
  EXPECT_EQ(exchange->json()["choices"][0]["finish_reason"], "stop");
}

}  // namespace
}  // namespace lockstep::test
