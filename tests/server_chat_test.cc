// Chat completions: the exact order of events, and that a stream joins to the whole answer. The model is a script, so
// that a test knows what it says. Orders are those of docs/api.md.
#include <iterator>
#include <random>

#include "api_fixture.h"

namespace lockstep::test {
namespace {

const char* const kTools = R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])";

Json chat_body(bool is_stream = false) {
  return {{"model", "m"},
          {"stream", is_stream},
          {"stream_options", {{"include_usage", true}}},
          {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
}
Json chat_tools_body(bool is_stream = false) {
  Json body = chat_body(is_stream);
  body["tools"] = parse_json(kTools, "tools");
  return body;
}
/// Chunks in short: what each delta holds, equal neighbours once.
std::string chat_shape(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const Event& event : events) {
    std::string line;
    if (event.name == ":") {
      line = "comment";
    } else if (event.data.is_string()) {
      line = event.data.get<std::string>();
    } else if (event.data.contains("error")) {
      line = "error";
    } else if (event.data["choices"].empty()) {
      line = "usage";
    } else {
      const Json& choice = event.data["choices"][0];
      line = std::to_string(choice["index"].get<int>());
      for (const auto& [key, value] : choice["delta"].items()) line += " " + key;
      if (choice["delta"].contains("tool_calls") && choice["delta"]["tool_calls"][0].contains("id")) line += " begin";
      if (!choice["finish_reason"].is_null()) line += " =" + choice["finish_reason"].get<std::string>();
    }
    if (out.empty() || out.back() != line) out.push_back(line);
  }
  return joined(out);
}

/// The message that a chat stream joins to, as the blocking answer would show it.
Json joined_chat(const std::vector<Event>& events, int index = 0) {
  Json message = {{"role", nullptr}, {"content", ""}};
  Json finish = nullptr;
  for (const Event& event : events) {
    if (!event.data.is_object() || event.data["choices"].empty()) continue;
    const Json& choice = event.data["choices"][0];
    if (choice["index"] != index) continue;
    const Json& delta = choice["delta"];
    if (delta.contains("role")) message["role"] = delta["role"];
    for (const char* key : {"content", "reasoning_content"})
      if (delta.contains(key)) message[key] = message.value(key, "") + delta[key].get<std::string>();
    if (delta.contains("tool_calls")) {
      const Json& call = delta["tool_calls"][0];
      const auto k = call["index"].get<std::size_t>();
      if (call.contains("id")) {
        EXPECT_EQ(message.value("tool_calls", Json::array()).size(), k);
        Json begun = call;
        begun.erase("index");
        message["tool_calls"].push_back(begun);
      } else {
        Json& arguments = message["tool_calls"][k]["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  if (message["content"] == "" && message.contains("tool_calls")) message["content"] = nullptr;
  message["finish_reason"] = finish;
  return message;
}

void hide_ids(Json& value) {
  if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      if (key == "id" || key == "call_id" || key == "signature" || key == "encrypted_content") member = "ID";
      hide_ids(member);
    }
  } else if (value.is_array()) {
    for (Json& element : value) hide_ids(element);
  }
}

TEST(ServerChat, AnAnswerHasItsPartsInTheirPlaces) {
  ApiFixture api;
  api.source.scripts = {kThinkAndCall};
  api.source.reused = 5;
  const auto exchange = api.ask("/v1/chat/completions", chat_tools_body());
  ASSERT_EQ(exchange->status, 200) << exchange->body;
  const Json answer = exchange->json();
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "m");
  EXPECT_EQ(answer["system_fingerprint"], "fp_test");
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Think.");
  EXPECT_EQ(message["content"], "Look:");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  const std::string id = message["tool_calls"][0]["id"].get<std::string>();
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_GE(id.size(), 5u + 24);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Oslo", "days": 3})");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  const Json& usage = answer["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], api.tokenizer.encode("Think.</think>").size());
  EXPECT_FALSE(usage["prompt_tokens_details"].contains("cache_write_tokens"));
  EXPECT_EQ(answer["lockstep"]["back_end"], "script");
  EXPECT_EQ(answer["lockstep"]["drafted_tokens"], 0);
}

TEST(ServerChat, EventsComeInTheirOrder) {
  ApiFixture api;
  api.source.scripts = {kThinkAndCall};
  const auto exchange = api.ask("/v1/chat/completions", chat_tools_body(true));
  const std::vector<Event> events = events_of(exchange->stream);
  EXPECT_EQ(chat_shape(events),
            "0 role content\n0 reasoning_content\n0 content\n0 tool_calls begin\n0 tool_calls\n0 "
            "=tool_calls\nusage\n[DONE]\n");
  EXPECT_TRUE(events[events.size() - 2].data["usage"]["completion_tokens"].is_number_integer());
  for (const Event& event : events) {
    if (!event.data.is_object()) continue;
    EXPECT_EQ(event.data["id"], events[0].data["id"]);
    EXPECT_EQ(event.data["object"], "chat.completion.chunk");
  }
}

TEST(ServerChat, StreamsJoinToTheWholeAnswer) {
  const std::string long_text(300, 'x');
  const std::string scripts[] = {
      kThinkAndCall,
      "Think.</think>Hello.",
      "</think>caf\xc3\xa9 \xf0\x9f\x98\x80",
      "all of it is a thought",
      "t</think>" + call_block("get_weather", parameter("city", true, long_text)),
      "t</think>a<b\n\nc",
  };
  for (const bool is_cut : {false, true}) {
    for (const std::string& script : scripts) {
      SCOPED_TRACE(script.substr(0, 40));
      ApiFixture api;
      api.source.scripts = {script};
      api.source.is_cut = is_cut;
      Json whole = api.ask("/v1/chat/completions", chat_tools_body())->json()["choices"][0];
      whole["message"]["finish_reason"] = whole["finish_reason"];
      whole = whole["message"];
      const auto stream = api.ask("/v1/chat/completions", chat_tools_body(true));
      Json joined = joined_chat(events_of(stream->stream));
      hide_ids(whole);
      hide_ids(joined);
      EXPECT_TRUE(whole == joined) << whole << "\n" << joined;
      for (const char* marker : {"DSML", "<think>", "</think>"})
        EXPECT_EQ(whole.value("content", Json("")).dump().find(marker), std::string::npos);
    }
  }
}

/// Whatever is said: pieces of well-formed and broken output in any order.
TEST(ServerChat, AnyOutputStreamsToTheWholeAnswer) {
  const std::string pieces[] = {"a",
                                " b\n\n",
                                "<",
                                "</think>",
                                "<think>",
                                "\xc3\xa9",
                                "```\n",
                                kCall,
                                "<｜DSML｜tool_calls>\n",
                                "<｜DSML｜invoke name=\"get_weather\">\n",
                                "</｜DSML｜invoke>",
                                "</｜DSML｜tool_calls>",
                                parameter("city", true, "x\"y"),
                                parameter("days", false, "{"),
                                "<｜DSML｜parameter name=\"city\" string=\"true\">",
                                "STOP"};
  std::mt19937 random(7);
  int broken_off = 0;
  ApiFixture api;
  api.source.checks_masks = false;
  for (int i = 0; i < 400; ++i) {
    std::string script;
    for (auto k = random() % 9; k-- > 0;) script += pieces[random() % std::size(pieces)];
    SCOPED_TRACE(script);
    api.source.scripts = {script};
    api.source.is_cut = random() % 3 == 0;
    Json body = chat_tools_body();
    body["thinking"] = random() % 2 == 0;
    body["parallel_tool_calls"] = random() % 2 == 0;
    if (random() % 2 == 0) body["tool_choice"] = "none";
    if (random() % 2 == 0) body["stop"] = "STOP";
    Json whole = api.ask("/v1/chat/completions", body)->json()["choices"][0];
    whole["message"]["finish_reason"] = whole["finish_reason"];
    whole = whole["message"];
    body["stream"] = true;
    Json joined = joined_chat(events_of(api.ask("/v1/chat/completions", body)->stream));
    for (const Json& call : joined.value("tool_calls", Json::array()))
      if (joined["finish_reason"] != "length") {
        EXPECT_TRUE(parse_json(call["function"]["arguments"].get<std::string>(), "arguments").is_object());
      }
    // A call that broke off after a long value had begun is in the stream alone (docs/api.md).
    if (joined.value("tool_calls", Json::array()).size() > whole.value("tool_calls", Json::array()).size()) {
      ++broken_off;
      continue;
    }
    hide_ids(whole);
    hide_ids(joined);
    EXPECT_TRUE(whole == joined) << whole << "\n" << joined;
    const std::string content = whole["content"].is_string() ? whole["content"].get<std::string>() : "";
    EXPECT_EQ(content.find("think>"), std::string::npos);
  }
  EXPECT_LT(broken_off, 40);
}

TEST(ServerChat, ThoughtsStandInTheContentIfThatIsAskedFor) {
  ApiFixture api;
  api.source.scripts = {"Think.</think>Hello."};
  Json body = chat_body();
  body["reasoning_format"] = "none";
  const Json whole = api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"];
  EXPECT_EQ(whole["content"], "<think>Think.</think>Hello.");
  EXPECT_FALSE(whole.contains("reasoning_content"));
  body["stream"] = true;
  EXPECT_EQ(joined_chat(events_of(api.ask("/v1/chat/completions", body)->stream))["content"], whole["content"]);
}

TEST(ServerChat, StopStringsEndTheContentAndAreNotInIt) {
  for (const bool is_stream : {false, true}) {
    ApiFixture api;
    api.source.scripts = {"STOP in a thought</think>Hello STOP here"};
    Json body = chat_body(is_stream);
    body["stop"] = {"", "STOP"};
    const auto exchange = api.ask("/v1/chat/completions", body);
    const Json message =
        is_stream ? joined_chat(events_of(exchange->stream)) : exchange->json()["choices"][0]["message"];
    EXPECT_EQ(message["content"], "Hello ");
    EXPECT_EQ(message["reasoning_content"], "STOP in a thought");
    if (is_stream) {
      EXPECT_EQ(message["finish_reason"], "stop");
    }
  }
}

TEST(ServerChat, TheLimitAndTheStopAreTold) {
  ApiFixture api;
  api.source.scripts = {"t</think>Hello"};
  Json body = chat_body();
  body["max_tokens"] = 4;
  EXPECT_EQ(api.ask("/v1/chat/completions", body)->json()["choices"][0]["finish_reason"], "length");
  body["max_tokens"] = 400;
  EXPECT_EQ(api.ask("/v1/chat/completions", body)->json()["choices"][0]["finish_reason"], "stop");
}

TEST(ServerChat, SeveralAnswersHaveTheirOwnIndexAndSeed) {
  ApiFixture api;
  Json body = chat_body();
  body["n"] = 3;
  body["seed"] = 10;
  api.source.scripts = {"t</think>one", "t</think>two", "t</think>three"};
  api.send("/v1/chat/completions", json_text(body));
  ASSERT_EQ(api.source.jobs.size(), 3u);
  EXPECT_EQ(api.source.jobs[0].sampling.seed, 10u);
  EXPECT_EQ(api.source.jobs[2].sampling.seed, 12u);
  api.source.jobs.clear();
  const Json whole = api.ask("/v1/chat/completions", body)->json();
  ASSERT_EQ(whole["choices"].size(), 3u);
  EXPECT_EQ(whole["choices"][1]["message"]["content"], "two");
  EXPECT_EQ(whole["choices"][2]["index"], 2);
  api.source.scripts = {"t</think>one", "t</think>two", "t</think>three"};
  body["stream"] = true;
  const auto events = events_of(api.ask("/v1/chat/completions", body)->stream);
  EXPECT_EQ(joined_chat(events, 0)["content"], "one");
  EXPECT_EQ(joined_chat(events, 2)["content"], "three");
  EXPECT_EQ(events.back().data, "[DONE]");
}

TEST(ServerChat, LogprobsAreThoseOfTheVisibleContent) {
  const std::string markup = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke";
  const struct {
    const char* name;
    bool is_stream, has_tools;
    std::string content;
  } cases[] = {
      {"text", false, false, "a\xc3\xa9!"},
      {"text, streamed", true, false, "a\xc3\xa9!"},
      {"markup of tools that there are not", false, false, markup},
      {"markup of tools that are not to be called", false, true, markup},
      {"the same, streamed", true, true, markup},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const bool is_stream = c.is_stream;
    ApiFixture api;
    api.source.scripts = {"Think.</think>" + c.content};
    Json body = c.has_tools ? chat_tools_body(is_stream) : chat_body(is_stream);
    if (c.has_tools) body["tool_choice"] = "none";
    body["logprobs"] = true;
    body["top_logprobs"] = 2;
    const auto exchange = api.ask("/v1/chat/completions", body);
    Json entries = Json::array();
    if (is_stream) {
      for (const Event& event : events_of(exchange->stream)) {
        if (!event.data.is_object() || event.data["choices"].empty()) continue;
        const Json& choice = event.data["choices"][0];
        if (!choice.contains("logprobs")) continue;
        EXPECT_TRUE(choice["delta"].contains("content"));
        for (const Json& entry : choice["logprobs"]["content"]) entries.push_back(entry);
      }
    } else {
      entries = exchange->json()["choices"][0]["logprobs"]["content"];
    }
    std::string bytes;
    for (const Json& entry : entries) {
      for (const Json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
      EXPECT_EQ(entry["logprob"], -0.25);
      EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    }
    EXPECT_EQ(bytes, c.content);
  }
}

TEST(ServerChat, SilenceIsFilledWithCommentsAndThenAChunk) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  const auto exchange = api.send("/v1/chat/completions", json_text(chat_body(true)));
  EXPECT_TRUE(exchange->is_stream) << "the headers do not wait for the prompt";
  ASSERT_TRUE(exchange->silence);
  exchange->silence();
  EXPECT_EQ(exchange->stream, ": keep-alive\n\n");
  api.source.play();
  EXPECT_EQ(chat_shape(events_of(exchange->stream)),
            "comment\n0 role content\n0 reasoning_content\n0 content\n0 =stop\nusage\n[DONE]\n");
  exchange->silence();
  EXPECT_TRUE(exchange->stream.ends_with("data: [DONE]\n\n")) << "after the end nothing is said";
}

TEST(ServerChat, ProgressOfThePromptIsToldIfAskedFor) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  api.source.reused = 2;
  Json body = chat_body(true);
  body["return_progress"] = true;
  const auto events = events_of(api.ask("/v1/chat/completions", body)->stream);
  ASSERT_TRUE(events[0].data.contains("prompt_progress"));
  EXPECT_EQ(events[0].data["prompt_progress"]["cache"], 2);
}

TEST(ServerChat, AFailureInTheMiddleIsAnErrorAndNoDone) {
  ApiFixture api;
  api.source.scripts = {"t</think>xyz"};
  api.source.failure = "the device is gone";
  api.source.fails_after = 4;
  const auto stream = api.ask("/v1/chat/completions", chat_body(true));
  const auto events = events_of(stream->stream);
  EXPECT_EQ(chat_shape(events), "0 role content\n0 reasoning_content\n0 content\nerror\n");
  EXPECT_EQ(events.back().data["error"]["message"], "the device is gone");
  const auto whole = api.ask("/v1/chat/completions", chat_body());
  EXPECT_EQ(whole->status, 500);
  EXPECT_EQ(whole->json()["error"]["type"], "server_error");
}

TEST(ServerChat, AFullQueueAndAServerThatStopsAreToldBeforeAnyHeader) {
  ApiFixture api;
  api.source.refusal = Scheduler::Refusal::queue_full;
  for (const bool is_stream : {false, true}) {
    const auto exchange = api.ask("/v1/chat/completions", chat_body(is_stream));
    EXPECT_EQ(exchange->status, 429);
    EXPECT_FALSE(exchange->is_stream);
  }
  api.source.refusal = Scheduler::Refusal::stopping;
  EXPECT_EQ(api.ask("/v1/chat/completions", chat_body(true))->status, 503);
}

TEST(ServerChat, AClientThatLeavesEndsItsJob) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  const auto exchange = api.send("/v1/chat/completions", json_text(chat_body(true)));
  ASSERT_EQ(api.source.jobs.size(), 1u);
  EXPECT_FALSE(api.source.jobs[0].guide->is_cancelled());
  exchange->is_left = true;
  EXPECT_TRUE(api.source.jobs[0].guide->is_cancelled());
  api.source.play();
}

TEST(ServerChat, ARequiredCallLeavesNothingElseToSample) {
  ApiFixture api;
  Json body = chat_tools_body();
  body["thinking"] = false;
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  api.send("/v1/chat/completions", json_text(body));
  ASSERT_EQ(api.source.jobs.size(), 1u);
  std::vector<float> logits(api.tokenizer.size(), 0.0f);
  api.source.jobs[0].guide->mask(logits);
  const auto is_allowed = [&](std::string_view text) {
    return logits[static_cast<std::size_t>(api.tokenizer.encode(text)[0])] == 0.0f;
  };
  EXPECT_TRUE(is_allowed("<"));
  EXPECT_FALSE(is_allowed("H"));
  EXPECT_FALSE(is_allowed("<｜end▁of▁sentence｜>"));
  api.source.jobs.clear();
  api.source.scripts = {kCall};
  EXPECT_EQ(api.ask("/v1/chat/completions", body)->json()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(ServerChat, AFormIsHeldToAfterTheThoughtAndNotInIt) {
  ApiFixture api;
  Json body = chat_body();
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema",
                              {{"strict", true},
                               {"schema", parse_json(R"({"type": "object", "properties": {"a": {"type": "integer"}},
                                                  "required": ["a"], "additionalProperties": false})",
                                                     "s")}}}};
  api.source.scripts = {"any words</think>{\"a\":12}"};  // the script's tokens must all be allowed
  EXPECT_EQ(api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"]["content"], "{\"a\":12}");
  Json continued = body;
  continued["thinking"] = false;
  continued["messages"].push_back({{"role", "assistant"}, {"content", "{\"a\":"}, {"prefix", true}});
  api.source.scripts = {"3}"};
  EXPECT_EQ(api.ask("/v1/chat/completions", continued)->json()["choices"][0]["message"]["content"], "3}");
  continued["messages"][1]["content"] = "no JSON";
  EXPECT_EQ(api.ask("/v1/chat/completions", continued)->status, 400);
  // Within the thought any word may come, but not the end: the form would be missing.
  api.send("/v1/chat/completions", json_text(body));
  std::vector<float> logits(api.tokenizer.size(), 0.0f);
  api.source.jobs.back().guide->mask(logits);
  EXPECT_EQ(logits[static_cast<std::size_t>(api.tokenizer.encode("H")[0])], 0.0f);
  EXPECT_LT(logits[static_cast<std::size_t>(*api.tokenizer.eos())], 0.0f);
  api.source.jobs.clear();
  // With tools beside it the answer is of the form, or calls.
  body["tools"] = parse_json(kTools, "tools");
  for (const std::string& script : {std::string("t</think>{\"a\":12}"), "t</think>" + kCall}) {
    api.source.scripts = {script};
    EXPECT_EQ(api.ask("/v1/chat/completions", body)->status, 200);
  }
}

TEST(ServerChat, OnlyAnAnswerThatIsHeldToAFormNeedsItsLogits) {
  ApiFixture api;
  api.send("/v1/chat/completions", json_text(chat_body()));
  EXPECT_FALSE(api.source.jobs.back().guide->masks());
  api.send("/v1/completions", R"({"model": "m", "prompt": "a", "max_tokens": 1})");
  EXPECT_FALSE(api.source.jobs.back().guide->masks());
  for (const bool thinks : {false, true}) {
    Json body = chat_body();
    body["thinking"] = thinks;
    body["response_format"] = {{"type", "json_object"}};
    api.send("/v1/chat/completions", json_text(body));
    EXPECT_TRUE(api.source.jobs.back().guide->masks());
  }
  ASSERT_EQ(api.source.jobs.size(), 4u);
  api.source.jobs.clear();
}

TEST(ServerChat, ABudgetClosesAThought) {
  ApiFixture api;
  Json body = chat_body();
  body["thinking_budget"] = 3;
  api.source.scripts = {"?!?Hello"};
  const Json message = api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "?!?");
  EXPECT_EQ(message["content"], "Hello");
  EXPECT_EQ(api.source.forced_tokens, std::vector<Token>{api.tokenizer.require_added("</think>")});
}

TEST(ServerChat, WithoutParallelCallsTheFirstOneIsTheLast) {
  ApiFixture api;
  Json body = chat_tools_body();
  body["parallel_tool_calls"] = false;
  api.source.checks_masks = false;  // the second call is what the grammar would not let come
  const std::string one =
      "<｜DSML｜invoke name=\"get_weather\">\n" + parameter("city", true, "A") + "\n</｜DSML｜invoke>\n";
  api.source.scripts = {"t</think>\n\n<｜DSML｜tool_calls>\n" + one + one + "</｜DSML｜tool_calls>"};
  const Json message = api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"].size(), 1u);
  body["tool_choice"] = "none";
  EXPECT_FALSE(api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"].contains("tool_calls"));
}

TEST(ServerChat, ACallComesBackAsItWasSampled) {
  ApiFixture api;
  api.source.checks_masks = false;
  // Not as the renderer writes it: no blank line before the block, and a number with an exponent.
  const std::string sampled = "Think.</think>Look:<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n" +
                              parameter("city", true, "Oslo") + "\n" + parameter("days", false, "3e0") +
                              "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  api.source.scripts = {sampled};
  Json body = chat_tools_body();
  Json message = api.ask("/v1/chat/completions", body)->json()["choices"][0]["message"];
  message.erase("reasoning_content");  // as Continue does
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "rain"}});
  api.send("/v1/chat/completions", json_text(body));
  const std::string prompt = api.prompt_of_last_job();
  EXPECT_NE(prompt.find("<｜Assistant｜><think>" + sampled + "<｜end▁of▁sentence｜><｜User｜><tool_result>rain"),
            std::string::npos)
      << prompt;
  body["messages"][1]["tool_calls"][0]["function"]["arguments"] = R"({"city": "Bergen"})";
  api.send("/v1/chat/completions", json_text(body));
  EXPECT_NE(api.prompt_of_last_job().find("Bergen"), std::string::npos) << "what the client changed is as it wrote it";
}

}  // namespace
}  // namespace lockstep::test
