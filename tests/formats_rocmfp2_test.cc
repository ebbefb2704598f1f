// The three formats behind type id 107: told apart by their data, refused when the data do not tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats_vectors.h"
#include "numerics/round.h"
#include "tensor/rocmfp2.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

using Variant = Rocmfp2Variant;

double scale_of(int byte) { return static_cast<double>(ue4m3_half_to_f32(static_cast<std::uint8_t>(byte))); }

struct Fit {
  double error = 1e300;
  int byte = 0;
  int code[16] = {};
};

/// The best scale byte for 16 values, every one tried, and the nearest codes.
Fit fit_half(const double* x, const std::int16_t* levels) {
  Fit best;
  for (int byte = 1; byte <= 126; ++byte) {
    Fit fit{.error = 0, .byte = byte};
    for (int i = 0; i < 16; ++i) {
      double nearest = 1e300;
      for (int code = 0; code < 4; ++code) {
        const double off = std::abs(x[i] - levels[code] * scale_of(byte));
        if (off < nearest) {
          nearest = off;
          fit.code[i] = code;
        }
      }
      fit.error += nearest * nearest;
    }
    if (fit.error < best.error) best = fit;
  }
  return best;
}

int affine_code(double x, double scale, double offset) {
  return static_cast<int>(std::clamp(std::floor((x + offset) / scale + 0.5), 0.0, 3.0));
}

double affine_error(const double* x, int scale_byte, int offset_byte) {
  const double scale = scale_of(scale_byte), offset = scale_of(offset_byte);
  double error = 0;
  for (int i = 0; i < 32; ++i) {
    const double off = x[i] - (affine_code(x[i], scale, offset) * scale - offset);
    error += off * off;
  }
  return error;
}

/// Scale and offset bytes for 32 values: three one-dimensional searches from the extremes.
std::pair<int, int> fit_affine(const double* x) {
  const auto byte_near = [](double value) {
    int best = 1;
    for (int byte = 1; byte <= 126; ++byte) {
      if (std::abs(scale_of(byte) - value) < std::abs(scale_of(best) - value)) best = byte;
    }
    return best;
  };
  const double low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
  int offset = byte_near(std::max(0.0, -low));
  int scale = byte_near((high + scale_of(offset)) / 3);
  for (const bool of_scale : {true, false, true}) {
    int best = of_scale ? scale : offset;
    double best_error = 1e300;
    for (int byte = of_scale ? 1 : 0; byte <= 126; ++byte) {
      const double error = of_scale ? affine_error(x, byte, offset) : affine_error(x, scale, byte);
      if (error < best_error) {
        best_error = error;
        best = byte;
      }
    }
    (of_scale ? scale : offset) = best;
  }
  return {scale, offset};
}

void set_code(std::byte* block, int i, int code) { block[i / 4] |= static_cast<std::byte>(code << (2 * (i % 4))); }

std::vector<std::byte> quantise(Variant variant, int blocks, double sigma, double mean, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(mean, sigma);
  std::vector<std::byte> bytes(static_cast<std::size_t>(blocks) * 10);
  for (int n = 0; n < blocks; ++n) {
    std::byte* block = bytes.data() + 10 * n;
    double x[32];
    for (double& value : x) value = normal(random);
    if (variant == Variant::affine) {
      const auto [scale, offset] = fit_affine(x);
      for (int i = 0; i < 32; ++i) set_code(block, i, affine_code(x[i], scale_of(scale), scale_of(offset)));
      block[8] = static_cast<std::byte>(scale);
      block[9] = static_cast<std::byte>(offset);
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      const Fit fit = fit_half(x + 16 * half, variant == Variant::fixed ? kLevelRocmfp2 : kLevelRocmfp2S40);
      for (int i = 0; i < 16; ++i) set_code(block, 16 * half + i, fit.code[i]);
      block[8 + half] = static_cast<std::byte>(fit.byte);
    }
  }
  return bytes;
}

/// Blocks whose codes come in the given proportions (of 32) and whose scale bytes are given.
std::vector<std::byte> blocks_of(int count, const int (&codes)[4], int first_scale, int second_scale) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * 10);
  for (int n = 0; n < count; ++n) {
    std::byte* block = bytes.data() + 10 * n;
    int i = 0;
    for (int code = 0; code < 4; ++code) {
      for (int k = 0; k < codes[code]; ++k) set_code(block, i++, code);
    }
    block[8] = static_cast<std::byte>(first_scale);
    block[9] = static_cast<std::byte>(second_scale);
  }
  return bytes;
}

void expect_refused(const std::vector<std::byte>& blocks, const std::vector<std::string>& says) {
  try {
    const Rocmfp2Decision decision = detect_rocmfp2(blocks, "blk.0.ffn_up_exps.weight");
    ADD_FAILURE() << "read as " << name_of(decision.variant) << ": " << decision.reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::unsupported);
    for (const std::string& part : says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Rocmfp2, VariantsAreFoundByNameAndHaveAFormat) {
  EXPECT_EQ(rocmfp2_variant_named("fixed"), Variant::fixed);
  EXPECT_EQ(rocmfp2_variant_named("affine"), Variant::affine);
  EXPECT_EQ(rocmfp2_variant_named("s40"), Variant::s40);
  EXPECT_EQ(rocmfp2_variant_named("auto"), std::nullopt);
  EXPECT_EQ(dtype_of(Variant::fixed), DType::rocmfp2);
  EXPECT_EQ(dtype_of(Variant::affine), DType::rocmfp2_affine);
  EXPECT_EQ(dtype_of(Variant::s40), DType::rocmfp2_s40);
}

TEST(Rocmfp2, NormalRowsOfAnySizeAreToldApart) {
  for (const Variant variant : {Variant::fixed, Variant::affine, Variant::s40}) {
    for (const double sigma : {0.002, 0.02, 0.5}) {
      for (const int blocks : {64, 800}) {
        const auto bytes = quantise(variant, blocks, sigma, 0, 11);
        const Rocmfp2Decision decision = detect_rocmfp2(bytes, "blk.7.ffn_up_exps.weight");
        EXPECT_EQ(decision.variant, variant) << decision.reason << ", sigma " << sigma;
        EXPECT_EQ(decision.reason.find("blk.7.ffn_up_exps.weight: type 107 read as "), 0u) << decision.reason;
      }
    }
  }
}

// The rows of the vectors are unlike each other on purpose: outliers, offsets, zero columns. What they must not be is
// taken for another variant.
TEST(Rocmfp2, RowsOfTheVectorsAreNotTakenForAnotherVariant) {
  const struct {
    const char* format;
    Variant variant;
  } kCases[] = {
      {"q2_0_rocmfp2", Variant::fixed}, {"q2_0_rocmfp2_affine", Variant::affine}, {"q2_0_rocmfpx_s40", Variant::s40}};
  for (const auto& c : kCases) {
    const test::FormatVectors vectors(c.format);
    for (const char* section : {"gauss_q", "gauss_q_imatrix"}) {
      const Rocmfp2Decision decision = detect_rocmfp2(vectors.bytes(section), c.format);
      EXPECT_EQ(decision.variant, c.variant) << section << ": " << decision.reason;
    }
  }
}

TEST(Rocmfp2, ALargeTensorIsSampledFromEndToEnd) {
  // Sound blocks at both ends, others between: only a sample that reaches over the tensor sees that something is odd.
  auto bytes = quantise(Variant::fixed, 512, 0.02, 0, 5);
  const auto tail = bytes;
  const auto odd = blocks_of(20000, {8, 8, 8, 8}, 40, 40);
  bytes.insert(bytes.end(), odd.begin(), odd.end());
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  const Rocmfp2Decision decision = detect_rocmfp2(bytes, "t", Variant::s40);
  EXPECT_NE(decision.reason.find("in 8192 blocks"), std::string::npos) << decision.reason;
  EXPECT_NE(decision.reason.find("the data agree"), std::string::npos) << decision.reason;
}

TEST(Rocmfp2, DataBetweenTheVariantsAreRefused) {
  const char* kUnknown = "cannot tell";
  auto mixed = quantise(Variant::fixed, 600, 0.02, 0, 1);
  const auto other = quantise(Variant::s40, 600, 0.02, 0, 2);
  mixed.insert(mixed.end(), other.begin(), other.end());
  expect_refused(mixed, {kUnknown, "blk.0.ffn_up_exps.weight", "name the variant"});

  expect_refused(blocks_of(200, {9, 13, 8, 2}, 40, 42), {kUnknown, "sum to 1.250"});  // fixed codes, scales of neither
  expect_refused(blocks_of(200, {9, 13, 8, 2}, 40, 37), {kUnknown, "sum to 0.8"});
  expect_refused(blocks_of(200, {8, 10, 9, 5}, 40, 40), {kUnknown, "0.625 of code 0"});
  expect_refused(blocks_of(200, {0, 32, 0, 0}, 40, 40), {kUnknown});  // codes 0 and 3 never occur
  expect_refused(blocks_of(200, {9, 13, 8, 2}, 0, 0), {kUnknown});    // all scales zero
  expect_refused(blocks_of(63, {9, 13, 8, 2}, 40, 40), {kUnknown, "in 63 blocks", "at least 64"});
  expect_refused({}, {kUnknown, "in 0 blocks"});
}

TEST(Rocmfp2, AMeanFarFromZeroIsRefused) {
  // Code frequencies of "fixed", but most values are +1: no matrix of weights looks like that.
  expect_refused(blocks_of(200, {5, 2, 23, 2}, 40, 40), {"looks like fixed", "mean", "expected below 0.1"});
}

TEST(Rocmfp2, AnExplicitVariantIsTakenAndTheReasonSaysWhatTheDataSay) {
  const auto fixed = quantise(Variant::fixed, 300, 0.02, 0, 3);
  const struct {
    const char* name;
    std::vector<std::byte> blocks;
    Variant forced;
    const char* says;
  } kCases[] = {
      {"agreeing", fixed, Variant::fixed, "the data agree"},
      {"another", fixed, Variant::affine, "look like another"},
      {"between", blocks_of(200, {8, 10, 9, 5}, 40, 40), Variant::s40, "fit no variant"},
      {"off centre", blocks_of(200, {5, 2, 23, 2}, 40, 40), Variant::fixed, "far from 0"},
      {"empty", {}, Variant::fixed, "fit no variant"},
  };
  for (const auto& c : kCases) {
    const Rocmfp2Decision decision = detect_rocmfp2(c.blocks, "t", c.forced);
    EXPECT_EQ(decision.variant, c.forced) << c.name;
    EXPECT_NE(decision.reason.find(c.says), std::string::npos) << c.name << ": " << decision.reason;
    EXPECT_NE(decision.reason.find("as asked"), std::string::npos) << c.name << ": " << decision.reason;
  }
}

}  // namespace
}  // namespace lockstep
