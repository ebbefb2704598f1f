#include "server/replay_file.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/disk_files.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

constexpr int kVersion = 2, kOldVersion = 1;
constexpr double kLockSeconds = 10;
// Escapes make the file larger than the texts: six bytes for one at most.
constexpr std::size_t kFileBytesPerByte = 8;
// Of the time, for saving, at most; and longer pauses after failures.
constexpr double kPausePerSecond = 20, kPauseAfterFailure = 30;

std::string hash_of(std::string_view bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

std::string header_of(std::string_view turns, int version) {
  Json header;
  header["lockstep"] = "replay";
  header["version"] = version;
  header["bytes"] = turns.size();
  header["xxh3"] = hash_of(turns);
  return dump_python(header) + "\n";
}

/// What follows the first line of a file. Throws Error::bad_file if anything is not as it was written.
std::string_view turns_of(std::string_view file, int version, const std::string& name) {
  const std::size_t end = file.find('\n');
  const std::string_view turns = end == std::string_view::npos ? std::string_view() : file.substr(end + 1);
  // The line is a function of what follows, so comparing it reads every field.
  if (end == std::string_view::npos || file.substr(0, end + 1) != header_of(turns, version))
    throw Error(Error::Kind::bad_file, name + ": damaged, expected the sum in its first line to be that of the rest");
  return turns;
}

/// Nothing if there is no file.
std::optional<std::string> read_whole(const std::filesystem::path& path, std::size_t most) {
  const std::optional<StateReader> reader = StateReader::open(path);
  if (!reader) return std::nullopt;
  if (reader->bytes() > most)
    throw Error(Error::Kind::bad_file,
                fmt::format("{}: {} bytes, expected at most {}", path.string(), reader->bytes(), most));
  std::string bytes(reader->bytes(), '\0');
  reader->read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

ReplayFile::ReplayFile(std::shared_ptr<ReplayMap> map, Options options)
    : map_(std::move(map)), options_(std::move(options)) {
  load(*map_);
  saved_ = map_->remembered();
  thread_ = std::thread([this] { run(); });
}

ReplayFile::~ReplayFile() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  save();
}

ReplayFile::Identity ReplayFile::identity() const {
  struct stat status {};
  if (::stat(path().c_str(), &status) != 0) return {};
  return {status.st_ino, static_cast<std::uint64_t>(status.st_size),
          static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void ReplayFile::load(ReplayMap& into) {
  const Identity found = identity();
  known_ = read(kName, kVersion, into) ? found : Identity{};
  std::error_code ignored;
  if (found != Identity{} || !std::filesystem::exists(options_.directory / kOldName, ignored)) return;
  has_read_old_ = read(kOldName, kOldVersion, into);
}

/// Whether it could be read, if it is there.
bool ReplayFile::read(const char* name, int version, ReplayMap& into) {
  const std::filesystem::path file = options_.directory / name;
  try {
    if (const auto bytes = read_whole(file, into.budget() * kFileBytesPerByte + 4096))
      into.load(turns_of(*bytes, version, file.string()));
    return true;
  } catch (const Error& error) {
    const bool is_damaged = error.kind() == Error::Kind::bad_file;
    tell(std::string(error.what()) + (is_damaged ? "; it is removed, and" : ";") +
         " turns of earlier conversations are rendered anew");
    std::error_code ignored;
    if (is_damaged) std::filesystem::remove(file, ignored);
    return false;
  }
}

/// By one thread at a time: this object's own, or after it the destructor's.
void ReplayFile::save() {
  const std::uint64_t remembered = map_->remembered();
  if (remembered == saved_) return;
  try {
    const auto lock = DirectoryLock::take(options_.directory, DirectoryLock::How::alone, kLockSeconds);
    if (!lock)
      throw Error(Error::Kind::io, fmt::format("{}: locked by another process for over {} s",
                                               options_.directory.string(), kLockSeconds));
    std::string turns;
    if (identity() == known_) {
      turns = map_->save();
    } else {  // somebody else has saved theirs: both, ours being the later ones
      ReplayMap all(map_->budget());
      load(all);
      all.load(map_->save());
      turns = all.save();
    }
    write(turns);
    known_ = identity();
    std::error_code ignored;
    if (std::exchange(has_read_old_, false)) std::filesystem::remove(options_.directory / kOldName, ignored);
    saved_ = remembered;
    if (std::exchange(is_failing_, false)) tell(path().string() + ": sampled turns are saved again");
  } catch (const std::exception& error) {
    if (!std::exchange(is_failing_, true))
      tell(std::string(error.what()) + "; sampled turns are not saved, and it is tried again");
  }
}

/// The lock is held, so that nobody takes the unfinished file for one that was left behind.
void ReplayFile::write(const std::string& turns) {
  const std::string header = header_of(turns, kVersion);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(header)), std::as_bytes(std::span(turns))};
  write_file(options_.directory, kName, pieces);
  sync_directory(options_.directory);
}

void ReplayFile::run() {
  double pause = options_.seconds;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::duration<double>(pause), [&] { return is_stopping_; })) {
    lock.unlock();
    const double began = steady_seconds();
    save();
    pause = std::max(options_.seconds, kPausePerSecond * (steady_seconds() - began));
    if (is_failing_) pause = std::max(pause, kPauseAfterFailure);
    lock.lock();
  }
}

void ReplayFile::tell(const std::string& message) const {
  if (options_.note) options_.note(message);
}

}  // namespace lockstep
