#include "tensor/rocmfp2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/block_decoders.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

constexpr std::size_t kBlockBytes = 10;
constexpr std::size_t kRuns = 16;
constexpr std::size_t kRunBlocks = 512;
constexpr std::size_t kFewestBlocks =
    64;  // 2048 codes: the rarest still occurs often enough to be told from its rivals

constexpr Rocmfp2Variant kVariants[] = {Rocmfp2Variant::fixed, Rocmfp2Variant::affine, Rocmfp2Variant::s40};

struct Statistics {
  std::size_t blocks = 0;
  double scale_ratio = 0;      // sum of the second scale bytes' values over that of the first; NaN if there are none
  double code_ratio = 0;       // how often code 3 over how often code 0
  double mean_over_spread[3];  // by variant: mean over standard deviation of the decoded values
};

Statistics measure(std::span<const std::byte> blocks) {
  const std::size_t count = blocks.size() / kBlockBytes;
  double scale[2] = {};
  double codes[4] = {};
  double sum[3] = {}, squares[3] = {};
  Statistics statistics{};
  const auto add = [&](const std::byte* b) {
    ++statistics.blocks;
    for (int half = 0; half < 2; ++half) scale[half] += static_cast<double>(ue4m3_at(b, 8 + half));
    for (int i = 0; i < 32; ++i) codes[rocmfp2_code(b, i)] += 1;
    float values[32];
    for (int v = 0; v < 3; ++v) {
      dequantize_row(dtype_of(kVariants[v]), b, 32, values);
      for (const float value : values) {
        sum[v] += static_cast<double>(value);
        squares[v] += static_cast<double>(value) * static_cast<double>(value);
      }
    }
  };
  if (count <= kRuns * kRunBlocks) {
    for (std::size_t i = 0; i < count; ++i) add(blocks.data() + i * kBlockBytes);
  } else {
    for (std::size_t run = 0; run < kRuns; ++run) {
      const std::size_t first = run * (count - kRunBlocks) / (kRuns - 1);
      for (std::size_t i = 0; i < kRunBlocks; ++i) add(blocks.data() + (first + i) * kBlockBytes);
    }
  }
  statistics.scale_ratio = scale[1] / scale[0];
  statistics.code_ratio = codes[3] / codes[0];
  const double n = 32.0 * static_cast<double>(statistics.blocks);
  for (int v = 0; v < 3; ++v) {
    const double mean = sum[v] / n;
    statistics.mean_over_spread[v] = std::abs(mean) / std::sqrt(std::max(squares[v] / n - mean * mean, 0.0));
  }
  return statistics;
}

/// The variant that the numbers fit. Written so that NaN fits none.
std::optional<Rocmfp2Variant> fitting(const Statistics& statistics) {
  if (statistics.blocks < kFewestBlocks) return std::nullopt;
  if (statistics.scale_ratio > 1.35) return Rocmfp2Variant::affine;
  if (!(statistics.scale_ratio > 0.85 && statistics.scale_ratio < 1.15)) return std::nullopt;
  if (statistics.code_ratio < 0.45) return Rocmfp2Variant::fixed;
  if (statistics.code_ratio > 0.8) return Rocmfp2Variant::s40;
  return std::nullopt;
}

bool is_centred(const Statistics& statistics, Rocmfp2Variant variant) {
  return statistics.mean_over_spread[static_cast<int>(variant)] < 0.1;
}

}  // namespace

std::string_view name_of(Rocmfp2Variant variant) {
  switch (variant) {
    case Rocmfp2Variant::fixed:
      return "fixed";
    case Rocmfp2Variant::affine:
      return "affine";
    case Rocmfp2Variant::s40:
      return "s40";
  }
  return "?";
}

std::optional<Rocmfp2Variant> rocmfp2_variant_named(std::string_view name) {
  for (const Rocmfp2Variant variant : kVariants) {
    if (name == name_of(variant)) return variant;
  }
  return std::nullopt;
}

DType dtype_of(Rocmfp2Variant variant) {
  switch (variant) {
    case Rocmfp2Variant::fixed:
      return DType::rocmfp2;
    case Rocmfp2Variant::affine:
      return DType::rocmfp2_affine;
    case Rocmfp2Variant::s40:
      break;
  }
  return DType::rocmfp2_s40;
}

Rocmfp2Decision detect_rocmfp2(std::span<const std::byte> blocks, std::string_view tensor,
                               std::optional<Rocmfp2Variant> forced) {
  LOCKSTEP_CHECK(blocks.size() % kBlockBytes == 0);
  const Statistics statistics = measure(blocks);
  const std::optional<Rocmfp2Variant> found = fitting(statistics);
  const std::string numbers =
      fmt::format("in {} blocks the second scales sum to {:.3f} of the first, code 3 is {:.3f} of code 0",
                  statistics.blocks, statistics.scale_ratio, statistics.code_ratio);
  if (forced) {
    const std::string_view agreement = !found                             ? "the data fit no variant"
                                       : *found != *forced                ? "the data look like another"
                                       : !is_centred(statistics, *forced) ? "the decoded mean is far from 0"
                                                                          : "the data agree";
    return {*forced,
            fmt::format("{}: type 107 read as {}, as asked; {} ({})", tensor, name_of(*forced), agreement, numbers)};
  }
  if (!found) {
    throw Error(
        Error::Kind::unsupported,
        fmt::format("{}: cannot tell which format its tensor type 107 means: {}; expected at least {} blocks and a "
                    "scale ratio above 1.35 (affine), or one of 0.85 to 1.15 with a code ratio below 0.45 (fixed) "
                    "or above 0.8 (s40); name the variant to read it anyway",
                    tensor, numbers, kFewestBlocks));
  }
  const double mean = statistics.mean_over_spread[static_cast<int>(*found)];
  if (!is_centred(statistics, *found)) {
    throw Error(
        Error::Kind::unsupported,
        fmt::format("{}: its tensor type 107 looks like {} ({}), but decoded so its mean is {:.3f} of its standard "
                    "deviation; expected below 0.1; name the variant to read it anyway",
                    tensor, name_of(*found), numbers, mean));
  }
  return {*found, fmt::format("{}: type 107 read as {}: {}, the mean is {:.3f} of the standard deviation", tensor,
                              name_of(*found), numbers, mean)};
}

}  // namespace lockstep
