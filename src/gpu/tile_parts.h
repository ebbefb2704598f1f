// What the int8 tile kernels have in common, whatever multiplies (tile.cu on mma, tile_wmma.cu on WMMA): which outputs
// a block of the grid makes, what a 32-value block of a row adds to an output once its dots are known, and the way out.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "gpu/int8_mma.h"
#include "gpu/tile.h"

namespace lockstep::gpu {

struct Tile {
  TileCall call;
  ExpertSort sort;
  bool is_sorted;
  Walk walk;
};
inline Tile tile_of(const TileCall& call) {
  return {call, call.sort != nullptr ? *call.sort : ExpertSort(), call.sort != nullptr, call.w.walk};
}

/// body.operator()<kind, has_min>(), of the combinations that there are.
template <class Body>
void with_kind(Kind kind, bool has_min, const Body& body) {
  switch (kind) {
    case Kind::single:
      return has_min ? body.template operator()<Kind::single, true>() : body.template operator()<Kind::single, false>();
    case Kind::halves:
      return has_min ? body.template operator()<Kind::halves, true>() : body.template operator()<Kind::halves, false>();
    case Kind::folded:
      LOCKSTEP_CHECK(has_min);
      return body.template operator()<Kind::folded, true>();
    case Kind::dual:
      LOCKSTEP_CHECK(!has_min);
      return body.template operator()<Kind::dual, false>();
  }
}

/// Shared memory of a block that makes kTileTokens tokens.
std::size_t tile_shared_bytes(Kind kind, bool has_min, int width);

inline constexpr int kStageBytes = kStageBlocks * kBlock;
/// Where a stage's codes lie in shared memory: units of 16 bytes are swizzled, so that reading one unit of eight rows
/// meets every bank once.
LOCKSTEP_DEVICE int swizzled(int row, int unit) { return row * kStageBytes + ((unit ^ (row & 7)) * 16); }

LOCKSTEP_DEVICE float exact_float(int small) { return magic_float(kMagicBits + small) - kMagic; }
LOCKSTEP_DEVICE int low_half(std::uint32_t pair) { return static_cast<std::int16_t>(pair & 0xffffu); }
LOCKSTEP_DEVICE int high_half(std::uint32_t pair) { return static_cast<int>(pair) >> 16; }

/// Which outputs a block makes: output rows slots[0 .. tokens), the last one again and again behind them, by a plane.
/// False if there are none. Ends with no barrier.
template <int kTokens>
LOCKSTEP_DEVICE bool find_outputs(const Tile& tile, int (&slots)[kTokens], std::int64_t& plane, int& tokens) {
  const TileCall& call = tile.call;
  const int t = thread_index();
  plane = 0;
  if (tile.is_sorted) {
    const int index = tile.sort.first_tile[call.first_plane] + block_x();
    if (index >= tile.sort.first_tile[call.first_plane + call.planes]) return false;
    const int expert = tile.sort.tile_expert[index];
    const int begin = tile.sort.first_slot[expert] + (index - tile.sort.first_tile[expert]) * kTokens;
    tokens = min(kTokens, tile.sort.first_slot[expert + 1] - begin);
    if (t < kTokens) slots[t] = tile.sort.order[begin + min(t, tokens - 1)];
    plane = expert - call.first_plane;
  } else {
    const int begin = block_x() * kTokens;
    tokens = min(kTokens, call.out.rows - begin);
    if (t < kTokens) slots[t] = begin + min(t, tokens - 1);
  }
  return true;
}

/// What a block of a row adds to an output but for the token's scale. `scale` has the block's words (Unpacked); `dot`
/// and, of halves and dual, `second` the dots, from kMagicBits on; `sum` the sums of the token's codes where there is a
/// minimum: of the halves, or, for Kind::single, of all in the first.
template <Kind kKind, bool kHasMin, int kWords>
LOCKSTEP_DEVICE float term_of(const int& dot, [[maybe_unused]] const int& second, const std::uint32_t (&scale)[kWords],
                              [[maybe_unused]] float sum, [[maybe_unused]] float second_sum) {
  const float first_scale = f32_of(scale[0]);
  float term;
  if constexpr (kKind == Kind::single) {
    term = fma_f32(magic_float(dot), first_scale, -kMagic * first_scale);
    if constexpr (kHasMin) term = fma_f32(-sum, f32_of(scale[1]), term);
  } else if constexpr (kKind == Kind::folded) {
    const std::uint32_t levels = scale[kWords - 1];
    const float least = fma_f32(second_sum, exact_float(high_half(levels)), sum * exact_float(low_half(levels)));
    term = fma_f32(magic_float(dot), first_scale, -kMagic * first_scale);
    term = fma_f32(-least, f32_of(scale[1 % kWords]), term);
  } else {
    const float first = magic_float(dot) - kMagic, other = magic_float(second) - kMagic;
    if constexpr (kKind == Kind::dual) {
      term = fma_f32(other, f32_of(scale[1]), first * first_scale);
    } else {  // integers below 2^24 on the way, so nothing is rounded before the scale
      const float whole = fma_f32(other, exact_float(high_half(scale[1])), first * exact_float(low_half(scale[1])));
      term = whole * first_scale;
      if constexpr (kHasMin) {
        const std::uint32_t levels = scale[kWords - 1];
        const float least = fma_f32(second_sum, exact_float(high_half(levels)), sum * exact_float(low_half(levels)));
        term = fma_f32(-least, f32_of(scale[2 % kWords]), term);
      }
    }
  }
  return term;
}

/// Names an output that is a zero (ZeroList).
LOCKSTEP_DEVICE void name_zero(const TileCall& call, int slot, int row) {
  const int place = atomic_add(&call.zeros->count, 1);
  if (place < ZeroList::kMost) call.zeros->place[place] = {slot, call.first_row + row};
}

}  // namespace lockstep::gpu
