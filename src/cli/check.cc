// `lockstep check [MODEL]`: does this machine keep the law? Every level, several thread counts, several schedules;
// prints each hash beside the golden one and fails on any difference.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cpu/cpu_ops.h"
#include "cpu/level.h"
#include "engine/law_check.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

struct CheckOptions {
  std::string model;
  int tokens = 96;
  bool write_golden = false;
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
  std::string level;
  int threads;
  std::string schedule;
  std::string name() const { return fmt::format("{}, {} threads, {}", level, threads, schedule); }
};

/// The best level by every schedule, the others by one, all with several thread counts.
std::vector<Path> paths() {
  std::vector<Path> paths;
  const auto levels = cpu::available_levels();
  for (const cpu::Level* level : levels) {
    const bool is_best = level == levels.back();
    paths.push_back({std::string(level->name), is_best ? 1 : 2, "chunk:64"});
    if (!is_best) continue;
    for (const char* schedule : {"tokenwise", "chunk:129", "mixed:1", "mixed:2"})
      paths.push_back({std::string(level->name), 2, schedule});
    paths.push_back({std::string(level->name), 3, "mixed:3"});
  }
  return paths;
}

void check_model(Report& report, const std::filesystem::path& file, const std::string& name, int tokens) {
  for (const Mode mode : {Mode::official, Mode::plain}) {
    for (const Path& path : paths()) {
      EngineOptions options;
      options.model = file;
      options.mode = mode;
      options.max_rows = 256;
      Engine engine(options, cpu::make_cpu_ops({path.threads, path.level}));
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

int run_check(const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Report report(options.write_golden);
  if (!options.model.empty()) {
    check_model(report, options.model, std::filesystem::path(options.model).filename().string(), options.tokens);
  } else {
    for (const LawLine& line : function_lines()) report.compare(line.name, line.hash, "host");
    for (const cpu::Level* level : cpu::available_levels()) {
      const auto ops = cpu::make_cpu_ops({2, std::string(level->name)});
      for (const LawLine& line : dot_lines(*ops)) report.compare(line.name, line.hash, std::string(level->name));
    }
    const ScratchFolder folder;
    for (const std::string& name : law_models()) {
      const std::filesystem::path file = folder.path / (name + ".gguf");
      write_law_model(name, file);
      check_model(report, file, name, 0);
    }
  }
  if (options.write_golden) {
    fmt::print(
        "# Hashes that every level, thread count, schedule and back end must meet. Made by `lockstep check "
        "--write-golden`.\n");
    for (const LawLine& line : report.seen()) fmt::print("{} {:016x}\n", line.name, line.hash);
  }
  std::string levels;
  for (const cpu::Level* level : cpu::available_levels())
    levels += (levels.empty() ? "" : ", ") + std::string(level->name);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(stderr, "{} hashes compared on levels {} in {:.1f} s: {}\n", report.compared(), levels, seconds,
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
  command->add_option("--tokens", options->tokens, "with MODEL: tokens of each sequence, at most; 0 = 133")
      ->check(CLI::Range(0, 133))
      ->capture_default_str();
  command->add_flag("--write-golden", options->write_golden, "print the hashes in the form of tests/law/golden.txt");
  command->callback([options, &run] { run = [options] { return run_check(*options); }; });
}

}  // namespace lockstep
