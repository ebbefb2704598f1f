// The few operations that every back end has and rounds the same way. All of numerics/ is written in them.
//
// IEEE + - * / and the two functions below are correctly rounded on x86, CUDA and HIP under the project's flags (no
// contraction, no fast-math, precise division and square root, subnormals kept). Everything else, libm and device
// libraries included, differs somewhere in a last bit and must not be used by code whose bytes count.
#pragma once

#include <cstdint>

#include "numerics/order.h"

namespace lockstep {

LOCKSTEP_HOST_DEVICE constexpr std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
LOCKSTEP_HOST_DEVICE constexpr std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
LOCKSTEP_HOST_DEVICE constexpr float f32_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
LOCKSTEP_HOST_DEVICE constexpr double f64_of(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }

/// a * b + c, rounded once.
LOCKSTEP_HOST_DEVICE inline float fma_f32(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}
LOCKSTEP_HOST_DEVICE inline double fma_f64(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// Square root, rounded once.
LOCKSTEP_HOST_DEVICE inline float sqrt_f32(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// 2^exponent, exponent in [-126, 127].
LOCKSTEP_HOST_DEVICE constexpr float power_of_two(int exponent) {
  return f32_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The one NaN that is written on purpose. Arithmetic makes others: x86 keeps a payload, NVIDIA does not, so bytes are
/// never made from a NaN that came out of an operation.
inline constexpr std::uint32_t kQuietNaN = 0x7fc00000;
inline constexpr std::uint32_t kInfinity = 0x7f800000;

/// The bits of |x|. As integers they are ordered as the magnitudes are, with NaN above infinity; so a maximum over them
/// has no order, needs no care about NaN, and tells whether a block is finite.
LOCKSTEP_HOST_DEVICE constexpr std::uint32_t magnitude_bits(float x) { return bits_of(x) & 0x7fffffffu; }

}  // namespace lockstep
