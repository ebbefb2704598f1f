// A back end that records steps and plays them again, as a GPU does with graphs, on one whose memory is the host's.
//
// A key is run plainly when it is first seen, taken down the second time, and from then on its ops are called with the
// same arguments without calling the body. What varies from step to step they find in memory, as Ops::run demands: the
// host's copies of slices and copies are not kept.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/forwarding_ops.h"

namespace lockstep::testing {

/// The slices as memory has them when they are asked for.
struct KeptSlices {
  const SequenceSlice* memory;
  std::size_t count;
  Slices operator()() const { return {{memory, count}, memory}; }
};

class ReplayingOps final : public ForwardingOps {
 public:
  explicit ReplayingOps(std::unique_ptr<Ops> ops) : ForwardingOps(*ops), owned_(std::move(ops)) {}
  int played() const { return played_; }

  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override {
    Tape& tape = tapes_[{key.begin(), key.end()}];
    if (++tape.runs == 2) recording_ = &tape;
    if (tape.runs <= 2) {
      body();
      recording_ = nullptr;
      return;
    }
    ++played_;
    for (const auto& call : tape.calls) call();
  }
  void release(void* memory) override {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory));
    std::erase_if(tapes_, [&](const auto& entry) { return std::ranges::count(entry.first, address) > 0; });
    ForwardingOps::release(memory);
  }

  void embed(Rows out, const Weight& w, const Token* tokens) override {
    issue([=, this, &w] { inner().embed(out, w, tokens); });
  }
  void round(Rounded out, ConstRows x) override {
    issue([=, this] { inner().round(out, x); });
  }
  void matmul(Rows out, const Weight& w, const Input& x) override {
    issue([=, this, &w] { inner().matmul(out, w, x); });
  }
  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override {
    issue([=, this, &w] { inner().matmul_experts(out, w, x, route, x_per_slot); });
  }
  void matmul_many(std::span<const Part> parts, const Input& x) override {
    issue([this, list = std::vector<Part>(parts.begin(), parts.end()), x] { inner().matmul_many(list, x); });
  }
  void matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) override {
    issue([=, this, list = std::vector<Part>(parts.begin(), parts.end())] {
      inner().matmul_experts_many(list, x, route, x_per_slot);
    });
  }
  void matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight, const Weight& up_weight,
                            const Input& x, const Route& route, float limit) override {
    issue([=, this, gate_weight = &gate_weight, up_weight = &up_weight] {
      inner().matmul_experts_gated(gate, up, rounded, *gate_weight, *up_weight, x, route, limit);
    });
  }
  void matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) override {
    issue([=, this, w = &w] { inner().matmul_expand(streams, y, *w, x, coefficients); });
  }
  void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                             const Route& route, const Weight& shared_weight, const Input& shared_mid,
                             ConstRows coefficients) override {
    issue([=, this, w = &w, shared_weight = &shared_weight] {
      inner().matmul_experts_expand(streams, y, parts, shared, *w, mid, route, *shared_weight, shared_mid,
                                    coefficients);
    });
  }
  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override {
    issue([=, this, &w] { inner().matmul_grouped(out, w, x, groups); });
  }
  void matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) override {
    issue([=, this, &w] { inner().matmul_grouped_round(out, rounded, w, x, groups); });
  }
  void matmul_normed(Rows out, const Weight& w, NormedInput& x) override { Ops::matmul_normed(out, w, x); }
  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override {
    issue([=, this] { inner().rms_norm(out, x, weight, epsilon); });
  }
  void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) override {
    issue([=, this] { inner().rms_norm_round(out, rounded, x, weight, epsilon); });
  }
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override {
    issue([=, this] { inner().rotation_table(out, positions, frequencies); });
  }
  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override {
    issue([=, this] { inner().rotate(x, head_width, table, inverse); });
  }
  void rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) override {
    issue([=, this] { inner().rotate_round(x, rounded, head_width, table, inverse); });
  }
  void norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                   int fp8_channels) override {
    issue([=, this] { inner().norm_rotate(x, head_width, weight, epsilon, table, fp8_channels); });
  }
  void rotate_hadamard_fp4(Rows x, int head_width, ConstRows table) override {
    issue([=, this] { inner().rotate_hadamard_fp4(x, head_width, table); });
  }
  void add_by_position(Rows x, ConstRows table, const Position* positions) override {
    issue([=, this] { inner().add_by_position(x, table, positions); });
  }
  void scale(Rows x, float factor) override {
    issue([=, this] { inner().scale(x, factor); });
  }
  void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale_by, const float* base,
                               const HyperSpec& spec) override {
    issue([=, this] { inner().hyper_head_coefficients(out, mixes, streams, scale_by, base, spec); });
  }
  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override {
    issue([=, this] { inner().hyper_collapse(out, streams, coefficients); });
  }
  void hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                   const Input& streams, const float* scale_by, const float* base, const HyperSpec& spec,
                   const float* weight, float epsilon) override {
    issue([=, this, own = rounded == nullptr ? std::nullopt : std::optional(*rounded)] {
      inner().hyper_begin(coefficients, out, own ? &*own : nullptr, mixes, fn, streams, scale_by, base, spec, weight,
                          epsilon);
    });
  }
  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override {
    issue([=, this] { inner().hyper_expand(streams, y, coefficients); });
  }
  void hyper_spread(Rows streams, ConstRows x) override {
    issue([=, this] { inner().hyper_spread(streams, x); });
  }
  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()}] {
      inner().compress(kept(), values, gates, spec, layout);
    });
  }
  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()}] {
      inner().select_rows(out, kept(), queries, head_weights, ratio, top_k, layout);
    });
  }
  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale_by, const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()},
           own = selection == nullptr ? std::nullopt : std::optional(*selection)] {
      inner().attend(out, queries, window_rows, kept(), window, ratio, own ? &*own : nullptr, sinks, scale_by, layout);
    });
  }
  void attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices, int window,
                    int ratio, const Selection* selection, const float* sinks, float scale_by, ConstRows turns,
                    float epsilon, const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()},
           own = selection == nullptr ? std::nullopt : std::optional(*selection),
           own_rounded = rounded == nullptr ? std::nullopt : std::optional(*rounded)] {
      inner().attend_heads(queries, own_rounded ? &*own_rounded : nullptr, window_rows, kept(), window, ratio,
                           own ? &*own : nullptr, sinks, scale_by, turns, epsilon, layout);
    });
  }
  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()}] {
      inner().pack_window(stage, kept(), rows, layout);
    });
  }
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()}] {
      inner().keep_pending(stage, kept(), values, gates);
    });
  }
  void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) override {
    issue([=, this, kept = KeptSlices{slices.memory, slices.host.size()}] { inner().keep_rows(rows, kept(), layout); });
  }
  void copy(const Copies& copies) override {
    if (copies.memory == nullptr) return inner().copy(copies);
    issue([this, memory = copies.memory, count = copies.host.size()] { inner().copy({{memory, count}, memory}); });
  }
  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override {
    issue([=, this] { inner().route_experts(route, logits, bias, table, tokens, route_scale); });
  }
  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override {
    issue([=, this] { inner().swiglu(out, gate, up, row_weights, limit); });
  }
  void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                    float limit) override {
    issue([=, this] { inner().swiglu_round(out, rounded, gate, up, row_weights, limit); });
  }
  void combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                      ConstRows coefficients) override {
    issue([=, this] { inner().combine_expand(streams, y, parts, route, shared, coefficients); });
  }
  void gather(Rows out, ConstRows x, const std::int32_t* rows) override {
    issue([=, this] { inner().gather(out, x, rows); });
  }
  void run_both(const std::function<void()>& first, const std::function<void()>& second) override {
    first();
    second();
  }

 private:
  struct Tape {
    int runs = 0;
    std::vector<std::function<void()>> calls;
  };

  template <class Call>
  void issue(Call call) {
    call();
    if (recording_ != nullptr) recording_->calls.push_back(std::move(call));
  }
  std::unique_ptr<Ops> owned_;
  Tape* recording_ = nullptr;
  int played_ = 0;
  std::map<std::vector<std::uint64_t>, Tape> tapes_;
};

}  // namespace lockstep::testing
