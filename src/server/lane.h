// A part of the handlers' threads for one kind of request: at most so many at once, the others wait for their turn, and
// whoever is of another kind does not wait for them.
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace lockstep {

class Lane {
 public:
  /// Borrows the pool, which has to run what is posted until it is joined: then nothing is left waiting.
  Lane(boost::asio::thread_pool& pool, int most) : pool_(pool), free_(most) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Runs `call`, which must not throw, on a thread of the pool. Any thread.
  void post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    if (free_ == 0) {
      waiting_.push_back(std::move(call));
    } else {
      --free_;
      start(std::move(call));
    }
  }

 private:
  void start(std::function<void()> call) {
    boost::asio::post(pool_, [this, call = std::move(call)]() mutable {
      call();
      call = nullptr;  // what it holds goes before somebody else gets its place
      next();
    });
  }

  void next() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      ++free_;
      return;
    }
    std::function<void()> call = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(call));
  }

  boost::asio::thread_pool& pool_;
  std::mutex mutex_;
  int free_;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace lockstep
