// The canonical form of one 32-value block of a quantised row: what a dot with int8 activations means.
//
// With a[i] the activation codes of the same 32 values, I_h the exact int32 sum of level[i] * a[i] over half h (values
// 0..15 and 16..31) and S_h the exact sum of a[i] over that half, the block's term is
//   single scale:  t = float(I_0 + I_1) * scale[0]
//   dual scale:    t = fma(float(I_1), scale[1], float(I_0) * scale[0])
//   and, if the format has an additive part:
//                  t = fma(-float(M), min_scale, t),  M = min_level[0] * S_0 + min_level[1] * S_1
// and it enters its lane as  lane = fma(t, activation_scale, lane).
// Integer sub-scales are folded into the levels (or into I by a kernel: the same integers), and |I|, |M| < 2^24 for
// every format, so the conversions are exact and a kernel is free to multiply sub-scales before or after the sum, or to
// fold exact factors into the scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep {

struct Block {
  std::int16_t level[32];
  float scale[2];  // equal unless dual
  bool dual;
  bool has_min;
  float min_scale;
  int min_level[2];  // small non-negative integers, as stored (1 when the format has a float minimum)
};

/// Decodes the 32 values from value `32 * index` on of a quantised row that begins at `row`.
/// dtype must be one with info_of(dtype).quantised. Cannot fail.
Block decode_block(DType dtype, const std::byte* row, std::int64_t index);

}  // namespace lockstep
