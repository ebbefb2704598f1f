// `lockstep bench`: tokens a second, and the share of the machine's read bandwidth that decoding reaches.
#include "engine/bench.h"

#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"

namespace lockstep {
namespace {

struct BenchCommand {
  ModelOptions model;
  BenchOptions bench;
  bool json = false;
};

void print_text(const BenchCommand& command, Engine& engine, const BenchReport& report) {
  fmt::print("model     {}, {:.2f} GB\n", command.model.model, static_cast<double>(engine.file().file_bytes()) / 1e9);
  fmt::print("back end  {}\n", engine.ops().description());
  fmt::print("numerics  {}\n", command.model.mode);
  fmt::print("reading   {:.2f} GB/s, a plain read of {:.2f} GB of the file\n\n", report.read_bytes_per_second / 1e9,
             static_cast<double>(report.read_bytes) / 1e9);
  fmt::print("{:8} {:>7} {:>8} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}\n", "", "tokens", "depth", "tok/s", "min", "max",
             "MB/token", "GB/s", "of read");
  for (const BenchRow& row : report.rows) {
    fmt::print("{:8} {:>7} {:>8} {:>10.2f} {:>10.2f} {:>10.2f}", row.is_prefill ? "prefill" : "decode", row.tokens,
               row.depth, row.mean_rate(), row.min_rate(), row.max_rate());
    if (!row.is_prefill)
      fmt::print(" {:>9.1f} {:>9.2f} {:>7.1f} %", static_cast<double>(row.bytes.total()) / 1e6,
                 row.bytes_per_second() / 1e9, 100 * row.bytes_per_second() / report.read_bytes_per_second);
    fmt::print("\n");
  }
}

void print_json(const BenchCommand& command, Engine& engine, const BenchReport& report) {
  nlohmann::ordered_json root;
  root["model"] = command.model.model;
  root["file_bytes"] = engine.file().file_bytes();
  root["backend"] = engine.ops().description();
  root["numerics"] = command.model.mode;
  root["seed"] = command.bench.seed;
  root["read_bytes"] = report.read_bytes;
  root["read_bytes_per_second"] = report.read_bytes_per_second;
  root["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) {
    nlohmann::ordered_json entry;
    entry["kind"] = row.is_prefill ? "prefill" : "decode";
    entry["tokens"] = row.tokens;
    entry["depth"] = row.depth;
    entry["tokens_per_second"] = row.mean_rate();
    entry["min"] = row.min_rate();
    entry["max"] = row.max_rate();
    entry["seconds"] = row.seconds;
    if (!row.is_prefill) {
      entry["weight_bytes_per_token"] = row.bytes.weights;
      entry["cache_bytes_per_token"] = row.bytes.cache;
      entry["bytes_per_second"] = row.bytes_per_second();
      entry["share_of_read"] = row.bytes_per_second() / report.read_bytes_per_second;
    }
    root["rows"].push_back(std::move(entry));
  }
  fmt::print("{}\n", root.dump(2));
}

int run_bench_command(const BenchCommand& command) {
  const auto engine = load_engine(command.model);
  BenchOptions options = command.bench;
  options.threads = command.model.back_end.threads;
  const BenchReport report =
      run_bench(*engine, options, [](const std::string& note) { fmt::print(stderr, "{}\n", note); });
  (command.json ? print_json : print_text)(command, *engine, report);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure prefill and decode, and how near decode is to the memory's limit");
  add_model_options(*command, options->model);
  command->add_option("--prefill", options->bench.prefill, "prompt lengths, as in 128,512")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--decode", options->bench.decode, "tokens decoded at every depth; 0 = none")
      ->capture_default_str();
  command->add_option("--depth", options->bench.depths, "tokens before the decoded ones, as in 0,4096")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--repetitions", options->bench.repetitions, "measured rounds, after one that is not")
      ->capture_default_str();
  command->add_option("--seed", options->bench.seed, "of the tokens, which are random")->capture_default_str();
  command->add_flag("--json", options->json, "the report as JSON");
  command->callback([options, &run] { run = [options] { return run_bench_command(*options); }; });
}

}  // namespace lockstep
