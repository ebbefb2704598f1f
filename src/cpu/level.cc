// The levels of this build, which of them the machine runs, and the step from spans and views to plain pointers.
#include "cpu/level.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "cpu/kernels.h"
#include "numerics/order.h"
#include "tensor/block.h"

namespace lockstep::cpu {
namespace {

template <const Kernels& kernels>
void matmul(const Weight& weight, int plane, int begin, int end, const Input& x, std::span<const int> in_rows, Rows out,
            std::span<const int> out_rows, Scratch scratch) {
  const bool quantised = info_of(weight.dtype).quantised;
  LOCKSTEP_CHECK(in_rows.size() == out_rows.size() && begin >= 0 && end <= weight.rows);
  LOCKSTEP_CHECK((quantised ? x.rounded.width : x.values.width) == weight.width);
  LOCKSTEP_CHECK(scratch.size >= matmul_scratch_bytes(weight.width));
  LOCKSTEP_CHECK(weight.dtype != DType::rocmfp3_mix && weight.dtype != DType::rocmfp2_mix &&
                 weight.dtype != DType::i32);
  if (begin >= end || in_rows.empty()) return;
  kernels.matmul({
      .dtype = weight.dtype,
      .width = weight.width,
      .plane = weight.row(plane, 0),
      .plane_end = weight.row(plane, weight.rows),
      .row_bytes = weight.row_bytes,
      .begin = begin,
      .end = end,
      .values = x.values.data,
      .values_stride = x.values.stride,
      .codes = x.rounded.codes,
      .scales = x.rounded.scales,
      .half_sums = x.rounded.half_sums,
      .codes_stride = x.rounded.stride,
      .in_rows = in_rows.data(),
      .out_rows = out_rows.data(),
      .tokens = static_cast<int>(in_rows.size()),
      .out = out.data,
      .out_stride = out.stride,
      .scratch = scratch.data,
  });
}

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}
/// Ice Lake and Zen 4 on. Earlier AVX-512 machines lack VBMI and run the AVX2 level.
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
}
#endif

template <const Kernels& kernels>
constexpr Level level_of(std::string_view name) {
  return {name,
          [](const float* x, int width, std::int8_t* codes, float* scales, std::int16_t* half_sums) {
            kernels.round_row(x, width, codes, scales, half_sums);
          },
          matmul<kernels>, [](const float* x, const float* y, int width) { return kernels.dot(x, y, width); }};
}

constexpr Level kScalar = level_of<scalar::kKernels>("scalar");
#if defined(__x86_64__)
constexpr Level kAvx2 = level_of<avx2::kKernels>("avx2");
constexpr Level kAvx512 = level_of<avx512::kKernels>("avx512");
constexpr const Level* kLevels[] = {&kScalar, &kAvx2, &kAvx512};  // each needs what the one before it needs
#else
constexpr const Level* kLevels[] = {&kScalar};
#endif

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::size_t matmul_scratch_bytes(int width) {
  const std::size_t superblocks = (static_cast<std::size_t>(width) + kSuperblock - 1) / kSuperblock;
  const std::size_t chunk_blocks = kChunk / kBlock;
  const std::size_t scalar = std::max(sizeof(Block) * chunk_blocks, sizeof(float) * static_cast<std::size_t>(width));
  const std::size_t few = kGridBytes + kMatvecTokens * superblocks * 448;
  const std::size_t panel = chunk_blocks * (8 + 4) * kPanelRows * 4;
  const std::size_t tiles = (kPanelStrip / kTileTokens) * chunk_blocks * kTileTokens * 48;
  const std::size_t floats = kPanelRows * (kChunk / 8 + kFloatStrip) + kFloatStrip * kChunk;
  return padded(std::max({scalar, few, kGridBytes + panel + tiles, floats * sizeof(float)}));
}

std::span<const Level* const> available_levels() {
  std::size_t count = 1;
#if defined(__x86_64__)
  if (has_avx2()) count = has_avx512() ? 3 : 2;
#endif
  return std::span<const Level* const>(kLevels).first(count);
}

}  // namespace lockstep::cpu
