// Load on `lockstep serve`: many streams at once beside many idle connections, for as long as one likes.
//
//   server_load LOCKSTEP [SECONDS [STREAMS [IDLE]]]       240 seconds, 64 streams, 1000 idle connections
//
// Every text must be the one that the same request got alone, no request may fail, no idle connection may be lost, and
// the server's memory must not grow (memory.h). A part of the clients leaves in the middle of its answer. It prints
// what it measured, and exits with 1 if anything of that does not hold.
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli_run.h"
#include "load/memory.h"
#include "server_client.h"

namespace {

using Json = nlohmann::ordered_json;
using lockstep::test::Client;
using lockstep::test::Program;
using lockstep::test::Reply;
using lockstep::test::request_text;
using Clock = std::chrono::steady_clock;

constexpr int kLeaverEvery = 16;        // of a client's requests, one is left in the middle
constexpr int kConnectionRequests = 8;  // that one connection carries

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Question {
  const char* name;
  const char* path;
  const char* body;
};

constexpr Question kQuestions[] = {
    {"chat", "/v1/chat/completions",
     R"({"stream": true, "temperature": 0, "max_tokens": 40, "reasoning_effort": "none",
         "messages": [{"role": "user", "content": "What color is the sky on a clear day?"}]})"},
    {"chat that thinks", "/v1/chat/completions",
     R"({"stream": true, "temperature": 0, "max_tokens": 80,
         "messages": [{"role": "user", "content": "What is 347 + 586?"}]})"},
    {"chat with a seed", "/v1/chat/completions",
     R"({"stream": true, "temperature": 1.2, "seed": 5, "max_tokens": 60, "reasoning_effort": "none",
         "messages": [{"role": "user", "content": "Tell me a story about a dog."}]})"},
    {"chat with a tool", "/v1/chat/completions",
     R"({"stream": true, "temperature": 0, "max_tokens": 100, "reasoning_effort": "none",
         "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
         "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
                    "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]})"},
    {"chat in a form", "/v1/chat/completions",
     R"({"stream": true, "temperature": 0.8, "seed": 9, "max_tokens": 80, "reasoning_effort": "none",
         "messages": [{"role": "user", "content": "What color is the sky?"}],
         "response_format": {"type": "json_schema", "json_schema": {"name": "c", "strict": true, "schema": {
           "type": "object", "properties": {"color": {"enum": ["blue", "red"]}, "n": {"type": "integer", "minimum": 1,
           "maximum": 9}}, "required": ["color", "n"], "additionalProperties": false}}}})"},
    {"messages", "/v1/messages",
     R"({"stream": true, "temperature": 0, "max_tokens": 80, "system": "Answer in upper case.",
         "messages": [{"role": "user", "content": "What color is the sky on a clear day?"}]})"},
    {"messages that think", "/v1/messages",
     R"({"stream": true, "temperature": 0.7, "seed": 3, "max_tokens": 80, "thinking": {"type": "enabled"},
         "messages": [{"role": "user", "content": "What is 123 + 268?"}]})"},
    {"responses", "/v1/responses",
     R"({"stream": true, "temperature": 0, "max_output_tokens": 60, "input": "What is 12 + 30?"})"},
    {"completions", "/v1/completions",
     R"({"stream": true, "temperature": 0, "max_tokens": 50, "prompt": "The quick brown fox"})"},
};

constexpr std::size_t kOfResponses = 7;  // among them

/// What a stream says, without ids, times and the places where it was cut; empty if it did not end as it should.
std::string text_of(const std::string& stream) {
  std::map<std::string, std::string> parts;
  bool has_end = false;
  std::size_t at = 0;
  while ((at = stream.find("data: ", at)) != std::string::npos) {
    at += 6;
    const std::string line = stream.substr(at, stream.find('\n', at) - at);
    if (line == "[DONE]") {
      has_end = true;
      continue;
    }
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || event.contains("error")) return {};
    const std::string type = event.value("type", "");
    if (type == "message_stop" || type == "response.completed" || type == "response.incomplete") has_end = true;
    if (event.contains("delta") && event["delta"].is_string()) parts[type] += event["delta"].get<std::string>();
    const Json* delta = nullptr;
    if (event.contains("delta") && event["delta"].is_object()) delta = &event["delta"];
    if (event.contains("choices") && !event["choices"].empty()) {
      const Json& choice = event["choices"][0];
      delta = choice.contains("delta") ? &choice["delta"] : &choice;
      if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
        parts["finish"] += choice["finish_reason"].get<std::string>();
    }
    if (delta == nullptr) continue;
    for (const char* key : {"content", "reasoning_content", "text", "thinking", "partial_json", "stop_reason"})
      if (delta->contains(key) && (*delta)[key].is_string()) parts[key] += (*delta)[key].get<std::string>();
    if (delta->contains("tool_calls"))
      for (const Json& call : (*delta)["tool_calls"])
        parts["arguments"] += call["function"].value("name", "") + call["function"].value("arguments", "");
  }
  if (!has_end) return {};
  std::string all;
  for (const auto& [key, value] : parts) all += key + "=" + value + "\n";
  return all;
}

std::string request_of(const Question& question) { return request_text("POST", question.path, question.body); }

std::map<std::string, double> metrics_of(int port) {
  std::map<std::string, double> out;
  const std::string body = Client(port).ask(request_text("GET", "/metrics")).body;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    const std::string line = body.substr(at, end - at);
    at = end + 1;
    const std::size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    out[line.substr(0, space)] = std::atof(line.c_str() + space);
  }
  return out;
}

/// What went wrong; the first few of it in words.
class Failures {
 public:
  void add(const std::string& words) {
    const std::lock_guard lock(mutex_);
    if (++count_ <= 5) std::fprintf(stderr, "failed: %s\n", words.c_str());
  }
  std::uint64_t count() const { return count_; }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> count_ = 0;
};

struct Done {
  std::atomic<std::uint64_t> answers = 0, left = 0, bytes = 0;
};

/// One client, request after request until `end`; `first` of them are for responses, which the server keeps.
void run_client(int port, int number, int first, Clock::time_point end, const std::vector<std::string>& expected,
                Done& done, Failures& failures) {
  Client client(port);
  for (int i = 0; Clock::now() < end; ++i) {
    if (i > 0 && i % kConnectionRequests == 0) client = Client(port);
    const std::size_t which = i < first ? kOfResponses : static_cast<std::size_t>(number + i) % std::size(kQuestions);
    const Question& question = kQuestions[which];
    if (!client.is_open() || !client.send(request_of(question))) {
      failures.add(std::string(question.name) + ": cannot connect or send");
      client = Client(port);
      continue;
    }
    if ((number + i) % kLeaverEvery == kLeaverEvery - 1) {
      if (!client.read_until("data: ", 60)) failures.add(std::string(question.name) + ": no first event");
      client.close_hard();
      client = Client(port);
      ++done.left;
      continue;
    }
    const Reply reply = client.read_reply();
    const std::string text = text_of(reply.body);
    if (reply.status != 200) {
      failures.add(std::string(question.name) + ": status " + std::to_string(reply.status) + " " + reply.body);
      client = Client(port);
    } else if (text != expected[which]) {
      failures.add(std::string(question.name) + ": another text than alone: " + text + "not " + expected[which]);
    }
    ++done.answers;
    done.bytes += reply.body.size();
  }
}

/// 0 if the server ends before it is ready.
int port_of(Program& program) {
  const std::string ready = "\"event\":\"ready\"", url = "\"url\":\"http://127.0.0.1:";
  if (!program.wait_for_errors(ready)) return 0;
  for (;;) {
    const std::size_t at = program.errors.find(url, program.errors.find(ready));
    if (at != std::string::npos && program.errors.find('\n', at) != std::string::npos)
      return std::atoi(program.errors.c_str() + at + url.size());
    if (!program.read_errors()) return 0;
  }
}

double number(const char* text) { return std::max(1.0, std::atof(text)); }

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "expected LOCKSTEP [SECONDS [STREAMS [IDLE]]]\n");
    return 2;
  }
  const double seconds = count > 2 ? number(words[2]) : 240;
  const int streams = count > 3 ? static_cast<int>(number(words[3])) : 64;
  const int idle_count = count > 4 ? static_cast<int>(number(words[4])) : 1000;
  ::signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);

  Program program(
      {"serve", "--port", "0", "--log-json", "--context", "2048", "--slots", std::to_string(streams), "--queue",
       std::to_string(2 * streams), "--connections", std::to_string(2 * (idle_count + streams)), "--cache-ram", "16MB"},
      {}, words[1]);
  const int port = port_of(program);
  if (port == 0) {
    program.finish();
    std::fprintf(stderr, "the server did not start\n%s", program.errors.c_str());
    return 1;
  }
  std::thread log([&] {
    while (program.read_errors()) {
    }
  });

  Failures failures;
  std::vector<std::string> expected;
  for (const Question& question : kQuestions) {
    expected.push_back(text_of(Client(port).ask(request_of(question)).body));
    if (expected.back().empty()) failures.add(std::string(question.name) + ": no answer alone");
  }
  std::vector<Client> idle;
  for (int i = 0; i < idle_count; ++i) {
    idle.emplace_back(port);  // half of them have been of use
    const bool is_up =
        idle.back().is_open() && (i % 2 == 0 || idle.back().ask(request_text("GET", "/health")).status == 200);
    if (!is_up) failures.add("idle connection " + std::to_string(i) + " cannot be opened");
  }

  // So that the server soon keeps as many responses as it may, and memory can be judged from then on.
  const int first = seconds < lockstep::load::Memory::kLeastSeconds ? 0 : 300 / streams + 1;
  Done done;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> clients;
  for (int i = 0; i < streams; ++i)
    clients.emplace_back([&, i] { run_client(port, i, first, end, expected, done, failures); });
  lockstep::load::Memory memory;
  double most_active = 0;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto now = metrics_of(port);
    if (now.empty()) {
      failures.add("/metrics: no answer");
      continue;
    }
    most_active = std::max(most_active, now.at("lockstep_http_active"));
    memory.add(seconds_since(begin), now);
  }
  for (std::thread& client : clients) client.join();
  const double took = seconds_since(begin);

  for (std::size_t i = 0; i < idle.size(); ++i)
    if (idle[i].ask(request_text("GET", "/health")).status != 200)
      failures.add("idle connection " + std::to_string(i) + " was lost");
  const double connections = metrics_of(port)["lockstep_http_connections"];
  idle.clear();
  std::map<std::string, double> last;
  for (int i = 0; i < 100; ++i) {  // leavers are noticed, connections end
    last = metrics_of(port);
    if (last["lockstep_http_active"] == 0 && last["lockstep_http_connections"] <= 1 &&
        last["llamacpp:requests_processing"] == 0)
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (last["lockstep_http_connections"] > 1) failures.add("connections are left");
  if (last["llamacpp:requests_processing"] > 0) failures.add("answers are left that nobody wants");
  if (last["lockstep_answers_total{end=\"failed\"}"] > 0) failures.add("answers failed in the engine");
  if (last["lockstep_http_answers_total{status=\"5xx\"}"] > 0) failures.add("answers with status 5xx");
  const std::string memory_problem = memory.problem(seconds);
  if (!memory_problem.empty()) failures.add(memory_problem);
  program.interrupt();
  log.join();
  const int code = program.finish();
  if (code != 0) failures.add("the server ended with " + std::to_string(code));

  std::printf("%d streams, %d idle connections, %.0f s\n", streams, idle_count, took);
  std::printf("answers: %llu, each as alone; clients that left: %llu; most at once: %.0f; %.1f answers/s, %.1f MB\n",
              static_cast<unsigned long long>(done.answers), static_cast<unsigned long long>(done.left), most_active,
              static_cast<double>(done.answers) / took, static_cast<double>(done.bytes) / 1e6);
  std::printf("tokens: %.0f made, %.0f of %.0f prompt tokens from the cache; %.0f steps\n",
              last["lockstep_generated_tokens_total"], last["lockstep_reused_tokens_total"],
              last["lockstep_prompt_tokens_total"], last["lockstep_steps_total"]);
  std::printf("%sat the end, without clients: %.1f MB in use, %.1f MB resident (prefix cache %.1f)\n",
              memory.text().c_str(), last["lockstep_allocated_bytes"] / 1e6, last["lockstep_resident_bytes"] / 1e6,
              last["lockstep_cache_bytes"] / 1e6);
  std::printf("connections at the end: %.0f, of them %d idle since the beginning\n", connections, idle_count);
  std::printf("failures: %llu\n", static_cast<unsigned long long>(failures.count()));
  return failures.count() == 0 ? 0 : 1;
}
