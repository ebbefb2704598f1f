// Kernels beside the model's own: the greatest logit of a row, and what the device is measured by.
#include "gpu/device.h"
#include "gpu/kernels.h"
#include "ops/rows.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 1024;
constexpr int kReadThreads = 256, kReads = 8;  // of 16 bytes each, in flight

/// The greatest key of a row; keys are integers, so their order does not matter.
LOCKSTEP_KERNEL void argmax_kernel(std::int32_t* out, ConstRows x) {
  follow_launch();
  LOCKSTEP_SHARED std::uint64_t greatest[kThreads / kWarp];
  const float* row = x.data + block_x() * x.stride;
  std::uint64_t key = 0;
#pragma unroll 4
  for (int i = thread_index(); i < x.width; i += block_threads()) {
    const float value = row[i];
    const std::uint64_t other = value == value ? ranking_key(value, i) : ~std::uint64_t{0};
    key = other > key ? other : key;
  }
  const auto over_warp = [&] {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const auto low = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(key), mask));
      const auto high = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(key >> 32), mask));
      const std::uint64_t other = static_cast<std::uint64_t>(high) << 32 | low;
      key = other > key ? other : key;
    }
  };
  over_warp();
  if (lane_index() == 0) greatest[thread_index() / kWarp] = key;
  block_barrier();
  if (thread_index() >= kWarp) return;
  const int warps = block_threads() / kWarp;
  key = lane_index() < warps ? greatest[lane_index()] : 0;
  over_warp();
  if (lane_index() != 0) return;
  // Only finite values can be chosen: infinities and NaN rank above all of them, -infinity below.
  const bool is_finite =
      key >= ranking_key(-f32_of(0x7f7fffffu), 0x7fffffff) && key < ranking_key(f32_of(0x7f800000u), 0x7fffffff);
  out[block_x()] = is_finite ? ranked_id(key) : -1;
}

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

void argmax(Runtime& runtime, std::int32_t* out, ConstRows x) {
  launch(runtime, argmax_kernel, {static_cast<unsigned>(x.rows)}, kThreads, 0, out, x);
}

void watch_clock(Runtime& runtime, std::uint64_t* out) { launch(runtime, clock_kernel, {1}, kWarp, 0, out); }

void read_memory(Runtime& runtime, const void* from, std::size_t bytes, std::uint32_t* sum) {
  launch(runtime, read_kernel, {static_cast<unsigned>(bytes / (sizeof(Words4) * kReadThreads * kReads))}, kReadThreads,
         0, static_cast<const Words4*>(from), sum);
}

}  // namespace lockstep::gpu
