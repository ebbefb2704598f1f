// What the searches of the quantisers share. Only files with row functions include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/round.h"
#include "tensor/quantise_rows.h"
#include "tensor/quantise_vector.h"
#include "tensor/tables.h"

namespace lockstep::quantise {

/// Weights of a block's squared errors: its importances over their mean, plus a little, so that a column that no prompt
/// ever used still gets sensible codes. Ones without importances, or if all of them are 0.
template <int kCount>
LOCKSTEP_INLINE void block_weights(const float* importance, float* w) {
  float sum = 0;
  if (importance != nullptr) {
    F8 lanes = splat(0);
    for (int i = 0; i < kCount; i += 8) lanes += load8(importance + i);
    sum = sum_of(lanes);
  }
  // A sum that has no finite inverse says nothing about the columns either.
  const float inverse = static_cast<float>(kCount) / sum;
  if (!(sum > 0) || !(inverse < 3e38f)) {
    for (int i = 0; i < kCount; i += 8) store8(w + i, splat(1));
    return;
  }
  for (int i = 0; i < kCount; i += 8) store8(w + i, load8(importance + i) * inverse + 0x1p-10f);
}

/// The nearest f16, kept finite.
inline std::uint16_t finite_f16(float x) {
  constexpr float kMost = 65504;
  return f32_to_f16(x > kMost ? kMost : x < -kMost ? -kMost : x);
}

/// 1 / x, or 0 where that is not finite: codes of a group without a scale are then 0.
LOCKSTEP_INLINE float inverse_of(float x) {
  const float inverse = 1.0f / x;
  return x != 0 && inverse < 3e38f && inverse > -3e38f ? inverse : 0.0f;
}

/// The same for eight.
LOCKSTEP_INLINE F8 inverses_of(F8 x) {
  const F8 inverse = 1.0f / (x != 0.0f ? x : splat(1));
  return x != 0.0f && abs8(inverse) < 3e38f ? inverse : splat(0);
}

/// The element of the largest magnitude, the first of equal ones, with its sign.
LOCKSTEP_INLINE float extreme_of(const float* x, int count) {
  float extreme = 0, most = 0;
  for (int i = 0; i < count; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    if (magnitude > most) {
      most = magnitude;
      extreme = x[i];
    }
  }
  return extreme;
}

}  // namespace lockstep::quantise
