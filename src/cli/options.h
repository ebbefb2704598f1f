// Options that several commands share, and the only place that chooses a back end. Every knob of the engine is a field
// that is set here.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
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
  int device = 0;  // which GPU
};

inline constexpr std::int64_t kUsualContext =
    32768;  // tokens, where none are named; less if the model was made for less

struct ModelOptions {
  std::string model;     // after parsing never empty: without MODEL, the demo's
  bool is_demo = false;  // no MODEL was given
  std::string mode = "official";
  std::string rocmfp2 = "auto";
  std::string type_108;
  BackEndOptions back_end;
  std::shared_ptr<const SynthPlan> synth;  // made while it is loaded, instead of MODEL
  Timing timing = Timing::off;
};

/// --seed, 0 to 2^64 - 1.
void add_seed_option(CLI::App& command, std::uint64_t& seed, const std::string& help);

/// What --backend may be in this program.
std::vector<std::string> back_end_names();
void add_back_end_options(CLI::App& command, BackEndOptions& options);
/// MODEL, --mode and the back end's. Parsing fails if no MODEL is given and there is no demo model.
void add_model_options(CLI::App& command, ModelOptions& options);
/// Puts the demo model (cli/demo.h) where no MODEL is given. Throws Error::bad_argument naming where it was looked for.
void add_model_argument(CLI::App& command, std::string& model, bool& is_demo);
/// What add_model_argument does when no MODEL was given.
void use_demo_model(std::string& model, bool& is_demo);
/// Says on stderr that the demo model runs, if it does.
void print_demo_note(const std::string& model, bool is_demo);

/// A GPU is tested first, unless the caller is about to (engine/self_test.h); the result is said on stderr. Throws
/// Error::bad_argument naming what this machine or build lacks, and Error::device if the GPU gives other bytes.
std::unique_ptr<Ops> make_ops(const BackEndOptions& options, bool is_tested = true);
Mode mode_of(const ModelOptions& options);
GgufOptions gguf_options_of(const ModelOptions& options);
std::optional<DType> rocmfp2_of(const ModelOptions& options);
/// Prints a decision worth knowing on stderr.
void print_note(const std::string& note);
/// Tokens a step, where a command has no reason for another number. On a GPU more: every step unpacks all experts.
int usual_rows(const BackEndOptions& options);

/// Loads the model and says on stderr what decisions were made and how much memory it will need, of the machine or of
/// the device: for a sequence of `context` tokens (0: 32768, or what the model was made for), beside `others` bytes of
/// models that are loaded already; steps of max_rows tokens (0: usual_rows). Throws Error::no_memory if the plan cannot
/// fit, and what make_ops and Engine throw.
std::unique_ptr<Engine> load_engine(const ModelOptions& options, int max_rows = 0, std::int64_t context = 0,
                                    std::uint64_t others = 0);

/// A line for every environment variable of the engine that people come from (cli/migration.h). The only place that
/// looks at the environment; nothing acts on it.
std::vector<std::string> environment_notes();

}  // namespace lockstep
