#include "gpu/telemetry.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "gpu/kernels.h"

namespace lockstep::gpu {
namespace {

constexpr std::size_t kMostRead = std::size_t{1} << 30, kLeastRead = std::size_t{16} << 20;
constexpr int kPasses = 3;

/// Device memory until the end of a block.
class Scratch {
 public:
  Scratch(Runtime& runtime, std::size_t bytes) : runtime_(runtime), memory_(runtime.allocate(bytes)) {}
  ~Scratch() { runtime_.release(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* memory() const { return memory_; }

 private:
  Runtime& runtime_;
  void* memory_;
};

}  // namespace

double measure_clock(Runtime& runtime) {
  const Scratch scratch(runtime, 2 * sizeof(std::uint64_t));
  watch_clock(runtime, static_cast<std::uint64_t*>(scratch.memory()));
  std::uint64_t seen[2] = {};  // cycles, nanoseconds
  runtime.download(seen, scratch.memory(), sizeof seen);
  return seen[1] == 0 ? 0 : 1e9 * static_cast<double>(seen[0]) / static_cast<double>(seen[1]);
}

double measure_read_rate(Runtime& runtime) {
  const std::size_t bytes = std::clamp(runtime.free_bytes() / 2 / kLeastRead * kLeastRead, kLeastRead, kMostRead);
  const Scratch scratch(runtime, bytes), sum(runtime, sizeof(std::uint32_t));
  runtime.clear(scratch.memory(), bytes);
  EventStamps stamps(runtime);
  double best = 0;
  for (int pass = 0; pass <= kPasses; ++pass) {
    stamps.put(0);
    read_memory(runtime, scratch.memory(), bytes, static_cast<std::uint32_t*>(sum.memory()));
    stamps.put(1);
    runtime.synchronize();
    const double seconds = stamps.seconds_after(0);
    if (pass > 0 && seconds > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

EventStamps::~EventStamps() {
  for (const Event event : events_) runtime_.destroy(event);
}

void EventStamps::put(int index) {
  while (events_.size() <= static_cast<std::size_t>(index)) events_.push_back(runtime_.make_event());
  runtime_.put(events_[static_cast<std::size_t>(index)]);
}

double EventStamps::seconds_after(int index) {
  const std::size_t i = static_cast<std::size_t>(index);
  return runtime_.seconds_between(events_.at(i), events_.at(i + 1));
}

}  // namespace lockstep::gpu
