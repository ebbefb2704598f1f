// What the device is measured by.
#include "gpu/device.h"
#include "gpu/kernels.h"

namespace lockstep::gpu {
namespace {

constexpr int kReadThreads = 256, kReads = 8;  // of 16 bytes each, in flight

/// Cycles and nanoseconds of half a millisecond.
LOCKSTEP_KERNEL void clock_kernel(std::uint64_t* out) {
  follow_launch();
  if (thread_index() != 0) return;
  const std::uint64_t cycles = cycle_counter(), began = nanosecond_counter();
  std::uint64_t now = began;
  for (int i = 0; i < 1 << 20 && now - began < 500000; ++i) now = nanosecond_counter();
  out[0] = cycle_counter() - cycles;
  out[1] = now - began;
}

LOCKSTEP_KERNEL void read_kernel(const Words4* from, std::uint32_t* sum) {
  follow_launch();
  const Words4* mine = from + static_cast<std::int64_t>(block_x()) * kReadThreads * kReads + thread_index();
  Words4 words[kReads];
#pragma unroll
  for (int i = 0; i < kReads; ++i) words[i] = load_once(mine + i * kReadThreads);
  std::uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < kReads; ++i) all |= words[i].word[0] | words[i].word[1] | words[i].word[2] | words[i].word[3];
  if (all != 0) *sum = all;  // never: the memory is cleared. But the loads cannot be left out
}

}  // namespace

void watch_clock(Runtime& runtime, std::uint64_t* out) { launch(runtime, clock_kernel, {1}, kWarp, 0, out); }

void read_memory(Runtime& runtime, const void* from, std::size_t bytes, std::uint32_t* sum) {
  launch(runtime, read_kernel, {static_cast<unsigned>(bytes / (sizeof(Words4) * kReadThreads * kReads))}, kReadThreads,
         0, static_cast<const Words4*>(from), sum);
}

}  // namespace lockstep::gpu
