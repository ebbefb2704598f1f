// Two to eight tokens by Q8_0 weights on tensor cores: a matrix-vector kernel for verify runs and small batches.
//
// Eight tokens fill the narrow side of mma.m16n8k32, so up to eight cost nearly the same. A thread block walks over
// tiles of sixteen rows with one warp for each column of each chunk of the law. A warp keeps its column of the
// activations in registers and streams its own share of the rows through a ring of its own in shared memory, 128 codes
// and four scales of each row a stage, so that the next tile is on its way while this one is added up; the columns of a
// tile meet in order. The sum over k inside a block is exact, so a thread takes eight neighbouring codes as its share,
// in weights and activations alike. Codes lie in walk order. Bytes and roofline as in matvec_q8.cu. (One tile a thread
// block, its loads all in flight at once and nothing to do meanwhile, took 1.16 to 1.80 of a bare read.)
#include <algorithm>

#include "q8_operands.h"

namespace lockstep::law {

namespace {

constexpr int kRows = 16, kTokenTile = 8, kStageBlocks = 4, kRing = 5;
constexpr int kCodeBytes = kRows * kStageBlocks * kBlock, kStageBytes = kCodeBytes + kRows * kStageBlocks * 2;
constexpr int kPitch = kRows + 4;  // floats between the tokens of a tile's columns, so that writers miss one another

/// Warps of a thread block: one for each column of the row.
constexpr int warps_for(int width) { return kColumns * (width < kChunk ? 1 : width / kChunk); }

template <int kBytes>
__device__ void copy_async(void* to, const void* from) {
  const auto shared_to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_to), "l"(from), "n"(kBytes) : "memory");
}

__device__ void multiply(int (&d)[4], uint2 low_rows, uint2 high_rows, uint2 b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(low_rows.x), "r"(high_rows.x), "r"(low_rows.y), "r"(high_rows.y), "r"(b.x), "r"(b.y), "r"(0x4B400000));
}

/// out[token * rows + row] for tokens <= 8. Codes and scales in walk order: [row][walk], [token][walk]. Any grid will
/// do.
template <class FixedOrder, int kWidth, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 16 / kWarps)
    thin_kernel(const std::int8_t* __restrict__ codes, const __half* __restrict__ scales,
                const std::int8_t* __restrict__ activations, const float* __restrict__ activation_scales,
                float* __restrict__ out, int rows, int tokens) {
  constexpr Order kOrder = FixedOrder::order;
  constexpr int kBlocks = kWidth / kBlock, kColumnBlocks = kOrder.column_blocks();
  constexpr int kStages = kColumnBlocks / kStageBlocks;  // of a tile
  static_assert(kOrder.columns == kColumns && kOrder.lane_blocks % kStageBlocks == 0);
  extern __shared__ __align__(128) std::int8_t rings[];  // [warp][kRing][kStageBytes]
  __shared__ float columns[2][kWarps][kTokenTile][kPitch];
  const int warp = threadIdx.x / 32, thread = threadIdx.x % 32, group = thread / 4, quad = thread % 4;
  const int walk = warp * kColumnBlocks;  // columns of a chunk, then the next chunk's, are neighbours in the walk
  const int tiles = (rows + kRows - 1) / kRows;
  std::int8_t* const ring = rings + warp * kRing * kStageBytes;
  // Pairs of units are swizzled so that a thread's eight bytes of four rows meet every bank once.
  const auto place = [](int row, int unit) { return row * (kStageBlocks * kBlock) + (unit ^ (row % 4 * 2)) * 16; };
  const auto fetch = [&](int step) {  // step counts the stages of all of the thread block's tiles
    const int tile = static_cast<int>(blockIdx.x + step / kStages * gridDim.x);
    std::int8_t* const to = ring + step % kRing * kStageBytes;
    const int at = walk + step % kStages * kStageBlocks;
    if (tile < tiles) {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        const int row = i * 4 + thread / 8, unit = thread % 8;
        const int from = min(tile * kRows + row, rows - 1);
        copy_async<16>(to + place(row, unit),
                       codes + static_cast<std::size_t>(from) * kWidth + at * kBlock + unit * 16);
      }
      if (thread < kRows) {
        const int from = min(tile * kRows + thread, rows - 1);
        copy_async<8>(to + kCodeBytes + thread * 8, scales + static_cast<std::size_t>(from) * kBlocks + at);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int step = 0; step < kRing - 1; ++step) fetch(step);

  uint2 a[kColumnBlocks];
  float s[2][kColumnBlocks];
  const int token = min(group, tokens - 1), even = min(quad * 2, tokens - 1), odd = min(quad * 2 + 1, tokens - 1);
#pragma unroll
  for (int j = 0; j < kColumnBlocks; ++j) {
    a[j] = *reinterpret_cast<const uint2*>(activations + token * kWidth + (walk + j) * kBlock + quad * 8);
    s[0][j] = activation_scales[even * kBlocks + walk + j];
    s[1][j] = activation_scales[odd * kBlocks + walk + j];
  }

  int step = 0, parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x), parity ^= 1) {
    float lane[4] = {}, column[4];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage, ++step) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 2) : "memory");
      __syncwarp();  // every thread's share of this stage is here, and the stage before it has been read
      fetch(step + kRing - 1);
      const std::int8_t* const from = ring + step % kRing * kStageBytes;
      const uint2 d_low = *reinterpret_cast<const uint2*>(from + kCodeBytes + group * 8);
      const uint2 d_high = *reinterpret_cast<const uint2*>(from + kCodeBytes + (group + 8) * 8);
#pragma unroll
      for (int i = 0; i < kStageBlocks; ++i) {
        const int j = stage * kStageBlocks + i;
        const std::int8_t* const at = from + place(group, i * 2 + quad / 2) + quad % 2 * 8;
        int dot[4];
        multiply(dot, *reinterpret_cast<const uint2*>(at),
                 *reinterpret_cast<const uint2*>(at + 8 * kStageBlocks * kBlock), a[j]);
        const float scale[2] = {__half2float(reinterpret_cast<const __half*>(&d_low)[i]),
                                __half2float(reinterpret_cast<const __half*>(&d_high)[i])};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float term = __fmaf_rn(__int_as_float(dot[e]), scale[e / 2], __fmul_rn(-12582912.0f, scale[e / 2]));
          lane[e] = __fmaf_rn(term, s[e % 2][j], lane[e]);
          if ((j + 1) % kOrder.lane_blocks == 0) {
            column[e] = j < kOrder.lane_blocks ? lane[e] : __fadd_rn(column[e], lane[e]);
            lane[e] = 0;
          }
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) columns[parity][warp][quad * 2 + e % 2][group + e / 2 * 8] = column[e];
    __syncthreads();  // one a tile: who still reads the other parity is before the next one
    constexpr int kOutputs = kTokenTile * kRows;
    if (static_cast<int>(threadIdx.x) / kOutputs != parity) continue;  // the two halves of the block take turns
    const int out_token = static_cast<int>(threadIdx.x) % kOutputs / kRows, row = static_cast<int>(threadIdx.x) % kRows;
    float total = 0;
#pragma unroll
    for (int chunk = 0; chunk < kWarps / kColumns; ++chunk) {
      float sum = columns[parity][chunk * kColumns][out_token][row];
#pragma unroll
      for (int c = 1; c < kColumns; ++c) sum = __fadd_rn(sum, columns[parity][chunk * kColumns + c][out_token][row]);
      total = chunk == 0 ? sum : __fadd_rn(total, sum);
    }
    const int out_row = tile * kRows + row;
    if (out_token < tokens && out_row < rows) out[static_cast<std::size_t>(out_token) * rows + out_row] = total;
  }
}

template <int kWidth>
void measure_shape(Report& report, int rows) {
  using Law = LawOrder<kWidth>;
  constexpr std::uint32_t kSeed = 3000;
  const std::size_t bytes = static_cast<std::size_t>(rows) * kWidth / kBlock * 34;
  const double bare = bare_read_us(bytes);
  const int copies = static_cast<int>(std::max<std::size_t>(2, (512u << 20) / bytes));
  const Q8Weights<Law, Layout::walked> weights(rows, kWidth, copies, kSeed);
  const Q8Activations<Law, Layout::walked> activations(kTokenTile, kWidth, kSeed);
  DeviceArray<float> out(static_cast<std::size_t>(rows) * kTokenTile);
  constexpr int kWarps = warps_for(kWidth), kSharedBytes = kWarps * kRing * kStageBytes;
  const auto kernel = thin_kernel<Law, kWidth, kWarps>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "multiprocessors");
  for (const int tokens : {2, 4, 8}) {
    const auto launch = [&](cudaStream_t stream, int copy, int n_rows) {
      const int grid = std::min((n_rows + kRows - 1) / kRows, multiprocessors * (16 / kWarps));
      kernel<<<grid, kWarps * 32, kSharedBytes, stream>>>(weights.codes_of(copy), weights.scales_of(copy),
                                                          activations.codes.data(), activations.scales.data(),
                                                          out.data(), n_rows, tokens);
    };
    Compared compared;
    for (const int n_rows : {rows, std::min(rows, 211)}) {
      out.poison();
      launch(nullptr, 0, n_rows);
      const auto row_ids = sample(n_rows, 2048), token_ids = sample(tokens, tokens);
      compared += compare(out, n_rows, reference_q8({n_rows, kWidth, kSeed}, Law::order, true, row_ids, token_ids),
                          row_ids, token_ids);
    }
    report.add(compared);
    const int launches = std::max(copies, 8) / copies * copies;
    const double us = time_us([&](cudaStream_t s, int i) { launch(s, i % copies, rows); }, launches, 20);
    report.line(
        "%6d x %4d  %d tokens  law, walked codes  %8.2f us  %5.2f TB/s  %5.3f of bare read (%.2f us)  wrong %zu", rows,
        kWidth, tokens, us, static_cast<double>(bytes) / us * 1e-6, us / bare, bare, compared.wrong);
  }
}

}  // namespace

void measure_thin_q8(Report& report) {
  report.section("Q8_0 x int8, 2 to 8 tokens on mma.sync");
  measure_shape<4096>(report, 4096);
  measure_shape<4096>(report, 8192);
  measure_shape<1024>(report, 32768);
  measure_shape<2048>(report, 4096);
  measure_shape<8192>(report, 4096);
  measure_shape<4096>(report, 129280);
}

}  // namespace lockstep::law
