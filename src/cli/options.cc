#include "cli/options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "cli/demo.h"
#include "cli/memory_plan.h"
#include "cli/migration.h"
#include "cli/progress.h"
#include "cpu/cpu_ops.h"
#include "engine/self_test.h"
#if defined(LOCKSTEP_GPU)
#include "gpu/gpu_ops.h"
#endif

namespace lockstep {
namespace {

MemoryPlan plan_of(const ModelOptions& options, int max_rows, std::int64_t context) {
  const auto tokens = [&](const Config& config) {
    return std::min(context > 0 ? context : kUsualContext, config.context_length);
  };
  if (options.synth != nullptr)
    return plan_memory(*options.synth, mode_of(options), tokens(options.synth->config), max_rows);
  const Gguf file(options.model, gguf_options_of(options));
  const Config config = read_config(file);
  return plan_memory(file, config, mode_of(options), tokens(config), max_rows);
}

/// Prints the memory plan; throws if it cannot fit. What is free on a device is free beside models already there.
void check_memory(const ModelOptions& options, const DeviceState& device, int max_rows, std::int64_t context,
                  std::uint64_t others) {
  MemoryPlan plan = plan_of(options, max_rows, context);
  plan.workspace += device.scratch_bytes;
  const MemoryLimit limit = memory_limit_of(device);
  print_note(plan_text(plan, limit));
  check_plan(plan, device.total_bytes > 0 ? 0 : others, limit,
             options.synth != nullptr ? "the synthetic model" : options.model);
}

}  // namespace

std::vector<std::string> back_end_names() {
  std::vector<std::string> names = {"cpu", "reference"};
#if defined(LOCKSTEP_GPU)
  names.emplace_back(gpu::back_end_name());
#endif
  return names;
}

void add_seed_option(CLI::App& command, std::uint64_t& seed, const std::string& help) {
  const auto read = [&seed](const std::string& text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size())
      throw CLI::ValidationError("--seed", text + ", expected a whole number from 0 to 18446744073709551615");
  };
  command.add_option_function<std::string>("--seed", read, help)->default_str(std::to_string(seed));
}

void add_back_end_options(CLI::App& command, BackEndOptions& options) {
  const std::vector<std::string> names = back_end_names();
  std::string help = "cpu, or reference (the literal loops that define the bits; slow)";
#if defined(LOCKSTEP_GPU)
  help = "cpu, " + names.back() + " (a GPU), or reference (the literal loops that define the bits; slow)";
  command.add_option("--device", options.device, "which GPU, counted from 0")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
#endif
  command.add_option("--backend", options.backend, help)->check(CLI::IsMember(names))->capture_default_str();
  command.add_option("--threads", options.threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--level", options.level, "instruction set of the CPU back end: auto, scalar, avx2, avx512")
      ->capture_default_str();
}

void add_model_argument(CLI::App& command, std::string& model, bool& is_demo) {
  command.add_option("MODEL", model,
                     "a GGUF file of DeepSeek V4 Flash (any part of a split one); without one, the demo model");
  // When the command's arguments have been read, and before it runs: so that no command has to think of it.
  command.parse_complete_callback([&model, &is_demo] { use_demo_model(model, is_demo); });
}

void use_demo_model(std::string& model, bool& is_demo) {
  if (!model.empty()) return;
  model = find_demo(kDemoModel, demo_folders(), "MODEL").string();
  is_demo = true;
}

void print_demo_note(const std::string& model, bool is_demo) {
  if (is_demo) print_note("no MODEL given, so the demo model runs: " + model);
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_model_argument(command, options.model, options.is_demo);
  command.add_option("--mode", options.mode, "official: the model's own fp8 and fp4 roundings; plain: none")
      ->check(CLI::IsMember({"official", "plain"}))
      ->capture_default_str();
  command
      .add_option("--rocmfp2", options.rocmfp2,
                  "meaning of tensor type 107: auto (decided from the data), fixed, affine, s40")
      ->check(CLI::IsMember({"auto", "fixed", "affine", "s40"}))
      ->capture_default_str();
  command
      .add_option("--type-108", options.type_108,
                  "meaning of tensor type 108, which files do not tell: rocmi4, s40, affine")
      ->check(CLI::IsMember({"rocmi4", "s40", "affine"}));
  add_back_end_options(command, options.back_end);
}

std::unique_ptr<Ops> make_ops(const BackEndOptions& options, [[maybe_unused]] bool is_tested) {
  if (options.backend != "cpu" && (options.level != "auto" || options.threads != 0))
    throw Error(Error::Kind::bad_argument,
                "--level and --threads: they belong to --backend cpu, not " + options.backend);
  if (options.backend == "reference") return make_reference_ops();
#if defined(LOCKSTEP_GPU)
  if (options.backend == gpu::back_end_name()) {
    std::unique_ptr<Ops> ops = gpu::make_gpu_ops({options.device});
    if (is_tested) {
      const SelfTestResult result = self_test(*ops);
      print_note(fmt::format("{}: self-test, {} hashes are golden, {:.2f} s", ops->description(), result.hashes,
                             result.seconds));
    }
    return ops;
  }
#endif
  return cpu::make_cpu_ops({options.threads, options.level});
}

Mode mode_of(const ModelOptions& options) { return options.mode == "plain" ? Mode::plain : Mode::official; }

std::optional<DType> rocmfp2_of(const ModelOptions& options) {
  if (options.rocmfp2 == "fixed") return DType::rocmfp2;
  if (options.rocmfp2 == "affine") return DType::rocmfp2_affine;
  if (options.rocmfp2 == "s40") return DType::rocmfp2_s40;
  return std::nullopt;
}

GgufOptions gguf_options_of(const ModelOptions& options) {
  if (options.type_108 == "rocmi4") return {DType::rocmi4};
  if (options.type_108 == "s40") return {DType::rocmfp2_s40};
  if (options.type_108 == "affine") return {DType::rocmfp2_affine};
  return {};
}

void print_note(const std::string& note) { fmt::print(stderr, "{}\n", note); }

int usual_rows(const BackEndOptions& options) { return options.backend == "cpu" ? 512 : 4096; }

std::unique_ptr<Engine> load_engine(const ModelOptions& options, int max_rows, std::int64_t context,
                                    std::uint64_t others) {
  if (max_rows == 0) max_rows = usual_rows(options.back_end);
  EngineOptions engine;
  engine.model = options.model;
  engine.mode = mode_of(options);
  engine.max_rows = max_rows;
  engine.rocmfp2 = rocmfp2_of(options);
  engine.meaning_of_108 = gguf_options_of(options).meaning_of_108;
  engine.synth = options.synth;
  engine.timing = options.timing;
  for (const std::string& note : environment_notes()) print_note(note);
  print_demo_note(options.model, options.is_demo);
  std::unique_ptr<Ops> ops = make_ops(options.back_end);
  const DeviceState device = ops->device_state();
  check_memory(options, device, max_rows, context, others);
  if (device.total_bytes == 0 && options.synth == nullptr)  // the file is only mapped
    return std::make_unique<Engine>(engine, std::move(ops), print_note);
  Progress progress;
  engine.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  auto loaded = std::make_unique<Engine>(engine, std::move(ops), print_note);
  loaded->ops().synchronize();
  progress.finish(loaded->weights().file_bytes);
  return loaded;
}

std::vector<std::string> environment_notes() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());  // the environment has no order
  return migration_notes(names);
}

}  // namespace lockstep
