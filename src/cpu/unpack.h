// Unpacking of 256 values (a superblock: eight blocks) of a quantised row into byte levels and float scales.
//
// Each format has a struct with
//   kBytes, kSpan     bytes of a superblock, and bytes that `unpack` touches (the caller copies where they do not
//   exist) kTerm, kMin       which form of a block's term it has (tensor/block.h) kOffset, kSigned  a level is its byte
//   less kOffset, or an int8 kSmall            the bytes are at most 32 kGroup[4 * i + l] which 16 values (2 * block +
//   half) fill lane l of levels[i]: whatever is cheapest to unpack kGrid             the grid that setup expands into
//   scratch, or none unpack(p, grid, levels, terms)
// Zero bytes decode to finite terms in every format, so a partial superblock is padded with zeros.
//
// Integer sub-scales of 32 values are multiplied into the float scale: a product of an f16 (11 bits) and an integer of
// at most 7 bits is exact, so the term is rounded once all the same. Sub-scales of 16 values stay apart (Term::sub).
#pragma once

#include "cpu/simd.h"

namespace lockstep::cpu {
namespace {

enum class Term {
  single,  // t = float(I) * scale
  dual,    // t = fma(float(I_1), second, float(I_0) * scale)
  sub,     // t = float(I_0 * scale + I_1 * second) * factor, scale and second small integers: exact up to the factor
};
enum class Min {
  none,
  one,  // t = fma(-S, min, t), min being exact
  two,  // t = fma(-M, min_factor, t), M = S_0 * m_0 + S_1 * m_1, the m in min_pairs
};
enum class Grid { none, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1 };

/// Float parts of the terms of eight blocks; which ones are set follows from the format's Term and Min.
struct Terms {
  __m256 scale, second, factor;
  __m256 min, min_factor;
  __m256i min_pairs;  // m_0 and m_1 of a block as int16
};

/// Lane l of levels[i] for levels in the order of the row.
#define LOCKSTEP_ROW_ORDER \
  { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
/// Four blocks' 16 code bytes side by side: the low nibbles are their first halves, the high nibbles the second ones.
#define LOCKSTEP_NIBBLE_ORDER \
  { 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15 }

/// Eight values at p, p + kStride, ...: 32 bits each.
template <int kStride>
LOCKSTEP_INLINE __m256i gather32(const std::byte* p) {
  const __m256i at =
      _mm256_setr_epi32(0, kStride, 2 * kStride, 3 * kStride, 4 * kStride, 5 * kStride, 6 * kStride, 7 * kStride);
#if LOCKSTEP_AVX512
  return _mm256_mmask_i32gather_epi32(_mm256_setzero_si256(), 0xff, at, p, 1);
#else
  return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(p), at, _mm256_set1_epi32(-1),
                                     1);
#endif
}

/// f16 in the low halves of eight 32-bit elements.
LOCKSTEP_INLINE __m256 floats_of_f16(__m256i x) {
  const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
template <int kStride>
LOCKSTEP_INLINE __m256 gather_f16(const std::byte* p) {
  return floats_of_f16(gather32<kStride>(p));
}

/// UE4M3 at half its value in eight 32-bit elements; 0x7f and above give 0. See ue4m3_half_to_f32.
LOCKSTEP_INLINE __m256 floats_of_ue4m3(__m256i code) {
  const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f), code);
  const __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(code, valid), 20));
  return _mm256_mul_ps(x, _mm256_set1_ps(0x1p119f));
}
/// 2^(code - 128) in eight 32-bit elements. See e8m0_half_to_f32.
LOCKSTEP_INLINE __m256 floats_of_e8m0_half(__m256i code) {
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(code, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), code);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), code)));
}
LOCKSTEP_INLINE __m256i byte_of(__m256i x, int i) {
  return _mm256_and_si256(_mm256_srli_epi32(x, 8 * i), _mm256_set1_epi32(0xff));
}

template <int kStride>
LOCKSTEP_INLINE void load_nibbles(const std::byte* p, Bytes64 (&levels)[4]) {
  const Bytes64 a = load16x4(p, p + kStride, p + 2 * kStride, p + 3 * kStride);
  const Bytes64 b = load16x4(p + 4 * kStride, p + 5 * kStride, p + 6 * kStride, p + 7 * kStride);
  levels[0] = low_nibbles(a);
  levels[1] = high_nibbles(a);
  levels[2] = low_nibbles(b);
  levels[3] = high_nibbles(b);
}
LOCKSTEP_INLINE void lookup_all(__m128i table, Bytes64 (&levels)[4]) {
  const Bytes64 wide = broadcast16(table);
  for (Bytes64& x : levels) x = lookup(wide, x);
}

LOCKSTEP_INLINE __m128i table_iq4() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
LOCKSTEP_INLINE __m128i table_e2m1_plus12() {
  return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}
LOCKSTEP_INLINE __m128i table_rocmfp4_plus10() {
  return _mm_setr_epi8(10, 11, 12, 13, 14, 16, 18, 20, 10, 9, 8, 7, 6, 4, 2, 0);
}

// ---- One f16 or E8M0 scale for 32 values
// -----------------------------------------------------------------------------

struct UnpackQ8_0 {
  static constexpr int kBytes = 272, kSpan = 272, kOffset = 0;
  static constexpr bool kSigned = true, kSmall = false;
  static constexpr Term kTerm = Term::single;
  static constexpr Min kMin = Min::none;
  static constexpr Grid kGrid = Grid::none;
  static constexpr int kGroup[16] = LOCKSTEP_ROW_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    for (int i = 0; i < 4; ++i) levels[i] = load32x2(p + 68 * i + 2, p + 68 * i + 36);
    terms.scale = gather_f16<34>(p);
  }
};

template <int kCodesAt, int kBlockBytes, int kOffset_>
struct UnpackNibbles {
  static constexpr int kBytes = 8 * kBlockBytes, kSpan = kBytes, kOffset = kOffset_;
  static constexpr bool kSigned = false, kSmall = true;
  static constexpr Term kTerm = Term::single;
  static constexpr Min kMin = Min::none;
  static constexpr Grid kGrid = Grid::none;
  static constexpr int kGroup[16] = LOCKSTEP_NIBBLE_ORDER;
};

struct UnpackQ4_0 : UnpackNibbles<2, 18, 8> {
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<18>(p + 2, levels);
    terms.scale = gather_f16<18>(p);
  }
};

struct UnpackQ4_1 : UnpackNibbles<4, 20, 0> {
  static constexpr Min kMin = Min::one;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<20>(p + 4, levels);
    const __m256i scales = gather32<20>(p);
    terms.scale = floats_of_f16(scales);
    terms.min = _mm256_xor_ps(floats_of_f16(_mm256_srli_epi32(scales, 16)), _mm256_set1_ps(-0.0f));
  }
};

/// Adds 16 to the codes whose fifth bit is set: one 32-bit word of such bits a block.
template <int kStride>
LOCKSTEP_INLINE void add_fifth_bits(const std::byte* p, Bytes64 (&levels)[4]) {
  for (int i = 0; i < 2; ++i) {
    const std::byte* q = p + 4 * i * kStride;
    const std::uint64_t a = load_u32(q), b = load_u32(q + kStride), c = load_u32(q + 2 * kStride),
                        d = load_u32(q + 3 * kStride);
    const std::uint64_t first = (a & 0xffff) | (b & 0xffff) << 16 | (c & 0xffff) << 32 | d << 48;
    const std::uint64_t second = a >> 16 | (b & 0xffff0000) | (c >> 16) << 32 | (d >> 16) << 48;
    levels[2 * i] = add_where(levels[2 * i], first, 16);
    levels[2 * i + 1] = add_where(levels[2 * i + 1], second, 16);
  }
}

struct UnpackQ5_0 : UnpackNibbles<6, 22, 16> {
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<22>(p + 6, levels);
    add_fifth_bits<22>(p + 2, levels);
    terms.scale = gather_f16<22>(p);
  }
};

struct UnpackQ5_1 : UnpackNibbles<8, 24, 0> {
  static constexpr Min kMin = Min::one;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<24>(p + 8, levels);
    add_fifth_bits<24>(p + 4, levels);
    const __m256i scales = gather32<24>(p);
    terms.scale = floats_of_f16(scales);
    terms.min = _mm256_xor_ps(floats_of_f16(_mm256_srli_epi32(scales, 16)), _mm256_set1_ps(-0.0f));
  }
};

struct UnpackIq4Nl : UnpackNibbles<2, 18, 0> {
  static constexpr bool kSigned = true, kSmall = false;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<18>(p + 2, levels);
    lookup_all(table_iq4(), levels);
    terms.scale = gather_f16<18>(p);
  }
};

struct UnpackMxfp4 : UnpackNibbles<1, 17, 12> {
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<17>(p + 1, levels);
    lookup_all(table_e2m1_plus12(), levels);
    terms.scale = floats_of_e8m0_half(byte_of(gather32<17>(p), 0));
  }
};

// ---- UE4M3 scales: NVFP4 and ROCmFP
// ----------------------------------------------------------------------------------

/// Blocks of 64: four scale bytes, then eight bytes for each 16 values in split halves.
struct UnpackNvfp4 : UnpackNibbles<4, 18, 12> {
  static constexpr Term kTerm = Term::dual;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    for (int i = 0; i < 2; ++i) {
      const std::byte* q = p + 72 * i;
      const Bytes64 x = load16x4(q + 4, q + 20, q + 40, q + 56);
      const Bytes64 low = low_nibbles(x), high = high_nibbles(x);
      levels[2 * i] = unpack_low64(low, high);
      levels[2 * i + 1] = unpack_high64(low, high);
    }
    lookup_all(table_e2m1_plus12(), levels);
    const __m128i words = _mm_setr_epi32(static_cast<int>(load_u32(p)), static_cast<int>(load_u32(p + 36)),
                                         static_cast<int>(load_u32(p + 72)), static_cast<int>(load_u32(p + 108)));
    const __m128i codes = _mm_and_si128(words, _mm_set1_epi8(0x7f));
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i sorted = _mm_shuffle_epi8(codes, order);
    terms.scale = floats_of_ue4m3(_mm256_cvtepu8_epi32(sorted));
    terms.second = floats_of_ue4m3(_mm256_cvtepu8_epi32(_mm_srli_si128(sorted, 8)));
  }
};

struct UnpackRocmfp4 : UnpackNibbles<0, 18, 10> {
  static constexpr Term kTerm = Term::dual;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<18>(p, levels);
    lookup_all(table_rocmfp4_plus10(), levels);
    const __m256i scales = gather32<18>(p + 14);
    terms.scale = floats_of_ue4m3(byte_of(scales, 2));
    terms.second = floats_of_ue4m3(byte_of(scales, 3));
  }
};

struct UnpackRocmfp4Fast : UnpackNibbles<0, 17, 10> {
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<17>(p, levels);
    lookup_all(table_rocmfp4_plus10(), levels);
    terms.scale = floats_of_ue4m3(byte_of(gather32<17>(p + 13), 3));
  }
};

/// Two's complement nibbles: flipping the upper bit adds 8.
struct UnpackRocmi4 : UnpackNibbles<0, 17, 8> {
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_nibbles<17>(p, levels);
    for (Bytes64& x : levels) x = xor64(x, set8(8));
    terms.scale = floats_of_ue4m3(byte_of(gather32<17>(p + 13), 3));
  }
};

struct UnpackRocmfp8 : UnpackQ8_0 {
  static constexpr int kBytes = 264, kSpan = 264;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    for (int i = 0; i < 4; ++i) levels[i] = load32x2(p + 66 * i, p + 66 * i + 33);
    terms.scale = floats_of_ue4m3(byte_of(gather32<33>(p + 29), 3));
  }
};

/// Six-bit codes, four in three bytes; the first half in bytes 0..11, the second in 12..23.
struct UnpackRocmfp6 {
  static constexpr int kBytes = 208, kSpan = 208, kOffset = 32;
  static constexpr bool kSigned = false, kSmall = false;
  static constexpr Term kTerm = Term::dual;
  static constexpr Min kMin = Min::none;
  static constexpr Grid kGrid = Grid::none;
  static constexpr int kGroup[16] = LOCKSTEP_ROW_ORDER;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    // The second half is loaded from byte 8 on, so that nothing past the block is touched.
    const __m128i first = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m128i second = _mm_setr_epi8(4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const __m256i pair = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const Bytes64 spread = join32(pair, pair);
    for (int i = 0; i < 4; ++i) {
      const std::byte* q = p + 52 * i;
      const Bytes64 x = lookup(load16x4(q, q + 8, q + 26, q + 34), spread);  // 24 bits in each 32
      const auto field = [&](int shift) __attribute__((always_inline)) {
        return and64(left_each32(x, set64(0x0000000100000001u * static_cast<unsigned>(shift))),
                     set64(0x0000003f0000003fu << (4 * shift)));
      };
      const Bytes64 code = or64(or64(field(0), field(2)), or64(field(4), field(6)));
      // Code 32 + m means -m for m > 0 and -32 for m = 0.
      const Bytes64 negative = and64(sub8(set8(64), code), set8(31));
      levels[i] = choose_below32(code, add8(code, set8(32)), negative);
    }
    const __m256i scales = gather32<26>(p + 22);
    terms.scale = floats_of_ue4m3(byte_of(scales, 2));
    terms.second = floats_of_ue4m3(byte_of(scales, 3));
  }
};

/// Three-bit codes: 16 values in six bytes. A 16-bit word around each code is multiplied by a power of two, which puts
/// the code into its upper three bits.
struct UnpackRocmfp3 : UnpackRocmfp6 {
  static constexpr int kBytes = 112, kSpan = 114, kOffset = 4;
  static constexpr bool kSmall = true;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    // Bits 3 i .. 3 i + 2 of a group: bytes 3 i / 8 and the next one. Values 8..15 are the same three bytes on.
    const __m128i first = _mm_setr_epi8(0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 2, 3, 2, 3);
    const __m128i three = _mm_set1_epi8(3);
    const auto halves = [&](__m128i x) __attribute__((always_inline)) {
      const __m128i six = _mm_add_epi8(_mm_add_epi8(x, three), three);
      const __m256i y = _mm256_inserti128_si256(_mm256_castsi128_si256(x), six, 1);
      return join32(y, y);
    };
    const Bytes64 low_words = halves(first), high_words = halves(_mm_add_epi8(first, three));
    const Bytes64 up = broadcast16(_mm_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8));
    const Bytes64 table = broadcast16(_mm_setr_epi8(4, 5, 6, 8, 4, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int i = 0; i < 4; ++i) {
      const std::byte* q = p + 28 * i;
      const Bytes64 x = load16x4(q, q, q + 14, q + 14);
      const Bytes64 a = right16<13>(multiply16(lookup(x, low_words), up));
      const Bytes64 b = right16<13>(multiply16(lookup(x, high_words), up));
      levels[i] = lookup(table, pack16(a, b));
    }
    const __m256i scales = gather32<14>(p + 10);
    terms.scale = floats_of_ue4m3(byte_of(scales, 2));
    terms.second = floats_of_ue4m3(byte_of(scales, 3));
  }
};

/// Levels of two-bit codes: byte 4 i + j of x holds a byte of four codes, of which the j-th is wanted.
LOCKSTEP_INLINE Bytes64 lookup_two_bits(Bytes64 x, __m128i table) {
  const Bytes64 low = and64(x, set64(0x00000c0300000c03));
  const Bytes64 high = and64(right16<4>(x), set64(0x0c0300000c030000));
  return lookup(broadcast16(table), or64(low, high));  // indices 0..3 at even places, 0, 4, 8, 12 at odd ones
}
LOCKSTEP_INLINE __m128i two_bit_table(int a, int b, int c, int d) {
  const char w = static_cast<char>(a), x = static_cast<char>(b), y = static_cast<char>(c), z = static_cast<char>(d);
  return _mm_setr_epi8(w, x, y, z, x, 0, 0, 0, y, 0, 0, 0, z, 0, 0, 0);
}

LOCKSTEP_INLINE void load_two_bits(const std::byte* p, __m128i table, Bytes64 (&levels)[4]) {
  const __m128i ramp = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const auto at = [&](int byte) __attribute__((always_inline)) {
    return _mm_add_epi8(ramp, _mm_set1_epi8(static_cast<char>(byte)));
  };
  const Bytes64 spread = join32(_mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(4), 1),
                                _mm256_inserti128_si256(_mm256_castsi128_si256(at(8)), at(12), 1));
  for (int i = 0; i < 4; ++i) {
    const __m128i codes = bytes_of(load_u64(p + 20 * i), load_u64(p + 20 * i + 10));
    levels[i] = lookup_two_bits(lookup(broadcast16(codes), spread), table);
  }
}

struct UnpackRocmfp2 : UnpackRocmfp6 {
  static constexpr int kBytes = 80, kSpan = 80, kOffset = 1;
  static constexpr bool kSmall = true;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_two_bits(p, two_bit_table(0, 1, 2, 3), levels);
    load_scales(p, terms);
  }
  LOCKSTEP_INLINE static void load_scales(const std::byte* p, Terms& terms) {
    const __m256i scales = gather32<10>(p + 6);
    terms.scale = floats_of_ue4m3(byte_of(scales, 2));
    terms.second = floats_of_ue4m3(byte_of(scales, 3));
  }
};

struct UnpackRocmfp2S40 : UnpackRocmfp2 {
  static constexpr int kOffset = 4;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_two_bits(p, two_bit_table(0, 3, 5, 8), levels);
    load_scales(p, terms);
  }
};

struct UnpackRocmfp2Affine : UnpackRocmfp2 {
  static constexpr int kOffset = 0;
  static constexpr Term kTerm = Term::single;
  static constexpr Min kMin = Min::one;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte*, Bytes64 (&levels)[4], Terms& terms) {
    load_two_bits(p, two_bit_table(0, 1, 2, 3), levels);
    load_scales(p, terms);
    terms.min = terms.second;
  }
};

}  // namespace
}  // namespace lockstep::cpu
