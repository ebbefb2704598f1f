// Literal loops over one row that more than one op is made of. They define bits, like everything in this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "numerics/functions.h"
#include "numerics/order.h"
#include "ops/dot.h"
#include "ops/ops.h"

namespace lockstep {

/// 1 / sqrt(mean square + epsilon).
inline float inverse_rms(const float* x, int width, float epsilon) {
  const float mean = float_dot(x, x, width) / static_cast<float>(width);
  return 1.0f / sqrt_f32(mean + epsilon);
}

/// x and out may be the same row; weight may be null.
inline void rms_norm_row(float* out, const float* x, const float* weight, int width, float epsilon) {
  const float r = inverse_rms(x, width, epsilon);
  for (int i = 0; i < width; ++i) {
    const float unit = x[i] * r;
    out[i] = weight == nullptr ? unit : unit * weight[i];
  }
}

/// cos, sin of float(position) * frequency, pair by pair.
inline void rotation_row(float* out, Position position, const float* frequencies, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const SinCos turn = sin_cos(angle);
    out[2 * i] = turn.cos;
    out[2 * i + 1] = turn.sin;
  }
}

/// Rotates `rotary` channels in interleaved pairs. a*c - b*s is one product rounded and one fma, on every back end.
inline void rotate_channels(float* x, const float* table, int rotary, bool inverse) {
  for (int i = 0; i < rotary; i += 2) {
    const float a = x[i], b = x[i + 1], c = table[i], s = inverse ? -table[i + 1] : table[i + 1];
    x[i] = fma_f32(a, c, -(b * s));
    x[i + 1] = fma_f32(a, s, b * c);
  }
}

/// Larger value first, then lower id, as one integer that sorts descending. -0 counts as 0.
LOCKSTEP_HOST_DEVICE inline std::uint64_t ranking_key(float value, std::int32_t id) {
  const std::uint32_t bits = bits_of(value + 0.0f);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
LOCKSTEP_HOST_DEVICE inline std::int32_t ranked_id(std::uint64_t key) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

/// From the mixes of one row, whose streams have inverse root-mean-square r, to its S pre, S post and S * S comb
/// coefficients.
inline void hyper_coefficients_row(float* out, const float* mixes, float r, const float* scale, const float* base,
                                   const HyperSpec& spec) {
  const int s_count = spec.streams;
  for (int i = 0; i < s_count; ++i) out[i] = sigmoid_f32((mixes[i] * r) * scale[0] + base[i]) + spec.epsilon;
  for (int i = s_count; i < 2 * s_count; ++i) out[i] = 2.0f * sigmoid_f32((mixes[i] * r) * scale[1] + base[i]);
  float* comb = out + 2 * s_count;
  for (int j = 0; j < s_count; ++j) {
    float* row = comb + j * s_count;
    float largest = 0, sum = 0;
    for (int q = 0; q < s_count; ++q) {
      const int i = 2 * s_count + j * s_count + q;
      row[q] = (mixes[i] * r) * scale[2] + base[i];
      largest = q == 0 ? row[q] : std::max(largest, row[q]);
    }
    for (int q = 0; q < s_count; ++q) {
      row[q] = exp_f32(row[q] - largest);
      sum = sum + row[q];
    }
    for (int q = 0; q < s_count; ++q) row[q] = row[q] / sum + spec.epsilon;
  }
  const auto divide = [&](int step, int other) {  // every line along `step` by its own sum
    for (int i = 0; i < s_count; ++i) {
      float sum = 0;
      for (int k = 0; k < s_count; ++k) sum = sum + comb[i * other + k * step];
      sum = sum + spec.epsilon;
      for (int k = 0; k < s_count; ++k) comb[i * other + k * step] = comb[i * other + k * step] / sum;
    }
  };
  divide(s_count, 1);  // columns
  for (int iteration = 1; iteration < spec.iterations; ++iteration) {
    divide(1, s_count);  // rows
    divide(s_count, 1);
  }
}

/// The candidates of row c of a compressor, oldest first: half A of the window before (ratio 4, if there is one), then
/// the window itself. Inputs at positions of the step are rows of values and gates, older ones lie in the slice's ring.
/// Returns how many; the lists hold at most 128.
inline int pool_candidates(const SequenceSlice& slice, std::int64_t c, ConstRows values, ConstRows gates,
                           const CompressorSpec& spec, const float** value_rows, const float** gate_rows) {
  const bool overlap = spec.ratio == 4;
  const int previous = overlap && c > 0 ? spec.ratio : 0;
  const Position begin = c * spec.ratio - previous;
  const int count = previous + spec.ratio, width = spec.input_width();
  const float* ring = spec.is_key ? slice.key_pending : slice.pending;
  for (int j = 0; j < count; ++j) {
    const Position p = begin + j;
    if (p >= slice.begin) {
      const int i = slice.first_row + static_cast<int>(p - slice.begin);
      value_rows[j] = values.row(i);
      gate_rows[j] = gates.row(i);
    } else {
      value_rows[j] = ring + (p % slice.pending_slots) * 2 * width;
      gate_rows[j] = value_rows[j] + width;
    }
    if (overlap && j >= previous) {  // half B: the window's own row
      value_rows[j] += spec.width;
      gate_rows[j] += spec.width;
    }
  }
  return count;
}

/// Softmax over the candidates, channel by channel, in chains; out [width].
inline void pool_row(float* out, const float* const* values, const float* const* gates, int count, int width) {
  for (int d = 0; d < width; ++d) {
    float largest = gates[0][d];
    for (int j = 1; j < count; ++j) largest = std::max(largest, gates[j][d]);
    float total = 0, total_weight = 0;
    for (int first = 0; first < count; first += kChain) {
      float sum = 0, weights = 0;
      for (int j = first; j < std::min(count, first + kChain); ++j) {
        const float weight = exp_f32(gates[j][d] - largest);
        sum = fma_f32(weight, values[j][d], sum);
        weights = weights + weight;
      }
      total = first == 0 ? sum : total + sum;
      total_weight = first == 0 ? weights : total_weight + weights;
    }
    out[d] = total / total_weight;
  }
}

/// Rotates pooled row c: it stands at the first position of its window.
inline void turn_pooled(float* row, std::int64_t c, const CompressorSpec& spec, int rotary) {
  float table[512];
  rotation_row(table, c * spec.ratio, spec.frequencies, rotary / 2);
  rotate_channels(row + spec.width - rotary, table, rotary, false);
}

/// Compressed rows that a query at `position` sees.
LOCKSTEP_HOST_DEVICE inline std::int64_t visible_rows(Position position, int ratio) {
  return ratio == 0 ? 0 : (position + 1) / ratio;
}

/// Expert choice of one row; see Ops::route_experts. `scratch` holds as many keys as there are experts.
inline void route_row(std::int32_t* expert, float* weight, int used, const float* logits, int experts,
                      const float* bias, const std::int32_t* table_row, float route_scale,
                      std::span<std::uint64_t> scratch) {
  const auto score = [&](std::int32_t e) { return sqrt_softplus_f32(logits[e]); };
  if (table_row != nullptr) {
    for (int s = 0; s < used; ++s) expert[s] = table_row[s];
  } else {
    for (int e = 0; e < experts; ++e) scratch[e] = ranking_key(bias == nullptr ? score(e) : score(e) + bias[e], e);
    std::partial_sort(scratch.begin(), scratch.begin() + used, scratch.begin() + experts, std::greater<>());
    for (int s = 0; s < used; ++s) expert[s] = ranked_id(scratch[s]);
  }
  float sum = 0;
  for (int s = 0; s < used; ++s) {
    weight[s] = score(expert[s]);
    sum = sum + weight[s];
  }
  sum = std::max(sum, 0x1p-14f);
  for (int s = 0; s < used; ++s) weight[s] = (weight[s] / sum) * route_scale;
}

LOCKSTEP_HOST_DEVICE inline float swiglu_value(float gate, float up, float limit) {
  // Selects, as std::min and std::max make them: devices have no such functions, and their own treat NaN otherwise.
  const float raised = up < -limit ? -limit : up;
  return silu_f32(limit < gate ? limit : gate) * (limit < raised ? limit : raised);
}

}  // namespace lockstep
