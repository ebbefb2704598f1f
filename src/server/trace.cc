#include "server/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "server/http_error.h"

namespace lockstep {
namespace {

constexpr mode_t kOwnerOnly = 0600;  // prompts are nobody else's business

/// A new file, or one that is written anew. False, and errno, if there can be none.
bool write_private(const std::filesystem::path& path, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
  if (file < 0) return false;
  bool is_good = ::fchmod(file, kOwnerOnly) == 0;  // it may have been there before
  while (is_good && !bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    is_good = n > 0 || errno == EINTR;
  }
  return ::close(file) == 0 && is_good;
}

}  // namespace

void make_trace_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();  // "traces/"
  const auto refuse = [&](const std::string& words) {
    throw Error(Error::Kind::io, "--trace: " + folder.string() + ": " + words + ", expected a folder for traces");
  };
  std::error_code error;
  const std::filesystem::path parent = folder.parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(folder.c_str(), 0700) != 0 && !std::filesystem::is_directory(folder, error))
    refuse(std::generic_category().message(errno == EEXIST ? ENOTDIR : errno));
  const std::filesystem::path probe = folder / (".lockstep-" + std::to_string(::getpid()));
  if (!write_private(probe, {})) refuse(std::generic_category().message(errno));
  ::unlink(probe.c_str());
}

Trace::Trace(std::filesystem::path folder, std::function<void(const std::string&)> warn)
    : folder_(std::move(folder)), warn_(std::move(warn)) {
  make_trace_folder(folder_);
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
    if (!write_private(path, json_text(record) + '\n') && warn_) warn_(path.string() + ": cannot be written");
  }
}

}  // namespace lockstep
