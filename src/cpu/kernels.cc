// A level's table, its rounding of activations and its float dot.
#include "cpu/kernels.h"

#include "cpu/float_dot.h"
#include "cpu/simd.h"
#include "numerics/round.h"

namespace lockstep::cpu {
namespace {

/// Rounds a row: round_block_int8 of numerics/round.h, 32 values at a time, and the sums of the codes of each half.
void round_row(const float* x, int width, std::int8_t* codes, float* scales, std::int16_t* half_sums) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 magic = _mm256_set1_ps(kRoundMagic);
  const __m256i magic_bits = _mm256_set1_epi32(static_cast<int>(kRoundMagicBits));
  for (int b = 0; b < width / 32; ++b, x += 32, codes += 32) {
    __m256 v[4];
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    __m256i largest = _mm256_castps_si256(_mm256_and_ps(v[0], magnitude));
    for (int i = 1; i < 4; ++i)
      largest = _mm256_max_epu32(largest, _mm256_castps_si256(_mm256_and_ps(v[i], magnitude)));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    const Int8Scale scale = int8_scale(static_cast<std::uint32_t>(_mm_cvtsi128_si32(m)));
    scales[b] = scale.scale;
    if (scale.inverse == 0.0f) {
      store32(codes, _mm256_setzero_si256());
      half_sums[2 * b] = half_sums[2 * b + 1] = 0;
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    __m256i q[4];
    for (int i = 0; i < 4; ++i)
      q[i] = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_mul_ps(v[i], inverse), magic)), magic_bits);
    const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i code = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    store32(codes, code);
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), code), ones);
    const __m256i twos = _mm256_hadd_epi32(fours, fours);
    const __m256i sums = _mm256_hadd_epi32(twos, twos);
    half_sums[2 * b] = static_cast<std::int16_t>(_mm256_extract_epi32(sums, 0));
    half_sums[2 * b + 1] = static_cast<std::int16_t>(_mm256_extract_epi32(sums, 4));
  }
}

float dot(const float* x, const float* y, int width) { return float_dot(F32Row{y}, x, width); }

void matmul(const MatmulCall& call) {
  switch (call.dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3_b128:
      return LOCKSTEP_CPU_LEVEL::matmul_float(call);
    default:
      return call.tokens > kMatvecTokens ? LOCKSTEP_CPU_LEVEL::matmul_panel(call)
                                         : LOCKSTEP_CPU_LEVEL::matmul_quantised(call);
  }
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
const Kernels kKernels = {.round_row = round_row, .matmul = matmul, .dot = dot};
}
}  // namespace lockstep::cpu
