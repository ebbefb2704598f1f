// Copies from device memory into shared memory that a thread does not wait for (not on HIP).
#pragma once

#include "gpu/device.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_GPU_EMULATED)

LOCKSTEP_DEVICE std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(at) - emulator::shared_memory());
}
LOCKSTEP_DEVICE void copy16(void* to, const void* from) { emulator::begin_copy(to, from, 16); }
LOCKSTEP_DEVICE void copy4(void* to, const void* from) { emulator::begin_copy(to, from, 4); }
LOCKSTEP_DEVICE void end_copy_group() { emulator::end_copy_group(); }
template <int kPending>
LOCKSTEP_DEVICE void wait_for_copies() {
  emulator::wait_for_copies(kPending);
}

#elif defined(__CUDACC__)

LOCKSTEP_DEVICE std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
LOCKSTEP_DEVICE void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
LOCKSTEP_DEVICE void copy4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
LOCKSTEP_DEVICE void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until no more than kPending of this thread's groups are under way.
template <int kPending>
LOCKSTEP_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#endif

}  // namespace lockstep::gpu
