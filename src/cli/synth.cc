// `lockstep synth`: writes a model with random weights.
#include "engine/synth.h"

#include <fmt/core.h>

#include <cstdint>
#include <memory>

#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/memory_plan.h"
#include "cli/options.h"
#include "cli/progress.h"

namespace lockstep {
namespace {

struct SynthCommand {
  SynthOptions synth;
  std::string out;
  int threads = 0;
};

int run_synth(const SynthCommand& command) {
  const SynthPlan plan = plan_synth(command.synth);
  fmt::print(stderr, "{}: {} {}, {} layers, {} experts, {} tensors, {}\n", command.out, command.synth.preset,
             command.synth.types, plan.config.layers.size(), plan.config.experts, plan.tensors.size(),
             human_bytes(plan.bytes()));
  Interrupts interrupts(Interrupts::kEveryEnd);  // before the threads start, which inherit it
  const Interrupts::Stops stops(interrupts);
  Progress progress;
  SynthRun run;
  run.threads = command.threads;
  run.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  run.cancelled = [&] { return stops.flag().load(); };
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
  add_seed_option(*command, options->synth.seed, "another seed makes another model");
  command->add_option("--threads", options->threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return run_synth(*options); }; });
}

}  // namespace lockstep
