// The quantisers: errors against those of the public ones, bytes where those are defined, and odd input.
#include "tensor/quantise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "formats_vectors.h"
#include "quantise_table.h"

namespace lockstep {
namespace {

using test::FormatVectors;

constexpr int kWidth = FormatVectors::kRowLength;

std::string test_name(DType dtype) {
  std::string name(info_of(dtype).name);
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

std::vector<std::byte> quantised(const Quantiser& quantiser, std::span<const float> rows,
                                 std::span<const float> importance, int width) {
  const std::size_t bytes = row_bytes(quantiser.dtype(), width), w = static_cast<std::size_t>(width);
  std::vector<std::byte> out(rows.size() / w * bytes);
  for (std::size_t row = 0; row < rows.size() / w; ++row)
    quantiser.quantise_row(rows.subspan(row * w, w), importance, out.data() + row * bytes);
  return out;
}

std::vector<float> dequantised(DType dtype, std::span<const std::byte> bytes, int width) {
  const std::size_t rows = bytes.size() / row_bytes(dtype, width), w = static_cast<std::size_t>(width);
  std::vector<float> out(rows * w);
  for (std::size_t row = 0; row < rows; ++row)
    dequantize_row(dtype, bytes.data() + row * row_bytes(dtype, width), width, out.data() + row * w);
  return out;
}

// ---- Errors ---------------------------------------------------------------------------------------------------------

class ReferenceTable : public testing::TestWithParam<test::ReferenceErrors> {};

TEST_P(ReferenceTable, NoErrorIsAboveTheReferences) {
  // Both sides are samples of 200,000 values, each within half a percent of the truth.
  constexpr double kSampling = 1.0075;
  const Quantiser quantiser(GetParam().dtype);
  for (int column = 0; column < test::kTableColumns; ++column)
    EXPECT_LE(test::table_error(quantiser, column), static_cast<double>(GetParam().error[column]) * kSampling)
        << test::kTableColumnNames[column];
}
INSTANTIATE_TEST_SUITE_P(Formats, ReferenceTable, testing::ValuesIn(test::kReferenceErrors),
                         [](const auto& made) { return test_name(made.param.dtype); });

/// On the rows of the vectors, against the bytes that the reference made of them.
class ReferenceRows : public testing::TestWithParam<DType> {};

TEST_P(ReferenceRows, HaveAtLeastTheirError) {
  const FormatVectors common("common"), format(std::string(info_of(GetParam()).name));
  const auto rows = common.values<float>("gauss_rows"), importance = common.values<float>("imatrix");
  const Quantiser quantiser(GetParam());
  const struct {
    const char* section;
    std::vector<float> weights;
  } cases[] = {{"gauss_q", {}}, {"gauss_q_imatrix", importance}};
  for (const auto& c : cases) {
    const auto theirs = dequantised(GetParam(), format.bytes(c.section), kWidth);
    const auto ours = dequantised(GetParam(), quantised(quantiser, rows, c.weights, kWidth), kWidth);
    EXPECT_LE(test::relative_error(rows, ours, c.weights), 1.005 * test::relative_error(rows, theirs, c.weights))
        << c.section;
  }
}
constexpr DType kSearched[] = {DType::q8_0,    DType::q4_0,           DType::q2_k,       DType::q3_k,    DType::q4_k,
                               DType::q5_k,    DType::q6_k,           DType::iq2_xxs,    DType::iq3_xxs, DType::mxfp4,
                               DType::rocmfp8, DType::rocmfp2_affine, DType::rocmfp2_s40};
INSTANTIATE_TEST_SUITE_P(Formats, ReferenceRows, testing::ValuesIn(kSearched),
                         [](const auto& made) { return test_name(made.param); });

/// Formats whose best bytes are defined: the same ones, with and without importances.
class ReferenceBytes : public testing::TestWithParam<DType> {};

TEST_P(ReferenceBytes, AreMet) {
  const FormatVectors common("common"), format(std::string(info_of(GetParam()).name));
  const auto rows = common.values<float>("gauss_rows"), importance = common.values<float>("imatrix");
  const Quantiser quantiser(GetParam());
  const struct {
    const char* section;
    std::vector<float> weights;
  } cases[] = {{"gauss_q", {}}, {"gauss_q_imatrix", importance}};
  for (const auto& c : cases) {
    const auto theirs = format.bytes(c.section);
    const auto ours = quantised(quantiser, rows, c.weights, kWidth);
    ASSERT_EQ(ours.size(), theirs.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) different += ours[i] != theirs[i];
    EXPECT_EQ(different, 0u) << c.section;
  }
}
constexpr DType kDefined[] = {DType::q8_0,    DType::rocmfp4, DType::rocmfp4_fast,
                              DType::rocmfp6, DType::rocmfp3, DType::rocmfp2};
INSTANTIATE_TEST_SUITE_P(Formats, ReferenceBytes, testing::ValuesIn(kDefined),
                         [](const auto& made) { return test_name(made.param); });

TEST(Quantise, KeepsFp4ValuesExactlyWhereTheFormatHoldsThem) {
  const std::vector<float> rows = test::table_rows(4);
  for (const DType dtype : {DType::mxfp4, DType::rocmfp6, DType::rocmfp8, DType::f16, DType::bf16})
    EXPECT_EQ(test::quantised_and_back(Quantiser(dtype), rows, {}, test::kTableWidth), rows) << info_of(dtype).name;
}

// ---- Every format ---------------------------------------------------------------------------------------------------

class EveryFormat : public testing::TestWithParam<DType> {
 protected:
  bool is_quantised() const { return info_of(GetParam()).quantised; }
};
INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::ValuesIn(quantisable_dtypes().begin(), quantisable_dtypes().end()),
                         [](const auto& made) { return test_name(made.param); });

std::vector<float> varied_rows(int rows, int width) {
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = random_normal(7, i) * std::ldexp(1.0f, static_cast<int>(i / static_cast<std::size_t>(width)) % 5 - 4);
  return values;
}

/// Of the bytes that the next test makes. A change of a search changes them; another machine, level or compiler must
/// not.
std::string_view golden_hash(DType dtype) {
  constexpr struct {
    DType dtype;
    std::string_view hash;
  } kGolden[] = {
      {DType::f32, "309864fd5360477f"},          {DType::f16, "4b293f9af1fcfbf0"},
      {DType::bf16, "d907d1bb5617ee36"},         {DType::q8_0, "f2dfa53619f2eb9b"},
      {DType::q4_0, "3e3d7639c4a5ec57"},         {DType::q2_k, "2024843e2883fd4d"},
      {DType::q3_k, "0c7de82ffe6dbc79"},         {DType::q4_k, "897f75b20923000b"},
      {DType::q5_k, "7a2968d9ae5cd4b4"},         {DType::q6_k, "3c27a7f79e6272a9"},
      {DType::iq2_xxs, "8dbcf56f190a1bf7"},      {DType::iq3_xxs, "85a0e2e5fac84017"},
      {DType::mxfp4, "b4594a62bf89bbcc"},        {DType::rocmfp4, "71bb210c238af906"},
      {DType::rocmfp4_fast, "c453be69f64699eb"}, {DType::rocmfp6, "4f6695ae44a24456"},
      {DType::rocmfp8, "d9803a4bd28e2638"},      {DType::rocmfp3, "5a9117d3cb566504"},
      {DType::rocmfp2, "3c50a89618d0b0e1"},      {DType::rocmfp2_affine, "8aed8202a233974c"},
      {DType::rocmfp2_s40, "c404a14c08973c25"},
  };
  for (const auto& golden : kGolden)
    if (golden.dtype == dtype) return golden.hash;
  return "none";
}

TEST_P(EveryFormat, MakesTheSameBytesOnEveryMachineAndThread) {
  const std::vector<float> rows = varied_rows(16, 512);
  std::vector<float> importance(512);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = 0.25f + std::fabs(random_normal(8, i));
  const Quantiser quantiser(GetParam());
  std::vector<std::byte> alone = quantised(quantiser, rows, importance, 512), other;
  std::thread([&] { other = quantised(quantiser, rows, importance, 512); }).join();
  EXPECT_EQ(alone, other);
  const std::vector<std::byte> plain = quantised(quantiser, rows, {}, 512);
  alone.insert(alone.end(), plain.begin(), plain.end());
  EXPECT_EQ(fmt::format("{:016x}", hash_bytes(alone)), golden_hash(GetParam()));
}

TEST_P(EveryFormat, OddInputMakesSoundBlocks) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const struct {
    const char* name;
    float value;
    int step;  // every step-th value of the row; the others are small
  } kCases[] = {
      {"zeros", 0, 1},
      {"infinities", kInf, 3},
      {"a lone NaN", std::nanf(""), 200},
      {"huge", 3e38f, 7},
      {"huge, all alike", -3e38f, 1},
      {"subnormal", 1e-41f, 1},
      {"tiny", 1e-30f, 2},
      {"all alike", 0.37f, 1},
      {"all alike, negative", -0.37f, 1},
      {"one outlier", 1e6f, 300},
      {"negative zero", -0.0f, 1},
  };
  const Quantiser quantiser(GetParam());
  for (const auto& c : kCases) {
    std::vector<float> row(512), importance(512, 1.0f);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = i % static_cast<std::size_t>(c.step) == 0 ? c.value : 0.01f * random_normal(9, i);
    std::vector<float> some(512);
    some[5] = 2;
    for (const std::vector<float>& weights : {std::vector<float>(), importance, std::vector<float>(512), some}) {
      const auto bytes = quantised(quantiser, row, weights, 512);
      EXPECT_EQ(find_invalid_block(GetParam(), bytes), std::nullopt) << c.name;
      if (!is_quantised()) continue;
      for (const float value : dequantised(GetParam(), bytes, 512)) ASSERT_TRUE(std::isfinite(value)) << c.name;
    }
  }
}

TEST_P(EveryFormat, ZerosStayZeros) {
  const std::vector<float> row(512);
  for (const float value : dequantised(GetParam(), quantised(Quantiser(GetParam()), row, {}, 512), 512))
    EXPECT_EQ(value, 0.0f);
}

TEST_P(EveryFormat, ValuesThatAreNotFiniteCountAsZero) {
  if (!is_quantised()) return;
  std::vector<float> row(512), clean(512);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = clean[i] = random_normal(10, i);
  row[3] = std::numeric_limits<float>::infinity();
  row[77] = std::nanf("");
  clean[3] = clean[77] = 0;
  const Quantiser quantiser(GetParam());
  EXPECT_EQ(quantised(quantiser, row, {}, 512), quantised(quantiser, clean, {}, 512));
}

TEST_P(EveryFormat, TheScaleOfImportancesDoesNotMatter) {
  const std::vector<float> rows = varied_rows(4, 512);
  std::vector<float> importance(512), larger(512);
  for (std::size_t i = 0; i < importance.size(); ++i) {
    importance[i] = 0.5f + std::fabs(random_normal(11, i));
    larger[i] = importance[i] * 0x1p30f;
  }
  const Quantiser quantiser(GetParam());
  EXPECT_EQ(quantised(quantiser, rows, importance, 512), quantised(quantiser, rows, larger, 512));
}

TEST_P(EveryFormat, HoldsWhatItsScalesReachAndNamesWhatTheyClip) {
  // f32, bf16 and MXFP4 reach far; UE4M3 scales end first, those of ROCmFP2 at 448.
  const bool is_wide = GetParam() == DType::f32 || GetParam() == DType::bf16 || GetParam() == DType::mxfp4;
  const struct {
    const char* name;
    float usual, odd;  // all values but one, around; and that one
    bool is_held;
  } kCases[] = {
      {"weights", 0.02f, 0.1f, true},
      {"normal rows of a hundred", 100, 300, true},
      {"an outlier that is looked at", 0.02f, 400, true},
      {"blocks far apart", 1e-3f, 330, true},
      {"an outlier of 1e11", 0.02f, 1e11f, is_wide},
      {"a negative one", 0.02f, -1e11f, is_wide},
      {"beyond every search", 0.02f, 3e38f, GetParam() == DType::f32 || GetParam() == DType::bf16},
      {"infinite", 0.02f, std::numeric_limits<float>::infinity(), false},
      {"no number", 0.02f, std::nanf(""), false},
  };
  const Quantiser quantiser(GetParam());
  std::vector<float> importance(512);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = 0.01f + std::fabs(random_normal(12, i));
  for (const auto& c : kCases) {
    for (const std::vector<float>& weights : {std::vector<float>(), importance}) {
      std::vector<float> row(512);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = c.usual * random_normal(13, i);
      row[301] = c.odd;
      const auto bytes = quantised(quantiser, row, weights, 512);
      const auto found = first_unheld(quantiser, row, weights, bytes.data());
      if (c.is_held) {
        EXPECT_EQ(found, std::nullopt) << c.name << ", column " << *found;
      } else {
        EXPECT_EQ(found, std::optional<std::size_t>(301)) << c.name;
      }
    }
  }
}

TEST(Quantise, RefusesFormatsThatItCannotMake) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (can_quantise(info.dtype)) continue;
    try {
      const Quantiser quantiser(info.dtype);
      ADD_FAILURE() << info.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::unsupported);
      EXPECT_NE(std::string(error.what()).find(info.name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep
