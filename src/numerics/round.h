// Every rounding of the engine: narrow float formats, block scales, int8 activations.
//
// Header-only, host and device, no state. Widening is exact. Narrowing is to nearest, ties to the even code. All of it
// is integer arithmetic and single IEEE operations in a fixed order, so that scalar, vector and GPU code written from
// these functions gives the same bytes. Formats: docs/formats.md; the fp8 and fp4 blocks: docs/architecture.md.
#pragma once

#include <cstdint>

#include "numerics/primitives.h"

namespace lockstep {

/// x to the nearest integer, ties to even, |x| <= 2^22. Adding 1.5 * 2^23 leaves the integer in the low mantissa bits;
/// unlike a conversion instruction it means the same on every machine. NaN and larger |x| give garbage: exclude them
/// first.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr std::uint32_t kRoundMagicBits = 0x4b400000;
LOCKSTEP_HOST_DEVICE constexpr int round_to_int(float x) {
  return static_cast<int>(bits_of(x + kRoundMagic) - kRoundMagicBits);
}

// ---- f16 and bf16 ---------------------------------------------------------------------------------------------------

/// Exact. Subnormals are kept. A NaN keeps its payload and becomes quiet, as the x86 instruction has it.
LOCKSTEP_HOST_DEVICE constexpr float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0;
    return f32_of(sign | kInfinity | (magnitude & 0x3ffu) << 13 | quiet);
  }
  // As f32 bits the number has a bias of 127 instead of 15; the product puts 2^112 back and normalises subnormals.
  return f32_of(sign | bits_of(f32_of(magnitude << 13) * 0x1p112f));
}

/// Nearest, ties to even; from 65520 on infinity; subnormals kept. A NaN keeps the upper payload and becomes quiet.
LOCKSTEP_HOST_DEVICE constexpr std::uint16_t f32_to_f16(float x) {
  const std::uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const std::uint32_t magnitude = magnitude_bits(x);
  std::uint32_t half = 0;
  if (magnitude > kInfinity) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    half = bits_of(f32_of(magnitude) + 0.5f) - bits_of(0.5f);  // one ulp of 0.5 is one step of an f16 subnormal
  } else {
    half = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// Exact.
LOCKSTEP_HOST_DEVICE constexpr float bf16_to_f32(std::uint16_t x) {
  return f32_of(static_cast<std::uint32_t>(x) << 16);
}

/// Nearest, ties to even. A NaN keeps its upper half and becomes quiet.
LOCKSTEP_HOST_DEVICE constexpr std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  if (magnitude_bits(x) > kInfinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// ---- scale bytes ----------------------------------------------------------------------------------------------------

/// 2^(code - 127); 0 is 2^-127, a subnormal; 255 is NaN.
LOCKSTEP_HOST_DEVICE constexpr float e8m0_to_f32(std::uint8_t code) {
  return f32_of(code == 0 ? 0x00400000u : code == 255 ? kQuietNaN : static_cast<std::uint32_t>(code) << 23);
}

/// 2^(code - 128), the scale of MXFP4 over doubled levels; 0 and 1 are subnormals.
LOCKSTEP_HOST_DEVICE constexpr float e8m0_half_to_f32(std::uint8_t code) {
  return f32_of(code < 2 ? 0x00200000u << code : static_cast<std::uint32_t>(code - 1) << 23);
}

/// Unsigned E4M3 at half its value, [2^-10, 224]; 0x7f and above are invalid and give 0. NVFP4 ignores bit 7: mask it
/// before.
LOCKSTEP_HOST_DEVICE constexpr float ue4m3_half_to_f32(std::uint8_t code) {
  return code >= 0x7f ? 0.0f : f32_of(static_cast<std::uint32_t>(code) << 20) * 0x1p119f;
}

// ---- e4m3fn and e2m1 ------------------------------------------------------------------------------------------------

inline constexpr std::uint8_t kE4m3NaN = 0x7f;

/// Sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinities; 0x7f and 0xff are NaN. Exact.
LOCKSTEP_HOST_DEVICE constexpr float e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return f32_of(kQuietNaN);
  return f32_of((code & 0x80u) << 24 | bits_of(f32_of(magnitude << 20) * 0x1p120f));
}

/// Nearest, ties to even, clamped to +-448. -0 and what rounds to it is 0x80. NaN is 0x7f whatever its sign, because
/// machines differ in the sign of the NaNs they make.
LOCKSTEP_HOST_DEVICE constexpr std::uint8_t f32_to_e4m3(float x) {
  std::uint32_t magnitude = magnitude_bits(x);
  if (magnitude > kInfinity) return kE4m3NaN;
  if (magnitude > bits_of(448.0f)) magnitude = bits_of(448.0f);
  const std::uint32_t code = magnitude < bits_of(0x1p-6f)
                                 ? bits_of(f32_of(magnitude) + 0x1p14f) - bits_of(0x1p14f)  // steps of 2^-9
                                 : ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  return static_cast<std::uint8_t>((bits_of(x) >> 24 & 0x80u) | code);
}

/// Codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign; upper bits are ignored. Exact.
LOCKSTEP_HOST_DEVICE constexpr float e2m1_to_f32(std::uint8_t code) {
  return f32_of((code & 8u) << 28 | bits_of(f32_of((code & 7u) << 22) * 0x1p126f));
}

/// Nearest, ties to the even code, clamped to +-6. -0 and what rounds to it is 8. There is no NaN code: NaN is 7.
LOCKSTEP_HOST_DEVICE constexpr std::uint8_t f32_to_e2m1(float x) {
  std::uint32_t magnitude = magnitude_bits(x);
  if (magnitude > kInfinity) return 7;
  if (magnitude > bits_of(6.0f)) magnitude = bits_of(6.0f);
  const std::uint32_t code = magnitude < bits_of(1.0f)
                                 ? bits_of(f32_of(magnitude) + 0x1p22f) - bits_of(0x1p22f)  // steps of one half
                                 : ((magnitude + 0x1fffffu + (magnitude >> 22 & 1u)) >> 22) - (126u << 1);
  return static_cast<std::uint8_t>((bits_of(x) >> 28 & 8u) | code);
}

// ---- fp8 and fp4 blocks with a power-of-two scale -------------------------------------------------------------------
//
// A block's largest magnitude goes in as bits (the maximum of magnitude_bits over it) and a scale exponent comes out. A
// block that holds an infinity or a NaN has exponent kBadExponent (E8M0 byte 255): all its values are NaN afterwards.
// Dividing by the scale is multiplying by 2^-exponent: the same number, rounded once.

inline constexpr int kBadExponent = 128;

/// Exponent of the smallest power of two >= x, for normal x > 0.
LOCKSTEP_HOST_DEVICE constexpr int ceil_log2(float x) { return static_cast<int>((bits_of(x) + 0x7fffffu) >> 23) - 127; }

/// Scale exponent of an fp8 block: smallest power of two >= max(amax, 1e-4) / 448. In [-22, 120] for finite blocks.
LOCKSTEP_HOST_DEVICE constexpr int fp8_exponent(std::uint32_t amax_bits) {
  if (amax_bits >= kInfinity) return kBadExponent;
  const std::uint32_t floor_bits = bits_of(1e-4f);
  return ceil_log2(f32_of(amax_bits > floor_bits ? amax_bits : floor_bits) * (1.0f / 448.0f));
}
/// e4m3 code of x / 2^exponent.
LOCKSTEP_HOST_DEVICE constexpr std::uint8_t fp8_code(float x, int exponent) {
  return exponent == kBadExponent ? kE4m3NaN : f32_to_e4m3(x * power_of_two(-exponent));
}
/// The value that a code stands for; a zero keeps its sign.
LOCKSTEP_HOST_DEVICE constexpr float fp8_value(std::uint8_t code, int exponent) {
  return exponent == kBadExponent ? f32_of(kQuietNaN) : e4m3_to_f32(code) * power_of_two(exponent);
}

/// Scale exponent of an fp4 block: smallest power of two >= max(amax, 6 * 2^-126) / 6. In [-126, 126] for finite
/// blocks.
LOCKSTEP_HOST_DEVICE constexpr int fp4_exponent(std::uint32_t amax_bits) {
  if (amax_bits >= kInfinity) return kBadExponent;
  const std::uint32_t floor_bits = bits_of(6.0f * 0x1p-126f);
  return ceil_log2(f32_of(amax_bits > floor_bits ? amax_bits : floor_bits) * (1.0f / 6.0f));
}
/// e2m1 code of x / 2^exponent.
LOCKSTEP_HOST_DEVICE constexpr std::uint8_t fp4_code(float x, int exponent) {
  return exponent == kBadExponent ? std::uint8_t{7} : f32_to_e2m1(x * power_of_two(-exponent));
}
/// The value that a code stands for; a zero keeps its sign.
LOCKSTEP_HOST_DEVICE constexpr float fp4_value(std::uint8_t code, int exponent) {
  return exponent == kBadExponent ? f32_of(kQuietNaN) : e2m1_to_f32(code) * power_of_two(exponent);
}

/// A scale exponent as an E8M0 byte, and back.
LOCKSTEP_HOST_DEVICE constexpr std::uint8_t exponent_to_e8m0(int exponent) {
  return static_cast<std::uint8_t>(exponent + 127);
}
LOCKSTEP_HOST_DEVICE constexpr int e8m0_to_exponent(std::uint8_t code) { return static_cast<int>(code) - 127; }

// ---- int8 activations -----------------------------------------------------------------------------------------------

/// How a block of kBlock activations is rounded: code = round(x * inverse), meaning code * scale.
struct Int8Scale {
  float scale;    // amax / 127
  float inverse;  // 127 / amax; 0 says that all codes are 0
};

/// From the maximum of magnitude_bits over the block. Below 2^-118 the block is zero (scale 0), so that neither
/// quotient can overflow or be subnormal. With an infinity or a NaN in the block the scale is NaN and the codes are 0:
/// whatever reads the block becomes NaN, and the codes do not depend on how a machine converts one.
LOCKSTEP_HOST_DEVICE constexpr Int8Scale int8_scale(std::uint32_t amax_bits) {
  if (amax_bits >= kInfinity) return {f32_of(kQuietNaN), 0.0f};
  if (amax_bits < bits_of(0x1p-118f)) return {0.0f, 0.0f};
  const float amax = f32_of(amax_bits);
  return {amax / 127.0f, 127.0f / amax};
}

/// In [-127, 127]; ties to even.
LOCKSTEP_HOST_DEVICE constexpr std::int8_t int8_code(float x, float inverse) {
  return inverse == 0.0f ? std::int8_t{0} : static_cast<std::int8_t>(round_to_int(x * inverse));
}

/// Rounds one block of kBlock values.
///   x [kBlock] f32;  code [kBlock], may not overlap x.  Returns the scale of the codes.
/// Cannot fail; see int8_scale for zero and non-finite blocks.
LOCKSTEP_HOST_DEVICE inline float round_block_int8(const float* x, std::int8_t* code) {
  std::uint32_t amax_bits = 0;
  for (int i = 0; i < kBlock; ++i) {
    const std::uint32_t magnitude = magnitude_bits(x[i]);
    if (magnitude > amax_bits) amax_bits = magnitude;
  }
  const Int8Scale scale = int8_scale(amax_bits);
  for (int i = 0; i < kBlock; ++i) code[i] = int8_code(x[i], scale.inverse);
  return scale.scale;
}

}  // namespace lockstep
