// The rotary frequencies of a layer, made once on the host and handed to every back end.
//
// They use our own f64 exp and log, not libm's, so that a file gives the same table with every C library.
#pragma once

#include <optional>
#include <vector>

namespace lockstep {

/// YaRN: pairs that turn often within the original length keep their frequency, slow ones are divided by the factor.
struct YarnScaling {
  double factor;           // 16 in Flash
  double original_length;  // positions, 65536 in Flash
  double beta_fast = 32;   // turns within the original length from which a pair is kept
  double beta_slow = 1;    // turns below which it is divided by the whole factor
};

/// Frequency of each pair i < rotary_channels / 2, radians a position: theta^(-2i / rotary_channels), with YaRN's ramp
/// between f / factor and f if `yarn` is given. Evaluated in f64 and rounded once to f32. There is no magnitude factor.
/// Throws Error::bad_argument unless rotary_channels is even and positive, theta > 1, and every field of yarn is
/// positive. Sources: Su et al., "RoFormer", 2021; Peng et al., "YaRN", 2023; the model's published configuration.
std::vector<float> rope_frequencies(double theta, int rotary_channels, const std::optional<YarnScaling>& yarn);

}  // namespace lockstep
