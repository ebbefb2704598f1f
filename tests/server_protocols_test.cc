// Anthropic's messages, responses and plain completions: the exact order of events, and that a stream joins to the
// whole answer. The model is a script. Orders are those of docs/api.md.
#include <filesystem>

#include "api_fixture.h"

namespace lockstep::test {
namespace {

const char* const kTools = R"([{"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}])";

Json anthropic_body(bool is_stream = false) {
  return {{"model", "m"},
          {"stream", is_stream},
          {"max_tokens", 1000},
          {"thinking", {{"type", "adaptive"}}},
          {"tools",
           Json::array({{{"name", "get_weather"}, {"input_schema", parse_json(kTools, "tools")[0]["parameters"]}}})},
          {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
}
Json response_body(bool is_stream = false) {
  Json tool = parse_json(kTools, "tools")[0];
  tool["type"] = "function";
  return {{"model", "m"}, {"stream", is_stream}, {"input", "hi"}, {"tools", Json::array({tool})}};
}

/// Names of events, equal neighbours once.
std::string names(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const Event& event : events) {
    EXPECT_EQ(event.data["type"], event.name);
    if (out.empty() || out.back() != event.name) out.push_back(event.name);
  }
  return joined(out);
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

/// The content blocks that a stream of messages joins to.
Json joined_blocks(const std::vector<Event>& events) {
  Json blocks = Json::array();
  std::string arguments;
  int open = -1;
  for (const Event& event : events) {
    const Json& data = event.data;
    if (event.name == "content_block_start") {
      EXPECT_EQ(open, -1) << "one block at a time";
      open = data["index"].get<int>();
      EXPECT_EQ(static_cast<std::size_t>(open), blocks.size());
      blocks.push_back(data["content_block"]);
      arguments.clear();
    } else if (event.name == "content_block_delta") {
      EXPECT_EQ(data["index"], open);
      const Json& delta = data["delta"];
      Json& block = blocks.back();
      for (const char* key : {"thinking", "text", "signature"})
        if (delta.contains(key)) block[key] = block[key].get<std::string>() + delta[key].get<std::string>();
      if (delta.contains("partial_json")) arguments += delta["partial_json"].get<std::string>();
    } else if (event.name == "content_block_stop") {
      EXPECT_EQ(data["index"], open);
      if (blocks.back()["type"] == "tool_use") blocks.back()["input"] = parse_json(arguments, "arguments");
      open = -1;
    }
  }
  EXPECT_EQ(open, -1);
  return blocks;
}

TEST(ServerAnthropic, EventsComeInTheirOrder) {
  ApiFixture api;
  api.source.scripts = {kThinkAndCall};
  api.source.reused = 5;
  const auto events = events_of(api.ask("/v1/messages?beta=true", anthropic_body(true))->stream);
  EXPECT_EQ(names(events),
            "message_start\nping\n"
            "content_block_start\ncontent_block_delta\ncontent_block_stop\n"
            "content_block_start\ncontent_block_delta\ncontent_block_stop\n"
            "content_block_start\ncontent_block_delta\ncontent_block_stop\n"
            "message_delta\nmessage_stop\n");
  const Json& start = events[0].data["message"];
  EXPECT_TRUE(start["id"].get<std::string>().starts_with("msg_"));
  EXPECT_TRUE(start["content"].empty());
  EXPECT_TRUE(start["stop_reason"].is_null());
  EXPECT_EQ(start["usage"]["cache_read_input_tokens"], 5);
  const Json& last = events[events.size() - 2].data;
  EXPECT_EQ(last["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(last["usage"]["input_tokens"], start["usage"]["input_tokens"]);
  EXPECT_GT(last["usage"]["output_tokens"], 0);
  EXPECT_EQ(last["lockstep"]["back_end"], "script");
}

TEST(ServerAnthropic, StreamsJoinToTheWholeAnswer) {
  const std::string scripts[] = {
      kThinkAndCall, "Think.</think>Hello.", "</think>", "only a thought",
      "t</think>" + call_block("get_weather", parameter("city", true, std::string(300, 'x')))};
  for (const std::string& script : scripts) {
    SCOPED_TRACE(script.substr(0, 40));
    ApiFixture api;
    api.source.scripts = {script};
    Json whole = api.ask("/v1/messages", anthropic_body())->json();
    const auto events = events_of(api.ask("/v1/messages", anthropic_body(true))->stream);
    Json blocks = joined_blocks(events);
    for (const Json& block : blocks)
      if (block["type"] == "thinking") {
        EXPECT_GE(block["signature"].get<std::string>().size(), 20u);
      }
    hide_ids(whole);
    hide_ids(blocks);
    EXPECT_TRUE(blocks == whole["content"]) << blocks << "\n" << whole;
    EXPECT_FALSE(blocks.empty());
    EXPECT_EQ(events[events.size() - 2].data["delta"]["stop_reason"], whole["stop_reason"]);
    EXPECT_EQ(events[events.size() - 2].data["usage"], whole["usage"]);
  }
}

TEST(ServerAnthropic, StopReasonsAreTold) {
  ApiFixture api;
  Json body = anthropic_body();
  api.source.scripts = {"t</think>Hello STOP"};
  EXPECT_EQ(api.ask("/v1/messages", body)->json()["stop_reason"], "end_turn");
  body["stop_sequences"] = {"STOP"};
  Json stopped = api.ask("/v1/messages", body)->json();
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "STOP");
  body["max_tokens"] = 4;
  EXPECT_EQ(api.ask("/v1/messages", body)->json()["stop_reason"], "max_tokens");
}

TEST(ServerAnthropic, CachedTokensAreNotInputTokens) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  const Json cold = api.ask("/v1/messages", anthropic_body())->json()["usage"];
  api.source.reused = 7;
  const Json warm = api.ask("/v1/messages", anthropic_body())->json()["usage"];
  EXPECT_EQ(cold["cache_read_input_tokens"], 0);
  EXPECT_EQ(warm["cache_read_input_tokens"], 7);
  EXPECT_EQ(warm["input_tokens"].get<int>() + 7, cold["input_tokens"].get<int>());
  EXPECT_EQ(warm["cache_creation_input_tokens"], 0);
}

TEST(ServerAnthropic, SilenceIsFilledWithPings) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  const auto exchange = api.send("/v1/messages", json_text(anthropic_body(true)));
  exchange->silence();  // still in the queue
  exchange->silence();
  EXPECT_EQ(names(events_of(exchange->stream)), "message_start\nping\n");
  api.source.play();
  int starts = 0;
  for (const Event& event : events_of(exchange->stream)) starts += event.name == "message_start";
  EXPECT_EQ(starts, 1);
}

TEST(ServerAnthropic, AFailureInTheMiddleIsAnErrorEvent) {
  ApiFixture api;
  api.source.scripts = {"t</think>xyz"};
  api.source.failure = "the device is gone";
  api.source.fails_after = 1;
  const auto events = events_of(api.ask("/v1/messages", anthropic_body(true))->stream);
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "api_error");
}

TEST(ServerAnthropic, AThoughtComesBackBySignatureAndACallById) {
  ApiFixture api;
  api.source.checks_masks = false;
  const std::string sampled = "Think.</think>Look:<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n" +
                              parameter("days", false, "3e0") + "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  api.source.scripts = {sampled};
  Json body = anthropic_body();
  const Json content = api.ask("/v1/messages", body)->json()["content"];
  EXPECT_TRUE(content[2]["id"].get<std::string>().starts_with("toolu_"));
  EXPECT_TRUE(content[2]["input"].is_object());
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"}, {"tool_use_id", content[2]["id"]}, {"content", "rain"}}})}});
  api.send("/v1/messages", json_text(body));
  EXPECT_NE(api.prompt_of_last_job().find("<｜Assistant｜><think>" + sampled + "<｜end▁of▁sentence｜>"),
            std::string::npos)
      << api.prompt_of_last_job();
}

TEST(ServerAnthropic, ALastAssistantMessageIsContinued) {
  ApiFixture api;
  Json body = anthropic_body();
  body["thinking"] = {{"type", "disabled"}};
  body["messages"].push_back({{"role", "assistant"}, {"content", "Old"}});
  api.source.scripts = {" pond"};
  const Json answer = api.ask("/v1/messages", body)->json();
  EXPECT_EQ(answer["content"][0]["text"], " pond");
}

TEST(ServerResponses, EventsComeInTheirOrderAndAreCounted) {
  ApiFixture api;
  api.source.scripts = {kThinkAndCall};
  const auto events = events_of(api.ask("/v1/responses", response_body(true))->stream);
  EXPECT_EQ(names(events),
            "response.created\nresponse.in_progress\n"
            "response.output_item.added\nresponse.reasoning_summary_part.added\nresponse.reasoning_summary_text.delta\n"
            "response.reasoning_summary_text.done\nresponse.reasoning_summary_part.done\nresponse.output_item.done\n"
            "response.output_item.added\nresponse.content_part.added\nresponse.output_text.delta\n"
            "response.output_text.done\nresponse.content_part.done\nresponse.output_item.done\n"
            "response.output_item.added\nresponse.function_call_arguments.delta\n"
            "response.function_call_arguments.done\nresponse.output_item.done\n"
            "response.completed\n");
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].data["sequence_number"], i);
  const Json& done = events.back().data["response"];
  const Json& usage = done["usage"];
  for (const Json* number :
       {&usage["input_tokens"], &usage["input_tokens_details"]["cached_tokens"], &usage["output_tokens"],
        &usage["output_tokens_details"]["reasoning_tokens"], &usage["total_tokens"]})
    EXPECT_TRUE(number->is_number_integer());
  // The items that were done, one by one, are the output.
  Json items = Json::array();
  for (const Event& event : events)
    if (event.name == "response.output_item.done") items.push_back(event.data["item"]);
  EXPECT_EQ(items, done["output"]);
  EXPECT_EQ(items[2]["arguments"], R"({"city": "Oslo", "days": 3})");
  EXPECT_EQ(items[2]["status"], "completed");
}

TEST(ServerResponses, StreamsJoinToTheWholeAnswer) {
  const std::string scripts[] = {kThinkAndCall, "Think.</think>Hello.", "</think>", "only a thought"};
  for (const bool is_cut : {false, true}) {
    for (const std::string& script : scripts) {
      SCOPED_TRACE(script.substr(0, 40));
      ApiFixture api;
      api.source.scripts = {script};
      api.source.is_cut = is_cut;
      Json whole = api.ask("/v1/responses", response_body())->json();
      const auto events = events_of(api.ask("/v1/responses", response_body(true))->stream);
      Json streamed = events.back().data["response"];
      EXPECT_EQ(events.back().name == "response.incomplete", whole["status"] == "incomplete");
      // Only what was being said when the limit came is incomplete, also where an item is told to be done.
      Json done = Json::array();
      for (const Event& event : events)
        if (event.name == "response.output_item.done") done.push_back(event.data["item"]);
      EXPECT_EQ(done, streamed["output"]);
      for (const Json& item : done) {
        const bool is_open = is_cut && &item == &done.back() && !item.contains("call_id");
        EXPECT_EQ(item["status"], is_open ? "incomplete" : "completed") << item;
      }
      for (Json* response : {&whole, &streamed}) {
        hide_ids(*response);
        response->erase("created_at");
        (*response)["lockstep"].erase("seed");
      }
      EXPECT_TRUE(whole == streamed) << whole << "\n" << streamed;
    }
  }
}

TEST(ServerResponses, FreeFormToolsAndNamespacesGoBackInTheClientsWords) {
  ApiFixture api;
  api.source.scripts = {"t</think>" + call_block("patch", parameter("input", true, "*** \"x\"\n"))};
  Json body = {
      {"input", "hi"},
      {"stream", true},
      {"tools", parse_json(R"([{"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark",
                   "definition": "start: /x/"}}, {"type": "namespace", "name": "space", "tools": [{"type": "function",
                   "name": "get"}]}, {"type": "web_search"}])",
                           "tools")}};
  auto events = events_of(api.ask("/v1/responses", body)->stream);
  const Json item = events.back().data["response"]["output"][1];
  EXPECT_EQ(item["type"], "custom_tool_call");
  EXPECT_EQ(item["input"], "*** \"x\"\n");
  EXPECT_EQ(item["name"], "patch");
  int deltas = 0;
  for (const Event& event : events) deltas += event.name == "response.custom_tool_call_input.delta";
  EXPECT_EQ(deltas, 1);

  api.source.scripts = {"t</think>" + call_block("get", parameter("a", false, "1"))};
  api.source.checks_masks = false;
  body["stream"] = false;
  const Json call = api.ask("/v1/responses", body)->json()["output"][1];
  EXPECT_EQ(call["namespace"], "space");
  EXPECT_EQ(call["name"], "get");

  // And both come back as calls of the model's.
  body["input"] = Json::array({{{"role", "user"}, {"content", "hi"}},
                               {{"type", "custom_tool_call"}, {"call_id", "c1"}, {"name", "patch"}, {"input", "y"}},
                               {{"type", "custom_tool_call_output"}, {"call_id", "c1"}, {"output", "ok"}}});
  api.send("/v1/responses", json_text(body));
  EXPECT_NE(api.prompt_of_last_job().find(parameter("input", true, "y")), std::string::npos);
}

TEST(ServerResponses, EarlierResponsesCanBeContinuedAndReferredTo) {
  ApiFixture api;
  api.source.scripts = {"Think.</think>Hello."};
  Json body = response_body();
  const Json first = api.ask("/v1/responses", body)->json();
  EXPECT_EQ(api.send("/v1/responses/" + first["id"].get<std::string>(), "", "GET")->json()["id"], first["id"]);
  const Json by_id = {{"previous_response_id", first["id"]}, {"input", "more"}, {"tools", body["tools"]}};
  api.send("/v1/responses", json_text(by_id));
  const std::string continued = api.prompt_of_last_job();
  EXPECT_NE(
      continued.find(
          "<｜User｜>hi<｜Assistant｜><think>Think.</think>Hello.<｜end▁of▁sentence｜><｜User｜>more<｜Assistant｜>"),
      std::string::npos)
      << continued;
  const Json by_reference = {{"tools", body["tools"]},
                             {"input", Json::array({{{"role", "user"}, {"content", "hi"}},
                                                    {{"type", "item_reference"}, {"id", first["output"][0]["id"]}},
                                                    {{"type", "item_reference"}, {"id", first["output"][1]["id"]}},
                                                    {{"role", "user"}, {"content", "more"}}})}};
  api.send("/v1/responses", json_text(by_reference));
  EXPECT_EQ(api.prompt_of_last_job(), continued);
  EXPECT_EQ(api.kept().responses, 1u);  // the others have not been answered
  EXPECT_GT(api.kept().response_bytes, 100u);
  body["store"] = false;
  const Json unstored = api.ask("/v1/responses", body)->json();
  EXPECT_EQ(api.kept().responses, 3u) << "the two that waited have been answered, this one is not kept";
  EXPECT_EQ(api.send("/v1/responses", json_text({{"previous_response_id", unstored["id"]}, {"input", "more"}}))->status,
            400);
}

TEST(ServerResponses, EncryptedContentIsThereForThoseWhoAskAndBringsTheThoughtBack) {
  ApiFixture api;
  api.source.scripts = {"Think.</think>Hello."};
  Json body = response_body();
  body["store"] = false;
  EXPECT_TRUE(api.ask("/v1/responses", body)->json()["output"][0]["encrypted_content"].is_null());
  body["include"] = {"reasoning.encrypted_content"};
  Json output = api.ask("/v1/responses", body)->json()["output"];
  ASSERT_TRUE(output[0]["encrypted_content"].is_string());
  output[0]["summary"] = Json::array();
  output[0].erase("id");
  output[1].erase("id");
  body["input"] = Json::array(
      {{{"role", "user"}, {"content", "hi"}}, output[0], output[1], {{"role", "user"}, {"content", "more"}}});
  api.send("/v1/responses", json_text(body));
  EXPECT_NE(api.prompt_of_last_job().find("<think>Think.</think>Hello."), std::string::npos)
      << api.prompt_of_last_job();
}

TEST(ServerResponses, SilenceAndFailureAreEventsOfTheirOwn) {
  ApiFixture api;
  api.source.scripts = {"t</think>x"};
  api.source.failure = "the device is gone";
  api.source.fails_after = 1;
  const auto exchange = api.send("/v1/responses", json_text(response_body(true)));
  exchange->silence();
  api.source.play();
  const auto events = events_of(exchange->stream);
  EXPECT_EQ(names(events),
            "response.created\nresponse.in_progress\nresponse.output_item.added\n"
            "response.reasoning_summary_part.added\nresponse.reasoning_summary_text.delta\nresponse.failed\n");
  EXPECT_EQ(events.back().data["response"]["error"]["message"], "the device is gone");
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].data["sequence_number"], i);
}

Json completion(ApiFixture& api, Json body) {
  const auto exchange = api.ask("/v1/completions", body);
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  return exchange->status == 200 && !exchange->is_stream ? exchange->json() : Json();
}

TEST(ServerCompletions, ATextGoesOnWithNothingAroundIt) {
  ApiFixture api;
  api.source.scripts = {" world"};
  api.send("/v1/completions", R"({"prompt": "Hello"})");
  ASSERT_EQ(api.source.jobs.size(), 1u);
  EXPECT_EQ(api.prompt_of_last_job(), "<｜begin▁of▁sentence｜>Hello");
  EXPECT_EQ(api.source.jobs[0].limit, 16);
  api.source.jobs.clear();
  EXPECT_EQ(completion(api, {{"prompt", "Hello"}})["choices"][0]["text"], " world");
  EXPECT_EQ(completion(api, {{"prompt", "Hello"}, {"echo", true}})["choices"][0]["text"], "Hello world");
  const auto tokens = api.tokenizer.encode("Hello");
  EXPECT_EQ(completion(api, {{"prompt", tokens}, {"echo", true}})["choices"][0]["text"], "Hello world");
  const Json several = completion(api, {{"prompt", {"a", "b"}}, {"n", 2}, {"echo", true}});
  ASSERT_EQ(several["choices"].size(), 4u);
  EXPECT_EQ(several["choices"][1]["text"], "a world");
  EXPECT_EQ(several["choices"][2]["text"], "b world");
  EXPECT_EQ(several["choices"][3]["index"], 3);
}

TEST(ServerCompletions, StreamsJoinToTheWholeText) {
  for (const bool echoes : {false, true}) {
    ApiFixture api;
    api.source.scripts = {"caf\xc3\xa9 STOP there"};
    Json body = {{"prompt", "P"}, {"stop", "STOP"}, {"echo", echoes}, {"logprobs", 2}, {"max_tokens", 50}};
    const Json whole = completion(api, body)["choices"][0];
    body["stream"] = true;
    std::string text;
    Json tokens = Json::array(), finish;
    const auto events = events_of(api.ask("/v1/completions", body)->stream);
    EXPECT_EQ(events.back().data, "[DONE]");
    for (const Event& event : events) {
      if (!event.data.is_object()) continue;
      const Json& choice = event.data["choices"][0];
      text += choice["text"].get<std::string>();
      for (const Json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
      finish = choice["finish_reason"];
    }
    EXPECT_EQ(text, whole["text"]);
    EXPECT_EQ(text, (echoes ? "P" : "") + std::string("caf\xc3\xa9 "));
    EXPECT_EQ(tokens, whole["logprobs"]["tokens"]);
    EXPECT_EQ(finish, "stop");
  }
}

TEST(ServerCompletions, PromptsAreScoredWithoutAnAnswer) {
  ApiFixture api;
  const Json answer = completion(api, {{"prompt", "abc"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}});
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  const Json& logprobs = choice["logprobs"];
  const std::size_t n = logprobs["tokens"].size();
  EXPECT_EQ(n, api.tokenizer.encode("abc").size());
  for (const char* key : {"token_logprobs", "top_logprobs", "text_offset"}) EXPECT_EQ(logprobs[key].size(), n);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (std::size_t i = 1; i < n; ++i)  // the script scores the token at place i of the prompt, BOS first, with -i
    EXPECT_EQ(logprobs["token_logprobs"][i], -1.0 * static_cast<double>(i + 1));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
}

TEST(ServerCompletions, ASuffixMakesAHole) {
  ApiFixture api;
  api.send("/v1/completions", R"({"prompt": "def f(", "suffix": "return 1"})");
  ASSERT_EQ(api.source.jobs.size(), 1u);
  EXPECT_EQ(api.prompt_of_last_job(),
            "<｜begin▁of▁sentence｜><｜fim▁begin｜>def f(<｜fim▁hole｜>return 1<｜fim▁end｜>");
}

TEST(ServerLlama, ACompletionHasTheShapesOfThatServer) {
  ApiFixture api;
  api.source.scripts = {"caf\xc3\xa9 STOP there"};
  Json body = {{"prompt", "P"}, {"stop", {"STOP"}}, {"n_predict", 50}, {"return_tokens", true}};
  const Json whole = api.ask("/completion", body)->json();
  EXPECT_EQ(whole["content"], "caf\xc3\xa9 ");
  EXPECT_EQ(whole["stop"], true);
  EXPECT_EQ(whole["stop_type"], "word");
  EXPECT_EQ(whole["stopping_word"], "STOP");
  EXPECT_EQ(whole["tokens_evaluated"], 2);
  EXPECT_EQ(whole["truncated"], false);
  EXPECT_EQ(api.ask("/completion", {{"prompt", "P"}, {"temperature", 1.7}, {"repeat_penalty", 1.1}})
                ->json()["generation_settings"]["temperature"],
            1.7);
  EXPECT_TRUE(whole["timings"].contains("predicted_per_second"));
  body["stream"] = true;
  const auto events = events_of(api.ask("/completion", body)->stream);
  std::string text;
  Json tokens = Json::array();
  for (const Event& event : events) {
    ASSERT_TRUE(event.data.is_object()) << "no [DONE] here";
    text += event.data["content"].get<std::string>();
    for (const Json& token : event.data["tokens"]) tokens.push_back(token);
    EXPECT_EQ(event.data["stop"], &event == &events.back());
    EXPECT_GE(event.data["tokens_predicted"].get<int>(), static_cast<int>(tokens.size()));
  }
  EXPECT_EQ(text, whole["content"]);
  EXPECT_EQ(tokens, whole["tokens"]);
  EXPECT_FALSE(tokens.empty());
  EXPECT_EQ(events.back().data["stop_type"], "word");

  // Tokens are counted whether or not the client wants to have them.
  const auto counted = events_of(api.ask("/completion", {{"prompt", "P"}, {"stream", true}})->stream);
  ASSERT_GT(counted.size(), 2u);
  EXPECT_GT(counted[0].data["tokens_predicted"], 0);
  EXPECT_GT(counted[counted.size() - 2].data["tokens_predicted"], counted[0].data["tokens_predicted"]);

  EXPECT_EQ(api.ask("/completion", {{"prompt", "P"}, {"n_predict", 2}})->json()["stop_type"], "limit");
  EXPECT_EQ(api.ask("/completion", {{"prompt", "P"}})->json()["stop_type"], "eos");

  // The only token of an answer came with the prompt: no rate can be told of it.
  for (const int limit : {1, 2}) {
    const Json timed = api.ask("/completion", {{"prompt", "P"}, {"n_predict", limit}})->json();
    EXPECT_EQ(timed["timings"]["predicted_per_second"], limit == 1 ? 0.0 : 4.0);
    EXPECT_EQ(timed["lockstep"]["decode_tokens_per_second"], limit == 1 ? 0.0 : 4.0);
  }
}

TEST(ServerLlama, PromptsMayMixTextAndTokens) {
  ApiFixture api;
  const Token a = api.tokenizer.encode("a").at(0);
  api.send("/completion", json_text({{"prompt", {"Hi ", a, "b"}}}));
  ASSERT_EQ(api.source.jobs.size(), 1u);
  EXPECT_EQ(api.prompt_of_last_job(), "<｜begin▁of▁sentence｜>Hi ab");
  for (const char* body : {R"({})", R"({"prompt": []})", R"({"prompt": [["a"]]})", R"({"prompt": "a", "n_probs": 3})",
                           R"({"prompt": "a", "json_schema": {}})", R"({"prompt": [99999999]})"})
    EXPECT_EQ(api.send("/completion", body)->status, 400) << body;
}

TEST(ServerLlama, AHoleHasFilesAroundIt) {
  ApiFixture api;
  api.send("/infill", R"({"input_prefix": "def f(", "input_suffix": "return 1", "prompt": "x",
                          "input_extra": [{"filename": "a.py", "text": "A = 1"}]})");
  ASSERT_EQ(api.source.jobs.size(), 1u);
  EXPECT_EQ(api.prompt_of_last_job(),
            "<｜begin▁of▁sentence｜><｜fim▁begin｜>a.py\nA = 1\n\ndef f(<｜fim▁hole｜>return 1<｜fim▁end｜>x");
  EXPECT_EQ(api.send("/infill", R"({"input_prefix": "a"})")->status, 400);
}

TEST(ServerSettings, ASeedIsToldAsItWasGiven) {
  for (const char* seed : {"-77", "-9223372036854775808", "0", "77", "9223372036854775808", "18446744073709551615"}) {
    ApiFixture api;
    const std::string body = R"({"prompt": "a", "messages": [{"role": "user", "content": "x"}], "seed": )";
    for (const char* target : {"/chat/completions", "/completions", "/completion"}) {
      const Json answer = api.ask(target, parse_json(body + seed + "}", "body"))->json();
      EXPECT_EQ(answer["lockstep"]["seed"].dump(), seed) << target;
      if (std::string_view(target) != "/completion") continue;
      EXPECT_EQ(answer["generation_settings"]["seed"].dump(), seed);
    }
  }
}

TEST(ServerTrace, AnAnswerOfNothingHasNoTokensAndNoEvents) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "lockstep-empty-trace";
  std::filesystem::remove_all(folder);
  {
    ApiFixture api;
    api.settings.trace = folder;
    api.source.scripts = {""};
    api.ask("/v1/messages", anthropic_body(true));
  }
  const Json choice = parse_json(read_file(folder / "req_1.json"), "trace")["choices"][0];
  EXPECT_EQ(choice["tokens"], Json::array());
  EXPECT_EQ(choice["events"], Json::array());
  std::filesystem::remove_all(folder);
}

TEST(ServerTrace, HoldsThePromptTheTokensAndTheEventsAndNoHeaders) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "lockstep-trace";
  std::filesystem::remove_all(folder);
  {
    ApiFixture api;
    api.settings.trace = folder;
    api.source.scripts = {kThinkAndCall};
    api.ask("/v1/messages", anthropic_body(true));
  }
  const Json trace = parse_json(read_file(folder / "req_1.json"), "trace");
  EXPECT_TRUE(trace["prompt"].get<std::string>().ends_with("<｜User｜>hi<｜Assistant｜><think>"));
  const Json& choice = trace["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["events"][0]["reasoning"], "T");
  EXPECT_GT(choice["tokens"].size(), 20u);
  EXPECT_FALSE(trace.contains("headers"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::test
