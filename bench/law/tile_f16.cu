// Many tokens by F16 weights and f32 activations: a tile kernel of f32 fmas, no tensor cores.
//
// A lane's position is a chain of sixteen fmas, so the law's walk has the position outside and the octet inside:
// sixteen values of k are one stage, and one accumulator set is hot. The lane's sum lives in registers too, touched
// once a stage; column and total, touched every eighth and every thirty-second stage, in shared memory. Weights are
// re-laid [row][walk], activations [walk][token]. Roofline: 132 SMs x 128 fma a clock.
#include <cuda_fp16.h>

#include <algorithm>

#include "data.h"
#include "harness.h"

namespace lockstep::law {

namespace {

constexpr int kTile = 128, kThreads = 256, kStage = 16;                // rows and tokens of a tile; values of k
constexpr int kPositions = kOctet, kLaneValues = kStage * kPositions;  // of a chunk of 4096
constexpr int kSetBytes = 64 * kThreads * 4;                           // one accumulator set of a thread block

static_assert(octet_lanes_of(kChunk) == kMaxLanes);

/// Value of k at place `walk`; the free order walks ascending.
template <bool kLaw>
__host__ __device__ int value_at(int walk) {
  if (!kLaw) return walk;
  const int in_chunk = walk % kChunk, lane_walk = in_chunk / kLaneValues, position = in_chunk / kStage % kPositions;
  const int lane = lane_walk / 4 + kColumns * (lane_walk % 4);
  return walk / kChunk * kChunk + kOctet * (lane + kMaxLanes * (in_chunk % kStage)) + position;
}

template <bool kLaw>
__global__ void fill_kernel(std::uint16_t* weights, float* activations, int rows, int tokens, int width,
                            std::uint32_t seed) {
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int walk = static_cast<int>(at % width);
  const std::size_t index = at / width, logical = index * width + value_at<kLaw>(walk);
  if (index < static_cast<std::size_t>(rows)) weights[at] = half_bits(logical, seed + kWeightSeed);
  if (index < static_cast<std::size_t>(tokens))
    activations[static_cast<std::size_t>(walk) * tokens + index] = activation_value(logical, seed + kActivationSeed);
}

/// out[token * rows + row]; grid (token tiles, row tiles). `tokens` is a multiple of kTile, `width` of kChunk; rows are
/// any.
template <bool kLaw>
__global__ void __launch_bounds__(kThreads, 1)
    tile_kernel(const __half* __restrict__ weights, const float* __restrict__ activations, float* out, int rows,
                int tokens, int width) {
  extern __shared__ float4 sets[];  // the law's columns, then totals: [2][16][kThreads], each entry a thread's own
  __shared__ __align__(16) float w[2][kStage][kTile], a[2][kStage][kTile];
  const int first_token = blockIdx.x * kTile, first_row = blockIdx.y * kTile;
  const int warp = threadIdx.x / 32, in_warp = threadIdx.x % 32;
  const int tile_row = (warp % 2 * 8 + in_warp % 8) * 4,
            tile_token = (warp / 2 * 4 + in_warp / 8) * 4;  // and 64 further
  const int load_row = threadIdx.x % kTile, load_k = threadIdx.x / kTile * 8;
  const __half* from_row = weights + static_cast<std::size_t>(min(first_row + load_row, rows - 1)) * width + load_k;
  const int stages = width / kStage;

  const auto fetch_tokens = [&](int stage) {
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      const int k = static_cast<int>(threadIdx.x) / 32 + pass * 8, column = static_cast<int>(threadIdx.x) % 32 * 4;
      const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(&a[stage % 2][k][column]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                   "l"(activations + static_cast<std::size_t>(stage * kStage + k) * tokens + first_token + column));
    }
    asm volatile("cp.async.commit_group;");
  };
  uint4 raw;
  const auto fetch_weights = [&](int stage) { raw = *reinterpret_cast<const uint4*>(from_row + stage * kStage); };
  const auto store_weights = [&](int stage) {
    const __half* half = reinterpret_cast<const __half*>(&raw);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[stage % 2][load_k + i][load_row] = __half2float(half[i]);
  };
  float chain[64], lane[64];
  const auto add_to_set = [&](int set, float(&from)[64], bool fresh) {
    float4* to = sets + set * 16 * kThreads + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 v = fresh ? float4{0, 0, 0, 0} : to[j * kThreads];
      v.x = __fadd_rn(v.x, from[4 * j]), v.y = __fadd_rn(v.y, from[4 * j + 1]);
      v.z = __fadd_rn(v.z, from[4 * j + 2]), v.w = __fadd_rn(v.w, from[4 * j + 3]);
      to[j * kThreads] = v;
    }
  };
  const auto read_set = [&](int set, float(&to)[64]) {
    const float4* from = sets + set * 16 * kThreads + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float4 v = from[j * kThreads];
      to[4 * j] = v.x, to[4 * j + 1] = v.y, to[4 * j + 2] = v.z, to[4 * j + 3] = v.w;
    }
  };
  const auto compute = [&](int stage, float(&sum)[64]) {
#pragma unroll
    for (int k = 0; k < kStage; ++k) {
      float rows_of[8], tokens_of[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float4*>(rows_of + half * 4) =
            *reinterpret_cast<const float4*>(&w[stage % 2][k][tile_row + half * 64]);
        *reinterpret_cast<float4*>(tokens_of + half * 4) =
            *reinterpret_cast<const float4*>(&a[stage % 2][k][tile_token + half * 64]);
      }
#pragma unroll
      for (int t = 0; t < 8; ++t)
#pragma unroll
        for (int r = 0; r < 8; ++r) sum[t * 8 + r] = __fmaf_rn(rows_of[r], tokens_of[t], sum[t * 8 + r]);
    }
  };
  const auto next_stage = [&](int stage) {  // stage's operands are in shared memory when it returns
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (stage + 1 >= stages) return;
    fetch_tokens(stage + 1);
    store_weights(stage + 1);
    fetch_weights(min(stage + 2, stages - 1));
  };
  const auto clear = [](float(&sum)[64]) {
#pragma unroll
    for (int j = 0; j < 64; ++j) sum[j] = 0;
  };
  const auto write = [&](const float(&value)[64], bool add) {
#pragma unroll
    for (int j = 0; j < 64; ++j) {
      const int row = first_row + tile_row + j % 8 / 4 * 64 + j % 4;
      const int token = first_token + tile_token + j / 8 / 4 * 64 + j / 8 % 4;
      if (row >= rows) continue;
      float* to = out + static_cast<std::size_t>(token) * rows + row;
      *to = add ? __fadd_rn(*to, value[j]) : value[j];
    }
  };

  fetch_tokens(0);
  fetch_weights(0);
  store_weights(0);
  fetch_weights(1);
  if constexpr (!kLaw) {
    clear(chain);
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) next_stage(stage), compute(stage, chain);
    write(chain, false);
    return;
  }
  // Sums are never -0, so adding to zero stands for taking the first.
  int stage = 0;
  for (int chunk = 0; chunk < width / kChunk; ++chunk) {
#pragma unroll 1
    for (int lane_walk = 0; lane_walk < kMaxLanes; ++lane_walk) {
      clear(lane);
      next_stage(stage), compute(stage, lane), ++stage;  // the first position is the lane's own chain
#pragma unroll 1
      for (int position = 1; position < kPositions; ++position, ++stage) {
        clear(chain);
        next_stage(stage), compute(stage, chain);
#pragma unroll
        for (int j = 0; j < 64; ++j) lane[j] = __fadd_rn(lane[j], chain[j]);
      }
      add_to_set(0, lane, lane_walk % 4 == 0);
      if (lane_walk % 4 == 3) read_set(0, chain), add_to_set(1, chain, lane_walk == 3);
    }
    read_set(1, chain);
    write(chain, chunk > 0);
  }
}

template <bool kLaw>
double measure(Report& report, int rows, int tokens, int width, double free_us) {
  constexpr std::uint32_t kSeed = 5000;
  const auto kernel = tile_kernel<kLaw>;
  const int shared_bytes = kLaw ? 2 * kSetBytes : 0;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "shared memory");
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  DeviceArray<std::uint16_t> weights(static_cast<std::size_t>(rows) * width);
  DeviceArray<float> activations(static_cast<std::size_t>(tokens) * width),
      out(static_cast<std::size_t>(rows) * tokens);
  const std::size_t values = static_cast<std::size_t>(std::max(rows, tokens)) * width;
  fill_kernel<kLaw>
      <<<static_cast<unsigned>(values / 256), 256>>>(weights.data(), activations.data(), rows, tokens, width, kSeed);
  const auto launch = [&](cudaStream_t stream, int n_rows) {
    kernel<<<dim3(tokens / kTile, (n_rows + kTile - 1) / kTile), kThreads, shared_bytes, stream>>>(
        reinterpret_cast<const __half*>(weights.data()), activations.data(), out.data(), n_rows, tokens, width);
  };
  Compared compared;
  for (const int n_rows : {rows, 211}) {
    out.poison();
    launch(nullptr, n_rows);
    const auto row_ids = sample(n_rows, 160), token_ids = sample(tokens, 96);
    compared +=
        compare(out, n_rows, reference_f16({n_rows, width, kSeed}, !kLaw, row_ids, token_ids), row_ids, token_ids);
  }
  report.add(compared);
  const double us = time_us([&](cudaStream_t s, int) { launch(s, rows); }, 20, 10);
  report.line("%5d x %5d  %d tokens  %-5s %8.2f us  %5.1f TFLOP/s  %5.3f of free  %d regs %zu local  wrong %zu", rows,
              width, tokens, kLaw ? "law" : "free", us, 2e-6 * rows * tokens * width / us,
              free_us > 0 ? us / free_us : 1.0, attributes.numRegs, attributes.localSizeBytes, compared.wrong);
  return us;
}

}  // namespace

void measure_tile_f16(Report& report) {
  report.section("F16 x f32 tile kernel, f32 fma");
  for (const int width : {4096, 16384}) {
    const double free_us = measure<false>(report, 1024, 2048, width, 0);
    measure<true>(report, 1024, 2048, width, free_us);
  }
  report.line("SM clock after it: %.0f MHz", sm_clock_mhz());
}

}  // namespace lockstep::law
