// The whole way, over a socket and through a model: a synthetic one, which talks nonsense, but the same nonsense
// whether it is streamed or not, alone or among others, from a cold cache or a warm one.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "api_fixture.h"
#include "cpu/cpu_ops.h"
#include "engine/law_check.h"
#include "server/fingerprint.h"
#include "server/http_server.h"
#include "server_client.h"

namespace lockstep::test {
namespace {

std::unique_ptr<Engine> synthetic_engine() {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "lockstep-server-nano.gguf";
  write_law_model("nano-q4", path);
  EngineOptions options;
  options.model = path;
  options.max_rows = 64;
  return std::make_unique<Engine>(options, cpu::make_cpu_ops({1, "auto"}));
}

/// A server on loopback, from the file to the socket.
class Served {
 public:
  Served() : engine_(synthetic_engine()) {
    settings_.model_name = "nano";
    settings_.context = 2000;
    settings_.profile = "preview";
    settings_.scheduler.slots = 3;
    settings_.scheduler.context = 2000;
    settings_.scheduler.cache_bytes = std::size_t{64} << 20;
    settings_.scheduler.snapshot_every = 64;
    scheduler_ = std::make_unique<Scheduler>(*engine_, settings_.scheduler);
    source_ = std::make_unique<SchedulerSource>(*scheduler_);
    auto router = std::make_shared<Router>();
    ApiSources sources{.settings = settings_, .tokenizer = engine_->tokenizer(), .source = *source_};
    sources.fingerprint = system_fingerprint(engine_->file(), engine_->mode());
    add_api(*router, sources);
    HttpOptions options;
    options.port = 0;
    http_ = std::make_unique<HttpServer>(options, router);
  }
  ~Served() {
    http_.reset();
    scheduler_.reset();
  }

  Client client() const { return Client(http_->port()); }
  Reply ask(const std::string& target, const Json& body) const {
    return client().ask(request_text("POST", target, json_text(body)));
  }
  Json json(const std::string& target, const Json& body) const {
    const Reply reply = ask(target, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? parse_json(reply.body, "answer") : Json::object();
  }
  Scheduler& scheduler() { return *scheduler_; }
  const Engine& engine() const { return *engine_; }

 private:
  std::unique_ptr<Engine> engine_;
  ServerSettings settings_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<SchedulerSource> source_;
  std::unique_ptr<HttpServer> http_;
};

Json chat(const std::string& text, bool is_stream = false) {
  return {{"temperature", 0},
          {"max_tokens", 30},
          {"stream", is_stream},
          {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
}

std::string whole_text(const Json& answer) {
  const Json& message = answer["choices"][0]["message"];
  return message.value("reasoning_content", "") + "|" + message.value("content", "");
}

std::string streamed_text(const std::string& stream) {
  std::string reasoning, content;
  for (const Event& event : events_of(stream)) {
    if (!event.data.is_object()) continue;
    const Json& delta = event.data["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
  }
  return reasoning + "|" + content;
}

TEST(ServerModel, TheSameRequestGivesTheSameTextHoweverItIsServed) {
  Served served;
  const std::string prompt = "The quick brown fox jumps over the lazy dog, again and again and again.";
  Json cold_body = chat(prompt);
  cold_body["cache_prompt"] = false;
  const Json first = served.json("/v1/chat/completions", cold_body);
  const std::string expected = whole_text(first);
  EXPECT_GT(expected.size(), 10u);
  EXPECT_EQ(first["system_fingerprint"], system_fingerprint(served.engine().file(), Mode::official));
  EXPECT_EQ(whole_text(served.json("/v1/chat/completions", chat(prompt))), expected);
  const Json warm = served.json("/v1/chat/completions", chat(prompt));
  EXPECT_EQ(whole_text(warm), expected);
  EXPECT_GT(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 0);

  const Reply stream = served.ask("/v1/chat/completions", chat(prompt, true));
  EXPECT_TRUE(stream.header("content-type").starts_with("text/event-stream"));
  EXPECT_EQ(streamed_text(stream.body), expected);

  std::vector<std::thread> threads;
  std::vector<std::string> texts(6);
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      if (i % 2 == 0) {
        texts[i] = streamed_text(served.ask("/v1/chat/completions", chat(prompt, true)).body);
      } else {
        served.ask("/v1/chat/completions", chat("Others: " + std::to_string(i)));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); i += 2) EXPECT_EQ(texts[i], expected);
}

TEST(ServerModel, AFormIsHeldToByAModelThatKnowsNone) {
  Served served;
  Json body = chat("Fill in the form.");
  body["thinking"] = false;
  body["temperature"] = 1;
  body["max_tokens"] = 400;
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"strict", true},
        {"schema",
         parse_json(R"({"type": "object", "properties": {"kind": {"enum": ["a", "bee"]}, "count": {"type": "integer",
            "minimum": 1, "maximum": 99}}, "required": ["kind", "count"], "additionalProperties": false})",
                    "schema")}}}};
  for (int seed = 0; seed < 4; ++seed) {
    body["seed"] = seed;
    const Json answer = served.json("/v1/chat/completions", body);
    const Json value = parse_json(answer["choices"][0]["message"]["content"].get<std::string>(), "content");
    EXPECT_TRUE(value["kind"] == "a" || value["kind"] == "bee") << value;
    EXPECT_TRUE(value["count"] >= 1 && value["count"] <= 99) << value;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  }
}

TEST(ServerModel, ARequiredCallIsMadeByAModelThatKnowsNone) {
  Served served;
  Json body = {{"max_tokens", 500},
               {"temperature", 1},
               {"seed", 3},
               {"messages", Json::array({{{"role", "user"}, {"content", "Weather?"}}})},
               {"tool_choice", {{"type", "any"}, {"disable_parallel_tool_use", true}}},
               {"tools", parse_json(R"([{"name": "get_weather", "input_schema": {"type": "object", "properties": {
                   "city": {"enum": ["Oslo", "Bergen"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["city", "days"], "additionalProperties": false}}])",
                                    "tools")}};
  const Json answer = served.json("/v1/messages", body);
  ASSERT_EQ(answer["stop_reason"], "tool_use") << answer;
  const Json& call = answer["content"].back();
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_TRUE(call["input"]["city"] == "Oslo" || call["input"]["city"] == "Bergen") << call;
  EXPECT_TRUE(call["input"]["days"].is_number_integer());
  body["stream"] = true;
  std::string arguments;
  for (const Event& event : events_of(served.ask("/v1/messages", body).body))
    if (event.name == "content_block_delta") arguments += event.data["delta"].value("partial_json", "");
  EXPECT_EQ(parse_json(arguments, "arguments"), call["input"]);
}

TEST(ServerModel, PromptScoresDoNotDependOnTheirCompany) {
  Served served;
  const Json body = {{"prompt", "Numbers: 1 2 3 4 5"}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 0}};
  const Json alone = served.json("/v1/completions", body)["choices"][0];
  EXPECT_LT(alone["logprobs"]["token_logprobs"].back(), 0);
  Json both = body;
  both["prompt"] = {"Numbers: 1 2 3 4 5", "and another, longer text that is scored beside it"};
  EXPECT_EQ(served.json("/v1/completions", both)["choices"][0], alone);
}

TEST(ServerModel, AClientThatLeavesFreesItsSlot) {
  Served served;
  Json body = chat("Count.", true);
  body["max_tokens"] = 1900;
  {
    Client client = served.client();
    client.send(request_text("POST", "/v1/chat/completions", json_text(body)));
    ASSERT_TRUE(client.read_until("delta"));
    client.close_hard();
  }
  const auto begin = std::chrono::steady_clock::now();
  while (served.scheduler().status().jobs_cancelled == 0) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace
}  // namespace lockstep::test
