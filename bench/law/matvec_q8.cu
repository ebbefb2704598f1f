// One or two tokens by Q8_0 weights: a matrix-vector kernel bound by memory.
//
// A row is shared out over the order's lanes, a lane over one thread or two: four blocks a thread, for the loads in
// flight that memory wants. The second thread of a lane goes on from the first one's sum, and the fold is a row of
// shuffles. Bytes: width * 34 / 32 a row, each read once; the roofline is a bare read of those bytes. Three layouts of
// the codes. Coalesced is made for this kernel alone. Natural, a thread reading its 32-byte blocks where the file has
// them, loads each sector in two halves. Walked, the layout of the tile kernel, is read as it lies, sixteen bytes a
// thread; a thread then holds halves of other threads' blocks, and eight threads trade integer dots, which are exact in
// any order, until each has its own.
#include <algorithm>

#include "q8_operands.h"

namespace lockstep::law {

namespace {

constexpr int kThreads = 128;  // small blocks: the last wave of a 5 us kernel is a large part of it

template <int kCount>
struct alignas(kCount < 8 ? 2 * kCount : 16) Scales {
  __half of_block[kCount];
};

__device__ uint4 load_once(const std::int8_t* from) {  // weights pass through: keep the activations in L1 instead
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ int dot16(uint4 w, uint4 a, int sum) {
  sum = __dp4a(static_cast<int>(w.x), static_cast<int>(a.x), sum);
  sum = __dp4a(static_cast<int>(w.y), static_cast<int>(a.y), sum);
  sum = __dp4a(static_cast<int>(w.z), static_cast<int>(a.z), sum);
  return __dp4a(static_cast<int>(w.w), static_cast<int>(a.w), sum);
}

/// Adds the lanes of a chunk. Of the kWidth threads of a row, thread `column + columns * s` has share s of its column;
/// the last share of a lane holds the lane's sum. Every thread of the warp must call it; the last share of the first
/// lane, thread `columns * (lane_threads - 1)`, has the result.
template <class FixedOrder>
__device__ float fold_lanes(float lane) {
  constexpr Order kOrder = FixedOrder::order;
  constexpr int kWidth = kOrder.lanes() * kOrder.lane_threads();
  float column = lane;
#pragma unroll
  for (int g = 1; g < kOrder.lanes_per_column; ++g)
    column = __fadd_rn(column, __shfl_down_sync(~0u, lane, g * kOrder.lane_threads() * kOrder.columns, kWidth));
  float sum = column;
#pragma unroll
  for (int c = 1; c < kOrder.columns; ++c) sum = __fadd_rn(sum, __shfl_down_sync(~0u, column, c, kWidth));
  return sum;
}

/// Eight neighbouring threads hold, in dot[k], half thread % 2 of block thread % 8 / 2 of the k-th lane; on return
/// dot[0..3] are the four blocks of lane thread % 8.
__device__ void trade_dots(int (&dot)[8]) {
  const int thread = threadIdx.x % 8;
  const auto trade = [&](int bit, int k, int partner_k) {  // keeps dot[k] if the bit is clear, dot[partner_k] if set
    const bool set = thread & bit;
    const int mine = set ? dot[partner_k] : dot[k], other = set ? dot[k] : dot[partner_k];
    dot[k] = mine;
    dot[partner_k] = __shfl_xor_sync(~0u, other, bit);
  };
  int block[4];  // lanes thread % 2, + 2, + 4, + 6: this thread's block of each, whole
#pragma unroll
  for (int k = 0; k < 8; k += 2) trade(1, k, k + 1), block[k / 2] = dot[k] + dot[k + 1];
#pragma unroll
  for (int k = 0; k < 4; ++k) dot[k] = block[k];
  trade(2, 0, 1), trade(2, 2, 3);  // dot[0], dot[2]: lanes thread % 4, + 4; dot[1], dot[3]: the neighbour block of each
  trade(4, 0, 2), trade(4, 1, 3);  // all four of lane thread % 8: dot[m] is block (thread % 8 / 2) ^ m
  const int own = thread / 2;
  int sorted[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int m = i ^ own;
    sorted[i] = m == 0 ? dot[0] : m == 1 ? dot[1] : m == 2 ? dot[2] : dot[3];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) dot[i] = sorted[i];
}

/// out[token * rows + row] = weights . activations for kTokens tokens.
template <class FixedOrder, int kWidth, Layout kLayout, int kTokens>
__global__ void __launch_bounds__(kThreads, kTokens == 1 ? 8 : 6)
    matvec_kernel(const std::int8_t* __restrict__ codes, const __half* __restrict__ scales,
                  const std::int8_t* __restrict__ activations, const float* __restrict__ activation_scales,
                  float* __restrict__ out, int rows) {
  constexpr Order kOrder = FixedOrder::order;
  constexpr int kLaneThreads = kOrder.lane_threads(), kRowThreads = kOrder.lanes() * kLaneThreads;
  constexpr int kBlocks = kWidth / kBlock, kHold = kOrder.lane_blocks / kLaneThreads;
  const int thread = threadIdx.x % kRowThreads, share = thread / kOrder.columns;
  const int row = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / kRowThreads);
  const int safe_row = min(row, rows - 1);
  const std::int8_t* row_codes = codes + static_cast<std::size_t>(safe_row) * kWidth;
  const __half* row_scales = scales + static_cast<std::size_t>(safe_row) * kBlocks;
  const int first_walk = (thread % kOrder.columns * (kRowThreads / kOrder.columns) + share) * kHold;
  float sum[kTokens];
#pragma unroll
  for (int chunk = 0; chunk < kBlocks / kOrder.chunk_blocks(); ++chunk) {
    const int walk = chunk * kOrder.chunk_blocks() + first_walk;
    // Offset in the row of the j-th half-block that this thread loads, j < 2 * kHold.
    const auto offset = [&](int j) {
      if constexpr (kLayout == Layout::walked)
        return (chunk * kOrder.chunk_blocks() * 2 + j * kRowThreads + thread) * 16;
      return half_offset<FixedOrder, kLayout>(walk + j / 2, j % 2);
    };
    uint4 w[2 * kHold];
#pragma unroll
    for (int j = 0; j < 2 * kHold; ++j) w[j] = load_once(row_codes + offset(j));
    const auto d = *reinterpret_cast<const Scales<kHold>*>(row_scales + walk);
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      int dot[2 * kHold];
#pragma unroll
      for (int j = 0; j < 2 * kHold; ++j)
        dot[j] = dot16(w[j], *reinterpret_cast<const uint4*>(activations + token * kWidth + offset(j)), 0);
      if constexpr (kLayout == Layout::walked) {
        static_assert(kHold == 4 && kOrder.columns == 8);
        trade_dots(dot);
      } else {
#pragma unroll
        for (int i = 0; i < kHold; ++i) dot[i] = dot[2 * i] + dot[2 * i + 1];
      }
      float lane = 0;
#pragma unroll
      for (int part = 0; part < kLaneThreads; ++part) {  // all threads count along; it is right in share `part`
        if (part > 0) lane = __shfl_up_sync(~0u, lane, kOrder.columns, kRowThreads);
#pragma unroll
        for (int i = 0; i < kHold; ++i) {
          const float term = __fmul_rn(static_cast<float>(dot[i]), __half2float(d.of_block[i]));
          lane = __fmaf_rn(term, activation_scales[token * kBlocks + walk + i], lane);
        }
      }
      const float chunk_sum = fold_lanes<FixedOrder>(lane);
      sum[token] = chunk == 0 ? chunk_sum : __fadd_rn(sum[token], chunk_sum);
    }
  }
  if (thread != kOrder.columns * (kLaneThreads - 1) || row >= rows) return;
#pragma unroll
  for (int token = 0; token < kTokens; ++token) out[static_cast<std::size_t>(token) * rows + row] = sum[token];
}

template <class FixedOrder, int kWidth, Layout kLayout, int kTokens>
void measure(Report& report, const char* name, int rows, double bare_us, bool literal) {
  constexpr Order kOrder = FixedOrder::order;
  constexpr std::uint32_t kSeed = 1000;
  const std::size_t bytes = static_cast<std::size_t>(rows) * kWidth / kBlock * 34;
  const int copies = static_cast<int>(std::max<std::size_t>(2, (512u << 20) / bytes));
  const Q8Weights<FixedOrder, kLayout> weights(rows, kWidth, copies, kSeed);
  const Q8Activations<FixedOrder, kLayout> activations(kTokens, kWidth, kSeed);
  DeviceArray<float> out(static_cast<std::size_t>(rows) * kTokens);
  const auto launch = [&](cudaStream_t stream, int copy, int n_rows) {
    const int rows_a_block = kThreads / (kOrder.lanes() * kOrder.lane_threads());
    matvec_kernel<FixedOrder, kWidth, kLayout, kTokens>
        <<<(n_rows + rows_a_block - 1) / rows_a_block, kThreads, 0, stream>>>(
            weights.codes_of(copy), weights.scales_of(copy), activations.codes.data(), activations.scales.data(),
            out.data(), n_rows);
  };
  Compared compared;
  for (const int n_rows : {rows, std::min(rows, 211)}) {  // 211: no multiple of anything here
    out.poison();
    launch(nullptr, 0, n_rows);
    const auto row_ids = sample(n_rows, 4096), token_ids = sample(kTokens, kTokens);
    compared += compare(out, n_rows, reference_q8({n_rows, kWidth, kSeed}, kOrder, literal, row_ids, token_ids),
                        row_ids, token_ids);
  }
  report.add(compared);
  const int launches = std::max(copies, 8) / copies * copies;
  const double us = time_us([&](cudaStream_t s, int i) { launch(s, i % copies, rows); }, launches, 20);
  report.line("%6d x %4d  %d token  %-26s %8.2f us  %5.2f TB/s  %5.3f of bare read  wrong %zu", rows, kWidth, kTokens,
              name, us, static_cast<double>(bytes) / us * 1e-6, us / bare_us, compared.wrong);
}

template <int kWidth>
void measure_shape(Report& report, int rows) {
  const std::size_t bytes = static_cast<std::size_t>(rows) * kWidth / kBlock * 34;
  const double bare = bare_read_us(bytes);
  report.line("%6d x %4d  bare read of the same bytes         %8.2f us  %5.2f TB/s  (SM clock %.0f MHz)", rows, kWidth,
              bare, static_cast<double>(bytes) / bare * 1e-6, sm_clock_mhz());
  using Law = LawOrder<kWidth>;
  measure<Law, kWidth, Layout::walked, 1>(report, "law, walked codes", rows, bare, true);
  measure<Law, kWidth, Layout::coalesced, 1>(report, "law, coalesced codes", rows, bare, true);
  measure<Law, kWidth, Layout::natural, 1>(report, "law, natural codes", rows, bare, true);
  if constexpr (ShortLaneOrder<kWidth>::order.lanes() != Law::order.lanes()) {
    measure<ShortLaneOrder<kWidth>, kWidth, Layout::walked, 1>(report, "32 lanes, walked", rows, bare, false);
    measure<ShortLaneOrder<kWidth>, kWidth, Layout::coalesced, 1>(report, "32 lanes, coalesced", rows, bare, false);
  }
  measure<SliceOrder<kWidth>, kWidth, Layout::coalesced, 1>(report, "C: 32 slices, coalesced", rows, bare, false);
  measure<Law, kWidth, Layout::walked, 2>(report, "law, walked codes", rows, bare, true);
  measure<Law, kWidth, Layout::walked, 4>(report, "law, walked codes", rows, bare, true);
}

}  // namespace

void measure_matvec_q8(Report& report) {
  report.section("Q8_0 x int8 matrix-vector");
  measure_shape<4096>(report, 4096);
  measure_shape<4096>(report, 8192);
  measure_shape<1024>(report, 32768);
  measure_shape<2048>(report, 4096);
  measure_shape<8192>(report, 4096);
  measure_shape<4096>(report, 129280);
}

}  // namespace lockstep::law
