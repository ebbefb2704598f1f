// `lockstep logits`: the logits after every token of given sequences, as raw f32, by any schedule or by the oracle.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/interrupts.h"
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

std::vector<std::vector<Token>> read_sequences(const LogitsOptions& options, const Config& config) {
  std::vector<std::vector<Token>> sequences =
      parse_token_lines(read_input(options.tokens, "--tokens", "a file of tokens"), options.tokens, config.vocabulary);
  if (sequences.empty())
    throw Error(Error::Kind::bad_argument, options.tokens + ": no tokens, expected a sequence a line");
  for (std::size_t s = 0; s < sequences.size(); ++s)
    if (static_cast<std::int64_t>(sequences[s].size()) > config.context_length)
      throw Error(Error::Kind::bad_argument,
                  fmt::format("{}: sequence {} has {} tokens, expected at most {}, which the "
                              "model was made for",
                              options.tokens, s + 1, sequences[s].size(), config.context_length));
  return sequences;
}

int run_oracle(const LogitsOptions& options, const std::atomic<bool>& cancelled) {
  const Gguf file(options.model.model, gguf_options_of(options.model));
  const Config config = read_config(file);
  const std::vector<std::vector<Token>> sequences = read_sequences(options, config);
  refuse_input(options.out, file.inputs({options.tokens}));
  OutputFile out(options.out);
  const DType type_107 = meaning_of_107(file, rocmfp2_of(options.model), print_note).value_or(DType::rocmfp2);
  for (const std::vector<Token>& sequence : sequences) {
    if (cancelled) throw Error(Error::Kind::cancelled, "interrupted");
    const std::vector<float> logits = oracle_logits(file, config, mode_of(options.model), sequence, type_107);
    out.write(std::as_bytes(std::span(logits)));
  }
  out.commit();
  return 0;
}

int run_logits(const LogitsOptions& options) {
  Interrupts interrupts(Interrupts::kEveryEnd);
  const Interrupts::Stops stops(interrupts);
  if (options.oracle) return run_oracle(options, stops.flag());
  const Schedule schedule = parse_schedule(options.schedule);
  // A chunk is a step: the engine is made for as many rows.
  const auto engine = load_engine(options.model, std::max(usual_rows(options.model.back_end), schedule.chunk));
  const std::vector<std::vector<Token>> sequences = read_sequences(options, engine->config());
  refuse_input(options.out, engine->file().inputs({options.tokens}));
  OutputFile out(options.out);
  std::vector<std::uint64_t> first_row(sequences.size() + 1, 0);
  for (std::size_t s = 0; s < sequences.size(); ++s) first_row[s + 1] = first_row[s] + sequences[s].size();
  run_schedule(*engine, sequences, schedule, [&](std::size_t s, Position position, std::span<const float> logits) {
    if (stops.flag()) throw Error(Error::Kind::cancelled, "interrupted");
    out.write_at((first_row[s] + static_cast<std::uint64_t>(position)) * logits.size_bytes(), std::as_bytes(logits));
  });
  out.commit();
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
  CLI::Option* schedule = command
                              ->add_option("--schedule", options->schedule,
                                           "tokenwise, chunk:N, or mixed:SEED (all sequences at once, cut at random)")
                              ->capture_default_str();
  CLI::Option* oracle = command->add_flag(
      "--oracle", options->oracle, "the slow f64 evaluation that says how accurate the engine is; on one thread");
  oracle->excludes(schedule);
  for (const char* engines : {"--threads", "--level", "--backend"}) oracle->excludes(command->get_option(engines));
  command->callback([options, &run] { run = [options] { return run_logits(*options); }; });
}

}  // namespace lockstep
