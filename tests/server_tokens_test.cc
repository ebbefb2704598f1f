// What was sampled is in the next prompt as the tokens that it was, whichever way the turn ended; and prompts are
// counted as they are run.
#include <gtest/gtest.h>

#include "api_fixture.h"
#include "text/utf8.h"

namespace lockstep::test {
namespace {

struct Case {
  const char* name;
  std::string script;
  void (*change)(Json& body, ApiFixture& api);
  std::string begun;  // the message that is continued
};

const Case kCases[] = {
    {"a thought and an answer", "Think of the sea.</think>It is the sea.", [](Json&, ApiFixture&) {}, ""},
    {"a call", "Think of the sea.</think>It is there." + kCall, [](Json&, ApiFixture&) {}, ""},
    {"a call in a thought", "Think of the sea." + kCall, [](Json&, ApiFixture&) {}, ""},
    {"the first of two calls in a thought, where one is wanted",
     "Think of the sea." + kCall.substr(0, kCall.rfind("</")) + kCall.substr(kCall.find("<｜DSML｜invoke")),
     [](Json& body, ApiFixture&) {
       body["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
     },
     ""},
    {"a thought that the budget closes", "Think of the sea. It is the sea.",
     [](Json& body, ApiFixture&) { body["thinking_budget"] = 7; }, ""},
    {"an answer at the limit", "Think of the sea.</think>It is caf\u00e9 no",
     [](Json&, ApiFixture& api) { api.source.is_cut = true; }, ""},
    {"an answer that is continued with a call", "then it is" + kCall,
     [](Json& body, ApiFixture&) {
       body["thinking"] = {{"type", "disabled"}};
     },
     "The sea and "},
    {"the same behind an empty thought", "then it is" + kCall, [](Json&, ApiFixture&) {}, "The sea and "},
};

Json body_of(const Case& c, ApiFixture& api) {
  Json body = {
      {"model", "m"},
      {"max_tokens", 1000},
      {"thinking", {{"type", "adaptive"}}},
      {"tools",
       {{{"name", "get_weather"},
         {"input_schema",
          {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}, {"days", {{"type", "integer"}}}}}}}}}},
      {"messages", {{{"role", "user"}, {"content", "Where is it?"}}}}};
  if (!c.begun.empty()) body["messages"].push_back({{"role", "assistant"}, {"content", c.begun}});
  c.change(body, api);
  return body;
}

/// As clients do: what was begun and the answer are one message; results of calls, or another question, follow.
void add_answer(Json& body, Json content, const std::string& begun) {
  if (!begun.empty()) {
    content[0]["text"] = begun + content[0]["text"].get<std::string>();
    body["messages"].erase(1);
  }
  Json next = "And then?";
  for (const Json& block : content)
    if (block["type"] == "tool_use")
      next = {{{"type", "tool_result"}, {"tool_use_id", block["id"]}, {"content", "rain"}}};
  body["messages"].push_back({{"role", "assistant"}, {"content", std::move(content)}});
  body["messages"].push_back({{"role", "user"}, {"content", std::move(next)}});
}

TEST(ServerTokens, TheNextPromptHasWhatWasSampledHoweverTheTurnEnded) {
  for (const Case& c : kCases) {
    ApiFixture api;
    api.source.splitter = std::make_shared<TokenSplitter>(api.tokenizer, 3);
    api.source.scripts = {c.script};
    Json body = body_of(c, api);
    api.open();
    const auto exchange = api.send("/v1/messages", json_text(body));
    ASSERT_EQ(api.source.jobs.size(), 1u) << c.name << exchange->body;
    std::vector<Token> known = api.source.jobs[0].prompt;
    api.source.play();
    known.insert(known.end(), api.source.said.begin(), api.source.said.end());
    ASSERT_NE(api.source.said, api.tokenizer.encode(api.tokenizer.decode(api.source.said)))
        << c.name << ": not other tokens";
    add_answer(body, exchange->json()["content"], c.begun);
    api.send("/v1/messages", json_text(body));
    const std::vector<Token> prompt = api.source.jobs.at(0).prompt;
    ASSERT_GT(prompt.size(), known.size()) << c.name;
    EXPECT_TRUE(std::equal(known.begin(), known.end(), prompt.begin())) << c.name << ":\n"
                                                                        << api.tokenizer.decode(known) << "\n"
                                                                        << api.tokenizer.decode(prompt);
    EXPECT_EQ(prompt[known.size()], *api.tokenizer.eos()) << c.name;
    EXPECT_EQ(api.send("/v1/messages/count_tokens", json_text(body))->json()["input_tokens"], prompt.size()) << c.name;
  }
}

TEST(ServerTokens, AnAnswerThatTheLimitCutGoesOnWhereItEnded) {
  ApiFixture api;
  api.source.splitter = std::make_shared<TokenSplitter>(api.tokenizer, 4);
  api.source.scripts = {"Think of the sea.</think>It is caf\u00e9 no", "t there." + kCall};
  api.source.is_cut = true;
  Json body = body_of(kCases[0], api);
  const auto first = api.send("/v1/messages", json_text(body));
  std::vector<Token> known = api.source.jobs.at(0).prompt;
  const auto play = [&](const std::shared_ptr<FakeExchange>& exchange) {
    api.source.play();
    known.insert(known.end(), api.source.said.begin(), api.source.said.end());
    return exchange->json()["content"];
  };
  Json content = play(first);
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  api.source.is_cut = false;
  const auto second = api.send("/v1/messages", json_text(body));
  EXPECT_EQ(api.source.jobs.at(0).prompt, known) << api.tokenizer.decode(known);
  const Json rest = play(second);
  ASSERT_EQ(rest.size(), 2u) << rest;
  content[1]["text"] = content[1]["text"].get<std::string>() + rest[0]["text"].get<std::string>();
  content.push_back(rest[1]);
  body["messages"].erase(1);
  add_answer(body, content, "");
  api.send("/v1/messages", json_text(body));
  const std::vector<Token>& prompt = api.source.jobs.at(0).prompt;
  ASSERT_GT(prompt.size(), known.size());
  EXPECT_TRUE(std::equal(known.begin(), known.end(), prompt.begin())) << api.tokenizer.decode(prompt);
}

TEST(ServerTokens, ATurnWhoseEndWouldNotFitIsWrittenAnew) {
  const struct {
    const char* name;
    std::string script, rendered;
  } cases[] = {
      {"the limit in a thought", "Think of the sea", "<think>Think of the sea</think><｜end▁of▁sentence｜>"},
      {"the limit between two calls", "Think.</think>" + kCall.substr(0, kCall.rfind("</")),
       "<think>Think.</think>" + kCall + "<｜end▁of▁sentence｜>"},
  };
  for (const auto& c : cases) {
    ApiFixture api;
    api.source.splitter = std::make_shared<TokenSplitter>(api.tokenizer, 3);
    api.source.scripts = {c.script};
    api.source.is_cut = true;
    Json body = body_of(kCases[0], api);
    add_answer(body, api.ask("/v1/messages", body)->json()["content"], "");
    api.send("/v1/messages", json_text(body));
    EXPECT_NE(api.prompt_of_last_job().find(c.rendered), std::string::npos) << c.name << api.prompt_of_last_job();
  }
}

}  // namespace
}  // namespace lockstep::test
