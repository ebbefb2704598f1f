// What the baseline code and the level files share: plain structs and pointers.
//
// A level file is compiled with instructions that the machine may lack. Were it to instantiate a template or emit an
// inline function from a shared header, the linker could keep that copy for everybody. So level files see plain data
// only, keep all they define in unnamed namespaces, and export one table each; a test looks at their symbols.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep::cpu {

/// One product: rows [begin, end) of a plane times the chosen input rows. See Level::matmul.
struct MatmulCall {
  DType dtype = DType::f32;
  int width = 0;
  const std::byte* plane = nullptr;      // its row 0
  const std::byte* plane_end = nullptr;  // nothing at or after this may be read
  std::size_t row_bytes = 0;
  int begin = 0;
  int end = 0;
  // Input rows as floats ...
  const float* values = nullptr;
  std::ptrdiff_t values_stride = 0;
  // ... and rounded: Rounded in ops/types.h.
  const std::int8_t* codes = nullptr;
  const float* scales = nullptr;
  const std::int16_t* half_sums = nullptr;
  std::ptrdiff_t codes_stride = 0;
  // Token t reads input row in_rows[t] and writes output row out_rows[t].
  const int* in_rows = nullptr;
  const int* out_rows = nullptr;
  int tokens = 0;
  float* out = nullptr;
  std::ptrdiff_t out_stride = 0;
  std::byte* scratch = nullptr;  // matmul_scratch_bytes(width), aligned to 64
};

struct Kernels {
  void (*round_row)(const float* x, int width, std::int8_t* codes, float* scales, std::int16_t* half_sums);
  void (*matmul)(const MatmulCall& call);
  float (*dot)(const float* x, const float* y, int width);
};

namespace scalar {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
void matmul_quantised(const MatmulCall& call);
void matmul_panel(const MatmulCall& call);
void matmul_float(const MatmulCall& call);
}  // namespace avx2
namespace avx512 {
extern const Kernels kKernels;
void matmul_quantised(const MatmulCall& call);
void matmul_panel(const MatmulCall& call);
void matmul_float(const MatmulCall& call);
}  // namespace avx512

// Sizes of the kernels' scratch, here so that matmul_scratch_bytes can be computed without a level.
inline constexpr int kSuperblock = 256;      // values that a kernel unpacks at a time
inline constexpr int kMatvecTokens = 4;      // with more tokens, rows are laid across a vector's elements
inline constexpr int kPanelRows = 32;        // rows of a panel, at most
inline constexpr int kTileTokens = 6;        // tokens that share one pass over a panel, at most
inline constexpr int kPanelStrip = 192;      // tokens that share one unpacking of a panel
inline constexpr int kFloatStrip = 96;       // the same for float formats, whose inputs are four times as large
inline constexpr int kGridBytes = 2048 * 8;  // the largest grid of the IQ formats, one byte an element

}  // namespace lockstep::cpu
