// A loaded model on a back end: the file, its config, its weights and the forward pass, in the order they depend on
// each other. Everything above the model works through it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/synth.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "ops/timed_ops.h"
#include "tensor/gguf.h"
#include "text/tokenizer.h"

namespace lockstep {

class SynthModel;

struct EngineOptions {
  std::filesystem::path model;
  std::shared_ptr<const SynthPlan> synth;  // a synthetic model that is made while it is loaded, instead of a file
  Mode mode = Mode::official;
  int max_rows = 512;            // tokens a step, at most
  std::optional<DType> rocmfp2;  // meaning of tensor type 107; decided from the data if not given
  std::optional<DType> meaning_of_108;
  Timing timing = Timing::off;  // of its steps; can be changed later, if it is not off now
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;  // of loading; may be empty
};

class Engine {
 public:
  /// Loads a model. `ops` is the back end; the caller chose it. `note` is told decisions worth logging.
  /// Throws what Gguf, read_config and Weights throw.
  Engine(const EngineOptions& options, std::unique_ptr<Ops> ops,
         const std::function<void(const std::string&)>& note = {});
  ~Engine();

  const Gguf& file() const { return file_; }
  const Config& config() const { return config_; }
  const Weights& weights() const { return *weights_; }
  Ops& ops() { return *ops_; }
  Forward& forward() { return *forward_; }
  Mode mode() const { return options_.mode; }
  /// Where the time of steps goes; null if the engine was made with the timing off. For the thread that runs steps.
  TimedOps* timer() { return timer_; }

  SequenceCache new_sequence() { return SequenceCache(config_, options_.mode, *ops_); }

  /// The file's tokenizer, built when first asked for. Throws Error::unsupported if the file's cannot be used.
  const Tokenizer& tokenizer();

 private:
  EngineOptions options_;
  std::unique_ptr<SynthModel> synth_;  // what file_ is a view of, if there is no file
  Gguf file_;
  Config config_;
  std::unique_ptr<Ops> ops_;
  TimedOps* timer_ = nullptr;  // is ops_, or null
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Forward> forward_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

/// The tokenizer's part of a file's metadata, as plain data. Throws Error::bad_file if the file has none.
Vocabulary vocabulary_of(const Gguf& file);

/// Which variant the tensors of type 107 have: `forced`, or decided from the data of the first one; nothing if there
/// are none. The decision is told to `note`. Throws Error::unsupported if the data fit no variant.
std::optional<DType> meaning_of_107(const Gguf& file, std::optional<DType> forced,
                                    const std::function<void(const std::string&)>& note);

/// What a model needs, before it is loaded: on the host the file's pages, on a device its memory.
struct MemoryPlan {
  std::uint64_t weights = 0;
  std::uint64_t sequence = 0;   // one sequence of `context` tokens
  std::uint64_t workspace = 0;  // a step of max_rows tokens, and what a device's ops take for themselves
  std::int64_t context = 0;
  std::uint64_t total() const { return weights + sequence + workspace; }
};
MemoryPlan plan_memory(const Gguf& file, const Config& config, Mode mode, std::int64_t context, int max_rows);
MemoryPlan plan_memory(const SynthPlan& plan, Mode mode, std::int64_t context, int max_rows);

}  // namespace lockstep
