// Ops that pass everything on to a back end and take the time of it, by phase or by op.
//
// It changes no result. While the timing is off, an op costs one call more. Two parts of a step that could run side by
// side run one after the other while it is on, so that each time belongs to one of them; a device's recordings made
// with it on are others than those made without. One thread, like every Ops.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/forwarding_ops.h"

namespace lockstep {

/// How finely time is taken: not at all, where the phase changes, or at every op as well.
enum class Timing : std::uint8_t { off, phases, ops };

class TimedOps final : public ForwardingOps {
 public:
  struct Work {
    double seconds = 0;
    std::uint64_t calls = 0;         // of a phase: how often it was entered
    std::uint64_t weight_bytes = 0;  // of products, at most; not known by phases alone
  };
  struct Times {
    std::array<Work, kPhases> phases{};   // by StepPhase
    std::map<std::string, Work> kernels;  // "matmul q8_0", "attend": only with Timing::ops
    std::uint64_t steps = 0;              // that were timed
    std::uint64_t untimed_steps = 0;      // played again from a recording that is not remembered any more

    const Work& of(StepPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
    double seconds() const;  // of all phases
  };

  /// Starts with the timing off.
  explicit TimedOps(std::unique_ptr<Ops> inner);
  ~TimedOps() override;

  /// Takes effect with the next step.
  void set_timing(Timing timing) { wanted_ = timing; }
  Timing timing() const { return timing_; }
  /// All work that has been waited for, since the last reset.
  const Times& times() const { return times_; }
  void reset() { times_ = {}; }

  void enter(StepPhase phase, int layer) override;
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override;
  void begin_experts(const ExpertsBegin& e, const Input& x) override;
  void matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                             const Route& route, const Weight& shared_weight, const Input& shared_mid,
                             ConstRows coefficients) override;
  void run_both(const std::function<void()>& first, const std::function<void()>& second) override;
  void synchronize() override;
  void download(void* to, const void* from, std::size_t bytes) override;

 protected:
  void before(const OpCall& call) override;
  void after(const OpCall& call) override;

 private:
  /// What lies between a point and the next one.
  struct Span {
    StepPhase phase = StepPhase::none;
    bool is_entry = false;
    int kernel = -1;  // of kernel_names_
    std::uint64_t weight_bytes = 0;
  };
  /// Points of a stretch of work that is waited for as a whole.
  struct Log {
    std::unique_ptr<Stamps> stamps;
    std::vector<Span> spans;  // from each point on
    void put(const Span& span);
  };

  void collect(Log& log);
  int kernel_of(const OpCall& call);

  std::unique_ptr<Ops> owned_;
  Timing wanted_ = Timing::off, timing_ = Timing::off;
  Log step_, outside_;  // within run(), and the ops around it
  std::unique_ptr<Stamps> host_;
  bool is_running_ = false;
  StepPhase phase_ = StepPhase::none;
  bool is_entered_ = false;                                           // the next span is the first of its phase
  bool is_sampling_ = false;                                          // the host's clock runs
  std::map<std::vector<std::uint64_t>, std::vector<Span>> recorded_;  // by key: what a recording consists of
  std::map<std::string, int> kernel_index_;
  std::vector<std::string> kernel_names_;
  Times times_;
};

}  // namespace lockstep
