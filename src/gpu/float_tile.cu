// Many tokens by F16 weights and f32 activations: a tile kernel of f32 fmas, no tensor cores, whose order is their own.
//
// A place of a lane (numerics/order.h) is a chain of sixteen fmas in every width that is taken here. So the law's walk
// has the place outside and the octet inside: sixteen values are one stage, and one accumulator set is hot. The lane's
// sum lies in registers too, touched once a stage; column and chunk, touched at the end of a lane, in shared memory,
// or, on HIP, whose threads have more registers and blocks less memory, beside it. Weights and activations are first
// laid out in the order of the walk, in room that is handed over: a fraction of a percent of the time. Roofline: 128
// fma a clock and multiprocessor; docs/numerics.md has what the order costs.
#include <bit>

#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/float_tile.h"
#include "numerics/order.h"

namespace lockstep::gpu {

namespace {

constexpr int kStage = 16;  // values of a stage
constexpr int kLaneValues = kStage * kOctet, kWalkThreads = 256;

/// A tile, of which a thread makes kRowFours times four rows by kTokenFours times four tokens.
template <int kTileRows, int kTileTokens, int kRowFours, int kTokenFours>
struct Shape {
  static constexpr int rows = kTileRows, tokens = kTileTokens, row_fours = kRowFours, token_fours = kTokenFours;
  static constexpr int row_threads = rows / (4 * row_fours), token_threads = tokens / (4 * token_fours);
  static constexpr int threads = row_threads * token_threads, outputs = 16 * row_fours * token_fours;
#if defined(LOCKSTEP_HAS_WMMA)
  static constexpr std::size_t sets_bytes = 0;
#else
  static constexpr std::size_t sets_bytes = 2 * sizeof(float) * outputs * threads;
#endif
};
/// Two blocks a multiprocessor, which do not wait for each other. The small tiles are for where there would be few.
using Usual = Shape<64, 128, 1, 2>;
using Small = Shape<64, 64, 1, 1>;

/// The walk through a row: chunks, columns, lanes of a column, places, octets.
struct Walk {
  int chunk, lanes, lane_bits;  // the first two are powers of two
  LOCKSTEP_DEVICE int column_lanes() const { return lanes / kColumns; }
  /// Where the walk has value k.
  LOCKSTEP_DEVICE int place_of(int k) const {
    const int octet = (k & (chunk - 1)) / kOctet, lane = octet & (lanes - 1);
    const int lane_walk = lane % kColumns * column_lanes() + lane / kColumns;
    return (k & ~(chunk - 1)) + (lane_walk * kOctet + k % kOctet) * kStage + (octet >> lane_bits);
  }
};

struct Call {
  ProductList list;
  Walk walk;
  const std::uint16_t* weights[kMostParts];  // [rows][place in the walk]
  const float* tokens;                       // [place in the walk][padded]
  int padded;
};

/// A thread a lane of a row.
LOCKSTEP_KERNEL void walk_weights_kernel(std::uint16_t* out, Matrix w, Walk walk) {
  follow_launch();
  const int row_lanes = w.width / kLaneValues;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const std::int64_t row = item / row_lanes;
  if (row >= w.rows) return;
  const int chunk = static_cast<int>(item % row_lanes) / walk.lanes,
            lane = static_cast<int>(item % row_lanes) % walk.lanes;
  const int first = chunk * walk.chunk + lane * kOctet;
  const std::uint8_t* from = w.data + row * w.row_bytes + 2 * first;
  Words4 octet[kStage];
#pragma unroll
  for (int i = 0; i < kStage; ++i) octet[i] = load_once(from + 2 * i * walk.lanes * kOctet);
  auto* to = reinterpret_cast<std::uint32_t*>(out + row * w.width + walk.place_of(first));
#pragma unroll
  for (int place = 0; place < kOctet; ++place)
#pragma unroll
    for (int i = 0; i < kStage; i += 2) {
      const std::uint32_t low = octet[i].word[place / 2], high = octet[i + 1].word[place / 2];
      to[(place * kStage + i) / 2] = place % 2 == 0 ? (low & 0xffffu) | high << 16 : low >> 16 | (high & 0xffff0000u);
    }
}

/// 32 values of 32 tokens.
LOCKSTEP_KERNEL void walk_tokens_kernel(float* out, ConstRows x, Walk walk, int padded) {
  follow_launch();
  LOCKSTEP_SHARED float values[kWarp][kWarp + 1];
  const int first_token = block_y() * kWarp, first_k = block_x() * kWarp, lane = lane_index();
  for (int t = thread_index() / kWarp; t < kWarp; t += block_threads() / kWarp) {
    const int token = first_token + t < x.rows ? first_token + t : x.rows - 1;
    values[t][lane] = x.data[token * x.stride + first_k + lane];
  }
  block_barrier();
  for (int k = thread_index() / kWarp; k < kWarp; k += block_threads() / kWarp)
    out[static_cast<std::int64_t>(walk.place_of(first_k + k)) * padded + first_token + lane] = values[lane][k];
}

/// Grid: tiles of tokens, tiles of rows of all products.
template <class S>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(S::threads, 2) float_tile_kernel(LOCKSTEP_PARAMETER Call call) {
  constexpr int kThreads = S::threads, kOutputs = S::outputs, kRows = 4 * S::row_fours, kTokens = 4 * S::token_fours;
#if defined(LOCKSTEP_HAS_WMMA)
  float sets[2][kOutputs];  // columns, then chunks
#else
  // Columns, then chunks: [2][kOutputs / 4][kThreads], each entry a thread's own.
  LOCKSTEP_DYNAMIC_SHARED(Floats4, sets);
#endif
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float w[2][kStage][S::rows];
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float x[2][kStage][S::tokens];
  follow_launch();
  int part = 0;
  while (part + 1 < call.list.count && block_y() >= call.list.first_block[part + 1]) ++part;
  const Product& p = call.list.part[part];
  const int t = thread_index(), warp = t / kWarp, in_warp = t % kWarp;
  const int first_token = block_x() * S::tokens, first_row = (block_y() - call.list.first_block[part]) * S::rows;
  // Threads in squares of two by two: loads of 16 bytes by half a warp take one pass where neighbours, or neighbours
  // but one, read the same.
  constexpr int kDown = S::row_threads / 8, kNextRow = 4 * S::row_threads, kNextToken = 4 * S::token_threads;
  const int tile_row = (warp % kDown * 8 + in_warp / 4 % 4 * 2 + in_warp % 2) * 4,
            tile_token = (warp / kDown * 4 + in_warp / 16 * 2 + in_warp / 2 % 2) * 4;
  constexpr int kLoad = kStage * S::rows / kThreads;  // weights of a stage that a thread brings
  const int load_row = t % S::rows, load_k = t / S::rows * kLoad, last_row = p.w.rows - 1;
  const std::uint16_t* from_row =
      call.weights[part] +
      static_cast<std::int64_t>(first_row + load_row < last_row ? first_row + load_row : last_row) * p.w.width + load_k;
  const int stages = p.w.width / kStage;

  constexpr int kRowThreads = S::tokens / 4, kStepTokens = kThreads / kRowThreads, kTokenCopies = kStage / kStepTokens;
  Copies<kTokenCopies> copies;
  const auto fetch_tokens = [&](int stage) {
    const int first = t / kRowThreads;
#pragma unroll
    for (int k = first; k < kStage; k += kStepTokens) {
      const int column = t % kRowThreads * 4;
      copies.begin((k - first) / kStepTokens, &x[stage % 2][k][column],
                   call.tokens + static_cast<std::int64_t>(stage * kStage + k) * call.padded + first_token + column);
    }
    copies.end_group();
  };
  Words2 raw[kLoad / 4];
  const auto fetch_weights = [&](int stage) {
#pragma unroll
    for (int i = 0; i < kLoad / 4; ++i) raw[i] = *reinterpret_cast<const Words2*>(from_row + stage * kStage + 4 * i);
  };
  const auto store_weights = [&](int stage) {
#pragma unroll
    for (int i = 0; i < kLoad; ++i)
      w[stage % 2][load_k + i][load_row] = widen_f16(raw[i / 4].word[i % 4 / 2] >> (16 * (i % 2)) & 0xffffu);
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
        for (int r = 0; r < kRows; ++r)
          sum[i * kRows + r] = fma_f32(tokens[i / 4].value[i % 4], rows[r / 4].value[r % 4], sum[i * kRows + r]);
    }
  };
  const auto next_stage = [&](int stage) {  // what `stage` needs is in shared memory when it returns
    copies.wait();
    block_barrier();
    if (stage + 1 >= stages) return;
    fetch_tokens(stage + 1);
    store_weights(stage + 1);
    fetch_weights(stage + 2 < stages ? stage + 2 : stages - 1);
  };
  const auto write = [&](const float(&value)[kOutputs], bool is_first) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int row = first_row + tile_row + j % kRows / 4 * kNextRow + j % 4;
      const int token = first_token + tile_token + j / kRows / 4 * kNextToken + j / kRows % 4;
      if (row > last_row || token >= p.out.rows) continue;
      float& to = p.out.data[token * p.out.stride + row];
      to = is_first ? value[j] : to + value[j];
    }
  };

  fetch_tokens(0);
  fetch_weights(0);
  store_weights(0);
  fetch_weights(1);
  const int lanes = call.walk.lanes, column_lanes = call.walk.column_lanes();
  int stage = 0;
  for (int chunk = 0; chunk < p.w.width / call.walk.chunk; ++chunk) {
#pragma unroll 1
    for (int lane_walk = 0; lane_walk < lanes; ++lane_walk) {
      next_stage(stage);
      compute(stage, lane);  // the first place is the lane's own chain
      ++stage;
#pragma unroll 1
      for (int place = 1; place < kOctet; ++place, ++stage) {
        next_stage(stage);
        compute(stage, chain);
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) lane[j] = lane[j] + chain[j];
      }
      add_to_set(0, lane, lane_walk % column_lanes == 0);
      if (lane_walk % column_lanes != column_lanes - 1) continue;
      read_set(0, chain);
      add_to_set(1, chain, lane_walk < column_lanes);
    }
    read_set(1, chain);
    write(chain, chunk == 0);
  }
}

Walk walk_of(int width) {
  const int chunk = width < kChunk ? width : kChunk, lanes = octet_lanes_of(chunk);
  return {chunk, lanes, static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) - 1};
}

int padded_of(int tokens) { return (tokens + Usual::tokens - 1) / Usual::tokens * Usual::tokens; }

}  // namespace

bool can_tile_floats(const Runtime& runtime, DType dtype, const Product* products, int count) {
  constexpr int kFewTokens = 48, kFewRows = 64;  // below, whole tiles would be mostly empty
  const int width = products[0].w.width;
  if (dtype != DType::f16 || products[0].out.rows < kFewTokens) return false;
  if (width % kChunk != 0 && width != kChunk / 2 && width != kChunk / 4) return false;
  for (int i = 0; i < count; ++i)
    if (products[i].expert != nullptr || products[i].rows_a_group > 0 || products[i].w.rows < kFewRows ||
        products[i].w.row_bytes % 16 != 0)
      return false;
  return Usual::sets_bytes + 2 * sizeof(float) * kStage * (Usual::rows + Usual::tokens) <= runtime.most_shared_bytes();
}

std::size_t float_tile_bytes(const Product* products, int count) {
  std::size_t bytes = sizeof(float) * static_cast<std::size_t>(products[0].w.width) *
                      static_cast<std::size_t>(padded_of(products[0].out.rows));
  for (int i = 0; i < count; ++i)
    bytes += 2 * static_cast<std::size_t>(products[i].w.width) * static_cast<std::size_t>(products[i].w.rows);
  return bytes;
}

void multiply_float_tiles(Runtime& runtime, const Product* products, int count, std::byte* room) {
  const int width = products[0].w.width, tokens = products[0].out.rows;
  Call call;
  int tiles = 0;
  for (int i = 0; i < count; ++i)
    tiles += static_cast<int>(blocks_for(products[i].w.rows, Usual::rows) * blocks_for(tokens, Usual::tokens));
  const bool is_small = tiles < runtime.multiprocessors();
  call.list = list_of(products, count, is_small ? Small::rows : Usual::rows);
  call.walk = walk_of(width);
  call.padded = padded_of(tokens);
  auto* const walked = reinterpret_cast<float*>(room);
  call.tokens = walked;
  auto* weights = reinterpret_cast<std::uint16_t*>(walked + static_cast<std::int64_t>(width) * call.padded);
  launch(runtime, walk_tokens_kernel,
         {static_cast<unsigned>(width / kWarp), static_cast<unsigned>(call.padded / kWarp)}, kWalkThreads, 0, walked,
         products[0].values, call.walk, call.padded);
  for (int i = 0; i < count; ++i) {
    const Matrix& w = products[i].w;
    launch(runtime, walk_weights_kernel, {blocks_for(static_cast<std::int64_t>(w.rows) * (width / kLaneValues), 128)},
           128, 0, weights, w, call.walk);
    call.weights[i] = weights;
    weights += static_cast<std::int64_t>(w.rows) * width;
  }
  const auto start = [&]<class S>(S) {
    launch(runtime, float_tile_kernel<S>,
           {static_cast<unsigned>(call.padded / S::tokens), static_cast<unsigned>(call.list.first_block[count])},
           S::threads, S::sets_bytes, call);
  };
  if (is_small)
    start(Small());
  else
    start(Usual());
}

void prepare_float_tiles([[maybe_unused]] Runtime& runtime) {
  if constexpr (Usual::sets_bytes > 0) {
    runtime.allow_shared(reinterpret_cast<const void*>(&float_tile_kernel<Usual>), Usual::sets_bytes);
    runtime.allow_shared(reinterpret_cast<const void*>(&float_tile_kernel<Small>), Small::sets_bytes);
  }
}

}  // namespace lockstep::gpu
