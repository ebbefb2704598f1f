// The protocols without sockets and without a model: an exchange that keeps what it is told, and a source of tokens
// that says what a test wrote down, as the scheduler would.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/synth_vocabulary.h"
#include "server/api.h"
#include "server/http_error.h"
#include "split_tokens.h"
#include "text/python_json.h"

namespace lockstep::test {

class FakeExchange : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override {
    EXPECT_FALSE(is_done()) << "answered twice";
    status = response.status;
    body = std::move(response.body);
  }
  void fail(const ApiError& error) override {
    if (is_stream) return end();
    EXPECT_FALSE(is_done()) << "answered twice";
    status = error.status();
    body = json_text(error_body(request_.family, error, "req_1"));
  }
  void begin_stream(HttpHeaders) override {
    EXPECT_FALSE(is_done());
    is_stream = true;
    status = 200;
  }
  bool send(std::string bytes) override {
    EXPECT_TRUE(is_stream && !has_ended);
    stream += bytes;
    return !is_left;
  }
  void end() override { has_ended = true; }
  bool is_gone() const override { return is_left; }
  void on_silence(double, std::function<void()> call) override { silence = std::move(call); }
  void note(const nlohmann::ordered_json& fields) override { notes.update(fields); }

  bool is_done() const { return is_stream ? has_ended : status != 0; }
  Json json() const { return parse_json(body, "answer"); }

  int status = 0;
  std::string body, stream;
  bool is_stream = false, has_ended = false, is_left = false;
  std::function<void()> silence;
  Json notes = Json::object();

 private:
  HttpRequest request_;
};

/// One event of a stream, as a client reads it.
struct Event {
  std::string name;  // empty: data alone; ":" for a comment
  Json data;         // null for a comment; a string for what is no JSON, "[DONE]"
};

inline std::vector<Event> events_of(std::string_view stream) {
  std::vector<Event> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "an event without its empty line";
    if (end == std::string_view::npos) return out;
    std::string_view block = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    Event event;
    while (!block.empty()) {
      const std::size_t line_end = std::min(block.find('\n'), block.size());
      const std::string_view line = block.substr(0, line_end);
      block.remove_prefix(std::min(line_end + 1, block.size()));
      if (line.starts_with(":")) event.name.assign(1, ':');  // GCC 12 sees an overlap in = ":" that is not there
      if (line.starts_with("event: ")) event.name = line.substr(7);
      if (line.starts_with("data: "))
        event.data = line[6] == '{' ? parse_json(line.substr(6), "event") : Json(std::string(line.substr(6)));
    }
    out.push_back(std::move(event));
  }
  return out;
}

/// Says what is written, to one job after another. Control tokens are written as their text.
class ScriptedSource : public TokenSource {
 public:
  explicit ScriptedSource(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::optional<Scheduler::Refusal> submit(Job job) override {
    if (refusal) return refusal;
    jobs.push_back(std::move(job));
    return std::nullopt;
  }

  /// Plays the jobs that were submitted, each to its end.
  void play() {
    for (Job& job : std::exchange(jobs, {})) play(job, next_script());
  }

  void play(Job& job, const std::string& script) {
    JobResult result;
    result.stats.prompt = static_cast<std::int64_t>(job.prompt.size());
    result.stats.reused = std::min(reused, result.stats.prompt);
    result.stats.prefill_seconds = result.stats.decode_seconds = 0.5;
    Guide& guide = *job.guide;
    guide.on_prefill({result.stats.reused, result.stats.prompt, 0, 0});
    if (during) during();
    if (job.score_prompt)
      for (std::size_t i = 1; i < job.prompt.size(); ++i)
        guide.on_prompt_token({job.prompt[i], static_cast<Position>(i), -1.0f * static_cast<float>(i), {}});
    std::vector<Token> tokens = tokenizer_.encode(script);
    if (splitter) tokens = splitter->split(tokens);
    said.clear();
    if (!is_cut) tokens.push_back(*tokenizer_.eos());
    std::deque<Token> left(tokens.begin(), tokens.end());
    const auto end = [&](JobResult::End how) {
      result.end = how;
      guide.on_end(result);
    };
    if (job.limit == 0) return end(JobResult::End::limit);
    for (;;) {
      if (guide.is_cancelled()) return end(JobResult::End::cancelled);
      if (!failure.empty() && result.stats.generated == fails_after) {
        result.error = failure;
        return end(JobResult::End::failed);
      }
      Sampled sampled;
      if (const std::optional<Token> forced = guide.forced()) {
        sampled.token = *forced;
        forced_tokens.push_back(*forced);
      } else {
        if (left.empty()) return end(JobResult::End::limit);
        sampled.token = left.front();
        left.pop_front();
        if (checks_masks) {
          std::vector<float> logits(tokenizer_.size(), 0.0f);
          guide.mask(logits);
          EXPECT_EQ(logits[static_cast<std::size_t>(sampled.token)], 0.0f)
              << "masked: " << tokenizer_.bytes_of(sampled.token) << " of " << script;
          if (!guide.masks()) {
            EXPECT_EQ(std::count(logits.begin(), logits.end(), 0.0f), std::ssize(logits)) << "masked nevertheless";
          }
        }
      }
      if (job.logprobs >= 0) {
        sampled.logprob = -0.25f;
        for (int k = 0; k < job.logprobs; ++k)
          sampled.alternatives.push_back({static_cast<Token>(300 + k), -1.0f - static_cast<float>(k)});
      }
      ++result.stats.generated;
      const auto& stops = job.stop_tokens;
      if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) return end(JobResult::End::stop_token);
      said.push_back(sampled.token);
      if (!guide.on_token(sampled)) return end(JobResult::End::stopped);
      if (result.stats.generated == job.limit) return end(JobResult::End::limit);
    }
  }

  std::vector<std::string> scripts;  // the last one is said again and again
  std::vector<Job> jobs;
  std::optional<Scheduler::Refusal> refusal;
  std::int64_t reused = 0;
  bool is_cut = false;       // the token limit comes after the script, instead of the end of the turn
  bool checks_masks = true;  // every token of a script must be allowed by its grammar
  std::string failure;       // of a step, after so many tokens
  std::int64_t fails_after = 0;
  std::function<void()> during;  // after the first word about prefill
  std::vector<Token> forced_tokens;
  std::vector<Token> said;                       // the last answer, without the token that stopped it
  std::shared_ptr<TokenSplitter> splitter = {};  // says the scripts in other tokens

 private:
  std::string next_script() {
    const std::string script = scripts.empty() ? "" : scripts.front();
    if (scripts.size() > 1) scripts.erase(scripts.begin());
    return script;
  }

  const Tokenizer& tokenizer_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// A server's protocols with a script behind them.
class ApiFixture {
 public:
  ApiFixture() : tokenizer(synth_vocabulary(1024)), source(tokenizer) {
    settings.model_name = "deepseek-v4-flash";
    settings.back_end = "script";
    settings.context = 100000;
    settings.profile = "preview";
  }

  /// Before the first request. A test may change the settings before.
  void open() {
    if (router) return;
    router = std::make_shared<Router>();
    ApiSources sources{.settings = settings, .tokenizer = tokenizer, .source = source};
    sources.fingerprint = "fp_test";
    sources.replaces_unsupported = replaces_unsupported;
    sources.warn = [this](const std::string& warning) { warnings.push_back(warning); };
    kept = add_api(*router, sources);
  }

  /// Hands a request to its handler; what is answered later comes with source.play().
  std::shared_ptr<FakeExchange> send(const std::string& target, const std::string& body,
                                     const std::string& method = "POST") {
    open();
    HttpRequest request;
    request.method = method;
    request.target = target;
    split_target(request);
    request.body = body;
    request.id = "req_1";
    request.family = family_of(request.path, request.headers);
    const Router::Match match = router->match(method, request.path);
    request.rest = match.rest;
    auto exchange = std::make_shared<FakeExchange>(request);
    if (match.route == nullptr) {
      exchange->fail(ApiError(404, "no such path"));
      return exchange;
    }
    try {
      match.route->handler(exchange);
    } catch (const std::exception& error) {
      exchange->fail(as_api_error(error));
    }
    return exchange;
  }

  std::shared_ptr<FakeExchange> ask(const std::string& target, const Json& body) {
    const auto exchange = send(target, json_text(body));
    source.play();
    return exchange;
  }

  std::string prompt_of_last_job() const { return tokenizer.decode(source.jobs.back().prompt); }

  Tokenizer tokenizer;
  ServerSettings settings;
  bool replaces_unsupported = false;
  ScriptedSource source;
  std::shared_ptr<Router> router;
  std::function<ApiKept()> kept;
  std::vector<std::string> warnings;
};

inline std::string call_block(const std::string& name, const std::string& parameters) {
  return "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"" + name + "\">\n" + parameters +
         "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
}
inline std::string parameter(const std::string& name, bool is_string, const std::string& value) {
  return "<｜DSML｜parameter name=\"" + name + "\" string=\"" + (is_string ? "true" : "false") + "\">" + value +
         "</｜DSML｜parameter>";
}

inline const std::string kCall =
    call_block("get_weather", parameter("city", true, "Oslo") + "\n" + parameter("days", false, "3"));
inline const std::string kThinkAndCall = "Think.</think>Look:" + kCall;

inline std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

/// Whether the masks of the last job let its answer begin with this, token by token. It then has.
inline bool may_say(ApiFixture& api, std::string_view text) {
  Job& job = api.source.jobs.back();
  for (const Token token : api.tokenizer.encode(std::string(text))) {
    std::vector<float> logits(api.tokenizer.size(), 0.0f);
    job.guide->mask(logits);
    if (logits[static_cast<std::size_t>(token)] != 0.0f) return false;
    Sampled sampled;
    sampled.token = token;
    job.guide->on_token(sampled);
  }
  return true;
}

}  // namespace lockstep::test
