// Ops that forward to a back end and add up the squares of what goes into its matrices.
//
// It changes no result, so a forward pass over it is the same pass. Matrices are told apart by where their data lies;
// products with others are passed on unseen. Ops::run is not forwarded: a step that the back end plays back from a
// recording would not come by here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/importance.h"
#include "ops/ops.h"

namespace lockstep {

class RecordingOps final : public Ops {
 public:
  /// `inner` must outlive it.
  explicit RecordingOps(Ops& inner) : inner_(inner) {}

  /// From now on records the inputs of `weight`, as prepared by the back end. `planes` is 1, the number of experts, or
  /// the number of groups of a grouped matrix.
  void record(const Weight& weight, std::string name, std::int64_t planes);

  /// What has been recorded, by name.
  const std::map<const std::byte*, std::pair<std::string, ImportanceEntry>>& entries() const { return entries_; }

  std::string description() const override { return inner_.description(); }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory) override { inner_.release(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override { inner_.upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { inner_.download(to, from, bytes); }
  Weight prepare(const Weight& weight) override { return inner_.prepare(weight); }

  void matmul(Rows out, const Weight& w, const Input& x) override;
  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override;
  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override;

  void embed(Rows out, const Weight& embedding, const Token* tokens) override { inner_.embed(out, embedding, tokens); }
  void round(Rounded out, ConstRows x) override { inner_.round(out, x); }
  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override {
    inner_.rms_norm(out, x, weight, epsilon);
  }
  void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) override {
    inner_.rms_norm_round(out, rounded, x, weight, epsilon);
  }
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override {
    inner_.rotation_table(out, positions, frequencies);
  }
  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override {
    inner_.rotate(x, head_width, table, inverse);
  }
  void add_by_position(Rows x, ConstRows table, const Position* positions) override {
    inner_.add_by_position(x, table, positions);
  }
  void round_fp8(Rows x, int channels) override { inner_.round_fp8(x, channels); }
  void hadamard_fp4(Rows x, int head_width) override { inner_.hadamard_fp4(x, head_width); }
  void scale(Rows x, float factor) override { inner_.scale(x, factor); }
  void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                          const HyperSpec& spec) override {
    inner_.hyper_coefficients(out, mixes, streams, scale, base, spec);
  }
  void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                               const HyperSpec& spec) override {
    inner_.hyper_head_coefficients(out, mixes, streams, scale, base, spec);
  }
  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override {
    inner_.hyper_collapse(out, streams, coefficients);
  }
  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override {
    inner_.hyper_expand(streams, y, coefficients);
  }
  void hyper_spread(Rows streams, ConstRows x) override { inner_.hyper_spread(streams, x); }
  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override {
    inner_.compress(slices, values, gates, spec, layout);
  }
  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override {
    inner_.select_rows(out, slices, queries, head_weights, ratio, top_k, layout);
  }
  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale, const RowLayout& layout) override {
    inner_.attend(out, queries, window_rows, slices, window, ratio, selection, sinks, scale, layout);
  }
  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override {
    inner_.pack_window(stage, slices, rows, layout);
  }
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override {
    inner_.keep_pending(stage, slices, values, gates);
  }
  void copy(const Copies& copies) override { inner_.copy(copies); }
  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override {
    inner_.route_experts(route, logits, bias, table, tokens, route_scale);
  }
  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override {
    inner_.swiglu(out, gate, up, row_weights, limit);
  }
  void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                    float limit) override {
    inner_.swiglu_round(out, rounded, gate, up, row_weights, limit);
  }
  void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) override {
    inner_.combine_experts(out, parts, route, shared);
  }
  void gather(Rows out, ConstRows x, const std::int32_t* rows) override { inner_.gather(out, x, rows); }
  void synchronize() override { inner_.synchronize(); }

 private:
  ImportanceEntry* find(const Weight& w);
  /// Row `row` of x in host memory, valid until the next call.
  const float* host_row(const ConstRows& x, int row);

  Ops& inner_;
  std::map<const std::byte*, std::pair<std::string, ImportanceEntry>> entries_;
  std::vector<float> row_;
  std::vector<std::int32_t> experts_;
};

}  // namespace lockstep
