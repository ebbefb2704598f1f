// What an agent's session costs, the whole way: a client's JSON, the messages made clean, exact replay, the renderer,
// the scheduler and a model. The answers are forced upon the model, token by token, so that there are calls to repeat;
// everything else is as it is served. The tokens are others than the tokenizer would choose, as a model may sample
// them. Counted is what the model had to read, against what was new in each request.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "api_fixture.h"
#include "cpu/cpu_ops.h"
#include "disk_cache_support.h"
#include "engine/law_check.h"
#include "server/replay_file.h"
#include "split_tokens.h"
#include "waited_guide.h"

namespace lockstep::test {
namespace {

/// A job's own guide, with the answer forced.
class Forced : public test::WaitedGuide {
 public:
  Forced(std::shared_ptr<Guide> guide, std::vector<Token> answer, int vocabulary)
      : guide_(std::move(guide)), answer_(answer.begin(), answer.end()), vocabulary_(vocabulary) {}

  bool is_cancelled() const override { return guide_->is_cancelled(); }
  void on_prefill(const PrefillProgress& progress) override { guide_->on_prefill(progress); }
  std::optional<Token> forced() override {
    std::vector<float> logits(static_cast<std::size_t>(vocabulary_));
    guide_->mask(logits);
    if (answer_.empty()) return std::nullopt;
    const Token token = answer_.front();
    EXPECT_EQ(logits[static_cast<std::size_t>(token)], 0.0f)
        << "token " << token << ", which may not come after " << run_.size() << " of the answer";
    answer_.pop_front();
    return token;
  }
  bool on_token(const Sampled& sampled) override {
    run_.push_back(sampled.token);
    return guide_->on_token(sampled);
  }
  void on_end(const JobResult& result) override {
    guide_->on_end(result);
    WaitedGuide::on_end(result);
  }
  const std::vector<Token>& answer() const { return run_; }

 private:
  std::shared_ptr<Guide> guide_;
  std::deque<Token> answer_;
  int vocabulary_;
  std::vector<Token> run_;
};

struct Cost {
  std::int64_t prompt = 0, changed = 0, run = 0;
  Cost& operator+=(const Cost& other) {
    prompt += other.prompt;
    changed += other.changed;
    run += other.run;
    return *this;
  }
};

/// A served model that can be stopped and started again; its clients' requests, one at a time.
class AgentServer : public TokenSource {
 public:
  explicit AgentServer(const std::filesystem::path& states) : states_(states) {
    const std::filesystem::path path = directory_.path() / "nano.gguf";
    write_law_model("nano-q4", path);
    EngineOptions options;
    options.model = path;
    options.max_rows = 256;
    engine_ = std::make_unique<Engine>(options, cpu::make_cpu_ops({1, "auto"}));
    settings_.context = 16'000;
    settings_.profile = "preview";
    splitter_ = std::make_unique<TokenSplitter>(engine_->tokenizer(), 5);
    start();
  }

  void restart() {
    router_.reset();
    scheduler_.reset();
    replay_file_.reset();
    start();
  }

  std::optional<Scheduler::Refusal> submit(Job job) override {
    std::vector<Token> answer = splitter_->split(engine_->tokenizer().encode(script_));
    answer.push_back(*engine_->tokenizer().eos());
    prompt_ = job.prompt;
    forced_ = std::make_shared<Forced>(job.guide, std::move(answer), engine_->config().vocabulary);
    job.guide = forced_;
    return scheduler_->submit(std::move(job));
  }

  /// Has the model say `script` to the request. Counts into `cost`.
  Json ask(const std::string& path, const Json& body, const std::string& script, Cost& cost) {
    script_ = script;
    HttpRequest request;
    request.method = "POST";
    request.target = path;
    split_target(request);
    request.body = json_text(body);
    request.id = "req_1";
    request.family = family_of(request.path, request.headers);
    const auto exchange = std::make_shared<FakeExchange>(request);
    router_->match(request.method, request.path).route->handler(exchange);
    const JobResult result = forced_->wait();
    const bool has_calls = script.find(kDsml) != std::string::npos;
    EXPECT_EQ(result.end, has_calls ? JobResult::End::stopped : JobResult::End::stop_token)
        << "after the last call's block nothing may come; " << result.error;
    last_ = {size_of(prompt_), result.stats.reused, size_of(forced_->answer())};
    std::size_t known = 0;
    for (const std::vector<Token>& sequence : seen_) known = std::max(known, common_length(sequence, prompt_));
    const auto size = static_cast<std::int64_t>(prompt_.size());
    cost += {size, std::max<std::int64_t>(size - static_cast<std::int64_t>(known), 1), size - result.stats.reused};
    std::vector<Token> whole = prompt_;
    whole.insert(whole.end(), forced_->answer().begin(), forced_->answer().end());
    seen_.push_back(std::move(whole));
    return exchange->json();
  }

  struct Run {
    std::int64_t prompt = 0, reused = 0, answer = 0;
  };
  const Run& last() const { return last_; }

 private:
  static std::int64_t size_of(const std::vector<Token>& tokens) { return static_cast<std::int64_t>(tokens.size()); }

  void start() {
    SchedulerOptions options;
    options.cache_bytes = std::size_t{256} << 20;
    options.context = settings_.context;
    options.cache_dir = states_;
    options.cache_disk_bytes = states_.empty() ? 0 : std::uint64_t{1} << 30;
    scheduler_ = std::make_unique<Scheduler>(*engine_, options);
    router_ = std::make_shared<Router>();
    replay_ = std::make_shared<ReplayMap>(1 << 20);
    if (!states_.empty())
      replay_file_ = std::make_unique<ReplayFile>(
          replay_,
          ReplayFile::Options{.directory = states_, .note = [](const std::string& text) { ADD_FAILURE() << text; }});
    ApiSources sources{.settings = settings_, .tokenizer = engine_->tokenizer(), .source = *this};
    sources.replay = replay_;
    add_api(*router_, sources);
  }

  TempDirectory directory_;
  std::filesystem::path states_;
  std::unique_ptr<Engine> engine_;
  ServerSettings settings_;
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<ReplayMap> replay_;
  std::unique_ptr<ReplayFile> replay_file_;
  std::unique_ptr<TokenSplitter> splitter_;
  Run last_;
  std::shared_ptr<Router> router_;
  std::string script_;
  std::vector<Token> prompt_;
  std::shared_ptr<Forced> forced_;
  std::vector<std::vector<Token>> seen_;  // prompts with their answers
};

/// An agent: it asks, runs the tools that are called, and sends everything again, as clients do: without the reasoning,
/// with the arguments' keys in another order and other spaces.
class Agent {
 public:
  explicit Agent(const std::string& name) {
    std::string rules = "You are " + name + ", an agent that works on files.";
    for (int i = 0; i < 12; ++i) rules += " Rule " + std::to_string(i) + ": look twice before you change a file.";
    messages_ = Json::array({{{"role", "system"}, {"content", rules}},
                             {{"role", "user"}, {"content", "Today is Monday. Find what is slow in " + name + "."}}});
  }

  /// The early block changes: agents put the date or the state of the work into the first message.
  void edit_first_message(const std::string& text) { messages_[1]["content"] = text; }

  Cost turn(AgentServer& server, int number) {
    Cost cost;
    const std::string n = std::to_string(number);
    const std::string script =
        "I have to look at part " + n + ", and weigh it.</think>Looking at part " + n + "." +
        call_block("read_file", parameter("path", true, "src/part" + n + ".cc") + "\n" +
                                    parameter("lines", false, "[1, 20]") + "\n" + parameter("first", false, n));
    const Json answer = server.ask("/v1/chat/completions",
                                   {{"messages", messages_}, {"tools", tools()}, {"max_tokens", 900}}, script, cost);
    Json message = answer["choices"][0]["message"];
    EXPECT_EQ(message["tool_calls"].size(), 1u) << answer.dump();
    if (message["tool_calls"].size() != 1) return cost;
    EXPECT_FALSE(message.value("reasoning_content", "").empty());
    message.erase("reasoning_content");
    Json& call = message["tool_calls"][0];
    const Json arguments = parse_json(call["function"]["arguments"].get<std::string>(), "arguments");
    call["function"]["arguments"] = R"({ "first":)" + arguments["first"].dump() + R"(,"lines" : [1,20], "path":")" +
                                    arguments["path"].get<std::string>() + "\"}";
    const std::string id = call["id"];
    messages_.push_back(std::move(message));
    messages_.push_back(
        {{"role", "tool"}, {"tool_call_id", id}, {"content", "int part" + n + "() { return " + n + "; }"}});
    if (number % 5 == 4) messages_.push_back({{"role", "user"}, {"content", "Go on with part " + n + "."}});
    return cost;
  }

 private:
  static Json tools() {
    return Json::array(
        {{{"type", "function"},
          {"function",
           {{"name", "read_file"},
            {"description", "Reads lines of a file."},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"path", {{"type", "string"}}}, {"lines", {{"type", "array"}}}, {"first", {{"type", "integer"}}}}},
              {"required", Json::array({"path"})}}}}}}});
  }
  Json messages_;
};

TEST(AgentSession, OfTwentyTurnsReadsATenthMoreThanWhatChangedAtMost) {
  AgentServer server("");
  Agent agent("alpha");
  Cost total, edited;
  for (int turn = 0; turn < 20; ++turn) {
    if (turn == 12) agent.edit_first_message("Today is Tuesday. Find what is slow in alpha.");
    const Cost cost = agent.turn(server, turn);
    if (HasFailure()) return;
    total += cost;
    if (turn == 12) edited = cost;
    if (turn > 0 && turn != 12) {
      EXPECT_LT(cost.changed, 260) << "turn " << turn << ": the turn before it was not repeated as it was sampled";
      EXPECT_LE(cost.run, cost.changed + 1) << "turn " << turn;
    }
  }
  RecordProperty("prompt_tokens", static_cast<int>(total.prompt));
  RecordProperty("changed_tokens", static_cast<int>(total.changed));
  RecordProperty("run_tokens", static_cast<int>(total.run));
  std::printf("20 turns: %d tokens sent, %d of them new or behind the edit, %d read (the edited turn: %d, %d, %d)\n",
              static_cast<int>(total.prompt), static_cast<int>(total.changed), static_cast<int>(total.run),
              static_cast<int>(edited.prompt), static_cast<int>(edited.changed), static_cast<int>(edited.run));
  EXPECT_LE(static_cast<double>(total.run), 1.1 * static_cast<double>(total.changed));
  EXPECT_LT(edited.changed, edited.prompt) << "the system text and the tools stay";
}

TEST(AgentSession, TwoThatAlternateBothStayWarm) {
  AgentServer server("");
  Agent a("alpha"), b("beta");
  for (int turn = 0; turn < 4; ++turn)
    for (Agent* agent : {&a, &b}) {
      const Cost cost = agent->turn(server, turn);
      if (HasFailure()) return;
      if (turn == 0) continue;
      EXPECT_LT(cost.changed, 260);
      EXPECT_LE(cost.run, cost.changed + 1) << "turn " << turn;
    }
}

TEST(AgentSession, AfterARestartTheFirstTurnReadsItsSuffixOnly) {
  TempDirectory states;
  AgentServer server(states.path());
  Agent a("alpha"), b("beta");
  for (int turn = 0; turn < 3; ++turn)
    for (Agent* agent : {&a, &b}) agent->turn(server, turn);
  server.restart();
  for (Agent* agent : {&a, &b}) {
    const Cost cost = agent->turn(server, 3);
    EXPECT_LT(cost.changed, 260);
    EXPECT_LE(cost.run, cost.changed + 1);
  }
}

/// A conversation in one of the protocols: turns with calls and without, whatever has a key to be known again by.
struct Chat {
  const char* name;
  const char* path;
  bool keeps_plain_turns;  // a turn without calls has a key
  Json (*body)(const Json& messages);
  Json (*user)(const std::string& text);
  /// Adds the answer to the messages, with what its calls returned, as the protocol's clients do. Drops the reasoning
  /// where that is what they do.
  void (*add)(Json& messages, const Json& answer);
};

const Json kSchema = {{"type", "object"}, {"properties", {{"path", {{"type", "string"}}}}}};

const Chat kChats[] = {
    {"chat completions", "/v1/chat/completions", false,
     [](const Json& messages) -> Json {
       return {{"messages", messages},
               {"max_tokens", 900},
               {"tools", {{{"type", "function"}, {"function", {{"name", "read"}, {"parameters", kSchema}}}}}}};
     },
     [](const std::string& text) -> Json {
       return {{"role", "user"}, {"content", text}};
     },
     [](Json& messages, const Json& answer) {
       Json message = answer["choices"][0]["message"];
       message.erase("reasoning_content");
       messages.push_back(message);
       if (!message.contains("tool_calls")) return;
       for (const Json& call : message["tool_calls"])
         messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "int i;"}});
     }},
    {"messages", "/v1/messages", true,
     [](const Json& messages) -> Json {
       return {{"messages", messages},
               {"max_tokens", 900},
               {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
               {"tools", {{{"name", "read"}, {"input_schema", kSchema}}}}};
     },
     [](const std::string& text) -> Json {
       return {{"role", "user"}, {"content", text}};
     },
     [](Json& messages, const Json& answer) {
       messages.push_back({{"role", "assistant"}, {"content", answer["content"]}});
       Json results = Json::array();
       for (const Json& block : answer["content"])
         if (block["type"] == "tool_use")
           results.push_back({{"type", "tool_result"}, {"tool_use_id", block["id"]}, {"content", "int i;"}});
       if (!results.empty()) messages.push_back({{"role", "user"}, {"content", results}});
     }},
    {"responses", "/v1/responses", true,
     [](const Json& items) -> Json {
       return {{"input", items},
               {"max_output_tokens", 900},
               {"include", {"reasoning.encrypted_content"}},
               {"store", false},
               {"tools", {{{"type", "function"}, {"name", "read"}, {"parameters", kSchema}}}}};
     },
     [](const std::string& text) -> Json {
       return {{"type", "message"}, {"role", "user"}, {"content", text}};
     },
     [](Json& items, const Json& answer) {
       for (const Json& item : answer["output"]) items.push_back(item);
       for (const Json& item : answer["output"])
         if (item["type"] == "function_call")
           items.push_back({{"type", "function_call_output"}, {"call_id", item["call_id"]}, {"output", "int i;"}});
     }},
};

TEST(AgentSession, WhatWasSampledIsReadFromTheCacheWhateverItsTokens) {
  TempDirectory states;
  AgentServer server(states.path());
  for (const Chat& chat : kChats) {
    Json messages = Json::array({chat.user("Look at the files of " + std::string(chat.name) + ".")});
    AgentServer::Run before;
    bool is_known = false;
    for (int turn = 0; turn < 8; ++turn) {
      if (turn == 3 || turn == 6) server.restart();
      const bool has_call = turn % 3 != 2 || !chat.keeps_plain_turns;
      std::string script = "I have to weigh the naïve way.</think>So: \u00bdx, part " + std::to_string(turn) + ".";
      if (has_call) script += call_block("read", parameter("path", true, "src/part" + std::to_string(turn) + ".cc"));
      Cost cost;
      const Json answer = server.ask(chat.path, chat.body(messages), script, cost);
      if (HasFailure()) FAIL() << chat.name << ", turn " << turn << ": " << answer.dump();
      if (is_known) {
        EXPECT_GE(server.last().reused, before.prompt + before.answer - 1) << chat.name << ", turn " << turn;
      }
      before = server.last();
      is_known = true;
      chat.add(messages, answer);
      if (!has_call) messages.push_back(chat.user("Go on."));
    }
  }
}

}  // namespace
}  // namespace lockstep::test
