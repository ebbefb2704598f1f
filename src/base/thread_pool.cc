#include "base/thread_pool.h"

#include <sched.h>

#include <chrono>

#include "base/error.h"

namespace lockstep {
namespace {

// Waking a parked thread takes 30-60 us, and the serial stretches of a step are shorter than this.
constexpr auto kSpin = std::chrono::microseconds(100);
// A few microseconds. After that a waiting thread offers its CPU at every look: on a machine that is busy with
// something else, or with more threads than CPUs, whoever is waited for needs it.
constexpr int kSpinsBeforeYield = 256;

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 0) throw Error(Error::Kind::bad_argument, "threads: must be 0 (all) or more");
  if (threads == 0) threads = available_cpus();
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int count, Call call, void* context) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  count_ = count;
  call_ = call;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);  // so that a worker about to park sees the new generation
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpinsBeforeYield)
      relax();
    else
      std::this_thread::yield();
  }
}

void ThreadPool::drain(int thread) {
  for (;;) {
    const int i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= count_) return;
    call_(context_, i, thread);
  }
}

void ThreadPool::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    std::chrono::steady_clock::time_point begin;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpinsBeforeYield) {
        relax();
        continue;
      }
      if (spins == kSpinsBeforeYield) begin = std::chrono::steady_clock::now();
      if (std::chrono::steady_clock::now() - begin < kSpin) {
        std::this_thread::yield();
        continue;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    }
    ++seen;
    if (stop_.load()) return;
    drain(thread);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lockstep
