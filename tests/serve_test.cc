// `lockstep serve` as a program: what it refuses, that it is up before the model is, and how it ends.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve_options.h"
#include "cli_run.h"
#include "server_client.h"

namespace lockstep {
namespace {

using test::Client;
using test::Program;
using test::Ran;
using test::Reply;
using test::request_text;
using test::run_program;
using Json = nlohmann::ordered_json;

constexpr const char* kModel = LOCKSTEP_SOURCE_DIR "/demo/lockstep-demo.gguf";

/// A file in the test's own folder, gone with this object.
class TextFile {
 public:
  TextFile(const std::string& name, const std::string& text)
      : path_((std::filesystem::path(testing::TempDir()) / ("lockstep_serve_" + name)).string()) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The members of the first log line of that event, of a program run with --log-json.
Json event_of(Program& program, const std::string& event) {
  const std::string mark = "\"event\":\"" + event;
  if (!program.wait_for_errors(mark)) return {};
  const std::size_t at = program.errors.find(mark);
  while (program.errors.find('\n', at) == std::string::npos)
    if (!program.read_errors()) return {};
  const std::size_t begin = program.errors.rfind('\n', at) + 1;
  return Json::parse(program.errors.substr(begin, program.errors.find('\n', at) - begin));
}

int port_of(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

TEST(Serve, WhatCannotWorkIsRefusedAtTheStart) {
  const TextFile config("bad.toml", "prot = 8000\n"), value("value.toml", "slots = \"many\"\n"), empty("keys", "\n");
  const struct {
    const char* name;
    std::vector<std::string> arguments;
    const char* words;
  } kCases[] = {
      {"no such model", {"/nowhere.gguf"}, "/nowhere.gguf"},
      {"a certificate alone", {kModel, "--tls-cert", "x.pem"}, "--tls-key: missing"},
      {"a certificate that is none", {kModel, "--tls-cert", "/nowhere", "--tls-key", "/nowhere"}, "TLS certificate"},
      {"an empty key file", {kModel, "--api-key-file", empty.path()}, "holds no key"},
      {"an origin with a path", {kModel, "--cors", "http://a/b"}, "--cors: http://a/b"},
      {"a large context", {kModel, "--context", "99999999"}, "--context: 99999999"},
      {"a large cache", {kModel, "--cache-ram", "900TB"}, "expected a smaller --context"},
      {"no room for an answer", {kModel, "--session-ram", "1kB"}, "--session-ram"},
      {"a size that is none", {kModel, "--cache-ram", "lots"}, "--cache-ram: lots"},
      {"a chunk below the slots", {kModel, "--chunk", "2", "--slots", "3"}, "--chunk: 2"},
      {"a temperature", {kModel, "--temperature", "-1"}, "temperature"},
      {"no tokens", {kModel, "--max-tokens", "0"}, "--max-tokens: 0"},
      {"a profile", {kModel, "--profile", "v3"}, "--profile"},
      {"a host", {kModel, "--host", "no.such.host.invalid"}, "no.such.host.invalid"},
      {"a setting that is none", {kModel, "--config", config.path()}, "prot"},
      {"a setting's value", {kModel, "--config", value.path()}, "many"},
      {"no file of settings", {kModel, "--config", "/nowhere.toml"}, "/nowhere.toml"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> arguments = {"serve", "--port", "0"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Ran ran = run_program(arguments);
    EXPECT_NE(ran.code, 0) << c.name;
    EXPECT_GT(ran.code, 0) << c.name << ": it ended by a signal";
    EXPECT_NE((ran.errors + ran.output).find(c.words), std::string::npos) << c.name << "\n" << ran.errors;
  }
}

TEST(Serve, ServesUntilItIsToldToStop) {
  const TextFile keys("good_keys", "sk-secret-key\n");
  const TextFile config("good.toml",
                        "# settings\n[serve]\nslots = 2\ncontext = 300\nqueue = 5\nalias = [\"a\", \"b\"]\n"
                        "cache-ram = \"1MB\"\nno-slots = true\ndefault-system = \"Be brief.\"\n");
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json", "--log-level", "debug",
                   "--api-key-file", keys.path(), "--config", config.path(), "--queue", "7"});
  const Json ready = event_of(program, "ready");
  ASSERT_TRUE(ready.is_object()) << program.errors;
  EXPECT_EQ(ready["slots"], 2);
  EXPECT_EQ(ready["context"], 300);
  const int port = port_of(ready["url"]);
  const auto get = [&](std::string_view target) {
    return Client(port).ask(request_text("GET", target, {}, "Authorization: Bearer sk-secret-key\r\n"));
  };
  EXPECT_EQ(Client(port).ask(request_text("GET", "/health")).status, 200);
  EXPECT_EQ(Client(port).ask(request_text("GET", "/props")).status, 401);
  const Json props = Json::parse(get("/props").body);
  EXPECT_EQ(props["lockstep"]["queue"], 7);  // the command line wins
  EXPECT_EQ(props["lockstep"]["aliases"], Json({"a", "b"}));
  EXPECT_EQ(props["lockstep"]["cache_ram_bytes"], 1'000'000);
  EXPECT_EQ(props["lockstep"]["default_system"], "Be brief.");
  EXPECT_EQ(props["model_alias"], "lockstep-demo");
  EXPECT_EQ(get("/slots").status, 501);
  EXPECT_EQ(get("/").status, 200);
  const Reply answer =
      Client(port).ask(request_text("POST", "/v1/completions", R"({"prompt":"Hello","max_tokens":5,"temperature":0})",
                                    "x-api-key: sk-secret-key\r\n"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(get("/metrics").body.find("\nllamacpp:tokens_predicted_total 5\n"), std::string::npos);
  // A stream that runs when the signal comes is finished.
  Client client(port);
  client.send(request_text("POST", "/v1/completions",
                           R"({"prompt":"Hello","max_tokens":100,"temperature":0,"stream":true,"ignore_eos":true})",
                           "x-api-key: sk-secret-key\r\n"));
  ASSERT_TRUE(client.read_until("data: {"));
  program.interrupt();
  const Reply streamed = client.read_reply();
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n")) << streamed.body;
  EXPECT_EQ(program.finish(), 0);
  EXPECT_NE(program.errors.find("\"event\":\"stopped\""), std::string::npos) << program.errors;
  EXPECT_EQ(program.errors.find("secret-key"), std::string::npos);
  EXPECT_EQ(program.errors.find("Hello"), std::string::npos);
}

/// A request for a stream that does not end by itself: one word, again and again.
std::string endless_request(int port) {
  const Reply reply = Client(port).ask(request_text("POST", "/tokenize", R"({"content":" the"})"));
  const Token word = Json::parse(reply.body)["tokens"].at(0).get<Token>();
  const Json body = {{"prompt", "Hello"},
                     {"max_tokens", 60000},
                     {"temperature", 0},
                     {"stream", true},
                     {"logit_bias", {{std::to_string(word), 100}}}};
  return request_text("POST", "/v1/completions", body.dump());
}

TEST(Serve, ASecondSignalEndsItAtOnce) {
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json", "--stop-seconds", "1000"});
  const int port = port_of(event_of(program, "ready")["url"]);
  Client client(port);
  client.send(endless_request(port));
  ASSERT_TRUE(client.read_until("data: {"));
  program.interrupt();
  ASSERT_TRUE(program.wait_for_errors("told to stop"));  // the signal is let through before that line
  program.interrupt();
  EXPECT_EQ(program.finish(), -SIGINT);
}

TEST(Serve, AnAnswerThatOutlastsTheStopIsToldSo) {
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json", "--stop-seconds", "0.1"});
  const int port = port_of(event_of(program, "ready")["url"]);
  Client client(port);
  client.send(endless_request(port));
  ASSERT_TRUE(client.read_until("data: {"));
  program.interrupt();
  const Reply reply = client.read_reply();
  const std::size_t last = reply.body.rfind("data: ");
  ASSERT_NE(last, std::string::npos);
  EXPECT_TRUE(reply.body.substr(last).starts_with("data: {\"error\":")) << reply.body;
  EXPECT_EQ(program.finish(), 0);
}

TEST(Serve, AnOpenServerSaysSo) {
  Program program({"serve", kModel, "--host", "0.0.0.0", "--port", "0", "--threads", "1", "--log-json"});
  const int port = port_of(event_of(program, "ready")["url"]);
  EXPECT_EQ(Client(port).ask(request_text("GET", "/health")).status, 200);
  EXPECT_NE(program.errors.find("no key is asked for"), std::string::npos) << program.errors;
  program.interrupt();
  EXPECT_EQ(program.finish(), 0);
}

TEST(Serve, ATakenPortIsAnError) {
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json"});
  const int port = port_of(event_of(program, "ready")["url"]);
  const Ran second = run_program({"serve", kModel, "--port", std::to_string(port)});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.errors.find("port " + std::to_string(port)), std::string::npos) << second.errors;
  program.interrupt();
  EXPECT_EQ(program.finish(), 0);
}

TEST(Serve, MemoryIsDividedByTheLimit) {
  MemoryPlan model;
  model.weights = 1000;
  model.workspace = 100;
  model.sequence = 50;
  model.context = 10;
  const auto plan = [&](std::uint64_t limit, std::optional<std::uint64_t> sessions = std::nullopt,
                        std::optional<std::uint64_t> cache = std::nullopt) {
    return plan_serve(model, 4, sessions, cache, {limit, "this machine has"}, "m.gguf");
  };
  EXPECT_EQ(plan(10'000).sessions, 200u);  // four answers
  EXPECT_EQ(plan(10'000).cache, 2175u);    // a quarter of the rest
  EXPECT_EQ(plan(1'220).sessions, 90u);    // three quarters of what is left
  EXPECT_EQ(plan(1'150).sessions, 50u);    // one answer at least
  EXPECT_EQ(plan(1'150).cache, 0u);
  EXPECT_THROW(plan(1'149), Error);  // not even one
  EXPECT_EQ(plan(1'500, 100).cache, 75u);
  EXPECT_EQ(plan(10'000, std::nullopt, 0).cache, 0u);
  EXPECT_THROW(plan(10'000, 49), Error);  // less than an answer takes
  EXPECT_THROW(plan(10'000, 100, 9'000), Error);
}

TEST(Serve, SizesAreReadByTheirUnit) {
  const struct {
    const char* text;
    std::optional<std::uint64_t> bytes;
  } kCases[] = {{"auto", std::nullopt}, {"0", 0},         {"4GB", 4'000'000'000},     {"1.5kb", 1500},
                {"2GiB", 2u << 30},     {"3m", 3u << 20}, {"1TB", 1'000'000'000'000}, {"7b", 7}};
  for (const auto& c : kCases) EXPECT_EQ(bytes_from(c.text, "--x"), c.bytes) << c.text;
  for (const char* text : {"", "GB", "-1", "4 GB", "4XB", "nan", "1e40"})
    EXPECT_THROW(bytes_from(text, "--x"), Error) << text;
}

TEST(Serve, LoopbackIsKnown) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace lockstep
