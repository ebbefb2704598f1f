// Random operands that host and device make alike from an index, so that nothing large is ever copied or stored twice:
// the host check recomputes exactly the rows it looks at, and a kernel's re-laid copy is filled in place.
#pragma once

#include <cstdint>
#include <cstring>

#include "numerics/order.h"

namespace lockstep::law {

LOCKSTEP_HOST_DEVICE inline std::uint32_t hash(std::uint64_t index, std::uint32_t seed) {
  std::uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EBull;
  return static_cast<std::uint32_t>(x >> 32);
}

/// Four codes in -128..127, values 4 * index .. 4 * index + 3 of a matrix stored row after row.
LOCKSTEP_HOST_DEVICE inline std::uint32_t four_codes(std::uint64_t index, std::uint32_t seed) {
  return hash(index, seed);
}

/// The bits of an f16 of either sign between 2^-10 and 2^-4: eleven bits of mantissa, so that every product rounds.
LOCKSTEP_HOST_DEVICE inline std::uint16_t half_bits(std::uint64_t index, std::uint32_t seed) {
  const std::uint32_t h = hash(index, seed);
  return static_cast<std::uint16_t>((h & 0x83FFu) | ((5u + (h >> 16) % 6u) << 10));
}

/// A positive f32 between 2^-8 and 2^-4.
LOCKSTEP_HOST_DEVICE inline float scale_value(std::uint64_t index, std::uint32_t seed) {
  const std::uint32_t h = hash(index, seed);
  const std::uint32_t bits = (h & 0x7FFFFFu) | ((119u + (h >> 30)) << 23);
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/// An f32 of either sign between 2^-4 and 2^4.
LOCKSTEP_HOST_DEVICE inline float activation_value(std::uint64_t index, std::uint32_t seed) {
  const std::uint32_t h = hash(index, seed);
  const std::uint32_t bits = (h & 0x807FFFFFu) | ((123u + (h >> 24) % 8u) << 23);
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/// Widens a normal f16, exactly.
inline float widen_half(std::uint16_t half) {
  const std::uint32_t bits = ((half & 0x8000u) << 16) | (((half & 0x7FFFu) << 13) + (112u << 23));
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace lockstep::law
