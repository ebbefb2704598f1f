// The back end of literal loops. The CPU back end derives from it and overrides what it makes fast, so an op that
// nobody has made fast yet is merely slow.
#pragma once

#include "ops/ops.h"

namespace lockstep {

class ReferenceOps : public Ops {
 public:
  std::string description() const override { return "reference loops"; }

  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  void upload(void* to, const void* from, std::size_t bytes) override;
  void download(void* to, const void* from, std::size_t bytes) override;
  Weight prepare(const Weight& weight) override { return weight; }

  void embed(Rows out, const Weight& embedding, const Token* tokens) override;
  void round(Rounded out, ConstRows x) override;
  void matmul(Rows out, const Weight& w, const Input& x) override;
  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override;

  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override;
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override;
  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override;
  void add_by_position(Rows x, ConstRows table, const Position* positions) override;
  void round_fp8(Rows x, int channels) override;
  void hadamard_fp4(Rows x, int head_width) override;
  void scale(Rows x, float factor) override;

  void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                          const HyperSpec& spec) override;
  void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                               const HyperSpec& spec) override;
  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override;
  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override;
  void hyper_spread(Rows streams, ConstRows x) override;

  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override;
  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override;
  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale, const RowLayout& layout) override;
  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override;
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override;
  void copy(const Copies& copies) override;

  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override;
  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override;
  void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) override;
  void gather(Rows out, ConstRows x, const std::int32_t* rows) override;

 protected:
  // One row of the ops of the same name, so that a derived class can divide rows over threads.
  void select_row(const Selection& out, const SequenceSlice& slice, int i, ConstRows queries, ConstRows head_weights,
                  int ratio, int top_k, const RowLayout& layout) const;
  void attend_row(Rows out, ConstRows queries, ConstRows window_rows, const SequenceSlice& slice, int i, int window,
                  int ratio, const Selection* selection, const float* sinks, float scale,
                  const RowLayout& layout) const;
};

}  // namespace lockstep
