// Many tokens by F16 weights and f32 activations: a tile kernel of f32 fmas, no tensor cores, whose order is their own.
//
// A place of a lane (numerics/order.h) is a chain of sixteen fmas in every width that is taken here. So the law's walk
// has the place outside and the octet inside: sixteen values are one stage, and one accumulator set is hot. The lane's
// sum lies in registers too, touched once a stage; column and chunk, touched at the end of a lane, in shared memory.
// Weights and activations are first laid out in the order of the walk, in room that is handed over: a fraction of a
// percent of the time. Roofline: 128 fma a clock and multiprocessor; docs/numerics.md has what the order costs.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/float_tile.h"
#include "numerics/order.h"

namespace lockstep::gpu {

#if defined(__HIP__)

bool can_tile_floats(const Runtime&, DType, const Product*, int) { return false; }
std::size_t float_tile_bytes(const Product*, int) { return 0; }
void multiply_float_tiles(Runtime&, const Product*, int, std::byte*) {}
void prepare_float_tiles(Runtime&) {}

#else

namespace {

constexpr int kTile = 128, kThreads = 256, kStage = 16;  // rows and tokens of a tile; values of a stage
constexpr int kLaneValues = kStage * kOctet, kOutputs = 64;
constexpr std::size_t kSetsBytes = 2 * sizeof(float) * kOutputs * kThreads;

/// The walk through a row: chunks, columns, lanes of a column, places, octets.
struct Walk {
  int chunk, lanes;
  LOCKSTEP_DEVICE int column_lanes() const { return lanes / kColumns; }
  /// Where the walk has value k.
  LOCKSTEP_DEVICE int place_of(int k) const {
    const int octet = k % chunk / kOctet, lane = octet % lanes;
    const int lane_walk = lane % kColumns * column_lanes() + lane / kColumns;
    return k / chunk * chunk + (lane_walk * kOctet + k % kOctet) * kStage + octet / lanes;
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
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) float_tile_kernel(LOCKSTEP_PARAMETER Call call) {
  extern __shared__ Floats4 sets[];  // columns, then chunks: [2][16][kThreads], each entry a thread's own
  __shared__ __align__(16) float w[2][kStage][kTile];
  __shared__ __align__(16) float x[2][kStage][kTile];
  follow_launch();
  int part = 0;
  while (part + 1 < call.list.count && block_y() >= call.list.first_block[part + 1]) ++part;
  const Product& p = call.list.part[part];
  const int t = thread_index(), warp = t / kWarp, in_warp = t % kWarp;
  const int first_token = block_x() * kTile, first_row = (block_y() - call.list.first_block[part]) * kTile;
  const int tile_row = (warp % 2 * 8 + in_warp % 8) * 4,
            tile_token = (warp / 2 * 4 + in_warp / 8) * 4;  // and 64 further
  const int load_row = t % kTile, load_k = t / kTile * 8, last_row = p.w.rows - 1;
  const std::uint16_t* from_row =
      call.weights[part] +
      static_cast<std::int64_t>(first_row + load_row < last_row ? first_row + load_row : last_row) * p.w.width + load_k;
  const int stages = p.w.width / kStage;

  const auto fetch_tokens = [&](int stage) {
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      const int k = warp + pass * 8, column = in_warp * 4;
      copy16(&x[stage % 2][k][column],
             call.tokens + static_cast<std::int64_t>(stage * kStage + k) * call.padded + first_token + column);
    }
    end_copy_group();
  };
  Words4 raw;
  const auto fetch_weights = [&](int stage) { raw = *reinterpret_cast<const Words4*>(from_row + stage * kStage); };
  const auto store_weights = [&](int stage) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      w[stage % 2][load_k + i][load_row] = widen_f16(raw.word[i / 2] >> (16 * (i % 2)) & 0xffffu);
  };
  float chain[kOutputs], lane[kOutputs];
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
  const auto compute = [&](int stage, float(&sum)[kOutputs]) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sum[j] = 0;
#pragma unroll
    for (int k = 0; k < kStage; ++k) {
      Floats4 rows[2], tokens[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[half] = *reinterpret_cast<const Floats4*>(&w[stage % 2][k][tile_row + half * 64]);
        tokens[half] = *reinterpret_cast<const Floats4*>(&x[stage % 2][k][tile_token + half * 64]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int r = 0; r < 8; ++r)
          sum[i * 8 + r] = fma_f32(tokens[i / 4].value[i % 4], rows[r / 4].value[r % 4], sum[i * 8 + r]);
    }
  };
  const auto next_stage = [&](int stage) {  // what `stage` needs is in shared memory when it returns
    wait_for_copies<0>();
    block_barrier();
    if (stage + 1 >= stages) return;
    fetch_tokens(stage + 1);
    store_weights(stage + 1);
    fetch_weights(stage + 2 < stages ? stage + 2 : stages - 1);
  };
  const auto write = [&](const float(&value)[kOutputs], bool is_first) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int row = first_row + tile_row + j % 8 / 4 * 64 + j % 4;
      const int token = first_token + tile_token + j / 8 / 4 * 64 + j / 8 % 4;
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
  const int chunk = width < kChunk ? width : kChunk;
  return {chunk, octet_lanes_of(chunk)};
}

int padded_of(int tokens) { return (tokens + kTile - 1) / kTile * kTile; }

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
  return kSetsBytes + 4 * sizeof(float) * kStage * kTile <= runtime.most_shared_bytes();
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
  call.list = list_of(products, count, kTile);
  call.walk = walk_of(width);
  call.padded = padded_of(tokens);
  auto* const walked = reinterpret_cast<float*>(room);
  call.tokens = walked;
  auto* weights = reinterpret_cast<std::uint16_t*>(walked + static_cast<std::int64_t>(width) * call.padded);
  launch(runtime, walk_tokens_kernel,
         {static_cast<unsigned>(width / kWarp), static_cast<unsigned>(call.padded / kWarp)}, kThreads, 0, walked,
         products[0].values, call.walk, call.padded);
  for (int i = 0; i < count; ++i) {
    const Matrix& w = products[i].w;
    launch(runtime, walk_weights_kernel, {blocks_for(static_cast<std::int64_t>(w.rows) * (width / kLaneValues), 128)},
           128, 0, weights, w, call.walk);
    call.weights[i] = weights;
    weights += static_cast<std::int64_t>(w.rows) * width;
  }
  launch(runtime, float_tile_kernel,
         {static_cast<unsigned>(call.padded / kTile), static_cast<unsigned>(call.list.first_block[count])}, kThreads,
         kSetsBytes, call);
}

void prepare_float_tiles(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&float_tile_kernel), kSetsBytes);
}

#endif

}  // namespace lockstep::gpu
