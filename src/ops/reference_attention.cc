// Attention, compressors and the indexer as literal loops. Sums run in chains (numerics/order.h): a score over channels
// in chains of kChain; a value sum over rows in chains of kChain, the window's rows first (oldest first), then the
// compressed rows (ascending), each list beginning a new chain. Chains are added in ascending order, beginning with the
// first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/reference.h"
#include "ops/row_codec.h"
#include "ops/rows.h"

namespace lockstep {
namespace {

float chained_dot(const float* x, const float* y, int width, int chain) {
  float total = 0;
  for (int begin = 0; begin < width; begin += chain) {
    float sum = 0;
    for (int k = begin; k < std::min(width, begin + chain); ++k) sum = fma_f32(x[k], y[k], sum);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

/// Score of one key: sum over heads of weight * max(0, query . key).
float index_score(const float* queries, const float* head_weights, int heads, const float* key, int width) {
  float total = 0;
  for (int begin = 0; begin < heads; begin += kChain) {
    float sum = 0;
    for (int h = begin; h < std::min(heads, begin + kChain); ++h) {
      const float dot = chained_dot(queries + h * width, key, width, kIndexChain);
      sum = fma_f32(head_weights[h], dot > 0 ? dot : 0.0f, sum);
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

/// One list of attended rows (the window's, or the compressed ones), chain by chain.
template <class Body>
void for_each_chain(std::size_t begin, std::size_t end, const Body& body) {
  for (std::size_t first = begin; first < end; first += kChain) body(first, std::min(end, first + kChain));
}

/// Attention of one head over rows [0, count) of `rows`; the first `window` of them are the window's.
void attend_head(float* out, const float* query, const std::vector<float>& rows, std::size_t window, std::size_t count,
                 int width, float sink, float scale, std::vector<float>& weights) {
  float largest = sink;
  for (std::size_t r = 0; r < count; ++r) {
    weights[r] = chained_dot(query, &rows[r * width], width, kChain) * scale;
    largest = std::max(largest, weights[r]);
  }
  for (std::size_t r = 0; r < count; ++r) weights[r] = exp_f32(weights[r] - largest);

  float denominator = exp_f32(sink - largest);
  const auto add_chain = [&](std::size_t first, std::size_t last) {
    float sum = 0;
    for (std::size_t r = first; r < last; ++r) sum = sum + weights[r];
    denominator = denominator + sum;
  };
  for_each_chain(0, window, add_chain);
  for_each_chain(window, count, add_chain);

  const float inverse = 1.0f / denominator;
  for (int d = 0; d < width; ++d) {
    float total = 0;
    const auto add_values = [&](std::size_t first, std::size_t last) {
      float sum = 0;
      for (std::size_t r = first; r < last; ++r) sum = fma_f32(weights[r], rows[r * width + d], sum);
      total = first == 0 ? sum : total + sum;
    };
    for_each_chain(0, window, add_values);
    for_each_chain(window, count, add_values);
    out[d] = total * inverse;
  }
}

}  // namespace

void ReferenceOps::round_fp8(Rows x, int channels) {
  for (int i = 0; i < x.rows; ++i) round_fp8_row(x.row(i), channels);
}

void ReferenceOps::hadamard_fp4(Rows x, int head_width) {
  for (int i = 0; i < x.rows; ++i)
    for (int head = 0; head < x.width; head += head_width) hadamard_fp4_row(x.row(i) + head, head_width);
}

void ReferenceOps::compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                            const RowLayout& layout) {
  std::vector<float> row(static_cast<std::size_t>(spec.width));
  const float *value_rows[128], *gate_rows[128];
  for (const SequenceSlice& slice : slices) {
    for (std::int64_t c = slice.begin / spec.ratio; c < (slice.begin + slice.rows) / spec.ratio; ++c) {
      const int count = pool_candidates(slice, c, values, gates, spec, value_rows, gate_rows);
      pool_row(row.data(), value_rows, gate_rows, count, spec.width);
      rms_norm_row(row.data(), row.data(), spec.norm, spec.width, spec.epsilon);
      turn_pooled(row.data(), c, spec, layout.rotary);
      if (spec.is_key) {
        if (layout.mode == Mode::official) hadamard_fp4_row(row.data(), spec.width);
        pack_key(slice.key_pages[c / kPageRows] + c % kPageRows * layout.key_bytes(), row.data(), layout);
      } else {
        if (layout.mode == Mode::official) round_fp8_row(row.data(), layout.fp8_channels());
        pack_row(slice.pages[c / kPageRows] + c % kPageRows * layout.row_bytes(), row.data(), layout);
      }
    }
  }
}

void ReferenceOps::select_row(const Selection& out, const SequenceSlice& slice, int i, ConstRows queries,
                              ConstRows head_weights, int ratio, int top_k, const RowLayout& layout) const {
  const std::int64_t visible = visible_rows(slice.begin + i - slice.first_row, ratio);
  std::int32_t* ids = out.ids + static_cast<std::ptrdiff_t>(i) * out.capacity;
  out.count[i] = static_cast<std::int32_t>(std::min<std::int64_t>(visible, top_k));
  if (visible <= top_k) {
    for (std::int32_t c = 0; c < visible; ++c) ids[c] = c;
    return;
  }
  std::vector<float> key(static_cast<std::size_t>(layout.key_width));
  std::vector<std::uint64_t> ranked;
  for (std::int32_t c = 0; c < visible; ++c) {
    unpack_key(key.data(), slice.key_pages[c / kPageRows] + c % kPageRows * layout.key_bytes(), layout);
    ranked.push_back(ranking_key(
        index_score(queries.row(i), head_weights.row(i), head_weights.width, key.data(), layout.key_width), c));
  }
  std::nth_element(ranked.begin(), ranked.begin() + top_k, ranked.end(), std::greater<>());
  for (int s = 0; s < top_k; ++s) ids[s] = ranked_id(ranked[s]);
  std::sort(ids, ids + top_k);
}

void ReferenceOps::select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights,
                               int ratio, int top_k, const RowLayout& layout) {
  for (const SequenceSlice& slice : slices)
    for (int i = slice.first_row; i < slice.first_row + slice.rows; ++i)
      select_row(out, slice, i, queries, head_weights, ratio, top_k, layout);
}

void ReferenceOps::attend_row(Rows out, ConstRows queries, ConstRows window_rows, const SequenceSlice& slice, int i,
                              int window, int ratio, const Selection* selection, const float* sinks, float scale_by,
                              const RowLayout& layout) const {
  const int width = layout.width;
  const Position position = slice.begin + i - slice.first_row;
  const Position oldest = std::max<Position>(0, position - window + 1);
  const std::size_t in_window = static_cast<std::size_t>(position - oldest + 1);
  const std::size_t compressed = selection != nullptr ? static_cast<std::size_t>(selection->count[i])
                                                      : static_cast<std::size_t>(visible_rows(position, ratio));
  std::vector<float> rows((in_window + compressed) * width), weights(in_window + compressed);
  for (std::size_t r = 0; r < in_window; ++r) {
    const Position p = oldest + static_cast<Position>(r);
    if (p >= slice.begin)
      std::copy_n(window_rows.row(slice.first_row + static_cast<int>(p - slice.begin)), width, &rows[r * width]);
    else
      unpack_row(&rows[r * width], slice.window + (p % slice.window_slots) * layout.row_bytes(), layout);
  }
  for (std::size_t r = 0; r < compressed; ++r) {
    const std::int64_t c = selection != nullptr
                               ? selection->ids[static_cast<std::ptrdiff_t>(i) * selection->capacity + r]
                               : static_cast<std::int64_t>(r);
    unpack_row(&rows[(in_window + r) * width], slice.pages[c / kPageRows] + c % kPageRows * layout.row_bytes(), layout);
  }
  for (int head = 0; head < queries.width / width; ++head)
    attend_head(out.row(i) + head * width, queries.row(i) + head * width, rows, in_window, in_window + compressed,
                width, sinks[head], scale_by, weights);
}

void ReferenceOps::attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window,
                          int ratio, const Selection* selection, const float* sinks, float scale_by,
                          const RowLayout& layout) {
  for (const SequenceSlice& slice : slices)
    for (int i = slice.first_row; i < slice.first_row + slice.rows; ++i)
      attend_row(out, queries, window_rows, slice, i, window, ratio, selection, sinks, scale_by, layout);
}

void ReferenceOps::pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) {
  for (const SequenceSlice& slice : slices) {
    const int kept = std::min(slice.rows, slice.window_slots);
    for (int i = slice.rows - kept; i < slice.rows; ++i, stage += layout.row_bytes())
      pack_row(stage, rows.row(slice.first_row + i), layout);
  }
}

void ReferenceOps::keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) {
  for (const SequenceSlice& slice : slices) {
    const int kept = std::min(slice.rows, slice.pending_slots);
    for (int i = slice.rows - kept; i < slice.rows; ++i, stage += 2 * values.width) {
      std::copy_n(values.row(slice.first_row + i), values.width, stage);
      std::copy_n(gates.row(slice.first_row + i), values.width, stage + values.width);
    }
  }
}

}  // namespace lockstep
