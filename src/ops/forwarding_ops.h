// Ops that pass everything on to a back end, fused ops too, and let a derived class look before and after each one.
//
// It changes no result. What it tells of an op is its name, its weight and the rows that it writes, which is what
// timing (ops/timed_ops.h) and comparing paths (engine/trace_ops.h) need.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ops/ops.h"

namespace lockstep {

/// Rows that an op writes, in the back end's memory.
struct OpOutput {
  enum class Element : std::uint8_t { f32, i8, i16, i32, bytes };
  const char* name = "";  // "out", "codes"
  Element element = Element::f32;
  const std::byte* data = nullptr;
  int rows = 0;
  std::size_t row_bytes = 0;
  std::ptrdiff_t stride_bytes = 0;
};

/// One op, as it is passed on.
struct OpCall {
  const char* name = "";
  std::optional<DType> format;     // of the weights of a product, if they have one in common
  std::uint64_t weight_bytes = 0;  // that it reads, at most: experts are not counted twice, and may share rows
  std::array<OpOutput, 8> outputs;
  int output_count = 0;

  explicit OpCall(const char* name_) : name(name_) {}
  OpCall& reads(const Weight& w, int planes = 1);
  OpCall& writes(const Rows& out, const char* part = "out");
  OpCall& writes(const Rounded& out);
  OpCall& writes(const Selection& out, int rows);
  OpCall& writes(const Route& out);
};

class ForwardingOps : public Ops {
 public:
  /// Borrows `inner`.
  explicit ForwardingOps(Ops& inner) : inner_(inner) {}

  std::string description() const override { return inner_.description(); }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory) override { inner_.release(memory); }
  void upload(void* to, const void* from, std::size_t bytes) override { inner_.upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { inner_.download(to, from, bytes); }
  Weight prepare(const Weight& weight) override { return inner_.prepare(weight); }

  void embed(Rows out, const Weight& embedding, const Token* tokens) override;
  void round(Rounded out, ConstRows x) override;
  void matmul(Rows out, const Weight& w, const Input& x) override;
  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override;
  void matmul_many(std::span<const Part> parts, const Input& x) override;
  void matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) override;
  void matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight, const Weight& up_weight,
                            const Input& x, const Route& route, float limit) override;
  void matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) override;
  void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                             const Route& route, const Weight& shared_weight, const Input& shared_mid,
                             ConstRows coefficients) override;
  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override;
  void matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) override;
  void matmul_normed(Rows out, const Weight& w, NormedInput& x) override;

  void rms_norm(Rows out, ConstRows x, const float* weight, float epsilon) override;
  void rms_norm_round(Rows out, Rounded rounded, ConstRows x, const float* weight, float epsilon) override;
  void rotation_table(Rows out, const Position* positions, const float* frequencies) override;
  void rotate(Rows x, int head_width, ConstRows table, bool inverse) override;
  void rotate_round(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) override;
  void norm_rotate(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                   int fp8_channels) override;
  void rotate_hadamard_fp4(Rows x, int head_width, ConstRows table) override;
  void add_by_position(Rows x, ConstRows table, const Position* positions) override;
  void round_fp8(Rows x, int channels) override;
  void hadamard_fp4(Rows x, int head_width) override;
  void scale(Rows x, float factor) override;

  void hyper_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                          const HyperSpec& spec) override;
  void hyper_head_coefficients(Rows out, ConstRows mixes, ConstRows streams, const float* scale, const float* base,
                               const HyperSpec& spec) override;
  void hyper_collapse(Rows out, ConstRows streams, ConstRows coefficients) override;
  void hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                   const Input& streams, const float* scale, const float* base, const HyperSpec& spec,
                   const float* weight, float epsilon) override;
  void hyper_expand(Rows streams, ConstRows y, ConstRows coefficients) override;
  void hyper_spread(Rows streams, ConstRows x) override;

  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override;
  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override;
  void attend(Rows out, ConstRows queries, ConstRows window_rows, const Slices& slices, int window, int ratio,
              const Selection* selection, const float* sinks, float scale, const RowLayout& layout) override;
  void attend_heads(Rows queries, const Rounded* rounded, ConstRows window_rows, const Slices& slices, int window,
                    int ratio, const Selection* selection, const float* sinks, float scale_by, ConstRows turns,
                    float epsilon, const RowLayout& layout) override;
  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override;
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override;
  void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) override;
  void copy(const Copies& copies) override;

  void route_experts(Route route, ConstRows logits, const float* bias, const std::int32_t* table, const Token* tokens,
                     float route_scale) override;
  void swiglu(Rows out, ConstRows gate, ConstRows up, const float* row_weights, float limit) override;
  void swiglu_round(Rows out, Rounded rounded, ConstRows gate, ConstRows up, const float* row_weights,
                    float limit) override;
  void combine_experts(Rows out, ConstRows parts, const Route& route, ConstRows shared) override;
  void combine_expand(Rows streams, Rows y, ConstRows parts, const Route& route, ConstRows shared,
                      ConstRows coefficients) override;
  void gather(Rows out, ConstRows x, const std::int32_t* rows) override;

  void draw(Token* out, ConstRows x, const DrawChoice* choices, int count) override;

  void run_both(const std::function<void()>& first, const std::function<void()>& second) override {
    inner_.run_both(first, second);
  }
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override { inner_.run(key, body); }
  void synchronize() override { inner_.synchronize(); }

  void enter(StepPhase phase, int layer) override { inner_.enter(phase, layer); }
  std::unique_ptr<Stamps> make_stamps() override { return inner_.make_stamps(); }
  DeviceState device_state() override { return inner_.device_state(); }
  double read_rate() override { return inner_.read_rate(); }

 protected:
  virtual void before(const OpCall& /*call*/) {}
  virtual void after(const OpCall& /*call*/) {}
  Ops& inner() { return inner_; }

 private:
  template <class Body>
  void pass(const OpCall& call, Body&& body) {
    before(call);
    body();
    after(call);
  }

  Ops& inner_;
};

}  // namespace lockstep
