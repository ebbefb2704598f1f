// Steps recorded once and played again: a graph of a thousand kernels starts in one call.
//
// A key is run plainly when it is first seen (whatever grows, grows then), recorded the second time, and played from
// then on. The least recently used recordings are dropped.
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
  /// Drops all recordings: memory that they use has moved.
  void forget();
  /// Drops the recordings whose key has that address.
  void forget(const void* address);

 private:
  struct Entry {
    std::vector<std::uint64_t> key;
    Recording recording{};
    bool is_refused = false;  // could not be recorded
  };
  Runtime& runtime_;
  std::list<Entry> entries_;  // the last used one first
  bool is_recording_ = false;
};

}  // namespace lockstep::gpu
