// The kernels of the quantised formats, by where they are compiled: each file's compile takes minutes.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// Null if the format is compiled elsewhere.
const FormatKernels* common_kernels_of(DType dtype);
const FormatKernels* plain_kernels_of(DType dtype);
const FormatKernels* grid_kernels_of(DType dtype);

}  // namespace lockstep::gpu
