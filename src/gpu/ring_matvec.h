// One token by weights that pass through shared memory: what ring_matvec.cu offers.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// A product, and what goes with it.
struct RingCall {
  explicit RingCall(const Product& product) : p(product) {}
  Product p;
  int block_rows = 0;  // of a thread block; set by multiply_ring
  // The input is `raw`, still to be normed by `norm` and, for quantised weights, rounded; if `raw` has data.
  ConstRows raw;
  const float* norm = nullptr;
  float epsilon = 0;
  Rounded rounded;  // of what comes out, if it has codes
};

/// Whether it takes the product: of one token, with rows of the model's attention, on a device that can copy into
/// shared memory without waiting.
///   q8_0  1024 values, 4096 (also in groups) or 8192; a norm before those of 1024
///   f16   1024 values with a norm
bool can_ring(const Runtime& runtime, DType dtype, const RingCall& call);
void multiply_ring(Runtime& runtime, DType dtype, RingCall call);
/// Once, before the first product.
void prepare_rings(Runtime& runtime);

}  // namespace lockstep::gpu
