#include "ops/ops.h"

#include "base/error.h"
#include "ops/row_draw.h"

namespace lockstep {

void Ops::matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) {
  const int rows = w.rows / groups;
  for (int g = 0; g < groups; ++g) {
    Weight block = w;
    block.rows = rows;
    block.data = w.row(0, static_cast<std::int64_t>(g) * rows);
    Input part;
    if (x.values.data != nullptr) part.values = x.values.columns(g * w.width, w.width);
    if (x.rounded.codes != nullptr) part.rounded = x.rounded.columns(g * w.width, w.width);
    matmul(out.columns(g * rows, rows), block, part);
  }
}

void Ops::matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) {
  matmul_grouped(out, w, x, groups);
  round(rounded, out);
}

void Ops::matmul_normed(Rows out, const Weight& w, NormedInput& x) {
  if (!x.is_made) {
    if (x.rounded.codes != nullptr)
      rms_norm_round(x.values, x.rounded, x.raw, x.weight, x.epsilon);
    else
      rms_norm(x.values, x.raw, x.weight, x.epsilon);
  }
  x.is_made = true;
  matmul(out, w, {x.values, x.rounded});
}

void Ops::matmul_many(std::span<const Part> parts, const Input& x) {
  for (const Part& part : parts) matmul(part.out, *part.weight, x);
}

void Ops::matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) {
  for (const Part& part : parts) matmul_experts(part.out, *part.weight, x, route, x_per_slot);
}

void Ops::matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight, const Weight& up_weight,
                               const Input& x, const Route& route, float limit) {
  const Part parts[] = {{gate, &gate_weight}, {up, &up_weight}};
  matmul_experts_many(parts, x, route, false);
  swiglu_round(gate, rounded, gate, up, route.weight, limit);
}

void Ops::begin_experts(const ExpertsBegin& e, const Input& x) {
  const auto choose = [&] {
    enter(StepPhase::router, e.layer);
    matmul(e.logits, *e.router, x);
    route_experts(e.route, e.logits, e.bias, e.table, e.tokens, e.route_scale);
  };
  const auto begin_shared = [&] {
    const Part parts[] = {{e.shared.gate, e.shared.gate_weight}, {e.shared.up, e.shared.up_weight}};
    matmul_many(parts, x);
    swiglu_round(e.shared.gate, e.shared.rounded, e.shared.gate, e.shared.up, nullptr, e.shared.limit);
  };
  run_both(choose, begin_shared);
  enter(StepPhase::experts, e.layer);
  matmul_experts_gated(e.chosen.gate, e.chosen.up, e.chosen.rounded, *e.chosen.gate_weight, *e.chosen.up_weight, x,
                       e.route, e.chosen.limit);
}

void Ops::matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) {
  matmul(y, w, x);
  hyper_expand(streams, y, coefficients);
}

void Ops::matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                                const Route& route, const Weight& shared_weight, const Input& shared_mid,
                                ConstRows coefficients) {
  run_both([&] { matmul_experts(parts, w, mid, route, true); }, [&] { matmul(shared, shared_weight, shared_mid); });
  combine_expand(streams, y, parts, route, shared, coefficients);
}

void Ops::rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  rotate(x, head_width, table, inverse);
  round(rounded, x);
}

void Ops::norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table, int fp8_channels) {
  const Rows heads = {x.data, x.rows * (x.width / head_width), head_width, head_width};
  LOCKSTEP_CHECK(x.stride == x.width);
  rms_norm(heads, heads, weight, epsilon);
  rotate(x, head_width, table, false);
  if (fp8_channels != 0) round_fp8(heads, fp8_channels);
}

void Ops::attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices, int window,
                       int ratio, const Selection* selection, const float* sinks, float scale_by, ConstRows turns,
                       float epsilon, const RowLayout& layout) {
  norm_rotate(queries, layout.width, nullptr, epsilon, turns, 0);
  attend(queries, queries, window_rows, slices, window, ratio, selection, sinks, scale_by, layout);
  if (rounded != nullptr)
    rotate_round(queries, *rounded, layout.width, turns, true);
  else
    rotate(queries, layout.width, turns, true);
}

void Ops::keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) {
  norm_rotate(rows.window_rows, layout.width, rows.norm, rows.epsilon, rows.turns, rows.fp8_channels);
  pack_window(rows.stage, slices, rows.window_rows, layout);
  for (const KeptRows::Part& part : std::span(rows.parts).first(static_cast<std::size_t>(rows.part_count))) {
    add_by_position(part.gates, part.biases, rows.positions);
    compress(slices, part.values, part.gates, part.spec, layout);
    keep_pending(part.stage, slices, part.values, part.gates);
  }
  if (rows.head_weights.data != nullptr) scale(rows.head_weights, rows.head_scale);
}

void Ops::rotate_hadamard_fp4(Rows x, int head_width, ConstRows table) {
  rotate(x, head_width, table, false);
  hadamard_fp4(x, head_width);
}

void Ops::hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                      const Input& streams, const float* scale_by, const float* base, const HyperSpec& spec,
                      const float* weight, float epsilon) {
  matmul(mixes, fn, streams);
  hyper_coefficients(coefficients, mixes, streams.values, scale_by, base, spec);
  hyper_collapse(out, streams.values, coefficients);
  if (rounded != nullptr)
    rms_norm_round(out, *rounded, out, weight, epsilon);
  else
    rms_norm(out, out, weight, epsilon);
}

void Ops::combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                         ConstRows coefficients) {
  combine_experts(y, parts, route, shared);
  hyper_expand(streams, y, coefficients);
}

void Ops::rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) {
  rms_norm(out, x, weight, epsilon);
  round(rounded, out);
}

void Ops::draw(Token* out, ConstRows x, const DrawChoice* choices, int count) {
  RowDraw draw;
  for (int i = 0; i < count; ++i)
    out[i] = draw.draw({x.row(choices[i].row), static_cast<std::size_t>(x.width)}, choices[i]);
}

void Ops::run_both(const std::function<void()>& first, const std::function<void()>& second) {
  first();
  second();
}

void Ops::run(std::span<const std::uint64_t>, const std::function<void()>& body) { body(); }

void Ops::swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights, float limit) {
  swiglu(out, gate, up, row_weights, limit);
  round(rounded, out);
}

}  // namespace lockstep
