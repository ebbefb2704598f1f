// Where the tokens of answers come from: the scheduler, or in tests a script.
#pragma once

#include <optional>
#include <utility>

#include "engine/scheduler.h"

namespace lockstep {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// As Scheduler::submit: takes the job and will call its guide from another thread, or says why not.
  virtual std::optional<Scheduler::Refusal> submit(Job job) = 0;
};

/// Borrows the scheduler.
class SchedulerSource : public TokenSource {
 public:
  explicit SchedulerSource(Scheduler& scheduler) : scheduler_(scheduler) {}
  std::optional<Scheduler::Refusal> submit(Job job) override { return scheduler_.submit(std::move(job)); }

 private:
  Scheduler& scheduler_;
};

}  // namespace lockstep
