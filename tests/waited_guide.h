// A job's end that a test waits for.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "engine/scheduler.h"

namespace lockstep::test {

class WaitedGuide : public Guide {
 public:
  void on_end(const JobResult& result) override {
    const std::lock_guard lock(mutex_);
    if (result_) has_ended_twice_ = true;
    result_ = result;
    changed_.notify_all();
  }

  /// Throws std::runtime_error if the end has come twice.
  JobResult wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value(); });
    if (has_ended_twice_) throw std::runtime_error("a job ended twice");
    return *result_;
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return result_.has_value();
  }

 protected:
  /// Until the condition holds, looked at with the mutex held whenever `changed_` is told, or the job has ended.
  template <class Condition>
  void wait_until(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return condition() || result_.has_value(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;

 private:
  std::optional<JobResult> result_;
  bool has_ended_twice_ = false;
};

}  // namespace lockstep::test
