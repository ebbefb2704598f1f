// Small kernels whose machine code is read, not run: tools/check_device_code looks for what a compiler must not have
// done to them. Compiled for CUDA and HIP with the flags of every device program. Kernel names carry the rule.
#include "numerics/functions.h"

#if defined(__HIP__)
#define LOCKSTEP_KERNEL extern "C" __attribute__((global))
#else
#define LOCKSTEP_KERNEL extern "C" __global__
#endif

using namespace lockstep;

/// A product and a sum written apart are rounded apart: no fma here.
LOCKSTEP_KERNEL void probe_two_roundings(float* out, const float* x, double* out64, const double* x64) {
  out[0] = x[0] * x[1] + x[2];
  out[1] = x[2] - x[0] * x[1];
  out[2] = (x[3] * x[4] + x[5] * x[6]) + x[7];
  out64[0] = x64[0] * x64[1] + x64[2];
}

/// And an fma is one.
LOCKSTEP_KERNEL void probe_one_rounding(float* out, const float* x, double* out64, const double* x64) {
  out[0] = fma_f32(x[0], x[1], x[2]);
  out64[0] = fma_f64(x64[0], x64[1], x64[2]);
}

/// Correctly rounded, however long the sequence is.
LOCKSTEP_KERNEL void probe_division_and_root(float* out, const float* x, double* out64, const double* x64) {
  out[0] = x[0] / x[1];
  out[1] = sqrt_f32(x[2]);
  out64[0] = x64[0] / x64[1];
}

/// Our own functions: no instruction of the machine that approximates them.
LOCKSTEP_KERNEL void probe_functions(float* out, const float* x) {
  out[0] = exp_f32(x[0]);
  out[1] = sigmoid_f32(x[1]);
  out[2] = silu_f32(x[2]);
  out[3] = log_f32(x[3]);
  out[4] = sqrt_softplus_f32(x[4]);
  const SinCos turn = sin_cos(x[5]);
  out[5] = turn.sin;
  out[6] = turn.cos;
}
