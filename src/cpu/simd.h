// The vector types and operations that the kernels are written in, for the level that this file is compiled for.
//
// Bytes64 is 64 bytes as four lanes of 16, in one register (AVX-512) or two (AVX2); lookups and unpacking stay inside a
// lane. Eight floats or ints are one register in both levels. `Ints` and `Floats` are the widest registers, kWide
// elements. Everything is in an unnamed namespace and inlined by force: see kernels.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#if defined(__AVX512VBMI__)
#define LOCKSTEP_AVX512 1
#else
#define LOCKSTEP_AVX512 0
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

namespace lockstep::cpu {
namespace {

LOCKSTEP_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
LOCKSTEP_INLINE __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
LOCKSTEP_INLINE void store32(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
LOCKSTEP_INLINE std::uint16_t load_u16(const void* p) {
  std::uint16_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
LOCKSTEP_INLINE std::uint32_t load_u32(const void* p) {
  std::uint32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
LOCKSTEP_INLINE std::uint64_t load_u64(const void* p) {
  std::uint64_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
LOCKSTEP_INLINE float f16_at(const void* p) { return _cvtsh_ss(load_u16(p)); }
LOCKSTEP_INLINE __m128i bytes_of(std::uint64_t low, std::uint64_t high) {
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}
/// The low eight bytes as eight floats.
LOCKSTEP_INLINE __m256 floats_of_u8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
LOCKSTEP_INLINE __m256 floats_of_i8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

#if LOCKSTEP_AVX512

using Bytes64 = __m512i;

LOCKSTEP_INLINE Bytes64 load64(const void* p) { return _mm512_loadu_si512(p); }
LOCKSTEP_INLINE void store64(void* p, Bytes64 x) { _mm512_storeu_si512(p, x); }
LOCKSTEP_INLINE Bytes64 join32(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
LOCKSTEP_INLINE Bytes64 broadcast16(__m128i x) { return _mm512_broadcast_i32x4(x); }
LOCKSTEP_INLINE Bytes64 set8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
LOCKSTEP_INLINE Bytes64 set64(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
LOCKSTEP_INLINE Bytes64 and64(Bytes64 a, Bytes64 b) { return _mm512_and_si512(a, b); }
LOCKSTEP_INLINE Bytes64 or64(Bytes64 a, Bytes64 b) { return _mm512_or_si512(a, b); }
LOCKSTEP_INLINE Bytes64 xor64(Bytes64 a, Bytes64 b) { return _mm512_xor_si512(a, b); }
LOCKSTEP_INLINE Bytes64 add8(Bytes64 a, Bytes64 b) { return _mm512_add_epi8(a, b); }
LOCKSTEP_INLINE Bytes64 sub8(Bytes64 a, Bytes64 b) { return _mm512_sub_epi8(a, b); }
template <int N>
LOCKSTEP_INLINE Bytes64 right16(Bytes64 x) {
  return _mm512_srli_epi16(x, N);
}
template <int N>
LOCKSTEP_INLINE Bytes64 left16(Bytes64 x) {
  return _mm512_slli_epi16(x, N);
}
LOCKSTEP_INLINE Bytes64 right_each32(Bytes64 x, Bytes64 n) { return _mm512_srlv_epi32(x, n); }
LOCKSTEP_INLINE Bytes64 left_each32(Bytes64 x, Bytes64 n) { return _mm512_sllv_epi32(x, n); }
LOCKSTEP_INLINE Bytes64 multiply16(Bytes64 a, Bytes64 b) { return _mm512_mullo_epi16(a, b); }
LOCKSTEP_INLINE Bytes64 pack16(Bytes64 a, Bytes64 b) { return _mm512_packus_epi16(a, b); }
LOCKSTEP_INLINE Bytes64 lookup(Bytes64 table, Bytes64 index) { return _mm512_shuffle_epi8(table, index); }
LOCKSTEP_INLINE Bytes64 unpack_low64(Bytes64 a, Bytes64 b) { return _mm512_unpacklo_epi64(a, b); }
LOCKSTEP_INLINE Bytes64 unpack_high64(Bytes64 a, Bytes64 b) { return _mm512_unpackhi_epi64(a, b); }
/// x + value where bit i of `bits` is set.
LOCKSTEP_INLINE Bytes64 add_where(Bytes64 x, std::uint64_t bits, int value) {
  return _mm512_mask_add_epi8(x, bits, x, set8(value));
}
/// x + value where flags & mask is not 0.
LOCKSTEP_INLINE Bytes64 add_where_flagged(Bytes64 x, Bytes64 flags, Bytes64 mask, int value) {
  return _mm512_mask_add_epi8(x, _mm512_test_epi8_mask(flags, mask), x, set8(value));
}
/// 128 - x where bit i of `bits` is set: the negative of a level that has 64 added to it.
LOCKSTEP_INLINE Bytes64 mirror_where(Bytes64 x, std::uint64_t bits) {
  return _mm512_mask_sub_epi8(x, bits, set8(-128), x);
}
/// below where code < 32, otherwise above; code < 64.
LOCKSTEP_INLINE Bytes64 choose_below32(Bytes64 code, Bytes64 below, Bytes64 above) {
  return _mm512_mask_mov_epi8(below, _mm512_test_epi8_mask(code, set8(32)), above);
}

#else

struct Bytes64 {
  __m256i low, high;
};

LOCKSTEP_INLINE Bytes64 load64(const void* p) { return {load32(p), load32(static_cast<const std::byte*>(p) + 32)}; }
LOCKSTEP_INLINE void store64(void* p, Bytes64 x) {
  store32(p, x.low);
  store32(static_cast<std::byte*>(p) + 32, x.high);
}
LOCKSTEP_INLINE Bytes64 join32(__m256i low, __m256i high) { return {low, high}; }
LOCKSTEP_INLINE Bytes64 both(__m256i x) { return {x, x}; }
LOCKSTEP_INLINE Bytes64 broadcast16(__m128i x) { return both(_mm256_broadcastsi128_si256(x)); }
LOCKSTEP_INLINE Bytes64 set8(int x) { return both(_mm256_set1_epi8(static_cast<char>(x))); }
LOCKSTEP_INLINE Bytes64 set64(std::uint64_t x) { return both(_mm256_set1_epi64x(static_cast<long long>(x))); }
#define LOCKSTEP_EACH(name, op) \
  LOCKSTEP_INLINE Bytes64 name(Bytes64 a, Bytes64 b) { return {op(a.low, b.low), op(a.high, b.high)}; }
LOCKSTEP_EACH(and64, _mm256_and_si256)
LOCKSTEP_EACH(or64, _mm256_or_si256)
LOCKSTEP_EACH(xor64, _mm256_xor_si256)
LOCKSTEP_EACH(add8, _mm256_add_epi8)
LOCKSTEP_EACH(sub8, _mm256_sub_epi8)
LOCKSTEP_EACH(right_each32, _mm256_srlv_epi32)
LOCKSTEP_EACH(left_each32, _mm256_sllv_epi32)
LOCKSTEP_EACH(multiply16, _mm256_mullo_epi16)
LOCKSTEP_EACH(pack16, _mm256_packus_epi16)
LOCKSTEP_EACH(lookup, _mm256_shuffle_epi8)
LOCKSTEP_EACH(unpack_low64, _mm256_unpacklo_epi64)
LOCKSTEP_EACH(unpack_high64, _mm256_unpackhi_epi64)
#undef LOCKSTEP_EACH
template <int N>
LOCKSTEP_INLINE Bytes64 right16(Bytes64 x) {
  return {_mm256_srli_epi16(x.low, N), _mm256_srli_epi16(x.high, N)};
}
template <int N>
LOCKSTEP_INLINE Bytes64 left16(Bytes64 x) {
  return {_mm256_slli_epi16(x.low, N), _mm256_slli_epi16(x.high, N)};
}
/// A byte of ones for every bit that is set.
LOCKSTEP_INLINE __m256i spread_bits(std::uint32_t bits) {
  const __m256i select = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i one_bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), select);
  return _mm256_cmpeq_epi8(_mm256_and_si256(x, one_bit), one_bit);
}
LOCKSTEP_INLINE Bytes64 spread_bits64(std::uint64_t bits) {
  return {spread_bits(static_cast<std::uint32_t>(bits)), spread_bits(static_cast<std::uint32_t>(bits >> 32))};
}
LOCKSTEP_INLINE Bytes64 add_where(Bytes64 x, std::uint64_t bits, int value) {
  return add8(x, and64(spread_bits64(bits), set8(value)));
}
LOCKSTEP_INLINE Bytes64 add_where_flagged(Bytes64 x, Bytes64 flags, Bytes64 mask, int value) {
  const __m256i zero = _mm256_setzero_si256();
  const Bytes64 f = and64(flags, mask);
  const Bytes64 v = set8(value);
  return add8(x, {_mm256_andnot_si256(_mm256_cmpeq_epi8(f.low, zero), v.low),
                  _mm256_andnot_si256(_mm256_cmpeq_epi8(f.high, zero), v.high)});
}
LOCKSTEP_INLINE Bytes64 mirror_where(Bytes64 x, std::uint64_t bits) {
  const Bytes64 m = spread_bits64(bits);
  return add8(sub8(xor64(x, m), m), and64(m, set8(-128)));
}
LOCKSTEP_INLINE Bytes64 choose_below32(Bytes64 code, Bytes64 below, Bytes64 above) {
  const __m256i limit = _mm256_set1_epi8(31);
  return {_mm256_blendv_epi8(below.low, above.low, _mm256_cmpgt_epi8(code.low, limit)),
          _mm256_blendv_epi8(below.high, above.high, _mm256_cmpgt_epi8(code.high, limit))};
}

#endif

LOCKSTEP_INLINE Bytes64 load32x2(const void* a, const void* b) { return join32(load32(a), load32(b)); }
LOCKSTEP_INLINE Bytes64 load16x4(const void* a, const void* b, const void* c, const void* d) {
  return join32(_mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1),
                _mm256_inserti128_si256(_mm256_castsi128_si256(load16(c)), load16(d), 1));
}
LOCKSTEP_INLINE Bytes64 low_nibbles(Bytes64 x) { return and64(x, set8(15)); }
LOCKSTEP_INLINE Bytes64 high_nibbles(Bytes64 x) { return and64(right16<4>(x), set8(15)); }

// ---- Dots of bytes
// ---------------------------------------------------------------------------------------------------

/// The sums of eight blocks over values 0..15 and over values 16..31 of each.
struct HalfSums {
  __m256i first, second;
};

/// Element j of lane l of the four-way reduction below belongs to the group that fills lane l of levels[j].
struct GroupOrder {
  std::int32_t position[16];  // where the groups 0, 2, 4, .. 14, 1, 3, .. 15 lie after the reduction
};
/// From group[4 * i + l], the group of 16 values (2 * block + half) in lane l of levels[i].
constexpr GroupOrder order_of_groups(const int (&group)[16]) {
  GroupOrder order{};
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 4; ++l) {
      const int g = group[4 * i + l];
      order.position[g / 2 + 8 * (g % 2)] = 4 * l + i;
    }
  return order;
}

#if LOCKSTEP_AVX512

/// acc + the dot of each four neighbouring bytes; levels unsigned (kSigned: int8, for which 128 is added: the caller
/// takes 128 times the sum of the codes off), codes int8.
inline constexpr bool kSignedNeedsOffset = true;
template <bool kSigned>
LOCKSTEP_INLINE __m512i dot4(__m512i acc, __m512i levels, __m512i codes) {
  return _mm512_dpbusd_epi32(acc, levels, codes);
}
template <bool kSigned>
LOCKSTEP_INLINE Bytes64 as_unsigned(Bytes64 levels) {
  return kSigned ? xor64(levels, set8(-128)) : levels;
}

/// The sums of the groups of 16. kSmall: levels are at most 32, so that sums of eight products fit 16 bits and the
/// reduction may pack them, which takes half the shuffles.
template <bool kSigned, bool kSmall>
LOCKSTEP_INLINE HalfSums half_sums_of(const Bytes64 (&levels)[4], const std::int8_t* codes, const GroupOrder& order) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i a = dot4<kSigned>(zero, levels[0], load64(codes));
  const __m512i b = dot4<kSigned>(zero, levels[1], load64(codes + 64));
  const __m512i c = dot4<kSigned>(zero, levels[2], load64(codes + 128));
  const __m512i d = dot4<kSigned>(zero, levels[3], load64(codes + 192));
  __m512i all;
  if constexpr (kSmall) {
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i ab = _mm512_madd_epi16(_mm512_packs_epi32(a, b), one),
                  cd = _mm512_madd_epi16(_mm512_packs_epi32(c, d), one);
    all = _mm512_madd_epi16(_mm512_packs_epi32(ab, cd), one);
  } else {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
  const __m512i sorted = _mm512_permutexvar_epi32(load64(order.position), all);
  return {_mm512_castsi512_si256(sorted), _mm512_extracti64x4_epi64(sorted, 1)};
}

#else

inline constexpr bool kSignedNeedsOffset = false;
/// vpmaddubsw saturates at 16 bits: two products of levels up to 127 (or of magnitudes up to 128) and codes up to 127
/// fit.
template <bool kSigned>
LOCKSTEP_INLINE __m256i dot4(__m256i acc, __m256i levels, __m256i codes) {
  const __m256i pairs = kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(levels), _mm256_sign_epi8(codes, levels))
                                : _mm256_maddubs_epi16(levels, codes);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
template <bool kSigned>
LOCKSTEP_INLINE Bytes64 as_unsigned(Bytes64 levels) {
  return levels;
}

template <bool kSigned>
LOCKSTEP_INLINE __m256i dot_of_32(__m256i levels, const std::int8_t* codes) {
  return dot4<kSigned>(_mm256_setzero_si256(), levels, load32(codes));
}
template <bool kSmall>
LOCKSTEP_INLINE __m256i add_neighbours(__m256i a, __m256i b) {
  return kSmall ? _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1)) : _mm256_hadd_epi32(a, b);
}
template <bool kSigned, bool kSmall>
LOCKSTEP_INLINE HalfSums half_sums_of(const Bytes64 (&levels)[4], const std::int8_t* codes, const GroupOrder& order) {
  const __m256i low = add_neighbours<kSmall>(
      add_neighbours<kSmall>(dot_of_32<kSigned>(levels[0].low, codes), dot_of_32<kSigned>(levels[1].low, codes + 64)),
      add_neighbours<kSmall>(dot_of_32<kSigned>(levels[2].low, codes + 128),
                             dot_of_32<kSigned>(levels[3].low, codes + 192)));
  const __m256i high = add_neighbours<kSmall>(add_neighbours<kSmall>(dot_of_32<kSigned>(levels[0].high, codes + 32),
                                                                     dot_of_32<kSigned>(levels[1].high, codes + 96)),
                                              add_neighbours<kSmall>(dot_of_32<kSigned>(levels[2].high, codes + 160),
                                                                     dot_of_32<kSigned>(levels[3].high, codes + 224)));
  const auto pick = [&](__m256i position) __attribute__((always_inline)) {
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, position)),
                                                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, position)),
                                                _mm256_castsi256_ps(_mm256_slli_epi32(position, 28))));
  };
  return {pick(load32(order.position)), pick(load32(order.position + 8))};
}

#endif

// ---- The widest registers: one element a row
// -------------------------------------------------------------------------

#if LOCKSTEP_AVX512

using Ints = __m512i;
using Floats = __m512;
inline constexpr int kWide = 16;
LOCKSTEP_INLINE Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
LOCKSTEP_INLINE Ints set_ints(std::int32_t x) { return _mm512_set1_epi32(x); }
LOCKSTEP_INLINE Floats load_floats(const void* p) { return _mm512_loadu_ps(p); }
LOCKSTEP_INLINE void store_floats(void* p, Floats x) { _mm512_storeu_ps(p, x); }
LOCKSTEP_INLINE Floats set_floats(float x) { return _mm512_set1_ps(x); }
LOCKSTEP_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
LOCKSTEP_INLINE Floats bits_as_floats(Ints x) { return _mm512_castsi512_ps(x); }
LOCKSTEP_INLINE Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
LOCKSTEP_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
LOCKSTEP_INLINE Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
LOCKSTEP_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
LOCKSTEP_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
LOCKSTEP_INLINE Ints dot2(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }

#else

using Ints = __m256i;
using Floats = __m256;
inline constexpr int kWide = 8;
LOCKSTEP_INLINE Ints load_ints(const void* p) { return load32(p); }
LOCKSTEP_INLINE Ints set_ints(std::int32_t x) { return _mm256_set1_epi32(x); }
LOCKSTEP_INLINE Floats load_floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
LOCKSTEP_INLINE void store_floats(void* p, Floats x) { _mm256_storeu_ps(static_cast<float*>(p), x); }
LOCKSTEP_INLINE Floats set_floats(float x) { return _mm256_set1_ps(x); }
LOCKSTEP_INLINE Floats zero_floats() { return _mm256_setzero_ps(); }
LOCKSTEP_INLINE Floats bits_as_floats(Ints x) { return _mm256_castsi256_ps(x); }
LOCKSTEP_INLINE Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
LOCKSTEP_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
LOCKSTEP_INLINE Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
LOCKSTEP_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
LOCKSTEP_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
LOCKSTEP_INLINE Ints dot2(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }

#endif

/// Lane sums in columns of eight, added as fold() does: numerics/order.h.
LOCKSTEP_INLINE float add_columns(__m256 columns) {
  alignas(32) float column[8];
  _mm256_store_ps(column, columns);
  float total = column[0];
  for (int c = 1; c < 8; ++c) total = total + column[c];
  return total;
}

}  // namespace
}  // namespace lockstep::cpu
