// The GPU back end: the ops on one device, from one source for CUDA and HIP, with the bits of ops/reference.cc.
#pragma once

#include <memory>
#include <string_view>

#include "ops/ops.h"

namespace lockstep::gpu {

struct GpuOptions {
  int device = 0;
};

/// "cuda", "hip" or "emulated": what this build was made for, and the name of the back end.
std::string_view back_end_name();

/// Throws Error::unsupported if there is no device that this build can use, Error::bad_argument if there are fewer.
std::unique_ptr<Ops> make_gpu_ops(const GpuOptions& options);

}  // namespace lockstep::gpu
