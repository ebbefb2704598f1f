#include "engine/disk_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kUnfinished = ".unfinished-";  // and what tells it from others

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  const std::string message = fmt::format("{}: {}: {}", path.string(), what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) throw NoRoom(message);
  throw Error(Error::Kind::io, message);
}

/// A file nobody else has, readable by its owner alone: it tells what was talked about. Closes and, unless it got its
/// name, removes.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& directory) {
    std::string path = (directory / kUnfinished).string() + "XXXXXX";
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    path_ = path;
    if (descriptor_ < 0) fail(path_, "cannot create", errno);
  }
  ~NewFile() {
    ::close(descriptor_);
    if (!is_named_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "cannot write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void name(const std::filesystem::path& path) {
    if (::fsync(descriptor_) != 0) fail(path_, "cannot write to the disk", errno);
    if (::rename(path_.c_str(), path.c_str()) != 0) fail(path, "cannot rename to this", errno);
    is_named_ = true;
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool is_named_ = false;
};

}  // namespace

std::vector<StateFile> list_states(const std::filesystem::path& directory) {
  std::vector<StateFile> files;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) throw Error(Error::Kind::io, directory.string() + ": cannot list: " + error.message());
  for (const std::filesystem::directory_iterator end; entries != end;) {
    const std::string name = entries->path().filename().string();
    struct stat status {};
    // What is gone by now was removed by somebody else.
    if (const auto parsed = parse_file_name(name);
        parsed && ::stat(entries->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
      files.push_back({*parsed, static_cast<std::uint64_t>(status.st_size),
                       std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
    entries.increment(error);
    if (error) throw Error(Error::Kind::io, directory.string() + ": cannot list: " + error.message());
  }
  std::sort(files.begin(), files.end(),
            [](const StateFile& a, const StateFile& b) { return file_name(a.name) < file_name(b.name); });
  return files;
}

std::vector<StateFile> choose_victims(std::vector<StateFile> files, std::uint64_t budget_bytes,
                                      const std::function<bool(const StateName&)>& is_kept) {
  std::uint64_t total = 0;
  for (const StateFile& file : files) total += file.bytes;
  std::vector<StateFile> victims;
  if (total <= budget_bytes) return victims;
  std::sort(files.begin(), files.end(), [](const StateFile& a, const StateFile& b) { return a.used_ns < b.used_ns; });

  struct Segment {
    const StateFile* file = nullptr;
    std::size_t needed_by = 0;  // whole tails
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // fingerprint, key
  std::map<Key, Segment> segments;
  for (const StateFile& file : files)
    if (file.name.kind == StateKind::segment) segments[{file.name.fingerprint, file.name.key}].file = &file;
  /// The segments of a tail, the last one first; nothing if one is missing. Keys are hashes of what comes before, so a
  /// damaged directory aside there is no ring; and a ring is longer than there are segments.
  const auto chain = [&](const StateName& tail) -> std::optional<std::vector<Segment*>> {
    std::vector<Segment*> out;
    for (std::uint64_t parent = tail.parent; parent != 0;) {
      const auto found = segments.find({tail.fingerprint, parent});
      if (found == segments.end() || out.size() > segments.size()) return std::nullopt;
      out.push_back(&found->second);
      parent = found->second.file->name.parent;
    }
    return out;
  };

  const auto evict = [&](const StateFile& file) {
    victims.push_back(file);
    total -= file.bytes;
  };
  std::vector<std::pair<const StateFile*, std::vector<Segment*>>> tails;
  for (const StateFile& file : files) {
    if (file.name.kind != StateKind::tail) continue;
    auto segments_of_it = chain(file.name);
    if (!segments_of_it) {
      if (total > budget_bytes && !is_kept(file.name)) evict(file);
      continue;
    }
    for (Segment* segment : *segments_of_it) ++segment->needed_by;
    tails.emplace_back(&file, std::move(*segments_of_it));
  }
  for (const StateFile& file : files) {
    if (total <= budget_bytes) return victims;
    if (file.name.kind == StateKind::segment && !is_kept(file.name) &&
        segments[{file.name.fingerprint, file.name.key}].needed_by == 0)
      evict(file);
  }
  for (const auto& [file, needs] : tails) {
    if (total <= budget_bytes) return victims;
    if (is_kept(file->name)) continue;
    evict(*file);
    for (Segment* segment : needs)
      if (--segment->needed_by == 0 && total > budget_bytes && !is_kept(segment->file->name)) evict(*segment->file);
  }
  return victims;
}

std::optional<StateReader> StateReader::open(const std::filesystem::path& path) {
  // Of what is no file an open might wait for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return std::nullopt;
  if (descriptor < 0) fail(path, "cannot open", errno);
  StateReader reader(descriptor, 0, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, "cannot read", errno);
  if (!S_ISREG(status.st_mode)) throw Error(Error::Kind::io, path.string() + ": not a regular file");
  reader.bytes_ = static_cast<std::uint64_t>(status.st_size);
  return reader;
}

StateReader::~StateReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

StateReader::StateReader(StateReader&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_), path_(std::move(other.path_)) {}

StateReader& StateReader::operator=(StateReader&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  return *this;
}

void StateReader::expect() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_WILLNEED); }

void StateReader::read(std::span<std::byte> out) const {
  std::size_t at = 0;
  while (at < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + at, out.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, "cannot read", errno);
    if (count == 0)
      throw Error(Error::Kind::bad_file, fmt::format("{}: {} bytes, expected {}", path_.string(), at, out.size()));
    at += static_cast<std::size_t>(count);
  }
}

void write_file(const std::filesystem::path& directory, const std::string& name,
                std::span<const std::span<const std::byte>> pieces) {
  NewFile file(directory);
  for (const std::span<const std::byte> piece : pieces) file.write(piece);
  file.name(directory / name);
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(directory, "cannot open", errno);
  const int result = ::fsync(descriptor), error = errno;
  ::close(descriptor);
  if (result != 0) fail(directory, "cannot write to the disk", error);
}

void touch_state(const std::filesystem::path& path) {
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
}

void remove_unfinished(const std::filesystem::path& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kUnfinished)) found.push_back(entry->path());
  for (const std::filesystem::path& path : found) std::filesystem::remove(path, error);
}

std::optional<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory, How how, double seconds) {
  const std::filesystem::path path = directory / "lock";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    const int error = errno;
    std::error_code ignored;
    fail(path, std::filesystem::exists(path, ignored) ? "cannot open" : "cannot create", error);
  }
  DirectoryLock lock(descriptor);
  const int operation = (how == How::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (::flock(descriptor, operation) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail(path, "cannot lock", errno);
    if (std::chrono::steady_clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return lock;
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

}  // namespace lockstep
