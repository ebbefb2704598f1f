#include "base/thread_pool.h"

#include <sched.h>

#include <chrono>

#include "base/error.h"

namespace lockstep {
namespace {

// How long a waiting thread looks before it parks. Waking a parked one takes 30-60 us, and the serial stretches of a
// step are shorter than this. It never yields instead: where other programs have the CPUs, a thread that yields may get
// its next turn milliseconds later, while one that sleeps is given a CPU when it is woken.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr int kSpinsBetweenLooks = 64;  // at the clock

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

/// Looks at `is_over` for a moment. False if it did not come true.
template <class IsOver>
bool spin_until(const IsOver& is_over) {
  if (is_over()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kSpinsBetweenLooks; ++i) {
      if (is_over()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 0) throw Error(Error::Kind::bad_argument, "threads: must be 0 (all) or more");
  if (threads == 0) threads = available_cpus();
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
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
  unfinished_.store(count, std::memory_order_relaxed);
  const std::uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(number << 32 | static_cast<std::uint32_t>(count), std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  drain(0);
  if (spin_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  for (int left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire))
    unfinished_.wait(left, std::memory_order_acquire);
}

/// Runs items of the current loop until none is left.
void ThreadPool::drain(int thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<std::uint32_t>(ticket);
    if (left == 0) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    call_(context_, count_ - static_cast<int>(left), thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && thread != 0) unfinished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    if (!spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; }))
      epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    drain(thread);
  }
}

}  // namespace lockstep
