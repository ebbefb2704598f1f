// Rows of the float formats, widened exactly, and the dot of one with a row of floats in the law's order.
//
// Each of the 8 * lanes partial sums of a chunk is one element of an accumulator: with 32 lanes an AVX-512 register
// holds two lanes and 16 of them hold the chunk.
#pragma once

#include "cpu/simd.h"
#include "numerics/order.h"
#include "tensor/dtype.h"

namespace lockstep::cpu {
namespace {

/// Widened values of a row: `eight` and `wide` from value k on (k a multiple of 8), `one` at k; kLine values are 64
/// bytes.
struct F32Row {
  static constexpr int kLine = 16;
  const void* data;
  LOCKSTEP_INLINE const std::byte* at(std::ptrdiff_t k) const { return static_cast<const std::byte*>(data) + 4 * k; }
  LOCKSTEP_INLINE __m256 eight(std::ptrdiff_t k) const {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at(k)));
  }
  LOCKSTEP_INLINE Floats wide(std::ptrdiff_t k) const { return load_floats(at(k)); }
  LOCKSTEP_INLINE float one(std::ptrdiff_t k) const {
    float x;
    __builtin_memcpy(&x, at(k), sizeof x);
    return x;
  }
};

struct F16Row {
  static constexpr int kLine = 32;
  const void* data;
  LOCKSTEP_INLINE const std::byte* at(std::ptrdiff_t k) const { return static_cast<const std::byte*>(data) + 2 * k; }
  LOCKSTEP_INLINE __m256 eight(std::ptrdiff_t k) const { return _mm256_cvtph_ps(load16(at(k))); }
  LOCKSTEP_INLINE Floats wide(std::ptrdiff_t k) const {
#if LOCKSTEP_AVX512
    return _mm512_maskz_cvtph_ps(0xffff, load32(at(k)));
#else
    return eight(k);
#endif
  }
  LOCKSTEP_INLINE float one(std::ptrdiff_t k) const { return f16_at(at(k)); }
};

struct Bf16Row {
  static constexpr int kLine = 32;
  const void* data;
  LOCKSTEP_INLINE const std::byte* at(std::ptrdiff_t k) const { return static_cast<const std::byte*>(data) + 2 * k; }
  LOCKSTEP_INLINE __m256 eight(std::ptrdiff_t k) const {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(at(k))), 16));
  }
  LOCKSTEP_INLINE Floats wide(std::ptrdiff_t k) const {
#if LOCKSTEP_AVX512
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(at(k))), 16));
#else
    return eight(k);
#endif
  }
  LOCKSTEP_INLINE float one(std::ptrdiff_t k) const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(load_u16(at(k))) << 16);
  }
};

/// E4M3 codes of 128 values after their E8M0 scale. Width is a multiple of 128, so there are no odd values.
struct F8Row {
  static constexpr int kLine = 64;
  const void* data;
  LOCKSTEP_INLINE static float scale_of(const std::byte* block) {
    const std::uint32_t e = static_cast<std::uint32_t>(block[0]);
    const std::uint32_t bits = e == 0 ? 0x00400000 : e == 255 ? 0x7fc00000 : e << 23;
    return __builtin_bit_cast(float, bits);
  }
  // With its exponent in place a code is an f16 of 2^-8 times the value. f16 subnormals cost nothing to widen, where
  // f32 ones as inputs of a product would.
#if LOCKSTEP_AVX512
  LOCKSTEP_INLINE Floats wide(std::ptrdiff_t k) const {
    const std::byte* block = static_cast<const std::byte*>(data) + k / 128 * 129;
    const __m256i code = _mm256_cvtepu8_epi16(load16(block + 1 + k % 128));
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_sub_epi16(code, magnitude), 8);
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i sound = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
    return multiply(multiply(_mm512_maskz_cvtph_ps(0xffff, sound), set_floats(256.0f)), set_floats(scale_of(block)));
  }
#else
  LOCKSTEP_INLINE Floats wide(std::ptrdiff_t k) const { return eight(k); }
#endif
  LOCKSTEP_INLINE __m256 eight(std::ptrdiff_t k) const {
    const std::byte* block = static_cast<const std::byte*>(data) + k / 128 * 129;
    const __m128i code = _mm_cvtepu8_epi16(bytes_of(load_u64(block + 1 + k % 128), 0));
    const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_sub_epi16(code, magnitude), 8);
    const __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 7), sign);
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    const __m128i sound = _mm_blendv_epi8(half, _mm_set1_epi16(0x7e00), nan);
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtph_ps(sound), _mm256_set1_ps(256.0f)),
                         _mm256_set1_ps(scale_of(block)));
  }
  LOCKSTEP_INLINE float one(std::ptrdiff_t) const { return 0; }
};

/// The sums of eight lanes of eight places each: place 0, then 1, .. 7.
LOCKSTEP_INLINE __m256 add_places(const float* partial) {
  __m256 r[8];
  for (int i = 0; i < 4; ++i) {
    const auto quads = [&](int lane, int half) __attribute__((always_inline)) {
      return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(partial + 8 * lane + 4 * half)),
                                  _mm_loadu_ps(partial + 8 * (lane + 4) + 4 * half), 1);
    };
    r[i] = quads(i, 0);
    r[i + 4] = quads(i, 1);
  }
  __m256 sum = _mm256_setzero_ps();
  for (int half = 0; half < 2; ++half) {
    const __m256 a = _mm256_unpacklo_ps(r[4 * half], r[4 * half + 1]),
                 b = _mm256_unpackhi_ps(r[4 * half], r[4 * half + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[4 * half + 2], r[4 * half + 3]);
    const __m256 d = _mm256_unpackhi_ps(r[4 * half + 2], r[4 * half + 3]);
    const __m256 first = _mm256_shuffle_ps(a, c, 0x44);
    sum = half == 0 ? first : _mm256_add_ps(sum, first);
    sum = _mm256_add_ps(sum, _mm256_shuffle_ps(a, c, 0xee));
    sum = _mm256_add_ps(sum, _mm256_shuffle_ps(b, d, 0x44));
    sum = _mm256_add_ps(sum, _mm256_shuffle_ps(b, d, 0xee));
  }
  return sum;
}

/// The sum of one chunk: values [begin, begin + length) with kLanes lanes.
template <int kLanes, class Row>
LOCKSTEP_INLINE float dot_of_chunk(const Row& row, const float* x, std::ptrdiff_t begin, int length) {
  constexpr int kPeriod = 8 * kLanes;
  constexpr int kVectors = kPeriod / kWide;
  alignas(64) float partial[kPeriod];
  Floats sums[kVectors];
#pragma GCC unroll 32
  for (Floats& s : sums) s = zero_floats();
  int k = 0;
  for (; k + kPeriod <= length; k += kPeriod) {
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) {
      if (v * kWide % Row::kLine == 0) {
        const std::ptrdiff_t bytes = (begin + k + v * kWide) / Row::kLine * 64;
        _mm_prefetch(static_cast<const char*>(row.data) + bytes + 4096, _MM_HINT_T1);  // see matmul_quantised.cc
      }
      sums[v] = fma(row.wide(begin + k + v * kWide), load_floats(x + begin + k + v * kWide), sums[v]);
    }
  }
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) store_floats(partial + v * kWide, sums[v]);
  float* to = partial;
  for (; k + 8 <= length; k += 8, to += 8)
    _mm256_storeu_ps(to, _mm256_fmadd_ps(row.eight(begin + k), _mm256_loadu_ps(x + begin + k), _mm256_loadu_ps(to)));
  for (; k < length; ++k, ++to) *to = __builtin_fmaf(row.one(begin + k), x[begin + k], *to);
  __m256 columns = add_places(partial);
  for (int l = 8; l < kLanes; l += 8) columns = _mm256_add_ps(columns, add_places(partial + 8 * l));
  return add_columns(columns);
}

template <class Row>
LOCKSTEP_INLINE float float_dot(const Row& row, const float* x, std::ptrdiff_t width) {
  float total = 0;
  for (std::ptrdiff_t begin = 0; begin < width; begin += kChunk) {
    const int length = static_cast<int>(width - begin < kChunk ? width - begin : kChunk);
    const float sum = length >= 4096   ? dot_of_chunk<32>(row, x, begin, length)
                      : length >= 2048 ? dot_of_chunk<16>(row, x, begin, length)
                                       : dot_of_chunk<8>(row, x, begin, length);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace
}  // namespace lockstep::cpu
