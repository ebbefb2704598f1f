// Unpacking of the K formats and IQ4_XS: 256 values with small integer sub-scales. See unpack.h.
#pragma once

#include "cpu/unpack.h"

namespace lockstep::cpu {
namespace {

/// Sixteen bytes, one a group, to the floats of the first and of the second halves of eight blocks.
LOCKSTEP_INLINE __m128i evens_then_odds(__m128i x) {
  return _mm_shuffle_epi8(x, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}
LOCKSTEP_INLINE __m128i upper8(__m128i x) { return _mm_srli_si128(x, 8); }

struct UnpackK {
  static constexpr bool kSigned = false, kSmall = true;
  static constexpr Term kTerm = Term::single;
  static constexpr Min kMin = Min::none;
  static constexpr Grid kGrid = Grid::none;
};

/// Two-bit codes of Q2_K and Q3_K: bits 2 s, 2 s + 1 of the 64 bytes are groups 2 s, 2 s + 1, 2 s + 8 and 2 s + 9.
#define LOCKSTEP_TWO_BIT_ORDER \
  { 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15 }

/// Lanes of the four levels vectors filled with the first bytes of table[group].
template <int kIndex>
LOCKSTEP_INLINE Bytes64 spread_groups(Bytes64 table) {
#if LOCKSTEP_AVX512
  constexpr int a = 2 * kIndex, b = a + 1, c = a + 8, d = a + 9;
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d), table);
#else
  constexpr int a = 2 * kIndex, b = a + 1;
  const __m256i index = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
  return {_mm256_permutevar8x32_epi32(table.low, index), _mm256_permutevar8x32_epi32(table.high, index)};
#endif
}

/// For few tokens, where unpacking counts: the sub-scales (0..15) stay apart.
struct UnpackQ2K : UnpackK {
  static constexpr int kBytes = 84, kSpan = 84, kOffset = 0;
  static constexpr Term kTerm = Term::sub;
  static constexpr Min kMin = Min::two;
  static constexpr int kGroup[16] = LOCKSTEP_TWO_BIT_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    const Bytes64 codes = load64(p + 16);
    const Bytes64 mask = set8(3);
    levels[0] = and64(codes, mask);
    levels[1] = and64(right16<2>(codes), mask);
    levels[2] = and64(right16<4>(codes), mask);
    levels[3] = and64(right16<6>(codes), mask);
    const __m128i packed = load16(p);
    const __m128i scales = evens_then_odds(_mm_and_si128(packed, _mm_set1_epi8(15)));
    terms.scale = floats_of_u8(scales);
    terms.second = floats_of_u8(upper8(scales));
    terms.factor = _mm256_set1_ps(f16_at(p + 80));
    load_mins(p, terms);
  }
  LOCKSTEP_INLINE static void load_mins(const std::byte* p, Terms& terms) {
    terms.min_pairs = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(load16(p), 4), _mm_set1_epi8(15)));
    terms.min_factor = _mm256_set1_ps(f16_at(p + 82));
  }
};

/// For many tokens, where each block's term counts: the sub-scales are multiplied into the codes by a lookup. The table
/// of a lane is {0, 1, 2, 3} times the scale of its group.
struct UnpackQ2KScaled : UnpackQ2K {
  static constexpr bool kSmall = false;
  static constexpr Term kTerm = Term::single;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    const __m128i scales = _mm_and_si128(load16(p), _mm_set1_epi8(15));
    const __m256i step = _mm256_set1_epi32(0x03020100);
    const Bytes64 table = join32(_mm256_mullo_epi32(_mm256_cvtepu8_epi32(scales), step),
                                 _mm256_mullo_epi32(_mm256_cvtepu8_epi32(upper8(scales)), step));
    Terms unused;
    UnpackQ2K::unpack(p, nullptr, levels, unused);
    levels[0] = lookup(spread_groups<0>(table), levels[0]);
    levels[1] = lookup(spread_groups<1>(table), levels[1]);
    levels[2] = lookup(spread_groups<2>(table), levels[2]);
    levels[3] = lookup(spread_groups<3>(table), levels[3]);
    terms.scale = _mm256_set1_ps(f16_at(p + 80));
    load_mins(p, terms);
  }
};

struct UnpackQ3K : UnpackK {
  static constexpr int kBytes = 110, kSpan = 110, kOffset = 4;
  static constexpr Term kTerm = Term::sub;
  static constexpr int kGroup[16] = LOCKSTEP_TWO_BIT_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    const Bytes64 codes = load64(p + 32);
    // Groups 8 and up have their third bits four places higher.
    const __m256i third = load32(p);
    const Bytes64 high = join32(third, _mm256_srli_epi16(third, 4));
    const Bytes64 mask = set8(3), bit = set8(4);
    levels[0] = or64(and64(codes, mask), and64(left16<2>(high), bit));
    levels[1] = or64(and64(right16<2>(codes), mask), and64(left16<1>(high), bit));
    levels[2] = or64(and64(right16<4>(codes), mask), and64(high, bit));
    levels[3] = or64(and64(right16<6>(codes), mask), and64(right16<1>(high), bit));
    const std::uint64_t a = load_u32(p + 96), b = load_u32(p + 100), c = load_u32(p + 104);
    const std::uint64_t nibbles = 0x0f0f0f0f, pairs = 0x03030303;
    const auto scale = [&](std::uint64_t low, int shift) __attribute__((always_inline)) {
      return (low & nibbles) | (c >> shift & pairs) << 4;
    };
    const __m128i raw = bytes_of(scale(a, 0) | scale(b, 2) << 32, scale(a >> 4, 4) | scale(b >> 4, 6) << 32);
    const __m128i scales = evens_then_odds(_mm_sub_epi8(raw, _mm_set1_epi8(32)));
    terms.scale = floats_of_i8(scales);
    terms.second = floats_of_i8(upper8(scales));
    terms.factor = _mm256_set1_ps(f16_at(p + 108));
  }
};

/// Six-bit scales and minima of eight groups in 12 bytes, times d and dm: exact products.
LOCKSTEP_INLINE void load_six_bits(const std::byte* s, float d, float dm, Terms& terms) {
  const std::uint64_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
  const std::uint64_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
  const std::uint64_t scales = (a & six) | ((c & four) | (a >> 6 & two) << 4) << 32;
  const std::uint64_t mins = (b & six) | ((c >> 4 & four) | (b >> 6 & two) << 4) << 32;
  terms.scale = _mm256_mul_ps(floats_of_u8(bytes_of(scales, 0)), _mm256_set1_ps(d));
  terms.min = _mm256_mul_ps(floats_of_u8(bytes_of(mins, 0)), _mm256_set1_ps(dm));
}

/// 32 bytes of nibbles are two blocks: low, then high.
#define LOCKSTEP_Q4K_ORDER \
  { 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15 }

struct UnpackQ4K : UnpackK {
  static constexpr int kBytes = 144, kSpan = 144, kOffset = 0;
  static constexpr Min kMin = Min::one;
  static constexpr int kGroup[16] = LOCKSTEP_Q4K_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    for (int i = 0; i < 2; ++i) {
      const Bytes64 x = load64(p + 16 + 64 * i);
      levels[2 * i] = low_nibbles(x);
      levels[2 * i + 1] = high_nibbles(x);
    }
    load_six_bits(p + 4, f16_at(p), f16_at(p + 2), terms);
  }
};

struct UnpackQ5K : UnpackQ4K {
  static constexpr int kBytes = 176, kSpan = 176;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    const __m256i fifth = load32(p + 16);
    const Bytes64 flags = join32(fifth, fifth);
    for (int i = 0; i < 2; ++i) {
      const Bytes64 x = load64(p + 48 + 64 * i);
      levels[2 * i] = low_nibbles(x);
      levels[2 * i + 1] = high_nibbles(x);
    }
    for (int i = 0; i < 4; ++i) {
      const int block = 4 * (i / 2) + i % 2;  // of the lower two lanes; the upper two hold block + 2
      const Bytes64 mask =
          join32(_mm256_set1_epi8(static_cast<char>(1 << block)), _mm256_set1_epi8(static_cast<char>(4 << block)));
      levels[i] = add_where_flagged(levels[i], flags, mask, 16);
    }
    load_six_bits(p + 4, f16_at(p), f16_at(p + 2), terms);
  }
};

struct UnpackQ6K : UnpackK {
  static constexpr bool kSmall = false;
  static constexpr int kBytes = 210, kSpan = 210, kOffset = 32;
  static constexpr Term kTerm = Term::sub;
  static constexpr int kGroup[16] = LOCKSTEP_ROW_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    const Bytes64 mask = set8(0x30);
    const Bytes64 up = join32(_mm256_set1_epi32(4), _mm256_set1_epi32(2));
    const Bytes64 down = join32(_mm256_setzero_si256(), _mm256_set1_epi32(2));
    for (int i = 0; i < 2; ++i) {
      const Bytes64 x = load64(p + 64 * i);
      const __m256i h = load32(p + 128 + 32 * i);
      const Bytes64 high = join32(h, h);
      levels[2 * i] = or64(low_nibbles(x), and64(left_each32(high, up), mask));
      levels[2 * i + 1] = or64(high_nibbles(x), and64(right_each32(high, down), mask));
    }
    const __m128i scales = evens_then_odds(load16(p + 192));
    terms.scale = floats_of_i8(scales);
    terms.second = floats_of_i8(upper8(scales));
    terms.factor = _mm256_set1_ps(f16_at(p + 208));
  }
};

struct UnpackIq4Xs : UnpackK {
  static constexpr int kBytes = 136, kSpan = 136, kOffset = 0;
  static constexpr bool kSigned = true, kSmall = false;
  static constexpr int kGroup[16] = LOCKSTEP_NIBBLE_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<16>(p + 8, levels);
    lookup_all(table_iq4(), levels);
    const std::uint64_t low = _pdep_u64(load_u32(p + 4), 0x0f0f0f0f0f0f0f0f);
    const std::uint64_t high = _pdep_u64(load_u16(p + 2), 0x3030303030303030);
    const __m128i scales = _mm_sub_epi8(bytes_of(low | high, 0), _mm_set1_epi8(32));
    terms.scale = _mm256_mul_ps(floats_of_i8(scales), _mm256_set1_ps(f16_at(p)));
  }
};

}  // namespace
}  // namespace lockstep::cpu
