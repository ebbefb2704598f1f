// `lockstep doctor`: what this machine and this build can do, in a form that fits a bug report.
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cpu/level.h"
#if defined(LOCKSTEP_GPU)
#include "gpu/gpu_ops.h"
#endif

namespace lockstep {
namespace {

/// The value of the first line "key : value" of a file under /proc; empty where there is none.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

/// "16384 kB" as GiB.
std::string gib(const std::string& text) {
  if (text.empty()) return "unknown";
  return fmt::format("{:.1f} GiB", std::stod(text) / (1024.0 * 1024.0));
}

int run_doctor() {
  std::string levels;
  for (const cpu::Level* level : cpu::available_levels())
    levels += (levels.empty() ? "" : ", ") + std::string(level->name);
  const std::string model = proc_value("/proc/cpuinfo", "model name");
  fmt::print("version    {}\n", LOCKSTEP_VERSION);
  fmt::print("cpu        {}\n", or_unknown(model));
  fmt::print("levels     {}\n", levels);
  fmt::print("threads    {} (CPUs that this process may use)\n", ThreadPool(0).threads());
  fmt::print("memory     {}, available {}\n", gib(proc_value("/proc/meminfo", "MemTotal")),
             gib(proc_value("/proc/meminfo", "MemAvailable")));
  fmt::print("page size  {} bytes\n", sysconf(_SC_PAGESIZE));
#if defined(LOCKSTEP_GPU)
  fmt::print("back ends  cpu, {}, reference\n", gpu::back_end_name());
#else
  fmt::print("back ends  cpu, reference\n");
#endif
  fmt::print("default    {}\n", make_ops({})->description());
  const std::vector<std::string> notes = environment_notes();
  fmt::print("variables  {}\n", notes.empty() ? "none of another engine's" : "of another engine:");
  for (const std::string& note : notes) fmt::print("  {}\n", note);
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine and this build can do");
  command->callback([&run] { run = [] { return run_doctor(); }; });
}

}  // namespace lockstep
