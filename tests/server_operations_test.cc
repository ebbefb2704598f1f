// What the server says of itself, and its log. The scheduler's numbers are made up here; the tokenizer is that of a
// small model.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ops/phase.h"
#include "server/log.h"
#include "server/operations.h"
#include "server/page.h"
#include "server_client.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

using test::Client;
using test::Reply;
using test::request_text;
using Json = nlohmann::ordered_json;

class ServerOperations : public testing::Test {
 protected:
  ServerOperations() : file_(LOCKSTEP_TEST_DATA "/golden/nano-a.gguf"), tokenizer_(vocabulary_of(file_)) {
    settings_.model_name = "deepseek-v4-flash";
    settings_.aliases = {"flash"};
    settings_.model_path = "/models/flash.gguf";
    settings_.context = 4096;
    settings_.created = 1'700'000'000;
    settings_.min_p = 0.05F;
    settings_.scheduler.slots = 2;
    status_.slots.resize(2);
  }

  void serve() {
    auto router = std::make_shared<Router>();
    add_operations(*router, {.settings = settings_,
                             .tokenizer = tokenizer_,
                             .trained_context = 1'048'576,
                             .vocabulary = static_cast<int>(tokenizer_.size()),
                             .parameters = 123,
                             .model_bytes = 456,
                             .memory_bytes = 789,
                             .stuck_seconds = 60,
                             .status = [this] { return status_; },
                             .counters = [this] { return server_->counters(); },
                             .kept = [] { return ApiKept{.turns = 3, .responses_limit = 256}; },
                             .start_settings = {{"chunk", 512}}});
    HttpOptions options;
    options.port = 0;
    server_ = std::make_unique<HttpServer>(options, router);
  }
  Reply get(std::string_view target, std::string_view headers = {}) {
    return Client(server_->port()).ask(request_text("GET", target, {}, headers));
  }
  Reply post(std::string_view target, std::string_view body) {
    return Client(server_->port()).ask(request_text("POST", target, body));
  }

  Gguf file_;
  Tokenizer tokenizer_;
  ServerSettings settings_;
  SchedulerStatus status_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServerOperations, HealthIsRedWhileTheWorkerIsStuckFailsOrStops) {
  serve();
  EXPECT_EQ(get("/health").body, "{\"status\":\"ok\"}");
  EXPECT_EQ(get("/v1/health").status, 200);
  status_.seconds_in_step = 61;
  Reply reply = get("/health");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "unavailable_error");
  EXPECT_EQ(Json::parse(reply.body)["error"]["code"], 503);
  status_.seconds_in_step = 1;
  status_.jobs_failed = 2;
  EXPECT_EQ(get("/health").status, 200);
  status_.jobs_failed = 3;
  EXPECT_EQ(get("/health").status, 503);
  status_.jobs_done = 1;  // one succeeds: it works again
  EXPECT_EQ(get("/health").status, 200);
  status_.jobs_failed = 5;
  EXPECT_EQ(get("/health").status, 200);
  status_.jobs_failed = 6;
  EXPECT_EQ(get("/health").status, 503);
  status_.jobs_done = 2;
  status_.is_stopping = true;
  EXPECT_EQ(get("/health").status, 503);
}

TEST_F(ServerOperations, HealthIsRedOnceTheDeviceHasFailed) {
  status_.device_failure = "GPU 0: an illegal memory access";
  status_.jobs_done = 9;
  serve();
  const Reply reply = get("/health");
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("GPU 0: an illegal memory access"), std::string::npos) << reply.body;
}

TEST_F(ServerOperations, WhileTheModelIsLoadedOnlyHealthAndThePageAnswer) {
  HttpOptions options;
  options.port = 0;
  server_ = std::make_unique<HttpServer>(options, make_loading_router([] { return std::string("reading"); }));
  Reply reply = get("/health");
  EXPECT_EQ(reply.status, 503);
  const Json body = Json::parse(reply.body);
  EXPECT_EQ(body["error"], Json({{"code", 503}, {"message", "Loading model"}, {"type", "unavailable_error"}}));
  EXPECT_EQ(body["progress"], "reading");
  EXPECT_EQ(get("/").status, 200);
  reply = post("/v1/chat/completions", "{}");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "loading");
  EXPECT_NE(reply.header("retry-after"), "");
  EXPECT_EQ(Json::parse(post("/v1/messages", "{}").body)["error"]["type"], "overloaded_error");
}

TEST_F(ServerOperations, PropsTellWhatIsInEffect) {
  serve();
  const Json props = Json::parse(get("/props").body);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 4096);
  EXPECT_EQ(props["default_generation_settings"]["params"]["min_p"], 0.05);
  EXPECT_EQ(props["lockstep"]["min_p"], 0.05);
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["model_alias"], "deepseek-v4-flash");
  EXPECT_EQ(props["model_path"], "/models/flash.gguf");
  EXPECT_EQ(props["modalities"], Json({{"vision", false}, {"audio", false}}));
  EXPECT_EQ(props["bos_token"], kBosText);
  EXPECT_EQ(props["eos_token"], kEosText);
  EXPECT_TRUE(props["chat_template"].is_string());
  EXPECT_TRUE(props["build_info"].get<std::string>().starts_with("lockstep "));
  EXPECT_EQ(props["lockstep"]["profile"], "auto");
  EXPECT_EQ(props["lockstep"]["chunk"], 512);
  EXPECT_EQ(props["lockstep"]["queue"], 64);
}

TEST_F(ServerOperations, SlotsTellWhoIsBusy) {
  status_.slots[1].is_busy = true;
  status_.slots[1].job = 7;
  status_.slots[1].done = 30;
  status_.slots[1].limit = 100;
  status_.slots[1].stats.prompt = 11;
  status_.slots[1].stats.generated = 20;
  status_.slots[1].sampling.temperature = 1.7F;
  status_.slots[1].sampling.repetition_penalty = 1.1F;
  status_.slots[1].penalty_last_n = 64;
  status_.slots[1].sampling.top_k = 11;
  status_.slots[1].sampling.seed = 18'000'000'000'000'000'000U;
  status_.slots[1].sampling.logit_bias = {{5, -100.0F}, {6, 1.0F}};
  status_.slots[1].wanted = 77;
  status_.slots[1].logprobs = 3;
  status_.slots[1].stops = 2;
  serve();
  Json slots = Json::parse(get("/slots").body);
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_EQ(slots[0]["id_task"], -1);
  EXPECT_EQ(slots[1]["id_task"], 7);
  EXPECT_EQ(slots[1]["n_ctx"], 4096);
  const Json own = {{"seed", 18'000'000'000'000'000'000U},
                    {"temperature", 1.7},
                    {"top_k", 11},
                    {"top_p", 1.0},
                    {"min_p", 0.0},
                    {"repeat_penalty", 1.1},
                    {"repeat_last_n", 64},
                    {"frequency_penalty", 0.0},
                    {"presence_penalty", 0.0},
                    {"n_predict", 77},
                    {"max_tokens", 77},
                    {"n_probs", 3},
                    {"logit_bias_count", 2},
                    {"stop_count", 2}};
  EXPECT_EQ(slots[1]["params"], own) << "the request's own";
  const Json idle = Json::parse(get("/props").body)["default_generation_settings"]["params"];
  EXPECT_EQ(slots[0]["params"], idle) << "what a request would get";
  for (const auto& [name, value] : own.items()) {
    const bool is_of_a_request = name == "seed" || name == "n_probs" || name.ends_with("_count");
    EXPECT_EQ(idle.contains(name), !is_of_a_request) << name;
  }
  EXPECT_EQ(slots[1]["next_token"]["n_decoded"], 20);
  EXPECT_EQ(slots[1]["next_token"]["n_remain"], 69) << "of the 100, 11 are the prompt's";
  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 200);
  status_.slots[0].is_busy = true;
  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 503);
  EXPECT_EQ(get("/slots").status, 200);
  EXPECT_EQ(post("/slots/0?action=save", "{}").status, 501);
}

TEST_F(ServerOperations, MetricsAreOnesThatPrometheusReads) {
  status_.prompt_tokens = 100;
  status_.reused_tokens = 40;
  status_.prefill_seconds = 2;
  status_.generated_tokens = 9;
  status_.decode_seconds = 3;
  status_.queued = 5;
  status_.slots[0].is_busy = true;
  status_.phases[static_cast<std::size_t>(StepPhase::experts)] = 1.5;
  status_.steps = 4;
  status_.rows = 400;
  status_.answers_in_steps = 6;
  serve();
  const Reply reply = get("/metrics");
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.header("content-type").starts_with("text/plain; version=0.0.4"));
  std::map<std::string, std::string> values, types;
  std::istringstream lines(reply.body);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, value, type;
    words >> name >> value;
    if (name == "#") {
      words >> name >> type;
      if (value == "TYPE") {
        EXPECT_TRUE(types.emplace(name, type).second) << name;
      }
    } else {
      EXPECT_TRUE(values.emplace(name, value).second) << name;
      EXPECT_TRUE(types.contains(name.substr(0, name.find('{')))) << name << " has no type before it";
    }
  }
  EXPECT_EQ(values["llamacpp:n_busy_slots_per_decode"], "1.5");  // answers, however many rows they have
  EXPECT_EQ(values["llamacpp:prompt_tokens_total"], "60");
  EXPECT_EQ(values["llamacpp:prompt_tokens_seconds"], "30");
  EXPECT_EQ(values["llamacpp:tokens_predicted_total"], "9");
  EXPECT_EQ(values["llamacpp:predicted_tokens_seconds"], "3");
  EXPECT_EQ(values["llamacpp:requests_processing"], "1");
  EXPECT_EQ(values["llamacpp:requests_deferred"], "5");
  EXPECT_EQ(values["lockstep_reused_tokens_total"], "40");
  EXPECT_EQ(values["lockstep_http_active"], "1");
  EXPECT_EQ(values["lockstep_phase_seconds_total{phase=\"experts\"}"], "1.5");
  EXPECT_GT(std::stod(values["lockstep_resident_bytes"]), 1e6);
  const struct mallinfo2 memory = mallinfo2();  // of a sanitizer's allocator 0
  EXPECT_EQ(std::stod(values["lockstep_allocated_bytes"]) > 1e5, memory.uordblks + memory.hblkhd > 100'000);
  EXPECT_EQ(values["lockstep_turns"], "3");
  EXPECT_EQ(values["lockstep_responses_limit"], "256");
  EXPECT_TRUE(values.contains("lockstep_answers_total{end=\"failed\"}"));
  EXPECT_FALSE(values.contains("lockstep_disk_bytes")) << "there is no cache directory";
}

TEST_F(ServerOperations, MetricsOfTheDiskAreThoseOfTheCacheDirectory) {
  settings_.scheduler.cache_dir = "/srv/states";
  settings_.scheduler.cache_disk_bytes = 1000;
  status_.disk.bytes = 300;
  status_.disk.tokens_restored = 77;
  serve();
  const std::string text = get("/metrics").body;
  EXPECT_NE(text.find("\nlockstep_disk_bytes 300\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlockstep_disk_limit_bytes 1000\n"), std::string::npos);
  EXPECT_NE(text.find("\nlockstep_disk_restored_tokens_total 77\n"), std::string::npos);
  EXPECT_EQ(Json::parse(get("/props").body)["lockstep"]["cache_dir"], "/srv/states");
}

TEST_F(ServerOperations, WhatIsTurnedOffSaysSo) {
  settings_.has_metrics = settings_.has_slots = false;
  serve();
  EXPECT_EQ(get("/metrics").status, 501);
  EXPECT_EQ(get("/slots").status, 501);
  const Reply reply = post("/v1/embeddings", "{}");
  EXPECT_EQ(reply.status, 501);
  EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "not_supported_error");
  EXPECT_EQ(post("/v1/audio/speech", "{}").status, 501);
  EXPECT_EQ(get("/lora-adapters").status, 404);
}

TEST_F(ServerOperations, ModelsAreListedForBothFamilies) {
  serve();
  const Json list = Json::parse(get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "deepseek-v4-flash");
  EXPECT_EQ(list["data"][0]["context_length"], 4096);
  EXPECT_EQ(list["data"][0]["meta"]["n_ctx_train"], 1'048'576);
  EXPECT_EQ(list["data"][1]["id"], "flash");
  const Json anthropic = Json::parse(get("/v1/models", "anthropic-version: 2023-06-01\r\n").body);
  EXPECT_EQ(anthropic["data"][0]["type"], "model");
  EXPECT_EQ(anthropic["data"][0]["created_at"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(anthropic["first_id"], "deepseek-v4-flash");
  EXPECT_EQ(Json::parse(get("/v1/models/flash").body)["id"], "flash");
  const Reply missing = get("/v1/models/gpt-5");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Json::parse(missing.body)["error"]["code"], "model_not_found");
}

TEST_F(ServerOperations, TextBecomesTokensAndBack) {
  serve();
  const std::string text = "Hello, w\xc3\xb6rld \xf0\x9f\x8d\xb5";
  const Json tokens = Json::parse(post("/tokenize", Json{{"content", text}}.dump()).body)["tokens"];
  EXPECT_EQ(tokens.get<std::vector<Token>>(), tokenizer_.encode(text));
  EXPECT_EQ(Json::parse(post("/detokenize", Json{{"tokens", tokens}}.dump()).body)["content"], text);
  const Json bos = Json::parse(post("/tokenize", R"({"content":"a","add_special":true})").body)["tokens"];
  EXPECT_EQ(bos[0], *tokenizer_.bos());
  const std::string marker(kEosText);
  EXPECT_EQ(Json::parse(post("/tokenize", Json{{"content", marker}}.dump()).body)["tokens"].size(), 1u);
  const Json plain{{"content", marker}, {"parse_special", false}};
  EXPECT_GT(Json::parse(post("/tokenize", plain.dump()).body)["tokens"].size(), 1u);
  const Json pieces =
      Json::parse(post("/tokenize", Json{{"content", text}, {"with_pieces", true}}.dump()).body)["tokens"];
  std::string joined;
  for (const Json& piece : pieces) {
    if (piece["piece"].is_string()) {
      joined += piece["piece"].get<std::string>();
    } else {
      for (const Json& byte : piece["piece"]) joined += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(joined, text);
}

TEST_F(ServerOperations, WrongBodiesAreNamed) {
  serve();
  const struct {
    const char *path, *body, *words;
  } kCases[] = {
      {"/tokenize", "{", "not JSON"},
      {"/tokenize", "[1]", "expected an object"},
      {"/tokenize", "{}", "content: missing"},
      {"/tokenize", "", "content: missing"},
      {"/tokenize", R"({"content":5})", "content: 5, expected a string"},
      {"/tokenize", R"({"content":"a","with_pieces":"yes"})", "with_pieces"},
      {"/detokenize", R"({"tokens":"1"})", "expected an array of token ids"},
      {"/detokenize", R"({"tokens":[1,-1]})", "tokens[1]: -1"},
      {"/detokenize", R"({"tokens":[99999999999]})", "tokens[0]"},
      {"/detokenize", R"({"tokens":[1.5]})", "tokens[0]: 1.5"},
      {"/detokenize", R"({"tokens":[null]})", "tokens[0]: null"},
      {"/detokenize", R"({"tokens":[1000000000000000000000000000000]})",
       "tokens[0]: 1000000000000000000000000000000, "},
  };
  for (const auto& c : kCases) {
    const Reply reply = post(c.path, c.body);
    EXPECT_EQ(reply.status, 400) << c.body;
    EXPECT_NE(reply.body.find(c.words), std::string::npos) << c.body << "\n" << reply.body;
  }
}

TEST_F(ServerOperations, ThePageIsOpenAndLetsNothingElseIn) {
  auto router = std::make_shared<Router>();
  add_page(*router);
  HttpOptions options;
  options.port = 0;
  options.keys = ApiKeys::of({"key"});
  server_ = std::make_unique<HttpServer>(options, router);
  ASSERT_FALSE(page_files().empty());
  for (const PageFile& file : page_files()) {
    const std::string name(file.name);
    const Reply reply = get(name == "page.html" ? "/" : "/" + name);
    EXPECT_EQ(reply.status, 200) << name;
    std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/src/server/" + name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(reply.body, text) << name;
    // The same as in tests/page/standin.mjs, under which the page is tested in a browser.
    EXPECT_EQ(reply.header("content-security-policy"),
              "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'");
  }
  EXPECT_EQ(get("/").header("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(get("/page.js").header("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(Client(server_->port()).ask(request_text("HEAD", "/"), true).status, 200);
  EXPECT_EQ(get("/props").status, 401);
}

TEST(ServerLog, APolledHealthIsNoWarningThoughItIsRed) {
  std::vector<std::string> lines;
  RequestRecord record;
  record.method = "GET";
  record.path = "/health";
  record.status = 503;
  Log(LogLevel::info, true, [&](std::string_view line) { lines.emplace_back(line); }).request(record);
  EXPECT_TRUE(lines.empty());
  record.path = "/v1/models";
  Log(LogLevel::info, true, [&](std::string_view line) { lines.emplace_back(line); }).request(record);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(Json::parse(lines[0])["level"], "warning");
}

TEST(ServerLog, ALineARequestInBothForms) {
  std::vector<std::string> lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  RequestRecord record;
  record.id = "req_1";
  record.method = "POST";
  record.path = "/v1/chat/completions\n2026 level=error forged";
  record.address = "127.0.0.1:5";
  record.status = 200;
  record.seconds = 1.23456;
  record.end = "done";
  record.notes = {{"cached_tokens", 12}, {"back_end", "cpu (avx2)"}, {"rates", {{"decode", 2.5}}}};
  Log(LogLevel::info, true, keep).request(record);
  const Json json = Json::parse(lines.at(0));
  EXPECT_EQ(json["event"], "request");
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["status"], 200);
  EXPECT_EQ(json["seconds"], 1.2346);
  EXPECT_EQ(json["cached_tokens"], 12);
  EXPECT_FALSE(json.contains("end"));
  Log(LogLevel::info, false, keep).request(record);
  EXPECT_EQ(lines.at(1).find('\n'), std::string::npos);
  EXPECT_NE(lines.at(1).find(R"(path="/v1/chat/completions\n2026 level=error forged")"), std::string::npos) << lines[1];
  EXPECT_NE(lines.at(1).find(" cached_tokens=12 back_end=\"cpu (avx2)\" rates.decode=2.5"), std::string::npos)
      << lines[1];
}

TEST(ServerLog, WhatClientsSendIsCut) {
  std::vector<std::string> lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  RequestRecord record;
  record.method = "POST";
  record.path = "/" + std::string(60'000, 'p');
  record.status = 404;
  record.notes = {{"model", std::string(100'000, 'm')}, {"inner", {{"list", {std::string(5000, 'l')}}}}};
  for (const bool is_json : {false, true}) Log(LogLevel::info, is_json, keep).request(record);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    EXPECT_LT(line.size(), 1500u);
    EXPECT_NE(line.find("ppp... (60001 bytes)"), std::string::npos) << line;
  }
}

TEST(ServerLog, NoTextEndsALineOrReachesATerminalAsACommand) {
  const struct {
    std::string_view text, shown;
  } kCases[] = {
      {"a\nb\r\tc", R"(a\u000ab\u000d\u0009c)"},
      {"\x1b[31mred\x7f", R"(\u001b[31mred\u007f)"},
      {"\xc2\x9b"
       "2J \xc2\x85",
       R"(\u009b2J \u0085)"},
      {"\xe2\x80\xae\xe2\x80\xa8", R"(\u202e\u2028)"},
      {"\x9b"
       "2J caf\xc3",
       R"(\x9b2J caf\xc3)"},
      {"größe 漢字 😀 \"quoted\"", "größe 漢字 😀 \"quoted\""},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> lines;
    const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
    Log(LogLevel::info, false, keep).warning(c.text);
    EXPECT_TRUE(lines.at(0).ends_with(" warning " + std::string(c.shown))) << lines[0];
    Log(LogLevel::info, false, keep).warning("x", {{"key" + to_valid_utf8(c.text), 1}});
    for (const char character : lines.at(1)) EXPECT_TRUE(static_cast<unsigned char>(character) >= 0x20) << lines[1];
    Log(LogLevel::info, true, keep).warning(c.text, {{"field", std::string(c.text)}});
    for (const char character : lines.at(2)) EXPECT_TRUE(static_cast<unsigned char>(character) >= 0x20) << lines[2];
    EXPECT_EQ(lines[2].find("\xc2\x9b"), std::string::npos);
    EXPECT_EQ(Json::parse(lines[2])["field"], to_valid_utf8(c.text));
  }
}

TEST(ServerLog, LevelsLeaveLinesOut) {
  std::vector<std::string> lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  Log log(LogLevel::info, false, keep);
  RequestRecord polled;
  polled.method = "GET";
  polled.status = 200;
  log.request(polled);
  log.debug("small");
  EXPECT_TRUE(lines.empty());
  polled.status = 503;
  log.request(polled);
  EXPECT_EQ(lines.size(), 1u);
  Log off(LogLevel::off, false, keep);
  off.error("quiet");
  EXPECT_EQ(lines.size(), 1u);
  EXPECT_EQ(log_level_named("warning"), LogLevel::warning);
  EXPECT_THROW(log_level_named("loud"), Error);
}

}  // namespace
}  // namespace lockstep
