// An fma that stays where the source has it, for kernels that f32 fma bounds.
//
// A partition of an NVIDIA multiprocessor reads two registers a clock, one of each bank (even, odd), and an operand
// that the instruction before had in the same place is not read again. An fma that shares none with its neighbour takes
// two clocks. So such a kernel goes through its outputs in a serpentine: neighbours share one factor, at the ends of a
// row the other one. The compiler must keep that order: hence this function, and the option in CMakeLists.txt.
#pragma once

#include "gpu/device.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

/// fma_f32, in the order of the source.
LOCKSTEP_DEVICE float fma_in_order(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  float sum;
  asm volatile("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
#else
  return fma_f32(a, b, c);
#endif
}

#endif

}  // namespace lockstep::gpu
