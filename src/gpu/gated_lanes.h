// The kernel of gated_experts.cu without matrix units, or where there is less shared memory than the other one wants.
//
// A thread is a lane of the law, as in lane_matvec.h, and takes the same row of gate and up together, so that the
// activations come from shared memory once for both; the rows of the next round are asked for block by block, as those
// of this one are used up. A thread block makes 32 channels of a slot, gate and up, at a time, so it can round them; it
// stays for several such units, so that its tables are filled once.
#pragma once

#include "gpu/gated.h"
#include "gpu/lane_matvec.h"

namespace lockstep::gpu {

inline constexpr int kGatedLaneBlocks = 2;  // thread blocks of a multiprocessor

#if defined(LOCKSTEP_KERNEL)

/// Grid points sixteen times and the masks of eight signs sixteen times, so that no two threads of half a warp meet in
/// a bank.
constexpr int kGatedLaneCopies = 16;
struct GatedLaneLookup {
  Words2 point[256][kGatedLaneCopies];
  Words2 mask[128][kGatedLaneCopies];  // a byte of ones for every negative value
};

template <int kLanes>
struct GatedLaneShared {
  GatedLaneLookup lookup;
  LaneInput<kLanes> x;
  float result[2][kGatedChannels];
};

LOCKSTEP_DEVICE void fill(GatedLaneLookup& to, const Tables& tables) {
  const auto* points = reinterpret_cast<const Words2*>(tables.bytes_iq2_xxs);
#pragma unroll 8
  for (int i = thread_index(); i < 256 * kGatedLaneCopies / 2; i += kLaneThreads) {
    const Words2 point = points[i / (kGatedLaneCopies / 2)];
    reinterpret_cast<Words4*>(to.point)[i] = {{point.word[0], point.word[1], point.word[0], point.word[1]}};
  }
  for (int i = thread_index(); i < 128 * kGatedLaneCopies / 2; i += kLaneThreads) {
    const std::uint32_t signs = even_signs(static_cast<std::uint32_t>(i / (kGatedLaneCopies / 2)));
    const std::uint32_t low = ((signs & 15u) * 0x00204081u & 0x01010101u) * 255u,
                        high = ((signs >> 4) * 0x00204081u & 0x01010101u) * 255u;
    reinterpret_cast<Words4*>(to.mask)[i] = {{low, high, low, high}};
  }
}

/// What a thread holds of a row.
struct RowPart {
  Words2 part[kLaneHold];
  std::uint16_t scale[kLaneHold];
};
template <int kLanes>
LOCKSTEP_DEVICE void load_block(RowPart& to, const std::uint8_t* row, int lane, int i) {
  constexpr int kBlocks = kLanes * kLaneHold;
  to.part[i] = read_weight<Words2>(row + (lane + i * kLanes) * 8);
  to.scale[i] = read_weight<std::uint16_t>(row + kBlocks * 8 + (lane + i * kLanes) / 8 * 2);
}

/// Eight levels with their signs, times eight codes. ~l + 1 is -l; the ones are added up as a dot with the masks, in
/// the same sum.
LOCKSTEP_DEVICE void add_eight(int& flipped, int& masks, std::uint32_t point_at, std::uint32_t mask_at,
                               const std::uint8_t* lookup, std::uint32_t low_codes, std::uint32_t high_codes) {
  const Words2 levels = *reinterpret_cast<const Words2*>(lookup + point_at);
  const Words2 mask = *reinterpret_cast<const Words2*>(lookup + sizeof(GatedLaneLookup::point) + mask_at);
  flipped = dot4(levels.word[0] ^ mask.word[0], low_codes, flipped);
  masks = dot4(mask.word[0], low_codes, masks);
  flipped = dot4(levels.word[1] ^ mask.word[1], high_codes, flipped);
  masks = dot4(mask.word[1], high_codes, masks);
}

/// The term of one block. A point is 128 bytes from the next, and so is a mask, so a place is a piece of the words,
/// shifted, beside this thread's own copy.
LOCKSTEP_DEVICE float term_of(const Words2& part, std::uint16_t scale, const Words4& first, const Words4& second,
                              const std::uint8_t* lookup, std::uint32_t copy) {
  constexpr std::uint32_t kPoint = 255u << 7, kMask = 127u << 7;
  static_assert(sizeof(GatedLaneLookup::point[0]) == 128 && sizeof(GatedLaneLookup::mask[0]) == 128);
  const std::uint32_t points = part.word[0], signs = part.word[1];
  int flipped = 0, masks = 0;
  add_eight(flipped, masks, (points << 7 & kPoint) | copy, (signs << 7 & kMask) | copy, lookup, first.word[0],
            first.word[1]);
  add_eight(flipped, masks, (points >> 1 & kPoint) | copy, (signs & kMask) | copy, lookup, first.word[2],
            first.word[3]);
  add_eight(flipped, masks, (points >> 9 & kPoint) | copy, (signs >> 7 & kMask) | copy, lookup, second.word[0],
            second.word[1]);
  add_eight(flipped, masks, (points >> 17 & kPoint) | copy, (signs >> 14 & kMask) | copy, lookup, second.word[2],
            second.word[3]);
  const int factor = 2 * static_cast<int>(signs >> 28) + 1;
  return static_cast<float>((flipped - masks) * factor) * (widen_f16(scale) * 0.125f);
}

template <int kLanes>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kLaneThreads, kGatedLaneBlocks) gated_lane_kernel(LOCKSTEP_PARAMETER Gated p) {
  constexpr int kGroups = kLaneThreads / kLanes, kPasses = kGatedChannels / kGroups;
  LOCKSTEP_DYNAMIC_SHARED(Words4, gated_shared);
  auto& shared = *reinterpret_cast<GatedLaneShared<kLanes>*>(gated_shared);
  fill(shared.lookup, *p.gate.tables);
  wait_for_launch_before();
  let_next_launch_begin();  // the next one may read what was written before this launch: which experts
  if (thread_index() < kWarp) swiglu_beside(p);
  const int t = thread_index(), lane = t % kLanes, group = t / kLanes;
  const int groups = p.gate.rows / kGatedChannels, units = groups * p.out.rows;  // a unit: 32 channels of a slot
  // Row of this thread's in pass `pass` of a unit; beyond the last one, of the last one again.
  const auto place_of = [&](int unit, int pass) {
    const int last = unit < units ? unit : units - 1, slot = last / groups;
    const std::int64_t plane = static_cast<std::int64_t>(p.expert[slot]) * p.gate.rows;
    return (plane + last % groups * kGatedChannels + pass * kGroups + group) * p.gate.row_bytes;
  };
  RowPart gate, up;
  {
    const std::int64_t at = place_of(block_x(), 0);
#pragma unroll
    for (int i = 0; i < kLaneHold; ++i) {
      load_block<kLanes>(gate, p.gate.data + at, lane, i);
      load_block<kLanes>(up, p.up.data + at, lane, i);
    }
  }
  const auto* lookup = reinterpret_cast<const std::uint8_t*>(&shared.lookup);
  const auto copy = static_cast<std::uint32_t>(t % kGatedLaneCopies * sizeof(Words2));
  std::int64_t held_row = -1;  // of the activations in shared memory
#pragma unroll 1
  for (int unit = block_x(); unit < units; unit += p.blocks) {
    const int slot = unit / groups;
    const std::int64_t x_row = slot / p.x_share * p.x.stride;
    if (x_row != held_row) {
      held_row = x_row;
      block_barrier();
      for (int i = t; i < kLanes * kLaneHold * 2; i += kLaneThreads) {
        const int block = i / 2;
        shared.x.codes[block / kLanes][i % 2][block % kLanes] =
            *reinterpret_cast<const Words4*>(p.x.codes + x_row + i * 16);
      }
      for (int block = t; block < kLanes * kLaneHold; block += kLaneThreads)
        shared.x.scales[block / kLanes][block % kLanes] = p.x.scales[x_row / kBlock + block];
      block_barrier();
    }
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool is_last = pass + 1 == kPasses;
      const std::int64_t at = place_of(is_last ? unit + p.blocks : unit, is_last ? 0 : pass + 1);
      const std::uint8_t* gate_row = p.gate.data + at;
      const std::uint8_t* up_row = p.up.data + at;
      float gate_sum = 0, up_sum = 0;
#pragma unroll
      for (int i = 0; i < kLaneHold; ++i) {
        const Words4 first = shared.x.codes[i][0][lane], second = shared.x.codes[i][1][lane];
        const float scale = shared.x.scales[i][lane];
        gate_sum = fma_f32(term_of(gate.part[i], gate.scale[i], first, second, lookup, copy), scale, gate_sum);
        load_block<kLanes>(gate, gate_row, lane, i);
        up_sum = fma_f32(term_of(up.part[i], up.scale[i], first, second, lookup, copy), scale, up_sum);
        load_block<kLanes>(up, up_row, lane, i);
      }
      const float gate_total = fold_threads<kLanes>(gate_sum), up_total = fold_threads<kLanes>(up_sum);
      if (lane == 0) {
        shared.result[0][pass * kGroups + group] = gate_total;
        shared.result[1][pass * kGroups + group] = up_total;
      }
    }
    block_barrier();
    if (t < kWarp) {
      const int d = unit % groups * kGatedChannels + t;
      float value = swiglu_value(shared.result[0][t], shared.result[1][t], p.limit);
      if (p.row_weights != nullptr) value = value * p.row_weights[slot];
      p.out.data[slot * p.out.stride + d] = value;
      round_value(p.rounded, slot, d, value);
    }
    block_barrier();
  }
}

#endif

}  // namespace lockstep::gpu
