// The indexer's scores of many queries: a tile kernel on mma.m16n8k32.
//
// In official mode queries and keys are fp4 in blocks of 32 channels: small integers times powers of two. A chain of
// the law (kIndexChain) is one such block, whose sum of at most 4608 units is exact whatever the order, so an int8 dot
// makes it; what is rounded is the sum of chains, here as there. Exact as long as the units are ordinary floats: a warp
// whose keys, or a query whose codes, are not (beyond 2^60 either way, not finite, or no fp4 at all) goes through the
// literal loop.
//
// A warp holds 32 keys, decoded once, as its left operand, and takes the queries of its tile one after the other. A dot
// starts from 0x4B400000 (tile.cu), so that two fmas scale a chain and add it. Then the heads are added in order, a
// thread a key. Work of a query and key: 64 heads x 4 chains x 2 fmas and about 6 instructions a head besides.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/index_tile.h"
#include "gpu/int8_mma.h"
#include "gpu/packed_row.h"
#include "gpu/planes.h"

namespace lockstep::gpu {

#if !defined(LOCKSTEP_HAS_TILES)

void prepare_index_tiles(Runtime&) {}
bool can_tile_index(const Runtime&, const SelectCall&, const PackedRows&) { return false; }
std::size_t index_row_bytes() { return 0; }
void score_index_tiles(Runtime&, const SelectCall&, const Slices&, int, int, float*, std::byte*, const PackedRows&) {}

#else

namespace {

constexpr int kWidth = 128, kHeads = 64, kChains = kWidth / kIndexChain, kHeadTiles = kHeads / 8;
constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWarpKeys = 32, kKeys = kWarps * kWarpKeys, kQueries = 16;
constexpr int kHalf = kHeads / 2, kPitch = kHalf + 4;  // heads whose dots lie in shared memory at a time
constexpr int kOrdinary = 60;

/// A query row as the tile kernel's threads read it.
struct IndexRow {
  Words2 codes[kHeadTiles][kChains][kWarp];  // a thread's part of the right operand
  Floats4 scales[kHeadTiles][kChains][4];    // of heads 2 q and 2 q + 1 of the tile, and these times -12582912
  int is_odd;                                // has what is not ordinary
  int unused[31];
};

/// A warp a head, of the rows that have to choose.
LOCKSTEP_KERNEL void code_kernel(IndexRow* out, SelectCall call, const SequenceSlice* slices, int slice_count,
                                 int first_row, int rows) {
  follow_launch();
  const int item = (block_x() * block_threads() + thread_index()) / kWarp, lane = lane_index();
  const int row = item / kHeads, head = item % kHeads, i = first_row + row;
  if (row >= rows) return;
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  if (visible_rows(slice.begin + i - slice.first_row, call.ratio) <= call.top_k) return;
  const float* from = call.queries.data + i * call.queries.stride + head * kWidth + lane;
  float x[kChains];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) x[chain] = from[chain * kIndexChain];
  const int tile = head / 8, column = head % 8;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    const std::uint32_t most = warp_max(magnitude_bits(x[chain]));
    // The greatest value's own exponent, which may be smaller than the one that the block was rounded by.
    const int exponent = most == 0 ? 0 : fp4_exponent(most);
    const bool is_ordinary = exponent >= -kOrdinary && exponent <= kOrdinary;
    const float doubled = is_ordinary ? x[chain] * power_of_two(1 - exponent) : 0.0f;
    const int code = round_to_int(doubled);
    if (!is_ordinary || static_cast<float>(code) != doubled) out[row].is_odd = 1;
    auto* codes = reinterpret_cast<std::int8_t*>(&out[row].codes[tile][chain][column * 4 + lane % 16 / 4]);
    codes[lane / 16 * 4 + lane % 4] = static_cast<std::int8_t>(code);
    if (lane == 0) {
      const float scale = power_of_two(is_ordinary ? exponent - 1 : 0);
      float* scales = out[row].scales[tile][chain][column / 2].value;
      scales[column % 2] = scale;
      scales[column % 2 + 2] = -kMagic * scale;
    }
  }
}

LOCKSTEP_KERNEL void even_kernel(IndexRow* out, int rows) {
  follow_launch();
  const int row = block_x() * block_threads() + thread_index();
  if (row < rows) out[row].is_odd = 0;
}

/// The literal loop: one key by one query.
LOCKSTEP_DEVICE float plain_score(const float* query, const float* weights, const std::uint8_t* key,
                                  const PackedRows& layout) {
  float score = 0;
  for (int h = 0; h < kHeads; ++h) {
    float total = 0;
    for (int begin = 0; begin < kWidth; begin += kIndexChain) {
      float sum = 0;
      for (int d = begin; d < begin + kIndexChain; ++d)
        sum = fma_f32(query[h * kWidth + d], key_value(key, d, layout), sum);
      total = begin == 0 ? sum : total + sum;
    }
    score = fma_f32(weights[h], total > 0 ? total : 0.0f, score);
  }
  return score;
}

/// What a warp holds of its keys: rows group, group + 8, group + 16, group + 24 of a thread.
struct Keys {
  std::uint32_t code[2][kChains][4];  // fragments of 16 keys
  float scale[4][kChains];
  bool is_odd;  // the same in the whole warp
};

struct IndexShared {
  float dots[kWarps][kWarpKeys][kPitch];
  IndexRow rows[2];  // this query's and the next one's
  float weights[2][kHeads];
};

/// Grid: tiles of keys, tiles of queries.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2)
    index_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, int rows, float* scores,
                 const IndexRow* coded, PackedRows layout) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Words4, index_shared);
  auto& shared = *reinterpret_cast<IndexShared*>(index_shared);
  const int t = thread_index(), warp = t / kWarp, lane = lane_index(), group = lane / 4, quad = lane % 4;
  const int first_key = block_x() * kKeys + warp * kWarpKeys, first = block_y() * kQueries;
  const SequenceSlice* slice = nullptr;
  Keys keys = {};
  const auto key_at = [&](std::int64_t c) {
    return bytes_of(slice->key_pages[c / kPageRows]) + c % kPageRows * layout.key_bytes;
  };
  std::int64_t there = 0;  // keys of the slice
  const auto read_keys = [&] {
    std::uint32_t is_odd = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t c = first_key + group + 8 * k;
      const std::uint8_t* key = key_at(c < there ? c : there - 1);
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const auto* codes = reinterpret_cast<const std::uint16_t*>(key + chain * (kIndexChain / 2));
        const std::uint32_t low = codes[quad], high = codes[4 + quad];
        keys.code[k / 2][chain][k % 2] = Format<DType::mxfp4>::levels_of(low);
        keys.code[k / 2][chain][k % 2 + 2] = Format<DType::mxfp4>::levels_of(high);
        const int exponent = e8m0_to_exponent(key[kWidth / 2 + chain]);
        const bool is_ordinary = exponent >= -kOrdinary && exponent <= kOrdinary;
        keys.scale[k][chain] = power_of_two(is_ordinary ? exponent - 1 : 0);
        if (!is_ordinary && (exponent == kBadExponent || ((low | high) & 0x7777u) != 0)) is_odd = 1;
      }
    }
    keys.is_odd = warp_max(is_odd) != 0;
  };
  const auto visible_at = [&](int wave_row) {
    const int i = first_row + wave_row;
    const SequenceSlice& of_row = slice_of(slices, slice_count, i);
    return visible_rows(of_row.begin + i - of_row.first_row, call.ratio);
  };
  const int last = first + kQueries < rows ? first + kQueries : rows;
  const auto next_from = [&](int wave_row) {  // that has to choose and sees a key of this block
    for (; wave_row < last; ++wave_row) {
      const std::int64_t visible = visible_at(wave_row);
      if (visible > call.top_k && block_x() * kKeys < visible) break;
    }
    return wave_row;
  };
  const auto fetch = [&](int wave_row, int buffer) {
    auto* const to = reinterpret_cast<Words4*>(&shared.rows[buffer]);
    const auto* from = reinterpret_cast<const Words4*>(coded + wave_row);
    for (int unit = t; unit < static_cast<int>(sizeof(IndexRow) / sizeof(Words4)); unit += kThreads)
      copy16(to + unit, from + unit);
    if (t < kHeads)
      copy4(&shared.weights[buffer][t], call.head_weights.data + (first_row + wave_row) * call.head_weights.stride + t);
  };
  int wave_row = next_from(first), buffer = 0;
  if (wave_row < last) fetch(wave_row, buffer);
  end_copy_group();
  for (int next; wave_row < last; wave_row = next, buffer ^= 1) {
    wait_for_copies<0>();
    block_barrier();
    next = next_from(wave_row + 1);
    if (next < last) fetch(next, buffer ^ 1);
    end_copy_group();
    const int i = first_row + wave_row;
    const std::int64_t visible = visible_at(wave_row);
    if (first_key >= visible) continue;
    if (const SequenceSlice* of_row = &slice_of(slices, slice_count, i); of_row != slice) {
      slice = of_row;
      there = visible_rows(slice->begin + slice->rows - 1, call.ratio);
      read_keys();
    }
    const float* weights = shared.weights[buffer];
    float* const to = scores + static_cast<std::int64_t>(wave_row) * call.bound + first_key + lane;
    const IndexRow& row = shared.rows[buffer];
    const std::int64_t left = visible - first_key;
    if (keys.is_odd || row.is_odd != 0) {
      if (lane < left)
        *to = plain_score(call.queries.data + i * call.queries.stride, weights, key_at(first_key + lane), layout);
      continue;
    }
    float(*const mine)[kPitch] = shared.dots[warp];
    float score = 0;
#pragma unroll 1
    for (int first_head = 0; first_head < kHeads; first_head += kHalf) {
#pragma unroll 2
      for (int tile = 0; tile < kHalf / 8; ++tile) {
        float total[2][4] = {};
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) {
          const Words2 codes = row.codes[first_head / 8 + tile][chain][lane];
          const Floats4 scale = row.scales[first_head / 8 + tile][chain][quad];
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            int dot[4];
            multiply32(dot, keys.code[m][chain], codes.word[0], codes.word[1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float scaled = fma_f32(magic_float(dot[e]), scale.value[e % 2], scale.value[e % 2 + 2]);
              total[m][e] = fma_f32(scaled, keys.scale[2 * m + e / 2][chain], total[m][e]);
            }
          }
        }
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            *reinterpret_cast<Words2*>(&mine[m * 16 + r * 8 + group][tile * 8 + quad * 2]) = {
                {bits_of(total[m][2 * r]), bits_of(total[m][2 * r + 1])}};
      }
      warp_barrier();
#pragma unroll
      for (int h = 0; h < kHalf; h += 4) {
        const Floats4 dot = *reinterpret_cast<const Floats4*>(&mine[lane][h]);
        const Floats4 weight = *reinterpret_cast<const Floats4*>(weights + first_head + h);
#pragma unroll
        for (int e = 0; e < 4; ++e) score = fma_f32(weight.value[e], dot.value[e] > 0 ? dot.value[e] : 0.0f, score);
      }
      warp_barrier();
    }
    if (lane < left) *to = score;
  }
}

}  // namespace

void prepare_index_tiles(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&index_kernel), sizeof(IndexShared));
}

bool can_tile_index(const Runtime& runtime, const SelectCall& call, const PackedRows& layout) {
  return sizeof(IndexShared) <= runtime.most_shared_bytes() && !layout.is_plain && layout.key_width == kWidth &&
         call.head_weights.width == kHeads && layout.key_bytes % 2 == 0;
}

std::size_t index_row_bytes() { return sizeof(IndexRow); }

void score_index_tiles(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                       float* scores, std::byte* room, const PackedRows& layout) {
  auto* const coded = reinterpret_cast<IndexRow*>(room);
  launch(runtime, even_kernel, {blocks_for(rows, kThreads)}, kThreads, 0, coded, rows);
  launch(runtime, code_kernel, {blocks_for(static_cast<std::int64_t>(rows) * kHeads, kWarps)}, kThreads, 0, coded, call,
         slices.memory, slices.size(), first_row, rows);
  launch(runtime, index_kernel, {blocks_for(call.bound, kKeys), blocks_for(rows, kQueries)}, kThreads,
         sizeof(IndexShared), call, slices.memory, slices.size(), first_row, rows, scores, coded, layout);
}

#endif

}  // namespace lockstep::gpu
