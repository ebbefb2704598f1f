// Row kernels as plain loops. Compiled once a level with other flags (LOCKSTEP_CPU_LEVEL names the namespace of the
// table); IEEE arithmetic without contraction makes the bits equal whatever the vector width.
#include "cpu/row_kernels.h"

// The law's inline functions get a namespace of their own in every level: the linker keeps one copy of an inline
// function, and a copy compiled for AVX-512 must not become everybody's.
#define LOCKSTEP_PASTE2(a, b) a##b
#define LOCKSTEP_PASTE(a, b) LOCKSTEP_PASTE2(a, b)
#define lockstep LOCKSTEP_PASTE(lockstep_rows_, LOCKSTEP_CPU_LEVEL)
#include "numerics/functions.h"
#include "numerics/round.h"
namespace law = lockstep;
#undef lockstep

namespace lockstep::cpu {
namespace {

inline float smaller(float a, float b) { return b < a ? b : a; }  // as std::min
inline float larger(float a, float b) { return a < b ? b : a; }   // as std::max

void scale_row(float* out, const float* x, const float* weight, int n, float r) {
  if (weight == nullptr) {
    for (int i = 0; i < n; ++i) out[i] = x[i] * r;
  } else {
    for (int i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
  }
}

void swiglu(float* out, const float* gate, const float* up, int n, float limit, bool has_weight, float weight) {
  for (int i = 0; i < n; ++i) {
    const float g = smaller(gate[i], limit);
    const float u = smaller(larger(up[i], -limit), limit);
    out[i] = law::silu_f32(g) * u;
  }
  if (has_weight)
    for (int i = 0; i < n; ++i) out[i] = out[i] * weight;
}

void collapse(float* out, const float* streams, const float* pre, int count, int width, int begin, int end) {
  for (int d = begin; d < end; ++d) out[d] = pre[0] * streams[d];
  for (int s = 1; s < count; ++s)
    for (int d = begin; d < end; ++d) out[d] = law::fma_f32(pre[s], streams[s * width + d], out[d]);
}

void expand(float* streams, const float* y, const float* coefficients, int count, int width, int begin, int end) {
  constexpr int kBlock = 64, kStreams = 4;
  const float* post = coefficients + count;
  const float* comb = post + count;
  for (int d0 = begin; d0 < end; d0 += kBlock) {
    const int n = end - d0 < kBlock ? end - d0 : kBlock;
    float before[kStreams][kBlock];
    for (int j = 0; j < kStreams; ++j)
      for (int i = 0; i < n; ++i) before[j][i] = streams[j * width + d0 + i];
    for (int q = 0; q < kStreams; ++q) {
      float* to = streams + q * width + d0;
      for (int i = 0; i < n; ++i) {
        float sum = post[q] * y[d0 + i];
        for (int j = 0; j < kStreams; ++j) sum = law::fma_f32(comb[j * kStreams + q], before[j][i], sum);
        to[i] = sum;
      }
    }
  }
}

void add(float* sum, const float* x, int n) {
  for (int i = 0; i < n; ++i) sum[i] = sum[i] + x[i];
}

std::uint32_t largest_magnitude(const float* x, int n) {
  std::uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = law::magnitude_bits(x[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void round_fp8(float* x, int channels) {
  constexpr int kBlock = 64;
  for (int begin = 0; begin < channels; begin += kBlock) {
    const int n = channels - begin < kBlock ? channels - begin : kBlock;
    const int exponent = law::fp8_exponent(largest_magnitude(x + begin, n));
    for (int i = begin; i < begin + n; ++i) x[i] = law::fp8_value(law::fp8_code(x[i], exponent), exponent);
  }
}

void hadamard_fp4(float* x, int width) {
  constexpr int kBlock = 32;
  for (int stride = 1; stride < width; stride *= 2)
    for (int i = 0; i < width; i += 2 * stride)
      for (int j = i; j < i + stride; ++j) {
        const float a = x[j], b = x[j + stride];
        x[j] = a + b;
        x[j + stride] = a - b;
      }
  const float norm = 1.0f / law::sqrt_f32(static_cast<float>(width));
  for (int begin = 0; begin < width; begin += kBlock) {
    for (int i = begin; i < begin + kBlock; ++i) x[i] = x[i] * norm;
    const int exponent = law::fp4_exponent(largest_magnitude(x + begin, kBlock));
    for (int i = begin; i < begin + kBlock; ++i) x[i] = law::fp4_value(law::fp4_code(x[i], exponent), exponent);
  }
}

void unpack_fp8(float* x, const std::uint8_t* codes, const std::uint8_t* exponents, int channels) {
  constexpr int kBlock = 64;
  for (int begin = 0; begin < channels; begin += kBlock) {
    const int n = channels - begin < kBlock ? channels - begin : kBlock;
    const int exponent = law::e8m0_to_exponent(exponents[begin / kBlock]);
    for (int i = begin; i < begin + n; ++i) x[i] = law::fp8_value(codes[i], exponent);
  }
}

void unpack_fp4_column(float* x, int stride, const std::uint8_t* codes, const std::uint8_t* exponents, int width) {
  constexpr int kBlock = 32, kCodes = 16;
  for (int begin = 0; begin < width; begin += kBlock) {
    const int exponent = law::e8m0_to_exponent(exponents[begin / kBlock]);
    float value[kCodes];
    for (int c = 0; c < kCodes; ++c) value[c] = law::fp4_value(static_cast<std::uint8_t>(c), exponent);
    for (int d = begin; d < begin + kBlock; d += 2) {
      x[d * stride] = value[codes[d / 2] & 15];
      x[(d + 1) * stride] = value[codes[d / 2] >> 4];
    }
  }
}

void pool(float* out, const float* const* values, const float* const* gates, int count, int width) {
  constexpr int kBlock = 64;
  for (int d0 = 0; d0 < width; d0 += kBlock) {
    const int n = width - d0 < kBlock ? width - d0 : kBlock;
    float largest[kBlock], total[kBlock], total_weight[kBlock];
    for (int i = 0; i < n; ++i) largest[i] = gates[0][d0 + i];
    for (int j = 1; j < count; ++j)
      for (int i = 0; i < n; ++i) largest[i] = larger(largest[i], gates[j][d0 + i]);
    for (int first = 0; first < count; first += law::kChain) {
      const int last = count < first + law::kChain ? count : first + law::kChain;
      float sum[kBlock], weights[kBlock];
      for (int i = 0; i < n; ++i) sum[i] = weights[i] = 0;
      for (int j = first; j < last; ++j) {
        const float* gate = gates[j] + d0;
        const float* value = values[j] + d0;
        for (int i = 0; i < n; ++i) {
          const float weight = law::exp_f32(gate[i] - largest[i]);
          sum[i] = law::fma_f32(weight, value[i], sum[i]);
          weights[i] = weights[i] + weight;
        }
      }
      for (int i = 0; i < n; ++i) {
        total[i] = first == 0 ? sum[i] : total[i] + sum[i];
        total_weight[i] = first == 0 ? weights[i] : total_weight[i] + weights[i];
      }
    }
    for (int i = 0; i < n; ++i) out[d0 + i] = total[i] / total_weight[i];
  }
}

void rotate(float* x, const float* table, int rotary, bool inverse) {
  for (int i = 0; i < rotary; i += 2) {
    const float a = x[i], b = x[i + 1], c = table[i], s = inverse ? -table[i + 1] : table[i + 1];
    x[i] = law::fma_f32(a, c, -(b * s));
    x[i + 1] = law::fma_f32(a, s, b * c);
  }
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
const RowKernels kRowKernels = {scale_row,    swiglu,     collapse,          expand, add,   round_fp8,
                                hadamard_fp4, unpack_fp8, unpack_fp4_column, pool,   rotate};
}

}  // namespace lockstep::cpu
