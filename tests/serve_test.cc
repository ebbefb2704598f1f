// `lockstep serve` as a program: what it refuses, that it is up before the model is, and how it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve_options.h"
#include "cli_run.h"
#include "server_client.h"
#include "server_tls.h"

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

/// An empty folder of the test's own, gone with this object.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / ("lockstep_serve_" + name + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
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

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Serve, WhatCannotWorkIsRefusedAtTheStart) {
  const TextFile config("bad.toml", "prot = 8000\n"), value("value.toml", "slots = \"many\"\n"), empty("keys", "\n");
  const TextFile twice("twice.toml", "slots = 1\nport = 0\nslots = 2\n"), flag("flag.toml", "log-json = maybe\n");
  const TextFile section("section.toml", "[http]\nport = 0\n"), binary("binary", "sk-\x01\n");
  const TextFile number("number.toml", "port = 0\nstrict-model = 5\n"), odd("odd.ini", "port = 0\n\xff\xfe\n");
  const TextFile odd_toml("odd.toml", "port = 0\n\xff\xfe\n"), open("open.toml", "port = 0\nmodel = \"x\n");
  const TextFile list("list.toml", "\nhost = [\"a\", \"b\"]\n"), truth("truth.toml", "host = true\n");
  const TextFile ini_number("number.ini", "strict-model=5\n"), ini_words("words.ini", "[serve]\nslots = 1 2\n");
  const TextFile ini_name("name.ini", "# x\nprot = 1\n"), ini_line("line.ini", "port = 0\nslots\n");
  const TextFile ini_quotes("quotes.ini", "host = \"a\" b\n"), not_a_model("not.gguf", "no model\n");
  const TextFile later("later.toml", "slots = 1\ncors = 5\n"), cold("cold.ini", "temperature = -1\n");
  const TextFile top("top.toml", "top-p = 5\n"), ram("ram.toml", "\ncache-ram = \"16XB\"\n");
  const TextFile sessions("sessions.toml", "session-ram = \"1kB\"\n"),
      keys("keys.toml", "api-key-file = \"/nowhere\"\n");
  const TextFile name("host.toml", "host = \"no.such.host.invalid\"\n"),
      model("model.toml", "model = \"/nowhere.gguf\"\n");
  const TextFile port("port.toml", "slots = 1\nport = \"x\"\n"), level("level.toml", "\nlevel = \"sse9\"\n");
  const TextFile marked("marked.ini", "\xef\xbb\xbfslots = 1\nport = x\n"), nothing("nothing.ini", "\nhost =\n");
  const TextFile tls("tls.toml", "slots = 1\ntls-cert = \"x.pem\"\n"), blank("blank", "sk-a b\n");
  const TextFile large("large.toml", std::string("model = \"") + kModel + "\"\n\ncache-ram = \"900TB\"\n");
  const std::string fits_not = std::string("lockstep: ") + kModel + ": needs";
  const TextFile marked_keys("marked_keys", "\xef\xbb\xbf\n");
  const test::Certificate certificate(testing::TempDir()), other(testing::TempDir());
  const struct {
    const char* name;
    std::vector<std::string> arguments;
    const char* words;
  } kCases[] = {
      {"no such model", {"/nowhere.gguf"}, "/nowhere.gguf"},
      {"a certificate alone", {kModel, "--tls-cert", "x.pem"}, "--tls-cert: x.pem alone"},
      {"no certificate",
       {kModel, "--tls-cert", "/nowhere", "--tls-key", "/nowhere"},
       "TLS certificate /nowhere: cannot be"},
      {"a certificate that is none",
       {kModel, "--tls-cert", empty.path(), "--tls-key", certificate.key_path},
       "TLS certificate"},
      {"no key",
       {kModel, "--tls-cert", certificate.certificate_path, "--tls-key", "/nowhere"},
       "TLS key /nowhere: cannot be"},
      {"another's key", {kModel, "--tls-cert", certificate.certificate_path, "--tls-key", other.key_path}, "TLS key"},
      {"an empty key file", {kModel, "--api-key-file", empty.path()}, "holds no key"},
      {"no key file", {kModel, "--api-key-file", "/nowhere"}, "API key file /nowhere: cannot be opened"},
      {"a folder of keys", {kModel, "--api-key-file", testing::TempDir()}, "cannot be read"},
      {"a key of odd bytes", {kModel, "--api-key-file", binary.path()}, "line 1"},
      {"an origin with a path", {kModel, "--cors", "http://a/b"}, "--cors: http://a/b"},
      {"a large context", {kModel, "--context", "99999999"}, "--context: 99999999"},
      {"a large cache", {kModel, "--cache-ram", "900TB"}, "expected a smaller --context"},
      {"no room for an answer", {kModel, "--session-ram", "1kB"}, "--session-ram"},
      {"a size that is none", {kModel, "--cache-ram", "lots"}, "--cache-ram: lots"},
      {"a disk without a folder", {kModel, "--cache-disk", "1GB"}, "expected --cache-dir"},
      {"a disk of nothing", {kModel, "--cache-dir", "/nowhere", "--cache-disk", "0"}, "--cache-disk: 0"},
      {"a folder that cannot be", {kModel, "--cache-dir", "/dev/null/states"}, "/dev/null/states"},
      {"a chunk below the slots", {kModel, "--chunk", "2", "--slots", "3"}, "--chunk: 2"},
      {"a temperature", {kModel, "--temperature", "-1"}, "--temperature: -1"},
      {"a share", {kModel, "--top-p", "5"}, "--top-p: 5"},
      {"no tokens", {kModel, "--max-tokens", "0"}, "--max-tokens: 0"},
      {"a profile", {kModel, "--profile", "v3"}, "--profile"},
      {"a host", {kModel, "--host", "no.such.host.invalid"}, "no.such.host.invalid"},
      {"no host", {kModel, "--host="}, "--host"},
      {"a port", {kModel, "--port", "70000"}, "--port"},
      {"a word for a number", {kModel, "--temperature", "hot"}, "--temperature"},
      {"an option that is none", {kModel, "--prot", "8000"}, "--prot"},
      {"a setting that is none", {kModel, "--config", config.path()}, "bad.toml:1: prot"},
      {"a setting's value", {kModel, "--config", value.path()}, "value.toml:1: --slots: Value many"},
      {"a setting that comes twice", {kModel, "--config", twice.path()}, "twice.toml:3: "},
      {"neither true nor false", {kModel, "--config", flag.path()}, "flag.toml:1: "},
      {"a setting of a section", {kModel, "--config", section.path()}, "section.toml:2: http.port"},
      {"a number for a switch", {kModel, "--config", number.path()}, "number.toml:2: strict-model: a switch"},
      {"a number for a switch, INI", {kModel, "--config", ini_number.path()}, "number.ini:1: strict-model: a switch"},
      {"bytes that are no text", {kModel, "--config", odd_toml.path()}, "odd.toml:2: "},
      {"bytes that are no text, INI", {kModel, "--config", odd.path()}, "odd.ini:2: "},
      {"a string without an end", {kModel, "--config", open.path()}, "open.toml:2: "},
      {"a list for one value", {kModel, "--config", list.path()}, "list.toml:2: host: an array"},
      {"a switch's value", {kModel, "--config", truth.path()}, "truth.toml:1: host: "},
      {"two numbers", {kModel, "--config", ini_words.path()}, "words.ini:2: "},
      {"a name that is none, INI", {kModel, "--config", ini_name.path()}, "name.ini:2: prot is no setting"},
      {"a line that sets nothing", {kModel, "--config", ini_line.path()}, "line.ini:2: no setting"},
      {"quotes within", {kModel, "--config", ini_quotes.path()}, "quotes.ini:1: host"},
      {"no alias", {kModel, "--alias", ""}, "--alias: empty"},
      {"a file that is no model", {not_a_model.path()}, "not.gguf"},
      {"a trace that is a file", {kModel, "--trace", not_a_model.path()}, "--trace: "},
      {"a trace that cannot be", {kModel, "--trace", "/proc/nowhere/traces"}, "--trace: /proc/nowhere/traces"},
      {"a folder nowhere", {kModel, "--cache-dir", "/proc/states"}, "--cache-dir: /proc/states"},
      {"an origin that is none", {kModel, "--config", later.path()}, "later.toml:2: --cors: 5"},
      {"a setting that is too small", {kModel, "--config", cold.path()}, "cold.ini:1: --temperature: -1"},
      {"a setting that is too large", {kModel, "--config", top.path()}, "top.toml:1: --top-p: 5"},
      {"a setting's size", {kModel, "--config", ram.path()}, "ram.toml:2: --cache-ram: 16XB"},
      {"a setting without room", {kModel, "--config", sessions.path()}, "sessions.toml:1: --session-ram: "},
      {"settings that do not fit together", {"--config", large.path()}, fits_not.c_str()},
      {"a setting's file of keys", {kModel, "--config", keys.path()}, "keys.toml:1: --api-key-file: "},
      {"a setting's host", {kModel, "--config", name.path()}, "host.toml:1: --host: "},
      {"a setting's model", {"--config", model.path()}, "model.toml:1: model: /nowhere.gguf"},
      {"a value that the command line wins over", {kModel, "--config", port.path()}, "port.toml:2: --port: "},
      {"a level that is none", {kModel, "--config", level.path()}, "level.toml:2: --level"},
      {"a setting's certificate alone", {kModel, "--config", tls.path()}, "tls.toml:2: --tls-cert"},
      {"a mark before the text", {kModel, "--config", marked.path()}, "marked.ini:2: --port"},
      {"nothing after the sign", {kModel, "--config", nothing.path()}, "nothing.ini:2: host has no value"},
      {"a blank in a key", {kModel, "--api-key-file", blank.path()}, "line 1: a blank"},
      {"a mark and no key", {kModel, "--api-key-file", marked_keys.path()}, "holds no key"},
      {"no file of settings", {kModel, "--config", "/nowhere.toml"}, "/nowhere.toml"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> arguments = {"serve", "--port", "0"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.code, 2) << c.name << ": a restart would find the same\n" << ran.errors;
    EXPECT_EQ(ran.errors.find("listening"), std::string::npos) << c.name;
    EXPECT_EQ(count_of(ran.errors, "\nlockstep: ") + ran.errors.starts_with("lockstep: ") +
                  count_of(ran.errors, "Run with --help"),
              1u)
        << c.name << ": one message\n"
        << ran.errors;
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

TEST(Serve, ASettingsFileMayBeTomlOrIni) {
  const TextFile toml("one.toml",
                      "# toml\nslots = 3\nalias = [\"a\", \"b\"]\ndefault-system = \"Be brief.\"\nno-slots = true\n"
                      "cache-ram = \"1MB\"\ntemperature = 0.5\nhost = \"127.0.0.1\"\n");
  const TextFile ini("one.ini",
                     "; ini\n[serve]\nslots=3\nalias=a b\ndefault-system=\"Be brief.\"\nno-slots=true\n"
                     "cache-ram=1MB\ntemperature=0.5\nhost=127.0.0.1\n");
  std::vector<Json> told;
  for (const TextFile* file : {&toml, &ini}) {
    CLI::App app;
    ServeOptions options;
    add_serve_options(*app.add_subcommand("serve"), options);
    app.parse(std::vector<std::string>{file->path(), "--config", kModel, "serve"});  // from the last to the first
    const ServerSettings& settings = options.settings;
    told.push_back({settings.scheduler.slots, settings.aliases, settings.default_system, settings.has_slots,
                    options.cache_ram, settings.temperature, options.http.host, options.model.model});
  }
  EXPECT_EQ(told[0], Json({3, {"a", "b"}, "Be brief.", false, "1MB", 0.5, "127.0.0.1", kModel}));
  EXPECT_EQ(told[1], told[0]);
}

TEST(Serve, AliasesAndOriginsStandBetweenCommas) {
  const struct {
    const char *name, *file, *text;
    std::vector<std::string> aliases;
  } kCases[] = {
      {"words, INI", "a.ini", "alias = a b, c", {"a", "b", "c"}},
      {"quoted, INI", "b.ini", "alias = \"a b, c\"", {"a b", "c"}},
      {"a string", "c.toml", "alias = \"a b , c\"", {"a b", "c"}},
      {"an array", "d.toml", "alias = [\" a b\", \"c, d\"]", {"a b", "c", "d"}},
  };
  for (const auto& c : kCases) {
    const TextFile file(c.file, c.text);
    CLI::App app;
    ServeOptions options;
    add_serve_options(*app.add_subcommand("serve"), options);
    app.parse(std::vector<std::string>{"http://a, http://b", "--cors", file.path(), "--config", kModel, "serve"});
    EXPECT_EQ(options.settings.aliases, c.aliases) << c.name;
    EXPECT_EQ(options.http.cors_origins, (std::vector<std::string>{"http://a", "http://b"})) << c.name;
  }
}

TEST(Serve, ValuesOfSettingsFilesMeanWhatTheirFormatSays) {
  const struct {
    const char* name;
    const char* file;
    const char* text;
    const char* expected;  // the default system text
  } kCases[] = {
      {"escapes", "a.toml", R"(default-system = "You are \"X\".\nLine \u00e9")", "You are \"X\".\nLine \u00e9"},
      {"literal", "b.toml", R"(default-system = 'C:\new "x"')", "C:\\new \"x\""},
      {"lines", "c.toml", "default-system = \"\"\"\nOne.\nTwo \\\n   end.\"\"\" # comment", "One.\nTwo end."},
      {"literal lines", "d.toml", "[serve]\ndefault-system = '''\nA\\n\nB'''", "A\\n\nB"},
      {"a hash in it", "e.toml", "default-system = \"a # b\"", "a # b"},
      {"words, INI", "f.ini", "default-system = You are X, and = #1", "You are X, and = #1"},
      {"quoted, INI", "g.ini", "default-system=\"You are \\\"X\\\".\\nLine\"\r\n", "You are \"X\".\nLine"},
  };
  for (const auto& c : kCases) {
    const TextFile file(c.file, c.text);
    CLI::App app;
    ServeOptions options;
    add_serve_options(*app.add_subcommand("serve"), options);
    app.parse(std::vector<std::string>{file.path(), "--config", kModel, "serve"});
    EXPECT_EQ(options.settings.default_system, c.expected) << c.name;
  }
  const TextFile numbers("h.toml",
                         "context = 4_096\nqueue = 0x10\ntemperature = 5e-1\nlog-json = true\nno-slots = false\n");
  CLI::App app;
  ServeOptions options;
  add_serve_options(*app.add_subcommand("serve"), options);
  app.parse(std::vector<std::string>{numbers.path(), "--config", kModel, "serve"});
  EXPECT_EQ(options.settings.context, 4096);
  EXPECT_EQ(options.settings.scheduler.queue, 16);
  EXPECT_EQ(options.settings.temperature, 0.5F);
  EXPECT_TRUE(options.is_log_json);
  EXPECT_TRUE(options.settings.has_slots);
}

TEST(Serve, TracesAndStatesAreTheirOwnersAlone) {
  const Folder traces("traces"), states("states");
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json", "--trace", traces.path().string(),
                   "--cache-dir", states.path().string()});
  const int port = port_of(event_of(program, "ready")["url"]);
  const std::string body = R"({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2})";
  EXPECT_EQ(Client(port).ask(request_text("POST", "/v1/chat/completions", body)).status, 200);
  program.interrupt();
  EXPECT_EQ(program.finish(), 0);
  using std::filesystem::perms;
  const auto mode_of = [](const std::filesystem::path& path) { return std::filesystem::status(path).permissions(); };
  for (const Folder* folder : {&traces, &states}) EXPECT_EQ(mode_of(folder->path()), perms::owner_all);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(traces.path())) {
    EXPECT_EQ(mode_of(entry.path()), perms::owner_read | perms::owner_write) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

TEST(Serve, PropsTellEverySetting) {
  const std::map<std::string, std::string> kOtherNames = {{"alias", "aliases"},
                                                          {"api-key-file", "api_keys"},
                                                          {"cache-disk", "cache_disk_bytes"},
                                                          {"cache-ram", "cache_ram_bytes"},
                                                          {"keep-alive", "keep_alive_seconds"},
                                                          {"no-metrics", "metrics"},
                                                          {"no-slots", "slots_endpoint"},
                                                          {"session-ram", "session_ram_bytes"},
                                                          {"tls-cert", "tls"},
                                                          {"tls-key", "tls"},
                                                          {"MODEL", "model"}};
  Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json", "--connections", "77", "--chunk",
                   "99", "--cors", "http://a:1,http://b", "--stop-seconds", "3"});
  const int port = port_of(event_of(program, "ready")["url"]);
  const Json told = Json::parse(Client(port).ask(request_text("GET", "/props")).body)["lockstep"];
  program.interrupt();
  EXPECT_EQ(program.finish(), 0);
  CLI::App command;
  ServeOptions options;
  add_serve_options(command, options);
  for (const CLI::Option* option : command.get_options()) {
    std::string name = option->get_single_name();
    if (name == "help" || name == "config") continue;
    if (const auto other = kOtherNames.find(name); other != kOtherNames.end()) name = other->second;
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_TRUE(told.contains(name)) << name;
  }
  EXPECT_EQ(told["port"], port);
  EXPECT_EQ(told["threads"], 1);
  EXPECT_EQ(told["connections"], 77);
  EXPECT_EQ(told["chunk"], 99);
  EXPECT_EQ(told["cors"], Json({"http://a:1", "http://b"}));
  EXPECT_EQ(told["stop_seconds"], 3);
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

TEST(Serve, AConversationGoesOnFromTheDiskAfterARestart) {
  const Folder folder("states");
  const std::vector<std::string> arguments = {
      "serve",        kModel, "--port", "0", "--threads", "1", "--log-json", "--cache-dir", folder.path().string(),
      "--cache-disk", "200MB"};
  Json body = Json::parse(R"({"temperature": 0, "max_tokens": 400, "reasoning_effort": "high",
      "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
      "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}},
                       "required": ["city"]}}}]})");
  const auto ask = [](int port, const Json& request) {
    const Reply reply = Client(port).ask(request_text("POST", "/v1/chat/completions", request.dump()));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? Json::parse(reply.body) : Json();
  };
  Json first;
  {
    Program program(arguments);
    const int port = port_of(event_of(program, "ready")["url"]);
    const Json props = Json::parse(Client(port).ask(request_text("GET", "/props")).body);
    EXPECT_EQ(props["lockstep"]["cache_dir"], folder.path().string());
    EXPECT_EQ(props["lockstep"]["cache_disk_bytes"], 200'000'000);
    first = ask(port, body);
    program.interrupt();
    ASSERT_EQ(program.finish(), 0) << program.errors;
    EXPECT_NE(program.errors.find("on their way to the disk"), std::string::npos) << program.errors;
    EXPECT_NE(program.errors.find("states on disk: 0, in 0 B of at most 200.00 MB"), std::string::npos);
  }
  ASSERT_TRUE(first.is_object());
  ASSERT_EQ(first["choices"][0]["finish_reason"], "tool_calls") << first;
  EXPECT_EQ(first["lockstep"]["restored_tokens"], 0);
  // As most clients have it: the calls go back, the reasoning does not.
  const Json& calls = first["choices"][0]["message"]["tool_calls"];
  body["messages"].push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}});
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", calls[0]["id"]}, {"content", R"({"weather": "sunny"})"}});
  const std::int64_t said =
      first["usage"]["prompt_tokens"].get<std::int64_t>() + first["usage"]["completion_tokens"].get<std::int64_t>();
  std::int64_t without_replay = 0;
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) std::ofstream(folder.path() / "replay-2", std::ios::app) << "x";
    Program program(arguments);
    const int port = port_of(event_of(program, "ready")["url"]);
    const Json answer = ask(port, body);
    const std::string metrics = Client(port).ask(request_text("GET", "/metrics")).body;
    Json cold_body = body;
    cold_body["cache_prompt"] = false;
    const Json cold = ask(port, cold_body);
    program.interrupt();
    ASSERT_EQ(program.finish(), 0) << program.errors;
    ASSERT_TRUE(answer.is_object() && cold.is_object());
    EXPECT_EQ(answer["choices"], cold["choices"]);
    const std::int64_t cached = answer["lockstep"]["cached_tokens"];
    EXPECT_EQ(answer["lockstep"]["restored_tokens"], cached);
    EXPECT_NE(metrics.find("\nlockstep_disk_restored_tokens_total " + std::to_string(cached) + "\n"), std::string::npos)
        << metrics;
    EXPECT_NE(program.errors.find("\"restored_tokens\":" + std::to_string(cached)), std::string::npos);
    EXPECT_EQ(count_of(program.errors, "replay-2: damaged"), is_damaged ? 1u : 0u) << program.errors;
    if (is_damaged) {
      without_replay = cached;
    } else {
      EXPECT_GE(cached, said - 1) << "all that was said, but perhaps the token that ended it";
    }
  }
  EXPECT_LT(without_replay, said - 1) << "the sampled turn is what makes the prompt begin alike";
}

TEST(Serve, EverySignalToEndLetsAnswersEnd) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Program program({"serve", kModel, "--port", "0", "--threads", "1", "--log-json"});
    const int port = port_of(event_of(program, "ready")["url"]);
    Client client(port);
    client.send(request_text("POST", "/v1/completions", R"({"prompt":[1,2,3],"max_tokens":40,"stream":true})"));
    ASSERT_TRUE(client.read_until("data: {"));
    program.interrupt(number);
    EXPECT_TRUE(client.read_reply().body.ends_with("data: [DONE]\n\n")) << number;
    EXPECT_EQ(program.finish(), 0) << number;
    EXPECT_NE(program.errors.find("told to stop"), std::string::npos) << number;
  }
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
  const auto disk = plan_serve(model, 4, std::nullopt, std::nullopt, {1'650, "this machine has"}, "m.gguf", 500);
  EXPECT_EQ(disk.sessions, 50u);  // what is written to the disk is counted
  EXPECT_EQ(disk.total(), 1'650u);
  EXPECT_THROW(plan_serve(model, 4, std::nullopt, std::nullopt, {1'649, "this machine has"}, "m.gguf", 500), Error);
}

TEST(Serve, SizesAreReadByTheirUnit) {
  const struct {
    const char* text;
    std::optional<std::uint64_t> bytes;
  } kCases[] = {{"auto", std::nullopt}, {"0", 0},         {"4GB", 4'000'000'000},     {"1.5kb", 1500},
                {"2GiB", 2u << 30},     {"3m", 3u << 20}, {"1TB", 1'000'000'000'000}, {"7b", 7}};
  for (const auto& c : kCases) {
    EXPECT_EQ(bytes_or_auto(c.text, "--x"), c.bytes) << c.text;
    if (c.bytes) {
      EXPECT_EQ(bytes_from(c.text, "--x"), *c.bytes) << c.text;
    }
  }
  for (const char* text : {"", "GB", "-1", "4 GB", "4XB", "nan", "1e40"}) {
    EXPECT_THROW(bytes_from(text, "--x"), Error) << text;
    EXPECT_THROW(bytes_or_auto(text, "--x"), Error) << text;
  }
  EXPECT_THROW(bytes_from("auto", "--x"), Error);
}

TEST(Serve, LoopbackIsKnown) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace lockstep
