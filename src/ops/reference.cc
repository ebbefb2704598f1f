// The literal loops that define every op's bits: one thread, host memory, no cleverness. Everything else in the engine
// is measured against this file with memcmp. Attention and its caches are in reference_attention.cc.
#include "ops/reference.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "numerics/round.h"
#include "ops/dot.h"
#include "ops/rows.h"
#include "ops/weight_rows.h"

namespace lockstep {

void* ReferenceOps::allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
  if (memory == nullptr) throw Error(Error::Kind::no_memory, "cannot allocate " + std::to_string(bytes) + " bytes");
  return memory;
}

void ReferenceOps::release(void* memory) { std::free(memory); }
void ReferenceOps::upload(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void ReferenceOps::download(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void ReferenceOps::embed(Rows out, const Weight& embedding, const Token* tokens) {
  for (int i = 0; i < out.rows; ++i) widen_row(embedding, 0, tokens[i], out.row(i));
}

void ReferenceOps::round(Rounded out, ConstRows x) {
  for (int i = 0; i < x.rows; ++i) {
    std::int8_t* codes = out.codes + i * out.stride;
    for (int b = 0; b < x.width / kBlock; ++b) {
      std::int8_t* code = codes + b * kBlock;
      out.scales[i * (out.stride / 32) + b] = round_block_int8(x.row(i) + b * kBlock, code);
      for (int half = 0; half < 2; ++half)
        out.half_sums[i * (out.stride / 16) + 2 * b + half] =
            static_cast<std::int16_t>(std::accumulate(code + 16 * half, code + 16 * half + 16, 0));
    }
  }
}

namespace {

/// Row r of plane p of w, times row i of x.
float product(const Weight& w, std::int64_t plane, int r, const Input& x, int i, std::vector<float>& scratch) {
  if (info_of(w.dtype).quantised)
    return quantised_dot(w.dtype, w.row(plane, r), x.rounded.row_codes(i), x.rounded.row_scales(i), w.width);
  scratch.resize(static_cast<std::size_t>(w.width));
  widen_row(w, plane, r, scratch.data());
  return float_dot(x.values.row(i), scratch.data(), w.width);
}

}  // namespace

void ReferenceOps::matmul(Rows out, const Weight& w, const Input& x) {
  std::vector<float> scratch;
  for (int i = 0; i < out.rows; ++i)
    for (int r = 0; r < w.rows; ++r) out.row(i)[r] = product(w, 0, r, x, i, scratch);
}

void ReferenceOps::matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) {
  std::vector<float> scratch;
  for (int i = 0; i < route.rows * route.used; ++i)
    for (int r = 0; r < w.rows; ++r)
      out.row(i)[r] = product(w, route.expert[i], r, x, x_per_slot ? i : i / route.used, scratch);
}

void ReferenceOps::rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) {
  for (int i = 0; i < x.rows; ++i) rms_norm_row(out.row(i), x.row(i), weight, x.width, epsilon);
}

void ReferenceOps::rotation_table(Rows out, const Position* positions, const float* frequencies) {
  for (int i = 0; i < out.rows; ++i) rotation_row(out.row(i), positions[i], frequencies, out.width / 2);
}

void ReferenceOps::rotate(Rows x, int head_width, ConstRows table, bool inverse) {
  for (int i = 0; i < x.rows; ++i)
    for (int head = 0; head < x.width; head += head_width)
      rotate_channels(x.row(i) + head + head_width - table.width, table.row(i), table.width, inverse);
}

void ReferenceOps::add_by_position(Rows x, ConstRows table, const Position* positions) {
  for (int i = 0; i < x.rows; ++i) {
    const float* row = table.row(static_cast<int>(positions[i] % table.rows));
    for (int d = 0; d < x.width; ++d) x.row(i)[d] = x.row(i)[d] + row[d];
  }
}

void ReferenceOps::scale(Rows x, float factor) {
  for (int i = 0; i < x.rows; ++i)
    for (int d = 0; d < x.width; ++d) x.row(i)[d] = x.row(i)[d] * factor;
}

void ReferenceOps::hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by,
                                      const float* base, const HyperSpec& spec) {
  for (int i = 0; i < out.rows; ++i)
    hyper_coefficients_row(out.row(i), mixes.row(i), inverse_rms(streams.row(i), streams.width, spec.norm_epsilon),
                           scale_by, base, spec);
}

void ReferenceOps::hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by,
                                           const float* base, const HyperSpec& spec) {
  for (int i = 0; i < out.rows; ++i) {
    const float r = inverse_rms(streams.row(i), streams.width, spec.norm_epsilon);
    for (int s = 0; s < spec.streams; ++s)
      out.row(i)[s] = sigmoid_f32((mixes.row(i)[s] * r) * scale_by[0] + base[s]) + spec.epsilon;
  }
}

void ReferenceOps::hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) {
  const int count = streams.width / out.width;
  for (int i = 0; i < out.rows; ++i) {
    const float* pre = coefficients.row(i);
    for (int d = 0; d < out.width; ++d) {
      float sum = pre[0] * streams.row(i)[d];
      for (int s = 1; s < count; ++s) sum = fma_f32(pre[s], streams.row(i)[s * out.width + d], sum);
      out.row(i)[d] = sum;
    }
  }
}

void ReferenceOps::hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) {
  const int count = streams.width / y.width;
  std::vector<float> before(static_cast<std::size_t>(count));
  for (int i = 0; i < y.rows; ++i) {
    const float* post = coefficients.row(i) + count;
    const float* comb = post + count;
    for (int d = 0; d < y.width; ++d) {
      for (int j = 0; j < count; ++j) before[j] = streams.row(i)[j * y.width + d];
      for (int q = 0; q < count; ++q) {
        float sum = post[q] * y.row(i)[d];
        for (int j = 0; j < count; ++j) sum = fma_f32(comb[j * count + q], before[j], sum);
        streams.row(i)[q * y.width + d] = sum;
      }
    }
  }
}

void ReferenceOps::hyper_spread(Rows streams, ConstRows x) {
  for (int i = 0; i < x.rows; ++i)
    for (int begin = 0; begin < streams.width; begin += x.width) std::copy_n(x.row(i), x.width, streams.row(i) + begin);
}

void ReferenceOps::route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                                 const Token* tokens, float route_scale) {
  std::vector<std::uint64_t> scratch(static_cast<std::size_t>(logits.width));
  for (int i = 0; i < route.rows; ++i)
    route_row(route.expert + i * route.used, route.weight + i * route.used, route.used, logits.row(i), logits.width,
              bias, table == nullptr ? nullptr : table + static_cast<std::ptrdiff_t>(tokens[i]) * route.used,
              route_scale, scratch);
}

void ReferenceOps::swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) {
  for (int i = 0; i < out.rows; ++i)
    for (int d = 0; d < out.width; ++d) {
      const float value = swiglu_value(gate.row(i)[d], up.row(i)[d], limit);
      out.row(i)[d] = row_weights == nullptr ? value : value * row_weights[i];
    }
}

void ReferenceOps::combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) {
  std::vector<int> slots(static_cast<std::size_t>(route.used));
  for (int i = 0; i < out.rows; ++i) {
    const std::int32_t* expert = route.expert + i * route.used;
    std::iota(slots.begin(), slots.end(), 0);
    std::stable_sort(slots.begin(), slots.end(), [&](int a, int b) { return expert[a] < expert[b]; });
    for (int d = 0; d < out.width; ++d) {
      float sum = parts.row(i * route.used + slots[0])[d];
      for (int s = 1; s < route.used; ++s) sum = sum + parts.row(i * route.used + slots[s])[d];
      out.row(i)[d] = sum + shared.row(i)[d];
    }
  }
}

void ReferenceOps::gather(Rows out, ConstRows x, const std::int32_t* rows) {
  for (int j = 0; j < out.rows; ++j) std::copy_n(x.row(rows[j]), out.width, out.row(j));
}

void ReferenceOps::copy(const Copies& copies) {
  for (const Copy& c : copies.host) std::memcpy(c.to, c.from, c.bytes);
}

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace lockstep
