// What all connections of one server share. Everything but what is atomic or says otherwise belongs to the thread that
// runs `io`. Only for the server's own files.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "server/http_server.h"
#include "server/lane.h"

namespace lockstep {

class Connection;

struct Transport {
  explicit Transport(const HttpOptions& o)
      : options(o),
        io(1),
        workers(static_cast<std::size_t>(o.worker_threads)),
        large_requests(workers, std::max(1, o.worker_threads / 2)) {}

  HttpOptions options;
  boost::asio::io_context io;
  boost::asio::thread_pool workers;
  Lane large_requests;  // of the workers
  std::unique_ptr<boost::asio::ssl::context> tls;

  std::shared_ptr<const Router> router;
  std::unordered_set<std::shared_ptr<Connection>> connections;  // open ones
  bool is_shutting_down = false;
  bool checks_origin = false;  // only this machine can connect, and no key is asked for (origin.h)
  std::size_t reserved_bytes = 0, small_reserved_bytes = 0;  // for bodies: of all, and of those that are not large

  std::atomic<std::size_t> body_bytes{0};  // held now
  std::atomic<std::uint64_t> connections_open{0}, connections_total{0}, requests_total{0};
  std::atomic<std::uint64_t> answers_2xx{0}, answers_4xx{0}, answers_5xx{0}, clients_left{0}, bytes_in{0}, bytes_out{0};

  /// Runs on the transport's thread, unless the server has been closed; then it is dropped, so that an exchange which
  /// outlives its server does nothing. Any thread.
  template <class Call>
  void post(Call call) {
    const std::lock_guard lock(closed_mutex_);
    if (!is_closed_) boost::asio::post(io, std::move(call));
  }
  void close_for_posts() {
    const std::lock_guard lock(closed_mutex_);
    is_closed_ = true;
  }
  bool is_closed() const {
    const std::lock_guard lock(closed_mutex_);
    return is_closed_;
  }

  // Requests that are being answered. Any thread.
  void add_active() {
    const std::lock_guard lock(active_mutex_);
    ++active_;
  }
  void remove_active() {
    const std::lock_guard lock(active_mutex_);
    if (--active_ == 0) none_active_.notify_all();
  }
  std::uint64_t active() const {
    const std::lock_guard lock(active_mutex_);
    return active_;
  }
  bool wait_until_none_active(double seconds) {
    std::unique_lock lock(active_mutex_);
    return none_active_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return active_ == 0; });
  }

 private:
  mutable std::mutex closed_mutex_;
  bool is_closed_ = false;
  mutable std::mutex active_mutex_;
  std::condition_variable none_active_;
  std::uint64_t active_ = 0;
};

}  // namespace lockstep
