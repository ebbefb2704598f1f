// `lockstep synth`: writes a model with random weights.
#include "engine/synth.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "cli/command.h"

namespace lockstep {
namespace {

struct SynthCommand {
  SynthOptions synth;
  std::string out;
  int threads = 0;
};

/// Holds the signals that would end the program back, so that they can be asked for between pieces: a handler would
/// need a global, and without one an interrupted run would leave its .part file.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Whether one has arrived; it is taken.
  bool arrived() {
    const timespec no_wait{};
    taken_ = taken_ || sigtimedwait(&set_, nullptr, &no_wait) > 0;
    return taken_;
  }

 private:
  sigset_t set_, before_;
  bool taken_ = false;
};

/// A line on stderr that is written over, with rate and time left; on anything but a terminal, a line every ten
/// seconds.
class Progress {
 public:
  void show(std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const double wait = is_terminal_ ? 0.25 : 10.0;
    if (std::chrono::duration<double>(now - shown_).count() < wait) return;
    shown_ = now;
    const double rate = static_cast<double>(done) / std::max(elapsed, 1e-3);
    fmt::print(stderr, "{}{:.2f} of {:.2f} GB, {:.2f} GB/s, {:.0f} s left  {}", is_terminal_ ? "\r" : "",
               static_cast<double>(done) / 1e9, static_cast<double>(total) / 1e9, rate / 1e9,
               static_cast<double>(total - done) / std::max(rate, 1.0), is_terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  /// The whole run, with the time that the disk took to have it all.
  void finish(std::uint64_t total) const {
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    fmt::print(stderr, "{}{:.3f} GB in {:.1f} s, {:.2f} GB/s          \n", is_terminal_ ? "\r" : "",
               static_cast<double>(total) / 1e9, elapsed, static_cast<double>(total) / 1e9 / std::max(elapsed, 1e-3));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_ = start_;
  bool is_terminal_ = isatty(fileno(stderr)) != 0;
};

int run_synth(const SynthCommand& command) {
  const SynthPlan plan = plan_synth(command.synth);
  fmt::print(stderr, "{}: {} {}, {} layers, {} experts, {} tensors, {:.3f} GB\n", command.out, command.synth.preset,
             command.synth.types, plan.config.layers.size(), plan.config.experts, plan.tensors.size(),
             static_cast<double>(plan.bytes()) / 1e9);
  HeldSignals signals;  // before the threads start, which inherit it
  Progress progress;
  SynthRun run;
  run.threads = command.threads;
  run.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  run.cancelled = [&] { return signals.arrived(); };
  write_synth(plan, command.out, run);
  progress.finish(plan.bytes());
  return 0;
}

}  // namespace

void add_synth(CLI::App& app, Run& run) {
  auto options = std::make_shared<SynthCommand>();
  CLI::App* command = app.add_subcommand("synth", "Write a model of real geometry with random weights");
  command->add_option("OUT", options->out, "the GGUF file to write")->required();
  command
      ->add_option("--preset", options->synth.preset,
                   "flash: the model's geometry; slice: its widths, few layers and experts; nano: a few megabytes")
      ->check(CLI::IsMember({"flash", "slice", "nano"}))
      ->capture_default_str();
  command->add_option("--types", options->synth.types, "set of formats")
      ->check(CLI::IsMember({"q2", "q4", "rocmfp2", "rocmfp4", "mxfp4", "f16"}))
      ->capture_default_str();
  command->add_option("--layers", options->synth.layers, "layers, in the pattern of the model; 0: the preset's")
      ->capture_default_str();
  command->add_option("--experts", options->synth.experts, "routed experts a layer; 0: the preset's")
      ->capture_default_str();
  command->add_option("--seed", options->synth.seed, "another seed makes another model")->capture_default_str();
  command->add_option("--threads", options->threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return run_synth(*options); }; });
}

}  // namespace lockstep
