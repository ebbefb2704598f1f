// The first half of a token's experts in one launch: gate and up by IQ2_XXS weights, their product with the expert's
// weight, and its rounding. By mma on CUDA (gated_mma.h), else a thread a lane (gated_lanes.h).
#include "gpu/device.h"

#if defined(LOCKSTEP_HAS_MMA)
#include "gpu/gated_mma.h"
#else
#include "gpu/gated_lanes.h"
#endif

namespace lockstep::gpu {
namespace {

/// As many thread blocks as run at once.
template <int kLanes>
void start(Runtime& runtime, Gated p) {
  const int units = p.gate.rows / kGatedChannels * p.out.rows, places = kGatedBlocks * runtime.multiprocessors();
  p.blocks = units < places ? units : places;
  launch(runtime, gated_kernel<kLanes>, {static_cast<unsigned>(p.blocks)}, kGatedThreads<kLanes>,
         sizeof(GatedShared<kLanes>), p);
}

}  // namespace

bool multiply_gated(Runtime& runtime, DType dtype, const Product& gate, const Product& up, const Rounded& rounded,
                    const float* row_weights, float limit) {
  const int width = gate.w.width;
  if (dtype != DType::iq2_xxs || gate.w.rows % kGatedChannels != 0 || gate.expert == nullptr || up.w.width != width ||
      up.w.rows != gate.w.rows || sizeof(GatedShared<16>) > runtime.most_shared_bytes())
    return false;
  const Gated p = {gate.w, up.w, gate.rounded, gate.expert, gate.x_share, gate.out, rounded, row_weights, limit, 1};
  if (is_lane_width(width, 16))
    start<16>(runtime, p);
  else if (is_lane_width(width, 8))
    start<8>(runtime, p);
  else
    return false;
  return true;
}

void prepare_gated(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&gated_kernel<16>), sizeof(GatedShared<16>));
  runtime.allow_shared(reinterpret_cast<const void*>(&gated_kernel<8>), sizeof(GatedShared<8>));
}

}  // namespace lockstep::gpu
