#include "ops/forwarding_ops.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

void add(OpCall& call, const char* name, OpOutput::Element element, const void* data, int rows, std::size_t row_bytes,
         std::ptrdiff_t stride_bytes) {
  LOCKSTEP_CHECK(call.output_count < static_cast<int>(call.outputs.size()));
  call.outputs[static_cast<std::size_t>(call.output_count++)] = {name, element,   static_cast<const std::byte*>(data),
                                                                 rows, row_bytes, stride_bytes};
}

constexpr const char* kPartNames[] = {"part 0", "part 1", "part 2", "part 3", "part 4", "part 5", "part 6", "part 7"};

}  // namespace

OpCall& OpCall::reads(const Weight& w, int planes) {
  format = weight_bytes == 0 || format == w.dtype ? std::optional(w.dtype) : std::nullopt;
  weight_bytes += static_cast<std::uint64_t>(planes) * static_cast<std::uint64_t>(w.rows) * w.row_bytes;
  return *this;
}

OpCall& OpCall::writes(const Rows& out, const char* part) {
  add(*this, part, OpOutput::Element::f32, out.data, out.rows, sizeof(float) * static_cast<std::size_t>(out.width),
      out.stride * static_cast<std::ptrdiff_t>(sizeof(float)));
  return *this;
}

OpCall& OpCall::writes(const Rounded& out) {
  const std::size_t width = static_cast<std::size_t>(out.width);
  add(*this, "codes", OpOutput::Element::i8, out.codes, out.rows, width, out.stride);
  add(*this, "scales", OpOutput::Element::f32, out.scales, out.rows, width / 32 * sizeof(float),
      out.stride / 32 * static_cast<std::ptrdiff_t>(sizeof(float)));
  add(*this, "half sums", OpOutput::Element::i16, out.half_sums, out.rows, width / 16 * sizeof(std::int16_t),
      out.stride / 16 * static_cast<std::ptrdiff_t>(sizeof(std::int16_t)));
  return *this;
}

OpCall& OpCall::writes(const Selection& out, int rows) {
  add(*this, "count", OpOutput::Element::i32, out.count, rows, sizeof(std::int32_t), sizeof(std::int32_t));
  return *this;
}

OpCall& OpCall::writes(const Route& out) {
  const std::size_t bytes = sizeof(std::int32_t) * static_cast<std::size_t>(out.used);
  add(*this, "experts", OpOutput::Element::i32, out.expert, out.rows, bytes, static_cast<std::ptrdiff_t>(bytes));
  add(*this, "weights", OpOutput::Element::f32, out.weight, out.rows, bytes, static_cast<std::ptrdiff_t>(bytes));
  return *this;
}

void ForwardingOps::embed(Rows out, const Weight& embedding, const Token* tokens) {
  pass(OpCall("embed").writes(out), [&] { inner_.embed(out, embedding, tokens); });
}
void ForwardingOps::round(Rounded out, ConstRows x) {
  pass(OpCall("round").writes(out), [&] { inner_.round(out, x); });
}
void ForwardingOps::matmul(Rows out, const Weight& w, const Input& x) {
  pass(OpCall("matmul").reads(w).writes(out), [&] { inner_.matmul(out, w, x); });
}
void ForwardingOps::matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) {
  pass(OpCall("matmul_experts").reads(w, std::min(route.rows * route.used, w.planes)).writes(out),
       [&] { inner_.matmul_experts(out, w, x, route, x_per_slot); });
}
void ForwardingOps::matmul_many(std::span<const Part> parts, const Input& x) {
  OpCall call("matmul_many");
  for (std::size_t i = 0; i < parts.size(); ++i) call.reads(*parts[i].weight).writes(parts[i].out, kPartNames[i]);
  pass(call, [&] { inner_.matmul_many(parts, x); });
}
void ForwardingOps::matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route,
                                        bool x_per_slot) {
  OpCall call("matmul_experts_many");
  for (std::size_t i = 0; i < parts.size(); ++i)
    call.reads(*parts[i].weight, std::min(route.rows * route.used, parts[i].weight->planes))
        .writes(parts[i].out, kPartNames[i]);
  pass(call, [&] { inner_.matmul_experts_many(parts, x, route, x_per_slot); });
}
void ForwardingOps::matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight,
                                         const Weight& up_weight, const Input& x, const Route& route, float limit) {
  const int planes = std::min(route.rows * route.used, gate_weight.planes);
  pass(OpCall("matmul_experts_gated").reads(gate_weight, planes).reads(up_weight, planes).writes(gate).writes(rounded),
       [&] { inner_.matmul_experts_gated(gate, up, rounded, gate_weight, up_weight, x, route, limit); });
}
void ForwardingOps::matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) {
  pass(OpCall("matmul_expand").reads(w).writes(streams), [&] { inner_.matmul_expand(streams, y, w, x, coefficients); });
}
void ForwardingOps::matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w,
                                          const Input& mid, const Route& route, const Weight& shared_weight,
                                          const Input& shared_mid, ConstRows coefficients) {
  const int planes = std::min(route.rows * route.used, w.planes);
  pass(OpCall("matmul_experts_expand").reads(w, planes).reads(shared_weight).writes(streams, "streams"), [&] {
    inner_.matmul_experts_expand(streams, y, parts, shared, w, mid, route, shared_weight, shared_mid, coefficients);
  });
}
void ForwardingOps::matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) {
  pass(OpCall("matmul_grouped").reads(w).writes(out), [&] { inner_.matmul_grouped(out, w, x, groups); });
}
void ForwardingOps::matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) {
  pass(OpCall("matmul_grouped_round").reads(w).writes(out).writes(rounded),
       [&] { inner_.matmul_grouped_round(out, rounded, w, x, groups); });
}
void ForwardingOps::matmul_normed(Rows out, const Weight& w, NormedInput& x) {
  pass(OpCall("matmul_normed").reads(w).writes(out), [&] { inner_.matmul_normed(out, w, x); });
}

void ForwardingOps::rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) {
  pass(OpCall("rms_norm").writes(out), [&] { inner_.rms_norm(out, x, weight, epsilon); });
}
void ForwardingOps::rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) {
  pass(OpCall("rms_norm_round").writes(out).writes(rounded),
       [&] { inner_.rms_norm_round(out, rounded, x, weight, epsilon); });
}
void ForwardingOps::rotation_table(Rows out, const Position* positions, const float* frequencies) {
  pass(OpCall("rotation_table").writes(out), [&] { inner_.rotation_table(out, positions, frequencies); });
}
void ForwardingOps::rotate(Rows x, int head_width, ConstRows table, bool inverse) {
  pass(OpCall("rotate").writes(x), [&] { inner_.rotate(x, head_width, table, inverse); });
}
void ForwardingOps::rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  pass(OpCall("rotate_round").writes(x).writes(rounded),
       [&] { inner_.rotate_round(x, rounded, head_width, table, inverse); });
}
void ForwardingOps::norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                                int fp8_channels) {
  pass(OpCall("norm_rotate").writes(x),
       [&] { inner_.norm_rotate(x, head_width, weight, epsilon, table, fp8_channels); });
}
void ForwardingOps::rotate_hadamard_fp4(Rows x, int head_width, ConstRows table) {
  pass(OpCall("rotate_hadamard_fp4").writes(x), [&] { inner_.rotate_hadamard_fp4(x, head_width, table); });
}
void ForwardingOps::add_by_position(Rows x, ConstRows table, const Position* positions) {
  pass(OpCall("add_by_position").writes(x), [&] { inner_.add_by_position(x, table, positions); });
}
void ForwardingOps::round_fp8(Rows x, int channels) {
  pass(OpCall("round_fp8").writes(x), [&] { inner_.round_fp8(x, channels); });
}
void ForwardingOps::hadamard_fp4(Rows x, int head_width) {
  pass(OpCall("hadamard_fp4").writes(x), [&] { inner_.hadamard_fp4(x, head_width); });
}
void ForwardingOps::scale(Rows x, float factor) {
  pass(OpCall("scale").writes(x), [&] { inner_.scale(x, factor); });
}

void ForwardingOps::hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by,
                                       const float* base, const HyperSpec& spec) {
  pass(OpCall("hyper_coefficients").writes(out),
       [&] { inner_.hyper_coefficients(out, mixes, streams, scale_by, base, spec); });
}
void ForwardingOps::hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by,
                                            const float* base, const HyperSpec& spec) {
  pass(OpCall("hyper_head_coefficients").writes(out),
       [&] { inner_.hyper_head_coefficients(out, mixes, streams, scale_by, base, spec); });
}
void ForwardingOps::hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) {
  pass(OpCall("hyper_collapse").writes(out), [&] { inner_.hyper_collapse(out, streams, coefficients); });
}
void ForwardingOps::hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                                const Input& streams, const float* scale_by, const float* base, const HyperSpec& spec,
                                const float* weight, float epsilon) {
  OpCall call("hyper_begin");
  call.writes(mixes, "mixes").writes(coefficients, "coefficients").writes(out);
  if (rounded != nullptr) call.writes(*rounded);
  pass(call, [&] {
    inner_.hyper_begin(coefficients, out, rounded, mixes, fn, streams, scale_by, base, spec, weight, epsilon);
  });
}
void ForwardingOps::hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) {
  pass(OpCall("hyper_expand").writes(streams, "streams"), [&] { inner_.hyper_expand(streams, y, coefficients); });
}
void ForwardingOps::hyper_spread(Rows streams, ConstRows x) {
  pass(OpCall("hyper_spread").writes(streams, "streams"), [&] { inner_.hyper_spread(streams, x); });
}

void ForwardingOps::compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                             const RowLayout& layout) {
  pass(OpCall("compress"), [&] { inner_.compress(slices, values, gates, spec, layout); });
}
void ForwardingOps::select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights,
                                int ratio, int top_k, const RowLayout& layout) {
  pass(OpCall("select_rows").writes(out, queries.rows),
       [&] { inner_.select_rows(out, slices, queries, head_weights, ratio, top_k, layout); });
}
void ForwardingOps::attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window,
                           int ratio, const Selection* selection, const float* sinks, float scale_by,
                           const RowLayout& layout) {
  pass(OpCall("attend").writes(out),
       [&] { inner_.attend(out, queries, window_rows, slices, window, ratio, selection, sinks, scale_by, layout); });
}
void ForwardingOps::attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices,
                                 int window, int ratio, const Selection* selection, const float* sinks, float scale_by,
                                 ConstRows turns, float epsilon, const RowLayout& layout) {
  OpCall call("attend_heads");
  call.writes(queries);
  if (rounded != nullptr) call.writes(*rounded);
  pass(call, [&] {
    inner_.attend_heads(queries, rounded, window_rows, slices, window, ratio, selection, sinks, scale_by, turns,
                        epsilon, layout);
  });
}
void ForwardingOps::pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) {
  pass(OpCall("pack_window"), [&] { inner_.pack_window(stage, slices, rows, layout); });
}
void ForwardingOps::keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) {
  pass(OpCall("keep_pending"), [&] { inner_.keep_pending(stage, slices, values, gates); });
}
void ForwardingOps::keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) {
  OpCall call("keep_rows");
  call.writes(rows.window_rows);
  if (rows.head_weights.data != nullptr) call.writes(rows.head_weights, "head weights");
  pass(call, [&] { inner_.keep_rows(rows, slices, layout); });
}
void ForwardingOps::copy(const Copies& copies) {
  pass(OpCall("copy"), [&] { inner_.copy(copies); });
}

void ForwardingOps::route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                                  const Token* tokens, float route_scale) {
  pass(OpCall("route_experts").writes(route),
       [&] { inner_.route_experts(route, logits, bias, table, tokens, route_scale); });
}
void ForwardingOps::swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) {
  pass(OpCall("swiglu").writes(out), [&] { inner_.swiglu(out, gate, up, row_weights, limit); });
}
void ForwardingOps::swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                                 float limit) {
  pass(OpCall("swiglu_round").writes(out).writes(rounded),
       [&] { inner_.swiglu_round(out, rounded, gate, up, row_weights, limit); });
}
void ForwardingOps::combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) {
  pass(OpCall("combine_experts").writes(out), [&] { inner_.combine_experts(out, parts, route, shared); });
}
void ForwardingOps::combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                                   ConstRows coefficients) {
  pass(OpCall("combine_expand").writes(streams, "streams"),
       [&] { inner_.combine_expand(streams, y, parts, route, shared, coefficients); });
}
void ForwardingOps::gather(Rows out, ConstRows x, const std::int32_t* rows) {
  pass(OpCall("gather").writes(out), [&] { inner_.gather(out, x, rows); });
}
void ForwardingOps::draw(Token* out, ConstRows x, const DrawChoice* choices, int count) {
  pass(OpCall("draw"), [&] { inner_.draw(out, x, choices, count); });
}

}  // namespace lockstep
