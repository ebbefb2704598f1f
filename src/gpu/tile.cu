// Many tokens by quantised weights: the order of the walk, and, for CUDA, a tile kernel on mma.m16n8k32 and k16, whose
// int32 sums are exact (for HIP: tile_wmma.cu).
//
// A block of 256 threads makes 128 rows x 64 tokens, a warp 32 x 32; or 128 x 128, a warp 64 x 32. The row is walked in
// the law's order, lane by lane and column by column (numerics/order.h), four blocks a stage, so that one open sum of
// each kind is enough. An int32 sum that starts from 0x4B400000 has the bits of the float 12582912 + dot; where one
// scale is for all 32 values, one fma with -12582912 * scale, which is exact, gives float(dot) * scale rounded once,
// but for the sign of a zero. A sum that is not zero cannot tell the zeros among its terms apart, so it has the law's
// bits; outputs that are zero are named in a list, and the matrix-vector kernels' order makes them again.
// docs/numerics.md has what the order costs.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/tile_parts.h"
#include "numerics/order.h"

namespace lockstep::gpu {
namespace {

constexpr int kSortThreads = 1024;

/// One block: counts, running sums, places. Which slot of an expert comes first depends on timing and decides nothing
/// but which row of which tile it is.
LOCKSTEP_KERNEL void sort_kernel(ExpertSort sort, const std::int32_t* expert, int slots, int experts, int tile_tokens) {
  follow_launch();
  static_assert(kMostSortExperts <= kSortThreads);
  LOCKSTEP_SHARED int next[kMostSortExperts];  // counts, then places
  LOCKSTEP_SHARED int slots_to[kMostSortExperts];
  LOCKSTEP_SHARED int tiles_to[kMostSortExperts];  // of all experts up to this one
  const int t = thread_index();
  if (t < experts) next[t] = 0;
  block_barrier();
  for (int s = t; s < slots; s += kSortThreads) atomic_add(&next[expert[s]], 1);
  block_barrier();
  const int count = t < experts ? next[t] : 0, tiles = (count + tile_tokens - 1) / tile_tokens;
  if (t < experts) {
    slots_to[t] = count;
    tiles_to[t] = tiles;
  }
  block_barrier();
  for (int step = 1; step < experts; step *= 2) {
    const bool has_before = t >= step && t < experts;
    const int slots_before = has_before ? slots_to[t - step] : 0, tiles_before = has_before ? tiles_to[t - step] : 0;
    block_barrier();
    if (has_before) {
      slots_to[t] += slots_before;
      tiles_to[t] += tiles_before;
    }
    block_barrier();
  }
  if (t < experts) {
    const int first_slot = slots_to[t] - count, first_tile = tiles_to[t] - tiles;
    next[t] = sort.first_slot[t] = first_slot;
    sort.first_tile[t] = first_tile;
    sort.used[t] = count;
    for (int tile = first_tile; tile < first_tile + tiles; ++tile) sort.tile_expert[tile] = t;
    if (t + 1 == experts) {
      sort.first_slot[experts] = slots_to[t];
      sort.first_tile[experts] = tiles_to[t];
    }
  }
  block_barrier();
  for (int s = t; s < slots; s += kSortThreads) sort.order[atomic_add(&next[expert[s]], 1)] = s;
}

/// A thread a half of a block.
LOCKSTEP_KERNEL void walk_rows_kernel(WalkedRows out, Rounded x, int width, Walk walk) {
  follow_launch();
  const int halves = width / 16, group = block_y(), groups = x.width / width;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const std::int64_t row = item / halves;
  const int place = static_cast<int>(item % halves) / 2, h = static_cast<int>(item % 2);
  if (row >= x.rows || group >= groups) return;
  const std::int64_t from = row * x.stride + group * width + walk.block_at(place) * kBlock;
  *reinterpret_cast<Words4*>(out.codes + (static_cast<std::int64_t>(group) * x.rows + row) * width + place * kBlock +
                             16 * h) = *reinterpret_cast<const Words4*>(x.codes + from + 16 * h);
  if (h != 0) return;
  const std::int64_t stage = group * (width / kStageBytes) + place / kStageBlocks;
  const std::int64_t to = (stage * x.rows + row) * kStageBlocks + place % kStageBlocks;
  out.scales[to] = x.scales[from / kBlock];
  out.half_sums[to] = *reinterpret_cast<const std::uint32_t*>(x.half_sums + from / 16);
}

}  // namespace

void sort_by_expert(Runtime& runtime, const ExpertSort& sort, const std::int32_t* expert, int slots, int experts,
                    int tile_tokens) {
  LOCKSTEP_CHECK(experts <= kMostSortExperts);
  launch(runtime, sort_kernel, {1}, kSortThreads, 0, sort, expert, slots, experts, tile_tokens);
}

Walk walk_of(int width) {
  const int chunk = width < kChunk ? width : kChunk, lanes = block_lanes_of(chunk), blocks = chunk / kBlock;
  return {lanes, blocks / lanes, lanes / kColumns, blocks};
}

WalkedRows walk_rows(Runtime& runtime, std::byte* room, const Rounded& x, int width) {
  const std::size_t values = static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(x.width);
  WalkedRows out;
  out.codes = reinterpret_cast<std::int8_t*>(room);
  out.scales = reinterpret_cast<float*>(room + values);
  out.half_sums = reinterpret_cast<std::uint32_t*>(out.scales + values / kBlock);
  out.rows = x.rows;
  launch(runtime, walk_rows_kernel,
         {blocks_for(static_cast<std::int64_t>(x.rows) * (width / 16), 256), static_cast<unsigned>(x.width / width)},
         256, 0, out, x, width, walk_of(width));
  return out;
}

bool can_tile(const Runtime& runtime, Kind kind, bool has_min, int width, int rows_a_group) {
  if (width % (kBlock * kColumns) != 0 || (width > kChunk && width % kChunk != 0)) return false;
  if (tile_shared_bytes(kind, has_min, width) > runtime.most_shared_bytes()) return false;
  const Walk walk = walk_of(width);
  return walk.chunk_blocks % walk.lanes == 0 && rows_a_group % kTileRows == 0;
}

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kStages = 2;
constexpr int kManyTokens = 128;  // of a tile that is no expert's
/// 16-row tiles of a warp.
LOCKSTEP_HOST_DEVICE constexpr int row_tiles_of(int tokens) { return tokens == kManyTokens ? 4 : 2; }
constexpr int kThreads = 256, kTokenTiles = 4;  // kTokenTiles: 8-token tiles of a warp
/// Outputs of a thread.
LOCKSTEP_HOST_DEVICE constexpr int outputs_of(int tokens) { return row_tiles_of(tokens) * kTokenTiles * 4; }

template <Kind kKind, bool kHasMin, int kTokens>
struct Stage {
  static constexpr int kWords = scale_words(kKind, kHasMin);
  std::uint8_t weights[kTileRows * kStageBytes];
  std::uint8_t tokens[kTokens * kStageBytes];
  std::uint32_t scales[kWords][kTileRows][kStageBlocks];
  float token_scales[kTokens][kStageBlocks];
  std::uint32_t half_sums[kTokens][kStageBlocks];  // pairs of int16
};

/// kIsWhole: lanes are whole stages, as in all rows from 1024 values on, so that nothing is asked between two blocks.
template <Kind kKind, bool kHasMin, int kTokens, bool kIsWhole>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2 * kTileTokens / kTokens) tile_kernel(LOCKSTEP_PARAMETER Tile tile) {
  follow_launch();
  using S = Stage<kKind, kHasMin, kTokens>;
  constexpr int kWords = S::kWords, kCopyRows = kThreads / 8, kRowTiles = row_tiles_of(kTokens),
                kOutputs = outputs_of(kTokens);
  LOCKSTEP_DYNAMIC_SHARED(SharedBytes, shared);
  S* const stages = reinterpret_cast<S*>(shared);
  // Sums that are touched once a column or once a chunk: of columns, and, in rows of several chunks, of chunks. A
  // thread reads and writes its own.
  Floats4* const total = reinterpret_cast<Floats4*>(shared + kStages * sizeof(S)) + thread_index();
  Floats4* const sum = total + kOutputs / 4 * kThreads;
  LOCKSTEP_SHARED int slots[kTokens];  // output rows
  const TileCall& call = tile.call;
  const int t = thread_index(), warp = t / kWarp, lane_id = lane_index(), group = lane_id / 4, quad = lane_id % 4;
  const int first_row = block_y() * kTileRows;

  std::int64_t plane;
  int tokens;
  if (!find_outputs(tile, slots, plane, tokens)) return;
  block_barrier();
  const int blocks = call.width / kBlock, all_stages = blocks / kStageBlocks;
  const std::int64_t plane_row = plane * call.rows;
  const int x_group = call.rows_a_group > 0 ? first_row / call.rows_a_group : 0;

  // What this thread copies: one 16-byte unit of some rows and of two tokens, words of scales.
  const int unit = t % 8;
  constexpr int kRowCopies = kTileRows / kCopyRows, kTokenCopies = kTokens / kCopyRows;
  std::uint32_t row_from[kRowCopies],
      token_from[kTokenCopies];  // what is unpacked at a time, and a step's rounded rows, are below 4 GB
#pragma unroll
  for (int i = 0; i < kRowCopies; ++i)
    row_from[i] = static_cast<std::uint32_t>(
        (plane_row + min(first_row + t / 8 + i * kCopyRows, call.rows - 1)) * call.width + unit * 16);
#pragma unroll
  for (int i = 0; i < kTokenCopies; ++i)
    token_from[i] = static_cast<std::uint32_t>(
        (static_cast<std::int64_t>(x_group) * call.x.rows + slots[t / 8 + i * kCopyRows] / call.x_share) * call.width +
        unit * 16);
  // Some threads copy scales of weights, others those of tokens and, if they are needed, sums of codes.
  const bool is_weight = t < kTileRows, is_scale = !is_weight && t < kTileRows + kTokens;
  const int scaled = is_weight ? t : (t - kTileRows) % kTokens;
  const std::int64_t scale_row =
      is_weight ? plane_row + min(first_row + scaled, call.rows - 1)
                : static_cast<std::int64_t>(x_group) * all_stages * call.x.rows + slots[scaled] / call.x_share;

  const auto fetch = [&](int stage) {
    S& to = stages[stage % kStages];
    const int at = stage * kStageBytes;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i)
      copy16(to.weights + swizzled(t / 8 + i * kCopyRows, unit), call.w.codes + (row_from[i] + at));
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i)
      copy16(to.tokens + swizzled(t / 8 + i * kCopyRows, unit), call.x.codes + (token_from[i] + at));
    if (is_weight) {
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        copy16(
            to.scales[w][scaled],
            call.w.scales + ((static_cast<std::int64_t>(stage) * kWords + w) * call.w.rows + scale_row) * kStageBlocks);
    } else {
      const std::int64_t from = (static_cast<std::int64_t>(stage) * call.x.rows + scale_row) * kStageBlocks;
      if (is_scale) copy16(to.token_scales[scaled], call.x.scales + from);
      // With few tokens the last threads have nothing else to do; with many, these do both.
      if (kHasMin && (kTokens == kManyTokens || !is_scale)) copy16(to.half_sums[scaled], call.x.half_sums + from);
    }
  };

  float lane[kOutputs] = {}, column_sum[kOutputs] = {};
  const bool has_chunks = blocks > tile.walk.chunk_blocks;
  const bool has_one =
      tile.walk.column_lanes == 1;  // then `column_sum` is the sum of the columns, and there is one chunk
  int in_lane = 0, in_column = 0, in_chunk = 0, chunks = 0;
  const auto end_blocks = [&](int blocks_done) {
    in_lane += blocks_done;
    if (in_lane < tile.walk.lane_blocks) return;
    in_lane = 0;
    const bool is_first = (has_one ? in_chunk : in_column) == 0;
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      column_sum[j] = is_first ? lane[j] : column_sum[j] + lane[j];
      lane[j] = 0;
    }
    if (has_one) {
      ++in_chunk;
      return;
    }
    if (++in_column < tile.walk.column_lanes) return;
    in_column = 0;
#pragma unroll
    for (int j = 0; j < kOutputs; j += 4) {
      Floats4 to = total[j / 4 * kThreads];
#pragma unroll
      for (int e = 0; e < 4; ++e) to.value[e] = in_chunk == 0 ? column_sum[j + e] : to.value[e] + column_sum[j + e];
      total[j / 4 * kThreads] = to;
    }
    if (++in_chunk < kColumns) return;
    in_chunk = 0;
    if (!has_chunks) return;
#pragma unroll
    for (int j = 0; j < kOutputs / 4; ++j) {
      const Floats4 from = total[j * kThreads];
      Floats4 to = sum[j * kThreads];
#pragma unroll
      for (int e = 0; e < 4; ++e) to.value[e] = chunks == 0 ? from.value[e] : to.value[e] + from.value[e];
      sum[j * kThreads] = to;
    }
    ++chunks;
  };

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < all_stages) fetch(stage);
    end_copy_group();
  }
  [[maybe_unused]] constexpr int kUnrolled =
      kIsWhole && kTokens != kManyTokens ? 2 : kStageBlocks;  // more, and registers spill
  const int warp_row = warp / (kTokens / 32) * (16 * kRowTiles), warp_token = warp % (kTokens / 32) * 32;
  for (int stage = 0; stage < all_stages; ++stage) {
    wait_for_copies<kStages - 2>();
    block_barrier();
    if (stage + kStages - 1 < all_stages) fetch(stage + kStages - 1);
    end_copy_group();
    const S& from = stages[stage % kStages];
    const std::uint32_t a_from = shared_address(from.weights) + swizzled(warp_row + lane_id % 16, lane_id / 16);
    const std::uint32_t b_from =
        shared_address(from.tokens) + swizzled(warp_token + lane_id % 8 + lane_id / 16 * 8, lane_id / 8 % 2);
#pragma unroll kUnrolled
    for (int i = 0; i < kStageBlocks; ++i) {
      if (kTokens == kManyTokens && i > 0)
        warp_barrier();  // or later blocks' operands are loaded until registers spill
      std::uint32_t a[kRowTiles][4], b[kTokenTiles][2];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], (a_from ^ (i * 32)) + m * 16 * kStageBytes);
#pragma unroll
      for (int n = 0; n < kTokenTiles; n += 2) {
        std::uint32_t both[4];
        load_matrices(both, (b_from ^ (i * 32)) + n * 8 * kStageBytes);
        b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
      }
      std::uint32_t scale[2 * kRowTiles][kWords];
#pragma unroll
      for (int h = 0; h < 2 * kRowTiles; ++h)
#pragma unroll
        for (int w = 0; w < kWords; ++w) scale[h][w] = from.scales[w][warp_row + h * 8 + group][i];
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const int at = warp_token + n * 8 + quad * 2;
        const float token_scale[2] = {from.token_scales[at][i], from.token_scales[at + 1][i]};
        float code_sum[2] = {}, half_sum[2][2] = {};
        if constexpr (kHasMin) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const std::uint32_t pair = from.half_sums[at + e][i];
            if constexpr (kKind == Kind::halves || kKind == Kind::folded) {
              half_sum[e][0] = exact_float(low_half(pair));
              half_sum[e][1] = exact_float(high_half(pair));
            } else {
              code_sum[e] = exact_float(low_half(pair) + high_half(pair));
            }
          }
        }
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          int dot[4], second[4];
          if constexpr (kKind == Kind::single || kKind == Kind::folded) {
            multiply32(dot, a[m], b[n][0], b[n][1]);
          } else {
            multiply16(dot, a[m][0], a[m][1], b[n][0]);
            multiply16(second, a[m][2], a[m][3], b[n][1]);
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int h = m * 2 + e / 2, j = (n * kRowTiles + m) * 4 + e;
            const float term = term_of<kKind, kHasMin>(dot[e], second[e], scale[h],
                                                       kKind == Kind::single ? code_sum[e % 2] : half_sum[e % 2][0],
                                                       half_sum[e % 2][1]);
            lane[j] = fma_f32(term, token_scale[e % 2], lane[j]);
          }
        }
      }
      if constexpr (!kIsWhole) end_blocks(1);
    }
    if constexpr (kIsWhole) end_blocks(kStageBlocks);
  }

#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    const int n = j / 4 / kRowTiles, m = j / 4 % kRowTiles, e = j % 4;
    const int row = first_row + warp_row + m * 16 + e / 2 * 8 + group, token = warp_token + n * 8 + quad * 2 + e % 2;
    if (row >= call.rows || token >= tokens) continue;
    const float value = has_one ? column_sum[j] : (has_chunks ? sum : total)[j / 4 * kThreads].value[j % 4];
    call.out.data[slots[token] * call.out.stride + row] = value;
    if (value == 0) name_zero(call, slots[token], row);
  }
}

template <Kind kKind, bool kHasMin, int kTokens = kTileTokens>
constexpr std::size_t shared_bytes(int sets) {
  return kStages * sizeof(Stage<kKind, kHasMin, kTokens>) +
         sizeof(float) * static_cast<std::size_t>(sets * outputs_of(kTokens) * kThreads);
}

int sets_of(int width) { return width > kChunk ? 2 : 1; }

template <Kind kKind, bool kHasMin, int kTokens, bool kIsWhole>
void start(Runtime& runtime, const Tile& tile) {
  const TileCall& call = tile.call;
  const std::int64_t tiles =
      tile.is_sorted ? most_tiles(call.out.rows, call.planes) : (call.out.rows + kTokens - 1) / kTokens;
  launch(runtime, tile_kernel<kKind, kHasMin, kTokens, kIsWhole>,
         {static_cast<unsigned>(tiles), blocks_for(call.rows, kTileRows)}, kThreads,
         shared_bytes<kKind, kHasMin, kTokens>(sets_of(call.width)), tile);
}

/// Wide tiles read less; there have to be enough of them for the multiprocessors.
template <Kind kKind, bool kHasMin>
void start(Runtime& runtime, const Tile& tile) {
  const TileCall& call = tile.call;
  if (tile.walk.lane_blocks % kStageBlocks != 0) return start<kKind, kHasMin, kTileTokens, false>(runtime, tile);
  const int tiles =
      (call.out.rows + kManyTokens - 1) / kManyTokens * static_cast<int>(blocks_for(call.rows, kTileRows));
  if (!tile.is_sorted && tiles >= runtime.multiprocessors() &&
      shared_bytes<kKind, kHasMin, kManyTokens>(sets_of(call.width)) + kManyTokens * sizeof(int) <=
          runtime.most_shared_bytes())
    return start<kKind, kHasMin, kManyTokens, true>(runtime, tile);
  start<kKind, kHasMin, kTileTokens, true>(runtime, tile);
}

template <Kind kKind, bool kHasMin>
void allow(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&tile_kernel<kKind, kHasMin, kTileTokens, false>),
                       shared_bytes<kKind, kHasMin, kTileTokens>(2));
  runtime.allow_shared(reinterpret_cast<const void*>(&tile_kernel<kKind, kHasMin, kTileTokens, true>),
                       shared_bytes<kKind, kHasMin, kTileTokens>(2));
  runtime.allow_shared(reinterpret_cast<const void*>(&tile_kernel<kKind, kHasMin, kManyTokens, true>),
                       shared_bytes<kKind, kHasMin, kManyTokens>(2));
}

}  // namespace

std::size_t tile_shared_bytes(Kind kind, bool has_min, int width) {
  std::size_t bytes = 0;
  with_kind(kind, has_min, [&]<Kind kKind, bool kHasMin>() {
    bytes = shared_bytes<kKind, kHasMin>(sets_of(width)) + kTileTokens * sizeof(int);
  });
  return bytes;
}

void multiply_tiles(Runtime& runtime, const TileCall& call) {
  const Tile tile = tile_of(call);
  with_kind(call.kind, call.has_min, [&]<Kind kKind, bool kHasMin>() { start<kKind, kHasMin>(runtime, tile); });
}

void prepare_tiles(Runtime& runtime) {
  allow<Kind::single, false>(runtime);
  allow<Kind::single, true>(runtime);
  allow<Kind::halves, false>(runtime);
  allow<Kind::halves, true>(runtime);
  allow<Kind::dual, false>(runtime);
  allow<Kind::folded, true>(runtime);
}

#endif

}  // namespace lockstep::gpu
