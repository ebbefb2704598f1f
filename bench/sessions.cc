// Tokens a second of several sessions that decode at once, through the scheduler: what a step that reads the weights
// once for all of them gains. Prompts differ, so that the experts of their tokens do; they are read before, so that all
// begin to decode in the same step.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cpu/cpu_ops.h"
#include "engine/engine.h"
#include "engine/scheduler.h"

namespace {

using namespace lockstep;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Clocked : public Guide {
 public:
  bool on_token(const Sampled&) override {
    times.push_back(now());
    return true;
  }
  void on_end(const JobResult& result) override {
    const std::lock_guard lock(mutex_);
    error = result.error;
    is_over_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_; });
  }
  std::vector<double> times;
  std::string error;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
};

/// Tokens a second of all together, while all of them decode.
double rate_of(Engine& engine, int sessions, int prompt, int tokens, unsigned seed) {
  SchedulerOptions options;
  options.slots = sessions;
  options.cache_bytes = std::size_t{8} << 30;
  Scheduler scheduler(engine, options);
  std::mt19937 random(seed);
  std::vector<Job> jobs(static_cast<std::size_t>(sessions));
  for (Job& job : jobs) {
    for (int k = 0; k < prompt; ++k)
      job.prompt.push_back(static_cast<Token>(random() % static_cast<unsigned>(engine.config().vocabulary)));
    job.sampling.temperature = 1;
    job.sampling.seed = random();
  }
  const auto submit_all = [&](int limit) {
    std::vector<std::shared_ptr<Clocked>> guides;
    for (Job job : jobs) {
      job.limit = limit;
      job.guide = guides.emplace_back(std::make_shared<Clocked>());
      scheduler.submit(std::move(job));
    }
    for (const auto& guide : guides) guide->wait();
    return guides;
  };
  submit_all(0);
  const auto guides = submit_all(tokens);
  double from = 0, to = 1e300;
  for (const auto& guide : guides) {
    if (static_cast<int>(guide->times.size()) != tokens) throw Error(Error::Kind::io, "failed: " + guide->error);
    from = std::max(from, guide->times.front());
    to = std::min(to, guide->times.back());
  }
  double count = 0;
  for (const auto& guide : guides)
    for (const double time : guide->times) count += time > from && time <= to;
  return to > from ? count / (to - from) : 0;
}

int run(int argc, char** argv) {
  CLI::App app("Decoding by several sessions at once");
  EngineOptions options;
  std::vector<int> sessions = {1, 2, 4, 8, 16};
  int threads = 0, prompt = 32, tokens = 32, repetitions = 3;
  app.add_option("MODEL", options.model)->required();
  app.add_option("--sessions", sessions)->delimiter(',');
  app.add_option("--threads", threads, "0: one for each CPU");
  app.add_option("--prompt", prompt, "tokens of each prompt");
  app.add_option("--tokens", tokens, "of each answer");
  app.add_option("--repetitions", repetitions, "in turn over all numbers of sessions; the best counts");
  CLI11_PARSE(app, argc, argv);
  Engine engine(options, cpu::make_cpu_ops({threads, "auto"}));
  std::printf("%s, %s\n", options.model.c_str(), engine.ops().description().c_str());
  std::vector<double> best(sessions.size());
  for (int k = 0; k < repetitions; ++k)
    for (std::size_t i = 0; i < sessions.size(); ++i)
      best[i] = std::max(best[i], rate_of(engine, sessions[i], prompt, tokens, static_cast<unsigned>(k + 1)));
  std::printf("%8s %10s %12s %8s\n", "sessions", "tok/s", "each", "gain");
  for (std::size_t i = 0; i < sessions.size(); ++i)
    std::printf("%8d %10.2f %12.2f %8.2f\n", sessions[i], best[i], best[i] / sessions[i], best[i] / best[0]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
