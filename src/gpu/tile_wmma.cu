// Many tokens by quantised weights, for HIP: the tile kernel on WMMA, whose int32 sums are exact.
//
// A block of 256 threads makes 128 rows x 64 tokens, a warp 32 x 32. The walk, the start at 0x4B400000 and the zeros
// are those of tile.cu. What differs is what the machine has much of, registers, and little, shared memory: all open
// sums of a thread are registers, and a stage is there once; the next one waits in registers while this one is
// multiplied.
//
// The tokens are the left operand and the weights' rows the right one, so that a thread has one row of each of its
// tiles and eight tokens: a row's scales are read once, and neighbours write neighbouring outputs. Work of a warp and
// block of 32 values: 8 products of 16 x 16 x 16, 64 fma a thread and more by format.
#include "gpu/tile_parts.h"

#if defined(LOCKSTEP_HAS_WMMA)

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 256, kWarpSide = 32, kTiles = kWarpSide / 16;  // tiles of a warp, either way
constexpr int kSideWarps = kTileTokens / kWarpSide, kOutputs = kTiles * kTiles * 8;

/// Floats of a token's block: its scale and sums of its codes, of all or of the halves, if there is a minimum.
LOCKSTEP_HOST_DEVICE constexpr int token_floats(Kind kind, bool has_min) {
  return !has_min ? 1 : kind == Kind::halves || kind == Kind::folded ? 3 : 2;
}
/// What belongs to tokens lies so that a thread's eight are side by side: where that of `token` is.
LOCKSTEP_DEVICE int spot_of(int token) { return token / 16 * 16 + token % 2 * 8 + token % 16 / 2; }

template <Kind kKind, bool kHasMin>
struct Stage {
  static constexpr int kWords = scale_words(kKind, kHasMin), kValues = token_floats(kKind, kHasMin);
  std::uint8_t weights[kTileRows * kStageBytes];
  std::uint8_t tokens[kTileTokens * kStageBytes];
  std::uint32_t scales[kWords][kStageBlocks][kTileRows];
  float token_values[kValues][kStageBlocks][kTileTokens];
};

/// 16 bytes into registers, and out of them.
LOCKSTEP_DEVICE void load16(std::uint32_t (&to)[4], const void* from) {
  const auto& words = *static_cast<const Words4*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = words.word[i];
}
LOCKSTEP_DEVICE void store16(void* to, const std::uint32_t (&from)[4]) {
  *static_cast<Words4*>(to) = {{from[0], from[1], from[2], from[3]}};
}

/// kIsWhole: lanes are whole stages, as in all rows from 1024 values on, so that nothing is asked between two blocks.
template <Kind kKind, bool kHasMin, bool kIsWhole>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) tile_kernel(LOCKSTEP_PARAMETER Tile tile) {
  follow_launch();
  using S = Stage<kKind, kHasMin>;
  constexpr int kWords = S::kWords, kValues = S::kValues, kCopyRows = kThreads / 8;
  LOCKSTEP_DYNAMIC_SHARED(Words4, tile_shared);
  S& shared = *reinterpret_cast<S*>(tile_shared);
  LOCKSTEP_SHARED int slots[kTileTokens];  // output rows
  const TileCall& call = tile.call;
  const int t = thread_index(), warp = t / kWarp, half = lane_index() / 16, column = lane_index() % 16;
  const int first_row = block_y() * kTileRows;
  std::int64_t plane;
  int tokens;
  if (!find_outputs(tile, slots, plane, tokens)) return;
  block_barrier();
  const int stages = call.width / kStageBytes;
  const std::int64_t plane_row = plane * call.rows;
  const int x_group = call.rows_a_group > 0 ? first_row / call.rows_a_group : 0;

  // What this thread brings: one 16-byte unit of some rows and of two tokens; words of scales of a row, or scales or
  // sums of codes of a token.
  constexpr int kRowCopies = kTileRows / kCopyRows, kTokenCopies = kTileTokens / kCopyRows;
  const int unit = t % 8;
  std::uint32_t row_from[kRowCopies], token_from[kTokenCopies];  // what is unpacked at a time is below 4 GB
#pragma unroll
  for (int i = 0; i < kRowCopies; ++i)
    row_from[i] = static_cast<std::uint32_t>(
        (plane_row + min(first_row + t / 8 + i * kCopyRows, call.rows - 1)) * call.width + unit * 16);
#pragma unroll
  for (int i = 0; i < kTokenCopies; ++i)
    token_from[i] = static_cast<std::uint32_t>(
        (static_cast<std::int64_t>(x_group) * call.x.rows + slots[t / 8 + i * kCopyRows] / call.x_share) * call.width +
        unit * 16);
  const bool is_weight = t < kTileRows, is_scale = !is_weight && t < kTileRows + kTileTokens;
  const int scaled = is_weight ? t : (t - kTileRows) % kTileTokens;
  const std::int64_t scale_row =
      is_weight ? plane_row + min(first_row + scaled, call.rows - 1)
                : static_cast<std::int64_t>(x_group) * stages * call.x.rows + slots[scaled] / call.x_share;

  std::uint32_t row_codes[kRowCopies][4], token_codes[kTokenCopies][4], words[kWords][4];
  const auto fetch = [&](int stage) {
    const auto at = static_cast<std::uint32_t>(stage * kStageBytes);
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) load16(row_codes[i], call.w.codes + (row_from[i] + at));
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) load16(token_codes[i], call.x.codes + (token_from[i] + at));
    if (is_weight) {
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        load16(words[w], call.w.scales + ((static_cast<std::int64_t>(stage) * kWords + w) * call.w.rows + scale_row) *
                                             kStageBlocks);
    } else {
      const std::int64_t from = (static_cast<std::int64_t>(stage) * call.x.rows + scale_row) * kStageBlocks;
      if (is_scale)
        load16(words[0], call.x.scales + from);
      else if (kHasMin)
        load16(words[0], call.x.half_sums + from);
    }
  };
  const auto store = [&] {
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) store16(shared.weights + swizzled(t / 8 + i * kCopyRows, unit), row_codes[i]);
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i)
      store16(shared.tokens + swizzled(t / 8 + i * kCopyRows, unit), token_codes[i]);
#pragma unroll
    for (int i = 0; i < kStageBlocks; ++i) {
      if (is_weight) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) shared.scales[w][i][scaled] = words[w][i];
      } else if (is_scale) {
        shared.token_values[0][i][spot_of(scaled)] = f32_of(words[0][i]);
      } else if constexpr (kHasMin) {
        const int low = low_half(words[0][i]), high = high_half(words[0][i]);
        shared.token_values[1][i][spot_of(scaled)] = exact_float(kValues == 3 ? low : low + high);
        if constexpr (kValues == 3) shared.token_values[2][i][spot_of(scaled)] = exact_float(high);
      }
    }
  };

  const int warp_row = warp / kSideWarps * kWarpSide, warp_token = warp % kSideWarps * kWarpSide;
  float lane[kOutputs] = {}, column_sum[kOutputs] = {}, total[kOutputs] = {};
  int in_lane = 0, in_column = 0, columns = 0;
  std::int64_t blocks_left = call.width / kBlock;
  const auto write = [&](bool is_first, bool is_last) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int row = first_row + warp_row + j / 8 % kTiles * 16 + column,
                token = warp_token + j / 8 / kTiles * 16 + j % 8 * 2 + half;
      if (row >= call.rows || token >= tokens) continue;
      float& to = call.out.data[slots[token] * call.out.stride + row];
      const float value = is_first ? total[j] : to + total[j];
      to = value;
      if (is_last && value == 0) name_zero(call, slots[token], row);
    }
  };
  const auto end_blocks = [&](int done) {
    in_lane += done;
    if (in_lane < tile.walk.lane_blocks) return;
    in_lane = 0;
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      column_sum[j] = in_column == 0 ? lane[j] : column_sum[j] + lane[j];
      lane[j] = 0;
    }
    if (++in_column < tile.walk.column_lanes) return;
    in_column = 0;
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) total[j] = columns == 0 ? column_sum[j] : total[j] + column_sum[j];
    if (++columns < kColumns) return;
    columns = 0;
    const bool is_first = blocks_left == call.width / kBlock;
    blocks_left -= tile.walk.chunk_blocks;
    write(is_first, blocks_left == 0);
  };

  const std::uint8_t* const row_at = shared.weights + (warp_row + column) * kStageBytes;
  const std::uint8_t* const token_at = shared.tokens + (warp_token + column) * kStageBytes;
  fetch(0);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    block_barrier();  // the last stage has been read
    store();
    block_barrier();
    if (stage + 1 < stages) fetch(stage + 1);
#pragma unroll 1
    for (int i = 0; i < kStageBlocks; ++i) {
      const int units[2] = {((2 * i) ^ (column & 7)) * 16, ((2 * i + 1) ^ (column & 7)) * 16};
      Words4 rows[kTiles][2];
      std::uint32_t scale[kTiles][kWords];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          rows[m][h] = *reinterpret_cast<const Words4*>(row_at + m * 16 * kStageBytes + units[h]);
#pragma unroll
        for (int w = 0; w < kWords; ++w) scale[m][w] = shared.scales[w][i][warp_row + m * 16 + column];
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        keep_order();
        Words4 codes[2];
#pragma unroll
        for (int h = 0; h < 2; ++h)
          codes[h] = *reinterpret_cast<const Words4*>(token_at + n * 16 * kStageBytes + units[h]);
        Floats4 values[kValues][2];
#pragma unroll
        for (int v = 0; v < kValues; ++v)
#pragma unroll
          for (int four = 0; four < 2; ++four)
            values[v][four] = *reinterpret_cast<const Floats4*>(
                &shared.token_values[v][i][warp_token + n * 16 + half * 8 + four * 4]);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          if (m > 0 && kWords > 1) keep_order();
          constexpr bool kHasOne = kKind == Kind::single || kKind == Kind::folded;
          const Dots first = add_products(codes[0], rows[m][0], magic_dots());
          const Dots second = add_products(codes[1], rows[m][1], kHasOne ? first : magic_dots());
          const Dots& dots = kHasOne ? second : first;
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const auto of_token = [&](int v) { return values[v % kValues][e / 4].value[e % 4]; };
            const float term =
                term_of<kKind, kHasMin>(dots.value[e], second.value[e], scale[m], of_token(1), of_token(2));
            float& sum = lane[(n * kTiles + m) * 8 + e];
            sum = fma_f32(term, of_token(0), sum);
          }
        }
      }
      if constexpr (!kIsWhole) end_blocks(1);
    }
    if constexpr (kIsWhole) end_blocks(kStageBlocks);
  }
}

template <Kind kKind, bool kHasMin, bool kIsWhole>
void start(Runtime& runtime, const Tile& tile) {
  const TileCall& call = tile.call;
  const std::int64_t tiles = tile.is_sorted ? most_tiles(call.out.rows, call.planes)
                                            : static_cast<std::int64_t>(blocks_for(call.out.rows, kTileTokens));
  launch(runtime, tile_kernel<kKind, kHasMin, kIsWhole>,
         {static_cast<unsigned>(tiles), blocks_for(call.rows, kTileRows)}, kThreads, sizeof(Stage<kKind, kHasMin>),
         tile);
}

}  // namespace

std::size_t tile_shared_bytes(Kind kind, bool has_min, int) {
  std::size_t bytes = 0;
  with_kind(kind, has_min,
            [&]<Kind kKind, bool kHasMin>() { bytes = sizeof(Stage<kKind, kHasMin>) + kTileTokens * sizeof(int); });
  return bytes;
}

void multiply_tiles(Runtime& runtime, const TileCall& call) {
  const Tile tile = tile_of(call);
  with_kind(call.kind, call.has_min, [&]<Kind kKind, bool kHasMin>() {
    if (tile.walk.lane_blocks % kStageBlocks == 0)
      start<kKind, kHasMin, true>(runtime, tile);
    else
      start<kKind, kHasMin, false>(runtime, tile);
  });
}

void prepare_tiles(Runtime&) {}  // no kernel has more shared memory than any may

}  // namespace lockstep::gpu

#endif
