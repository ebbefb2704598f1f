// A copy of a piece of a weight into shared memory by a warp, for itself, that nobody waits for. From compute
// capability 9.0 on one thread asks for it, and it passes by the path that loads take in turn: what is loaded after it
// does not wait for it. Before that (and emulated) it is cp.async, and a thread has one such copy under way and no
// other.
#pragma once

#include "gpu/async_copy.h"

#if defined(LOCKSTEP_HAS_MMA)

namespace lockstep::gpu {

/// One such copy, in shared memory.
struct BulkCopy {
  std::uint64_t arrival;

  /// By the warp whose copy it is, before the block meets.
  LOCKSTEP_DEVICE void prepare() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane_index() == 0)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
                       shared_address(&arrival))
                   : "memory");
#endif
  }
  /// `to`, `from` and `bytes` are multiples of 16.
  LOCKSTEP_DEVICE void begin(void* to, const std::uint8_t* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane_index() == 0)
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %3;\n\t"
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%1], [%2], %3, [%0], "
          "%4;" ::"r"(shared_address(&arrival)),
          "r"(shared_address(to)), "l"(from), "r"(bytes), "l"(passing_policy())
          : "memory");
#else
    for (int i = lane_index() * 16; i < bytes; i += kWarp * 16)
      copy16_once(static_cast<std::uint8_t*>(to) + i, from + i);
    end_copy_group();
#endif
  }
  /// Until the warp can read what came.
  LOCKSTEP_DEVICE void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    wait_for_another();
#else
    wait_for_copies<0>();
    warp_barrier();
#endif
  }
  /// Likewise, of another warp's, so as to have no more under way than is of use.
  LOCKSTEP_DEVICE void wait_for_another() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t.reg .pred done;\n"
        "again:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t"
        "@!done bra again;\n\t}" ::"r"(shared_address(&arrival))
        : "memory");
#endif
  }
};

}  // namespace lockstep::gpu

#endif
