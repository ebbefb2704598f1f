// Kernels over single rows, one table an instruction-set level (level.h has the matrix kernels).
//
// row_kernels.cc is plain loops, written so that the compiler vectorises them; attention_kernels.cc is written in the
// vector types of simd.h and has no scalar form (the scalar level uses the reference loops). Both give the bits of
// ops/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

struct RowKernels {
  /// out[i] = (x[i] * r) * weight[i], or x[i] * r if weight is null.
  void (*scale_row)(float* out, const float* x, const float* weight, int n, float r);
  /// As Ops::swiglu for one row; weight is multiplied if has_weight.
  void (*swiglu)(float* out, const float* gate, const float* up, int n, float limit, bool has_weight, float weight);
  /// As Ops::hyper_collapse and hyper_expand, channels [begin, end) of one row.
  void (*collapse)(float* out, const float* streams, const float* pre, int count, int width, int begin, int end);
  void (*expand)(float* streams, const float* y, const float* coefficients, int count, int width, int begin, int end);
  /// sum[i] += x[i]; used in a fixed order by the caller.
  void (*add)(float* sum, const float* x, int n);
  /// rows.h's fp8 and fp4 simulations.
  void (*round_fp8)(float* x, int channels);
  void (*hadamard_fp4)(float* x, int width);
  /// x[i] = value of codes[i] with block exponents (e8m0, one for 64 codes).
  void (*unpack_fp8)(float* x, const std::uint8_t* codes, const std::uint8_t* exponents, int channels);
  /// An indexer key as a column of [width, stride]: x[d * stride] = value of 4-bit code d, with block exponents (e8m0,
  /// one for 32 codes).
  void (*unpack_fp4_column)(float* x, int stride, const std::uint8_t* codes, const std::uint8_t* exponents, int width);
  /// Softmax-pools `count` candidates channel by channel (rows.h, pool_row): out[d] for d < width.
  void (*pool)(float* out, const float* const* values, const float* const* gates, int count, int width);
  /// Rotates a head: rows.h.
  void (*rotate)(float* x, const float* table, int rotary, bool inverse);
};

/// Attention of one query, a group of kGroupHeads heads at a time.
inline constexpr int kGroupHeads = 16;

struct AttentionCall {
  const float* rows = nullptr;  // [count, width] f32, the window's rows first
  int window = 0;               // how many of them are the window's
  int count = 0;
  int width = 0;
  const float* queries = nullptr;  // [heads, width]: the group's heads
  int heads = 0;                   // at most kGroupHeads
  const float* sinks = nullptr;    // [heads]
  float scale = 0;
  float* out = nullptr;      // [heads, width], may be queries
  float* scratch = nullptr;  // attention_scratch_floats(count, width), aligned to 64
};

struct IndexCall {
  const float* queries = nullptr;       // [heads, width]
  const float* head_weights = nullptr;  // [heads]
  int heads = 0;
  int width = 0;
  const float* keys = nullptr;  // transposed: [width, kIndexKeys]
  float* scores = nullptr;      // [kIndexKeys]
};
inline constexpr int kIndexKeys = 16;

struct AttentionKernels {
  void (*attend)(const AttentionCall& call);
  void (*index_scores)(const IndexCall& call);
};

inline std::size_t attention_scratch_floats(int count, int width) {
  return static_cast<std::size_t>(kGroupHeads) *
         (static_cast<std::size_t>(count) + 2 * static_cast<std::size_t>(width) + 4);
}

namespace scalar {
extern const RowKernels kRowKernels;
}
namespace avx2 {
extern const RowKernels kRowKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace avx2
namespace avx512 {
extern const RowKernels kRowKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace avx512

}  // namespace lockstep::cpu
