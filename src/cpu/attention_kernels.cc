// Attention and indexer scores in vector registers (AVX2 and AVX-512; the scalar level uses the reference loops).
//
// Scores lie with one head an element, so that a chain over channels needs no sum across a register; values lie with
// one channel an element, so that a chain over rows needs none either. Chains: numerics/order.h.
#include "cpu/row_kernels.h"
#include "cpu/simd.h"

namespace lockstep::cpu {
namespace {

// numerics/order.h, as numbers: a level file takes no inline function from a shared header (kernels.h).
constexpr int kScoreChain = 64;
constexpr int kKeyChain = 32;
constexpr int kVectors = kGroupHeads / kWide;  // registers that hold a group of heads

LOCKSTEP_INLINE Floats larger(Floats a, Floats b) {  // as std::max: b only if a < b
#if LOCKSTEP_AVX512
  return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), b);
#else
  return _mm256_blendv_ps(a, b, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
#endif
}

/// numerics/functions.h, exp_f32, step by step.
LOCKSTEP_INLINE Floats exp_floats(Floats x) {
  const Floats magic = set_floats(12582912.0f);
  const Floats t = fma(x, set_floats(0x1.715476p+0f), magic);
  const Floats n = subtract(t, magic);
  Floats r = fma(n, set_floats(-0x1.62e43p-1f), x);
  r = fma(n, set_floats(0x1.05c61p-29f), r);
  Floats p = set_floats(0x1.6a247ap-10f);
  p = fma(p, r, set_floats(0x1.1239e2p-7f));
  p = fma(p, r, set_floats(0x1.5558f2p-5f));
  p = fma(p, r, set_floats(0x1.555492p-3f));
  p = fma(p, r, set_floats(0x1.fffffcp-2f));
  p = fma(p, r, set_floats(1.0f));
  p = fma(p, r, set_floats(1.0f));
#if LOCKSTEP_AVX512
  const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23);
  Floats y = multiply(p, bits_as_floats(power));
  y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set_floats(88.3f), _CMP_GT_OQ), set_floats(__builtin_inff()));
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set_floats(-87.3f), _CMP_LT_OQ), zero_floats());
#else
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23);
  Floats y = multiply(p, bits_as_floats(power));
  y = _mm256_blendv_ps(y, set_floats(__builtin_inff()), _mm256_cmp_ps(x, set_floats(88.3f), _CMP_GT_OQ));
  return _mm256_blendv_ps(y, zero_floats(), _mm256_cmp_ps(x, set_floats(-87.3f), _CMP_LT_OQ));
#endif
}

/// out[r][head] (+)= chain over channels [begin, end) of rows[r] . queries_t, for kRows rows.
template <int kRows>
LOCKSTEP_INLINE void score_rows(float* out, const float* rows, int width, const float* queries_t, int begin, int end) {
  Floats sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = zero_floats();
  for (int d = begin; d < end; ++d) {
    Floats q[kVectors];
    for (int v = 0; v < kVectors; ++v) q[v] = load_floats(queries_t + d * kGroupHeads + v * kWide);
    for (int r = 0; r < kRows; ++r) {
      const Floats x = set_floats(rows[static_cast<std::ptrdiff_t>(r) * width + d]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(q[v], x, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      float* z = out + r * kGroupHeads + v * kWide;
      store_floats(z, begin == 0 ? sum[r][v] : add(load_floats(z), sum[r][v]));
    }
}

/// totals[h][d] (+)= chain over rows [first, last) of weights[r][h] * rows[r][d]; kHeads heads, kChannels registers.
template <int kHeads, int kChannels>
LOCKSTEP_INLINE void value_tile(float* totals, const float* rows, int width, const float* weights, int first, int last,
                                bool is_first) {
  Floats sum[kHeads][kChannels];
  for (int h = 0; h < kHeads; ++h)
    for (int c = 0; c < kChannels; ++c) sum[h][c] = zero_floats();
  for (int r = first; r < last; ++r) {
    const float* row = rows + static_cast<std::ptrdiff_t>(r) * width;
    Floats x[kChannels];
    for (int c = 0; c < kChannels; ++c) x[c] = load_floats(row + c * kWide);
    for (int h = 0; h < kHeads; ++h) {
      const Floats w = set_floats(weights[r * kGroupHeads + h]);
      for (int c = 0; c < kChannels; ++c) sum[h][c] = fma(w, x[c], sum[h][c]);
    }
  }
  for (int h = 0; h < kHeads; ++h)
    for (int c = 0; c < kChannels; ++c) {
      float* total = totals + static_cast<std::ptrdiff_t>(h) * width + c * kWide;
      store_floats(total, is_first ? sum[h][c] : add(load_floats(total), sum[h][c]));
    }
}

#if LOCKSTEP_AVX512
constexpr int kScoreRows = 12, kValueHeads = 4, kValueChannels = 4;
#else
constexpr int kScoreRows = 4, kValueHeads = 4, kValueChannels = 2;
#endif

/// One chain of rows, all heads and channels. width is a multiple of kWide.
void add_value_chain(float* totals, const float* rows, int width, const float* weights, int first, int last,
                     bool is_first) {
  int d = 0;
  for (; d + kValueChannels * kWide <= width; d += kValueChannels * kWide)
    for (int h = 0; h < kGroupHeads; h += kValueHeads)
      value_tile<kValueHeads, kValueChannels>(totals + static_cast<std::ptrdiff_t>(h) * width + d, rows + d, width,
                                              weights + h, first, last, is_first);
  for (; d < width; d += kWide)
    for (int h = 0; h < kGroupHeads; h += kValueHeads)
      value_tile<kValueHeads, 1>(totals + static_cast<std::ptrdiff_t>(h) * width + d, rows + d, width, weights + h,
                                 first, last, is_first);
}

void attend(const AttentionCall& call) {
  const int width = call.width, count = call.count;
  float* z = call.scratch;                                                       // [count, kGroupHeads]
  float* queries_t = z + static_cast<std::ptrdiff_t>(count) * kGroupHeads;       // [width, kGroupHeads]
  float* totals = queries_t + static_cast<std::ptrdiff_t>(width) * kGroupHeads;  // [kGroupHeads, width]
  float* lanes = totals + static_cast<std::ptrdiff_t>(width) * kGroupHeads;      // sinks, then inverse denominators

  for (int d = 0; d < width; ++d)
    for (int h = 0; h < kGroupHeads; ++h)
      queries_t[d * kGroupHeads + h] = h < call.heads ? call.queries[static_cast<std::ptrdiff_t>(h) * width + d] : 0.0f;
  for (int h = 0; h < kGroupHeads; ++h) lanes[h] = h < call.heads ? call.sinks[h] : 0.0f;

  for (int d = 0; d < width; d += kScoreChain) {
    const int end = d + kScoreChain < width ? d + kScoreChain : width;
    int r = 0;
    for (; r + kScoreRows <= count; r += kScoreRows)
      score_rows<kScoreRows>(z + r * kGroupHeads, call.rows + static_cast<std::ptrdiff_t>(r) * width, width, queries_t,
                             d, end);
    for (; r < count; ++r)
      score_rows<1>(z + r * kGroupHeads, call.rows + static_cast<std::ptrdiff_t>(r) * width, width, queries_t, d, end);
  }

  for (int v = 0; v < kVectors; ++v) {
    float* column = z + v * kWide;
    const Floats sink = load_floats(lanes + v * kWide), scale = set_floats(call.scale);
    Floats largest = sink;
    for (int r = 0; r < count; ++r) {
      const Floats s = multiply(load_floats(column + r * kGroupHeads), scale);
      store_floats(column + r * kGroupHeads, s);
      largest = larger(largest, s);
    }
    Floats denominator = exp_floats(subtract(sink, largest));
    const auto add_chains = [&](int begin, int end) __attribute__((always_inline)) {
      for (int first = begin; first < end; first += kScoreChain) {
        Floats sum = zero_floats();
        for (int r = first; r < (first + kScoreChain < end ? first + kScoreChain : end); ++r) {
          const Floats p = exp_floats(subtract(load_floats(column + r * kGroupHeads), largest));
          store_floats(column + r * kGroupHeads, p);
          sum = add(sum, p);
        }
        denominator = add(denominator, sum);
      }
    };
    add_chains(0, call.window);
    add_chains(call.window, count);
#if LOCKSTEP_AVX512
    const Floats inverse = _mm512_div_ps(set_floats(1.0f), denominator);
#else
    const Floats inverse = _mm256_div_ps(set_floats(1.0f), denominator);
#endif
    store_floats(lanes + kGroupHeads + v * kWide, inverse);
  }

  for (int first = 0; first < call.window; first += kScoreChain)
    add_value_chain(totals, call.rows, width, z, first,
                    first + kScoreChain < call.window ? first + kScoreChain : call.window, first == 0);
  for (int first = call.window; first < count; first += kScoreChain)
    add_value_chain(totals, call.rows, width, z, first, first + kScoreChain < count ? first + kScoreChain : count,
                    false);

  for (int h = 0; h < call.heads; ++h) {
    const Floats inverse = set_floats(lanes[kGroupHeads + h]);
    for (int d = 0; d < width; d += kWide)
      store_floats(call.out + static_cast<std::ptrdiff_t>(h) * width + d,
                   multiply(load_floats(totals + static_cast<std::ptrdiff_t>(h) * width + d), inverse));
  }
}

/// Scores of kIndexKeys keys: one key an element.
void index_scores(const IndexCall& call) {
  constexpr int kKeyVectors = kIndexKeys / kWide;
  constexpr int kHeads = 8 / kKeyVectors;  // heads at a time
  Floats total[kKeyVectors], chain[kKeyVectors];
  for (int v = 0; v < kKeyVectors; ++v) total[v] = chain[v] = zero_floats();
  const auto add_head = [&](int h, const Floats* dot) __attribute__((always_inline)) {
    const Floats weight = set_floats(call.head_weights[h]);
    for (int v = 0; v < kKeyVectors; ++v) {
      const Floats positive = larger(zero_floats(), dot[v]);
      chain[v] = fma(weight, positive, chain[v]);
      if ((h + 1) % kScoreChain == 0 || h + 1 == call.heads) {
        total[v] = h < kScoreChain ? chain[v] : add(total[v], chain[v]);
        chain[v] = zero_floats();
      }
    }
  };
  int h = 0;
  for (; h + kHeads <= call.heads; h += kHeads) {
    Floats dot[kHeads][kKeyVectors];
    for (int d = 0; d < call.width; d += kKeyChain) {
      Floats sum[kHeads][kKeyVectors];
      for (int i = 0; i < kHeads; ++i)
        for (int v = 0; v < kKeyVectors; ++v) sum[i][v] = zero_floats();
      for (int k = d; k < (d + kKeyChain < call.width ? d + kKeyChain : call.width); ++k) {
        Floats key[kKeyVectors];
        for (int v = 0; v < kKeyVectors; ++v) key[v] = load_floats(call.keys + k * kIndexKeys + v * kWide);
        for (int i = 0; i < kHeads; ++i) {
          const Floats q = set_floats(call.queries[(h + i) * call.width + k]);
          for (int v = 0; v < kKeyVectors; ++v) sum[i][v] = fma(q, key[v], sum[i][v]);
        }
      }
      for (int i = 0; i < kHeads; ++i)
        for (int v = 0; v < kKeyVectors; ++v) dot[i][v] = d == 0 ? sum[i][v] : add(dot[i][v], sum[i][v]);
    }
    for (int i = 0; i < kHeads; ++i) add_head(h + i, dot[i]);
  }
  for (; h < call.heads; ++h) {
    Floats dot[kKeyVectors];
    for (int d = 0; d < call.width; d += kKeyChain) {
      Floats sum[kKeyVectors];
      for (int v = 0; v < kKeyVectors; ++v) sum[v] = zero_floats();
      for (int k = d; k < (d + kKeyChain < call.width ? d + kKeyChain : call.width); ++k)
        for (int v = 0; v < kKeyVectors; ++v)
          sum[v] = fma(set_floats(call.queries[h * call.width + k]),
                       load_floats(call.keys + k * kIndexKeys + v * kWide), sum[v]);
      for (int v = 0; v < kKeyVectors; ++v) dot[v] = d == 0 ? sum[v] : add(dot[v], sum[v]);
    }
    add_head(h, dot);
  }
  for (int v = 0; v < kKeyVectors; ++v) store_floats(call.scores + v * kWide, total[v]);
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
const AttentionKernels kAttentionKernels = {attend, index_scores};
}

}  // namespace lockstep::cpu
