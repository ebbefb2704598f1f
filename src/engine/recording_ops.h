// Ops that pass everything on to a back end and add up the squares of what goes into its matrices.
//
// It changes no result, so a forward pass over it is the same pass. Matrices are told apart by where their data lies;
// products with others are passed on unseen. Products in common are taken one by one, and Ops::run is not passed on: a
// step that the back end plays back from a recording would not come by here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/importance.h"
#include "ops/forwarding_ops.h"

namespace lockstep {

class RecordingOps final : public ForwardingOps {
 public:
  /// `inner` must outlive it.
  using ForwardingOps::ForwardingOps;

  /// From now on records the inputs of `weight`, as prepared by the back end. `planes` is 1, the number of experts, or
  /// the number of groups of a grouped matrix.
  void record(const Weight& weight, std::string name, std::int64_t planes);

  /// What has been recorded, by name.
  const std::map<const std::byte*, std::pair<std::string, ImportanceEntry>>& entries() const { return entries_; }

  void matmul(Rows out, const Weight& w, const Input& x) override;
  void matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) override;
  void matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) override;
  void matmul_many(std::span<const Part> parts, const Input& x) override { Ops::matmul_many(parts, x); }
  void matmul_experts_gated(Rows gate, Rows up, Rounded rounded, const Weight& gate_weight, const Weight& up_weight,
                            const Input& x, const Route& route, float limit) override {
    Ops::matmul_experts_gated(gate, up, rounded, gate_weight, up_weight, x, route, limit);
  }
  void matmul_expand(Rows streams, Rows y, const Weight& w, const Input& x, ConstRows coefficients) override {
    Ops::matmul_expand(streams, y, w, x, coefficients);
  }
  void matmul_grouped_round(Rows out, Rounded rounded, const Weight& w, const Input& x, int groups) override {
    Ops::matmul_grouped_round(out, rounded, w, x, groups);
  }
  void matmul_normed(Rows out, const Weight& w, NormedInput& x) override { Ops::matmul_normed(out, w, x); }
  void hyper_begin(Rows coefficients, Rows out, const Rounded* rounded, Rows mixes, const Weight& fn,
                   const Input& streams, const float* scale, const float* base, const HyperSpec& spec,
                   const float* weight, float epsilon) override {
    Ops::hyper_begin(coefficients, out, rounded, mixes, fn, streams, scale, base, spec, weight, epsilon);
  }
  void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                             const Route& route, const Weight& shared_weight, const Input& shared_mid,
                             ConstRows coefficients) override {
    Ops::matmul_experts_expand(streams, y, parts, shared, w, mid, route, shared_weight, shared_mid, coefficients);
  }
  void matmul_experts_many(std::span<const Part> parts, const Input& x, const Route& route, bool x_per_slot) override {
    Ops::matmul_experts_many(parts, x, route, x_per_slot);
  }
  void run(std::span<const std::uint64_t>, const std::function<void()>& body) override { body(); }

 private:
  ImportanceEntry* find(const Weight& w);
  /// Row `row` of x in host memory, valid until the next call.
  const float* host_row(const ConstRows& x, int row);

  std::map<const std::byte*, std::pair<std::string, ImportanceEntry>> entries_;
  std::vector<float> row_;
  std::vector<std::int32_t> experts_;
};

}  // namespace lockstep
