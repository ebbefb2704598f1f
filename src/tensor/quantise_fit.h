// Fitting one scale, or a scale and a minimum, to a group of values: the inner search of the integer formats.
//
// Eight candidates are tried at a time, one a lane, so that nothing is added across lanes. A fit tries scales around
// the one that just reaches the extreme value, since clipping it a little is often better, takes the least squares
// scale for the codes of each, and keeps the one with the smallest error: a sum of w * (x - value)^2.
#pragma once

#include "tensor/quantise_parts.h"

namespace lockstep::quantise {

/// The lane with the least of `v`, the first of equal ones.
LOCKSTEP_INLINE int lane_of_least(F8 v) {
  int lane = 0;
  for (int i = 1; i < 8; ++i) lane = v[i] < v[lane] ? i : lane;
  return lane;
}

/// value = scale * code, code in -kHalf .. kHalf - 1. Groups of kCount values. A scale may be negative: the extreme
/// value gets the code -kHalf whatever its sign.
template <int kCount, int kHalf>
struct Symmetric {
  const float* x;
  const float* w;

  LOCKSTEP_INLINE static F8 code_of(F8 value, F8 inverse) { return round8(clamp8(value * inverse, -kHalf, kHalf - 1)); }

  LOCKSTEP_INLINE void codes(float scale, float* out) const {
    const F8 inverse = splat(inverse_of(scale));
    for (int i = 0; i < kCount; i += 8) store8(out + i, code_of(load8(x + i), inverse));
  }

  /// Errors of eight scales.
  LOCKSTEP_INLINE F8 errors(F8 scale) const {
    const F8 inverse = inverses_of(scale);
    F8 sum = splat(0);
    for (int i = 0; i < kCount; ++i) {
      const F8 off = x[i] - code_of(splat(x[i]), inverse) * scale;
      sum += w[i] * off * off;
    }
    return sum;
  }

  /// Sums of w * code * x and w * code^2 for the codes of eight scales, given as their inverses.
  struct Sums {
    F8 cross, square;
  };
  LOCKSTEP_INLINE Sums sums(F8 inverse) const {
    Sums sums{splat(0), splat(0)};
    for (int i = 0; i < kCount; ++i) {
      const F8 code = code_of(splat(x[i]), inverse), weighted = w[i] * code;
      sums.cross += weighted * x[i];
      sums.square += weighted * code;
    }
    return sums;
  }

  /// The scale of the least error, least squares for its own codes.
  LOCKSTEP_INLINE float fit() const {
    const float extreme = extreme_of(x, kCount);
    if (extreme == 0) return 0;
    float scale = 0, gain = 0;  // the gain is what a scale takes off the sum of w * x^2
    const auto consider = [&](F8 inverse) LOCKSTEP_INLINE_LAMBDA {
      const Sums s = sums(inverse);
      const F8 safe = s.square > 0.0f ? s.square : splat(1);
      const F8 scales = s.cross / safe, gains = scales * s.cross;
      const int lane = lane_of_least(-gains);
      if (gains[lane] > gain) {
        gain = gains[lane];
        scale = scales[lane];
      }
    };
    // Where there are few levels, clipping pays more; the ends are where it stops to pay on normal and Laplace rows.
    constexpr float kStep = kHalf <= 8 ? 0.15f : 0.25f;
    const F8 lane = F8{0, 1, 2, 3, 4, 5, 6, 7};
    const float inverse = -1.0f / extreme;
    for (int part = 0; part < 2; ++part)
      consider(((lane + static_cast<float>(8 * part)) * kStep + (static_cast<float>(kHalf) - 7 * kStep)) * inverse);
    // What the winner's own codes ask for, and its near neighbours.
    consider(inverses_of(scale * (1.0f + (lane - 3.0f) * (0.25f / kHalf))));
    return scale;
  }
};

/// value = scale * code - minimum, code in 0 .. kMost, scale and minimum >= 0.
template <int kCount, int kMost>
struct Affine {
  const float* x;
  const float* w;

  struct Fit {
    float scale, minimum;
  };

  LOCKSTEP_INLINE static F8 code_of(F8 value, F8 inverse, F8 minimum) {
    return round8(clamp8((value + minimum) * inverse, 0, kMost));
  }

  LOCKSTEP_INLINE void codes(Fit fit, float* out) const {
    const F8 inverse = splat(inverse_of(fit.scale)), minimum = splat(fit.minimum);
    for (int i = 0; i < kCount; i += 8) store8(out + i, code_of(load8(x + i), inverse, minimum));
  }

  /// Errors of eight pairs.
  LOCKSTEP_INLINE F8 errors(F8 scale, F8 minimum) const {
    const F8 inverse = inverses_of(scale);
    F8 sum = splat(0);
    for (int i = 0; i < kCount; ++i) {
      const F8 off = x[i] - (code_of(splat(x[i]), inverse, minimum) * scale - minimum);
      sum += w[i] * off * off;
    }
    return sum;
  }

  /// The pair of the least error, least squares for its own codes.
  LOCKSTEP_INLINE Fit fit() const {
    float lowest = 0, highest = x[0], sum_w = 0, sum_x = 0, sum_xx = 0;
    for (int i = 0; i < kCount; ++i) {
      lowest = x[i] < lowest ? x[i] : lowest;
      highest = x[i] > highest ? x[i] : highest;
      sum_w += w[i];
      sum_x += w[i] * x[i];
      sum_xx += w[i] * x[i] * x[i];
    }
    const float range = highest - lowest;
    if (!(range > 0)) return {0, -lowest};
    Fit best{range / kMost, -lowest};
    float least = 3e38f;
    const auto consider = [&](F8 inverse, F8 offset) LOCKSTEP_INLINE_LAMBDA {
      F8 c = splat(0), cc = splat(0), cx = splat(0);
      for (int i = 0; i < kCount; ++i) {
        const F8 code = code_of(splat(x[i]), inverse, offset), weighted = w[i] * code;
        c += weighted;
        cc += weighted * code;
        cx += weighted * x[i];
      }
      // Codes that are all alike say nothing about the scale; a minimum below 0 cannot be stored.
      const F8 determinant = sum_w * cc - c * c;
      const I8 is_sound = determinant > 0.0f;
      const F8 safe = is_sound ? determinant : splat(1), safe_cc = cc > 0.0f ? cc : splat(1);
      F8 scale = (sum_w * cx - sum_x * c) / safe, minimum = (c * cx - cc * sum_x) / safe;
      const I8 is_minimum = minimum >= 0.0f;
      scale = is_minimum ? scale : cx / safe_cc;
      minimum = is_minimum ? minimum : splat(0);
      // With the least squares pair the error is what the products with x leave of the sum of squares.
      F8 error = sum_xx - scale * cx + minimum * sum_x;
      error = is_sound ? error : splat(3e38f);
      error = scale > 0.0f ? error : splat(3e38f);
      const int lane = lane_of_least(error);
      if (error[lane] < least) {
        least = error[lane];
        best = {scale[lane], minimum[lane]};
      }
    };
    constexpr float kFirst = kMost <= 3 ? -0.6f : -1.0f, kStep = kMost <= 3 ? 0.12f : 0.15f;
    const F8 lane = F8{0, 1, 2, 3, 4, 5, 6, 7};
    for (int part = 0; part < 2; ++part)
      consider(((lane + static_cast<float>(8 * part)) * kStep + (static_cast<float>(kMost) + kFirst)) / range,
               splat(-lowest));
    for (int round = 0; round < 2; ++round)
      consider(inverses_of(best.scale * (1.0f + (lane - 3.0f) * (0.25f / kMost))), splat(best.minimum));
    return best;
  }
};

}  // namespace lockstep::quantise
