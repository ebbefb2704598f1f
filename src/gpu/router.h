// The router's product and the choice of experts in one launch (router.cu).
#pragma once

#include "gpu/kernels.h"
#include "gpu/matmul.h"

namespace lockstep::gpu {

struct RouterCall {
  Matrix w;
  const float* x;
  float* room;  // for a float an expert
  Route route;
  const float* bias;
  const std::int32_t* table;
  const Token* tokens;
  float scale;
  int* done;  // blocks; 0 between launches
  int blocks;
};

/// Whether there is a kernel for this router and these activations. The launch after it may take them for known.
bool can_route(DType dtype, const Matrix& w, ConstRows x);
void route_by_product(Runtime& runtime, RouterCall call);

}  // namespace lockstep::gpu
