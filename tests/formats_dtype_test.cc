// The table of formats, the codebooks, the check of scales and `lockstep dequantize`.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/dequantize.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"
#include "tensor/dtype.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

TEST(DTypes, AreFoundByTheirOwnNames) {
  std::set<std::string_view> names;
  for (const DTypeInfo& info : all_dtypes()) {
    EXPECT_EQ(dtype_named(info.name), info.dtype) << info.name;
    EXPECT_EQ(&info_of(info.dtype), &info) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_EQ(all_dtypes().size(), static_cast<std::size_t>(kDTypeCount));
}

TEST(DTypes, NamesAreReadInEitherCaseAndUnderOneAlias) {
  EXPECT_EQ(dtype_named("Q4_K"), DType::q4_k);
  EXPECT_EQ(dtype_named("q4_k"), DType::q4_k);
  EXPECT_EQ(dtype_named("IQ2_XXS"), DType::iq2_xxs);
  EXPECT_EQ(dtype_named("q6_0_rocmfpx_m32"), DType::rocmfp6);
  EXPECT_EQ(dtype_named(""), std::nullopt);
  EXPECT_EQ(dtype_named("q4"), std::nullopt);
  EXPECT_EQ(dtype_named("q8_K"), std::nullopt);
}

TEST(DTypes, OnlyTheTwoBitFormatsShareAFileId) {
  for (const DTypeInfo& a : all_dtypes()) {
    for (const DTypeInfo& b : all_dtypes()) {
      const bool shared = a.dtype != b.dtype && a.file_id == b.file_id;
      EXPECT_TRUE(!shared || a.file_id == 107) << a.name << " and " << b.name;
    }
  }
}

TEST(DTypes, QuantisedFormatsHaveWholeBlocksOf32) {
  for (const DTypeInfo& info : all_dtypes()) {
    EXPECT_TRUE(!info.quantised || info.block_values % 32 == 0) << info.name;
  }
  EXPECT_EQ(row_bytes(DType::q4_k, 4096), 2304u);
  EXPECT_EQ(row_bytes(DType::f32, 0), 0u);
}

// ---- tables ---------------------------------------------------------------------------------------------------------

template <std::size_t N>
void expect_grid(const std::uint16_t (&grid)[N], int elements, int bits, unsigned codes, const char* name) {
  std::set<std::uint16_t> rows(std::begin(grid), std::end(grid));
  EXPECT_EQ(rows.size(), N) << name << " has a row twice";
  for (const unsigned row : grid) {
    EXPECT_EQ(row >> (elements * bits), 0u) << name;
    for (int i = 0; i < elements; ++i) EXPECT_LT(row >> (i * bits) & ((1u << bits) - 1), codes) << name;
  }
}

TEST(Tables, GridRowsAreDistinctAndHoldKnownCodes) {
  expect_grid(kGridIq2Xxs, 8, 2, 3, "iq2_xxs");
  expect_grid(kGridIq2Xs, 8, 2, 3, "iq2_xs");
  expect_grid(kGridIq2S, 8, 2, 3, "iq2_s");
  expect_grid(kGridIq3Xxs, 4, 3, 8, "iq3_xxs");
  expect_grid(kGridIq3S, 4, 3, 8, "iq3_s");
  expect_grid(kGridIq1, 8, 2, 3, "iq1");
}

TEST(Tables, EvenSignsKeepTheSevenBitsAndMakeTheirNumberEven) {
  for (unsigned bits = 0; bits < 128; ++bits) {
    EXPECT_EQ(even_signs(bits) & 127u, bits);
    EXPECT_EQ(std::popcount(even_signs(bits)) % 2, 0);
    EXPECT_LT(even_signs(bits), 256u);
  }
}

// ---- invalid scales -------------------------------------------------------------------------------------------------

TEST(InvalidBlocks, AreFoundWhereverAFormatKeepsAScale) {
  const struct {
    DType dtype;
    std::vector<int> offsets;  // of the scales
    std::vector<std::uint8_t> bad, good;
    const char* says;
  } kCases[] = {
      // The bytes are the upper bytes of an f16 (infinity, NaN, largest finite, minus largest), or the scale byte.
      {DType::q8_0, {1}, {0x7c, 0x7f, 0xfc, 0xff}, {0x7b, 0xfb}, "is not finite"},
      {DType::q4_0, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q4_1, {1, 3}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q5_0, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q5_1, {1, 3}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q2_k, {81, 83}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q3_k, {109}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q4_k, {1, 3}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q5_k, {1, 3}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::q6_k, {209}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq1_s, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq2_xxs, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq2_xs, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq2_s, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq3_xxs, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq3_s, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq4_nl, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::iq4_xs, {1}, {0x7c, 0x7f, 0xfc}, {0x7b, 0xfb}, "is not finite"},
      {DType::mxfp4, {0}, {0xff}, {0x00, 0x01, 0xfe}, "E8M0"},
      {DType::f8_e4m3_b128, {0}, {0xff}, {0x00, 0x01, 0xfe}, "E8M0"},
      {DType::nvfp4, {0, 1, 2, 3}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp4, {16, 17}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp4_fast, {16}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp6, {24, 25}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp8, {32}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp3, {12, 13}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp2, {8, 9}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp2_affine, {8, 9}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmfp2_s40, {8, 9}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
      {DType::rocmi4, {16}, {0x7f, 0x80, 0xff}, {0x00, 0x7e}, "UE4M3"},
  };
  for (const auto& c : kCases) {
    const DTypeInfo& info = info_of(c.dtype);
    const std::size_t block = static_cast<std::size_t>(info.block_bytes);
    for (std::size_t at = 0; at < 3; ++at) {
      for (const int offset : c.offsets) {
        std::vector<std::byte> blocks(3 * block);
        std::byte& byte = blocks[at * block + static_cast<std::size_t>(offset)];
        for (const std::uint8_t bad : c.bad) {
          byte = std::byte{bad};
          const auto wrong = find_invalid_block(c.dtype, blocks);
          ASSERT_TRUE(wrong) << info.name << " byte " << offset << " = " << int{bad};
          EXPECT_EQ(wrong->find("block " + std::to_string(at) + " of " + std::string(info.name)), 0u) << *wrong;
          EXPECT_NE(wrong->find(c.says), std::string::npos) << *wrong;
        }
        for (const std::uint8_t good : c.good) {
          byte = std::byte{good};
          EXPECT_EQ(find_invalid_block(c.dtype, blocks), std::nullopt) << info.name << " byte " << offset;
        }
      }
    }
  }
}

// Its f16 lies in the top nibbles of four words: an infinity is 0x7c00.
TEST(InvalidBlocks, TheScatteredScaleOfIq1MIsAssembledFirst) {
  std::vector<std::byte> block(56);
  block[53] = std::byte{0xc0};
  block[55] = std::byte{0x70};
  EXPECT_NE(find_invalid_block(DType::iq1_m, block).value_or("").find("0x7c00"), std::string::npos);
  block[53] = std::byte{0xb0};
  EXPECT_EQ(find_invalid_block(DType::iq1_m, block), std::nullopt);
}

TEST(InvalidBlocks, FormatsWithoutScalesAndMixAreNotChecked) {
  const std::vector<std::byte> ones(840, std::byte{0xff});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::rocmfp3_mix, DType::rocmfp2_mix}) {
    EXPECT_EQ(find_invalid_block(dtype, ones), std::nullopt) << info_of(dtype).name;
  }
}

// ---- MIX mode 0 and odd bytes ---------------------------------------------------------------------------------------

TEST(Mix, ModeZeroDecodesLikeThePlainFormatOfTheSameSize) {
  const struct {
    DType mix, plain;
  } kPairs[] = {{DType::rocmfp3_mix, DType::rocmfp3}, {DType::rocmfp2_mix, DType::rocmfp2}};
  for (const auto& pair : kPairs) {
    std::vector<std::byte> row(row_bytes(pair.mix, 96));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(i * 37 % 127);
    std::vector<float> mixed(96), plain(96);
    dequantize_row(pair.mix, MixBooks{}, row.data(), 96, mixed.data());
    dequantize_row(pair.plain, row.data(), 96, plain.data());
    EXPECT_EQ(0, std::memcmp(mixed.data(), plain.data(), 96 * sizeof(float))) << info_of(pair.mix).name;
  }
}

TEST(Nvfp4, IgnoresBitSevenOfAScale) {
  std::vector<std::byte> block(36, std::byte{0x35});
  float plain[64], marked[64];
  dequantize_row(DType::nvfp4, block.data(), 64, plain);
  for (std::size_t i = 0; i < 4; ++i) block[i] |= std::byte{0x80};
  dequantize_row(DType::nvfp4, block.data(), 64, marked);
  EXPECT_EQ(0, std::memcmp(plain, marked, sizeof plain));
}

// ---- lockstep dequantize --------------------------------------------------------------------------------------------

std::string bytes_of_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(RunDequantize, WritesTheValuesOfEveryBlockAsF32) {
  // 2500 blocks: more than are read at once.
  std::string blocks;
  std::vector<float> expected;
  for (int i = 0; i < 2500; ++i) {
    blocks += std::string("\x00\x3c", 2);  // 1.0
    for (int k = 0; k < 32; ++k) {
      blocks += static_cast<char>(i + k);
      expected.push_back(static_cast<float>(static_cast<std::int8_t>(i + k)));
    }
  }
  std::istringstream in(blocks);
  std::ostringstream out;
  EXPECT_EQ(run_dequantize(DType::q8_0, in, out), 0);
  EXPECT_EQ(out.str(), bytes_of_floats(expected));
}

TEST(RunDequantize, PassesF32ThroughAndAcceptsEmptyInput) {
  const std::string values = bytes_of_floats({1.5f, -0.0f, 3e38f});
  std::istringstream in(values), empty;
  std::ostringstream out, nothing;
  EXPECT_EQ(run_dequantize(DType::f32, in, out), 0);
  EXPECT_EQ(out.str(), values);
  EXPECT_EQ(run_dequantize(DType::q4_k, empty, nothing), 0);
  EXPECT_EQ(nothing.str(), "");
}

void expect_refused(DType dtype, std::size_t input_bytes, const std::vector<std::string>& says) {
  std::istringstream in(std::string(input_bytes, '\0'));
  std::ostringstream out;
  try {
    run_dequantize(dtype, in, out);
    ADD_FAILURE() << info_of(dtype).name << " with " << input_bytes << " bytes was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
    for (const std::string& part : says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(RunDequantize, RefusesAPartOfABlockAndNamesTheSizes) {
  expect_refused(DType::q8_0, 33, {"33 bytes", "q8_0", "blocks of 34 bytes", "33 left over"});
  expect_refused(DType::q8_0, 35, {"35 bytes", "1 left over"});
  expect_refused(DType::q2_k, 84 * 1500 + 83, {"126083 bytes", "q2_K", "84 bytes", "83 left over"});
  expect_refused(DType::f16, 3, {"3 bytes", "f16", "2 bytes"});
}

TEST(RunDequantize, RefusesFormatsWithoutValuesOfTheirOwn) {
  expect_refused(DType::i32, 4, {"i32"});
  expect_refused(DType::rocmfp3_mix, 14, {"q3_1_rocmfp3_mix", "side table"});
  expect_refused(DType::rocmfp2_mix, 10, {"q2_1_rocmfp2_mix", "side table"});
}

}  // namespace
}  // namespace lockstep
