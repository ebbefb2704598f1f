// Many tokens by a few long rows of F16 weights: the mixes of the hyper-connections, 24 x 16384.
//
// A block keeps one chunk of all rows in shared memory and takes tokens, six at a time. A thread is a place of a lane
// (numerics/order.h) for half of the rows: its chain is sixteen fmas over values that neighbouring threads read side by
// side. Places, lanes and columns meet through shared memory, chunks in a second kernel. Bound by fma, of which 24 x
// 2048 x 16384 take 26 us, and by reading the activations, once: 31 us.
#include "base/error.h"
#include "gpu/device.h"
#include "gpu/float_tile.h"
#include "numerics/order.h"

namespace lockstep::gpu {
namespace {

constexpr int kRows = 24, kGroups = 2, kGroupRows = kRows / kGroups, kTokens = 6;
constexpr int kAhead = 2;  // values of a token that a thread has asked for
constexpr int kPlaces = kMaxLanes * kOctet, kThreads = kGroups * kPlaces, kChainValues = kChunk / kPlaces;
static_assert(octet_lanes_of(kChunk) == kMaxLanes);

struct ThinShared {
  std::uint16_t weights[kRows][kChunk];
  float places[kRows][kPlaces];  // of one token
};

/// Grid: shares of the tokens, chunks. parts [chunks, tokens, kRows].
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) thin_kernel(Matrix w, ConstRows x, float* parts, int share) {
  LOCKSTEP_DYNAMIC_SHARED(Words4, thin_shared);
  auto& shared = *reinterpret_cast<ThinShared*>(thin_shared);
  const int t = thread_index(), place = t % kPlaces, first_row = t / kPlaces * kGroupRows, chunk = block_y();
  let_next_launch_begin();
  for (int i = t; i < kRows * kChunk / 8; i += kThreads) {  // weights: before the launch before is done
    const int row = i / (kChunk / 8), unit = i % (kChunk / 8);
    reinterpret_cast<Words4*>(shared.weights[row])[unit] =
        row < w.rows ? load_once(w.data + row * w.row_bytes + 2 * static_cast<std::int64_t>(chunk) * kChunk + 16 * unit)
                     : Words4{};
  }
  wait_for_launch_before();
  block_barrier();
  const int begin = block_x() * share, end = begin + share < x.rows ? begin + share : x.rows;
  for (int first = begin; first < end; first += kTokens) {
    std::uint32_t from[kTokens];  // a step's activations are below 2^32 values
#pragma unroll
    for (int k = 0; k < kTokens; ++k) {
      const int token = first + k < end ? first + k : end - 1;
      from[k] = static_cast<std::uint32_t>(token * x.stride + chunk * kChunk + place);
    }
    float sum[kTokens][kGroupRows] = {}, next[kAhead][kTokens];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int k = 0; k < kTokens; ++k) next[u][k] = x.data[from[k] + u * kPlaces];
#pragma unroll 1
    for (int first_value = 0; first_value < kChainValues; first_value += kAhead) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int i = first_value + u;
        float value[kTokens];
#pragma unroll
        for (int k = 0; k < kTokens; ++k) {
          value[k] = next[u][k];
          if (i + kAhead < kChainValues) next[u][k] = x.data[from[k] + (i + kAhead) * kPlaces];
        }
#pragma unroll
        for (int r = 0; r < kGroupRows; ++r) {
          const float weight = widen_f16(shared.weights[first_row + r][i * kPlaces + place]);
#pragma unroll
          for (int k = 0; k < kTokens; ++k) sum[k][r] = fma_f32(weight, value[k], sum[k][r]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kTokens; ++k) {
      block_barrier();
#pragma unroll
      for (int r = 0; r < kGroupRows; ++r) shared.places[first_row + r][place] = sum[k][r];
      block_barrier();
      for (int row = t / kWarp; row < kRows; row += kThreads / kWarp) {  // a warp a row, a thread a lane
        const float* places = shared.places[row] + lane_index() * kOctet;
        float lane = places[0];
#pragma unroll
        for (int p = 1; p < kOctet; ++p) lane = lane + places[p];
        float column = shuffle(lane, lane_index() % kColumns);
#pragma unroll
        for (int l = kColumns; l < kMaxLanes; l += kColumns)
          column = column + shuffle(lane, l + lane_index() % kColumns);
        float total = shuffle(column, 0);
#pragma unroll
        for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, c);
        if (lane_index() == 0 && first + k < end)
          parts[(static_cast<std::int64_t>(chunk) * x.rows + first + k) * kRows + row] = total;
      }
    }
  }
}

/// Chunks in ascending order.
LOCKSTEP_KERNEL void meet_kernel(Rows out, const float* parts, int chunks) {
  follow_launch();
  const int item = block_x() * block_threads() + thread_index(), row = item % kRows, token = item / kRows;
  if (token >= out.rows || row >= out.width) return;
  float total = parts[item];
  for (int chunk = 1; chunk < chunks; ++chunk)
    total = total + parts[static_cast<std::int64_t>(chunk) * out.rows * kRows + item];
  out.data[token * out.stride + row] = total;
}

}  // namespace

bool can_thin_floats(const Runtime& runtime, DType dtype, const Product& p) {
  constexpr int kFewTokens = 64;
  return dtype == DType::f16 && p.out.rows >= kFewTokens && p.w.rows <= kRows && p.w.width % kChunk == 0 &&
         p.w.row_bytes % 16 == 0 && p.expert == nullptr && p.rows_a_group == 0 &&
         sizeof(ThinShared) <= runtime.most_shared_bytes();
}

std::size_t thin_float_bytes(const Product& p) {
  return sizeof(float) * static_cast<std::size_t>(p.w.width / kChunk) * static_cast<std::size_t>(p.out.rows) * kRows;
}

void multiply_thin_floats(Runtime& runtime, const Product& p, std::byte* room) {
  auto* const parts = reinterpret_cast<float*>(room);
  const int chunks = p.w.width / kChunk;
  const int blocks = runtime.multiprocessors() / chunks > 0 ? runtime.multiprocessors() / chunks : 1;
  const int share = ((p.out.rows + blocks - 1) / blocks + kTokens - 1) / kTokens * kTokens;
  launch(runtime, thin_kernel, {blocks_for(p.out.rows, share), static_cast<unsigned>(chunks)}, kThreads,
         sizeof(ThinShared), p.w, p.values, parts, share);
  launch(runtime, meet_kernel, {blocks_for(static_cast<std::int64_t>(p.out.rows) * kRows, 256)}, 256, 0, p.out, parts,
         chunks);
}

void prepare_thin_floats(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&thin_kernel), sizeof(ThinShared));
}

}  // namespace lockstep::gpu
