// Steps recorded once and played again: a graph of a thousand kernels starts in one call.
//
// A key is run plainly when it is first seen (whatever grows, grows then), recorded the second time, and played from
// then on. The least recently used recordings are dropped. A step may refuse: a recording takes tens of milliseconds,
// and where kernels are long the host is ahead of the device anyway.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "gpu/runtime.h"

namespace lockstep::gpu {

class Recorder {
 public:
  explicit Recorder(Runtime& runtime) : runtime_(runtime) {}
  ~Recorder() { forget(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Ops::run. Throws what the body throws; then nothing of it has been recorded.
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body);
  bool is_recording() const { return is_recording_; }
  /// By a body that is run for the first time: it will always be run plainly.
  void refuse() { is_refused_ = true; }
  /// Drops all recordings: memory that they use has moved.
  void forget();
  /// Drops the recordings whose key has that address.
  void forget(const void* address);

 private:
  struct Entry {
    std::vector<std::uint64_t> key;
    Recording recording{};
    bool is_refused = false;  // or could not be recorded
  };
  Runtime& runtime_;
  std::list<Entry> entries_;  // the last used one first
  bool is_recording_ = false;
  bool is_refused_ = false;  // by the body that is being run
};

}  // namespace lockstep::gpu
