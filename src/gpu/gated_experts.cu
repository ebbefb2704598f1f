// The first half of a token's experts in one launch: gate and up by IQ2_XXS weights, their product with the expert's
// weight, and its rounding. By mma where a block can have 216 KB of shared memory
// (gated_mma.h), else a thread a lane (gated_lanes.h).
#include "gpu/gated_lanes.h"
#if defined(LOCKSTEP_HAS_MMA)
#include "gpu/gated_mma.h"
#endif

namespace lockstep::gpu {
namespace {

/// As many thread blocks as run at once.
void start(Runtime& runtime, void (*kernel)(Gated), int threads, std::size_t shared_bytes, int blocks_at_once,
           Gated p) {
  const int units = p.gate.rows / kGatedChannels * p.out.rows, places = blocks_at_once * runtime.multiprocessors();
  p.blocks = units < places ? units : places;
  launch(runtime, kernel, {static_cast<unsigned>(p.blocks)}, static_cast<unsigned>(threads), shared_bytes, p);
}

template <int kLanes>
bool start_of(Runtime& runtime, const Gated& p) {
#if defined(LOCKSTEP_HAS_MMA)
  if (sizeof(GatedShared<kLanes>) <= runtime.most_shared_bytes()) {
    start(runtime, gated_kernel<kLanes>, kGatedThreads<kLanes>, sizeof(GatedShared<kLanes>), kGatedBlocks, p);
    return true;
  }
#endif
  if (sizeof(GatedLaneShared<kLanes>) > runtime.most_shared_bytes()) return false;
  start(runtime, gated_lane_kernel<kLanes>, kLaneThreads, sizeof(GatedLaneShared<kLanes>), kGatedLaneBlocks, p);
  return true;
}

template <int kLanes>
void allow(Runtime& runtime) {
#if defined(LOCKSTEP_HAS_MMA)
  runtime.allow_shared(reinterpret_cast<const void*>(&gated_kernel<kLanes>), sizeof(GatedShared<kLanes>));
#endif
  runtime.allow_shared(reinterpret_cast<const void*>(&gated_lane_kernel<kLanes>), sizeof(GatedLaneShared<kLanes>));
}

}  // namespace

bool multiply_gated(Runtime& runtime, DType dtype, const Product& gate, const Product& up, const Rounded& rounded,
                    const float* row_weights, float limit, const SwigluCall& beside) {
  const int width = gate.w.width;
  if (dtype != DType::iq2_xxs || gate.w.rows % kGatedChannels != 0 || gate.expert == nullptr || up.w.width != width ||
      up.w.rows != gate.w.rows)
    return false;
  const Gated p = {gate.w, up.w, gate.rounded, gate.expert, gate.x_share, gate.out, rounded, row_weights, limit,
                   beside, 1};
  if (is_lane_width(width, 16)) return start_of<16>(runtime, p);
  if (is_lane_width(width, 8)) return start_of<8>(runtime, p);
  return false;
}

void prepare_gated(Runtime& runtime) {
  allow<16>(runtime);
  allow<8>(runtime);
}

}  // namespace lockstep::gpu
