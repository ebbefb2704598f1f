// Many tokens by F16 weights and f32 activations: a tile kernel of f32 fmas, no tensor cores, whose order is their own.
//
// A place of a lane (numerics/order.h) is a chain of sixteen fmas in every width that is taken here. So the law's walk
// has the place outside and the octet inside: sixteen values are one stage, and one accumulator set is hot. The lane's
// sum lies in registers too, touched once a stage; column and chunk, touched at the end of a lane, in shared memory,
// or, on HIP, whose threads have more registers and blocks less memory, beside it. Weights and activations are first
// laid out as floats in the order of the walk, tile by tile, in room that is handed over: a stage is two contiguous
// pieces that are copied as they are, and the kernel issues little but fmas. Where tiles are few, a block makes one
// column of a chunk, and a small kernel adds the columns. Roofline: 128 fma a clock and multiprocessor;
// docs/numerics.md has what the order costs.
#include <bit>

#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/float_tile.h"
#include "gpu/fma_order.h"
#include "numerics/order.h"

namespace lockstep::gpu {

namespace {

constexpr int kStage = 16;  // values of a stage
constexpr int kWalkThreads = 256, kWalkValues = 128;
constexpr int kTileRows = 64, kTileTokens = 128;
constexpr int kMostRows = 1 << 14;  // of a matrix that are laid out at a time

/// How a block shares a tile out: a thread makes kRowFours times four rows by kTokenFours times four tokens.
template <int kRowFours, int kTokenFours>
struct Shape {
  static constexpr int row_fours = kRowFours, token_fours = kTokenFours;
  static constexpr int row_threads = kTileRows / (4 * row_fours), token_threads = kTileTokens / (4 * token_fours);
  static constexpr int threads = row_threads * token_threads, outputs = 16 * row_fours * token_fours;
};
#if defined(LOCKSTEP_HAS_WMMA)
using Usual = Shape<1, 2>;  // all four sets of sums are registers
constexpr std::size_t kSetsBytes = 0;
#else
using Usual = Shape<2, 2>;  // two blocks a multiprocessor, which do not wait for each other
constexpr std::size_t kSetsBytes = 2 * sizeof(float) * Usual::outputs * Usual::threads;
#endif
constexpr int kThreads = Usual::threads, kOutputs = Usual::outputs;

/// The walk through a row: chunks, columns, lanes of a column, places, octets.
struct Walk {
  int chunk, lanes, lane_bits;  // the first two are powers of two
  LOCKSTEP_HOST_DEVICE int column_lanes() const { return lanes / kColumns; }
  /// Where the walk has value k.
  LOCKSTEP_DEVICE int place_of(int k) const {
    const int octet = (k & (chunk - 1)) / kOctet, lane = octet & (lanes - 1);
    const int lane_walk = lane % kColumns * column_lanes() + lane / kColumns;
    return (k & ~(chunk - 1)) + (lane_walk * kOctet + k % kOctet) * kStage + (octet >> lane_bits);
  }
};

LOCKSTEP_HOST_DEVICE constexpr int chunks_of(int width) { return (width + kChunk - 1) / kChunk; }

struct Call {
  ProductList list;
  Walk walk;
  const float* weights[kMostParts];  // [tiles of rows][place in the walk][kTileRows]
  const float* tokens;               // [tiles of tokens][place in the walk][kTileTokens]
  int first_tile;                    // of rows, of this launch
  float* columns;                    // [tiles of rows][columns of all chunks][tokens][kTileRows], if a block makes one
};

/// Rows that are laid out; behind the last one it stands again.
struct FloatRows {
  ConstRows x;
  LOCKSTEP_DEVICE const float* row(int i) const { return x.data + (i < x.rows ? i : x.rows - 1) * x.stride; }
  LOCKSTEP_DEVICE static float value(const float* at) { return *at; }
};
struct HalfRows {
  Matrix w;
  LOCKSTEP_DEVICE const std::uint16_t* row(int i) const {
    return reinterpret_cast<const std::uint16_t*>(w.data + (i < w.rows ? i : w.rows - 1) * w.row_bytes);
  }
  LOCKSTEP_DEVICE static float value(const std::uint16_t* at) {
    std::uint16_t half;
    load_once(half, at);
    return widen_f16(half);
  }
};

/// 128 values of 32 rows. out [tiles of rows][width][tile].
template <class From>
LOCKSTEP_KERNEL void walk_kernel(float* out, LOCKSTEP_PARAMETER From from, Walk walk, int width, int tile) {
  follow_launch();
  constexpr int kWarps = kWalkThreads / kWarp;
  LOCKSTEP_SHARED float values[kWarp][kWalkValues + 1];
  const int first_row = block_y() * kWarp, first_k = block_x() * kWalkValues, lane = lane_index(),
            warp = thread_index() / kWarp;
#pragma unroll
  for (int r = warp; r < kWarp; r += kWarps) {
    const auto* row = from.row(first_row + r) + first_k + lane;
#pragma unroll
    for (int k = 0; k < kWalkValues; k += kWarp) values[r][lane + k] = from.value(row + k);
  }
  block_barrier();
  float* const to = out + static_cast<std::int64_t>(first_row / tile) * tile * width + first_row % tile + lane;
  for (int octet = warp; octet < kWalkValues / kOctet; octet += kWarps) {
    float* at = to + walk.place_of(first_k + octet * kOctet) * tile;
#pragma unroll
    for (int k = 0; k < kOctet; ++k, at += kStage * tile) *at = values[lane][octet * kOctet + k];
  }
}

/// The product that a tile of rows belongs to.
LOCKSTEP_DEVICE int part_of(const Call& call, int tile) {
  int part = 0;
  while (part + 1 < call.list.count && tile >= call.list.first_block[part + 1]) ++part;
  return part;
}

/// Grid: tiles of tokens, tiles of rows of all products, columns of all chunks or one for all.
template <class S, bool kIsColumn>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(S::threads, 2) float_tile_kernel(LOCKSTEP_PARAMETER Call call) {
  constexpr int kRows = 4 * S::row_fours, kTokens = 4 * S::token_fours;
#if defined(LOCKSTEP_HAS_WMMA)
  float sets[2][kOutputs];  // columns, then chunks
#else
  // Columns, then chunks: [2][kOutputs / 4][kThreads], each entry a thread's own.
  LOCKSTEP_DYNAMIC_SHARED(Floats4, sets);
#endif
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float w[2][kStage][kTileRows];
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float x[2][kStage][kTileTokens];
  follow_launch();
  const int tile = block_y() + call.first_tile, part = part_of(call, tile);
  const Product& p = call.list.part[part];
  const int t = thread_index(), warp = t / kWarp, in_warp = t % kWarp, width = p.w.width;
  const int row_tile = tile - call.list.first_block[part];
  // Threads in squares of two by two: loads of 16 bytes by half a warp take one pass where neighbours, or neighbours
  // but one, read the same.
  constexpr int kDown = S::row_threads / 8, kNextRow = 4 * S::row_threads, kNextToken = 4 * S::token_threads;
  const int tile_row = (warp % kDown * 8 + in_warp / 4 % 4 * 2 + in_warp % 2) * 4,
            tile_token = (warp / kDown * 4 + in_warp / 16 * 2 + in_warp / 2 % 2) * 4;
  const int column_stages = call.walk.column_lanes() * kOctet;
  const int first_stage = kIsColumn ? block_z() * column_stages : 0,
            stages = kIsColumn ? column_stages : width / kStage;

  constexpr int kRowCopies = kStage * kTileRows / 4 / kThreads, kTokenCopies = kStage * kTileTokens / 4 / kThreads;
  const float* from_rows =
      call.weights[part] + (static_cast<std::int64_t>(row_tile) * width + first_stage * kStage) * kTileRows + 4 * t;
  const float* from_tokens =
      call.tokens + (static_cast<std::int64_t>(block_x()) * width + first_stage * kStage) * kTileTokens + 4 * t;
  Copies<kRowCopies + kTokenCopies> copies;
  const auto fetch = [&](int stage) {
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i)
      copies.begin(i, &w[stage % 2][0][0] + 4 * (t + i * kThreads), from_rows + 4 * i * kThreads);
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i)
      copies.begin(kRowCopies + i, &x[stage % 2][0][0] + 4 * (t + i * kThreads), from_tokens + 4 * i * kThreads);
    copies.end_group();
    from_rows += kStage * kTileRows;
    from_tokens += kStage * kTileTokens;
  };
  float chain[kOutputs], lane[kOutputs];
#if defined(LOCKSTEP_HAS_WMMA)
  const auto add_to_set = [&](int set, const float(&from)[kOutputs], bool is_first) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sets[set][j] = is_first ? from[j] : sets[set][j] + from[j];
  };
  const auto read_set = [&](int set, float(&to)[kOutputs]) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) to[j] = sets[set][j];
  };
#else
  const auto add_to_set = [&](int set, const float(&from)[kOutputs], bool is_first) {
    Floats4* to = sets + set * (kOutputs / 4) * kThreads + t;
#pragma unroll
    for (int j = 0; j < kOutputs / 4; ++j) {
      Floats4 sum = {{from[4 * j], from[4 * j + 1], from[4 * j + 2], from[4 * j + 3]}};
      if (!is_first) {
        const Floats4 before = to[j * kThreads];
#pragma unroll
        for (int e = 0; e < 4; ++e) sum.value[e] = before.value[e] + sum.value[e];
      }
      to[j * kThreads] = sum;
    }
  };
  const auto read_set = [&](int set, float(&to)[kOutputs]) {
    const Floats4* from = sets + set * (kOutputs / 4) * kThreads + t;
#pragma unroll
    for (int j = 0; j < kOutputs / 4; ++j) {
      const Floats4 v = from[j * kThreads];
#pragma unroll
      for (int e = 0; e < 4; ++e) to[4 * j + e] = v.value[e];
    }
  };
#endif
  const auto compute = [&](int stage, float(&sum)[kOutputs]) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sum[j] = 0;
#pragma unroll
    for (int k = 0; k < kStage; ++k) {
      Floats4 rows[S::row_fours], tokens[S::token_fours];
#pragma unroll
      for (int four = 0; four < S::row_fours; ++four)
        rows[four] = *reinterpret_cast<const Floats4*>(&w[stage % 2][k][tile_row + four * kNextRow]);
#pragma unroll
      for (int four = 0; four < S::token_fours; ++four)
        tokens[four] = *reinterpret_cast<const Floats4*>(&x[stage % 2][k][tile_token + four * kNextToken]);
#pragma unroll
      for (int i = 0; i < kTokens; ++i)
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
          const int r = i % 2 == 0 ? j : kRows - 1 - j;
          sum[i * kRows + r] = fma_in_order(tokens[i / 4].value[i % 4], rows[r / 4].value[r % 4], sum[i * kRows + r]);
        }
    }
  };
  const auto clear_lane = [&] {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) lane[j] = -0.0f;  // to which anything can be added, and stays what it is
  };
  // In `out` stand all rows of the product, or those of this tile.
  const int tokens = p.out.rows, first_row = row_tile * kTileRows, used_rows = p.w.rows - first_row;
  float* const out =
      kIsColumn ? call.columns + (static_cast<std::int64_t>(block_y()) * kColumns * chunks_of(width) + block_z()) *
                                     tokens * kTileRows
                : p.out.data + first_row;
  const std::ptrdiff_t out_stride = kIsColumn ? kTileRows : p.out.stride;
  const auto write = [&](const float(&value)[kOutputs], bool is_first) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int row = tile_row + j % kRows / 4 * kNextRow + j % 4;
      const int token = block_x() * kTileTokens + tile_token + j / kRows / 4 * kNextToken + j / kRows % 4;
      if (row >= used_rows || token >= tokens) continue;
      float& to = out[token * out_stride + row];
      to = is_first ? value[j] : to + value[j];
    }
  };

  fetch(0);
  clear_lane();
  const int column_lanes = call.walk.column_lanes(), lanes = call.walk.lanes;
  int lane_walk = 0;  // of a chunk
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    copies.wait();
    block_barrier();
    if (stage + 1 < stages) fetch(stage + 1);
    compute(stage, chain);
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) lane[j] = lane[j] + chain[j];
    if (stage % kOctet != kOctet - 1) continue;
    add_to_set(0, lane, lane_walk % column_lanes == 0);
    clear_lane();
    if (++lane_walk % column_lanes != 0) continue;
    read_set(0, chain);
    if constexpr (kIsColumn) {
      write(chain, true);
      return;
    }
    add_to_set(1, chain, lane_walk == column_lanes);
    if (lane_walk != lanes) continue;
    lane_walk = 0;
    read_set(1, chain);
    write(chain, stage * kStage < call.walk.chunk);
  }
}

/// Adds float_tile_kernel's columns, then chunks, in ascending order. Grid: tokens, tiles of rows of this launch.
LOCKSTEP_KERNEL void add_columns_kernel(LOCKSTEP_PARAMETER Call call) {
  follow_launch();
  const int tile = block_y() + call.first_tile, part = part_of(call, tile);
  const Product& p = call.list.part[part];
  const int row_in_tile = thread_index() % kTileRows, first_row = (tile - call.list.first_block[part]) * kTileRows,
            token = block_x() * (kWalkThreads / kTileRows) + thread_index() / kTileRows;
  if (first_row + row_in_tile >= p.w.rows || token >= p.out.rows) return;
  const int chunks = chunks_of(p.w.width);
  const std::int64_t next = static_cast<std::int64_t>(p.out.rows) * kTileRows;
  const float* from = call.columns + static_cast<std::int64_t>(block_y()) * kColumns * chunks * next +
                      static_cast<std::int64_t>(token) * kTileRows + row_in_tile;
  float total = 0;
  for (int chunk = 0; chunk < chunks; ++chunk, from += kColumns * next) {
    float column[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) column[c] = from[c * next];
    float sum = column[0];
#pragma unroll
    for (int c = 1; c < kColumns; ++c) sum = sum + column[c];
    total = chunk == 0 ? sum : total + sum;
  }
  p.out.data[token * p.out.stride + first_row + row_in_tile] = total;
}

Walk walk_of(int width) {
  const int chunk = width < kChunk ? width : kChunk, lanes = octet_lanes_of(chunk);
  return {chunk, lanes, static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) - 1};
}

std::size_t round_up(int count, int step) {
  return static_cast<std::size_t>(count + step - 1) / static_cast<std::size_t>(step) * static_cast<std::size_t>(step);
}
std::size_t padded_tokens(const Product* products) { return round_up(products[0].out.rows, kTileTokens); }

/// Tiles of rows, first those that blocks make whole. The others would leave much of the device idle: a block makes one
/// column of them.
struct RowTiles {
  int whole = 0, by_column = 0;
};
RowTiles row_tiles(const Runtime& runtime, const Product* products, int count) {
  int rows = 0;
  for (int i = 0; i < count; ++i) rows += static_cast<int>(blocks_for(products[i].w.rows, kTileRows));
  const int beside = static_cast<int>(padded_tokens(products)) / kTileTokens, places = 2 * runtime.multiprocessors(),
            rest = rows * beside % places;
  const int whole = 4 * rest < 3 * places ? (rows * beside - rest) / beside : rows;
  return {whole, rows - whole};
}

/// Rows of a product that are multiplied at a time.
Product piece_of(const Product& p, int first) {
  Product piece = p;
  piece.w.data += static_cast<std::int64_t>(first) * p.w.row_bytes;
  piece.w.rows = p.w.rows - first < kMostRows ? p.w.rows - first : kMostRows;
  piece.out = p.out.columns(first, piece.w.rows);
  return piece;
}

}  // namespace

bool can_tile_floats(const Runtime& runtime, DType dtype, const Product* products, int count) {
  constexpr int kFewTokens = 48, kFewRows = 64;  // below, whole tiles would be mostly empty
  const int width = products[0].w.width;
  if (dtype != DType::f16 || products[0].out.rows < kFewTokens) return false;
  if (width % kChunk != 0 && width != kChunk / 2 && width != kChunk / 4) return false;
  for (int i = 0; i < count; ++i)
    if (products[i].expert != nullptr || products[i].rows_a_group > 0 || products[i].w.rows < kFewRows ||
        (count > 1 && products[i].w.rows > kMostRows))
      return false;
  return kSetsBytes + 2 * sizeof(float) * kStage * (kTileRows + kTileTokens) <= runtime.most_shared_bytes();
}

std::size_t float_tile_bytes(const Runtime& runtime, const Product* products, int count) {
  if (count == 1 && products[0].w.rows > kMostRows) {
    const Product first = piece_of(products[0], 0),
                  last = piece_of(products[0], (products[0].w.rows - 1) / kMostRows * kMostRows);
    const std::size_t of_first = float_tile_bytes(runtime, &first, 1), of_last = float_tile_bytes(runtime, &last, 1);
    return of_first > of_last ? of_first : of_last;
  }
  const auto width = static_cast<std::size_t>(products[0].w.width);
  std::size_t rows = padded_tokens(products);
  for (int i = 0; i < count; ++i) rows += round_up(products[i].w.rows, kTileRows);
  const auto columns = static_cast<std::size_t>(kColumns * chunks_of(products[0].w.width) *
                                                row_tiles(runtime, products, count).by_column);
  return sizeof(float) * (rows * width + columns * static_cast<std::size_t>(products[0].out.rows) * kTileRows);
}

void multiply_float_tiles(Runtime& runtime, const Product* products, int count, std::byte* room) {
  if (count == 1 && products[0].w.rows > kMostRows) {
    for (int first = 0; first < products[0].w.rows; first += kMostRows) {
      const Product piece = piece_of(products[0], first);
      multiply_float_tiles(runtime, &piece, 1, room);
    }
    return;
  }
  const int width = products[0].w.width;
  const auto tokens = static_cast<unsigned>(padded_tokens(products));
  Call call = {};
  call.list = list_of(products, count, kTileRows);
  call.walk = walk_of(width);
  auto* next = reinterpret_cast<float*>(room);
  call.tokens = next;
  launch(runtime, walk_kernel<FloatRows>, {static_cast<unsigned>(width / kWalkValues), tokens / kWarp}, kWalkThreads, 0,
         next, FloatRows{products[0].values}, call.walk, width, kTileTokens);
  next += static_cast<std::size_t>(tokens) * static_cast<std::size_t>(width);
  for (int i = 0; i < count; ++i) {
    const auto rows = static_cast<unsigned>(round_up(products[i].w.rows, kTileRows));
    call.weights[i] = next;
    launch(runtime, walk_kernel<HalfRows>, {static_cast<unsigned>(width / kWalkValues), rows / kWarp}, kWalkThreads, 0,
           next, HalfRows{products[i].w}, call.walk, width, kTileRows);
    next += static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  }
  call.columns = next;
  const RowTiles tiles = row_tiles(runtime, products, count);
  const auto whole = static_cast<unsigned>(tiles.whole), by_column = static_cast<unsigned>(tiles.by_column);
  launch(runtime, float_tile_kernel<Usual, false>, {tokens / kTileTokens, whole}, kThreads, kSetsBytes, call);
  call.first_tile = tiles.whole;
  launch(runtime, float_tile_kernel<Usual, true>,
         {tokens / kTileTokens, by_column, static_cast<unsigned>(kColumns * chunks_of(width))}, kThreads, kSetsBytes,
         call);
  launch(runtime, add_columns_kernel, {blocks_for(products[0].out.rows, kWalkThreads / kTileRows), by_column},
         kWalkThreads, 0, call);
}

void prepare_float_tiles([[maybe_unused]] Runtime& runtime) {
  if constexpr (kSetsBytes > 0) {
    runtime.allow_shared(reinterpret_cast<const void*>(&float_tile_kernel<Usual, false>), kSetsBytes);
    runtime.allow_shared(reinterpret_cast<const void*>(&float_tile_kernel<Usual, true>), kSetsBytes);
  }
}

}  // namespace lockstep::gpu
