// Formats of 32 values with one scale: Q8_0, Q4_0, MXFP4.
#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "numerics/primitives.h"
#include "tensor/quantise_fit.h"
#include "tensor/quantise_parts.h"

namespace lockstep::quantise {
namespace {

/// Halves away from zero, |x| < 2^22.
LOCKSTEP_INLINE int round_away(float x) {
  const float magnitude = x < 0 ? -x : x;
  const int whole = static_cast<int>(magnitude);
  const int rounded = whole + (magnitude - static_cast<float>(whole) >= 0.5f ? 1 : 0);
  return x < 0 ? -rounded : rounded;
}

/// Codes come from the scale before it is rounded to f16, as all writers of this format have it.
LOCKSTEP_INLINE void q8_0_block(const float* x, std::byte* out) {
  F8 most = splat(0);
  for (int i = 0; i < 32; i += 8) most = max8(most, abs8(load8(x + i)));
  const float scale = std::min(max_of(most) / 127.0f, 65504.0f);
  const float inverse = inverse_of(scale);
  store_as(out, finite_f16(scale));
  for (int i = 0; i < 32; ++i) {
    const float scaled = std::clamp(x[i] * inverse, -127.0f, 127.0f);
    out[2 + i] = std::byte{static_cast<std::uint8_t>(round_away(scaled))};
  }
}

LOCKSTEP_INLINE void q4_0_block(const float* x, const float* importance, std::byte* out) {
  float w[32], codes[32];
  block_weights<32>(importance, w);
  const Symmetric<32, 8> group{x, w};
  const std::uint16_t stored = finite_f16(group.fit());
  const float scale = f16_to_f32(stored);
  group.codes(scale, codes);
  store_as(out, stored);
  for (int j = 0; j < 16; ++j) {
    const auto low = static_cast<unsigned>(static_cast<int>(codes[j]) + 8);
    const auto high = static_cast<unsigned>(static_cast<int>(codes[j + 16]) + 8);
    out[2 + j] = std::byte{static_cast<std::uint8_t>(low | high << 4)};
  }
}

/// Doubled E2M1 magnitude nearest to a; a value half way goes to the smaller one.
LOCKSTEP_INLINE F8 e2m1_magnitude(F8 a) {
  const F8 zero = splat(0), one = splat(1), two = splat(2), four = splat(4);
  return (a > 0.5f ? one : zero) + (a > 1.5f ? one : zero) + (a > 2.5f ? one : zero) + (a > 3.5f ? one : zero) +
         (a > 5.0f ? two : zero) + (a > 7.0f ? two : zero) + (a > 10.0f ? four : zero);
}

/// Factors whose product is 2^(128 - e): one alone would overflow for the smallest scales.
struct E8m0Inverse {
  explicit E8m0Inverse(int e) : first(power_of_two((128 - e) / 2)), second(power_of_two(128 - e - (128 - e) / 2)) {}
  float first, second;
};

LOCKSTEP_INLINE float mxfp4_error(const float* x, const float* w, int e) {
  const float scale = e8m0_half_to_f32(static_cast<std::uint8_t>(e));
  const E8m0Inverse inverse(e);
  F8 sum = splat(0);
  for (int i = 0; i < 32; i += 8) {
    const F8 a = abs8(load8(x + i));
    const F8 error = a - e2m1_magnitude(a * inverse.first * inverse.second) * scale;
    sum += load8(w + i) * error * error;
  }
  return sum_of(sum);
}

/// The exponent that brings the largest value to 4..8 (clipping it to 6), or one of its neighbours if that is better.
LOCKSTEP_INLINE void mxfp4_block(const float* x, const float* importance, std::byte* out) {
  std::fill(out, out + 17, std::byte{0});
  const float extreme = extreme_of(x, 32);
  if (extreme == 0) return;
  float w[32], levels[32];
  block_weights<32>(importance, w);
  const int usual = static_cast<int>(magnitude_bits(extreme) >> 23) - 2;  // the exponent's bias is that of E8M0
  int best = std::clamp(usual, 0, 254);
  float least = mxfp4_error(x, w, best);
  for (const int e : {usual - 1, usual + 1}) {
    if (e < 0 || e > 254) continue;
    const float error = mxfp4_error(x, w, e);
    if (error < least) {
      least = error;
      best = e;
    }
  }
  const E8m0Inverse inverse(best);
  for (int i = 0; i < 32; i += 8)
    store8(levels + i, e2m1_magnitude(abs8(load8(x + i)) * inverse.first * inverse.second));
  out[0] = std::byte{static_cast<std::uint8_t>(best)};
  for (int i = 0; i < 32; ++i) {
    const auto level = static_cast<unsigned>(levels[i]);
    const unsigned magnitude = level <= 4 ? level : level / 2 + 2 - level / 12;  // 6, 8, 12 are codes 5, 6, 7
    const unsigned code = magnitude | (x[i] < 0 && magnitude != 0 ? 8u : 0u);
    out[1 + i % 16] |= std::byte{static_cast<std::uint8_t>(i < 16 ? code : code << 4)};
  }
}

}  // namespace

LOCKSTEP_QUANTISE_ROW void make_q8_0(const Row& row) {
  for (std::int64_t b = 0; b < row.width / 32; ++b) q8_0_block(row.values + 32 * b, row.out + 34 * b);
}

LOCKSTEP_QUANTISE_ROW void make_q4_0(const Row& row) {
  for (std::int64_t b = 0; b < row.width / 32; ++b)
    q4_0_block(row.values + 32 * b, row.importance_at(32 * b), row.out + 18 * b);
}

LOCKSTEP_QUANTISE_ROW void make_mxfp4(const Row& row) {
  for (std::int64_t b = 0; b < row.width / 32; ++b)
    mxfp4_block(row.values + 32 * b, row.importance_at(32 * b), row.out + 17 * b);
}

}  // namespace lockstep::quantise
