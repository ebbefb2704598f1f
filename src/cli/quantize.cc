// `lockstep quantize`: a GGUF file with its matrices in other formats.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/memory_plan.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/split.h"
#include "engine/quantise.h"

namespace lockstep {
namespace {

struct QuantizeCommand {
  ModelOptions meaning;  // of the types 107 and 108 in the input
  std::string in, out, recipe, importance;
  std::vector<std::string> types;
  bool is_plan = false;
  double part_gb = 0;
  int threads = 0;
};

void print_plan(const QuantisePlan& plan) {
  for (const QuantiseTensor& tensor : plan.tensors) {
    std::string shape;
    for (int axis = 0; axis < tensor.source->dims; ++axis)
      shape += fmt::format("{}{}", axis == 0 ? "" : " x ", tensor.source->ne[static_cast<std::size_t>(axis)]);
    fmt::print("{:<44} {:<24} {:<18} {}{}\n", tensor.source->name, shape, info_of(tensor.from).name,
               tensor.is_copied() ? "as it is" : info_of(tensor.to).name,
               tensor.importance != nullptr ? ", by importance" : "");
  }
}

int run_quantize(const QuantizeCommand& command) {
  QuantiseOptions options;
  options.in = command.in;
  options.recipe = command.recipe;
  for (const std::string& type : command.types) options.rules.push_back(parse_type_rule(type));
  options.importance = command.importance;
  options.rocmfp2 = rocmfp2_of(command.meaning);
  options.meaning_of_108 = gguf_options_of(command.meaning).meaning_of_108;
  Interrupts interrupts(Interrupts::kEveryEnd);  // before the threads start, which inherit it
  const QuantisePlan plan = plan_quantisation(options);
  const Interrupts::Stops stops(interrupts);  // until here a signal ends the program at once
  fmt::print(stderr, "{}: {} tensors, {}, from {}\n", command.out, plan.tensors.size(), human_bytes(plan.bytes()),
             human_bytes(plan.file->file_bytes()));
  for (const std::string& note : plan.notes) fmt::print(stderr, "  {}\n", note);
  if (command.is_plan) {
    print_plan(plan);
    return 0;
  }
  Progress progress;
  QuantiseRun run;
  run.threads = command.threads;
  const auto largest =
      std::max_element(plan.tensors.begin(), plan.tensors.end(),
                       [](const QuantiseTensor& a, const QuantiseTensor& b) { return a.bytes() < b.bytes(); });
  run.part_bytes = part_bytes_of(command.part_gb, largest->source->name, largest->bytes());
  run.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  run.cancelled = [&] { return stops.flag().load(); };
  const QuantiseResult result = write_quantised(plan, command.out, run);
  progress.finish(plan.bytes());
  for (const QuantisedFormat& format : result.formats)
    fmt::print(stderr, "  {:<20} {:>5} tensors {:>10}  {}\n", info_of(format.dtype).name, format.tensors,
               human_bytes(format.bytes),
               format.is_measured ? fmt::format("relative error {:.5f}", format.error) : "as in the input");
  if (result.files.size() > 1)
    fmt::print(stderr, "{} files, from {} on\n", result.files.size(), result.files.front().string());
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Run& run) {
  auto options = std::make_shared<QuantizeCommand>();
  CLI::App* command = app.add_subcommand("quantize", "Write a GGUF file with its matrices in other formats");
  command->add_option("IN", options->in, "a GGUF file (any part of a split one)")->required();
  command->add_option("OUT", options->out, "the GGUF file to write")->required();
  std::string recipes;
  for (const std::string_view name : recipe_names())
    recipes += fmt::format("\n{}: {}", name, recipe_named(name).summary);
  command->add_option("--recipe", options->recipe, "formats of a known family of files:" + recipes);
  command
      ->add_option(
          "--type", options->types,
          "the format of the matrices with such names, as in 'blk.*.ffn_down_exps.weight=q3_K'; may be "
          "repeated, the last that matches wins, and all of them win over the recipe; the type `source` leaves "
          "a matrix as it is; vectors and tables always stay as they are")
      ->type_name("PATTERN=TYPE");
  command
      ->add_option("--imatrix", options->importance,
                   "importances of the columns, as lockstep imatrix or llama.cpp write them (GGUF)")
      ->check(CLI::ExistingFile);
  command->add_flag("--plan", options->is_plan, "print what every tensor would become, and write nothing");
  add_split_option(*command, options->part_gb);
  command
      ->add_option("--rocmfp2", options->meaning.rocmfp2,
                   "meaning of tensor type 107 in the input: auto (decided from the data), fixed, affine, s40")
      ->check(CLI::IsMember({"auto", "fixed", "affine", "s40"}))
      ->capture_default_str();
  command
      ->add_option("--type-108", options->meaning.type_108,
                   "meaning of tensor type 108 in the input, which files do not tell: rocmi4, s40, affine")
      ->check(CLI::IsMember({"rocmi4", "s40", "affine"}));
  command->add_option("--threads", options->threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return run_quantize(*options); }; });
}

}  // namespace lockstep
