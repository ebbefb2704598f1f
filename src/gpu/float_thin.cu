// Many tokens by a few long rows of F16 weights: the mixes of the hyper-connections, 24 x 16384.
//
// A block keeps one chunk of all rows in shared memory and takes tokens, six at a time. A thread is a place of a lane
// (numerics/order.h) for half of the rows: its chain is sixteen fmas over values that neighbouring threads read side by
// side. Places, lanes and columns meet through shared memory, chunks in a second kernel. Bound by fma, of which 24 x
// 2048 x 16384 take 26 us, and by reading the activations, once: 31 us.
#include "base/error.h"
#include "gpu/device.h"
#include "gpu/float_tile.h"
#include "gpu/fma_order.h"
#include "numerics/order.h"

namespace lockstep::gpu {
namespace {

constexpr int kRows = 24, kGroups = 2, kGroupRows = kRows / kGroups, kTokens = 6;
constexpr int kAhead = 2, kAtOnce = 8;  // values of a token that a thread has asked for; that one pass goes through
constexpr int kPlaces = kMaxLanes * kOctet, kThreads = kGroups * kPlaces, kChainValues = kChunk / kPlaces;
static_assert(octet_lanes_of(kChunk) == kMaxLanes);

struct ThinShared {
  std::uint32_t weights[kRows / 2][kChunk];  // of two rows, in one word
  union {
    float places[kThreads / kWarp][kGroupRows][kWarp];  // of one token, by warps
    float lanes[kTokens * kRows][kMaxLanes + 1];        // of tokens, rows
  };
};

/// Weights of two rows, as far as there are such rows.
LOCKSTEP_DEVICE void fill_weights(ThinShared& shared, const Matrix& w, int chunk) {
  constexpr int kUnits = kChunk / 8;
  for (int i = thread_index(); i < kRows / 2 * kUnits; i += kThreads) {
    const int row = i / kUnits * 2, unit = i % kUnits;
    const std::uint8_t* from = w.data + row * w.row_bytes + 2 * static_cast<std::int64_t>(chunk) * kChunk + 16 * unit;
    const Words4 first = row < w.rows ? load_once(from) : Words4{},
                 second = row + 1 < w.rows ? load_once(from + w.row_bytes) : Words4{};
    auto* to = reinterpret_cast<Words4*>(&shared.weights[row / 2][8 * unit]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Words4 pairs;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        pairs.word[2 * k] = choose_bytes(first.word[2 * half + k], second.word[2 * half + k], 0x5410);
        pairs.word[2 * k + 1] = choose_bytes(first.word[2 * half + k], second.word[2 * half + k], 0x7632);
      }
      to[half] = pairs;
    }
  }
}

/// Asks for the values of a group of tokens: they come from far away.
LOCKSTEP_DEVICE void ask_for_tokens([[maybe_unused]] const ConstRows& x, [[maybe_unused]] int chunk,
                                    [[maybe_unused]] int first, [[maybe_unused]] int end) {
#if defined(__CUDA_ARCH__)
  constexpr int kLine = 32, kLines = kChunk / kLine;  // floats
  for (int i = thread_index(); i < kTokens * kLines; i += kThreads)
    if (first + i / kLines < end)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(x.data + (first + i / kLines) * x.stride + chunk * kChunk +
                                                    i % kLines * kLine));
#endif
}

/// From the places' sums of every thread to the chunk's sums [tokens, kRows] of the tokens before `end`.
LOCKSTEP_DEVICE void meet(ThinShared& shared, const float (&sum)[kTokens][kGroupRows], float* to, int tokens) {
  constexpr int kWarpLanes = kWarp / kOctet, kItems = kGroupRows * kWarpLanes, kRounds = (kItems + kWarp - 1) / kWarp;
  const int t = thread_index(), warp = t / kWarp;
  auto& places = shared.places[warp];
  float lane[kTokens][kRounds];
  block_barrier();  // the lanes of the tokens before have been read
#pragma unroll
  for (int k = 0; k < kTokens; ++k) {
#pragma unroll
    for (int r = 0; r < kGroupRows; ++r) places[r][lane_index()] = sum[k][r];
    warp_barrier();
#pragma unroll
    for (int j = 0; j < kRounds; ++j) {
      const int item = lane_index() + j * kWarp;
      if (item >= kItems) break;
      const auto* from = reinterpret_cast<const Floats4*>(&places[item / kWarpLanes][item % kWarpLanes * kOctet]);
      const Floats4 low = from[0], high = from[1];
      float total = low.value[0];
#pragma unroll
      for (int p = 1; p < 4; ++p) total = total + low.value[p];
#pragma unroll
      for (int p = 0; p < 4; ++p) total = total + high.value[p];
      lane[k][j] = total;
    }
    warp_barrier();
  }
  block_barrier();
  const int first_row = t / kPlaces * kGroupRows, first_lane = t % kPlaces / kWarp * kWarpLanes;
#pragma unroll
  for (int k = 0; k < kTokens; ++k)
#pragma unroll
    for (int j = 0; j < kRounds; ++j) {
      const int item = lane_index() + j * kWarp;
      if (item < kItems)
        shared.lanes[k * kRows + first_row + item / kWarpLanes][first_lane + item % kWarpLanes] = lane[k][j];
    }
  block_barrier();
  if (t < tokens * kRows) to[t] = fold(shared.lanes[t], kMaxLanes);
}

/// Grid: shares of the tokens, chunks. parts [chunks, tokens, kRows].
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) thin_kernel(Matrix w, ConstRows x, float* parts, int share) {
  LOCKSTEP_DYNAMIC_SHARED(Words4, thin_shared);
  auto& shared = *reinterpret_cast<ThinShared*>(thin_shared);
  const int t = thread_index(), place = t % kPlaces, first_pair = t / kPlaces * (kGroupRows / 2), chunk = block_y();
  let_next_launch_begin();
  fill_weights(shared, w, chunk);  // before the launch before is done
  wait_for_launch_before();
  block_barrier();
  const int begin = block_x() * share, end = begin + share < x.rows ? begin + share : x.rows;
  ask_for_tokens(x, chunk, begin, end);
  for (int first = begin; first < end; first += kTokens) {
    ask_for_tokens(x, chunk, first + kTokens, end);
    const float* from[kTokens];
#pragma unroll
    for (int k = 0; k < kTokens; ++k)
      from[k] = x.data + (first + k < end ? first + k : end - 1) * x.stride + chunk * kChunk + place;
    float sum[kTokens][kGroupRows] = {}, next[kAhead][kTokens];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int k = 0; k < kTokens; ++k) next[u][k] = from[k][u * kPlaces];
#pragma unroll 1
    for (int first_value = 0; first_value < kChainValues; first_value += kAtOnce) {
      const bool is_last = first_value + kAtOnce == kChainValues;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        float value[kTokens];
#pragma unroll
        for (int k = 0; k < kTokens; ++k) {
          value[k] = next[u % kAhead][k];
          if (u + kAhead < kAtOnce || !is_last) next[u % kAhead][k] = from[k][(u + kAhead) * kPlaces];
        }
#pragma unroll
        for (int r = 0; r < kGroupRows; r += 2) {
          const std::uint32_t pair = shared.weights[first_pair + r / 2][(first_value + u) * kPlaces + place];
          const float low = widen_f16(pair & 0xffffu), high = widen_f16(pair >> 16);
#pragma unroll
          for (int k = 0; k < kTokens; ++k) sum[k][r] = fma_in_order(low, value[k], sum[k][r]);
#pragma unroll
          for (int k = kTokens - 1; k >= 0; --k) sum[k][r + 1] = fma_in_order(high, value[k], sum[k][r + 1]);
        }
      }
#pragma unroll
      for (int k = 0; k < kTokens; ++k) from[k] += kAtOnce * kPlaces;
    }
    meet(shared, sum, parts + (static_cast<std::int64_t>(chunk) * x.rows + first) * kRows,
         end - first < kTokens ? end - first : kTokens);
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
