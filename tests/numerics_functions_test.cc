// exp, log, sin and the others at their special points, a sample of their error, and the rotary frequencies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "numerics/functions.h"
#include "numerics/rope.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Functions, special_points_have_their_defined_bits) {
  const struct {
    const char* name;
    float ours, expected;
  } kCases[] = {
      {"exp(0)", exp_f32(0.0f), 1.0f},
      {"exp(-0)", exp_f32(-0.0f), 1.0f},
      {"exp(1)", exp_f32(1.0f), 0x1.5bf0a8p+1f},
      {"exp of a subnormal", exp_f32(0x1p-149f), 1.0f},
      {"exp just above the cut", exp_f32(kExpLowest), static_cast<float>(std::exp(static_cast<double>(kExpLowest)))},
      {"exp just below the cut", exp_f32(std::nextafter(kExpLowest, -kInf)), 0.0f},
      {"exp of a mask", exp_f32(-1e30f), 0.0f},
      {"exp(-largest)", exp_f32(-0x1.fffffep127f), 0.0f},
      {"exp(-infinity)", exp_f32(-kInf), 0.0f},
      {"exp just above the upper cut", exp_f32(std::nextafter(kExpHighest, kInf)), kInf},
      {"exp(largest)", exp_f32(0x1.fffffep127f), kInf},
      {"exp(infinity)", exp_f32(kInf), kInf},
      {"log(1)", log_f32(1.0f), 0.0f},
      {"log(0)", log_f32(0.0f), -kInf},
      {"log(-0)", log_f32(-0.0f), -kInf},
      {"log(infinity)", log_f32(kInf), kInf},
      {"log of the smallest subnormal", log_f32(0x1p-149f), -0x1.9d1dap6f},
      {"sigmoid(0)", sigmoid_f32(0.0f), 0.5f},
      {"sigmoid(-infinity)", sigmoid_f32(-kInf), 0.0f},
      {"sigmoid(infinity)", sigmoid_f32(kInf), 1.0f},
      {"sigmoid(-1e30)", sigmoid_f32(-1e30f), 0.0f},
      {"silu(0)", silu_f32(0.0f), 0.0f},
      {"silu(-0)", silu_f32(-0.0f), -0.0f},
      {"silu(-1e30)", silu_f32(-1e30f), -0.0f},
      {"silu(-infinity)", silu_f32(-kInf), -0.0f},
      {"silu(100)", silu_f32(100.0f), 100.0f},
      {"silu(infinity)", silu_f32(kInf), kInf},
      {"softplus(0) is ln 2", softplus_f32(0.0f), 0x1.62e43p-1f},
      {"softplus(20)", softplus_f32(20.0f), 20.0f},
      {"softplus(-infinity)", softplus_f32(-kInf), 0.0f},
      {"softplus(-1e30)", softplus_f32(-1e30f), 0.0f},
      {"softplus(infinity)", softplus_f32(kInf), kInf},
      {"softplus(largest)", softplus_f32(0x1.fffffep127f), 0x1.fffffep127f},
      {"sqrt(softplus(-infinity))", sqrt_softplus_f32(-kInf), 0.0f},
      {"sin(0)", sin_cos(0.0f).sin, 0.0f},
      {"cos(0)", sin_cos(0.0f).cos, 1.0f},
  };
  for (const auto& c : kCases) EXPECT_EQ(bits_of(c.ours), bits_of(c.expected)) << c.name << " = " << c.ours;
}

TEST(Functions, nan_stays_nan) {
  EXPECT_TRUE(std::isnan(exp_f32(kNan)) && std::isnan(log_f32(kNan)) && std::isnan(sigmoid_f32(kNan)));
  EXPECT_TRUE(std::isnan(silu_f32(kNan)) && std::isnan(softplus_f32(kNan)) && std::isnan(log_f32(-1.0f)));
  EXPECT_TRUE(std::isnan(sin_cos(kNan).sin) && std::isnan(sin_cos(kInf).cos));
}

TEST(Functions, softplus_is_its_argument_from_20_on) {
  for (float z = 20; z < 1e30f; z *= 1.0001f) ASSERT_EQ(softplus_f32(z), z);
}

// Multiples of pi/2 that an f32 comes nearest to, where a careless reduction has no digits left. Found by trying all
// f32 below 2^20; expected values by 60-digit arithmetic.
TEST(Functions, sin_and_cos_keep_every_digit_near_multiples_of_half_pi) {
  const struct {
    float angle, sin, cos;
  } kCases[] = {
      {0x1.f9cbe2p+7f, 0x1p+0f, -0x1.1fa3bcp-28f}, {0x1.f9cbe2p+8f, -0x1.1fa3bcp-27f, -0x1p+0f},
      {0x1.2d97c8p+2f, -0x1p+0f, 0x1.99bc5cp-27f}, {0x1.9a48dep+15f, 0x1p+0f, -0x1.16ae2ap-26f},
      {0x1.f9cbe2p+9f, 0x1.1fa3bcp-26f, 0x1p+0f},  {0x1.2d97c8p+3f, -0x1.99bc5cp-26f, -0x1p+0f},
      {0x1p+20f, 0x1.526cccp-2f, 0x1.e33adap-1f},  {0x1.921fb6p+1f, -0x1.777a5cp-24f, -0x1p+0f},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(bits_of(sin_cos(c.angle).sin), bits_of(c.sin)) << c.angle;
    EXPECT_EQ(bits_of(sin_cos(c.angle).cos), bits_of(c.cos)) << c.angle;
    EXPECT_EQ(bits_of(sin_cos(-c.angle).sin), bits_of(-c.sin)) << c.angle;
    EXPECT_EQ(bits_of(sin_cos(-c.angle).cos), bits_of(c.cos)) << c.angle;
  }
}

// The whole of this is tests/numerics_exhaustive_test.cc; here every 997th f32.
TEST(Functions, sampled_error_is_within_the_promise) {
  const struct {
    const char* name;
    float (*ours)(float);
    double (*truth)(double);
    float low, high;  // of one sign, low nearer to 0
    double max_ulp;
  } kCases[] = {
      {"exp", exp_f32, std::exp, 0x1p-30f, kExpHighest, 1.0},
      {"exp, negative", exp_f32, std::exp, -0x1p-30f, kExpLowest, 1.0},
      {"log", log_f32, std::log, 0x1p-149f, 0x1.fffffep127f, 0.501},
      {"silu, negative", silu_f32, [](double z) { return z / (1 + std::exp(-z)); }, -0x1p-30f, -87.3f, 2.0},
      {"sigmoid", sigmoid_f32, [](double z) { return 1 / (1 + std::exp(-z)); }, 0x1p-30f, 40.0f, 2.0},
      {"sigmoid, negative", sigmoid_f32, [](double z) { return 1 / (1 + std::exp(-z)); }, -0x1p-30f, -87.3f, 2.0},
      {"softplus", softplus_f32, [](double z) { return z + std::log1p(std::exp(-z)); }, 0x1p-30f, 40.0f, 0.501},
      {"softplus, negative", softplus_f32, [](double z) { return std::log1p(std::exp(z)); }, -0x1p-30f, -87.3f, 0.501},
      {"sin", [](float x) { return sin_cos(x).sin; }, std::sin, 0x1p-40f, 1048576.0f, 0.501},
      {"cos", [](float x) { return sin_cos(x).cos; }, std::cos, 0x1p-40f, 1048576.0f, 0.501},
  };
  for (const auto& c : kCases) {
    double worst = 0;
    for (std::uint32_t bits = bits_of(c.low); bits <= bits_of(c.high); bits += 997) {
      const double truth = c.truth(f32_of(bits));
      const int exponent = truth == 0 ? -126 : std::max(std::ilogb(truth), -126);
      worst = std::fmax(worst, std::fabs(c.ours(f32_of(bits)) - truth) / std::ldexp(1.0, exponent - 23));
    }
    EXPECT_LE(worst, c.max_ulp) << c.name;
  }
}

// Correctly rounded f32 of the frequencies, by 50-digit arithmetic.
constexpr std::uint32_t kBase10000[32] = {
    0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d424, 0x3e361887, 0x3e088d77,
    0x3dcccccd, 0x3d99940e, 0x3d6655c3, 0x3d2cba15, 0x3d0186e2, 0x3cc24350, 0x3c91ad39, 0x3c5a7bf1,
    0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e37, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
    0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1726, 0x39a5cb5f, 0x3978a814, 0x393a7753, 0x390bd472,
};
constexpr std::uint32_t kBase160000Yarn[32] = {
    0x3f800000, 0x3f300a3a, 0x3ef21c1f, 0x3ea67d01, 0x3e64f92e, 0x3e1d7475, 0x3dd88cb5, 0x3d94e963,
    0x3d4ccccd, 0x3d0cd4fb, 0x3cc1b019, 0x3c8530ce, 0x3c372dbf, 0x3bfbed88, 0x3bad3d5d, 0x3b6e4237,
    0x3b147ae1, 0x3ab714e0, 0x3a5ebdb6, 0x3a0530ce, 0x399bb3af, 0x39305979, 0x38be904d, 0x383e9b5f,
    0x37a3d70a, 0x36b443d1, 0x3677eba5, 0x362a7be9, 0x35ea77fe, 0x35a13bdc, 0x355dbf30, 0x35187c4c,
};

TEST(Rope, frequencies_of_the_model_are_correctly_rounded) {
  const std::vector<float> base = rope_frequencies(10000, 64, std::nullopt);
  const YarnScaling yarn{.factor = 16, .original_length = 65536};
  const std::vector<float> compressed = rope_frequencies(160000, 64, yarn);
  ASSERT_EQ(base.size(), 32u);
  ASSERT_EQ(compressed.size(), 32u);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(bits_of(base[i]), kBase10000[i]) << i;
    EXPECT_EQ(bits_of(compressed[i]), kBase160000Yarn[i]) << i;
  }
}

TEST(Rope, arguments_that_make_no_sense_are_refused) {
  EXPECT_THROW(rope_frequencies(10000, 63, std::nullopt), Error);
  EXPECT_THROW(rope_frequencies(10000, 0, std::nullopt), Error);
  EXPECT_THROW(rope_frequencies(1, 64, std::nullopt), Error);
  EXPECT_THROW(rope_frequencies(std::nan(""), 64, std::nullopt), Error);
  EXPECT_THROW(rope_frequencies(10000, 64, YarnScaling{.factor = 0, .original_length = 65536}), Error);
  EXPECT_THROW(rope_frequencies(10000, 64, YarnScaling{.factor = 16, .original_length = -1}), Error);
}

TEST(Rope, a_single_pair_and_a_ramp_without_width_work) {
  EXPECT_EQ(rope_frequencies(10000, 2, std::nullopt), std::vector<float>{1.0f});
  const YarnScaling narrow{.factor = 4, .original_length = 4};
  for (const float f : rope_frequencies(10000, 4, narrow)) EXPECT_TRUE(f > 0 && f <= 1) << f;
}

TEST(Rope, the_angle_is_one_f32_product) {
  const float frequency = f32_of(kBase10000[1]);
  const SinCos expected = sin_cos(1048575.0f * frequency);
  EXPECT_EQ(bits_of(rope_sin_cos(1048575, frequency).sin), bits_of(expected.sin));
  EXPECT_EQ(bits_of(rope_sin_cos(1048575, frequency).cos), bits_of(expected.cos));
}

}  // namespace
}  // namespace lockstep
