// `lockstep bench`: tokens a second, the share of the memory's read bandwidth that decoding reaches, and where the time
// goes.
#include "engine/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct BenchCommand {
  ModelOptions model;
  BenchOptions bench;
  std::string synth;  // PRESET or PRESET:TYPES
  int layers = 0, experts = 0;
  int chunk = 0;  // 0: usual_rows
  bool json = false;
};

std::string what_row(const BenchRow& row) {
  if (row.is_prefill) return fmt::format("prefill {}", row.tokens);
  return row.batch == 1 ? fmt::format("decode at {}", row.depth)
                        : fmt::format("decode at {}, {} sequences", row.depth, row.batch);
}

/// Lines of a table of where the time went: name, ms a step, share, calls a step, GB/s of what it read if that is
/// known.
struct TimingLine {
  std::string name;
  double seconds = 0;         // a step
  double share = 0;           // of all lines
  double calls = 0;           // a step
  double bytes_a_second = 0;  // 0: not known
};

/// By phase. What a phase reads is known of a single sequence's token.
std::vector<TimingLine> phase_lines(const BenchRow& row) {
  std::vector<TimingLine> lines;
  const TimedOps::Times& times = row.by_phase;
  const auto steps = static_cast<double>(std::max<std::uint64_t>(times.steps, 1));
  for (int p = 0; p < kPhases; ++p) {
    const TimedOps::Work& work = times.phases[static_cast<std::size_t>(p)];
    if (work.calls == 0) continue;
    const bool is_known = !row.is_prefill && row.batch == 1 && work.seconds > 0;
    const auto bytes = static_cast<double>(row.bytes.phases[static_cast<std::size_t>(p)]);
    lines.push_back({std::string(name_of(static_cast<StepPhase>(p))), work.seconds / steps,
                     work.seconds / times.seconds(), static_cast<double>(work.calls) / steps,
                     is_known ? bytes * steps / work.seconds : 0});
  }
  return lines;
}

/// By op and format, the longest first.
std::vector<TimingLine> op_lines(const BenchRow& row) {
  std::vector<TimingLine> lines;
  const TimedOps::Times& times = row.by_op;
  const auto steps = static_cast<double>(std::max<std::uint64_t>(times.steps, 1));
  double all = 0;
  for (const auto& [name, work] : times.kernels) all += work.seconds;
  for (const auto& [name, work] : times.kernels)
    lines.push_back({name, work.seconds / steps, work.seconds / all, static_cast<double>(work.calls) / steps,
                     row.is_prefill ? 0 : static_cast<double>(work.weight_bytes) / work.seconds});
  std::stable_sort(lines.begin(), lines.end(),
                   [](const TimingLine& a, const TimingLine& b) { return a.seconds > b.seconds; });
  return lines;
}

void print_lines(const std::vector<TimingLine>& lines, double read_bytes_per_second) {
  for (const TimingLine& line : lines) {
    fmt::print("  {:28} {:>10.3f} ms {:>6.1f} % {:>7.0f} calls", line.name, 1e3 * line.seconds, 100 * line.share,
               line.calls);
    if (line.bytes_a_second > 0)
      fmt::print(" {:>9.2f} GB/s {:>6.1f} % of read", line.bytes_a_second / 1e9,
                 100 * line.bytes_a_second / read_bytes_per_second);
    fmt::print("\n");
  }
}

void print_timing(const BenchRow& row, double read_bytes_per_second) {
  const auto one = [&](const char* by, const TimedOps::Times& times, double seconds,
                       const std::vector<TimingLine>& lines) {
    double sum = 0;
    for (const TimingLine& line : lines) sum += line.seconds;
    fmt::print(
        "\n{}, by {}: {:.3f} ms a step in all, of {:.3f} ms (without timing {:.3f} ms), {} steps", what_row(row), by,
        1e3 * sum, 1e3 * seconds / static_cast<double>(std::max<std::uint64_t>(times.steps, 1)),
        1e3 * row.batch * row.tokens / row.mean_rate() / static_cast<double>(std::max<std::uint64_t>(times.steps, 1)),
        times.steps);
    if (times.untimed_steps > 0) fmt::print(", {} not timed", times.untimed_steps);
    fmt::print("\n");
    print_lines(lines, read_bytes_per_second);
  };
  one("phase", row.by_phase, row.phase_seconds, phase_lines(row));
  one("op", row.by_op, row.op_seconds, op_lines(row));
}

void print_text(const BenchCommand& command, Engine& engine, const BenchReport& report) {
  fmt::print("model     {}, {:.2f} GB\n", engine.file().name(), static_cast<double>(engine.file().file_bytes()) / 1e9);
  fmt::print("back end  {}\n", engine.ops().description());
  fmt::print("numerics  {}\n", command.model.mode);
  if (report.is_device_read)
    fmt::print("reading   {:.2f} GB/s, a plain read of the device's memory\n", report.read_bytes_per_second / 1e9);
  else
    fmt::print("reading   {:.2f} GB/s, a plain read of {:.2f} GB of the file\n", report.read_bytes_per_second / 1e9,
               static_cast<double>(report.read_bytes) / 1e9);
  if (report.least_clock_hz > 0)
    fmt::print("clock     {:.0f} to {:.0f} MHz seen, {:.0f} at most{}\n", report.least_clock_hz / 1e6,
               report.greatest_clock_hz / 1e6, report.most_clock_hz / 1e6,
               report.is_clock_sagging() ? ": it sags, so the figures are those of a slower device" : "");
  fmt::print("\n{:8} {:>7} {:>8} {:>6} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}\n", "", "tokens", "depth", "batch",
             "tok/s", "min", "max", "MB/token", "GB/s", "of read");
  for (const BenchRow& row : report.rows) {
    fmt::print("{:8} {:>7} {:>8} {:>6} {:>10.2f} {:>10.2f} {:>10.2f}", row.is_prefill ? "prefill" : "decode",
               row.tokens, row.depth, row.batch, row.mean_rate(), row.min_rate(), row.max_rate());
    if (!row.is_prefill && row.batch == 1)
      fmt::print(" {:>9.1f} {:>9.2f} {:>7.1f} %", static_cast<double>(row.bytes.total()) / 1e6,
                 row.bytes_per_second() / 1e9, 100 * row.bytes_per_second() / report.read_bytes_per_second);
    fmt::print("\n");
  }
  if (!command.bench.has_timing) return;
  for (const BenchRow& row : report.rows) print_timing(row, report.read_bytes_per_second);
}

Json timing_json(const std::vector<TimingLine>& lines, double read_bytes_per_second) {
  Json out = Json::array();
  for (const TimingLine& line : lines) {
    Json entry = {{"name", line.name}, {"seconds", line.seconds}, {"share", line.share}, {"calls", line.calls}};
    if (line.bytes_a_second > 0) {
      entry["bytes_per_second"] = line.bytes_a_second;
      entry["share_of_read"] = line.bytes_a_second / read_bytes_per_second;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

void print_json(const BenchCommand& command, Engine& engine, const BenchReport& report) {
  Json root;
  root["model"] = engine.file().name();
  root["file_bytes"] = engine.file().file_bytes();
  root["backend"] = engine.ops().description();
  root["numerics"] = command.model.mode;
  root["chunk"] = command.chunk;
  root["seed"] = command.bench.seed;
  if (!report.is_device_read) root["read_bytes"] = report.read_bytes;
  root["read_bytes_per_second"] = report.read_bytes_per_second;
  if (report.least_clock_hz > 0)
    root["clock"] = {{"least_hz", report.least_clock_hz},
                     {"greatest_hz", report.greatest_clock_hz},
                     {"most_hz", report.most_clock_hz},
                     {"sags", report.is_clock_sagging()}};
  root["rows"] = Json::array();
  for (const BenchRow& row : report.rows) {
    Json entry;
    entry["kind"] = row.is_prefill ? "prefill" : "decode";
    entry["tokens"] = row.tokens;
    entry["depth"] = row.depth;
    entry["batch"] = row.batch;
    entry["tokens_per_second"] = row.mean_rate();
    entry["min"] = row.min_rate();
    entry["max"] = row.max_rate();
    entry["seconds"] = row.seconds;
    if (!row.is_prefill && row.batch == 1) {
      entry["weight_bytes_per_token"] = row.bytes.weights;
      entry["cache_bytes_per_token"] = row.bytes.cache;
      entry["bytes_per_second"] = row.bytes_per_second();
      entry["share_of_read"] = row.bytes_per_second() / report.read_bytes_per_second;
    }
    if (command.bench.has_timing) {
      entry["phases"] = timing_json(phase_lines(row), report.read_bytes_per_second);
      entry["ops"] = timing_json(op_lines(row), report.read_bytes_per_second);
    }
    root["rows"].push_back(std::move(entry));
  }
  fmt::print("{}\n", root.dump(2));
}

/// "flash:q2", or "slice" for its usual types.
std::shared_ptr<const SynthPlan> synth_plan(const BenchCommand& command) {
  SynthOptions options;
  const std::size_t colon = command.synth.find(':');
  options.preset = command.synth.substr(0, colon);
  if (colon != std::string::npos) options.types = command.synth.substr(colon + 1);
  options.layers = command.layers;
  options.experts = command.experts;
  return std::make_shared<const SynthPlan>(plan_synth(options));
}

int run_bench_command(BenchCommand command) {
  if (command.chunk == 0) command.chunk = usual_rows(command.model.back_end);
  if (!command.synth.empty()) command.model.synth = synth_plan(command);
  if (command.bench.has_timing) command.model.timing = Timing::ops;
  std::int64_t longest = 1;
  for (const int n : command.bench.prefill) longest = std::max<std::int64_t>(longest, n);
  for (const int n : command.bench.depths)
    longest = std::max<std::int64_t>(longest, n + std::int64_t{command.bench.decode});
  const auto engine = load_engine(command.model, command.chunk, longest);
  if (const std::int64_t most = engine->config().context_length; longest > most)
    throw Error(Error::Kind::bad_argument, fmt::format("--prefill, --depth and --decode: up to {} tokens, expected at "
                                                       "most {}, which the model was made for",
                                                       longest, most));
  command.bench.threads = command.model.back_end.threads;
  const BenchReport report = run_bench(*engine, command.bench, print_note);
  (command.json ? print_json : print_text)(command, *engine, report);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure prefill and decode, and how near decode is to the memory's limit");
  add_model_options(*command, options->model);
  command
      ->add_option("--synth", options->synth,
                   "instead of MODEL, a synthetic one that is made in memory: PRESET[:TYPES] of lockstep synth")
      ->excludes("MODEL");
  command->parse_complete_callback([options] {
    if (options->synth.empty()) use_demo_model(options->model.model, options->model.is_demo);
  });
  command->add_option("--layers", options->layers, "with --synth: layers; 0: the preset's")
      ->needs("--synth")
      ->capture_default_str();
  command->add_option("--experts", options->experts, "with --synth: routed experts a layer; 0: the preset's")
      ->needs("--synth")
      ->capture_default_str();
  command->add_option("--prefill", options->bench.prefill, "prompt lengths, as in 128,512; 0 = none")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--chunk", options->chunk, "tokens a step at most; default: 512, on a GPU 4096")
      ->check(CLI::Range(1, 16384));
  command->add_option("--decode", options->bench.decode, "tokens decoded at every depth; 0 = none")
      ->capture_default_str();
  command->add_option("--depth", options->bench.depths, "tokens before the decoded ones, as in 0,4096")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--batch", options->bench.batches, "sequences decoded together, as in 1,8,32; each at every depth")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--repetitions", options->bench.repetitions, "measured rounds, after one that is not")
      ->capture_default_str();
  add_seed_option(*command, options->bench.seed, "of the tokens, which are random");
  command->add_flag("--timing", options->bench.has_timing,
                    "afterwards, where the time of every measurement goes: by phase, and by op and format");
  command->add_flag("--json", options->json, "the report as JSON");
  command->callback([options, &run] { run = [options] { return run_bench_command(*options); }; });
}

}  // namespace lockstep
