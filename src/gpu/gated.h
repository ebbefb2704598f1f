// What the two kernels of gated_experts.cu are given.
#pragma once

#include "gpu/matmul.h"

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
  int blocks;  // of the launch
};

}  // namespace lockstep::gpu
