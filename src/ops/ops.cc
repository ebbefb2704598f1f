#include "ops/ops.h"

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

void Ops::rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) {
  rms_norm(out, x, weight, epsilon);
  round(rounded, out);
}

void Ops::run(std::span<const std::uint64_t>, const std::function<void()>& body) { body(); }

void Ops::swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights, float limit) {
  swiglu(out, gate, up, row_weights, limit);
  round(rounded, out);
}

}  // namespace lockstep
