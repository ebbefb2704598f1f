// Packing of cache rows, exact both ways (cache_view.h). In official mode a value is code * 2^exponent; the code is
// found again from the value, because rounding a rounded row gives the same row.
#pragma once

#include <cstring>

#include "numerics/round.h"
#include "ops/cache_view.h"

namespace lockstep {

/// Largest magnitude (as bits) of x[0..n).
inline std::uint32_t largest_magnitude(const float* x, int n) {
  std::uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = magnitude_bits(x[i]);
    if (bits > largest) largest = bits;
  }
  return largest;
}

/// The fp8 simulation of channels [0, channels) in place: blocks of 64, the last one may be shorter.
inline void round_fp8_row(float* x, int channels) {
  for (int begin = 0; begin < channels; begin += kFp8Block) {
    const int n = channels - begin < kFp8Block ? channels - begin : kFp8Block;
    const int exponent = fp8_exponent(largest_magnitude(x + begin, n));
    for (int i = begin; i < begin + n; ++i) x[i] = fp8_value(fp8_code(x[i], exponent), exponent);
  }
}

/// Hadamard transform (Sylvester order, times width^-1/2) and fp4 simulation in blocks of 32, in place. width is a
/// power of two. Additions run by stride 1, 2, 4, ...; then one multiplication.
inline void hadamard_fp4_row(float* x, int width) {
  for (int stride = 1; stride < width; stride *= 2) {
    for (int i = 0; i < width; i += 2 * stride) {
      for (int j = i; j < i + stride; ++j) {
        const float a = x[j], b = x[j + stride];
        x[j] = a + b;
        x[j + stride] = a - b;
      }
    }
  }
  const float norm = 1.0f / sqrt_f32(static_cast<float>(width));
  for (int begin = 0; begin < width; begin += kFp4Block) {
    for (int i = begin; i < begin + kFp4Block; ++i) x[i] = x[i] * norm;
    const int exponent = fp4_exponent(largest_magnitude(x + begin, kFp4Block));
    for (int i = begin; i < begin + kFp4Block; ++i) x[i] = fp4_value(fp4_code(x[i], exponent), exponent);
  }
}

/// Packs a row that is already rounded: [codes][block exponents as e8m0][f32 rotary channels], or plain f32.
inline void pack_row(std::byte* out, const float* x, const RowLayout& layout) {
  if (layout.mode == Mode::plain) {
    std::memcpy(out, x, layout.row_bytes());
    return;
  }
  const int channels = layout.fp8_channels();
  auto* codes = reinterpret_cast<std::uint8_t*>(out);
  std::uint8_t* exponents = codes + channels;
  for (int begin = 0; begin < channels; begin += kFp8Block) {
    const int n = channels - begin < kFp8Block ? channels - begin : kFp8Block;
    const int exponent = fp8_exponent(largest_magnitude(x + begin, n));
    for (int i = begin; i < begin + n; ++i) codes[i] = fp8_code(x[i], exponent);
    exponents[begin / kFp8Block] = exponent_to_e8m0(exponent);
  }
  std::memcpy(exponents + layout.fp8_blocks(), x + channels, sizeof(float) * static_cast<std::size_t>(layout.rotary));
}

inline void unpack_row(float* x, const std::byte* in, const RowLayout& layout) {
  if (layout.mode == Mode::plain) {
    std::memcpy(x, in, layout.row_bytes());
    return;
  }
  const int channels = layout.fp8_channels();
  const auto* codes = reinterpret_cast<const std::uint8_t*>(in);
  const std::uint8_t* exponents = codes + channels;
  for (int i = 0; i < channels; ++i) x[i] = fp8_value(codes[i], e8m0_to_exponent(exponents[i / kFp8Block]));
  std::memcpy(x + channels, exponents + layout.fp8_blocks(), sizeof(float) * static_cast<std::size_t>(layout.rotary));
}

/// An indexer key that is already rounded: [codes, two a byte, low nibble first][block exponents], or plain f32.
inline void pack_key(std::byte* out, const float* x, const RowLayout& layout) {
  if (layout.mode == Mode::plain) {
    std::memcpy(out, x, layout.key_bytes());
    return;
  }
  auto* codes = reinterpret_cast<std::uint8_t*>(out);
  std::uint8_t* exponents = codes + layout.key_width / 2;
  for (int begin = 0; begin < layout.key_width; begin += kFp4Block) {
    const int exponent = fp4_exponent(largest_magnitude(x + begin, kFp4Block));
    for (int i = begin; i < begin + kFp4Block; i += 2)
      codes[i / 2] = static_cast<std::uint8_t>(fp4_code(x[i], exponent) | fp4_code(x[i + 1], exponent) << 4);
    exponents[begin / kFp4Block] = exponent_to_e8m0(exponent);
  }
}

inline void unpack_key(float* x, const std::byte* in, const RowLayout& layout) {
  if (layout.mode == Mode::plain) {
    std::memcpy(x, in, layout.key_bytes());
    return;
  }
  const auto* codes = reinterpret_cast<const std::uint8_t*>(in);
  const std::uint8_t* exponents = codes + layout.key_width / 2;
  for (int i = 0; i < layout.key_width; ++i)
    x[i] =
        fp4_value(static_cast<std::uint8_t>(codes[i / 2] >> 4 * (i % 2)), e8m0_to_exponent(exponents[i / kFp4Block]));
}

}  // namespace lockstep
