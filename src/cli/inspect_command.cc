// `lockstep inspect`: the command around run_inspect, and the memory plan that it cannot make itself.
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/options.h"
#include "engine/engine.h"

namespace lockstep {
namespace {

struct InspectCommand {
  InspectOptions inspect;
  std::string path, mode = "official", meaning_of_108;
  std::int64_t context = 0;
  bool is_demo = false;
};

InspectPlan plan_of(const Gguf& file, const InspectCommand& command) {
  const Config config = read_config(file);
  if (command.context > config.context_length)
    throw Error(Error::Kind::bad_argument, "--context: " + std::to_string(command.context) +
                                               " tokens, expected at most " + std::to_string(config.context_length) +
                                               ", which the model was made for");
  const std::int64_t context = command.context > 0 ? command.context : std::min(kUsualContext, config.context_length);
  const Mode mode = command.mode == "plain" ? Mode::plain : Mode::official;
  const MemoryPlan plan = plan_memory(file, config, mode, context, usual_rows({}));
  return {plan.context, plan.weights, plan.sequence, plan.workspace};
}

int run(InspectCommand command) {
  print_demo_note(command.path, command.is_demo);
  command.inspect.path = command.path;
  if (!command.meaning_of_108.empty()) {
    command.inspect.meaning_of_108 = dtype_named(command.meaning_of_108);
    if (!command.inspect.meaning_of_108)
      throw Error(Error::Kind::bad_argument,
                  "--type-108: \"" + command.meaning_of_108 + "\" is no format, expected the name of one");
  }
  command.inspect.plan = [&command](const Gguf& file) { return plan_of(file, command); };
  return run_inspect(command.inspect, std::cout);
}

}  // namespace

void add_inspect(CLI::App& app, Run& run_chosen) {
  auto options = std::make_shared<InspectCommand>();
  CLI::App* command = app.add_subcommand("inspect", "What is in a model file, and the memory it needs");
  add_model_argument(*command, options->path, options->is_demo);
  command->add_flag("--json", options->inspect.json, "one JSON object");
  command
      ->add_option("--context", options->context,
                   "tokens that the memory plan is for; without it, 32768 or the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command->add_option("--mode", options->mode, "official or plain: how the cache of the plan is stored")
      ->check(CLI::IsMember({"official", "plain"}))
      ->capture_default_str();
  command->add_option("--items", options->inspect.array_items, "values shown of an array")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--type-108", options->meaning_of_108, "meaning of tensor type 108, where the file does not say");
  command->callback([options, &run_chosen] { run_chosen = [options] { return run(*options); }; });
}

}  // namespace lockstep
