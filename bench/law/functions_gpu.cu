// Checks that a device computes numerics/ to the bit: every function of numerics/guard.h over its grid, on the device
// and on the host, one line each: name, the device's hash, equal or DIFFERENT. Exit code 1 if any differs.
//
// CUDA:  nvcc -std=c++20 -O3 -arch=sm_90 --fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Xcompiler
// -ffp-contract=off
//             -I src bench/law/functions_gpu.cu -o functions_gpu
// HIP:   clang++ -std=c++20 -O3 -x hip --offload-arch=gfx1151 -nogpulib -nogpuinc -ffp-contract=off
//             -I src bench/law/functions_gpu.cu -o functions_gpu -lamdhip64
#include <cstdint>
#include <cstdio>
#include <vector>

#include "numerics/guard.h"

#if defined(__HIP__)
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>  // the host's API only: the device half needs no header
#define LOCKSTEP_KERNEL __attribute__((global))
#else
#define LOCKSTEP_KERNEL __global__
#endif

namespace {

using namespace lockstep;

constexpr unsigned kThreads = 256;
static_assert(kGuardPoints % kThreads == 0);

/// results [kGuardPoints], one thread a point.
LOCKSTEP_KERNEL void evaluate(Guarded function, std::uint32_t* results) {
#if defined(__CUDA_ARCH__)
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
#elif defined(__HIP_DEVICE_COMPILE__)
  const std::uint32_t i = __builtin_amdgcn_workgroup_id_x() * kThreads + __builtin_amdgcn_workitem_id_x();
#else
  const std::uint32_t i = 0;
#endif
  results[i] = guard_result(function, i);
}

}  // namespace

namespace {

#if defined(__HIP__)
using Status = hipError_t;
const char* text_of(Status status) { return hipGetErrorString(status); }
Status allocate(void** memory, std::size_t bytes) { return hipMalloc(memory, bytes); }
Status launch(const void* kernel, void** arguments) {
  return hipLaunchKernel(kernel, dim3(kGuardPoints / kThreads), dim3(kThreads), arguments, 0, nullptr);
}
Status copy_back(void* to, const void* from, std::size_t bytes) {
  return hipMemcpy(to, from, bytes, hipMemcpyDeviceToHost);
}
void release(void* memory) { static_cast<void>(hipFree(memory)); }
#else
using Status = cudaError_t;
const char* text_of(Status status) { return cudaGetErrorString(status); }
Status allocate(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
Status launch(const void* kernel, void** arguments) {
  return cudaLaunchKernel(kernel, dim3(kGuardPoints / kThreads), dim3(kThreads), arguments, 0, nullptr);
}
Status copy_back(void* to, const void* from, std::size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
void release(void* memory) { static_cast<void>(cudaFree(memory)); }
#endif

bool is_good(Status status, const char* what) {
  if (status == Status{}) return true;
  std::fprintf(stderr, "%s: %s\n", what, text_of(status));
  return false;
}

/// Prints the line of one function. False if a result differs.
bool check(Guarded function, const char* name, std::uint32_t* device_results, std::vector<std::uint32_t>& device,
           std::vector<std::uint32_t>& host) {
  void* arguments[] = {&function, &device_results};
  if (!is_good(launch(reinterpret_cast<const void*>(&evaluate), arguments), "launch") ||
      !is_good(copy_back(device.data(), device_results, device.size() * sizeof device[0]), "copy from the device"))
    return false;
  for (std::uint32_t i = 0; i < kGuardPoints; ++i) host[i] = guard_result(function, i);
  const unsigned long long hash = guard_hash(device.data(), device.size());
  std::uint32_t differing = 0, first = 0;
  for (std::uint32_t i = kGuardPoints; i-- > 0;) {
    if (device[i] != host[i]) ++differing, first = i;
  }
  if (differing == 0) {
    std::printf("%-14s 0x%016llx  equal\n", name, hash);
  } else {
    std::printf("%-14s 0x%016llx  DIFFERENT in %u of %u, first at %u: device %08x, host %08x\n", name, hash, differing,
                kGuardPoints, first, device[first], host[first]);
  }
  return differing == 0;
}

}  // namespace

int main() {
  void* memory = nullptr;
  if (!is_good(allocate(&memory, kGuardPoints * sizeof(std::uint32_t)), "allocation on the device")) return 1;
  std::vector<std::uint32_t> device(kGuardPoints), host(kGuardPoints);
  int different = 0;
  for (int f = 0; f < kGuardedCount; ++f) {
    auto* device_results = static_cast<std::uint32_t*>(memory);
    if (!check(static_cast<Guarded>(f), kGuardedNames[f], device_results, device, host)) ++different;
  }
  release(memory);
  std::printf("%d of %d differ\n", different, kGuardedCount);
  return different == 0 ? 0 : 1;
}
