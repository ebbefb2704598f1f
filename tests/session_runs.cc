// The long forms of what the tests of sessions and caches do in short, by command:
//
//   session_runs edits MODEL [--seeds 1-20] [--operations 1000] [--threads 1]   random edit scripts against cold runs
//   session_runs kill [--rounds 200]        a process that writes states is killed at any moment
//   session_runs full DIRECTORY             a directory on a disk that is too small, such as a tmpfs of 64 KB
//   session_runs fairness MODEL [--tokens 100000] [--threads 1]   a short prompt while a long one is read
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "disk_cache_support.h"
#include "disk_kill.h"
#include "session_edits.h"

namespace lockstep::test {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int run_edits(const std::string& model, const std::string& seeds, int operations, int threads) {
  const std::size_t dash = seeds.find('-');
  const unsigned first = static_cast<unsigned>(std::stoul(seeds)),
                 last = dash == std::string::npos ? first : static_cast<unsigned>(std::stoul(seeds.substr(dash + 1)));
  int failed = 0;
  for (unsigned seed = first; seed <= last; ++seed) {
    // Every mix of memory, disk and slots in turn.
    TempDirectory directory;
    EditOptions options;
    options.model = model;
    options.seed = seed;
    options.operations = operations;
    options.threads = threads;
    options.long_share = 0.03;
    options.slots = std::array{8, 4, 1, 3, 6}[seed % 5];
    options.cache_bytes = std::array<std::size_t, 4>{400'000'000, 4'000'000, 400'000'000, 0}[seed % 4];
    if (seed % 4 >= 1) options.directory = directory.path();
    options.disk_bytes = seed % 3 == 0 ? 12'000'000 : std::uint64_t{1} << 30;
    EditRun run(options);
    const double began = seconds();
    std::string failure;
    try {
      run.run();
    } catch (const std::exception& error) {
      failure = error.what();
      ++failed;
    }
    std::printf(
        "seed %u: %d operations, %llu answers, %llu prompt tokens, %llu reused (%llu from the disk), %llu "
        "evictions, %zu notes, %.0f s: %s\n",
        seed, operations, static_cast<unsigned long long>(run.answers()),
        static_cast<unsigned long long>(run.prompt_tokens()), static_cast<unsigned long long>(run.reused()),
        static_cast<unsigned long long>(run.restored()), static_cast<unsigned long long>(run.evicted()),
        run.notes().size(), seconds() - began, failure.empty() ? "as cold runs" : failure.c_str());
    for (const std::string& note : run.notes()) std::printf("  %s\n", note.c_str());
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

int run_kill(int rounds) {
  TempDirectory directory;
  KillCounts counts;
  const std::string failure = kill_while_writing(directory.path(), rounds, 1, counts);
  std::printf("%d rounds: %llu states accepted, %llu restored whole, %llu lost (the newest of its round each): %s\n",
              counts.rounds, static_cast<unsigned long long>(counts.accepted),
              static_cast<unsigned long long>(counts.restored), static_cast<unsigned long long>(counts.lost),
              failure.empty() ? "nothing else was lost, damaged or left behind" : failure.c_str());
  return failure.empty() ? 0 : 1;
}

/// Writes states until the disk is full, and some more: the newest must be kept and whole, and the rest a miss.
int run_full(const std::string& directory) {
  const TinyModel model;
  Notes notes;
  DiskCacheOptions options = disk_options(directory, notes);
  std::size_t kept = 0, right = 0, missed = 0, newest = 0;
  std::uint64_t failed = 0, evicted = 0;
  {
    DiskCache cache(options);
    for (unsigned i = 0; i < 200; ++i) {
      const std::vector<Token> tokens = some_tokens(i, 145);
      kept += cache.put(tokens, model.state(tokens), {});
      cache.flush();
    }
    failed = cache.stats().failed;
    evicted = cache.stats().evicted;
  }
  DiskCache cache(options);
  for (unsigned i = 0; i < 200; ++i) {
    std::vector<Token> tokens = some_tokens(i, 145);
    const std::vector<std::byte> expected = model.state(tokens).contents();
    tokens.push_back(7);
    const auto found = cache.restore(tokens, 0, [&] { return model.empty(); });
    if (!found) {
      ++missed;
    } else if (found->cache.contents() == expected) {
      ++right;
      newest = i;
    }
  }
  std::printf(
      "200 states: %zu taken, %llu failed to be written, %llu files made room, %zu restored whole, the newest of them "
      "number %zu, %zu missed, %zu wrong\n%s",
      kept, static_cast<unsigned long long>(failed), static_cast<unsigned long long>(evicted), right, newest, missed,
      200 - right - missed, notes.text().c_str());
  return right + missed == 200 && failed == 0 && evicted > 0 && newest == 199 && notes.all().size() == 1 ? 0 : 1;
}

int run_fairness(const std::string& model, std::size_t length, int threads) {
  const auto engine = engine_of(model, 512, threads);
  SchedulerOptions options;
  options.slots = 4;
  options.context = static_cast<std::int64_t>(length) + 1000;
  Scheduler scheduler(*engine, options);
  std::mt19937 random(1);
  const auto some = [&](std::size_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens)
      token = static_cast<Token>(random() % static_cast<unsigned>(engine->config().vocabulary));
    return tokens;
  };
  const auto first_token = [&](std::size_t tokens) {
    const auto watcher = std::make_shared<Watcher>();
    const double began = seconds();
    if (scheduler.submit(job_of(some(tokens), 1, 1, watcher))) return 0.0;
    watcher->wait();
    return seconds() - began;
  };
  const auto decode_rate = [&](int tokens) {
    const auto watcher = std::make_shared<Watcher>();
    if (scheduler.submit(job_of(some(16), tokens, 1, watcher))) return 0.0;
    watcher->wait_for_tokens(2);
    const double began = seconds();
    watcher->wait();
    return (tokens - 2) / (seconds() - began);
  };
  first_token(300);  // the pace is learnt
  const std::vector<std::size_t> lengths = {20, 100, 500};
  std::vector<double> alone;
  for (const std::size_t n : lengths) alone.push_back(std::min(first_token(n), first_token(n)));
  const double rate_alone = decode_rate(100);
  const auto slow = std::make_shared<Watcher>();
  const double began = seconds();
  if (scheduler.submit(job_of(some(length), 1, 1, slow))) return 1;
  slow->wait_for_progress();
  bool is_fair = true;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    double worst = 0, sum = 0;
    constexpr int kTimes = 5;
    for (int k = 0; k < kTimes; ++k) {
      const double taken = first_token(lengths[i]);
      worst = std::max(worst, taken);
      sum += taken;
    }
    std::printf(
        "prompt of %3zu: first token after %.3f s alone, %.3f s (%.2f times; at most %.2f times) while %zu "
        "tokens are read\n",
        lengths[i], alone[i], sum / kTimes, sum / kTimes / alone[i], worst / alone[i], length);
    is_fair = is_fair && sum / kTimes <= 3 * alone[i];
  }
  const double rate = decode_rate(100);
  std::printf("decoding: %.1f tok/s alone, %.1f beside prefill with a share of %.2f: %.2f times slower\n", rate_alone,
              rate, options.prefill_share, rate_alone / rate);
  const SchedulerStatus status = scheduler.status();
  std::int64_t done = 0;
  for (const SchedulerStatus::Slot& slot : status.slots) done = std::max(done, slot.done);
  std::printf("of the long prompt %lld tokens were read in the %.1f s; %llu steps, %llu given up\n",
              static_cast<long long>(done), seconds() - began, static_cast<unsigned long long>(status.steps),
              static_cast<unsigned long long>(status.given_up));
  slow->cancel();
  slow->wait();
  return is_fair ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app("Long runs of what the tests of sessions do in short");
  app.require_subcommand(1);
  std::string model, seeds = "1-20", directory;
  int operations = 1000, threads = 1, rounds = 200;
  std::size_t tokens = 100'000;
  CLI::App* edits = app.add_subcommand("edits", "Random edit scripts against cold runs");
  edits->add_option("MODEL", model)->required();
  edits->add_option("--seeds", seeds);
  edits->add_option("--operations", operations);
  edits->add_option("--threads", threads);
  CLI::App* kill = app.add_subcommand("kill", "A process that writes states is killed at any moment");
  kill->add_option("--rounds", rounds);
  CLI::App* full = app.add_subcommand("full", "States on a disk that is too small");
  full->add_option("DIRECTORY", directory)->required();
  CLI::App* fairness = app.add_subcommand("fairness", "Short prompts while a long one is read");
  fairness->add_option("MODEL", model)->required();
  fairness->add_option("--tokens", tokens);
  fairness->add_option("--threads", threads);
  CLI11_PARSE(app, argc, argv);
  if (edits->parsed()) return run_edits(model, seeds, operations, threads);
  if (kill->parsed()) return run_kill(rounds);
  if (full->parsed()) return run_full(directory);
  return run_fairness(model, tokens, threads);
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) { return lockstep::test::run(argc, argv); }
