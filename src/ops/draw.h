// From a row of logits to a token: the rules, and the arithmetic that every back end shares.
//
//   1. temperature 0: the greatest l, ties to the lower id, and done. Otherwise the weight of a token is
//        exp_f32((l - greatest) / T) * 2^40, cut to an integer
//   2. top-k: the k first by (greater l, then lower id); the others' weight becomes 0
//   3. top-p: the shortest row of tokens, by (greater l, then lower id), whose weights add up to P / 2^32 of all or
//        more; P = p * 2^32, cut to an integer; at least one token; the others' weight becomes 0
//   4. min-p: tokens whose exp_f32 is at least min_p, that of the greatest being 1; the others' weight becomes 0
//   5. the draw: the first token, by ascending id, at which the running sum of the weights exceeds
//        random_uniform(seed, position) * (the sum of all), cut to an integer
// Each is skipped where its parameter is neutral. l is f32; -infinity is a token that cannot be.
//
// Weights are integers so that their sums have no order: a row can be selected without being sorted, and a device may
// add as it likes. What falls below 2^-40 of the greatest weight is lost; the draw tells 2^-24 apart.
#pragma once

#include <cstdint>

#include "numerics/functions.h"
#include "numerics/random.h"
#include "ops/types.h"

namespace lockstep {

/// What exp_f32 is taken of: never above 0, and the greater the value, the greater or equal.
LOCKSTEP_HOST_DEVICE inline float draw_exponent(float value, float greatest, float temperature) {
  return (value - greatest) / temperature;
}

/// Below this exponent every weight is 0: e^-28 is 0.77 * 2^-40.
inline constexpr float kLowestDrawn = -28.0f;

/// 2^17 tokens of the greatest weight, 2^40, are 2^57, so a sum never overflows.
LOCKSTEP_HOST_DEVICE inline std::uint64_t draw_weight(float power) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(power * 0x1p40f));
}

/// What the weights of the first tokens must add up to for top-p, out of `total`: P * total / 2^32, rounded up; at
/// least 1. top_p below 1.
LOCKSTEP_HOST_DEVICE inline std::uint64_t enough_weight(float top_p, std::uint64_t total) {
  const auto part = static_cast<std::uint64_t>(static_cast<double>(top_p) * 0x1p32);
  // A product of up to 90 bits, in halves: part is below 2^32.
  const std::uint64_t low = part * (total & 0xffffffffu);
  const std::uint64_t enough = part * (total >> 32) + ((low + 0xffffffffu) >> 32);
  return enough > 0 ? enough : 1;
}

/// What the running sum must exceed: random_uniform * total, cut.
LOCKSTEP_HOST_DEVICE inline std::uint64_t draw_target(const DrawChoice& choice, std::uint64_t total) {
  const float uniform = random_uniform(choice.seed, static_cast<std::uint64_t>(choice.position));
  const auto parts = static_cast<std::uint64_t>(static_cast<std::int64_t>(uniform * 0x1p24f));  // exact
  return (parts * (total >> 32) << 8) + (parts * (total & 0xffffffffu) >> 24);
}

}  // namespace lockstep
