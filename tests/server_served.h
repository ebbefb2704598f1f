// What the tests of the transport share: a server with handlers of a few lines on a socket of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/http_server.h"
#include "server_client.h"

namespace lockstep {

using test::Client;
using test::Reply;
using test::request_text;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline bool becomes_true(const std::function<bool()>& fact, double seconds = 5) {
  const auto begin = Clock::now();
  while (!fact()) {
    if (seconds_since(begin) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Exchanges that tests answer by hand.
class Shelf {
 public:
  void put(std::shared_ptr<Exchange> exchange) {
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(std::move(exchange));
    changed_.notify_all();
  }
  std::shared_ptr<Exchange> take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return !exchanges_.empty(); }))
      throw std::runtime_error("no request came");
    auto exchange = std::move(exchanges_.front());
    exchanges_.erase(exchanges_.begin());
    return exchange;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> exchanges_;
};

class Served {
 public:
  explicit Served(const std::function<void(HttpOptions&)>& change = {}) {
    HttpOptions options;
    options.port = 0;
    options.worker_threads = 2;
    options.on_request = [this](const RequestRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
    if (change) change(options);
    server_ = std::make_unique<HttpServer>(options, router());
  }

  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  void close() { server_.reset(); }
  Client client(int receive_buffer = 0) const { return Client(port(), receive_buffer); }
  std::vector<RequestRecord> records() {
    const std::lock_guard lock(mutex_);
    return records_;
  }
  bool is_alive() const { return client().ask(request_text("GET", "/quick")).status == 200; }

  Shelf shelf;

  // Requests to /hold: how many are being handled, and let them go.
  int held() {
    const std::lock_guard lock(hold_mutex_);
    return held_;
  }
  int most_held() {
    const std::lock_guard lock(hold_mutex_);
    return most_held_;
  }
  void release() {
    const std::lock_guard lock(hold_mutex_);
    is_released_ = true;
    hold_changed_.notify_all();
  }

 private:
  std::shared_ptr<const Router> router() {
    auto made = std::make_shared<Router>();
    const auto add = [&](const char* method, const char* path, Handler handler, bool is_open = false,
                         HttpRoute::Where where = HttpRoute::Where::worker) {
      made->add({.method = method, .path = path, .handler = std::move(handler), .is_open = is_open, .where = where});
    };
    const auto echo = [](const std::shared_ptr<Exchange>& exchange) {
      const HttpRequest& request = exchange->request();
      const std::string mode = request.parameter("mode").value_or("");
      HttpResponse response;
      response.body = json_text(Json{{"method", request.method},
                                     {"path", request.path},
                                     {"rest", request.rest},
                                     {"query", request.query},
                                     {"v1", request.is_v1},
                                     {"mode", mode},
                                     {"bytes", request.body.size()},
                                     {"body", request.body.substr(0, 100)}});
      exchange->respond(std::move(response));
    };
    add("GET", "/echo", echo);
    add("POST", "/echo", echo);
    add("GET", "/echo/{rest}", echo);
    add("POST", "/messages", echo);
    add("GET", "/quick", echo, false, HttpRoute::Where::inline_);
    add("GET", "/health", echo, true, HttpRoute::Where::inline_);
    add("POST", "/shelf", [this](std::shared_ptr<Exchange> exchange) { shelf.put(std::move(exchange)); });
    // Keeps a thread of the pool until it is released.
    add("POST", "/hold", [this](const std::shared_ptr<Exchange>& exchange) {
      std::unique_lock lock(hold_mutex_);
      ++held_;
      most_held_ = std::max(most_held_, held_);
      hold_changed_.wait(lock, [&] { return is_released_; });
      --held_;
      exchange->respond({.body = "{}"});
    });
    add("POST", "/drop", [](const std::shared_ptr<Exchange>&) {});
    add("POST", "/fail", [](const std::shared_ptr<Exchange>& exchange) {
      const std::string& kind = exchange->request().body;
      if (kind == "api") throw ApiError(429, "full", {}, "queue").with({{"n", 3}});
      if (kind == "argument") throw Error(Error::Kind::bad_argument, "bad");
      if (kind == "io") throw Error(Error::Kind::io, "broken");
      throw std::runtime_error("other");
    });
    return made;
  }

  std::mutex mutex_;
  std::vector<RequestRecord> records_;
  std::mutex hold_mutex_;
  std::condition_variable hold_changed_;
  int held_ = 0, most_held_ = 0;
  bool is_released_ = false;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep
