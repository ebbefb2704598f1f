// Quantised rows times few tokens: a row is unpacked 256 values at a time and multiplied with every token's codes.
//
// Eight consecutive blocks are eight consecutive lanes of the law, so their terms are one vector and enter the lanes
// by one fma without a shuffle: superblock j of a chunk goes to accumulator j % (lanes / 8), and fold's columns are the
// elements of the accumulators' sum. One token is bound by memory where unpacking allows: Q8_0 has about 58 cycles for
// the 272 bytes of a superblock at 14 GB/s a core, IQ2_XXS 14 cycles for 66 bytes, which no lookup can meet.
#include "cpu/formats.h"
#include "cpu/kernels.h"
#include "numerics/order.h"

namespace lockstep::cpu {
namespace {

/// How far ahead weights are asked for. Into the second-level cache: the few fill buffers of the first one limit a core
/// to less than memory gives (Q8_0 9.4 to 11.6 GB/s of one core with 4096 and T1 instead of 2048 and T0, same machine).
constexpr int kAhead = 4096;

/// What a token brings to one superblock, in the format's order: made once a call.
struct alignas(64) Prepared {
  std::int8_t codes[kSuperblock];
  float scales[8];
  std::int32_t
      correction[2][8];  // offset * sum of the codes, of the first and of the second halves; [0]: of both (single)
  float sums[8];         // Min::one: sum of the codes
  std::int16_t half_sums[16];  // Min::two: of both halves
};

template <class Format>
void prepare(const MatmulCall& call, int token, Prepared* prepared) {
  const int row = call.in_rows[token];
  const std::int8_t* codes = call.codes + row * call.codes_stride;
  const float* scales = call.scales + row * (call.codes_stride / 32);
  const std::int16_t* half_sums = call.half_sums + row * (call.codes_stride / 16);
  const int blocks = call.width / 32;
  for (int first = 0; first < blocks; first += 8, ++prepared) {
    const int count = blocks - first < 8 ? blocks - first : 8;
    if (count < 8) __builtin_memset(static_cast<void*>(prepared), 0, sizeof *prepared);
    for (int i = 0; i < 16; ++i) {
      const int group = Format::kGroup[i];
      if (group < 2 * count)
        _mm_store_si128(reinterpret_cast<__m128i*>(prepared->codes + 16 * i), load16(codes + 32 * first + 16 * group));
    }
    for (int b = 0; b < count; ++b) {
      prepared->scales[b] = scales[first + b];
      const std::int32_t s0 = half_sums[2 * (first + b)], s1 = half_sums[2 * (first + b) + 1];
      const bool joined = Format::kTerm == Term::single;
      prepared->correction[0][b] = kByteOffset<Format> * (joined ? s0 + s1 : s0);
      prepared->correction[1][b] = kByteOffset<Format> * s1;
      prepared->sums[b] = static_cast<float>(s0 + s1);
      prepared->half_sums[2 * b] = half_sums[2 * (first + b)];
      prepared->half_sums[2 * b + 1] = half_sums[2 * (first + b) + 1];
    }
  }
}

/// The terms of eight blocks with one token.
template <class Format>
LOCKSTEP_INLINE __m256 terms_of(const HalfSums& dots, const Terms& terms, const Prepared& token) {
  const auto correction = [&](int half) __attribute__((always_inline)) { return load32(token.correction[half]); };
  __m256 t;
  if constexpr (Format::kTerm == Term::single) {
    __m256i sum = _mm256_add_epi32(dots.first, dots.second);
    if constexpr (kByteOffset<Format> != 0) sum = _mm256_sub_epi32(sum, correction(0));
    t = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), terms.scale);
  } else {
    const auto corrected = [&](__m256i dot, int half) __attribute__((always_inline)) {
      return _mm256_cvtepi32_ps(kByteOffset<Format> != 0 ? _mm256_sub_epi32(dot, correction(half)) : dot);
    };
    const __m256 first = corrected(dots.first, 0), second = corrected(dots.second, 1);
    t = _mm256_fmadd_ps(second, terms.second, _mm256_mul_ps(first, terms.scale));
    if constexpr (Format::kTerm == Term::sub) t = _mm256_mul_ps(t, terms.factor);
  }
  if constexpr (Format::kMin == Min::one) {
    t = _mm256_fnmadd_ps(_mm256_load_ps(token.sums), terms.min, t);
  } else if constexpr (Format::kMin == Min::two) {
    const __m256 m = _mm256_cvtepi32_ps(_mm256_madd_epi16(terms.min_pairs, load32(token.half_sums)));
    t = _mm256_fnmadd_ps(m, terms.min_factor, t);
  }
  return t;
}

/// Accumulators of one chunk: vector v of a token holds lanes 8 v to 8 v + 7.
template <int kTokens>
struct Lanes {
  alignas(64) float lane[kTokens][4][8];
};

/// Adds the terms of the superblock at `p`, number `s` of the row, to the lanes. `exists` is the count of its blocks.
template <class Format, int kTokens>
LOCKSTEP_INLINE void add_superblock(const std::byte* p, const std::byte* grid, const Prepared* token,
                                    std::ptrdiff_t stride, int vector, int exists, Lanes<kTokens>& lanes) {
  alignas(64) static constexpr GroupOrder kOrder = order_of_groups(Format::kGroup);
  Bytes64 levels[4];
  Terms terms;
  Format::unpack(p, grid, levels, terms);
  for (Bytes64& x : levels) x = as_unsigned<Format::kSigned>(x);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t, token += stride) {
    const HalfSums dots = half_sums_of<Format::kSigned, Format::kSmall>(levels, token->codes, kOrder);
    const __m256 term = terms_of<Format>(dots, terms, *token);
    float* lane = lanes.lane[t][vector];
    const __m256 before = _mm256_load_ps(lane);
    __m256 after = _mm256_fmadd_ps(term, _mm256_load_ps(token->scales), before);
    if (exists < 8) {  // what does not exist may not even touch the sign of a zero
      const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(exists), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
      after = _mm256_blendv_ps(before, after, _mm256_castsi256_ps(mask));
    }
    _mm256_store_ps(lane, after);
  }
}

/// The same for a superblock that is not whole, or that unpacking would read past: through a copy. Apart, because the
/// choice between two addresses in the loop costs IQ2_XXS a fifth of its speed.
template <class Format, int kTokens>
__attribute__((noinline)) void add_last(const std::byte* p, const std::byte* grid, const Prepared* token,
                                        std::ptrdiff_t stride, int vector, int blocks, const std::byte* plane_end,
                                        Lanes<kTokens>& lanes) {
  alignas(64) std::byte copy[kMaxSpan];
  add_superblock<Format>(readable<Format>(p, blocks, plane_end, copy), grid, token, stride, vector,
                         blocks < 8 ? blocks : 8, lanes);
}

/// Rows [begin, end) times kTokens tokens from `first_token` on.
template <class Format, int kTokens>
void multiply_rows(const MatmulCall& call, const Prepared* prepared, std::ptrdiff_t stride, const std::byte* grid,
                   int first_token) {
  const int superblocks = (call.width + kSuperblock - 1) / kSuperblock;
  for (int r = call.begin; r < call.end; ++r) {
    const std::byte* row = call.plane + static_cast<std::size_t>(r) * call.row_bytes;
    const std::ptrdiff_t readable_bytes = call.plane_end - row;
    const std::ptrdiff_t touched =
        readable_bytes < Format::kSpan ? 0 : (readable_bytes - Format::kSpan) / Format::kBytes + 1;
    const std::ptrdiff_t whole = touched < call.width / kSuperblock ? touched : call.width / kSuperblock;
    float total[kTokens];
    for (int begin = 0; begin < superblocks; begin += kChunk / kSuperblock) {
      const int end = superblocks - begin < kChunk / kSuperblock ? superblocks : begin + kChunk / kSuperblock;
      const int length = call.width - begin * kSuperblock < kChunk ? call.width - begin * kSuperblock : kChunk;
      const int vectors = length >= 4096 ? 2 : 1;  // block_lanes_of(length) / 8
      Lanes<kTokens> lanes;
      for (int t = 0; t < kTokens; ++t)
        for (int v = 0; v < 4; ++v) _mm256_store_ps(lanes.lane[t][v], _mm256_setzero_ps());
      const std::byte* p = row + static_cast<std::ptrdiff_t>(begin) * Format::kBytes;
      int s = begin;
      for (; s < end && s < whole; ++s, p += Format::kBytes) {
        for (int line = 0; line < Format::kBytes; line += 64)
          _mm_prefetch(reinterpret_cast<const char*>(p) + kAhead + line, _MM_HINT_T1);
        add_superblock<Format>(p, grid, prepared + s, stride, s & (vectors - 1), 8, lanes);
      }
      for (; s < end; ++s, p += Format::kBytes)
        add_last<Format>(p, grid, prepared + s, stride, s & (vectors - 1), call.width / 32 - 8 * s, call.plane_end,
                         lanes);
      for (int t = 0; t < kTokens; ++t) {
        __m256 columns = _mm256_load_ps(lanes.lane[t][0]);
        for (int v = 1; v < vectors; ++v) columns = _mm256_add_ps(columns, _mm256_load_ps(lanes.lane[t][v]));
        const float sum = add_columns(columns);
        total[t] = begin == 0 ? sum : total[t] + sum;
      }
    }
    for (int t = 0; t < kTokens; ++t) call.out[call.out_rows[first_token + t] * call.out_stride + r] = total[t];
  }
}

template <class Format>
void multiply(const MatmulCall& call) {
  std::byte* grid = call.scratch;
  setup_grid(Format::kGrid, grid);
  Prepared* prepared = reinterpret_cast<Prepared*>(call.scratch + kGridBytes);
  const std::ptrdiff_t stride = (call.width + kSuperblock - 1) / kSuperblock;
  for (int first = 0; first < call.tokens; first += kMatvecTokens) {
    const int count = call.tokens - first < kMatvecTokens ? call.tokens - first : kMatvecTokens;
    for (int t = 0; t < count; ++t) prepare<Format>(call, first + t, prepared + t * stride);
    int t = 0;
    for (; count - t >= 4; t += 4) multiply_rows<Format, 4>(call, prepared + t * stride, stride, grid, first + t);
    for (; count - t >= 2; t += 2) multiply_rows<Format, 2>(call, prepared + t * stride, stride, grid, first + t);
    if (count - t == 1) multiply_rows<Format, 1>(call, prepared + t * stride, stride, grid, first + t);
  }
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
void matmul_quantised(const MatmulCall& call) {
  with_format(
      call.dtype, [&]<class Format>() __attribute__((always_inline)) { multiply<Format>(call); });
}
}  // namespace LOCKSTEP_CPU_LEVEL
}  // namespace lockstep::cpu
