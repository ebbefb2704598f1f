// What a kernel may use, under one name for CUDA and HIP: indices, barriers, shuffles, the int8 dot, shared memory.
//
// HIP is compiled without a device library or its headers, so there everything is a compiler builtin. Widths are named:
// a "warp" here is 32 threads on both (gfx11 runs in wave32). Nothing here rounds; what rounds is in numerics/. A third
// form runs on the CPU (emulator.h).
#pragma once

#include <cstdint>

#include "numerics/primitives.h"

#if defined(LOCKSTEP_GPU_EMULATED)
#include <x86intrin.h>

#include <algorithm>
#include <chrono>

#include "gpu/emulator.h"
#include "numerics/round.h"
#define LOCKSTEP_KERNEL
#define LOCKSTEP_DEVICE inline
#define LOCKSTEP_DEVICE_CALL inline
#define LOCKSTEP_SHARED static thread_local
#define LOCKSTEP_DYNAMIC_SHARED(type, name) auto* const name = reinterpret_cast<type*>(emulator::shared_memory())
#define LOCKSTEP_PARAMETER const
#define LOCKSTEP_BOUNDS(threads, blocks)
#define LOCKSTEP_CLUSTER(blocks)
#if LOCKSTEP_GPU_EMULATED == LOCKSTEP_EMULATED_CUDA
#define LOCKSTEP_HAS_MMA
#else
#define LOCKSTEP_HAS_WMMA
#endif
#elif defined(__HIP__)
#define LOCKSTEP_KERNEL __attribute__((global))
#define LOCKSTEP_DEVICE __attribute__((device)) inline
#define LOCKSTEP_DEVICE_CALL __attribute__((device, noinline)) static  // what is rare, so that its code is there once
#define LOCKSTEP_SHARED __attribute__((shared))
#define LOCKSTEP_DYNAMIC_SHARED(type, name) extern LOCKSTEP_SHARED type name[]  // as much as the launch asks for
#define LOCKSTEP_PARAMETER const                                                // of a kernel, and indexed by it
#define LOCKSTEP_BOUNDS(threads, blocks) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define LOCKSTEP_CLUSTER(blocks)
#define LOCKSTEP_HAS_WMMA  // int8_mma.h
#elif defined(__CUDACC__)
#define LOCKSTEP_KERNEL __global__
#define LOCKSTEP_DEVICE __device__ __forceinline__
#define LOCKSTEP_DEVICE_CALL static __device__ __noinline__  // what is rare, so that its code is there once
#define LOCKSTEP_SHARED __shared__
#define LOCKSTEP_DYNAMIC_SHARED(type, name) extern LOCKSTEP_SHARED type name[]  // as much as the launch asks for
#define LOCKSTEP_HAS_MMA                                                        // int8_mma.h, async_copy.h
#define LOCKSTEP_PARAMETER const __grid_constant__  // of a kernel, and indexed by it: no copy is made
#define LOCKSTEP_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOCKSTEP_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)  // that run at once and see each other's shared memory
#else
#define LOCKSTEP_CLUSTER(blocks)
#endif
#endif

#define LOCKSTEP_ALIGNED(bytes) __attribute__((aligned(bytes)))

namespace lockstep::gpu {

inline constexpr int kWarp = 32;

#if defined(LOCKSTEP_KERNEL)  // the compiler makes device code

#if defined(LOCKSTEP_GPU_EMULATED)

using std::max;  // which CUDA has built in
using std::min;
LOCKSTEP_DEVICE int thread_index() { return emulator::place().thread; }
LOCKSTEP_DEVICE int block_x() { return emulator::place().block[0]; }
LOCKSTEP_DEVICE int block_y() { return emulator::place().block[1]; }
LOCKSTEP_DEVICE int block_z() { return emulator::place().block[2]; }
LOCKSTEP_DEVICE int block_threads() { return emulator::place().threads; }
LOCKSTEP_DEVICE void block_barrier() { emulator::block_barrier(); }
LOCKSTEP_DEVICE void warp_barrier() { emulator::exchange("warp_barrier", nullptr, 0); }
LOCKSTEP_DEVICE int shuffle(int value, int lane) {
  const std::byte* values = emulator::exchange("shuffle", &value, sizeof value);
  return reinterpret_cast<const int*>(values)[static_cast<std::size_t>(lane) * emulator::kHandInBytes / sizeof value];
}
LOCKSTEP_DEVICE int dot4(std::uint32_t a, std::uint32_t b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  return sum;
}
LOCKSTEP_DEVICE int atomic_add(int* to, int value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
LOCKSTEP_DEVICE void wait_for_launch_before() { emulator::wait_for_launch_before(); }
LOCKSTEP_DEVICE void let_next_launch_begin() {}
LOCKSTEP_DEVICE std::uint64_t cycle_counter() { return __rdtsc(); }
LOCKSTEP_DEVICE std::uint64_t nanosecond_counter() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

#elif defined(__HIP__)

LOCKSTEP_DEVICE constexpr int max(int a, int b) { return a < b ? b : a; }  // which CUDA has built in
LOCKSTEP_DEVICE constexpr int min(int a, int b) { return b < a ? b : a; }
LOCKSTEP_DEVICE int thread_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
LOCKSTEP_DEVICE int block_x() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
LOCKSTEP_DEVICE int block_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
LOCKSTEP_DEVICE int block_z() { return static_cast<int>(__builtin_amdgcn_workgroup_id_z()); }
LOCKSTEP_DEVICE int block_threads() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
LOCKSTEP_DEVICE void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
LOCKSTEP_DEVICE void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
/// `value` of the thread `lane` of this warp.
LOCKSTEP_DEVICE int shuffle(int value, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, value); }
/// sum + the dot of four int8 with four int8.
LOCKSTEP_DEVICE int dot4(std::uint32_t a, std::uint32_t b, int sum) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_sudot4(true, static_cast<int>(a), true, static_cast<int>(b), sum, false);
#else
  return static_cast<int>(a + b) + sum;  // the host's pass only has to parse this
#endif
}
LOCKSTEP_DEVICE int atomic_add(int* to, int value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
LOCKSTEP_DEVICE void wait_for_launch_before() {}
LOCKSTEP_DEVICE void let_next_launch_begin() {}
LOCKSTEP_DEVICE std::uint64_t cycle_counter() { return __builtin_readcyclecounter(); }
LOCKSTEP_DEVICE std::uint64_t nanosecond_counter() { return 10 * __builtin_readsteadycounter(); }  // runs at 100 MHz

#else

LOCKSTEP_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
LOCKSTEP_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
LOCKSTEP_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
LOCKSTEP_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
LOCKSTEP_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
LOCKSTEP_DEVICE void block_barrier() { __syncthreads(); }
LOCKSTEP_DEVICE void warp_barrier() { __syncwarp(); }
LOCKSTEP_DEVICE int shuffle(int value, int lane) { return __shfl_sync(~0u, value, lane); }
LOCKSTEP_DEVICE int dot4(std::uint32_t a, std::uint32_t b, int sum) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
}
LOCKSTEP_DEVICE int atomic_add(int* to, int value) { return atomicAdd(to, value); }

LOCKSTEP_DEVICE std::uint64_t cycle_counter() { return static_cast<std::uint64_t>(clock64()); }
LOCKSTEP_DEVICE std::uint64_t nanosecond_counter() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

/// Launches of a stream overlap (Runtime::launch): a kernel begins when every block of the one before it has called
/// let_next_launch_begin or ended. Until wait_for_launch_before returns it may touch nothing that a kernel writes: only
/// weights, and its own shared memory. Every kernel calls it, so what is done before the one before is done as well.
LOCKSTEP_DEVICE void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
LOCKSTEP_DEVICE void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif

/// What this thread and, before a block_barrier, its block wrote comes before what it writes next, for the whole
/// device.
LOCKSTEP_DEVICE void device_fence() {
#if defined(__CUDA_ARCH__)
  __threadfence();
#elif defined(__HIP_DEVICE_COMPILE__)
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
#endif
}
/// A value that another block of this launch wrote, behind a device_fence.
LOCKSTEP_DEVICE float read_fresh(const float* from) { return *static_cast<const volatile float*>(from); }

/// Asks for `count` floats of a weight before the launch before is done: read once a step, they come from far away. By
/// all threads of a block.
LOCKSTEP_DEVICE void prefetch([[maybe_unused]] const float* weight, [[maybe_unused]] int count) {
#if defined(__CUDA_ARCH__)
  constexpr int kLine = 32;  // floats
  for (int i = thread_index() * kLine; i < count && weight != nullptr; i += block_threads() * kLine)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + i));
#endif
}

/// What a kernel without anything to do beforehand begins with.
LOCKSTEP_DEVICE void follow_launch() {
  let_next_launch_begin();
  wait_for_launch_before();
}

// Of a kernel whose blocks come in clusters, which only devices with Runtime::has_clusters run.

/// All threads of a cluster meet, and see what each other wrote.
LOCKSTEP_DEVICE void cluster_barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/// In shared memory: counts, once, what the blocks of the cluster send to this one. One thread says how many floats,
/// and show_arrivals; then cluster_barrier. A block ends when all that is sent to it has come.
struct Arrivals {
  std::uint64_t barrier;
};
LOCKSTEP_DEVICE void expect_arrivals([[maybe_unused]] Arrivals& arrivals, [[maybe_unused]] int floats) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(&arrivals));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(4 * floats) : "memory");
#endif
}
LOCKSTEP_DEVICE void show_arrivals() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/// `value` to where `at` stands in block `rank` of the cluster, counted by its `arrivals`.
LOCKSTEP_DEVICE void send_to_block([[maybe_unused]] float* at, [[maybe_unused]] int rank, [[maybe_unused]] float value,
                                   [[maybe_unused]] Arrivals& arrivals) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n\t.reg .u32 there, count;\n\tmapa.shared::cluster.u32 there, %0, %2;\n\t"
      "mapa.shared::cluster.u32 count, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [count];\n\t}" ::"r"(
          static_cast<std::uint32_t>(__cvta_generic_to_shared(at))),
      "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&arrivals))), "r"(rank), "r"(bits_of(value))
      : "memory");
#endif
}
LOCKSTEP_DEVICE void wait_for_arrivals([[maybe_unused]] Arrivals& arrivals) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n\t.reg .pred done;\n\tagain:\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n\t@!done bra again;\n\t}" ::"r"(
          static_cast<std::uint32_t>(__cvta_generic_to_shared(&arrivals)))
      : "memory");
#endif
}

LOCKSTEP_DEVICE int lane_index() { return thread_index() % kWarp; }
LOCKSTEP_DEVICE float shuffle(float value, int lane) {
  return f32_of(static_cast<std::uint32_t>(shuffle(static_cast<int>(bits_of(value)), lane)));
}
/// `value` of the thread whose lane differs in the bits of `mask`.
LOCKSTEP_DEVICE int shuffle_xor(int value, int mask) { return shuffle(value, lane_index() ^ mask); }
LOCKSTEP_DEVICE float shuffle_xor(float value, int mask) { return shuffle(value, lane_index() ^ mask); }

/// Largest of a warp's values; the order does not matter.
LOCKSTEP_DEVICE std::uint32_t warp_max(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, value);
#else
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(value), mask));
    value = other > value ? other : value;
  }
  return value;
#endif
}
LOCKSTEP_DEVICE float warp_max(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

/// Sum over a warp, the same in all of its threads.
LOCKSTEP_DEVICE int warp_sum(int value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0u, value);
#else
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
#endif
}

/// Bit l is what thread l of the warp says.
LOCKSTEP_DEVICE std::uint32_t warp_ballot(bool value) {
#if defined(LOCKSTEP_GPU_EMULATED)
  const int mine = value ? 1 : 0;
  const auto* values = reinterpret_cast<const int*>(emulator::exchange("warp_ballot", &mine, sizeof mine));
  std::uint32_t bits = 0;
  for (std::size_t l = 0; l < kWarp; ++l)
    bits |= static_cast<std::uint32_t>(values[l * emulator::kHandInBytes / sizeof mine]) << l;
  return bits;
#elif defined(__CUDA_ARCH__)
  return __ballot_sync(~0u, value);
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_ballot_w32(value);
#else
  return value ? 1 : 0;  // the host's pass only has to parse this
#endif
}
LOCKSTEP_DEVICE int count_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

struct alignas(16) Words4 {
  std::uint32_t word[4];
};
struct alignas(8) Words2 {
  std::uint32_t word[2];
};
struct alignas(16) Floats4 {
  float value[4];
};
using SharedBytes LOCKSTEP_ALIGNED(128) = unsigned char;

/// Four bytes out of the eight of (low, high), chosen by the lower four nibbles of `selector`, each below 8.
LOCKSTEP_DEVICE std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;  // __byte_perm would first make sure of the nibbles
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
#else
  const std::uint64_t all = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<std::uint32_t>(all >> (8 * (selector >> (4 * i) & 7u)) & 255u) << (8 * i);
  return out;
#endif
}

/// The low word of (high, low) shifted right by 0, 8, 16 or 24 bits.
LOCKSTEP_DEVICE std::uint32_t shift_pair(std::uint32_t low, std::uint32_t high, int bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, static_cast<unsigned>(bits));
#else
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(high) << 32 | low) >> bits);
#endif
}

/// A byte of ones for every byte of `word` whose upper bit is set, else of zeros.
LOCKSTEP_DEVICE std::uint32_t sign_masks(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  std::uint32_t masks;
  asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(masks) : "r"(word));
  return masks;
#else
  return (word >> 7 & 0x01010101u) * 255u;
#endif
}

#if defined(__CUDA_ARCH__)
/// What passes through makes room first, so that a step's code, caches and activations stay in the L2 cache.
LOCKSTEP_DEVICE std::uint64_t passing_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#endif

/// Bytes that pass through: weights are read once a step.
LOCKSTEP_DEVICE Words4 load_once(const void* from) {
#if defined(__CUDA_ARCH__)
  Words4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from), "l"(passing_policy()));
  return v;
#else
  return *static_cast<const Words4*>(from);
#endif
}
LOCKSTEP_DEVICE void load_once(Words2& to, const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile("ld.global.nc.L2::cache_hint.v2.u32 {%0,%1}, [%2], %3;"
               : "=r"(to.word[0]), "=r"(to.word[1])
               : "l"(from), "l"(passing_policy()));
#else
  to = *static_cast<const Words2*>(from);
#endif
}
LOCKSTEP_DEVICE void load_once(std::uint32_t& to, const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile("ld.global.nc.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(to) : "l"(from), "l"(passing_policy()));
#else
  to = *static_cast<const std::uint32_t*>(from);
#endif
}
LOCKSTEP_DEVICE void load_once(std::uint16_t& to, const void* from) {
#if defined(__CUDA_ARCH__)
  asm volatile("ld.global.nc.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(to) : "l"(from), "l"(passing_policy()));
#else
  to = *static_cast<const std::uint16_t*>(from);
#endif
}

LOCKSTEP_DEVICE std::uint32_t load_u16(const std::uint8_t* from) {
  return from[0] | static_cast<std::uint32_t>(from[1]) << 8;
}
LOCKSTEP_DEVICE std::uint32_t load_u32(const std::uint8_t* from) { return load_u16(from) | load_u16(from + 2) << 16; }

/// f16 to f32, exact; the instruction where there is one for it.
LOCKSTEP_DEVICE float widen_f16(std::uint32_t half) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(static_cast<unsigned short>(half)));
  return f;
#elif defined(__HIP_DEVICE_COMPILE__)
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<std::uint16_t>(half)));
#elif defined(LOCKSTEP_GPU_EMULATED)
  return f16_to_f32(static_cast<std::uint16_t>(half));
#else
  return static_cast<float>(half);
#endif
}

#endif

}  // namespace lockstep::gpu
