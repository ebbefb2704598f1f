// A device made of the CPU, so that kernels run, bit for bit, where there is no GPU: for tests, and slow.
//
// Kernels are compiled as plain functions. The threads of a block are coroutines of one CPU thread, which switch where
// the block or the warp meets; blocks are spread over CPU threads, each with its own shared memory. Half of the blocks
// run their threads in descending order, so that a missing barrier shows in the bits; memory that nobody has written is
// full of NaNs. What a device would leave undefined ends the kernel with an error that names the place: a warp whose
// threads wait for different things, or need one that has ended, and a kernel that never waits for the launch before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::gpu {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

namespace emulator {

inline constexpr int kWarpThreads = 32;
inline constexpr std::size_t kHandInBytes = 64;
inline constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;

/// Runs all blocks of a kernel; `body` is what one thread does. Returns what was wrong, or nothing.
class Blocks {
 public:
  explicit Blocks(int cpu_threads);
  ~Blocks();
  std::string run(Grid grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What follows is called by a kernel's threads.

struct Place {
  int thread = 0, block[3] = {}, threads = 0;
};
const Place& place();
/// The block's dynamic shared memory.
std::byte* shared_memory();

void block_barrier();
/// Every thread of the warp hands in `bytes`; returns where the warp's lie, kHandInBytes apart. They stay there
/// until the thread's next exchange but one. `what` is the operation, the same pointer for all. Threads that have ended
/// have nothing of use there, or, if all are needed, must not be.
const std::byte* exchange(const char* what, const void* value, std::size_t bytes, bool needs_all = false);

/// Ends the kernel with an error that names this thread and says what it did: for what a device leaves undefined.
void refuse(const std::string& what);

/// Copies that a thread does not wait for. They are done as late as can be: in wait_for_copies.
void begin_copy(void* to, const void* from, std::size_t bytes);
void end_copy_group();
void wait_for_copies(int pending_groups);

void wait_for_launch_before();

}  // namespace emulator
}  // namespace lockstep::gpu
