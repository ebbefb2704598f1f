// The indexer's scores of many queries: a tile kernel on mma.m16n8k32, and one on WMMA for HIP.
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
//
// With WMMA the keys are the right operand: a thread has one key of each half of the warp's and every second head, so
// that one exchange with the thread 16 lanes away gives it all heads of one key, and nothing goes through shared
// memory. There a query's codes are read from the cache, by every warp for itself.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/index_tile.h"
#include "gpu/int8_mma.h"
#include "gpu/packed_row.h"
#include "gpu/planes.h"

namespace lockstep::gpu {

namespace {

constexpr int kWidth = 128, kHeads = 64, kChains = kWidth / kIndexChain;
constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWarpKeys = 32, kKeys = kWarps * kWarpKeys, kQueries = 16;
constexpr int kOrdinary = 60;

/// A query row as the tile kernel's threads read it.
#if defined(LOCKSTEP_HAS_MMA)
constexpr int kHeadTiles = kHeads / 8;
struct IndexRow {
  Words2 codes[kHeadTiles][kChains][kWarp];  // a thread's part of the right operand
  Floats4 scales[kHeadTiles][kChains][4];    // of heads 2 q and 2 q + 1 of the tile, and these times -12582912
  int is_odd;                                // has what is not ordinary
  int unused[31];
  LOCKSTEP_DEVICE std::int8_t& code(int head, int chain, int value) {
    auto* in = reinterpret_cast<std::int8_t*>(&codes[head / 8][chain][head % 8 * 4 + value % 16 / 4]);
    return in[value / 16 * 4 + value % 4];
  }
  LOCKSTEP_DEVICE void set_scale(int head, int chain, float scale) {
    const int column = head % 8;
    float* in = scales[head / 8][chain][column / 2].value;
    in[column % 2] = scale;
    in[column % 2 + 2] = -kMagic * scale;
  }
};
#else
constexpr int kHeadTiles = kHeads / 16;
struct IndexRow {
  Words4 codes[kHeadTiles][kChains][2][16];   // a thread's two left operands
  Floats4 scales[kHeadTiles][kChains][2][2];  // of the even heads, then of the odd ones
  int is_odd;                                 // has what is not ordinary
  int unused[31];
  LOCKSTEP_DEVICE std::int8_t& code(int head, int chain, int value) {
    return reinterpret_cast<std::int8_t*>(&codes[head / 16][chain][value / 16][head % 16])[value % 16];
  }
  LOCKSTEP_DEVICE void set_scale(int head, int chain, float scale) {
    scales[head / 16][chain][head % 2][head % 16 / 8].value[head % 8 / 2] = scale;
  }
};
#endif

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
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    const std::uint32_t most = warp_max(magnitude_bits(x[chain]));
    // The greatest value's own exponent, which may be smaller than the one that the block was rounded by.
    const int exponent = most == 0 ? 0 : fp4_exponent(most);
    const bool is_ordinary = exponent >= -kOrdinary && exponent <= kOrdinary;
    const float doubled = is_ordinary ? x[chain] * power_of_two(1 - exponent) : 0.0f;
    const int code = round_to_int(doubled);
    if (!is_ordinary || static_cast<float>(code) != doubled) out[row].is_odd = 1;
    out[row].code(head, chain, lane) = static_cast<std::int8_t>(code);
    if (lane == 0) out[row].set_scale(head, chain, power_of_two(is_ordinary ? exponent - 1 : 0));
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

#if defined(LOCKSTEP_HAS_MMA)

constexpr int kHalf = kHeads / 2, kPitch = kHalf + 4;  // heads whose dots lie in shared memory at a time

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

constexpr std::size_t kSharedBytes = sizeof(IndexShared);

#else

constexpr std::size_t kSharedBytes = 0;

/// Grid: tiles of keys, tiles of queries. Warps have nothing to do with each other.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2)
    index_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, int rows, float* scores,
                 const IndexRow* coded, PackedRows layout) {
  follow_launch();
  const int lane = lane_index(), half = lane / 16, column = lane % 16;
  const int first_key = block_x() * kKeys + thread_index() / kWarp * kWarpKeys, first = block_y() * kQueries;
  const int last = first + kQueries < rows ? first + kQueries : rows;
  const SequenceSlice* slice = nullptr;
  Words4 codes[2][kChains][2] = {};  // of keys `column` and 16 + `column`: right operands
  float key_scales[2][kChains] = {};
  bool are_odd = false;  // the same in the whole warp
  const auto key_at = [&](std::int64_t c) {
    return bytes_of(slice->key_pages[c / kPageRows]) + c % kPageRows * layout.key_bytes;
  };
  const auto read_keys = [&](std::int64_t there) {
    std::uint32_t is_odd = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::int64_t c = first_key + column + 16 * k;
      const std::uint8_t* key = key_at(c < there ? c : there - 1);
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const auto* levels = reinterpret_cast<const std::uint16_t*>(key + chain * (kIndexChain / 2));
        std::uint32_t all = 0;
#pragma unroll
        for (int word = 0; word < 8; ++word) {
          all |= levels[word];
          codes[k][chain][word / 4].word[word % 4] = Format<DType::mxfp4>::levels_of(levels[word]);
        }
        const int exponent = e8m0_to_exponent(key[kWidth / 2 + chain]);
        const bool is_ordinary = exponent >= -kOrdinary && exponent <= kOrdinary;
        key_scales[k][chain] = power_of_two(is_ordinary ? exponent - 1 : 0);
        if (!is_ordinary && (exponent == kBadExponent || (all & 0x7777u) != 0)) is_odd = 1;
      }
    }
    are_odd = warp_max(is_odd) != 0;
  };
#pragma unroll 1
  for (int wave_row = first; wave_row < last; ++wave_row) {
    const int i = first_row + wave_row;
    const SequenceSlice* of_row = &slice_of(slices, slice_count, i);
    const std::int64_t visible = visible_rows(of_row->begin + i - of_row->first_row, call.ratio);
    if (visible <= call.top_k || first_key >= visible) continue;  // it need not choose, or sees none of these keys
    if (of_row != slice) {
      slice = of_row;
      read_keys(visible_rows(slice->begin + slice->rows - 1, call.ratio));
    }
    const float* weights = call.head_weights.data + i * call.head_weights.stride;
    float* const to = scores + static_cast<std::int64_t>(wave_row) * call.bound + first_key + lane;
    const IndexRow& row = coded[wave_row];
    const std::int64_t left = visible - first_key;
    if (are_odd || row.is_odd != 0) {
      if (lane < left)
        *to = plain_score(call.queries.data + i * call.queries.stride, weights, key_at(first_key + lane), layout);
      continue;
    }
    float score = 0;
#pragma unroll 1
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      float total[2][8] = {};
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const Words4 low = row.codes[tile][chain][0][column], high = row.codes[tile][chain][1][column];
        const Floats4 scales[2] = {row.scales[tile][chain][half][0], row.scales[tile][chain][half][1]};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const Dots dots = add_products(high, codes[k][chain][1], add_products(low, codes[k][chain][0], magic_dots()));
          const float scale = key_scales[k][chain], start = -kMagic * scale;
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const float scaled = fma_f32(magic_float(dots.value[e]), scale, start);
            total[k][e] = fma_f32(scaled, scales[e / 4].value[e % 4], total[k][e]);
          }
        }
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) {  // a thread keeps its own half's key, and gets what the other half has of it
        const float other = shuffle_xor(half == 0 ? total[1][e] : total[0][e], 16),
                    own = half == 0 ? total[0][e] : total[1][e];
        const float even = half == 0 ? own : other, odd = half == 0 ? other : own;
        score = fma_f32(weights[tile * 16 + 2 * e], even > 0 ? even : 0.0f, score);
        score = fma_f32(weights[tile * 16 + 2 * e + 1], odd > 0 ? odd : 0.0f, score);
      }
    }
    if (lane < left) *to = score;
  }
}

#endif

}  // namespace

void prepare_index_tiles(Runtime& runtime) {
  if (kSharedBytes > 0) runtime.allow_shared(reinterpret_cast<const void*>(&index_kernel), kSharedBytes);
}

bool can_tile_index(const Runtime& runtime, const SelectCall& call, const PackedRows& layout) {
  return kSharedBytes <= runtime.most_shared_bytes() && !layout.is_plain && layout.key_width == kWidth &&
         call.head_weights.width == kHeads && layout.key_bytes % 2 == 0;
}

std::size_t index_row_bytes() { return sizeof(IndexRow); }

void score_index_tiles(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                       float* scores, std::byte* room, const PackedRows& layout) {
  auto* const coded = reinterpret_cast<IndexRow*>(room);
  launch(runtime, even_kernel, {blocks_for(rows, kThreads)}, kThreads, 0, coded, rows);
  launch(runtime, code_kernel, {blocks_for(static_cast<std::int64_t>(rows) * kHeads, kWarps)}, kThreads, 0, coded, call,
         slices.memory, slices.size(), first_row, rows);
  launch(runtime, index_kernel, {blocks_for(call.bound, kKeys), blocks_for(rows, kQueries)}, kThreads, kSharedBytes,
         call, slices.memory, slices.size(), first_row, rows, scores, coded, layout);
}

}  // namespace lockstep::gpu
