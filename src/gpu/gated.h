// What the two kernels of gated_experts.cu are given.
#pragma once

#include "gpu/device.h"
#include "gpu/matmul.h"
#include "gpu/round_kernel.h"
#include "ops/rows.h"

namespace lockstep::gpu {

inline constexpr int kGatedChannels = kBlock;  // of a unit: what is rounded together, of one slot

struct Gated {
  Matrix gate, up;
  Rounded x;
  const std::int32_t* expert;
  int x_share;
  Rows out;
  Rounded rounded;
  const float* row_weights;
  float limit;
  SwigluCall beside;
  int blocks;  // of the launch
};

#if defined(LOCKSTEP_KERNEL)

/// The block's share of p.beside, by one warp.
LOCKSTEP_DEVICE void swiglu_beside(const Gated& p) {
  const SwigluCall& s = p.beside;
  const int groups = s.gate.width / kBlock;
  for (int i = block_x(); i < groups * s.gate.rows; i += p.blocks) {
    const int row = i / groups, d = i % groups * kBlock + lane_index();
    float& gate = s.gate.data[row * s.gate.stride + d];
    const float value = swiglu_value(gate, s.up.data[row * s.up.stride + d], s.limit);
    gate = value;
    round_value(s.rounded, row, d, value);
  }
}

#endif

}  // namespace lockstep::gpu
