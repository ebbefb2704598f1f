#include "engine/trace_ops.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

TraceOps::TraceOps(std::unique_ptr<Ops> owned) : ForwardingOps(*owned), owned_(std::move(owned)) {}

void TraceOps::begin_step(Position first, int rows) {
  first_ = first;
  rows_ = rows;
  next_ = 0;
}

void TraceOps::begin_logits(Position first, int rows) {
  if (!logits_place_) logits_place_ = next_;  // behind the last op of the first step
  next_ = *logits_place_;
  first_ = first;
  rows_ = rows;
}

void TraceOps::capture(Position position, std::size_t place) { wanted_ = {position, place}; }

void TraceOps::enter(StepPhase phase, int layer) {
  phase_ = phase;
  layer_ = layer;
  ForwardingOps::enter(phase, layer);
}

void TraceOps::run(std::span<const std::uint64_t> /*key*/, const std::function<void()>& body) { body(); }

void TraceOps::run_both(const std::function<void()>& first, const std::function<void()>& second) {
  first();
  second();
}

std::size_t TraceOps::new_place(const char* op, const char* part, OpOutput::Element element, int slot) {
  if (next_ == places_.size()) places_.push_back({op, part, element, phase_, layer_, slot});
  LOCKSTEP_CHECK(places_[next_].op == op && places_[next_].slot == slot);  // every step is the same sequence
  return next_++;
}

void TraceOps::keep(std::size_t place, Position position, std::span<const std::byte> row) {
  const auto index = static_cast<std::size_t>(position);
  if (hashes_.size() <= index) hashes_.resize(index + 1);
  std::vector<std::uint64_t>& hashes = hashes_[index];
  if (hashes.size() <= place) hashes.resize(place + 1, kNone);
  Hasher hasher;
  hasher.add(row);
  hashes[place] = hasher.value() == kNone ? 1 : hasher.value();
  if (wanted_ && wanted_->first == position && wanted_->second == place) captured_.assign(row.begin(), row.end());
}

void TraceOps::after(const OpCall& call) {
  for (int o = 0; o < call.output_count; ++o) {
    const OpOutput& out = call.outputs[static_cast<std::size_t>(o)];
    if (rows_ == 0 || out.rows % rows_ != 0) continue;  // none of a token's
    const bool is_dense = out.stride_bytes == static_cast<std::ptrdiff_t>(out.row_bytes);
    host_.resize(static_cast<std::size_t>(out.rows) * out.row_bytes);
    if (is_dense) {
      inner().download(host_.data(), out.data, host_.size());
    } else {
      for (int r = 0; r < out.rows; ++r)
        inner().download(host_.data() + static_cast<std::size_t>(r) * out.row_bytes, out.data + r * out.stride_bytes,
                         out.row_bytes);
    }
    const int slots = out.rows / rows_;
    for (int slot = 0; slot < slots; ++slot) {
      const std::size_t place = new_place(call.name, out.name, out.element, slot);
      for (int r = 0; r < rows_; ++r)
        keep(place, first_ + r,
             std::span(host_).subspan(static_cast<std::size_t>(r * slots + slot) * out.row_bytes, out.row_bytes));
    }
  }
}

void TraceOps::compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                        const RowLayout& layout) {
  ForwardingOps::compress(slices, values, gates, spec, layout);
  look_at_compressed(slices, spec, layout);
}

void TraceOps::look_at_compressed(const Slices& slices, const CompressorSpec& spec, const RowLayout& layout) {
  const std::size_t place = new_place("compress", spec.is_key ? "key" : "row", OpOutput::Element::bytes, 0);
  host_.resize(spec.is_key ? layout.key_bytes() : layout.row_bytes());
  for (const SequenceSlice& slice : slices) {
    for (std::int64_t c = slice.begin / spec.ratio; c < (slice.begin + slice.rows) / spec.ratio; ++c) {
      std::byte* page = nullptr;
      inner().download(&page, (spec.is_key ? slice.key_pages : slice.pages) + c / kPageRows, sizeof page);
      inner().download(host_.data(), page + static_cast<std::size_t>(c % kPageRows) * host_.size(), host_.size());
      keep(place, (c + 1) * spec.ratio - 1, host_);  // at the token that completes it
    }
  }
}

void TraceOps::select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio,
                           int top_k, const RowLayout& layout) {
  ForwardingOps::select_rows(out, slices, queries, head_weights, ratio, top_k, layout);
  const std::size_t place = new_place("select_rows", "ids", OpOutput::Element::i32, 0);
  for (int r = 0; r < rows_; ++r) {
    std::int32_t count = 0;
    inner().download(&count, out.count + r, sizeof count);
    host_.resize(static_cast<std::size_t>(std::clamp(count, 0, out.capacity)) * sizeof(std::int32_t));
    inner().download(host_.data(), out.ids + static_cast<std::ptrdiff_t>(r) * out.capacity, host_.size());
    keep(place, first_ + r, host_);
  }
}

void TraceOps::keep_stage(const char* op, OpOutput::Element element, const std::byte* stage, const Slices& slices,
                          int slots, std::size_t row_bytes) {
  const std::size_t place = new_place(op, "stage", element, 0);
  host_.resize(row_bytes);
  for (const SequenceSlice& slice : slices) {
    const int kept = std::min(slice.rows, slots);
    for (int i = 0; i < kept; ++i, stage += row_bytes) {
      inner().download(host_.data(), stage, row_bytes);
      keep(place, slice.begin + slice.rows - kept + i, host_);
    }
  }
}

void TraceOps::pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) {
  ForwardingOps::pack_window(stage, slices, rows, layout);
  look_at_window(stage, slices, layout);
}

void TraceOps::look_at_window(const std::byte* stage, const Slices& slices, const RowLayout& layout) {
  const int slots = slices.size() == 0 ? 0 : slices.host.front().window_slots;
  keep_stage("pack_window", OpOutput::Element::bytes, stage, slices, slots, layout.row_bytes());
}

void TraceOps::keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) {
  ForwardingOps::keep_pending(stage, slices, values, gates);
  look_at_pending(stage, slices, values.width + gates.width);
}

void TraceOps::keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) {
  ForwardingOps::keep_rows(rows, slices, layout);
  look_at_window(rows.stage, slices, layout);
  for (const KeptRows::Part& part : std::span(rows.parts).first(static_cast<std::size_t>(rows.part_count))) {
    look_at_compressed(slices, part.spec, layout);
    look_at_pending(part.stage, slices, part.values.width + part.gates.width);
  }
}

void TraceOps::look_at_pending(const float* stage, const Slices& slices, int width) {
  const int slots = slices.size() == 0 ? 0 : slices.host.front().pending_slots;
  keep_stage("keep_pending", OpOutput::Element::f32, reinterpret_cast<const std::byte*>(stage), slices, slots,
             sizeof(float) * static_cast<std::size_t>(width));
}

}  // namespace lockstep
