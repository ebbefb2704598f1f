#include "server/trace.h"

#include <fstream>
#include <system_error>

#include "base/error.h"
#include "server/http_error.h"

namespace lockstep {

Trace::Trace(std::filesystem::path folder, std::function<void(const std::string&)> warn)
    : folder_(std::move(folder)), warn_(std::move(warn)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(Error::Kind::io, folder_.string() + ": " + error.message() + ", expected a folder for traces");
  thread_ = std::thread([this] { run(); });
}

Trace::~Trace() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Trace::add(const std::string& name, Json record) {
  {
    const std::lock_guard lock(mutex_);
    queue_.emplace_back(name, std::move(record));
  }
  changed_.notify_one();
}

void Trace::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto [name, record] = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const std::filesystem::path path = folder_ / (name + ".json");
    std::ofstream out(path, std::ios::binary);
    out << json_text(record) << '\n';
    if (!out.flush() && warn_) warn_(path.string() + ": cannot be written");
  }
}

}  // namespace lockstep
