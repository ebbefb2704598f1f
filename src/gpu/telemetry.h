// What a device can be asked about itself by measuring: its clock, the rate at which it reads its memory, and times of
// points in its work.
#pragma once

#include <memory>
#include <vector>

#include "gpu/runtime.h"
#include "ops/phase.h"

namespace lockstep::gpu {

/// The clock in Hz, from a kernel that runs for half a millisecond; 0 if the device cannot tell.
double measure_clock(Runtime& runtime);

/// Bytes a second of plain reads of up to 1 GiB, the best of three passes. Throws Error::no_memory if there is not even
/// room for a small one.
double measure_read_rate(Runtime& runtime);

/// Events of the runtime's stream.
class EventStamps final : public Stamps {
 public:
  explicit EventStamps(Runtime& runtime) : runtime_(runtime) {}
  ~EventStamps() override;
  void put(int index) override;
  double seconds_after(int index) override;

 private:
  Runtime& runtime_;
  std::vector<Event> events_;
};

}  // namespace lockstep::gpu
