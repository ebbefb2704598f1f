// `lockstep eval`: which of a suite's prompts a model answers right, how likely it finds the right answers or a text,
// and how far it is from a reference (another file, or the same one in another mode).
#include "engine/eval.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/count_progress.h"
#include "cli/demo.h"
#include "cli/eval_report.h"
#include "cli/options.h"
#include "cli/text_passages.h"

namespace lockstep {
namespace {

struct EvalCommand {
  ModelOptions model;
  std::vector<std::string> suites;
  TextOptions text;
  std::string compare, compare_mode;
  std::size_t failures = 5;
  bool json = false;
};

/// The files that are meant; `demo` is all of the demo's.
std::vector<std::string> suite_files(const EvalCommand& command) {
  std::vector<std::string> named = command.suites;
  if (named.empty() && command.text.file.empty()) named = {"demo"};
  std::vector<std::string> files;
  for (const std::string& name : named) {
    if (name != "demo") {
      files.push_back(name);
      continue;
    }
    for (const std::filesystem::path& path : demo_suites(demo_folders())) files.push_back(path.string());
  }
  return files;
}

struct Suite {
  std::string file;
  std::vector<EvalCase> cases;
};

std::vector<Suite> read_suites(const EvalCommand& command) {
  std::vector<Suite> suites;
  for (const std::string& file : suite_files(command))
    suites.push_back({file, parse_suite(read_text_file(file, "--suite"), file)});
  return suites;
}

/// The reference's options; nothing if there is to be none.
std::optional<ModelOptions> reference_of(const EvalCommand& command) {
  if (command.compare.empty() && command.compare_mode.empty()) return std::nullopt;
  ModelOptions reference = command.model;
  reference.is_demo = false;
  if (!command.compare.empty()) reference.model = command.compare;
  if (!command.compare_mode.empty()) reference.mode = command.compare_mode;
  if (reference.model == command.model.model && reference.mode == command.model.mode)
    throw Error(Error::Kind::bad_argument,
                command.compare.empty()
                    ? "--compare-mode: " + reference.mode + " is the mode of MODEL too, expected the other one"
                    : "--compare: " + reference.model + " is MODEL, expected another file or another --compare-mode");
  return reference;
}

EvalModel model_of(const ModelOptions& options, const Engine& engine) {
  return {options.model, options.mode, engine.file().file_bytes()};
}

int run_eval(const EvalCommand& command) {
  const std::vector<Suite> suites = read_suites(command);  // before a model is loaded, since they may be wrong
  const std::optional<ModelOptions> reference_options = reference_of(command);

  const auto engine = load_engine(command.model, 512, command.text.context);
  std::unique_ptr<Engine> reference;
  EvalResults results;
  results.model = model_of(command.model, *engine);
  results.back_end = engine->ops().description();
  if (reference_options) {
    const std::uint64_t loaded = engine->file().file_bytes() + engine->forward().workspace_bytes();
    reference = load_engine(*reference_options, 512, command.text.context, loaded);
    check_same_vocabulary(engine->file(), reference->file());
    results.reference = model_of(*reference_options, *reference);
  }
  const std::vector<Passage> windows =
      command.text.file.empty() ? std::vector<Passage>() : text_passages(*engine, command.text);

  const auto measured = [&](const std::vector<Passage>& passages) {
    CountProgress progress("tokens");
    return measure(*engine, reference.get(), passages,
                   [&](std::int64_t done, std::int64_t total) { progress.show(done, total); });
  };
  std::vector<Passage> passages;
  for (const Suite& suite : suites) {
    CountProgress progress("cases");
    results.suites.push_back({suite.file, run_suite(*engine, suite.cases, [&](std::int64_t done, std::int64_t total) {
                                progress.show(done, total);
                              })});
    std::vector<Passage> more = suite_passages(*engine, suite.cases);
    std::move(more.begin(), more.end(), std::back_inserter(passages));
  }
  if (!suites.empty()) results.suite = measured(passages);
  if (!windows.empty()) {
    results.text_file = command.text.file;
    results.text = measured(windows);
  }
  fmt::print("{}", command.json ? eval_json(results) : eval_text(results, command.failures));
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  auto options = std::make_shared<EvalCommand>();
  CLI::App* command = app.add_subcommand("eval", "Count right answers, and measure how far a file is from another");
  add_model_options(*command, options->model);
  command
      ->add_option("--suite", options->suites,
                   "demo, or a file of prompts with their answers; may be repeated; without it and --text, demo")
      ->allow_extra_args(false);
  add_text_options(*command, options->text);
  command->add_option("--compare", options->compare,
                      "a reference file: mean and 99th percentile of KL(reference || MODEL), and how often the "
                      "likeliest token is the same");
  command
      ->add_option("--compare-mode", options->compare_mode,
                   "mode of the reference, official or plain; without --compare the reference is MODEL itself")
      ->check(CLI::IsMember({"official", "plain"}));
  command->add_option("--failures", options->failures, "failing cases shown")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command->add_flag("--json", options->json, "the report as JSON, with every failing case");
  command->callback([options, &run] { run = [options] { return run_eval(*options); }; });
}

}  // namespace lockstep
