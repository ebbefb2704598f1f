// What an agent's session costs, the whole way: a client's JSON, the messages made clean, exact replay, the renderer,
// the scheduler and a model. The answers are forced upon the model, token by token, so that there are calls to repeat;
// everything else is as it is served. Counted is what the model had to read, against what was new in each request.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "api_fixture.h"
#include "cpu/cpu_ops.h"
#include "disk_cache_support.h"
#include "engine/law_check.h"
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
    start("");
  }

  void restart() {
    const std::string turns = replay_->save();
    router_.reset();
    scheduler_.reset();
    start(turns);
  }

  std::optional<Scheduler::Refusal> submit(Job job) override {
    std::vector<Token> answer = engine_->tokenizer().encode(script_);
    answer.push_back(*engine_->tokenizer().eos());
    prompt_ = job.prompt;
    forced_ = std::make_shared<Forced>(job.guide, std::move(answer), engine_->config().vocabulary);
    job.guide = forced_;
    return scheduler_->submit(std::move(job));
  }

  /// Has the model say `script` to the request. Counts into `cost`.
  Json ask(const Json& body, const std::string& script, Cost& cost) {
    script_ = script;
    HttpRequest request;
    request.method = "POST";
    request.target = "/v1/chat/completions";
    split_target(request);
    request.body = json_text(body);
    request.id = "req_1";
    request.family = family_of(request.path, request.headers);
    const auto exchange = std::make_shared<FakeExchange>(request);
    router_->match(request.method, request.path).route->handler(exchange);
    const JobResult result = forced_->wait();
    EXPECT_EQ(result.end, JobResult::End::stopped) << "after the last call's block nothing may come; " << result.error;
    std::size_t known = 0;
    for (const std::vector<Token>& sequence : seen_) known = std::max(known, common_length(sequence, prompt_));
    const auto size = static_cast<std::int64_t>(prompt_.size());
    cost += {size, std::max<std::int64_t>(size - static_cast<std::int64_t>(known), 1), size - result.stats.reused};
    std::vector<Token> whole = prompt_;
    whole.insert(whole.end(), forced_->answer().begin(), forced_->answer().end());
    seen_.push_back(std::move(whole));
    return exchange->json();
  }

 private:
  void start(const std::string& turns) {
    SchedulerOptions options;
    options.cache_bytes = std::size_t{256} << 20;
    options.context = settings_.context;
    options.cache_dir = states_;
    options.cache_disk_bytes = states_.empty() ? 0 : std::uint64_t{1} << 30;
    scheduler_ = std::make_unique<Scheduler>(*engine_, options);
    router_ = std::make_shared<Router>();
    replay_ = std::make_shared<ReplayMap>(1 << 20);
    replay_->load(turns);
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
    const Json answer = server.ask({{"messages", messages_}, {"tools", tools()}, {"max_tokens", 400}}, script, cost);
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

}  // namespace
}  // namespace lockstep::test
