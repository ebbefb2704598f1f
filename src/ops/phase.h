// The parts of a step that time is accounted to, and points in a back end's work that can be told apart by time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep {

/// What ops belong to (Ops::enter). The products of a sublayer's normed input are one op and count as attention, those
/// of the compressors and the indexer too.
enum class StepPhase : std::uint8_t {
  embed,       // embeddings and tables of rotations
  hyper,       // hyper-connections: mixes, Sinkhorn, norms of the sublayers' inputs, spreading
  attention,   // queries, rows, scores, sums, output
  compressor,  // pooling of compressed rows
  indexer,     // its keys, queries and choice
  router,
  experts,  // routed and shared
  head,     // from streams to logits
  sample,   // from logits to tokens, as long as the host waits for it
  none,     // outside of any: not counted
};
inline constexpr int kPhases = 9;  // none left out

constexpr std::string_view name_of(StepPhase phase) {
  constexpr std::string_view kNames[] = {"embed",  "hc",      "attention", "compressor", "indexer",
                                         "router", "experts", "head",      "sample",     "none"};
  return kNames[static_cast<int>(phase)];
}

/// Points in the work that a back end has been given.
class Stamps {
 public:
  virtual ~Stamps() = default;
  /// Point `index` lies behind what has been issued so far. While a step is recorded it becomes part of the recording.
  virtual void put(int index) = 0;
  /// From point `index` to the next one. Both have happened (Ops::synchronize).
  virtual double seconds_after(int index) = 0;
};

/// Of a back end whose ops are done when they return.
std::unique_ptr<Stamps> make_host_stamps();

/// What a device says about itself; zeros where there is no telling.
struct DeviceState {
  std::uint64_t total_bytes = 0, free_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // that its ops may come to take for themselves
  double clock_hz = 0;              // seen just now, under load
  double most_clock_hz = 0;         // what it may reach
};

}  // namespace lockstep
