// The error of every function of numerics/functions.h over every f32 of its range, against f64 libm.
//
// libm is only the yardstick here, and only f64: it errs by less than 1e-6 ulp of f32. Each case prints its line of the
// table in functions.h and fails if the error exceeds what that table promises. Minutes, hence the label `slow`.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "numerics/functions.h"

namespace lockstep {
namespace {

struct Case {
  const char* name;
  float (*ours)(float);
  double (*truth)(double);
  float low, high;  // both included; every f32 between them is tried
  double max_ulp;
};

double true_sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
double true_silu(double z) { return z / (1 + std::exp(-z)); }
double true_softplus(double z) { return std::fmax(z, 0) + std::log1p(std::exp(-std::fabs(z))); }
double true_sqrt_softplus(double z) { return std::sqrt(true_softplus(z)); }
float our_sin(float x) { return sin_cos(x).sin; }
float our_cos(float x) { return sin_cos(x).cos; }

const Case kCases[] = {
    {"exp", exp_f32, std::exp, kExpLowest, kExpHighest, 1.0},
    {"sigmoid", sigmoid_f32, true_sigmoid, -kExpHighest, 128.0f, 2.0},
    {"silu", silu_f32, true_silu, -kExpHighest, 128.0f, 2.0},
    {"log", log_f32, std::log, 0x1p-149f, 0x1.fffffep127f, 0.501},
    {"softplus", softplus_f32, true_softplus, -104.0f, 128.0f, 0.501},
    {"sqrt_softplus", sqrt_softplus_f32, true_sqrt_softplus, -87.3f, 128.0f, 1.0},
    {"sin", our_sin, std::sin, 0.0f, 1048576.0f, 0.501},
    {"cos", our_cos, std::cos, 0.0f, 1048576.0f, 0.501},
};

/// The spacing of f32 at a true value; of subnormals below 2^-126.
double ulp_at(double truth) {
  const int exponent = truth == 0 ? -126 : std::ilogb(truth);
  return std::ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
}

/// f32 values as integers in ascending order.
std::int64_t rank_of(float x) {
  const std::int64_t magnitude = magnitude_bits(x);
  return std::signbit(x) ? -magnitude : magnitude;
}
float value_at(std::int64_t rank) {
  return rank < 0 ? f32_of(static_cast<std::uint32_t>(-rank) | 0x80000000u) : f32_of(static_cast<std::uint32_t>(rank));
}

struct Measured {
  double max_ulp = 0;
  float worst = 0;
  std::uint64_t tried = 0, misrounded = 0;
};

Measured measure(const Case& test, std::int64_t first, std::int64_t last) {
  Measured m;
  for (std::int64_t rank = first; rank <= last; ++rank) {
    const float x = value_at(rank);
    const double truth = test.truth(x);
    const float y = test.ours(x);
    ++m.tried;
    if (y == static_cast<float>(truth)) continue;  // correctly rounded: at most half an ulp
    ++m.misrounded;
    const double error = std::fabs(y - truth) / ulp_at(truth);
    if (!(error <= m.max_ulp)) {
      m.max_ulp = error;
      m.worst = x;
    }
  }
  if (m.max_ulp < 0.5) m.max_ulp = 0.5;
  return m;
}

class Exhaustive : public testing::TestWithParam<Case> {};

TEST_P(Exhaustive, error_is_within_the_promise_for_every_f32_of_the_range) {
  const Case& test = GetParam();
  const std::int64_t first = rank_of(test.low), count = rank_of(test.high) - first + 1;
  constexpr std::int64_t kPiece = 1 << 20;
  std::atomic<std::int64_t> next{0};
  std::vector<Measured> found(std::thread::hardware_concurrency() + 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t + 1 < found.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t begin; (begin = next.fetch_add(kPiece)) < count;) {
        const std::int64_t end = begin + kPiece < count ? begin + kPiece : count;
        const Measured m = measure(test, first + begin, first + end - 1);
        found[t].tried += m.tried;
        found[t].misrounded += m.misrounded;
        if (m.max_ulp > found[t].max_ulp) found[t].max_ulp = m.max_ulp, found[t].worst = m.worst;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Measured all;
  for (const Measured& m : found) {
    all.tried += m.tried;
    all.misrounded += m.misrounded;
    if (m.max_ulp > all.max_ulp) all.max_ulp = m.max_ulp, all.worst = m.worst;
  }
  std::printf("%-14s [%a, %a] tried %llu, max %.7f ulp at %a, not correctly rounded %llu (%.3g %%)\n", test.name,
              static_cast<double>(test.low), static_cast<double>(test.high), static_cast<unsigned long long>(all.tried),
              all.max_ulp, static_cast<double>(all.worst), static_cast<unsigned long long>(all.misrounded),
              100.0 * static_cast<double>(all.misrounded) / static_cast<double>(all.tried));
  std::fflush(stdout);
  EXPECT_EQ(static_cast<std::int64_t>(all.tried), count);
  EXPECT_LE(all.max_ulp, test.max_ulp) << "at " << all.worst;
}

INSTANTIATE_TEST_SUITE_P(Functions, Exhaustive, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace lockstep
