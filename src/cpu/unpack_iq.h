// Unpacking of the IQ formats: points of a grid, with separate signs. See unpack.h.
//
// The grids are stored as packed words (tensor/tables.h). setup_grid expands one into scratch, a byte an element with
// the format's offset added, once a call: a point is then one load. Negating a level is mirroring its byte.
#pragma once

#include "cpu/unpack.h"
#include "cpu/unpack_k.h"
#include "tensor/tables.h"

namespace lockstep::cpu {
namespace {

/// Bytes of the points of a grid in scratch, kGridBytes at most.
inline void setup_grid(Grid grid, std::byte* to) {
  const auto expand8 = [&](const std::uint16_t* words, int count, std::uint64_t table) {
    for (int i = 0; i < count; ++i) {
      const __m128i codes = bytes_of(_pdep_u64(words[i], 0x0303030303030303), 0);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 8 * i), _mm_shuffle_epi8(bytes_of(table, 0), codes));
    }
  };
  const auto expand4 = [&](const std::uint16_t* words, int count, std::uint64_t table) {
    for (int i = 0; i < count; ++i) {
      const __m128i codes = bytes_of(_pdep_u64(words[i], 0x07070707), 0);
      const int four = _mm_cvtsi128_si32(_mm_shuffle_epi8(bytes_of(table, 0), codes));
      __builtin_memcpy(to + 4 * i, &four, sizeof four);
    }
  };
  constexpr std::uint64_t iq2 = 72 | 89 << 8 | 107 << 16;  // 64 + {8, 25, 43}
  switch (grid) {
    case Grid::none:
      break;
    case Grid::iq2_xxs:
      expand8(kGridIq2Xxs, 256, iq2);
      break;
    case Grid::iq2_xs:
      expand8(kGridIq2Xs, 512, iq2);
      break;
    case Grid::iq2_s:
      expand8(kGridIq2S, 1024, iq2);
      break;
    case Grid::iq3_xxs:
      expand4(kGridIq3Xxs, 256, 0x7e746c645c544c44);
      break;  // 64 + {4, 12, 20, 28, 36, 44, 52, 62}
    case Grid::iq3_s:
      expand4(kGridIq3S, 512, 0x4f4d4b4947454341);
      break;  // 64 + {1, 3, .. 15}
    case Grid::iq1:
      expand8(kGridIq1, 2048, 8 | 16 << 8 | 24 << 16);
      break;  // 16 + 8 * {-1, 0, 1}
  }
}

/// Eight points of eight bytes.
LOCKSTEP_INLINE Bytes64 points8(const std::byte* grid, const std::uint16_t* index) {
#if LOCKSTEP_AVX512
  return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), 0xff, _mm512_cvtepu16_epi64(load16(index)), grid, 8);
#else
  const auto pair = [&](int i) __attribute__((always_inline)) {
    return bytes_of(load_u64(grid + 8 * index[i]), load_u64(grid + 8 * index[i + 1]));
  };
  return join32(_mm256_inserti128_si256(_mm256_castsi128_si256(pair(0)), pair(2), 1),
                _mm256_inserti128_si256(_mm256_castsi128_si256(pair(4)), pair(6), 1));
#endif
}

/// Sixteen points of four bytes.
LOCKSTEP_INLINE Bytes64 points4(const std::byte* grid, const std::uint16_t* index) {
#if LOCKSTEP_AVX512
  return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, _mm512_cvtepu16_epi32(load32(index)), grid, 4);
#else
  const auto four = [&](int i) __attribute__((always_inline)) {
    const auto at = [&](int j) __attribute__((always_inline)) {
      return static_cast<int>(load_u32(grid + 4 * index[i + j]));
    };
    return _mm_setr_epi32(at(0), at(1), at(2), at(3));
  };
  return join32(_mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1),
                _mm256_inserti128_si256(_mm256_castsi128_si256(four(8)), four(12), 1));
#endif
}

/// The matrix that turns seven sign bits into eight: row i, from the top byte on, says which bits are added (without
/// carry) into bit i.
constexpr std::uint64_t kEvenSigns = 0x010204081020407f;

/// Seven sign bits in each byte to eight: bit 7 makes their number even. Bit 7 of the input is ignored.
LOCKSTEP_INLINE __m256i even_signs32(__m256i x) {
#if LOCKSTEP_AVX512
  return _mm256_gf2p8affine_epi64_epi8(x, _mm256_set1_epi64x(kEvenSigns), 0);
#else
  const __m256i parity = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i seven = _mm256_and_si256(x, _mm256_set1_epi8(0x7f));
  const __m256i low = _mm256_shuffle_epi8(parity, _mm256_and_si256(seven, nibble));
  const __m256i high = _mm256_shuffle_epi8(parity, _mm256_and_si256(_mm256_srli_epi16(seven, 4), nibble));
  return _mm256_or_si256(seven, _mm256_xor_si256(low, high));
#endif
}

/// The four sign masks of seven bits in the low 28 bits of each of eight words, as 32 masks of eight.
LOCKSTEP_INLINE __m256i signs_of_words(__m256i words) {
  const auto field = [&](int i) __attribute__((always_inline)) {
    return _mm256_and_si256(_mm256_slli_epi32(words, i), _mm256_set1_epi32(0x7f << (8 * i)));
  };
  return even_signs32(_mm256_or_si256(_mm256_or_si256(field(0), field(1)), _mm256_or_si256(field(2), field(3))));
}

LOCKSTEP_INLINE void apply_signs(__m256i signs, Bytes64 (&levels)[4]) {
  alignas(32) std::uint64_t bits[4];
  store32(bits, signs);
  for (int i = 0; i < 4; ++i) levels[i] = mirror_where(levels[i], bits[i]);
}

/// Odd sub-scales 2 s + 1 of eight blocks, s in the low 32-bit elements.
LOCKSTEP_INLINE __m256 odd_scales(__m256i s) {
  return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1)));
}
/// The same of 16 groups of 16 values, s in the nibbles of eight bytes; first and second halves apart.
LOCKSTEP_INLINE void set_odd_scales16(std::uint64_t nibbles, float factor, Terms& terms) {
  const std::uint64_t mask = 0x0f0f0f0f0f0f0f0f;
  terms.scale = odd_scales(_mm256_cvtepu8_epi32(bytes_of(nibbles & mask, 0)));
  terms.second = odd_scales(_mm256_cvtepu8_epi32(bytes_of(nibbles >> 4 & mask, 0)));
  terms.factor = _mm256_set1_ps(factor);
}

struct UnpackIq : UnpackK {
  static constexpr bool kSmall = false;
  static constexpr int kOffset = 64;
  static constexpr int kGroup[16] = LOCKSTEP_ROW_ORDER;
};

struct UnpackIq2Xxs : UnpackIq {
  static constexpr int kBytes = 66, kSpan = 66;
  static constexpr Grid kGrid = Grid::iq2_xxs;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    const float d = f16_at(p) * 0.125f;
#if LOCKSTEP_AVX512
    // 64-bit elements of four index bytes and a word. The sign fields are cut out where they stand and spread over the
    // bytes of their points: through mask registers, a mask of two blocks at a time.
    const Bytes64 all = load64(p + 2);
    const Bytes64 fields = _mm512_multishift_epi64_epi8(set64(0x352e2720), all);
    const Bytes64 signs = _mm512_gf2p8affine_epi64_epi8(fields, set64(kEvenSigns), 0);
    for (int i = 0; i < 4; ++i) {
      const __m512i pick = _mm512_add_epi8(_mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11), _mm512_set1_epi64(16 * i));
      const __m512i index = _mm512_maskz_permutexvar_epi8(0x0101010101010101, pick, all);
      const Bytes64 points = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), 0xff, index, grid, 8);
      const __m512i owner = _mm512_add_epi8(
          _mm512_setr_epi64(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303, 0x0808080808080808,
                            0x0909090909090909, 0x0a0a0a0a0a0a0a0a, 0x0b0b0b0b0b0b0b0b),
          set8(16 * i));
      const Bytes64 spread = _mm512_permutexvar_epi8(owner, signs);
      levels[i] = mirror_where(points, _mm512_test_epi8_mask(spread, set64(0x8040201008040201)));
    }
    const __m256i scales = _mm512_cvtepi64_epi32(_mm512_srli_epi64(all, 60));
    terms.scale = _mm256_mul_ps(odd_scales(scales), _mm256_set1_ps(d));
#else
    const __m256i a = load32(p + 2), b = load32(p + 34);
    const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8);
    for (int i = 0; i < 4; ++i) {
      const auto pair = [&](int at) __attribute__((always_inline)) {
        const std::uint32_t two = load_u16(p + 2 + 16 * i + at);
        return bytes_of(load_u64(grid + 8 * (two & 255)), load_u64(grid + 8 * (two >> 8)));
      };
      levels[i] = join32(_mm256_inserti128_si256(_mm256_castsi128_si256(pair(0)), pair(2), 1),
                         _mm256_inserti128_si256(_mm256_castsi128_si256(pair(8)), pair(10), 1));
    }
    apply_signs(signs_of_words(words), levels);
    terms.scale = _mm256_mul_ps(odd_scales(_mm256_srli_epi32(words, 28)), _mm256_set1_ps(d));
#endif
  }
};

struct UnpackIq2Xs : UnpackIq {
  static constexpr int kBytes = 74, kSpan = 74;
  static constexpr Term kTerm = Term::sub;
  static constexpr Grid kGrid = Grid::iq2_xs;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[32];
    const __m256i a = load32(p + 2), b = load32(p + 34);
    const __m256i nine = _mm256_set1_epi16(511);
    store32(index, _mm256_and_si256(a, nine));
    store32(index + 16, _mm256_and_si256(b, nine));
    for (int i = 0; i < 4; ++i) levels[i] = points8(grid, index + 8 * i);
    const __m256i signs = _mm256_packus_epi16(_mm256_srli_epi16(a, 9), _mm256_srli_epi16(b, 9));
    apply_signs(even_signs32(_mm256_permute4x64_epi64(signs, 0xd8)), levels);
    set_odd_scales16(load_u64(p + 66), f16_at(p) * 0.125f, terms);
  }
};

struct UnpackIq2S : UnpackIq {
  static constexpr int kBytes = 82, kSpan = 82;
  static constexpr Term kTerm = Term::sub;
  static constexpr Grid kGrid = Grid::iq2_s;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[32];
    const std::uint64_t high = load_u64(p + 66);
    for (int i = 0; i < 2; ++i) {
      // Two bits a point, 32 bits for 16 points: spread over 16-bit words, then moved to bit 8.
      const __m128i pairs = bytes_of(_pdep_u64(high >> (32 * i), 0x0303030303030303),
                                     _pdep_u64(high >> (32 * i + 16), 0x0303030303030303));
      const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(pairs), 8);
      store32(index + 16 * i, _mm256_or_si256(_mm256_cvtepu8_epi16(load16(p + 2 + 16 * i)), upper));
    }
    for (int i = 0; i < 4; ++i) levels[i] = points8(grid, index + 8 * i);
    apply_signs(load32(p + 34), levels);
    set_odd_scales16(load_u64(p + 74), f16_at(p) * 0.125f, terms);
  }
};

struct UnpackIq3Xxs : UnpackIq {
  static constexpr int kBytes = 98, kSpan = 98;
  static constexpr Grid kGrid = Grid::iq3_xxs;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[64];
    for (int i = 0; i < 4; ++i) {
      store32(index + 16 * i, _mm256_cvtepu8_epi16(load16(p + 2 + 16 * i)));
      levels[i] = points4(grid, index + 16 * i);
    }
    const __m256i words = load32(p + 66);
    apply_signs(signs_of_words(words), levels);
    terms.scale = _mm256_mul_ps(odd_scales(_mm256_srli_epi32(words, 28)), _mm256_set1_ps(f16_at(p) * 0.25f));
  }
};

struct UnpackIq3S : UnpackIq {
  static constexpr int kBytes = 110, kSpan = 110;
  static constexpr Grid kGrid = Grid::iq3_s;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[64];
    for (int i = 0; i < 4; ++i) {
      const __m128i one = _mm_set1_epi8(1);
      const std::uint32_t high = load_u16(p + 66 + 2 * i);
      const __m128i bits = _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(high)),
                                            _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
      const __m128i select = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
      const __m128i ninth = _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(bits, select), select), one);
      const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(ninth), 8);
      store32(index + 16 * i, _mm256_or_si256(_mm256_cvtepu8_epi16(load16(p + 2 + 16 * i)), upper));
      levels[i] = points4(grid, index + 16 * i);
    }
    apply_signs(load32(p + 74), levels);
    const __m128i scales = bytes_of(_pdep_u64(load_u32(p + 106), 0x0f0f0f0f0f0f0f0f), 0);
    terms.scale = _mm256_mul_ps(odd_scales(_mm256_cvtepu8_epi32(scales)), _mm256_set1_ps(f16_at(p)));
  }
};

/// Levels 8 * grid + delta, delta = 1 or -1.
struct UnpackIq1S : UnpackIq {
  static constexpr int kBytes = 50, kSpan = 50, kOffset = 16;
  static constexpr bool kSmall = true;
  static constexpr Grid kGrid = Grid::iq1;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[32];
    const __m128i words = load16(p + 34);
    for (int b = 0; b < 8; ++b) {
      const std::uint64_t word = load_u16(p + 34 + 2 * b);
      const std::uint64_t low = _pdep_u64(load_u32(p + 2 + 4 * b), 0x00ff00ff00ff00ff);
      const std::uint64_t four = low | _pdep_u64(word, 0x0700070007000700);
      __builtin_memcpy(index + 4 * b, &four, sizeof four);
    }
    const std::uint64_t negative =
        static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(words, words))) & 255u);
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t first = negative >> (2 * i) & 1, second = negative >> (2 * i + 1) & 1;
      const std::uint64_t bits = first * 0xffffffff | (second * 0xffffffff) << 32;
      levels[i] = add_where(add8(points8(grid, index + 8 * i), set8(1)), bits, -2);
    }
    const __m256i s = _mm256_and_si256(_mm256_cvtepu16_epi32(_mm_srli_epi16(words, 12)), _mm256_set1_epi32(7));
    terms.scale = _mm256_mul_ps(odd_scales(s), _mm256_set1_ps(f16_at(p) * 0.125f));
  }
};

struct UnpackIq1M : UnpackIq {
  static constexpr int kBytes = 56, kSpan = 56, kOffset = 16;
  static constexpr bool kSmall = true;
  static constexpr Term kTerm = Term::sub;
  static constexpr Grid kGrid = Grid::iq1;
  LOCKSTEP_INLINE static void unpack(const std::byte* p, const std::byte* grid, Bytes64 (&levels)[4], Terms& terms) {
    alignas(32) std::uint16_t index[32];
    for (int b = 0; b < 8; ++b) {
      const std::uint64_t high = load_u16(p + 32 + 2 * b);
      const std::uint64_t four = _pdep_u64(load_u32(p + 4 * b), 0x00ff00ff00ff00ff) |
                                 (_pdep_u64(high, 0x000f000f000f000f) & 0x0007000700070007) << 8;
      __builtin_memcpy(index + 4 * b, &four, sizeof four);
    }
    for (int i = 0; i < 4; ++i) {
      // One sign of delta for eight values.
      const std::uint64_t eight = _pext_u64(load_u32(p + 32 + 4 * i), 0x88888888);
      const std::uint64_t bits = _pdep_u64(eight, 0x0101010101010101) * 255;
      levels[i] = add_where(add8(points8(grid, index + 8 * i), set8(1)), bits, -2);
    }
    const std::uint64_t words = load_u64(p + 48);
    const std::uint64_t scales = _pext_u64(words, 0x0fff0fff0fff0fff);  // 16 x three bits
    const std::uint64_t first = _pdep_u64(_pext_u64(scales, 0x1c71c71c71c7), 0x0707070707070707);
    const std::uint64_t second = _pdep_u64(_pext_u64(scales, 0xe38e38e38e38), 0x0707070707070707);
    terms.scale = odd_scales(_mm256_cvtepu8_epi32(bytes_of(first, 0)));
    terms.second = odd_scales(_mm256_cvtepu8_epi32(bytes_of(second, 0)));
    const std::uint16_t d = static_cast<std::uint16_t>(_pext_u64(words, 0xf000f000f000f000));
    terms.factor = _mm256_set1_ps(_cvtsh_ss(d) * 0.125f);
  }
};

}  // namespace
}  // namespace lockstep::cpu
