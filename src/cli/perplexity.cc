// `lockstep perplexity`: how likely a model finds a text.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/count_progress.h"
#include "cli/options.h"
#include "cli/text_passages.h"

namespace lockstep {
namespace {

struct PerplexityCommand {
  ModelOptions model;
  TextOptions text;
  bool json = false;
};

int run_perplexity(const PerplexityCommand& command) {
  const auto engine = load_engine(command.model, 512, command.text.context);
  const std::vector<Passage> passages = text_passages(*engine, command.text);
  Likelihood likelihood;
  {
    CountProgress progress("tokens");
    likelihood = measure(*engine, nullptr, passages, [&](std::int64_t done, std::int64_t total) {
                   progress.show(done, total);
                 }).model;
  }
  if (command.json) {
    nlohmann::ordered_json root;
    root["model"] = command.model.model;
    root["mode"] = command.model.mode;
    root["backend"] = engine->ops().description();
    root["text"] = command.text.file;
    root["windows"] = passages.size();
    root["tokens"] = likelihood.tokens;
    root["mean_surprise"] = likelihood.mean();
    root["perplexity"] = likelihood.perplexity();
    root["likeliest"] = likelihood.likeliest;
    fmt::print("{}\n", root.dump(2));
    return 0;
  }
  fmt::print("perplexity {:.4f}: {:.5f} nats a token over {} tokens in {} windows; {:.2f} % were the likeliest\n",
             likelihood.perplexity(), likelihood.mean(), likelihood.tokens, passages.size(),
             100 * static_cast<double>(likelihood.likeliest) / static_cast<double>(likelihood.tokens));
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, Run& run) {
  auto options = std::make_shared<PerplexityCommand>();
  CLI::App* command = app.add_subcommand("perplexity", "How likely a model finds a text");
  add_model_options(*command, options->model);
  add_text_options(*command, options->text)->required();
  command->add_flag("--json", options->json, "the result as JSON");
  command->callback([options, &run] { run = [options] { return run_perplexity(*options); }; });
}

}  // namespace lockstep
