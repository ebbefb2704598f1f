#include "ops/timed_ops.h"

#include <chrono>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kMostRecorded = 256;  // more than a back end keeps recordings

class HostStamps final : public Stamps {
 public:
  void put(int index) override {
    if (points_.size() <= static_cast<std::size_t>(index)) points_.resize(static_cast<std::size_t>(index) + 1);
    points_[static_cast<std::size_t>(index)] = std::chrono::steady_clock::now();
  }
  double seconds_after(int index) override {
    const std::size_t i = static_cast<std::size_t>(index);
    return std::chrono::duration<double>(points_.at(i + 1) - points_.at(i)).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> points_;
};

}  // namespace

std::unique_ptr<Stamps> make_host_stamps() { return std::make_unique<HostStamps>(); }

double TimedOps::Times::seconds() const {
  double sum = 0;
  for (const Work& work : phases) sum += work.seconds;
  return sum;
}

TimedOps::TimedOps(std::unique_ptr<Ops> owned)
    : ForwardingOps(*owned), owned_(std::move(owned)), host_(make_host_stamps()) {
  step_.stamps = inner().make_stamps();
  outside_.stamps = inner().make_stamps();
}

TimedOps::~TimedOps() {
  step_.stamps.reset();  // they may be the back end's
  outside_.stamps.reset();
}

void TimedOps::Log::put(const Span& span) {
  stamps->put(static_cast<int>(spans.size()));
  spans.push_back(span);
}

void TimedOps::enter(StepPhase phase, int layer) {
  inner().enter(phase, layer);
  if (timing_ == Timing::off) {
    phase_ = phase;
    return;
  }
  if (is_sampling_) {
    host_->put(1);
    Work& work = times_.phases[static_cast<std::size_t>(StepPhase::sample)];
    work.seconds += host_->seconds_after(0);
    ++work.calls;
    is_sampling_ = false;
  }
  if (phase == StepPhase::sample) {
    synchronize();  // what was issued before is not the host's
    host_->put(0);
    is_sampling_ = true;
  }
  if (phase == phase_) return;
  phase_ = phase;
  is_entered_ = true;
  if (timing_ == Timing::phases && is_running_) {
    step_.put({phase_, true, -1, 0});
    is_entered_ = false;
  }
}

void TimedOps::before(const OpCall& call) {
  if (timing_ == Timing::off || is_sampling_) return;  // what the host samples with is in its own time
  if (is_running_ && timing_ == Timing::phases) return;
  Log& log = is_running_ ? step_ : outside_;
  log.put(
      {phase_, std::exchange(is_entered_, false), timing_ == Timing::ops ? kernel_of(call) : -1, call.weight_bytes});
}

void TimedOps::after(const OpCall& /*call*/) {
  if (timing_ == Timing::off || is_sampling_ || is_running_) return;
  outside_.put({});  // what comes between ops outside of a step is nobody's
}

int TimedOps::kernel_of(const OpCall& call) {
  std::string name = call.name;
  if (call.weight_bytes > 0) {
    name += ' ';
    name += call.format ? info_of(*call.format).name : std::string_view("mixed");
  }
  const auto [at, is_new] = kernel_index_.emplace(std::move(name), static_cast<int>(kernel_names_.size()));
  if (is_new) kernel_names_.push_back(at->first);
  return at->second;
}

void TimedOps::run(std::span<const std::uint64_t> key, const std::function<void()>& body) {
  if (wanted_ != timing_) {
    synchronize();
    timing_ = wanted_;
  }
  if (timing_ == Timing::off) return inner().run(key, body);
  if (!step_.spans.empty() || !outside_.spans.empty()) synchronize();  // nobody has waited for it
  std::vector<std::uint64_t> own(key.begin(), key.end());
  own.push_back(static_cast<std::uint64_t>(timing_));
  bool has_run = false;
  is_running_ = true;
  try {
    inner().run(own, [&] {
      has_run = true;
      step_.spans.clear();
      phase_ = StepPhase::none;
      body();
      step_.put({});
    });
  } catch (...) {
    is_running_ = false;
    step_.spans.clear();
    throw;
  }
  is_running_ = false;
  phase_ = StepPhase::none;
  if (has_run) {
    if (recorded_.size() >= kMostRecorded) recorded_.clear();
    recorded_[std::move(own)] = step_.spans;
  } else if (const auto found = recorded_.find(own); found != recorded_.end()) {
    step_.spans = found->second;
  } else {
    ++times_.untimed_steps;
    return;
  }
  ++times_.steps;
}

void TimedOps::run_both(const std::function<void()>& first, const std::function<void()>& second) {
  if (timing_ == Timing::off) return inner().run_both(first, second);
  const StepPhase before = phase_;
  first();
  enter(before, -1);
  second();
}

void TimedOps::begin_experts(const ExpertsBegin& e, const Input& x) {
  if (timing_ == Timing::off) return inner().begin_experts(e, x);
  Ops::begin_experts(e, x);  // op by op
}

void TimedOps::matmul_experts_expand(Rows streams, Rows y, Rows parts, Rows shared, const Weight& w, const Input& mid,
                                     const Route& route, const Weight& shared_weight, const Input& shared_mid,
                                     ConstRows coefficients) {
  if (timing_ == Timing::off)
    return inner().matmul_experts_expand(streams, y, parts, shared, w, mid, route, shared_weight, shared_mid,
                                         coefficients);
  Ops::matmul_experts_expand(streams, y, parts, shared, w, mid, route, shared_weight, shared_mid, coefficients);
}

void TimedOps::synchronize() {
  inner().synchronize();
  collect(step_);
  collect(outside_);
}

void TimedOps::download(void* to, const void* from, std::size_t bytes) {
  inner().download(to, from, bytes);
  if (timing_ != Timing::off && !is_running_) synchronize();
}

/// Adds up what has happened. The last span of a stretch is nobody's and has no end.
void TimedOps::collect(Log& log) {
  for (std::size_t i = 0; i + 1 < log.spans.size(); ++i) {
    const Span& span = log.spans[i];
    if (span.phase == StepPhase::none) continue;
    const double seconds = log.stamps->seconds_after(static_cast<int>(i));
    Work& phase = times_.phases[static_cast<std::size_t>(span.phase)];
    phase.seconds += seconds;
    phase.calls += span.is_entry;
    phase.weight_bytes += span.weight_bytes;
    if (span.kernel < 0) continue;
    Work& kernel = times_.kernels[kernel_names_[static_cast<std::size_t>(span.kernel)]];
    kernel.seconds += seconds;
    ++kernel.calls;
    kernel.weight_bytes += span.weight_bytes;
  }
  log.spans.clear();
}

}  // namespace lockstep
