// Copies from device memory into shared memory that a thread does not wait for. HIP has no such instruction: there what
// is on the way is in registers.
#pragma once

#include "gpu/device.h"

namespace lockstep::gpu {

#if !defined(LOCKSTEP_HAS_MMA)

LOCKSTEP_DEVICE void copy16(void* to, const void* from) {  // done at once
  *static_cast<Words4*>(to) = *static_cast<const Words4*>(from);
}

/// Up to kMost copies of 16 bytes that a thread has on the way at a time, all of one group.
template <int kMost>
class Copies {
 public:
  LOCKSTEP_DEVICE void begin(int i, void* to, const void* from) {
    const auto& words = *static_cast<const Words4*>(from);
#pragma unroll
    for (int w = 0; w < 4; ++w) word_[i][w] = words.word[w];
    to_[i] = static_cast<Words4*>(to);
  }
  LOCKSTEP_DEVICE void end_group() {}
  /// After this and a barrier they are there. All kMost must have begun.
  LOCKSTEP_DEVICE void wait() {
#pragma unroll
    for (int i = 0; i < kMost; ++i) *to_[i] = {{word_[i][0], word_[i][1], word_[i][2], word_[i][3]}};
  }

 private:
  Words4* to_[kMost];
  std::uint32_t word_[kMost][4];
};

#else

#if defined(LOCKSTEP_GPU_EMULATED)

LOCKSTEP_DEVICE std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(at) - emulator::shared_memory());
}
LOCKSTEP_DEVICE void copy16(void* to, const void* from) { emulator::begin_copy(to, from, 16); }
LOCKSTEP_DEVICE void copy16_once(void* to, const void* from) { copy16(to, from); }
LOCKSTEP_DEVICE void copy8(void* to, const void* from) { emulator::begin_copy(to, from, 8); }
LOCKSTEP_DEVICE void copy4(void* to, const void* from) { emulator::begin_copy(to, from, 4); }
LOCKSTEP_DEVICE void end_copy_group() { emulator::end_copy_group(); }
LOCKSTEP_DEVICE void part_barrier(int, int) { block_barrier(); }  // each part calls it as often
template <int kPending>
LOCKSTEP_DEVICE void wait_for_copies() {
  emulator::wait_for_copies(kPending);
}

#else

LOCKSTEP_DEVICE std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
LOCKSTEP_DEVICE void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// Of a weight, which passes through (load_once).
LOCKSTEP_DEVICE void copy16_once([[maybe_unused]] void* to, [[maybe_unused]] const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "l"(passing_policy())
               : "memory");
#endif
}
LOCKSTEP_DEVICE void copy8(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
LOCKSTEP_DEVICE void copy4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// The `threads` threads of part `part` of a block meet.
LOCKSTEP_DEVICE void part_barrier([[maybe_unused]] int part, [[maybe_unused]] int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "r"(threads) : "memory");
}
LOCKSTEP_DEVICE void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until no more than kPending of this thread's groups are under way.
template <int kPending>
LOCKSTEP_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#endif

template <int kMost>
class Copies {
 public:
  LOCKSTEP_DEVICE void begin(int, void* to, const void* from) { copy16(to, from); }
  LOCKSTEP_DEVICE void end_group() { end_copy_group(); }
  LOCKSTEP_DEVICE void wait() { wait_for_copies<0>(); }
};

#endif

}  // namespace lockstep::gpu
