// A fixed set of threads that run one parallel loop at a time.
//
// There is no reduction verb, on purpose: work is divided by output element, so nothing is ever added across threads
// and the result cannot depend on how many there are. Waiting threads spin for a moment, because a step is a long row
// of short loops, and then park: an idle process uses no CPU.
//
// A loop is done when its items are done. A worker that is late, because other programs have the CPUs, finds nothing
// left and nobody waits for it; one that was interrupted within an item is waited for asleep, so that it gets a CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace lockstep {

class ThreadPool {
 public:
  /// `threads` counts the calling thread too; 0 means one for each CPU that the process may run on.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(i, thread) once for each i in [0, count), thread in [0, threads()), and returns when all are done.
  /// Items are handed out in ascending order. `body` must not throw and must not call parallel_for.
  template <class Body>
  void parallel_for(int count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count, [](void* context, int i, int thread) { (*static_cast<Plain*>(context))(i, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int i, int thread);
  void run(int count, Call call, void* context);
  void work(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::atomic<std::uint32_t> epoch_{0};  // grows by one a loop: what parked workers wait for
  // Number of the loop << 32 | items of it that nobody has taken. Whoever takes one may read what follows: its loop
  // cannot end before that item has.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<int> unfinished_{0};  // items
  std::atomic<bool> stop_{false};
  int count_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace lockstep
