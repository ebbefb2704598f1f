// The sizes and constants of a model, read from a file's metadata and checked against its tensors' shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/gguf.h"

namespace lockstep {

/// Constants of one trunk layer.
struct LayerConfig {
  int ratio = 0;  // compression: 0 (window only), 4 (with an indexer) or 128
  bool hash_routed = false;
  float clamp = 10;         // of the routed experts' SwiGLU
  float shared_clamp = 10;  // of the shared expert's
};

/// Names follow docs/architecture.md; the letters there are in the comments here.
struct Config {
  int vocabulary = 0;     // V
  int width = 0;          // D
  int heads = 0;          // H
  int head_width = 0;     // P
  int rotary = 0;         // R
  int query_rank = 0;     // Qr
  int output_groups = 0;  // G
  int output_rank = 0;    // Or
  int window = 0;         // Wn
  int streams = 4;        // S
  int sinkhorn_iterations = 0;
  float hyper_epsilon = 0;
  float norm_epsilon = 0;
  int index_heads = 0;   // Hi
  int index_width = 0;   // Pi
  int index_top_k = 0;   // K
  int experts = 0;       // E
  int experts_used = 0;  // k
  int expert_width = 0;  // F
  float route_scale = 0;
  double rope_base = 0;             // layers without compression
  double compressed_rope_base = 0;  // the others, with YaRN
  double yarn_factor = 0, yarn_original = 0, yarn_beta_fast = 0, yarn_beta_slow = 0;
  std::int64_t context_length = 0;
  std::vector<LayerConfig> layers;

  int hyper_coefficients() const { return 2 * streams + streams * streams; }
};

/// Throws Error::bad_file naming the key that is missing or wrong, Error::unsupported for models that are not V4
/// Flash's architecture or that need what this engine does not do.
Config read_config(const Gguf& file);

}  // namespace lockstep
