#include "gpu/emulator.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"

namespace lockstep::gpu::emulator {
namespace {

using Fiber = boost::context::fiber;

constexpr std::size_t kStackBytes = std::size_t{256} << 10, kMostThreads = 1024;

/// Stacks of a CPU thread, used again by every block.
class Stacks {
 public:
  boost::context::stack_context allocate() {
    if (free_.empty()) {
      all_.push_back(std::make_unique_for_overwrite<std::byte[]>(kStackBytes));
      free_.push_back(all_.back().get());
    }
    boost::context::stack_context out;
    out.size = kStackBytes;
    out.sp = free_.back() + kStackBytes;
    free_.pop_back();
    return out;
  }
  void deallocate(const boost::context::stack_context& stack) {
    free_.push_back(static_cast<std::byte*>(stack.sp) - kStackBytes);
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> all_;
  std::vector<std::byte*> free_;
};

/// What Boost wants: something to copy.
struct StackSource {
  Stacks* stacks;
  boost::context::stack_context allocate() const { return stacks->allocate(); }
  void deallocate(boost::context::stack_context& stack) const { stacks->deallocate(stack); }
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

enum class Waits { no, for_warp, for_block, has_ended };

struct Thread {
  Fiber fiber, block;  // where it goes on, and who resumed it
  Place place;
  Waits waits = Waits::no;
  const char* what = "";  // it waits for
  int exchanges = 0;
  std::vector<Copy> copies;         // not done yet
  std::vector<std::size_t> groups;  // where each that has ended ends in them
};

struct alignas(64) Warp {
  std::byte hand_ins[2][kWarpThreads][kHandInBytes];
  int arrived = 0, ended = 0, threads = 0;
  const char* what = "";  // its threads wait for
  bool needs_all = false;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int at_barrier = 0, ended = 0;
  bool has_waited = false;  // for the launch before
  std::string failure;
};

/// All that a CPU thread has of the emulation.
struct Worker {
  Stacks stacks;
  std::unique_ptr<std::byte[]> shared_room;
  std::byte* shared = nullptr;
  Block block;  // its memory is used again
  Thread* thread = nullptr;
};
thread_local Worker worker;  // kernels' shared variables are thread_local as well: one block a CPU thread at a time

std::string name_of(const Place& place) {
  return "thread " + std::to_string(place.thread) + " of block " + std::to_string(place.block[0]) + ", " +
         std::to_string(place.block[1]) + ", " + std::to_string(place.block[2]);
}

void fail(std::string text) {
  if (worker.block.failure.empty()) worker.block.failure = std::move(text);
}

void wait(Waits waits, const char* what) {
  Thread& thread = *worker.thread;
  thread.waits = waits;
  thread.what = what;
  thread.block = std::move(thread.block).resume();
}

void release(Block& block, Waits waits, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i)
    if (block.threads[i].waits == waits) block.threads[i].waits = Waits::no;
}

void end_barrier_if_all(Block& block) {
  if (block.at_barrier == 0 || block.at_barrier + block.ended < static_cast<int>(block.threads.size())) return;
  block.at_barrier = 0;
  release(block, Waits::for_block, 0, block.threads.size());
}

void end_exchange_if_all(Block& block, std::size_t w) {
  Warp& warp = block.warps[w];
  if (warp.arrived == 0 || warp.arrived + (warp.needs_all ? 0 : warp.ended) < warp.threads) return;
  warp.arrived = 0;
  release(block, Waits::for_warp, w * kWarpThreads, static_cast<std::size_t>(warp.threads));
}

void end(Thread& thread) {
  Block& block = worker.block;
  const std::size_t w = static_cast<std::size_t>(thread.place.thread) / kWarpThreads;
  thread.waits = Waits::has_ended;
  ++block.ended;
  ++block.warps[w].ended;
  end_barrier_if_all(block);
  end_exchange_if_all(block, w);
}

void start(Thread& thread, const std::function<void()>& body) {
  thread.fiber = Fiber(std::allocator_arg, StackSource{&worker.stacks}, [&thread, &body](Fiber&& caller) {
    thread.block = std::move(caller);
    body();
    end(thread);
    return std::move(thread.block);
  });
}

/// Resumes a thread if it can go on; whether it did.
bool go_on(Thread& thread) {
  if (thread.waits != Waits::no) return false;
  worker.thread = &thread;
  thread.fiber = std::move(thread.fiber).resume();
  return true;
}

/// A warp goes on for as long as one of its threads can.
bool run_warp(Block& block, std::size_t warp, bool is_descending) {
  const std::size_t first = warp * kWarpThreads, count = static_cast<std::size_t>(block.warps[warp].threads);
  bool has_moved = false;
  for (bool again = true; again && block.failure.empty();) {
    again = false;
    for (std::size_t i = 0; i < count && block.failure.empty(); ++i)
      again |= go_on(block.threads[first + (is_descending ? count - 1 - i : i)]);
    has_moved |= again;
  }
  return has_moved;
}

struct Outcome {
  std::string failure;
  bool has_waited = false;
};

Outcome run_block(const Place& place, std::size_t shared_bytes, const std::function<void()>& body) {
  if (!worker.shared_room) {
    worker.shared_room = std::make_unique_for_overwrite<std::byte[]>(2 * kMostSharedBytes);
    void* room = worker.shared_room.get();
    std::size_t space = 2 * kMostSharedBytes;
    worker.shared = static_cast<std::byte*>(std::align(1024, kMostSharedBytes, room, space));
  }
  std::memset(worker.shared, 0xff, shared_bytes);  // NaNs: what is read there must have been written
  const auto threads = static_cast<std::size_t>(place.threads);
  Block& block = worker.block;
  block.threads.resize(threads);
  block.warps.resize((threads + kWarpThreads - 1) / kWarpThreads);
  for (Warp& warp : block.warps) warp.arrived = warp.ended = warp.threads = 0;
  block.at_barrier = block.ended = 0;
  block.has_waited = false;
  block.failure.clear();
  for (std::size_t i = 0; i < threads; ++i) {
    block.threads[i].place = place;
    block.threads[i].place.thread = static_cast<int>(i);
    ++block.warps[i / kWarpThreads].threads;
    start(block.threads[i], body);
  }
  const bool is_descending = (place.block[0] + place.block[1] + place.block[2]) % 2 == 1;
  const std::size_t warps = block.warps.size();
  while (block.ended < place.threads && block.failure.empty()) {
    bool has_moved = false;
    for (std::size_t w = 0; w < warps; ++w)
      has_moved |= run_warp(block, is_descending ? warps - 1 - w : w, is_descending);
    if (has_moved) continue;
    const auto stuck =
        std::ranges::find_if(block.threads, [](const Thread& thread) { return thread.waits == Waits::for_warp; });
    const Thread& thread = stuck != block.threads.end() ? *stuck : block.threads.front();
    fail(name_of(thread.place) + " waits in " + thread.what +
         " for threads that wait for something else or have ended");
  }
  block.threads.clear();  // after a failure some are still on their way
  return {block.failure, block.has_waited};
}

}  // namespace

struct Blocks::State {
  explicit State(int cpu_threads) : pool(cpu_threads) {}
  ThreadPool pool;
};

Blocks::Blocks(int cpu_threads) : state_(std::make_unique<State>(cpu_threads)) {}
Blocks::~Blocks() = default;

std::string Blocks::run(Grid grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body) {
  if (threads == 0 || threads > kMostThreads) return "a block of " + std::to_string(threads) + " threads";
  if (shared_bytes > kMostSharedBytes)
    return "a block with " + std::to_string(shared_bytes) + " bytes of shared memory";
  Outcome all;
  std::mutex mutex;
  const auto count = static_cast<std::uint64_t>(grid.x) * grid.y * grid.z;
  LOCKSTEP_CHECK(count <= 0x7fffffff);
  state_->pool.parallel_for(static_cast<int>(count), [&](int index, int) {
    const auto i = static_cast<unsigned>(index);
    const Place place = {
        0,
        {static_cast<int>(i % grid.x), static_cast<int>(i / grid.x % grid.y), static_cast<int>(i / grid.x / grid.y)},
        static_cast<int>(threads)};
    Outcome one = run_block(place, shared_bytes, body);
    const std::lock_guard lock(mutex);
    all.has_waited |= one.has_waited;
    if (all.failure.empty()) all.failure = std::move(one.failure);
  });
  if (all.failure.empty() && !all.has_waited) all.failure = "no thread of it has waited for the launch before";
  return all.failure;
}

const Place& place() { return worker.thread->place; }
std::byte* shared_memory() { return worker.shared; }

void block_barrier() {
  Block& block = worker.block;
  ++block.at_barrier;
  worker.thread->waits = Waits::for_block;
  end_barrier_if_all(block);
  if (worker.thread->waits == Waits::for_block) wait(Waits::for_block, "block_barrier");
}

const std::byte* exchange(const char* what, const void* value, std::size_t bytes, bool needs_all) {
  Thread& thread = *worker.thread;
  Block& block = worker.block;
  const std::size_t index = static_cast<std::size_t>(thread.place.thread), w = index / kWarpThreads;
  Warp& warp = block.warps[w];
  auto& hand_ins = warp.hand_ins[thread.exchanges++ % 2];
  if (bytes > 0) std::memcpy(hand_ins[index % kWarpThreads], value, bytes);
  if (warp.arrived++ == 0) {
    warp.what = what;
    warp.needs_all = needs_all;
    for (std::size_t i = 0; warp.ended > 0 && i < static_cast<std::size_t>(warp.threads); ++i)
      if (block.threads[w * kWarpThreads + i].waits == Waits::has_ended) std::memset(hand_ins[i], 0xff, kHandInBytes);
  } else if (warp.what != what) {
    fail(name_of(thread.place) + " is in " + what + ", another one of its warp in " + warp.what);
  }
  thread.waits = Waits::for_warp;
  end_exchange_if_all(block, w);
  if (thread.waits == Waits::for_warp) wait(Waits::for_warp, what);
  return &hand_ins[0][0];
}

void refuse(const std::string& what) { fail(name_of(worker.thread->place) + " " + what); }

void begin_copy(void* to, const void* from, std::size_t bytes) { worker.thread->copies.push_back({to, from, bytes}); }

void end_copy_group() { worker.thread->groups.push_back(worker.thread->copies.size()); }

void wait_for_copies(int pending_groups) {
  std::vector<Copy>& copies = worker.thread->copies;
  std::vector<std::size_t>& groups = worker.thread->groups;
  const auto most = static_cast<std::size_t>(pending_groups);
  if (groups.size() <= most) return;
  const std::size_t done = groups[groups.size() - most - 1];
  for (std::size_t i = 0; i < done; ++i) std::memcpy(copies[i].to, copies[i].from, copies[i].bytes);
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
  groups.erase(groups.begin(), groups.end() - static_cast<std::ptrdiff_t>(most));
  for (std::size_t& end : groups) end -= done;
}

void wait_for_launch_before() { worker.block.has_waited = true; }

}  // namespace lockstep::gpu::emulator
