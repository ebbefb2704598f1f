// The kernel of gated_experts.cu on int8 tensor cores.
//
// Eight levels with their signs are found as eight nibbles: two bits of each say which of the three levels, by the
// grid, and a third one its sign. Four such nibbles are what a byte permutation takes to choose out of {levels,
// -levels}, so that one instruction makes four signed values. Both tables lie in shared memory 32 times, so that no two
// threads of a warp meet in a bank.
//
// A warp makes 16 rows of gate or up and four lanes of the law. Thread 4 g + t of it unpacks the blocks of lane t in
// rows g and g + 8: a group of eight values is its part of a 16 x 32 operand, whose columns so are eight values of each
// of four lanes' blocks. The activations' columns 2 t and 2 t + 1 have zeros but for lane t, so that their dots are
// those of blocks of lane t, and it is thread t that gets them. Activations stay in registers for all rows: those of
// even steps in column 2 t, of odd ones in 2 t + 1. Weights come by copies that nobody waits for, 16 rows for four
// warps.
#pragma once

#include "gpu/async_copy.h"
#include "gpu/gated.h"
#include "gpu/int8_mma.h"
#include "gpu/lane_matvec.h"
#include "numerics/order.h"

namespace lockstep::gpu {

inline constexpr int kGatedSteps = 8, kGatedBlocks = 1;  // blocks of a lane; thread blocks of a multiprocessor
inline constexpr int kGatedParts = 4, kGatedRows = 16;   // of a unit of 32 channels, gate and up; rows of a part
inline constexpr int kPieces = 4, kPieceSteps = kGatedSteps / kPieces;
inline constexpr int kGatedHeld = 4;  // units whose sums are in shared memory
template <int kLanes>
constexpr int kGatedThreads = kLanes* kWarp;

#if defined(LOCKSTEP_KERNEL)

/// Nibbles of eight values, [0] by the place in the grid, [1] by the seven bits of the signs.
struct GatedLookup {
  std::uint32_t word[256][2][kWarp];
};

/// What four warps make of a unit: 16 rows of gate or of up, as they lie in memory.
template <int kLanes>
struct GatedPart {
  static constexpr int kRowBytes = static_cast<int>(plane_row_bytes(DType::iq2_xxs, kLanes* kGatedSteps* kBlock));
  std::uint8_t row[kGatedRows][kRowBytes];
};

template <int kLanes>
struct GatedShared {
  GatedLookup lookup;
  GatedPart<kLanes> part[kGatedParts][2];
  float lane_sum[kGatedHeld][2][kGatedChannels][kLanes + 4];
};

/// A word kWarp times, by the threads of one of kRows rows; each begins elsewhere, so that they do not meet in a bank.
template <int kRows, int kThreads>
LOCKSTEP_DEVICE void fill_row(std::uint32_t (&to)[kWarp], std::uint32_t word) {
  constexpr int kShare = kThreads / kRows, kTurns = 8 / kShare;
  const int t = thread_index(), first = t % kShare * kTurns;
#pragma unroll
  for (int i = 0; i < kTurns; ++i)
    *reinterpret_cast<Words4*>(&to[(first + (i + t / kShare) % kTurns) * 4]) = {{word, word, word, word}};
}

template <int kThreads>
LOCKSTEP_DEVICE void fill(GatedLookup& to, const Tables& tables) {
  const int point = thread_index() / (kThreads / 256), signs = thread_index() / (kThreads / 128);
  std::uint32_t w = tables.iq2_xxs[point];
  w = (w | w << 8) & 0x00ff00ffu;
  w = (w | w << 4) & 0x0f0f0f0fu;
  w = (w | w << 2) & 0x33333333u;
  fill_row<256, kThreads>(to.word[point][0], w);
  w = even_signs(static_cast<std::uint32_t>(signs));
  w = (w | w << 12) & 0x000f000fu;
  w = (w | w << 6) & 0x03030303u;
  fill_row<128, kThreads>(to.word[signs][1], ((w | w << 3) & 0x11111111u) << 2);
}

/// What a thread looks up with.
struct GatedDecoder {
  const std::uint8_t* table;
  std::uint32_t copy, sign_copy;  // this thread's, in bytes
  std::uint32_t levels, negative_levels;

  LOCKSTEP_DEVICE GatedDecoder(const GatedLookup& lookup, const Tables& tables)
      : table(reinterpret_cast<const std::uint8_t*>(&lookup)),
        copy(static_cast<std::uint32_t>(lane_index() * 4)),
        sign_copy(copy + kWarp * 4),
        levels(0),
        negative_levels(0) {
    for (int i = 0; i < 3; ++i) {
      const int level = tables.level_iq2[i];
      levels |= static_cast<std::uint32_t>(level) << (8 * i);
      negative_levels |= static_cast<std::uint32_t>(-level & 255) << (8 * i);
    }
  }
  /// Group q of a block's four. A place in the tables is 256 bytes from the next.
  LOCKSTEP_DEVICE void unpack(const Words2& block, int q, std::uint32_t& low, std::uint32_t& high) const {
    static_assert(sizeof(GatedLookup::word[0]) == 256);
    const std::uint32_t signs = q < 2 ? block.word[1] << (8 - 7 * q) : block.word[1] >> (7 * q - 8);
    const std::uint32_t point_at = choose_bytes(block.word[0], copy, 0x5504u | static_cast<std::uint32_t>(q) << 4);
    const std::uint32_t sign_at = (signs & 127u << 8) | sign_copy;
    // No bit is in both. A sum can be made by the multipliers, which have less to do than what shifts and permutes.
    const std::uint32_t nibbles = word_at(point_at) + word_at(sign_at);
    low = choose_bytes(levels, negative_levels, nibbles);
    high = choose_bytes(levels, negative_levels, nibbles >> 16);
  }

 private:
  LOCKSTEP_DEVICE std::uint32_t word_at(std::uint32_t at) const {
    return *reinterpret_cast<const std::uint32_t*>(table + at);
  }
};

/// Activations of four lanes, from `first_lane` on, as a warp holds them.
template <int kLanes>
struct GatedInput {
  std::uint32_t word[kGatedSteps / 2][8];
  float scale[kGatedSteps];

  LOCKSTEP_DEVICE void load(const Rounded& x, std::int64_t row, int first_lane) {
    const int column = lane_index() / 4, lane = first_lane + lane_index() % 4;
    const bool is_own = column / 2 == lane_index() % 4;
#pragma unroll
    for (int i = 0; i < kGatedSteps; ++i) scale[i] = x.scales[row / kBlock + i * kLanes + lane];
#pragma unroll
    for (int pair = 0; pair < kGatedSteps / 2; ++pair) {
      const std::int8_t* block = x.codes + row + ((2 * pair + column % 2) * kLanes + lane) * kBlock;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Words4 half = {{0, 0, 0, 0}};
        if (is_own) half = *reinterpret_cast<const Words4*>(block + 16 * h);
#pragma unroll
        for (int k = 0; k < 4; ++k) word[pair][4 * h + k] = half.word[k];
      }
    }
  }
};

/// (2 factor + 1) / 8 times the scale: at most 16 bits, so exact. The factor is put into the last bits of 2^21.
LOCKSTEP_DEVICE float gated_scale(std::uint32_t signs, std::uint32_t scale) {
  const float factor = f32_of(shift_pair(signs, 0x04a00000u, 28)) - (2097152.0f - 0.125f);
  return factor * widen_f16(scale);
}

/// Adds piece kPiece to a thread's two lane sums; `row` is row g of its part.
template <int kLanes, int kPiece>
LOCKSTEP_DEVICE void add_piece(float (&sum)[2], const std::uint8_t* row, int quad, const GatedInput<kLanes>& x,
                               const GatedDecoder& decoder) {
  constexpr int kFar = 8 * GatedPart<kLanes>::kRowBytes;  // of the thread's second row
  constexpr int kFirst = kPiece * kPieceSteps, kEnd = kFirst + kPieceSteps;
  const std::uint8_t* blocks = row + (4 * quad + lane_index() % 4) * 8;
  const std::uint8_t* scales = row + kGatedSteps * kLanes * 8 + quad / 2 * 2;
#pragma unroll
  for (int i = kFirst; i < kEnd; ++i) {
    Words2 block[2];
    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      block[r] = read_as<Words2>(blocks + r * kFar + i * kLanes * 8);
      scale[r] = gated_scale(block[r].word[1], read_as<std::uint16_t>(scales + r * kFar + i * kLanes / 8 * 2));
    }
    int dot[4] = {0, 0, 0, 0};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      std::uint32_t a[4];
      decoder.unpack(block[0], q, a[0], a[2]);
      decoder.unpack(block[1], q, a[1], a[3]);
      add_multiply32(dot, a, x.word[i / 2][2 * q], x.word[i / 2][2 * q + 1]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = fma_f32(static_cast<float>(dot[2 * r + i % 2]) * scale[r], x.scale[i], sum[r]);
  }
}

/// 32 channels of a slot.
struct GatedUnit {
  int slot, group;
  LOCKSTEP_DEVICE GatedUnit(int index, int groups) : slot(index / groups), group(index % groups) {}
};

/// The copies of a thread for its part. Pieces are some steps of all rows; the scales come with the first one.
template <int kLanes>
struct GatedCopies {
  static constexpr int kChunks = kPieceSteps * kLanes / 2, kScaleChunks = kLanes / 8,
                       kScales = kGatedSteps * kLanes * 8;
  const std::uint8_t* data;
  int row, chunk, scale_row, scale_at;
  LOCKSTEP_DEVICE explicit GatedCopies(const std::uint8_t* matrix)
      : data(matrix),
        row(thread_index() / kChunks % 8),
        chunk(thread_index() % kChunks * 16),
        scale_row(thread_index() % (kLanes * 8) / kScaleChunks),
        scale_at(kScales + thread_index() % kScaleChunks * 16) {}

  LOCKSTEP_DEVICE void begin(GatedPart<kLanes>& to, std::int64_t place, int piece) const {
    constexpr int kRowBytes = GatedPart<kLanes>::kRowBytes;
    const int at = row * kRowBytes + chunk + piece * (kChunks * 16);
    copy16_once(to.row[0] + at, data + place + at);
    copy16_once(to.row[8] + at, data + place + 8 * kRowBytes + at);
    if (piece > 0 || scale_row >= kGatedRows) return;
    copy16_once(to.row[scale_row] + scale_at, data + place + scale_row * kRowBytes + scale_at);
  }
};

/// By one warp.
template <int kLanes>
LOCKSTEP_DEVICE void finish_unit(const Gated& p, const float (&lane_sum)[2][kGatedChannels][kLanes + 4],
                                 const GatedUnit& unit) {
  const int t = lane_index(), d = unit.group * kGatedChannels + t;
  float value = swiglu_value(fold(lane_sum[0][t], kLanes), fold(lane_sum[1][t], kLanes), p.limit);
  if (p.row_weights != nullptr) value = value * p.row_weights[unit.slot];
  p.out.data[unit.slot * p.out.stride + d] = value;
  round_value(p.rounded, unit.slot, d, value);
}

template <int kLanes>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kGatedThreads<kLanes>, kGatedBlocks) gated_kernel(LOCKSTEP_PARAMETER Gated p) {
  constexpr int kQuads = kLanes / 4, kPartThreads = kQuads * kWarp;
  LOCKSTEP_DYNAMIC_SHARED(Words4, gated_shared);
  auto& shared = *reinterpret_cast<GatedShared<kLanes>*>(gated_shared);
  const int warp = thread_index() / kWarp, quad = warp % kQuads, part = warp / kQuads;
  const int matrix = part % 2, first_row = part / 2 * kGatedRows;
  const int groups = p.gate.rows / kGatedChannels;
  const std::int64_t units = static_cast<std::int64_t>(groups) * p.out.rows;
  const int begin = static_cast<int>(units * block_x() / p.blocks),
            count = static_cast<int>(units * (block_x() + 1) / p.blocks) - begin;
  const auto place_of = [&](int n) {
    const GatedUnit unit(begin + n, groups);
    const std::int64_t plane = static_cast<std::int64_t>(p.expert[unit.slot]) * p.gate.rows;
    return (plane + unit.group * kGatedChannels + first_row) * GatedPart<kLanes>::kRowBytes;
  };
  fill<kGatedThreads<kLanes>>(shared.lookup, *p.gate.tables);
  const GatedDecoder decoder(shared.lookup, *p.gate.tables);
  const GatedCopies<kLanes> copies(matrix == 0 ? p.gate.data : p.up.data);
  wait_for_launch_before();
  let_next_launch_begin();  // the next one may read what was written before this launch: which experts
  const std::int64_t place = place_of(0);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    copies.begin(shared.part[part][0], place, piece);
    end_copy_group();
  }
  GatedInput<kLanes> x;
  int held_slot = begin / groups, held_token = held_slot / p.x_share;  // whose activations `x` holds
  x.load(p.x, held_token * p.x.stride, 4 * quad);
  std::int64_t next_place = count > 1 ? place_of(1) : 0;
  if (warp == 0) swiglu_beside(p);
  block_barrier();
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    if (const int slot = (begin + n) / groups; slot != held_slot) {
      held_slot = slot;
      if (const int token = slot / p.x_share; token != held_token) {
        held_token = token;
        x.load(p.x, token * p.x.stride, 4 * quad);
      }
    }
    // The first unit is multiplied as it comes; what follows is asked for only now, so as not to come between.
    if (n == 0)
      wait_for_copies<kPieces - 1>();
    else
      wait_for_copies<0>();
    part_barrier(part, kPartThreads);
    if (n + 1 < count)
      for (int piece = 0; piece < kPieces; ++piece) copies.begin(shared.part[part][(n + 1) % 2], next_place, piece);
    end_copy_group();
    if (n + 2 < count) next_place = place_of(n + 2);  // known when it is wanted
    const int g = lane_index() / 4;
    const std::uint8_t* row = shared.part[part][n % 2].row[g];
    float sum[2] = {0, 0};
    const auto wait_for_rest = [&]<int kLeft>() {
      if (n > 0) return;
      wait_for_copies<kLeft + 1>();
      part_barrier(part, kPartThreads);
    };
    add_piece<kLanes, 0>(sum, row, quad, x, decoder);
    wait_for_rest.template operator()<2>();
    add_piece<kLanes, 1>(sum, row, quad, x, decoder);
    wait_for_rest.template operator()<1>();
    add_piece<kLanes, 2>(sum, row, quad, x, decoder);
    wait_for_rest.template operator()<0>();
    add_piece<kLanes, 3>(sum, row, quad, x, decoder);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      shared.lane_sum[n % kGatedHeld][matrix][first_row + g + 8 * r][4 * quad + lane_index() % 4] = sum[r];
    const int held = n % kGatedHeld + 1;
    if (held < kGatedHeld && n + 1 < count) continue;
    block_barrier();
    if (warp < held)
      finish_unit<kLanes>(p, shared.lane_sum[warp], GatedUnit(begin + n / kGatedHeld * kGatedHeld + warp, groups));
    if (n + 1 < count) block_barrier();
  }
}

#endif

}  // namespace lockstep::gpu
