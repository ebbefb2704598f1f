// `lockstep check [MODEL]`: does this machine keep the law? Every level, several thread counts, several schedules, or
// with --backend a GPU by the same schedules; prints each hash beside the golden one and fails on any difference.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cpu/cpu_ops.h"
#include "cpu/level.h"
#include "engine/compare_paths.h"
#include "engine/law_check.h"
#include "numerics/random.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

struct CheckOptions {
  std::string model;
  BackEndOptions back_end;
  int tokens = 0;  // 0: kLawTokens
  bool write_golden = false;
  std::string compare;  // "PATH_A,PATH_B"
};

/// Counts what was compared and says what differs.
class Report {
 public:
  explicit Report(bool quiet) : quiet_(quiet) {}

  /// Compares with the golden line of that name, or, where there is none, with the first hash seen under it.
  void compare(const std::string& name, std::uint64_t hash, const std::string& path) {
    std::optional<std::uint64_t> expected = find_line(golden_, name);
    const bool is_golden = expected.has_value();
    if (!is_golden) expected = find_line(seen_, name);
    const bool is_new = !find_line(seen_, name).has_value();
    if (is_new) seen_.push_back({name, hash});
    ++compared_;
    const bool same = !expected.has_value() || *expected == hash;
    if (!same) ++different_;
    if (quiet_) return;
    if (is_new && same)
      fmt::print("{:<32} {:016x}  {}\n", name, hash,
                 is_golden ? "golden" : "no golden hash: paths are compared with each other");
    if (!same) fmt::print("{:<32} {:016x}  DIFFERENT, expected {:016x}  ({})\n", name, hash, *expected, path);
  }

  const std::vector<LawLine>& seen() const { return seen_; }
  int compared() const { return compared_; }
  int different() const { return different_; }

 private:
  bool quiet_;
  std::vector<LawLine> golden_ = golden_lines();
  std::vector<LawLine> seen_;
  int compared_ = 0, different_ = 0;
};

struct Path {
  BackEndOptions back_end;
  std::string schedule;
  std::string name() const {
    if (back_end.backend != "cpu") return fmt::format("{}, {}", back_end.backend, schedule);
    return fmt::format("{}, {} threads, {}", back_end.level, back_end.threads, schedule);
  }
};

BackEndOptions cpu_with(std::string_view level, int threads) {
  BackEndOptions options;
  options.level = level;
  options.threads = threads;
  return options;
}

/// The level that was asked for, or all that this machine has.
std::vector<const cpu::Level*> levels_of(const BackEndOptions& chosen) {
  std::vector<const cpu::Level*> levels;
  for (const cpu::Level* level : cpu::available_levels())
    if (chosen.level == "auto" || chosen.level == level->name) levels.push_back(level);
  if (levels.empty()) cpu::make_cpu_ops({1, chosen.level});  // says what this machine lacks
  return levels;
}

/// The best level by every schedule, the others by one, all with several thread counts; or the other back end by every
/// schedule, and then the CPU by one, to compare with where there is no golden hash.
std::vector<Path> paths(const BackEndOptions& chosen) {
  std::vector<Path> paths;
  if (chosen.backend != "cpu") {
    for (const char* schedule : {"chunk:64", "tokenwise", "chunk:129", "mixed:1", "mixed:2"})
      paths.push_back({chosen, schedule});
    paths.push_back({cpu_with("auto", 0), "chunk:64"});
    return paths;
  }
  const auto levels = levels_of(chosen);
  const auto threads = [&](int otherwise) { return chosen.threads > 0 ? chosen.threads : otherwise; };
  for (const cpu::Level* level : levels) {
    const bool is_best = level == levels.back();
    paths.push_back({cpu_with(level->name, threads(is_best ? 1 : 2)), "chunk:64"});
    if (!is_best) continue;
    for (const char* schedule : {"tokenwise", "chunk:129", "mixed:1", "mixed:2"})
      paths.push_back({cpu_with(level->name, threads(2)), schedule});
    paths.push_back({cpu_with(level->name, threads(3)), "mixed:3"});
  }
  return paths;
}

void check_model(Report& report, const BackEndOptions& back_end, const std::filesystem::path& file,
                 const std::string& name, int tokens, const std::atomic<bool>& cancelled) {
  for (const Mode mode : {Mode::official, Mode::plain}) {
    for (const Path& path : paths(back_end)) {
      if (cancelled) throw Error(Error::Kind::cancelled, "interrupted");
      EngineOptions options;
      options.model = file;
      options.mode = mode;
      options.max_rows = 256;
      Engine engine(options, make_ops(path.back_end, false));
      auto sequences = law_tokens(engine.config().vocabulary);
      if (tokens > 0)
        for (auto& sequence : sequences) sequence.resize(std::min(sequence.size(), static_cast<std::size_t>(tokens)));
      report.compare(fmt::format("model {} {}", name, mode == Mode::official ? "official" : "plain"),
                     model_hash(engine, sequences, parse_schedule(path.schedule)), path.name());
    }
  }
}

/// A folder of our own that is gone afterwards.
struct ScratchFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("lockstep-check-{}", ::getpid());
  ScratchFolder() { std::filesystem::create_directories(path); }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// "BACKEND[/LEVEL][:SCHEDULE]", where a schedule is tokenwise (the usual one) or chunk:N.
TracedPath traced_path(const std::string& text, const BackEndOptions& chosen) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        Error::Kind::bad_argument,
        fmt::format("--compare {}: {}, expected BACKEND[/LEVEL][:SCHEDULE], as cpu:tokenwise, cpu/avx2:chunk:128 "
                    "or reference",
                    text, what));
  };
  const std::size_t colon = text.find(':');
  std::string back_end = text.substr(0, colon);
  BackEndOptions options = chosen;
  options.level = "auto";
  options.threads = 0;
  if (const std::size_t slash = back_end.find('/'); slash != std::string::npos) {
    options.level = back_end.substr(slash + 1);
    back_end.resize(slash);
  }
  options.backend = back_end;
  const std::vector<std::string> known = back_end_names();
  if (std::find(known.begin(), known.end(), back_end) == known.end())
    refuse("no back end \"" + back_end + "\" in this program");
  const Schedule schedule = parse_schedule(colon == std::string::npos ? "tokenwise" : text.substr(colon + 1));
  if (schedule.kind == Schedule::Kind::mixed) refuse("a mixed schedule has no order of its own");
  return {text, [options] { return make_ops(options, false); }, schedule.chunk};
}

/// Prints where two paths part; whether they do.
bool compare_on(const std::string& name, const EngineOptions& model, const TracedPath& a, const TracedPath& b,
                std::span<const Token> tokens) {
  const PathComparison comparison = compare_paths(model, a, b, tokens);
  const std::string what = fmt::format("{} {}", name, model.mode == Mode::official ? "official" : "plain");
  if (!comparison.first) {
    fmt::print("{:<32} {} rows of {} tokens equal on {} and {}\n", what, comparison.rows, tokens.size(), a.name,
               b.name);
    return false;
  }
  const PathDifference& d = *comparison.first;
  const std::string layer =
      d.place.layer < 0 ? std::string("outside of layers") : fmt::format("layer {}", d.place.layer);
  fmt::print("{:<32} DIFFERENT\n", what);
  fmt::print("  op        {}, its {} ({})\n", d.place.op, d.place.part, name_of(d.place.phase));
  fmt::print("  where     {}, position {}{}\n", layer, d.position,
             d.place.slot > 0 ? fmt::format(", slot {}", d.place.slot) : std::string());
  fmt::print("  element   {} of {}, the first of {} that differ\n", d.element, d.elements, d.differing);
  fmt::print("  {:<9} {}\n  {:<9} {}\n", a.name, d.a, b.name, d.b);
  fmt::print("  tokens    {} of {} differ there; all ops before it are equal\n", d.tokens, tokens.size());
  return true;
}

int run_compare(const CheckOptions& options) {
  const std::size_t comma = options.compare.find(',');
  if (comma == std::string::npos)
    throw Error(Error::Kind::bad_argument, "--compare " + options.compare + ": one path, expected PATH_A,PATH_B");
  const TracedPath a = traced_path(options.compare.substr(0, comma), options.back_end);
  const TracedPath b = traced_path(options.compare.substr(comma + 1), options.back_end);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const auto tokens_for = [&](int vocabulary) {
    std::vector<Token> tokens;
    const int count = options.tokens > 0 ? options.tokens : kLawTokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(static_cast<Token>(random_u64(kLawTokens, static_cast<std::uint64_t>(i)) %
                                          static_cast<std::uint64_t>(vocabulary)));
    return tokens;
  };
  int different = 0;
  const auto compare = [&](const std::string& name, EngineOptions model, int vocabulary) {
    for (const Mode mode : {Mode::official, Mode::plain}) {
      model.mode = mode;
      different += compare_on(name, model, a, b, tokens_for(vocabulary));
    }
  };
  if (!options.model.empty()) {
    EngineOptions model;
    model.model = options.model;
    compare(std::filesystem::path(options.model).filename().string(), model,
            read_config(Gguf(options.model)).vocabulary);
  } else {
    for (const std::string& name : law_models()) {
      EngineOptions model;
      model.synth = law_model_plan(name);
      compare(name, model, model.synth->config.vocabulary);
    }
  }
  return different == 0 ? 0 : 1;
}

int run_check(const CheckOptions& options) {
  if (!options.compare.empty()) return run_compare(options);
  if (options.tokens > 0 && options.model.empty())
    throw Error(Error::Kind::bad_argument,
                "--tokens: the golden hashes are of tokens of their own, expected MODEL or "
                "--compare with it");
  if (options.tokens > kLawTokens)
    throw Error(Error::Kind::bad_argument,
                fmt::format("--tokens: {}, expected at most {} without --compare", options.tokens, kLawTokens));
  const auto start = std::chrono::steady_clock::now();
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a line as soon as it is known, also into a pipe
  Interrupts interrupts(Interrupts::kEveryEnd);   // so that the folder of models goes
  const Interrupts::Stops stops(interrupts);
  Report report(options.write_golden);
  if (!options.model.empty()) {
    check_model(report, options.back_end, options.model, std::filesystem::path(options.model).filename().string(),
                options.tokens, stops.flag());
  } else {
    for (const LawLine& line : function_lines()) report.compare(line.name, line.hash, "host");
    if (options.back_end.backend != "cpu") {
      const auto ops = make_ops(options.back_end, false);
      for (const LawLine& line : dot_lines(*ops)) report.compare(line.name, line.hash, ops->description());
    } else {
      for (const cpu::Level* level : levels_of(options.back_end)) {
        const auto ops = cpu::make_cpu_ops({2, std::string(level->name)});
        for (const LawLine& line : dot_lines(*ops)) report.compare(line.name, line.hash, std::string(level->name));
      }
    }
    const ScratchFolder folder;
    for (const std::string& name : law_models()) {
      const std::filesystem::path file = folder.path / (name + ".gguf");
      write_law_model(name, file);
      check_model(report, options.back_end, file, name, 0, stops.flag());
    }
  }
  if (options.write_golden) {
    fmt::print(
        "# Hashes that every level, thread count, schedule and back end must meet. Made by `lockstep check "
        "--write-golden`.\n");
    for (const LawLine& line : report.seen()) fmt::print("{} {:016x}\n", line.name, line.hash);
  }
  std::string levels;
  for (const cpu::Level* level : levels_of(options.back_end))
    levels += (levels.empty() ? "levels " : ", ") + std::string(level->name);
  if (options.back_end.backend != "cpu") levels = make_ops(options.back_end, false)->description();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(stderr, "{} hashes compared on {} in {:.1f} s: {}\n", report.compared(), levels, seconds,
             report.different() == 0 ? "all equal" : fmt::format("{} DIFFERENT", report.different()));
  return report.different() == 0 ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Run& run) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check that this machine gives the golden bytes on every path");
  command
      ->add_option("MODEL", options->model,
                   "a model whose paths are compared with each other; without one, everything that has golden hashes")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--tokens", options->tokens,
                   "with MODEL: tokens of each sequence, at most; with --compare: of the one sequence; 0 = 133")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  CLI::Option* compare = command->add_option(
      "--compare", options->compare,
      "PATH_A,PATH_B: run both on the same tokens and say which op of which layer gives other bytes first; "
      "a path is BACKEND[/LEVEL][:SCHEDULE], as cpu:tokenwise, cpu/avx2:chunk:128, reference");
  add_back_end_options(*command, options->back_end);
  command->add_flag("--write-golden", options->write_golden, "print the hashes in the form of tests/law/golden.txt");
  for (const char* other : {"--backend", "--level", "--threads", "--write-golden"}) compare->excludes(other);
  command->callback([options, &run] { run = [options] { return run_check(*options); }; });
}

}  // namespace lockstep
