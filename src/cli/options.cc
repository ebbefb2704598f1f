#include "cli/options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "cli/migration.h"
#include "cpu/cpu_ops.h"

namespace lockstep {

void add_back_end_options(CLI::App& command, BackEndOptions& options) {
  command.add_option("--backend", options.backend, "cpu, or reference (the literal loops that define the bits; slow)")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "threads; 0 = one for each CPU")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--level", options.level, "instruction set of the CPU back end: auto, scalar, avx2, avx512")
      ->capture_default_str();
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model, "a GGUF file of DeepSeek V4 Flash (any part of a split one)")->required();
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

std::unique_ptr<Ops> make_ops(const BackEndOptions& options) {
  if (options.backend == "reference") return make_reference_ops();
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

std::unique_ptr<Engine> load_engine(const ModelOptions& options, int max_rows) {
  EngineOptions engine;
  engine.model = options.model;
  engine.mode = mode_of(options);
  engine.max_rows = max_rows;
  engine.rocmfp2 = rocmfp2_of(options);
  engine.meaning_of_108 = gguf_options_of(options).meaning_of_108;
  for (const std::string& note : environment_notes()) print_note(note);
  return std::make_unique<Engine>(engine, make_ops(options.back_end), print_note);
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
