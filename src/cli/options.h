// Options that several commands share, and the only place that chooses a back end. Every knob of the engine is a field
// that is set here.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ops/ops.h"

namespace lockstep {

struct BackEndOptions {
  std::string backend = "cpu";
  int threads = 0;  // 0: one for each CPU that the process may use
  std::string level = "auto";
};

struct ModelOptions {
  std::string model;
  std::string mode = "official";
  std::string rocmfp2 = "auto";
  std::string type_108;
  BackEndOptions back_end;
};

void add_back_end_options(CLI::App& command, BackEndOptions& options);
/// MODEL, --mode and the back end's.
void add_model_options(CLI::App& command, ModelOptions& options);

/// Throws Error::bad_argument naming what this machine or build lacks.
std::unique_ptr<Ops> make_ops(const BackEndOptions& options);
Mode mode_of(const ModelOptions& options);
GgufOptions gguf_options_of(const ModelOptions& options);
std::optional<DType> rocmfp2_of(const ModelOptions& options);
/// Prints a decision worth knowing on stderr.
void print_note(const std::string& note);
/// Loads the model and says on stderr what decisions were made.
std::unique_ptr<Engine> load_engine(const ModelOptions& options, int max_rows = 512);

/// A line for every environment variable of the engine that people come from (cli/migration.h). The only place that
/// looks at the environment; nothing acts on it.
std::vector<std::string> environment_notes();

}  // namespace lockstep
