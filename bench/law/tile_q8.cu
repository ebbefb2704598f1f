// Many tokens by Q8_0 weights on int8 tensor cores: a tile kernel bound by arithmetic.
//
// A block of 32 values is exactly one mma.m16n8k32, whose int32 result is exact. It starts from 0x4B400000, so that its
// bits are the float 12582912 + I, and one fma with -12582912 * d (exact: d has eleven bits) gives float(I) * d rounded
// once. A second fma adds it to the lane. So an output and block cost two fmas in any order; the law adds one addition
// a lane. The kernel walks the row in the order's walk, four blocks a stage: lane and column sums live in registers;
// the chunk's total, touched once a column, and the sum of the chunks before it, touched once a chunk, in shared
// memory.
#include <algorithm>

#include "q8_operands.h"

namespace lockstep::law {

namespace {

constexpr int kStageBlocks = 4, kStageBytes = kStageBlocks * kBlock;
constexpr int kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

/// Sets of sums in shared memory: none where a column is one lane, since `column` then holds the chunk's total.
LOCKSTEP_HOST_DEVICE constexpr int total_sets(int lanes_per_column, int chunks) {
  return lanes_per_column == 1 ? 0 : chunks == 1 ? 1 : 2;
}

/// Warps of a thread block, 16-row and 8-token tiles of a warp, thread blocks meant to share a multiprocessor.
template <int kWarpsDown, int kWarpsAcross, int kRowTiles, int kTokenTiles, int kStageCount, int kResident>
struct Shape {
  static constexpr int warps_across = kWarpsAcross, row_tiles = kRowTiles;
  static constexpr int token_tiles = kTokenTiles, stages = kStageCount, resident = kResident;
  static constexpr int threads = kWarpsDown * kWarpsAcross * 32;
  static constexpr int rows = kWarpsDown * kRowTiles * 16, tokens = kWarpsAcross * kTokenTiles * 8;
  static constexpr int outputs = kRowTiles * kTokenTiles * 4;  // of a thread
  static constexpr int code_bytes = (rows + tokens) * kStageBytes;
  static constexpr int stage_bytes = code_bytes + kStageBlocks * tokens * 4;
  static constexpr int scale_bytes = kStageBlocks * rows * 2 * 4;  // d and -12582912 d of a stage
  static constexpr int total_bytes = outputs * threads * 4;
  static constexpr int shared_bytes = stages * stage_bytes + 2 * scale_bytes;  // without totals
};

__device__ void copy16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}

template <int kCount>
__device__ void load_floats(float (&to)[kCount], const float* from) {
  static_assert(kCount == 2 || kCount % 4 == 0);
  if constexpr (kCount == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  }
}

__device__ void multiply(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, int start) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}

/// Byte of 16-byte unit `unit` (0..7) of a 128-byte row in shared memory: units are swizzled so that ldmatrix, reading
/// one unit of eight rows, meets every bank once.
__device__ int swizzled(int row, int unit) { return row * kStageBytes + ((unit ^ (row & 7)) * 16); }

// Copies kRows rows of a stage's codes into shared memory, each thread the same 16-byte unit of a few rows. Codes lie
// in walk order, so a stage of a row is 128 neighbouring bytes; rows are padded in memory to whole tiles, so that a
// row's place is one addition away from the one before it, for a thread has no registers to spare.
template <int kRows, int kThreads, int kWidth>
__device__ void copy_codes(std::uint32_t to, const std::int8_t* from, std::uint32_t offset) {
#pragma unroll
  for (int pass = 0; pass < (kRows * 8 + kThreads - 1) / kThreads; ++pass) {
    const int row = pass * (kThreads / 8);
    if (kRows * 8 % kThreads == 0 || row + static_cast<int>(threadIdx.x) / 8 < kRows)
      copy16(to + row * kStageBytes, from + offset + row * kWidth);
  }
}

__device__ float4 add(float4 a, float4 b) {
  return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}

// Where a thread's outputs are.
template <class S>
struct Place {
  __device__ Place() {
    const int warp = threadIdx.x / 32, in_warp = threadIdx.x % 32;
    row = static_cast<int>(blockIdx.y) * S::rows + warp / S::warps_across * S::row_tiles * 16 + in_warp / 4;
    token = static_cast<int>(blockIdx.x) * S::tokens + warp % S::warps_across * S::token_tiles * 8 + in_warp % 4 * 2;
  }
  template <class Value>
  __device__ void write(float* out, int rows, int tokens, Value&& value) const {
#pragma unroll
    for (int j = 0; j < S::outputs; ++j) {
      const int n = j / 4 / S::row_tiles, m = j / 4 % S::row_tiles, e = j % 4;
      const int r = row + m * 16 + e / 2 * 8, t = token + n * 8 + e % 2;
      if (r < rows && t < tokens) out[static_cast<std::size_t>(t) * rows + r] = value(j);
    }
  }
  int row, token;
};

/// out[token * rows + row]; grid (token tiles, row tiles). Rows and tokens need not fill their tiles, but codes and
/// scales are padded in memory to those that do.
template <class FixedOrder, class S, int kWidth>
__global__ void __launch_bounds__(S::threads, S::resident)
    tile_kernel(const std::int8_t* __restrict__ codes, const __half* __restrict__ scales,
                const std::int8_t* __restrict__ activations, const float* __restrict__ activation_scales, float* out,
                int rows, int tokens, int padded_tokens) {
  constexpr Order kOrder = FixedOrder::order;
  constexpr int kBlocks = kWidth / kBlock, kStages = kBlocks / kStageBlocks, kRowTiles = S::row_tiles;
  constexpr int kLaneBlocks = kOrder.lane_blocks, kColumnBlocks = kOrder.column_blocks();
  constexpr int kChunkStages = kOrder.chunk_blocks() / kStageBlocks, kSlots = S::stages;
  constexpr bool kHasLanes = kOrder.lanes() > 1;
  constexpr bool kHasColumns = kOrder.lanes_per_column > 1;  // else `column` holds the total, and shared memory nothing
  constexpr int kChunks = kStages / kChunkStages, kTotalSets = total_sets(kOrder.lanes_per_column, kChunks);
  // Slots in shared memory and the ends of lanes and columns are then known when compiling. Where a lane is a column,
  // two stages do for that, and four make the 8-warp shape spill.
  constexpr int kUnrolledStages = kHasColumns && kColumnBlocks / kStageBlocks > 4 ? kColumnBlocks / kStageBlocks
                                  : kHasLanes && !kHasColumns                     ? kSlots
                                                                                  : 4;
  static_assert(kUnrolledStages <= 8 && kUnrolledStages % kSlots == 0 && kStages % kUnrolledStages == 0);
  static_assert(S::rows <= S::threads && S::tokens <= S::threads);
  extern __shared__ __align__(128) unsigned char shared[];
  const auto shared_base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  float* const shared_scales = reinterpret_cast<float*>(shared + kSlots * S::stage_bytes);
  // [outputs / 4][threads], twice in rows of several chunks: the first chunk's total becomes the row's sum where it is.
  float4* totals = reinterpret_cast<float4*>(shared + S::shared_bytes) + threadIdx.x;
  constexpr int kSet = S::outputs / 4 * S::threads;

  const int warp = threadIdx.x / 32, lane_id = threadIdx.x % 32, group = lane_id / 4, quad = lane_id % 4;
  const int first_row = blockIdx.y * S::rows, first_token = blockIdx.x * S::tokens;
  const int warp_row = warp / S::warps_across * kRowTiles * 16,
            warp_token = warp % S::warps_across * S::token_tiles * 8;

  const int copy_row = threadIdx.x / 8, copy_unit = threadIdx.x % 8;
  const std::uint32_t copy_to = shared_base + swizzled(copy_row, copy_unit);
  const std::uint32_t row_offset = static_cast<std::uint32_t>(first_row + copy_row) * kWidth + copy_unit * 16;
  const std::uint32_t token_offset = static_cast<std::uint32_t>(first_token + copy_row) * kWidth + copy_unit * 16;
  // A block's scales of the tile's tokens are tokens / 4 units; a stage has one unit a token. The last threads copy
  // them, the first handle the rows' scales.
  const int unit = S::threads - 1 - static_cast<int>(threadIdx.x);
  const std::uint32_t unit_offset = unit / (S::tokens / 4) * padded_tokens + first_token + unit % (S::tokens / 4) * 4;
  const auto fetch = [&](int slot, int stage) {
    copy_codes<S::rows, S::threads, kWidth>(copy_to + slot * S::stage_bytes, codes + stage * kStageBytes, row_offset);
    copy_codes<S::tokens, S::threads, kWidth>(copy_to + slot * S::stage_bytes + S::rows * kStageBytes,
                                              activations + stage * kStageBytes, token_offset);
    if (unit < S::tokens)
      copy16(shared_base + slot * S::stage_bytes + S::code_bytes + unit * 16,
             activation_scales + (unit_offset + stage * kStageBlocks * padded_tokens));
  };
  // A row's four f16 scales of a stage go through a register: fetched a stage early, widened into shared memory in the
  // order in which the fragments want them.
  const std::uint32_t scale_offset = static_cast<std::uint32_t>(first_row + threadIdx.x) * kBlocks;
  const int scale_place = static_cast<int>(threadIdx.x) / (kRowTiles * 16) * (kRowTiles * 16) +
                          static_cast<int>(threadIdx.x) % 8 * (2 * kRowTiles) +
                          static_cast<int>(threadIdx.x) % (kRowTiles * 16) / 8;
  uint2 raw = {};
  const auto fetch_scales = [&](int stage) {
    if (threadIdx.x < S::rows && stage < kStages)
      raw = __ldg(reinterpret_cast<const uint2*>(scales + (scale_offset + stage * kStageBlocks)));
  };
  const auto store_scales = [&](int slot) {
    if (threadIdx.x >= S::rows) return;
    float* to = shared_scales + slot * (S::scale_bytes / 4) + scale_place;
    const __half* half = reinterpret_cast<const __half*>(&raw);
#pragma unroll
    for (int i = 0; i < kStageBlocks; ++i) {
      const float d = __half2float(half[i]);
      to[i * 2 * S::rows] = d;
      to[(i * 2 + 1) * S::rows] = __fmul_rn(-kMagic, d);
    }
  };

  float lane[S::outputs] = {}, column[S::outputs] = {};
  fetch_scales(0);
#pragma unroll
  for (int stage = 0; stage < kSlots - 1; ++stage) {
    fetch(stage, stage);
    asm volatile("cp.async.commit_group;");
  }
  store_scales(0);
  fetch_scales(1);
  if constexpr (kHasColumns) {
#pragma unroll
    for (int j = 0; j < kTotalSets * S::outputs / 4; ++j) totals[j * S::threads] = float4{0, 0, 0, 0};
  }

  // Sums start at +0 and are never -0 (x + -x is +0), so adding the first of them to zero is the same as taking it.
  const auto end_lane = [&](int j, bool first_of_column) {
    column[j] = first_of_column ? lane[j] : __fadd_rn(column[j], lane[j]);
    lane[j] = 0;
  };
  const auto at_column_end = [&] {
#pragma unroll
    for (int j = 0; j < S::outputs / 4; ++j) {
      totals[j * S::threads] =
          add(totals[j * S::threads], float4{column[4 * j], column[4 * j + 1], column[4 * j + 2], column[4 * j + 3]});
    }
  };

  // Fragment addresses of a stage's first block; block i is at ^ 32 i, as the swizzle is an exclusive or.
  const std::uint32_t a_from = shared_base + swizzled(warp_row + lane_id % 16, lane_id / 16);
  const std::uint32_t b_from =
      shared_base + S::rows * kStageBytes + swizzled(warp_token + lane_id % 8 + lane_id / 16 * 8, lane_id / 8 % 2);
  const float* const row_scales = shared_scales + warp_row + group * (2 * kRowTiles);
  const float* const token_scales = reinterpret_cast<const float*>(shared + S::code_bytes) + warp_token + quad * 2;

#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll 1
    for (int base = chunk * kChunkStages; base < (chunk + 1) * kChunkStages; base += kUnrolledStages) {
#pragma unroll
      for (int q = 0; q < kUnrolledStages; ++q) {
        const int stage = base + q, slot = q % kSlots;
        asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 2) : "memory");
        __syncthreads();
        if (stage + kSlots - 1 < kStages) fetch((q + kSlots - 1) % kSlots, stage + kSlots - 1);
        asm volatile("cp.async.commit_group;");
        store_scales((q + 1) % 2);
        fetch_scales(stage + 2);
#pragma unroll
        for (int i = 0; i < kStageBlocks; ++i) {
          if (i > 0) __syncwarp();  // keeps the compiler from loading later blocks' operands until registers spill
          std::uint32_t a[kRowTiles][4], b[(S::token_tiles + 1) / 2 * 2][2];  // an odd tile is loaded with a neighbour
          float d[2 * kRowTiles], start[2 * kRowTiles], s[S::token_tiles][2];
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m)
            load_matrices(a[m], (a_from ^ (i * 32)) + slot * S::stage_bytes + m * 16 * kStageBytes);
#pragma unroll
          for (int n = 0; n < S::token_tiles; n += 2) {
            std::uint32_t both[4];
            load_matrices(both, (b_from ^ (i * 32)) + slot * S::stage_bytes + n * 8 * kStageBytes);
            b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
          }
          const int walked = stage * kStageBlocks + i + 1;
          const bool ends_lane = kHasLanes && walked % kLaneBlocks == 0;
          const bool first_of_column = kHasColumns && walked % kColumnBlocks == kLaneBlocks % kColumnBlocks;
          load_floats(d, row_scales + q % 2 * (S::scale_bytes / 4) + i * 2 * S::rows);
          load_floats(start, row_scales + q % 2 * (S::scale_bytes / 4) + (i * 2 + 1) * S::rows);
#pragma unroll
          for (int n = 0; n < S::token_tiles; ++n)
            load_floats(s[n], token_scales + slot * (S::stage_bytes / 4) + i * S::tokens + n * 8);
#pragma unroll
          for (int n = 0; n < S::token_tiles; ++n)
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) {
              int dot[4];
              multiply(dot, a[m], b[n][0], b[n][1], kMagicBits);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const int h = m * 2 + e / 2, j = (n * kRowTiles + m) * 4 + e;
                const float term = __fmaf_rn(__int_as_float(dot[e]), d[h], start[h]);
                lane[j] = __fmaf_rn(term, s[n][e % 2], lane[j]);
                if (ends_lane) end_lane(j, first_of_column);
              }
            }
        }
        if constexpr (kHasColumns) {
          if ((stage + 1) * kStageBlocks % kColumnBlocks == 0) at_column_end();
        }
      }
    }
    if constexpr (kTotalSets == 2) {
      if (chunk == 0) {
        totals += kSet;
      } else if (chunk + 1 < kChunks) {
#pragma unroll
        for (int j = 0; j < S::outputs / 4; ++j) {
          totals[j * S::threads - kSet] = add(totals[j * S::threads - kSet], totals[j * S::threads]);
          totals[j * S::threads] = float4{0, 0, 0, 0};
        }
      }
    }
  }
  static_assert(kChunks == 1 || kHasColumns);
  Place<S>().write(out, rows, tokens, [&](int j) {
    if constexpr (!kHasColumns) return kHasLanes ? column[j] : lane[j];
    const float* total = reinterpret_cast<const float*>(totals + j / 4 * S::threads) + j % 4;
    return kTotalSets == 2 ? __fadd_rn(total[-4 * kSet], total[0]) : total[0];
  });
}

// The rate of mma.sync alone: what no scaled kernel of this kind can pass.
__global__ void __launch_bounds__(512) bare_multiply_kernel(int* out, int count) {
  std::uint32_t a[4] = {threadIdx.x, threadIdx.x * 3, threadIdx.x * 5, threadIdx.x * 7};
  int sum[8][4] = {};
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+r"(sum[j][0]), "+r"(sum[j][1]), "+r"(sum[j][2]), "+r"(sum[j][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[0]), "r"(a[1]));
  int all = 0;
  for (int j = 0; j < 8; ++j) all ^= sum[j][0] ^ sum[j][1] ^ sum[j][2] ^ sum[j][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

double bare_multiply_tops() {
  constexpr int kCount = 4096, kBlocks = 132 * 2;
  DeviceArray<int> out(512 * kBlocks);
  const double us =
      time_us([&](cudaStream_t s, int) { bare_multiply_kernel<<<kBlocks, 512, 0, s>>>(out.data(), kCount); }, 4, 10);
  return 2.0 * 16 * 8 * 32 * 8 * kCount * 16 * kBlocks / us * 1e-6;
}

template <class FixedOrder, class S, int kWidth>
double measure(Report& report, const char* name, int rows, int tokens, bool literal, double free_us) {
  constexpr std::uint32_t kSeed = 2000;
  constexpr Order kOrder = FixedOrder::order;
  const auto kernel = tile_kernel<FixedOrder, S, kWidth>;
  constexpr int kChunks = kWidth / kBlock / kOrder.chunk_blocks();
  constexpr int kSharedBytes = S::shared_bytes + total_sets(kOrder.lanes_per_column, kChunks) * S::total_bytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const double weight_bytes = static_cast<double>(rows) * kWidth / kBlock * 34;
  const int copies = tokens > 128 ? 1 : static_cast<int>(std::max(2.0, 2e8 / weight_bytes));
  const Q8Weights<FixedOrder, Layout::walked> weights((rows + 127) / 128 * 128, kWidth, copies, kSeed);
  const Q8Activations<FixedOrder, Layout::walked> activations(tokens, kWidth, kSeed);
  DeviceArray<float> out(static_cast<std::size_t>(rows) * tokens);
  const auto launch = [&](cudaStream_t stream, int copy, int n_rows, int n_tokens) {
    const dim3 grid((n_tokens + S::tokens - 1) / S::tokens, (n_rows + S::rows - 1) / S::rows);
    kernel<<<grid, S::threads, kSharedBytes, stream>>>(weights.codes_of(copy), weights.scales_of(copy),
                                                       activations.codes.data(), activations.walk_scales.data(),
                                                       out.data(), n_rows, n_tokens, activations.padded);
  };
  Compared compared;
  for (const bool odd : {false, true}) {
    const int n_rows = odd ? std::min(rows, 211) : rows, n_tokens = odd ? std::min(tokens, 77) - 1 : tokens;
    out.poison();
    launch(nullptr, 0, n_rows, n_tokens);
    check(cudaDeviceSynchronize(), name);
    const auto row_ids = sample(n_rows, odd ? n_rows : 160), token_ids = sample(n_tokens, odd ? n_tokens : 48);
    compared += compare(out, n_rows, reference_q8({n_rows, kWidth, kSeed}, kOrder, literal, row_ids, token_ids),
                        row_ids, token_ids);
  }
  report.add(compared);
  const double tera_ops = 2e-12 * rows * tokens * kWidth;
  const int launches =
      tokens > 128 ? std::clamp(static_cast<int>(3.0 / tera_ops), 2, 40) : std::max(copies, 8) / copies * copies;
  const double us = time_us([&](cudaStream_t s, int i) { launch(s, i % copies, rows, tokens); }, launches, 7);
  report.line("%6d x %4d  %4d tokens  %-34s %9.2f us %6.1f TOP/s  %5.3f of free  %3d regs %3zu local  wrong %zu", rows,
              kWidth, tokens, name, us, tera_ops / us * 1e6, free_us > 0 ? us / free_us : 1.0, attributes.numRegs,
              attributes.localSizeBytes, compared.wrong);
  return us;
}

template <class S, int kWidth>
void measure_shape(Report& report, int rows, int tokens, const char* shape, bool all) {
  const auto name = [&](const char* order) { return std::string(shape) + " " + order; };
  const double free_us = measure<FreeOrder<kWidth>, S, kWidth>(report, name("B: free").c_str(), rows, tokens, false, 0);
  measure<LawOrder<kWidth>, S, kWidth>(report, name("law").c_str(), rows, tokens, true, free_us);
  if constexpr (LawOrder<kWidth>::order.lanes() != ShortLaneOrder<kWidth>::order.lanes())
    measure<ShortLaneOrder<kWidth>, S, kWidth>(report, name("32 lanes").c_str(), rows, tokens, false, free_us);
  if (all) measure<SliceOrder<kWidth>, S, kWidth>(report, name("C: 32 slices").c_str(), rows, tokens, false, free_us);
}

}  // namespace

void measure_tile_q8(Report& report) {
  using Small = Shape<4, 4, 2, 4, 2, 1>;   // 16 warps of 32 rows x 32 tokens
  using Large = Shape<2, 4, 4, 4, 2, 1>;   // 8 warps of 64 rows x 32 tokens
  using Expert = Shape<4, 1, 1, 6, 4, 2>;  // 4 warps of 16 rows x 48 tokens
  report.section("Q8_0 x int8 tile kernel, mma.sync");
  report.line("bare mma.sync m16n8k32 s8: %.0f TOP/s (SM clock after it %.0f MHz)", bare_multiply_tops(),
              sm_clock_mhz());
  measure_shape<Small, 4096>(report, 4096, 2048, "16 warps", false);
  measure_shape<Large, 4096>(report, 4096, 2048, "8 warps", true);
  measure_shape<Large, 4096>(report, 8192, 2048, "8 warps", false);
  measure_shape<Large, 1024>(report, 32768, 2048, "8 warps", true);
  measure_shape<Large, 2048>(report, 4096, 2048, "8 warps", true);
  measure_shape<Large, 8192>(report, 4096, 2048, "8 warps", true);
  measure_shape<Large, 4096>(report, 129280, 2048, "8 warps", false);
  report.line("SM clock after the largest: %.0f MHz", sm_clock_mhz());
  report.section("Q8_0 x int8 tile kernel, 48 tokens (an expert's share)");
  measure_shape<Expert, 4096>(report, 4096, 48, "64x48", false);
  measure_shape<Expert, 4096>(report, 8192, 48, "64x48", false);
  measure_shape<Expert, 1024>(report, 32768, 48, "64x48", false);
  measure_shape<Expert, 2048>(report, 4096, 48, "64x48", false);
  measure_shape<Expert, 8192>(report, 4096, 48, "64x48", false);
  measure_shape<Expert, 4096>(report, 129280, 48, "64x48", true);
}

}  // namespace lockstep::law
