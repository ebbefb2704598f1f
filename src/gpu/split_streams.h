// The split of a hyper-connection: from a token's 24 mixes to its coefficients, by a warp.
#pragma once

#include "gpu/device.h"
#include "numerics/functions.h"

namespace lockstep::gpu {

inline constexpr int kStreams = 4;  // as the model has

#if defined(LOCKSTEP_KERNEL)

LOCKSTEP_DEVICE float pre_coefficient(float mix, float r, float scale, float base, float epsilon) {
  return sigmoid_f32((mix * r) * scale + base) + epsilon;
}

/// The split of one row by one warp: thread l < 16 holds the comb's entry from stream l / 4 to stream l % 4. Every sum
/// is the one of ops/rows.h: four terms in ascending order. (It begins with zero there, which changes no sum of what is
/// never -0.)
LOCKSTEP_DEVICE void split_streams(float* out, const float* mixes, float r, const float* scale, const float* base,
                                   float epsilon, int iterations) {
  const int l = lane_index();
  if (l < kStreams) out[l] = pre_coefficient(mixes[l], r, scale[0], base[l], epsilon);
  if (l >= kStreams && l < 2 * kStreams) out[l] = 2.0f * sigmoid_f32((mixes[l] * r) * scale[1] + base[l]);
  const int entry = l % (kStreams * kStreams), i = 2 * kStreams + entry;
  const int row = entry / kStreams * kStreams, column = entry % kStreams;  // first threads of this row and column
  float value = (mixes[i] * r) * scale[2] + base[i];
  float largest = shuffle(value, row);
  for (int q = 1; q < kStreams; ++q) {
    const float other = shuffle(value, row + q);
    largest = largest < other ? other : largest;
  }
  value = exp_f32(value - largest);
  const auto sum_of = [&](int first, int step) {
    float sum = shuffle(value, first);
    for (int k = 1; k < kStreams; ++k) sum = sum + shuffle(value, first + k * step);
    return sum;
  };
  value = value / sum_of(row, 1) + epsilon;
  value = value / (sum_of(column, kStreams) + epsilon);
  for (int iteration = 1; iteration < iterations; ++iteration) {
    value = value / (sum_of(row, 1) + epsilon);
    value = value / (sum_of(column, kStreams) + epsilon);
  }
  if (l < kStreams * kStreams) out[2 * kStreams + l] = value;
}

#endif

}  // namespace lockstep::gpu
