// The roundings: every code of every narrow format, every tie between codes, scale exponents, int8 blocks, official
// rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "numerics/round.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What a code of a small IEEE-like format means, by the format's definition and not by our trick.
float by_definition(int code, int exponent_bits, int mantissa_bits, int bias) {
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                     : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return static_cast<float>(code >> (exponent_bits + mantissa_bits) & 1 ? -value : value);
}

/// Checks nearest-even between every two neighbouring codes 0..largest, for both signs.
template <class Widen, class Narrow>
void expect_nearest_even(int largest, int sign, Widen widen, Narrow narrow) {
  for (int code = 0; code < largest; ++code) {
    const float low = widen(code), high = widen(code + 1);
    const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);  // exact: f32 is far finer
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(narrow(low), code);
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), code) << middle;
    ASSERT_EQ(narrow(middle), even) << middle;
    ASSERT_EQ(narrow(std::nextafter(middle, kInf)), code + 1) << middle;
    ASSERT_EQ(narrow(-low), code | sign);
    ASSERT_EQ(narrow(std::nextafter(-middle, 0.0f)), code | sign) << -middle;
    ASSERT_EQ(narrow(-middle), even | sign) << -middle;
    ASSERT_EQ(narrow(std::nextafter(-middle, -kInf)), (code + 1) | sign) << -middle;
  }
  ASSERT_EQ(narrow(widen(largest)), largest);
  ASSERT_EQ(narrow(-widen(largest)), largest | sign);
}

TEST(F16, every_code_widens_to_its_definition_and_comes_back) {
  for (int code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float x = f16_to_f32(half);
    if ((code & 0x7fff) > 0x7c00) {
      ASSERT_EQ(bits_of(x), (code & 0x8000u) << 16 | 0x7fc00000u | (code & 0x3ffu) << 13);
      ASSERT_EQ(f32_to_f16(x), code | 0x200);
    } else {
      const float infinity = code & 0x8000 ? -kInf : kInf;
      const float expected = (code & 0x7fff) == 0x7c00 ? infinity : by_definition(code, 5, 10, 15);
      ASSERT_EQ(bits_of(x), bits_of(expected)) << code;
      ASSERT_EQ(f32_to_f16(x), code);
    }
  }
}

TEST(F16, narrowing_is_to_nearest_even_between_all_neighbours) {
  expect_nearest_even(
      0x7bff, 0x8000, [](int code) { return f16_to_f32(static_cast<std::uint16_t>(code)); },
      [](float x) { return int{f32_to_f16(x)}; });
}

TEST(F16, narrowing_at_the_ends_of_the_range) {
  constexpr struct {
    const char* name;
    float x;
    std::uint16_t half;
  } kCases[] = {
      {"largest finite", 65504.0f, 0x7bff},
      {"just below the tie with infinity", 65519.996f, 0x7bff},
      {"the tie with infinity", 65520.0f, 0x7c00},
      {"negative overflow", -1e30f, 0xfc00},
      {"infinity", kInf, 0x7c00},
      {"half the smallest subnormal is a tie to zero", 0x1p-25f, 0x0000},
      {"just above it", 0x1.000002p-25f, 0x0001},
      {"an f32 subnormal", 0x1p-149f, 0x0000},
      {"minus zero", -0.0f, 0x8000},
  };
  for (const auto& c : kCases) EXPECT_EQ(f32_to_f16(c.x), c.half) << c.name;
}

TEST(Bf16, every_code_is_the_upper_half_of_an_f32_and_comes_back) {
  for (int code = 0; code < 65536; ++code) {
    const float x = bf16_to_f32(static_cast<std::uint16_t>(code));
    ASSERT_EQ(bits_of(x), static_cast<std::uint32_t>(code) << 16);
    ASSERT_EQ(f32_to_bf16(x), (code & 0x7fff) > 0x7f80 ? code | 0x40 : code);
  }
}

TEST(Bf16, narrowing_is_to_nearest_even_between_all_neighbours) {
  expect_nearest_even(
      0x7f7f, 0x8000, [](int code) { return bf16_to_f32(static_cast<std::uint16_t>(code)); },
      [](float x) { return int{f32_to_bf16(x)}; });
  EXPECT_EQ(f32_to_bf16(0x1.fffffep127f), 0x7f80);
  EXPECT_EQ(f32_to_bf16(f32_of(0x7f800001)), 0x7fc0);
  EXPECT_EQ(f32_to_bf16(f32_of(0xffffffff)), 0xffff);
}

TEST(E4m3, every_code_widens_to_its_definition_and_comes_back) {
  for (int code = 0; code < 256; ++code) {
    const float x = e4m3_to_f32(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      ASSERT_EQ(bits_of(x), kQuietNaN);
      ASSERT_EQ(f32_to_e4m3(x), 0x7f);
    } else {
      ASSERT_EQ(bits_of(x), bits_of(by_definition(code, 4, 3, 7))) << code;
      ASSERT_EQ(f32_to_e4m3(x), code);
    }
  }
}

TEST(E4m3, narrowing_is_to_nearest_even_and_clamped) {
  expect_nearest_even(
      0x7e, 0x80, [](int code) { return e4m3_to_f32(static_cast<std::uint8_t>(code)); },
      [](float x) { return int{f32_to_e4m3(x)}; });
  constexpr struct {
    const char* name;
    float x;
    std::uint8_t code;
  } kCases[] = {
      {"above the largest", 449.0f, 0x7e},
      {"far above", 1e30f, 0x7e},
      {"infinity", kInf, 0x7e},
      {"far below", -1e30f, 0xfe},
      {"minus infinity", -kInf, 0xfe},
      {"NaN", kNan, 0x7f},
      {"NaN of the other sign", -kNan, 0x7f},
      {"minus zero keeps its sign", -0.0f, 0x80},
      {"a small negative too", -0x1p-20f, 0x80},
      {"an f32 subnormal", 0x1p-149f, 0x00},
  };
  for (const auto& c : kCases) EXPECT_EQ(f32_to_e4m3(c.x), c.code) << c.name;
}

TEST(E2m1, every_code_widens_to_its_value_and_comes_back) {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float expected = code < 8 ? kValues[code] : -kValues[code - 8];
    EXPECT_EQ(bits_of(e2m1_to_f32(static_cast<std::uint8_t>(code))), bits_of(expected)) << code;
    EXPECT_EQ(f32_to_e2m1(expected), code);
  }
}

TEST(E2m1, narrowing_is_to_nearest_even_and_clamped) {
  expect_nearest_even(
      7, 8, [](int code) { return e2m1_to_f32(static_cast<std::uint8_t>(code)); },
      [](float x) { return int{f32_to_e2m1(x)}; });
  // The ties as the model's specification lists them, by value.
  constexpr struct {
    float x, value;
  } kTies[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}};
  for (const auto& tie : kTies) EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(tie.x)), tie.value) << tie.x;
  EXPECT_EQ(f32_to_e2m1(1e30f), 7);
  EXPECT_EQ(f32_to_e2m1(-kInf), 15);
  EXPECT_EQ(f32_to_e2m1(-0.1f), 8);
  EXPECT_EQ(f32_to_e2m1(-kNan), 7);
}

TEST(ScaleBytes, every_code_has_the_value_of_its_definition) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const float e8m0 = code == 255 ? f32_of(kQuietNaN) : static_cast<float>(std::ldexp(1.0, code - 127));
    EXPECT_EQ(bits_of(e8m0_to_f32(byte)), bits_of(e8m0)) << code;
    EXPECT_EQ(bits_of(e8m0_half_to_f32(byte)), bits_of(static_cast<float>(std::ldexp(1.0, code - 128)))) << code;
    const float ue4m3 = code > 0x7e ? 0.0f : by_definition(code, 4, 3, 7) / 2;
    EXPECT_EQ(bits_of(ue4m3_half_to_f32(byte)), bits_of(ue4m3)) << code;
    EXPECT_EQ(exponent_to_e8m0(e8m0_to_exponent(byte)), byte);
  }
  EXPECT_EQ(exponent_to_e8m0(kBadExponent), 255);
}

TEST(BlockExponent, is_the_exact_smallest_power_of_two_for_every_mantissa) {
  for (const std::uint32_t exponent : {114u, 127u, 200u, 254u}) {  // 114: 2^-13, the first octave above 1e-4
    for (std::uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
      const std::uint32_t bits = exponent << 23 | mantissa;
      const double amax = f32_of(bits);
      const double fp8 = std::ldexp(1.0, fp8_exponent(bits)), fp4 = std::ldexp(1.0, fp4_exponent(bits));
      ASSERT_TRUE(fp8 * 448 >= amax && fp8 * 224 < amax) << amax;
      ASSERT_TRUE(fp4 * 6 >= amax && fp4 * 3 < amax) << amax;
    }
  }
}

TEST(BlockExponent, floor_and_bad_blocks) {
  EXPECT_EQ(fp8_exponent(0), -22);
  EXPECT_EQ(fp8_exponent(bits_of(1e-4f)), -22);
  EXPECT_EQ(fp8_exponent(bits_of(448.0f)), 0);
  EXPECT_EQ(fp8_exponent(bits_of(448.00003f)), 1);
  EXPECT_EQ(fp8_exponent(bits_of(0x1.fffffep127f)), 120);
  EXPECT_EQ(fp4_exponent(0), -126);
  EXPECT_EQ(fp4_exponent(bits_of(6.0f)), 0);
  EXPECT_EQ(fp4_exponent(bits_of(0x1.fffffep127f)), 126);
  for (const std::uint32_t bits : {kInfinity, kInfinity + 1, 0x7fffffffu}) {
    EXPECT_EQ(fp8_exponent(bits), kBadExponent);
    EXPECT_EQ(fp4_exponent(bits), kBadExponent);
  }
  EXPECT_EQ(fp8_code(1.0f, kBadExponent), kE4m3NaN);
  EXPECT_EQ(bits_of(fp8_value(0x38, kBadExponent)), kQuietNaN);
  EXPECT_EQ(bits_of(fp4_value(fp4_code(1.0f, kBadExponent), kBadExponent)), kQuietNaN);
}

TEST(BlockExponent, a_zero_keeps_its_sign_through_code_and_value) {
  EXPECT_EQ(bits_of(fp8_value(fp8_code(-0.0f, 3), 3)), bits_of(-0.0f));
  EXPECT_EQ(bits_of(fp4_value(fp4_code(-0.0f, 3), 3)), bits_of(-0.0f));
  EXPECT_EQ(bits_of(fp8_value(fp8_code(0.0f, 3), 3)), 0u);
}

TEST(RoundToInt, ties_go_to_even_and_the_range_is_exact) {
  for (int quarter = -2000000; quarter <= 2000000; ++quarter) {
    const float x = static_cast<float>(quarter) * 0.25f;
    ASSERT_EQ(round_to_int(x), static_cast<int>(std::nearbyint(x))) << x;
  }
  EXPECT_EQ(round_to_int(4194304.0f), 4194304);
  EXPECT_EQ(round_to_int(-4194304.0f), -4194304);
  EXPECT_EQ(round_to_int(-0.5f), 0);
}

TEST(Int8, special_blocks_have_their_defined_scale_and_codes) {
  const struct {
    const char* name;
    float first, second;
    std::uint32_t scale_bits;
    int code0, code1;
  } kCases[] = {
      {"zeros", 0, -0.0f, 0, 0, 0},
      {"below 2^-118 is zero", 0x1.fffffep-119f, 0, 0, 0, 0},
      {"an f32 subnormal is zero", 0x1p-149f, 0, 0, 0, 0},
      {"from 2^-118 on it is not", 0x1p-118f, -0x1p-118f, bits_of(0x1p-118f / 127), 127, -127},
      {"the largest f32", 0x1.fffffep127f, -0x1p127f, bits_of(0x1.fffffep127f / 127), 127, -64},
      {"infinity", kInf, 1, kQuietNaN, 0, 0},
      {"minus infinity second", 1, -kInf, kQuietNaN, 0, 0},
      {"NaN", 1, kNan, kQuietNaN, 0, 0},
      {"NaN beside infinity", -kNan, kInf, kQuietNaN, 0, 0},
      {"ties to even", 127, 0.5f, bits_of(1.0f), 127, 0},
      {"ties to even, up", 127, -1.5f, bits_of(1.0f), 127, -2},
  };
  for (const auto& c : kCases) {
    float x[kBlock] = {};
    std::int8_t code[kBlock];
    x[3] = c.first;
    x[31] = c.second;
    EXPECT_EQ(bits_of(round_block_int8(x, code)), c.scale_bits) << c.name;
    EXPECT_EQ(code[3], c.code0) << c.name;
    EXPECT_EQ(code[31], c.code1) << c.name;
    EXPECT_EQ(code[0], 0) << c.name;
  }
}

TEST(Int8, the_largest_value_is_always_127) {
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += 7) {
    const float amax = f32_of(bits_of(1.0f) | mantissa);
    const Int8Scale scale = int8_scale(bits_of(amax));
    ASSERT_EQ(int8_code(amax, scale.inverse), 127) << amax;
    ASSERT_EQ(int8_code(-amax, scale.inverse), -127) << amax;
  }
}

// tests/data/numerics/rows.*: rows of a small model made by the official rules in float64; the index explains the
// format.
TEST(OfficialRows, codes_exponents_and_values_are_all_equal) {
  const std::string folder = LOCKSTEP_TEST_DATA "/numerics/";
  std::ifstream bytes_file(folder + "rows.bin", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(bytes_file), {}};
  std::ifstream index(folder + "rows.txt");
  int tensors = 0, codes_compared = 0;
  for (std::string line; std::getline(index, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name, format;
    std::size_t rows = 0, width = 0, offset = 0;
    fields >> name >> format >> rows >> width >> offset;
    const bool fp8 = format == "fp8";
    const std::size_t block = fp8 ? 64 : 32, blocks = (width + block - 1) / block, count = rows * width;
    ASSERT_LE(offset + 9 * count + rows * blocks, bytes.size()) << name;
    std::vector<float> before(count), values(count);
    std::memcpy(before.data(), bytes.data() + offset, 4 * count);
    std::memcpy(values.data(), bytes.data() + offset + 4 * count, 4 * count);
    const char* codes = bytes.data() + offset + 8 * count;
    const char* exponents = codes + count;
    ++tensors;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::size_t begin = row * width + b * block, end = std::min(begin + block, (row + 1) * width);
        std::uint32_t amax = 0;
        for (std::size_t i = begin; i < end; ++i) amax = std::max(amax, magnitude_bits(before[i]));
        const int exponent = fp8 ? fp8_exponent(amax) : fp4_exponent(amax);
        ASSERT_EQ(exponent, static_cast<signed char>(exponents[row * blocks + b])) << name << " row " << row;
        for (std::size_t i = begin; i < end; ++i) {
          std::uint8_t code = fp8 ? fp8_code(before[i], exponent) : fp4_code(before[i], exponent);
          const float value = fp8 ? fp8_value(code, exponent) : fp4_value(code, exponent);
          ASSERT_EQ(bits_of(value), bits_of(values[i])) << name << " row " << row << " value " << i - row * width;
          if (code == (fp8 ? 0x80 : 8)) code = 0;  // the file has one zero
          ASSERT_EQ(code, static_cast<unsigned char>(codes[i])) << name << " row " << row;
          ++codes_compared;
        }
      }
    }
  }
  EXPECT_EQ(tensors, 14);
  EXPECT_EQ(codes_compared, 36864);
}

}  // namespace
}  // namespace lockstep
