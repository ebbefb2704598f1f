// A few tokens by float weights: what float_few.cu offers.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// Whether it takes such products: 2 to 63 tokens by F16, BF16 or F32 rows of 1024, 2048, 4096 or 16384 values, no
/// experts and no groups; `count` matrices of one width.
bool can_multiply_few(DType dtype, const Product* products, int count);
/// Products of one input.
void multiply_few_floats(Runtime& runtime, DType dtype, const Product* products, int count);

}  // namespace lockstep::gpu
