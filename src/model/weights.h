// The weights of a model, as a back end holds them. Const once loaded.
//
// Matrices stay in the format of the file; vectors and the position tables of the compressors are widened to f32. Every
// shape is checked here, once, so that nothing above needs to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/ops.h"
#include "tensor/gguf.h"
#include "tensor/mix.h"

namespace lockstep {

struct HyperWeights {
  Weight fn;
  const float* scale = nullptr;
  const float* base = nullptr;
};

struct CompressorWeights {
  Weight values, gates;
  ConstRows positions;  // bias of a gate by position % ratio
  const float* norm = nullptr;
};

struct ExpertWeights {
  Weight gate, up, down;
};

struct LayerWeights {
  const float* attention_norm = nullptr;
  Weight query_a, query_b, kv, output_a, output_b;
  const float* query_norm = nullptr;
  const float* kv_norm = nullptr;
  const float* sinks = nullptr;
  CompressorWeights compressor;      // ratio != 0
  CompressorWeights key_compressor;  // ratio 4
  Weight index_query, index_heads;   // ratio 4
  HyperWeights attention_hyper, ffn_hyper;
  const float* ffn_norm = nullptr;
  Weight router;
  const float* router_bias = nullptr;          // score-routed layers
  const std::int32_t* router_table = nullptr;  // hash-routed layers, [vocabulary, used]
  ExpertWeights experts, shared;
};

/// Brings the bytes of tensors into memory, where the file alone does not, and takes them out again.
class TensorProvider {
 public:
  virtual ~TensorProvider() = default;
  /// The tensor's bytes are about to be read.
  virtual void need(const GgufTensor& tensor) = 0;
  /// The back end has them. `is_kept`: it reads them where they are, also later.
  virtual void taken(const GgufTensor& tensor, bool is_kept) = 0;
};

struct LoadHooks {
  TensorProvider* provider = nullptr;
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>
      progress;  // after every tensor; may be empty
};

class Weights {
 public:
  /// Reads what the model needs from `file`, which must outlive the result, into the memory of `ops`, likewise.
  /// `meaning_of_107` is the variant of tensor type 107, decided by the caller. Throws Error::bad_file naming the
  /// tensor that is missing or has the wrong shape or format.
  Weights(const Gguf& file, const Config& config, Ops& ops, std::optional<DType> meaning_of_107 = std::nullopt,
          const LoadHooks& hooks = {});

  Weight embedding, head;
  const float* final_norm = nullptr;
  HyperWeights head_hyper;
  std::vector<LayerWeights> layers;
  const float* frequencies = nullptr;             // ratio 0
  const float* compressed_frequencies = nullptr;  // the others

  /// Bytes of the tensors that a step reads from the file.
  std::size_t file_bytes = 0;

 private:
  friend class WeightLoader;
  std::vector<std::unique_ptr<void, std::function<void(void*)>>> owned_;
  MixTables mix_;  // codebooks of tensors of the MIX formats; weights point into it
};

}  // namespace lockstep
