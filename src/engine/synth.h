// Models with random weights: the real geometry (or a smaller one), in any of the common sets of formats, for tests and
// benchmarks on machines that do not have the real file.
//
// The weights are sized so that the network behaves like a trained one where it matters for a measurement or a test:
// activations keep their size over the layers, the four streams stay different, every expert is chosen by somebody, the
// gates of the compressors and the scores of the indexer vary, and logits have a spread of a few units. A file is a
// pure function of (preset, types, layers, experts, seed).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "tensor/dtype.h"

namespace lockstep {

class GgufWriter;
class ThreadPool;

struct SynthOptions {
  std::string preset = "slice";  // flash: the model; slice: its widths, few layers and experts; nano: a few megabytes
  std::string types = "q2";  // q2, q4, rocmfp2, rocmfp4, mxfp4, f16 (docs/quantising.md: q2 as antirez-q2, and so on)
  int layers = 0;            // 0: the preset's
  int experts = 0;           // 0: the preset's
  std::uint64_t seed = 1;
};

/// One tensor of the file to be, and what its values are.
struct SynthTensor {
  enum class Content {
    matrix,  // random blocks of root mean square `spread`
    vector,  // f32: means[i % means.size()] + spread * normal
    table,   // i32: in every row, different ids below `ids`
  };
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> ne;
  Content content = Content::matrix;
  float spread = 0;
  std::vector<float> means;
  int ids = 0;

  std::int64_t rows() const;
  std::uint64_t bytes() const;
};

struct SynthPlan {
  SynthOptions options;
  Config config;
  int hash_layers = 0;
  std::vector<SynthTensor> tensors;  // in file order
  std::uint64_t bytes() const;       // of tensor data
};

/// Throws Error::bad_argument naming the option that is wrong and what it may be.
SynthPlan plan_synth(const SynthOptions& options);

struct SynthRun {
  int threads = 0;  // 0: one for each CPU; the file does not depend on it
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;  // may be empty
  std::function<bool()> cancelled;                                                    // asked every few megabytes
};

/// Gives the file its name when it is whole. Throws Error::io, also at once when the disk has too
/// little room, and Error::cancelled; then nothing is left.
void write_synth(const SynthPlan& plan, const std::filesystem::path& out, const SynthRun& run = {});

/// The keys and tensors of the file, for a writer that has not begun.
void declare_synth(GgufWriter& writer, const SynthPlan& plan);

/// The bytes of one tensor, what write_synth puts into the file; out [tensor.bytes()].
void fill_synth_tensor(const SynthPlan& plan, const SynthTensor& tensor, ThreadPool& pool, std::span<std::byte> out);
std::vector<std::byte> synth_tensor_bytes(const SynthPlan& plan, const SynthTensor& tensor);

}  // namespace lockstep
