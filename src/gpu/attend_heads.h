// What the kernels for few queries share (attend_few.cu, attend_codes.cu): Ops::attend_heads as they read it, and its
// end.
#pragma once

#include "gpu/attend.h"
#include "gpu/round_kernel.h"

namespace lockstep::gpu {

struct HeadAttention : Attention {
  float* scores;        // [wave rows, heads, slots]
  float* tile_largest;  // [wave rows, tiles of slots, heads]: the largest score of each
  bool is_normed;       // the queries, by `epsilon`, and rotated by `turns`
  float epsilon;
  ConstRows turns;  // empty: attention alone
  Rounded rounded;
  bool is_rounded;
};
inline constexpr int kLeastTileSlots = 16;

inline HeadAttention head_attention_of(const AttendCall& call, const Slices& slices, int first_row, int rows,
                                       float* scratch, const PackedRows& layout) {
  HeadAttention a = {};
  static_cast<Attention&>(a) = attention_of(call, slices, first_row, rows, layout);
  a.scores = scratch;
  a.tile_largest = scratch + static_cast<std::int64_t>(rows) * a.heads * a.slots;
  a.turns = call.turns;
  a.is_normed = call.turns.data != nullptr;
  a.epsilon = call.epsilon;
  a.is_rounded = call.rounded != nullptr;
  if (a.is_rounded) a.rounded = *call.rounded;
  return a;
}

#if defined(LOCKSTEP_KERNEL)

/// Channel d of what a head gives: divided by the weights' sum, rotated back, rounded. By a warp with 32 neighbouring
/// channels from a multiple of 32 on; `d` and `head` may be beyond the last ones.
LOCKSTEP_DEVICE void finish_head(const HeadAttention& a, int i, int head, int d, int width, float total,
                                 float denominator) {
  float value = total * (1.0f / denominator);
  const int channel = d - (width - a.turns.width);
  const float other = shuffle_xor(value, 1);
  if (head >= a.heads || d >= width) return;  // whole warps, where something is rounded
  if (a.turns.data != nullptr && channel >= 0) {
    const float* turn = a.turns.data + i * a.turns.stride + channel / 2 * 2;
    const float c = turn[0], s = -turn[1];
    value = channel % 2 == 0 ? fma_f32(value, c, -(other * s)) : fma_f32(other, s, value * c);
  }
  a.out.data[i * a.out.stride + head * width + d] = value;
  if (a.is_rounded) round_value(a.rounded, i, head * width + d, value);
}

#endif

}  // namespace lockstep::gpu
