// The second half of one token's experts in one launch (down_experts.cu).
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// The last products of one token's experts and the shared one, added up and spread over the streams. False, with
/// nothing done, for other formats and shapes than there is a kernel for.
bool multiply_down(Runtime& runtime, DType dtype, const Product& down, int used, DType shared_dtype,
                   const Product& shared, Rows streams, ConstRows coefficients);
/// Once, before the first of them.
void prepare_down(Runtime& runtime);

}  // namespace lockstep::gpu
