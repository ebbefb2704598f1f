// The choice of a token's experts by one warp.
#pragma once

#include "gpu/device.h"
#include "gpu/kernels.h"
#include "ops/rows.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

inline constexpr int kMostUsed = 64;  // experts of a token

/// Of the keys that a warp holds, the largest; 0 in its place. The same in every thread.
template <int kHeld>
LOCKSTEP_DEVICE std::int32_t take_largest(std::uint32_t (&values)[kHeld]) {
  std::uint32_t best = 0;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) best = values[k] > best ? values[k] : best;
  const std::uint32_t largest = warp_max(best);
  std::uint32_t id = ~0u;  // the lowest that has it
#pragma unroll
  for (int k = kHeld - 1; k >= 0; --k)
    if (values[k] == largest) id = static_cast<std::uint32_t>(lane_index() + k * kWarp);
  id = ~warp_max(~id);
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (id == static_cast<std::uint32_t>(lane_index() + k * kWarp)) values[k] = 0;
  return static_cast<std::int32_t>(id);
}

/// What an expert is ranked by: the largest is chosen first, of equal ones that with the lowest id. None is 0, for the
/// upper half of a ranking key is that of a score, and the lowest one is a NaN's.
LOCKSTEP_DEVICE std::uint32_t route_key(float score, const float* bias, int e) {
  return static_cast<std::uint32_t>(ranking_key(bias == nullptr ? score : score + bias[e], e) >> 32);
}

/// Ops::route_experts of a row, by keys and scores of all of up to kHeld * kWarp experts; `chosen` is shared memory.
template <int kHeld, class Key, class Score>
LOCKSTEP_DEVICE void choose_by_warp(const Route& route, int row, std::int32_t (&chosen)[kMostUsed], const Key& key,
                                    const Score& score, int experts, const std::int32_t* table, const Token* tokens,
                                    float route_scale) {
  const int used = route.used;
  if (table != nullptr) {
    for (int s = lane_index(); s < used; s += kWarp)
      chosen[s] = table[static_cast<std::int64_t>(tokens[row]) * used + s];
  } else {
    std::uint32_t held[kHeld];
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int e = lane_index() + k * kWarp;
      held[k] = e < experts ? key(e) : 0;
    }
    for (int s = 0; s < used; ++s) {
      const std::int32_t id = take_largest(held);
      if (lane_index() == 0) chosen[s] = id;
    }
  }
  warp_barrier();
  float sum = 0;
  for (int s = 0; s < used; ++s) sum = sum + score(chosen[s]);
  sum = sum < 0x1p-14f ? 0x1p-14f : sum;
  for (int s = lane_index(); s < used; s += kWarp) {
    route.expert[row * used + s] = chosen[s];
    route.weight[row * used + s] = (score(chosen[s]) / sum) * route_scale;
  }
}

#endif

}  // namespace lockstep::gpu
