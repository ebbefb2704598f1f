// Every weight format against the published vectors: values bit for bit, block sums as integers, dots in the law's
// order.
#include "formats_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "numerics/order.h"
#include "numerics/round.h"
#include "tensor/block.h"
#include "tensor/dequantize.h"
#include "tensor/dtype.h"

namespace lockstep {
namespace {

using test::FormatVectors;

constexpr int kWidth = FormatVectors::kRowLength;
constexpr int kRowBlocks = kWidth / kBlock;

/// The rule of the vectors: equal bits, or two zeros, or two NaNs.
bool same_value(float a, float b) {
  return bits_of(a) == bits_of(b) || (a == 0 && b == 0) || (std::isnan(a) && std::isnan(b));
}

/// Vectors of the 6-bit format exist under both readings of code 32. Ours is the -32 rule.
bool is_old_rocmfp6(const std::string& name) { return name == "q6_0_rocmfpx"; }

DType named(const std::string& name) { return dtype_named(name).value(); }

MixBooks mix_books(DType dtype) {
  const std::vector<std::uint16_t> words =
      FormatVectors("common").values<std::uint16_t>(dtype == DType::rocmfp3_mix ? "mix_book3" : "mix_book2");
  MixBooks books{.books = true};
  const std::size_t levels = words.size() / 2;
  for (std::size_t i = 0; i < words.size(); ++i) books.level[i / levels][i % levels] = bf16_to_f32(words[i]);
  return books;
}

std::vector<float> dequantize(DType dtype, std::span<const std::byte> blocks) {
  const DTypeInfo& info = info_of(dtype);
  const std::int64_t width = static_cast<std::int64_t>(blocks.size()) / info.block_bytes * info.block_values;
  std::vector<float> values(static_cast<std::size_t>(width));
  if (dtype == DType::rocmfp3_mix || dtype == DType::rocmfp2_mix) {
    dequantize_row(dtype, mix_books(dtype), blocks.data(), width, values.data());
  } else {
    dequantize_row(dtype, blocks.data(), width, values.data());
  }
  return values;
}

/// Compares all values but those that only the old reading of code 32 makes 0.
void expect_values(const std::string& name, std::span<const std::byte> blocks, const std::vector<float>& expected) {
  const DType dtype = named(name);
  const std::vector<float> values = dequantize(dtype, blocks);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_old_rocmfp6(name)) {
      const Block block = decode_block(dtype, blocks.data(), static_cast<std::int64_t>(i) / kBlock);
      if (block.level[i % kBlock] == -32 && expected[i] == 0) continue;
    }
    ASSERT_TRUE(same_value(values[i], expected[i]))
        << "value " << i << ": " << values[i] << ", expected " << expected[i];
  }
}

struct Int8Row {
  std::int8_t code[kWidth];
  float scale[kRowBlocks];
};

/// Activation row i in the encoding that the vectors of a format were made with, as codes and a scale for each 32.
Int8Row activations(const FormatVectors& common, const std::string& encoding, int row) {
  const int codes = encoding == "q8_0" ? 2 : 4;  // bytes before the codes of a block
  const int width = encoding == "q8_K" ? 256 : 32;
  const int bytes = encoding == "q8_0" ? 34 : encoding == "q8_1" ? 36 : 292;
  const std::byte* from = common.dot_row("act_" + encoding, row).data();
  Int8Row act;
  for (int k = 0; k < kWidth; ++k) {
    const std::byte* block = from + k / width * bytes;
    act.code[k] = static_cast<std::int8_t>(block[codes + k % width]);
    act.scale[k / kBlock] = encoding == "q8_K" ? load_as<float>(block) : f16_to_f32(load_as<std::uint16_t>(block));
  }
  return act;
}

/// I_0, I_1 and M of tensor/block.h.
struct BlockSums {
  int half[2] = {};
  int minimum = 0;
};

BlockSums block_sums(const Block& block, const std::int8_t* act) {
  BlockSums sums;
  for (int i = 0; i < kBlock; ++i) {
    sums.half[i / 16] += block.level[i] * act[i];
    if (block.has_min) sums.minimum += block.min_level[i / 16] * act[i];
  }
  return sums;
}

/// The literal loop of the law for a quantised row with int8 activations.
float dot_in_order(DType dtype, const std::byte* row, const Int8Row& act) {
  float total = 0;
  for (int begin = 0; begin < kWidth; begin += kChunk) {
    const int length = std::min(kChunk, kWidth - begin);
    const int lanes = block_lanes_of(length);
    float lane[kMaxLanes] = {};
    for (int u = 0; u < length / kBlock; ++u) {
      const int index = begin / kBlock + u;
      const Block block = decode_block(dtype, row, index);
      const BlockSums sums = block_sums(block, act.code + index * kBlock);
      float t = block.dual ? fma_f32(static_cast<float>(sums.half[1]), block.scale[1],
                                     static_cast<float>(sums.half[0]) * block.scale[0])
                           : static_cast<float>(sums.half[0] + sums.half[1]) * block.scale[0];
      if (block.has_min) t = fma_f32(-static_cast<float>(sums.minimum), block.min_scale, t);
      lane[u % lanes] = fma_f32(t, act.scale[index], lane[u % lanes]);
    }
    const float sum = fold(lane, lanes);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

// ---- every format ---------------------------------------------------------------------------------------------------

class EveryFormat : public testing::TestWithParam<const char*> {};

TEST_P(EveryFormat, HasTheSizesAndIdOfTheVectors) {
  const FormatVectors vectors(GetParam());
  const DTypeInfo& info = info_of(named(GetParam()));
  EXPECT_EQ(info.file_id, vectors.about().at("type_id"));
  EXPECT_EQ(info.block_values, vectors.about().at("block_size"));
  EXPECT_EQ(info.block_bytes, vectors.about().at("block_bytes"));
  EXPECT_EQ(info.quantised, vectors.about().at("activation") != "f32");
}

TEST_P(EveryFormat, DequantisesToTheBitsOfTheVectors) {
  const FormatVectors vectors(GetParam());
  expect_values(GetParam(), vectors.bytes("random_blocks"), vectors.values<float>("random_deq"));
  expect_values(GetParam(), vectors.bytes("edge_blocks"), vectors.values<float>("edge_deq"));
  if (vectors.has("gauss_deq")) {
    expect_values(GetParam(), vectors.bytes("gauss_q"), vectors.values<float>("gauss_deq"));
  }
}

// Both sums are f64 over the same 1024 values; they may differ by the order alone.
TEST_P(EveryFormat, DequantisedRowsGiveTheDotsOfTheVectors) {
  const FormatVectors vectors(GetParam());
  const FormatVectors common("common");
  const std::vector<double> expected = vectors.values<double>("dot_f64_f32act");
  for (int row = 0; row < FormatVectors::kDotRows; ++row) {
    if (is_old_rocmfp6(GetParam()) && row % 2 == 1) continue;  // random blocks hold code 32
    const std::vector<float> weights = dequantize(named(GetParam()), vectors.dot_row("dot_w", row));
    const std::byte* act = common.dot_row("act_f32", row).data();
    double sum = 0, magnitudes = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double product = static_cast<double>(weights[k]) * static_cast<double>(load_as<float>(act + 4 * k));
      sum += product;
      magnitudes += std::abs(product);
    }
    EXPECT_NEAR(sum, expected[static_cast<std::size_t>(row)], 1e-12 * magnitudes) << "row " << row;
  }
}

TEST_P(EveryFormat, FindsNothingInvalidInSoundBlocks) {
  const FormatVectors vectors(GetParam());
  const DType dtype = named(GetParam());
  for (const char* section : {"random_blocks", "edge_blocks", "dot_w"}) {
    EXPECT_EQ(find_invalid_block(dtype, vectors.bytes(section)), std::nullopt) << section;
  }
}

// ---- quantised formats ----------------------------------------------------------------------------------------------

class QuantisedFormat : public testing::TestWithParam<const char*> {};

TEST_P(QuantisedFormat, BlockLevelsTimesScalesAreTheValues) {
  const FormatVectors vectors(GetParam());
  const DType dtype = named(GetParam());
  for (const std::string section : {"random", "edge"}) {
    const auto blocks = vectors.bytes(section + "_blocks");
    const std::vector<float> expected = vectors.values<float>(section + "_deq");
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Block block = decode_block(dtype, blocks.data(), static_cast<std::int64_t>(i) / kBlock);
      const std::size_t half = i % kBlock / 16;
      if (is_old_rocmfp6(GetParam()) && block.level[i % kBlock] == -32 && expected[i] == 0) continue;
      const float level = static_cast<float>(block.level[i % kBlock]);
      // One rounding at most: the products are exact.
      const float value = block.has_min ? fma_f32(level, block.scale[half],
                                                  -static_cast<float>(block.min_level[half]) * block.min_scale)
                                        : level * block.scale[half];
      ASSERT_TRUE(same_value(value, expected[i]))
          << section << " value " << i << ": " << value << ", expected " << expected[i];
    }
  }
}

TEST_P(QuantisedFormat, BlocksOfOneScaleSaySoTwice) {
  const FormatVectors vectors(GetParam());
  const auto blocks = vectors.bytes("random_blocks");
  const DTypeInfo& info = info_of(named(GetParam()));
  const std::int64_t count = static_cast<std::int64_t>(blocks.size()) / info.block_bytes * info.block_values / kBlock;
  for (std::int64_t i = 0; i < count; ++i) {
    const Block block = decode_block(info.dtype, blocks.data(), i);
    ASSERT_TRUE(block.dual || bits_of(block.scale[0]) == bits_of(block.scale[1])) << "block " << i;
    const bool no_minimum = block.min_scale == 0 && block.min_level[0] == 0 && block.min_level[1] == 0;
    ASSERT_TRUE(block.has_min || no_minimum) << "block " << i;
  }
}

// Every bit pattern is some block, and none may break what makes the integer sums exact in f32. The buffer ends with
// its last block, so that a sanitizer sees a read behind it.
TEST_P(QuantisedFormat, AnyBytesGiveSumsBelowTwoToThe24) {
  const DTypeInfo& info = info_of(named(GetParam()));
  std::mt19937 random(1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(500 * info.block_bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xffu);
  for (std::size_t i = 0; i < 40u * static_cast<std::size_t>(info.block_bytes); ++i) {
    bytes[i] = static_cast<std::byte>(i % 80 < 40 ? 0xff : 0x00);
  }
  for (std::int64_t index = 0; index < 500 * info.block_values / kBlock; ++index) {
    const Block block = decode_block(info.dtype, bytes.data(), index);
    int levels = 0;
    for (const int level : block.level) levels += std::abs(level);
    const int minima = 16 * (block.min_level[0] + block.min_level[1]);
    ASSERT_LT(127 * levels, 1 << 24) << "block " << index;
    ASSERT_LT(127 * minima, 1 << 24) << "block " << index;
    ASSERT_TRUE(block.min_level[0] >= 0 && block.min_level[1] >= 0) << "block " << index;
  }
}

// The vectors keep IQ1 values as grid and delta, msum being eight times the deltas' part; our levels hold both.
TEST_P(QuantisedFormat, IntegerSumsAreThoseOfTheVectors) {
  const FormatVectors vectors(GetParam());
  const FormatVectors common("common");
  const DType dtype = named(GetParam());
  const std::vector<std::int32_t> expected = vectors.values<std::int32_t>("dot_isum");
  const std::size_t a_row = expected.size() / FormatVectors::kDotRows;
  const bool eighths = dtype == DType::iq1_s || dtype == DType::iq1_m;
  for (int row = 0; row < FormatVectors::kDotRows; ++row) {
    if (is_old_rocmfp6(GetParam()) && row % 2 == 1) continue;  // random blocks hold code 32
    const Int8Row act = activations(common, vectors.about().at("activation"), row);
    std::vector<std::int32_t> sums(a_row);
    for (int index = 0; index < kRowBlocks; ++index) {
      const Block block = decode_block(dtype, vectors.dot_row("dot_w", row).data(), index);
      const BlockSums block_sum = block_sums(block, act.code + index * kBlock);
      const std::size_t u = static_cast<std::size_t>(index);
      if (a_row == 2 * kRowBlocks) {
        sums[2 * u] = block_sum.half[0];
        sums[2 * u + 1] = block_sum.half[1];
      } else if (a_row == kRowBlocks) {
        sums[u] = block_sum.half[0] + block_sum.half[1];
      } else {
        ASSERT_EQ(a_row, static_cast<std::size_t>(2 * kWidth / 256));
        sums[u / 8 * 2] += block_sum.half[0] + block_sum.half[1];
        sums[u / 8 * 2 + 1] += block_sum.minimum;
      }
    }
    for (std::size_t i = 0; i < a_row; ++i) {
      const std::int32_t* sum = &expected[static_cast<std::size_t>(row) * a_row + i];
      if (!eighths) {
        ASSERT_EQ(sums[i], *sum) << "row " << row << " sum " << i;
      } else if (i % 2 == 0) {
        ASSERT_EQ(sums[i], 8 * sum[0] + sum[1]) << "row " << row << " sum " << i;
      }
    }
  }
}

TEST_P(QuantisedFormat, DotInTheLawsOrderMeetsTheFormatsTolerance) {
  const FormatVectors vectors(GetParam());
  const FormatVectors common("common");
  const std::vector<double> expected = vectors.values<double>("dot_f64_qact");
  const std::vector<double> magnitude = vectors.values<double>("dot_abs_qact");
  for (int row = 0; row < FormatVectors::kDotRows; ++row) {
    if (is_old_rocmfp6(GetParam()) && row % 2 == 1) continue;  // random blocks hold code 32
    const Int8Row act = activations(common, vectors.about().at("activation"), row);
    const float dot = dot_in_order(named(GetParam()), vectors.dot_row("dot_w", row).data(), act);
    const std::size_t r = static_cast<std::size_t>(row);
    EXPECT_NEAR(static_cast<double>(dot), expected[r], 4e-7 * std::sqrt(kWidth / 32.0) * magnitude[r]) << "row " << row;
  }
}

constexpr const char* kFloats[] = {"f16", "bf16", "f8_e4m3_b128", "q3_1_rocmfp3_mix", "q2_1_rocmfp2_mix"};
constexpr const char* kQuantised[] = {"q8_0",
                                      "q4_0",
                                      "q4_1",
                                      "q5_0",
                                      "q5_1",
                                      "q2_K",
                                      "q3_K",
                                      "q4_K",
                                      "q5_K",
                                      "q6_K",
                                      "iq1_s",
                                      "iq1_m",
                                      "iq2_xxs",
                                      "iq2_xs",
                                      "iq2_s",
                                      "iq3_xxs",
                                      "iq3_s",
                                      "iq4_nl",
                                      "iq4_xs",
                                      "mxfp4",
                                      "nvfp4",
                                      "q4_0_rocmfp4",
                                      "q4_0_rocmfp4_fast",
                                      "q6_0_rocmfpx",
                                      "q6_0_rocmfpx_m32",
                                      "q8_0_rocmfpx",
                                      "q3_0_rocmfpx",
                                      "q2_0_rocmfp2",
                                      "q2_0_rocmfp2_affine",
                                      "q2_0_rocmfpx_s40",
                                      "q4_0_rocmi4"};

std::string name_of_case(const testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Float, EveryFormat, testing::ValuesIn(kFloats), name_of_case);
INSTANTIATE_TEST_SUITE_P(Quantised, EveryFormat, testing::ValuesIn(kQuantised), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, QuantisedFormat, testing::ValuesIn(kQuantised), name_of_case);

// No format of the table is without vectors, but for the two that are plain copies.
TEST(Formats, EveryDTypeHasVectors) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.dtype == DType::f32 || info.dtype == DType::i32) continue;
    const auto is_it = [&](const char* name) { return info.name == name; };
    const bool found = std::any_of(std::begin(kFloats), std::end(kFloats), is_it) ||
                       std::any_of(std::begin(kQuantised), std::end(kQuantised), is_it);
    EXPECT_TRUE(found) << info.name;
  }
}

}  // namespace
}  // namespace lockstep
