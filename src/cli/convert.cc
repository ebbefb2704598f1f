// `lockstep convert`: a published checkpoint to a GGUF file.
#include "engine/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/memory_plan.h"
#include "cli/progress.h"
#include "cli/split.h"

namespace lockstep {
namespace {

struct ConvertCommand {
  ConvertOptions convert;
  std::string out;
  double part_gb = 0;
  int threads = 0;
};

int run_convert(const ConvertCommand& command) {
  Interrupts interrupts(Interrupts::kEveryEnd);  // before the threads start, which inherit it
  const ConvertPlan plan = plan_conversion(command.convert);
  const Interrupts::Stops stops(interrupts);  // until here a signal ends the program at once
  constexpr const char* kKinds[] = {"model", "DSpark drafter", "MTP drafter"};
  fmt::print(stderr, "{}: {}, {} layers, {} tensors, {}, from {} files of {}\n", command.out,
             kKinds[static_cast<std::size_t>(plan.kind)], plan.model.layers.size(), plan.tensors.size(),
             human_bytes(plan.bytes()), plan.checkpoint->file_count(), human_bytes(plan.checkpoint->file_bytes()));
  const auto largest =
      std::max_element(plan.tensors.begin(), plan.tensors.end(),
                       [](const ConvertTensor& a, const ConvertTensor& b) { return a.bytes() < b.bytes(); });
  for (const std::string& note : plan.notes) fmt::print(stderr, "  {}\n", note);
  Progress progress;
  ConvertRun run;
  run.threads = command.threads;
  run.part_bytes = part_bytes_of(command.part_gb, largest->name, largest->bytes());
  run.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  run.cancelled = [&] { return stops.flag().load(); };
  const auto files = write_conversion(plan, command.out, run);
  progress.finish(plan.bytes());
  if (files.size() > 1) fmt::print(stderr, "{} files, from {} on\n", files.size(), files.front().string());
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* command = app.add_subcommand("convert", "Make a GGUF file of a published checkpoint (safetensors)");
  command
      ->add_option("CHECKPOINT", options->convert.checkpoint,
                   "the folder with config.json, tokenizer.json and the safetensors files")
      ->required();
  command->add_option("OUT", options->out, "the GGUF file to write")->required();
  command->add_flag("--drafter", options->convert.drafter, "write the drafter (DSpark or MTP) instead of the model");
  command
      ->add_option("--experts", options->convert.experts,
                   "format of the routed experts; mxfp4 holds the published FP4 without loss")
      ->capture_default_str();
  command
      ->add_option("--dense", options->convert.dense,
                   "format of the matrices published in FP8; bf16 holds them without loss")
      ->capture_default_str();
  command
      ->add_option("--rest", options->convert.rest,
                   "format of the other matrices, among them embedding and head; source: as published")
      ->capture_default_str();
  command->add_option("--name", options->convert.name, "general.name of the file; the checkpoint's if not given");
  command
      ->add_option("--ignore-key", options->convert.ignored_keys,
                   "a key of config.json that this program does not know and that you know not to matter")
      ->type_name("KEY");
  add_split_option(*command, options->part_gb);
  command->add_option("--threads", options->threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return run_convert(*options); }; });
}

}  // namespace lockstep
