// The guard of the law in numerics/: a fixed grid of arguments for each function and primitive, and a hash of the
// results.
//
// tests/numerics_guard_test.cc holds the expected hashes; bench/law/functions_gpu.cu computes the same ones on a
// device. A change of one bit of one result anywhere changes a hash. NaN results count as one NaN, since machines
// differ in which.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/functions.h"
#include "numerics/random.h"
#include "numerics/round.h"

namespace lockstep {

enum class Guarded {
  divide,
  sqrt,
  fma,
  subnormal,
  divide64,
  fma64,  // primitives of the machine that everything rests on
  f16,
  bf16,
  e4m3,
  e2m1,
  fp8_block,
  fp4_block,
  int8_block,
  exp,
  log,
  sigmoid,
  silu,
  softplus,
  sqrt_softplus,
  sin,
  cos,
  random,
};
inline constexpr int kGuardedCount = 22;
inline constexpr const char* kGuardedNames[kGuardedCount] = {
    "divide", "sqrt",     "fma",           "subnormal", "divide64",   "fma64", "f16", "bf16",
    "e4m3",   "e2m1",     "fp8_block",     "fp4_block", "int8_block", "exp",   "log", "sigmoid",
    "silu",   "softplus", "sqrt_softplus", "sin",       "cos",        "random"};
inline constexpr std::uint32_t kGuardPoints = 1u << 20;

/// Argument i of the grid over [low, high]: the first half are evenly spaced, the second half walk through all f32 bit
/// patterns in steps of 8192 plus an odd offset; there a NaN, and a value outside [least, most], becomes `low`.
LOCKSTEP_HOST_DEVICE inline float guard_argument(std::uint32_t i, float low, float high, float least, float most) {
  constexpr std::uint32_t kHalf = kGuardPoints / 2;
  if (i < kHalf) return fma_f32(static_cast<float>(i), (high - low) * (1.0f / kHalf), low);
  const float x = f32_of((i - kHalf) * 8192u + (i * 2654435761u >> 19 | 1u));
  return x >= least && x <= most ? x : low;
}

/// A f64 result in 32 bits; any NaN is one NaN.
LOCKSTEP_HOST_DEVICE inline std::uint32_t fold_f64(double x) {
  const std::uint64_t bits = bits_of(x);
  if ((bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u) return kQuietNaN;
  return static_cast<std::uint32_t>(bits ^ bits >> 32);
}

/// Result i of one function over its grid, as bits.
LOCKSTEP_HOST_DEVICE inline std::uint32_t guard_result(Guarded function, std::uint32_t i) {
  const float infinity = f32_of(kInfinity);
  const Random4 words = random_words(0, i, 1);
  const float a = f32_of(words.word[0]);  // any pattern: subnormals, infinities and NaNs among them
  const float b = f32_of(words.word[1]);
  const float c = f32_of(words.word[2]);
  const float part = a * fma_f32(random_uniform(0, i, 2), 2.0f, -1.0f);
  const double wide = f64_of(random_u64(0, i, 1));
  const float any = guard_argument(i, -40.0f, 40.0f, -infinity, infinity);
  const float angle = guard_argument(i, 0.0f, 1048576.0f, -1048576.0f, 1048576.0f);
  float y = 0;
  switch (function) {
    case Guarded::divide:
      y = a / b;
      break;
    case Guarded::sqrt:
      y = sqrt_f32(a);
      break;
    case Guarded::fma:
      y = fma_f32(a, b, c);
      break;
    case Guarded::subnormal:
      y = (f32_of(words.word[0] >> 7) + f32_of(words.word[1] >> 8)) * 0.75f;
      break;
    case Guarded::divide64:
      return fold_f64(wide / f64_of(random_u64(0, i, 2)));
    case Guarded::fma64:
      return fold_f64(fma_f64(wide, f64_of(random_u64(0, i, 2)), f64_of(random_u64(0, i, 3))));
    case Guarded::f16: {
      // All codes widened and moved a little, and any f32 narrowed.
      const float moved = f16_to_f32(static_cast<std::uint16_t>(i)) * 0x1.002p+0f;
      const std::uint32_t narrowed = magnitude_bits(any) > kInfinity ? 0u : f32_to_f16(any);
      return narrowed << 16 | (magnitude_bits(moved) > kInfinity ? 0u : f32_to_f16(moved));
    }
    case Guarded::bf16:
      return f32_to_bf16(any);
    case Guarded::e4m3:
      return f32_to_e4m3(any);
    case Guarded::e2m1:
      return f32_to_e2m1(any);
    // A block of which `a` is the largest value and `part` another one.
    case Guarded::fp8_block: {
      const int exponent = fp8_exponent(magnitude_bits(a));
      y = fp8_value(fp8_code(part, exponent), exponent);
      break;
    }
    case Guarded::fp4_block: {
      const int exponent = fp4_exponent(magnitude_bits(a));
      y = fp4_value(fp4_code(part, exponent), exponent);
      break;
    }
    case Guarded::int8_block: {
      const Int8Scale scale = int8_scale(magnitude_bits(a));
      return magnitude_bits(scale.scale) ^ static_cast<std::uint32_t>(int8_code(part, scale.inverse)) << 24;
    }
    case Guarded::exp:
      y = exp_f32(any);
      break;
    case Guarded::log:
      y = log_f32(guard_argument(i, 0.0f, 4.0f, 0.0f, infinity));
      break;
    case Guarded::sigmoid:
      y = sigmoid_f32(any);
      break;
    case Guarded::silu:
      y = silu_f32(any);
      break;
    case Guarded::softplus:
      y = softplus_f32(any);
      break;
    case Guarded::sqrt_softplus:
      y = sqrt_softplus_f32(any);
      break;
    case Guarded::sin:
      y = sin_cos(angle).sin;
      break;
    case Guarded::cos:
      y = sin_cos(angle).cos;
      break;
    case Guarded::random:
      return words.word[0] ^ words.word[1] ^ words.word[2] ^ words.word[3];
  }
  return magnitude_bits(y) > kInfinity ? kQuietNaN : bits_of(y);
}

/// 64-bit multiply and shift, one result at a time; each step is invertible, so a single differing bit is never lost.
inline std::uint64_t guard_hash(const std::uint32_t* results, std::size_t count) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < count; ++i) {
    hash = (hash ^ results[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace lockstep
