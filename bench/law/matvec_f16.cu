// One token by F16 weights and f32 activations: octets of a row dealt to the law's lanes, each of an octet's eight
// positions its own chain of fmas. Weights are read as they lie in the file. A lane is one thread, or kSplit threads
// that share its positions, so that a matrix of few rows still has enough loads in flight. Bytes: 2 a weight.
#include <cuda_fp16.h>

#include <algorithm>

#include "data.h"
#include "harness.h"

namespace lockstep::law {

namespace {

__global__ void fill_halves_kernel(std::uint16_t* to, std::size_t count, std::uint32_t seed) {
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) to[at] = half_bits(at, seed);
}

__global__ void fill_floats_kernel(float* to, std::size_t count, std::uint32_t seed) {
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) to[at] = activation_value(at, seed);
}

template <int kCount>
struct alignas(2 * kCount) Halves {
  __half at[kCount];
};

template <int kCount>
struct alignas(kCount < 4 ? 4 * kCount : 16) Floats {
  float at[kCount];
};

// Loads that the compiler keeps in the order written, so that all of a thread's weights are asked for before the first
// use.
template <int kCount>
__device__ Halves<kCount> load_once(const __half* from) {
  constexpr int kWords = kCount < 2 ? 1 : kCount / 2;
  std::uint32_t words[kWords];
  if constexpr (kCount == 8)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(from));
  else if constexpr (kCount == 4)
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
  else if constexpr (kCount == 2)
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(words[0]) : "l"(from));
  else
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=r"(words[0]) : "l"(from));
  Halves<kCount> halves;
  memcpy(&halves, words, sizeof halves);
  return halves;
}

/// out[row] = weights[row] . x. A thread block holds kBlockRows whole rows; kChunks chunks of 4096 values a row.
template <int kChunks, int kSplit, int kBlockRows>
__global__ void __launch_bounds__(kBlockRows* kChunks* kMaxLanes* kSplit, 1)
    matvec_kernel(const __half* __restrict__ weights, const float* __restrict__ x, float* __restrict__ out, int rows) {
  constexpr int kWidth = kChunks * kChunk, kPositions = kOctet / kSplit, kOctets = kChunk / kOctet / kMaxLanes;
  static_assert(octet_lanes_of(kChunk) == kMaxLanes);
  __shared__ float lanes[kBlockRows * kChunks][kMaxLanes];
  const int unit = threadIdx.x / (kMaxLanes * kSplit),
            in_unit = threadIdx.x % (kMaxLanes * kSplit);  // unit: row, chunk
  const int lane = in_unit / kSplit, part = in_unit % kSplit;
  const int row = min(static_cast<int>(blockIdx.x) * kBlockRows + unit / kChunks, rows - 1);
  const int begin = unit % kChunks * kChunk + lane * kOctet + part * kPositions;
  const __half* from = weights + static_cast<std::size_t>(row) * kWidth + begin;
  Halves<kPositions> w[kOctets];
#pragma unroll
  for (int i = 0; i < kOctets; ++i) w[i] = load_once<kPositions>(from + i * kMaxLanes * kOctet);
  float partial[kPositions] = {};
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    const auto v = *reinterpret_cast<const Floats<kPositions>*>(x + begin + i * kMaxLanes * kOctet);
#pragma unroll
    for (int p = 0; p < kPositions; ++p) partial[p] = __fmaf_rn(__half2float(w[i].at[p]), v.at[p], partial[p]);
  }
  float sum = partial[0];
#pragma unroll
  for (int p = 1; p < kPositions; ++p) sum = __fadd_rn(sum, partial[p]);
#pragma unroll
  for (int s = 1; s < kSplit; ++s) {  // the running sum is handed from part to part
    const float before = __shfl_up_sync(~0u, sum, 1, kSplit);
    if (part == s) {
      sum = before;
#pragma unroll
      for (int p = 0; p < kPositions; ++p) sum = __fadd_rn(sum, partial[p]);
    }
  }
  if (part == kSplit - 1) lanes[unit][lane] = sum;
  __syncthreads();
  // Eight threads a chunk take a column each; the first warps hold all of them.
  const int my_unit = threadIdx.x / kColumns, c = threadIdx.x % kColumns;
  if (threadIdx.x / 32 * 32 >= kBlockRows * kChunks * kColumns) return;
  const int safe_unit = min(my_unit, kBlockRows * kChunks - 1);
  float column = lanes[safe_unit][c];
#pragma unroll
  for (int g = 1; g < kMaxLanes / kColumns; ++g) column = __fadd_rn(column, lanes[safe_unit][c + g * kColumns]);
  float chunk_sum = column;
#pragma unroll
  for (int i = 1; i < kColumns; ++i) chunk_sum = __fadd_rn(chunk_sum, __shfl_down_sync(~0u, column, i, kColumns));
  float total = chunk_sum;
#pragma unroll
  for (int chunk = 1; chunk < kChunks; ++chunk)
    total = __fadd_rn(total, __shfl_down_sync(~0u, chunk_sum, chunk * kColumns, kChunks * kColumns));
  const int out_row = blockIdx.x * kBlockRows + my_unit / kChunks;
  if (c == 0 && my_unit % kChunks == 0 && my_unit < kBlockRows * kChunks && out_row < rows) out[out_row] = total;
}

template <int kChunks, int kSplit, int kBlockRows>
void measure(Report& report, int rows, double bare_us) {
  constexpr std::uint32_t kSeed = 4000;
  constexpr int kWidth = kChunks * kChunk;
  const std::size_t count = static_cast<std::size_t>(rows) * kWidth;
  const int copies = static_cast<int>((256u << 20) / (2 * count));
  DeviceArray<std::uint16_t> weights(count * copies);
  DeviceArray<float> x(kWidth), out(static_cast<std::size_t>(rows));
  for (int i = 0; i < copies; ++i)
    fill_halves_kernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(weights.data() + count * i, count,
                                                                            kSeed + 16 * i + kWeightSeed);
  fill_floats_kernel<<<(kWidth + 255) / 256, 256>>>(x.data(), kWidth, kSeed + kActivationSeed);
  const auto launch = [&](cudaStream_t stream, int copy, int n_rows) {
    matvec_kernel<kChunks, kSplit, kBlockRows>
        <<<(n_rows + kBlockRows - 1) / kBlockRows, kBlockRows * kChunks * kMaxLanes * kSplit, 0, stream>>>(
            reinterpret_cast<const __half*>(weights.data() + count * copy), x.data(), out.data(), n_rows);
  };
  Compared compared;
  for (const int n_rows : {rows, 23}) {
    out.poison();
    launch(nullptr, 0, n_rows);
    const auto row_ids = sample(n_rows, n_rows), token_ids = sample(1, 1);
    compared +=
        compare(out, n_rows, reference_f16({n_rows, kWidth, kSeed}, false, row_ids, token_ids), row_ids, token_ids);
  }
  report.add(compared);
  const double us = time_us([&](cudaStream_t s, int i) { launch(s, i % copies, rows); }, copies, 20);
  report.line(
      "%5d x %5d  law, %d threads a lane, %d rows a block  %7.2f us  %5.2f TB/s  %5.3f of bare read (%.2f us)  wrong "
      "%zu",
      rows, kWidth, kSplit, kBlockRows, us, 2e-6 * static_cast<double>(count) / us, us / bare_us, bare_us,
      compared.wrong);
}

}  // namespace

void measure_matvec_f16(Report& report) {
  report.section("F16 x f32 matrix-vector");
  double bare = bare_read_us(1024 * 4096 * 2);
  measure<1, 1, 4>(report, 1024, bare);
  measure<1, 2, 4>(report, 1024, bare);
  measure<1, 4, 2>(report, 1024, bare);
  bare = bare_read_us(24 * 16384 * 2);
  measure<4, 1, 1>(report, 24, bare);
  measure<4, 2, 1>(report, 24, bare);
  measure<4, 4, 1>(report, 24, bare);
  measure<4, 8, 1>(report, 24, bare);
  bare = bare_read_us(256 * 4096 * 2);
  measure<1, 1, 2>(report, 256, bare);
  measure<1, 2, 1>(report, 256, bare);
  measure<1, 4, 1>(report, 256, bare);
  measure<1, 8, 1>(report, 256, bare);
}

}  // namespace lockstep::law
