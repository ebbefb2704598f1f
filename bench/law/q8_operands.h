// Q8_0 weights and int8 activations in device memory, in the layouts that the kernels read.
//
// Weights lie in two planes. Codes [row][width] are natural, as in the file less the scales; or coalesced: within a
// chunk, the 16-byte halves of the blocks are placed so that a warp's load of one half a thread is contiguous; or
// walked: blocks in the order's walk, as a tile kernel adds them. Scales are f16 [row][walk]: a lane's are
// neighbours, and so are a column's.
// Activations: codes [token][width] in the same layouts; f32 scales [token][walk] or, for tiles, [walk][token].
#pragma once

#include <cuda_fp16.h>

#include "data.h"
#include "harness.h"

namespace lockstep::law {

enum class Layout { natural, coalesced, walked };

/// Byte offset in a row of half `half` (0 or 1) of the block at place `walk`.
template <class FixedOrder, Layout kLayout>
__host__ __device__ constexpr int half_offset(int walk, int half) {
  constexpr Order kOrder = FixedOrder::order;
  if constexpr (kLayout == Layout::natural) return kOrder.block_at(walk) * kBlock + half * 16;
  if constexpr (kLayout == Layout::walked) return walk * kBlock + half * 16;
  constexpr int kThreads = kOrder.lanes() * kOrder.lane_threads(), kHold = kOrder.chunk_blocks() / kThreads;
  constexpr int kColumnThreads = kThreads / kOrder.columns;
  const int chunk = walk / kOrder.chunk_blocks(), share = walk % kOrder.chunk_blocks() / kHold, i = walk % kHold;
  const int thread = share % kColumnThreads * kOrder.columns + share / kColumnThreads;
  return chunk * kOrder.chunk_blocks() * kBlock + ((i * 2 + half) * kThreads + thread) * 16;
}

template <class FixedOrder, Layout kLayout>
__global__ void fill_codes_kernel(std::uint32_t* codes, int width, std::size_t rows, std::uint32_t seed) {
  constexpr Order kOrder = FixedOrder::order;
  const std::size_t half_index = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int halves = width / 16;
  if (half_index >= rows * halves) return;
  const std::size_t row = half_index / halves;
  const int walk = static_cast<int>(half_index % halves) / 2, half = static_cast<int>(half_index % 2);
  const std::uint64_t logical = (row * width + kOrder.block_at(walk) * kBlock + half * 16) / 4;
  std::uint32_t* to = codes + (row * width + half_offset<FixedOrder, kLayout>(walk, half)) / 4;
  for (int i = 0; i < 4; ++i) to[i] = four_codes(logical + i, seed);
}

template <class FixedOrder>
__global__ void fill_weight_scales_kernel(std::uint16_t* scales, int blocks, std::size_t rows, std::uint32_t seed) {
  constexpr Order kOrder = FixedOrder::order;
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= rows * blocks) return;
  const std::size_t row = at / blocks;
  scales[at] = half_bits(row * blocks + kOrder.block_at(static_cast<int>(at % blocks)), seed);
}

/// Writes both [token][walk] and [walk][padded token].
template <class FixedOrder>
__global__ void fill_activation_scales_kernel(float* by_token, float* by_walk, int blocks, int tokens, int padded,
                                              std::uint32_t seed) {
  constexpr Order kOrder = FixedOrder::order;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= padded * blocks) return;
  const int token = at / blocks, walk = at % blocks;
  const float scale =
      token < tokens ? scale_value(static_cast<std::uint64_t>(token) * blocks + kOrder.block_at(walk), seed) : 0.0f;
  if (token < tokens) by_token[at] = scale;
  by_walk[static_cast<std::size_t>(walk) * padded + token] = scale;
}

inline unsigned grid_for(std::size_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

/// `copies` different weight matrices one after another, copy i made from seed `seed + 16 * i`.
template <class FixedOrder, Layout kLayout>
struct Q8Weights {
  Q8Weights(int rows_, int width_, int copies_, std::uint32_t seed)
      : rows(rows_),
        width(width_),
        copies(copies_),
        codes(bytes() * static_cast<std::size_t>(copies_)),
        scales(bytes() / kBlock * static_cast<std::size_t>(copies_)) {
    for (int i = 0; i < copies; ++i) {
      fill_codes_kernel<FixedOrder, kLayout><<<grid_for(bytes() / 16), 256>>>(
          reinterpret_cast<std::uint32_t*>(codes.data() + bytes() * i), width, rows, seed + 16 * i + kWeightSeed);
      fill_weight_scales_kernel<FixedOrder><<<grid_for(bytes() / kBlock), 256>>>(
          scales.data() + bytes() / kBlock * i, width / kBlock, rows, seed + 16 * i + kWeightScaleSeed);
    }
    check(cudaDeviceSynchronize(), "fill weights");
  }
  std::size_t bytes() const { return static_cast<std::size_t>(rows) * width; }
  const std::int8_t* codes_of(int copy) const { return codes.data() + bytes() * copy; }
  const __half* scales_of(int copy) const {
    return reinterpret_cast<const __half*>(scales.data() + bytes() / kBlock * copy);
  }
  int rows, width, copies;
  DeviceArray<std::int8_t> codes;
  DeviceArray<std::uint16_t> scales;
};

template <class FixedOrder, Layout kLayout>
struct Q8Activations {
  Q8Activations(int tokens_, int width, std::uint32_t seed)
      : tokens(tokens_),
        padded((tokens_ + 127) / 128 * 128),
        codes(static_cast<std::size_t>(padded) * width),
        scales(static_cast<std::size_t>(tokens_) * width / kBlock),
        walk_scales(static_cast<std::size_t>(padded) * width / kBlock) {
    fill_codes_kernel<FixedOrder, kLayout><<<grid_for(codes.count() / 16), 256>>>(
        reinterpret_cast<std::uint32_t*>(codes.data()), width, padded, seed + kActivationSeed);
    fill_activation_scales_kernel<FixedOrder><<<grid_for(walk_scales.count()), 256>>>(
        scales.data(), walk_scales.data(), width / kBlock, tokens, padded, seed + kActivationScaleSeed);
    check(cudaDeviceSynchronize(), "fill activations");
  }
  int tokens, padded;
  DeviceArray<std::int8_t> codes;
  DeviceArray<float> scales, walk_scales;
};

}  // namespace lockstep::law
