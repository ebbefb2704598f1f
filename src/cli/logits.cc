// `lockstep logits`: the logits after every token of given sequences, as raw f32, by any schedule or by the oracle.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "engine/schedule.h"
#include "model/oracle.h"

namespace lockstep {
namespace {

struct LogitsOptions {
  ModelOptions model;
  std::string tokens, out, schedule = "chunk:512";
  bool oracle = false;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Error::Kind::io, path + ": cannot open");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int run_logits(const LogitsOptions& options) {
  const Schedule schedule = parse_schedule(options.schedule);
  const std::string text = read_file(options.tokens);
  // Written beside the target and renamed, so that an interrupted run leaves no half file under the final name.
  const std::string part = options.out + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  if (!out) throw Error(Error::Kind::io, part + ": cannot create");

  std::vector<std::vector<Token>> sequences;
  const auto finish = [&] {
    out.close();
    if (!out) throw Error(Error::Kind::io, part + ": cannot write");
    std::filesystem::rename(part, options.out);
  };
  if (options.oracle) {
    const Gguf file(options.model.model, gguf_options_of(options.model));
    const Config config = read_config(file);
    sequences = parse_token_lines(text, options.tokens, config.vocabulary);
    const DType type_107 = meaning_of_107(file, rocmfp2_of(options.model), print_note).value_or(DType::rocmfp2);
    for (const std::vector<Token>& sequence : sequences) {
      const std::vector<float> logits = oracle_logits(file, config, mode_of(options.model), sequence, type_107);
      out.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size() * sizeof(float)));
    }
    finish();
    return 0;
  }
  const auto engine = load_engine(options.model);
  sequences = parse_token_lines(text, options.tokens, engine->config().vocabulary);
  std::vector<std::uint64_t> first_row(sequences.size() + 1, 0);
  for (std::size_t s = 0; s < sequences.size(); ++s) first_row[s + 1] = first_row[s] + sequences[s].size();
  run_schedule(*engine, sequences, schedule, [&](std::size_t s, Position position, std::span<const float> logits) {
    const std::uint64_t row = first_row[s] + static_cast<std::uint64_t>(position);
    out.seekp(static_cast<std::streamoff>(row * logits.size_bytes()));
    out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
  });
  finish();
  fmt::print(stderr, "{} sequences, {} tokens, {}, {}\n", sequences.size(), first_row.back(), options.schedule,
             engine->ops().description());
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, Run& run) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand("logits", "Logits after every token of given sequences, as raw f32");
  add_model_options(*command, options->model);
  command->add_option("--tokens", options->tokens, "file of token ids, one sequence a line")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--out", options->out, "raw little-endian f32 [tokens of all sequences][vocabulary]")->required();
  command
      ->add_option("--schedule", options->schedule,
                   "tokenwise, chunk:N, or mixed:SEED (all sequences at once, cut at random)")
      ->capture_default_str();
  command->add_flag("--oracle", options->oracle, "the slow f64 evaluation that says how accurate the engine is");
  command->callback([options, &run] { run = [options] { return run_logits(*options); }; });
}

}  // namespace lockstep
