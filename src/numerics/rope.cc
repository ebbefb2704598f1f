#include "numerics/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "numerics/functions.h"

namespace lockstep {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

bool is_positive(double x) { return std::isfinite(x) && x > 0; }

/// The (fractional) pair that turns `turns` times within the original length.
double pair_of(double turns, double theta, int rotary_channels, const YarnScaling& yarn) {
  return rotary_channels * log_f64(yarn.original_length / (turns * kTwoPi)) / (2.0 * log_f64(theta));
}

}  // namespace

std::vector<float> rope_frequencies(double theta, int rotary_channels, const std::optional<YarnScaling>& yarn) {
  if (rotary_channels <= 0 || rotary_channels % 2 != 0)
    throw Error(Error::Kind::bad_argument,
                "rotary channels: " + std::to_string(rotary_channels) + ", expected a positive even number");
  if (!std::isfinite(theta) || theta <= 1)
    throw Error(Error::Kind::bad_argument, "rotary base: " + std::to_string(theta) + ", expected a number above 1");
  if (yarn && !(is_positive(yarn->factor) && is_positive(yarn->original_length) && is_positive(yarn->beta_fast) &&
                is_positive(yarn->beta_slow)))
    throw Error(Error::Kind::bad_argument,
                "YaRN scaling: factor, original length and betas must all be positive numbers");

  double low = 0;
  double high = 0;
  if (yarn) {
    low = std::max(std::floor(pair_of(yarn->beta_fast, theta, rotary_channels, *yarn)), 0.0);
    high = std::min(std::ceil(pair_of(yarn->beta_slow, theta, rotary_channels, *yarn)), rotary_channels - 1.0);
    if (low == high) high += 0.001;  // as the published code does: a step instead of a ramp
  }

  const double log_theta = log_f64(theta);
  std::vector<float> frequencies(static_cast<std::size_t>(rotary_channels / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double pair = static_cast<double>(i);
    double frequency = exp_f64(-(2.0 * pair / rotary_channels) * log_theta);
    if (yarn) {
      const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
      frequency = frequency / yarn->factor * ramp + frequency * (1.0 - ramp);
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

}  // namespace lockstep
