// A few tokens, more than one, by Q8_0 weights on int8 tensor cores: what thin_matmul.cu offers.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// Whether the kernel is in this build, takes such products (of one input and one width), and pays.
bool can_thin(const Runtime& runtime, DType dtype, const Product* products, int count);
/// At most kMostParts products.
void multiply_thin(Runtime& runtime, const Product* products, int count);
/// Once, before the first multiply_thin.
void prepare_thin(Runtime& runtime);

}  // namespace lockstep::gpu
