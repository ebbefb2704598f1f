// The directory of the disk cache: which files are there, how one is written, and which go first when there are too
// many. It knows files by their names alone and reads none.
//
// Several processes may use one directory. A file appears whole or not at all (written under another name, renamed),
// and what is there never changes. Writing an entry holds the lock shared, removing files to make room holds it alone:
// so nobody removes segments whose tail is still to come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/disk_format.h"

namespace lockstep {

/// The disk is full, or the user's share of it.
class NoRoom : public Error {
 public:
  explicit NoRoom(const std::string& message) : Error(Kind::io, message) {}
};

struct StateFile {
  StateName name;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;  // when last used: the file's time of modification
};

/// The cache's files in a directory, in the order of their names; others are left out. Throws Error::io.
std::vector<StateFile> list_states(const std::filesystem::path& directory);

/// Which of `files` have to go so that the rest takes `budget_bytes` at most, in this order: what nothing can be made
/// of (tails with a segment missing, segments that no tail needs), then the tails used least recently, each with the
/// segments that only it needed. Never one that `is_kept`, nor a segment that it needs.
std::vector<StateFile> choose_victims(std::vector<StateFile> files, std::uint64_t budget_bytes,
                                      const std::function<bool(const StateName&)>& is_kept);

/// What is read at once: of an open file, which stays readable though somebody removes it.
class StateReader {
 public:
  /// Nothing if there is no such file. Throws Error::io, also if it is no regular file.
  static std::optional<StateReader> open(const std::filesystem::path& path);
  ~StateReader();
  StateReader(StateReader&& other) noexcept;
  StateReader& operator=(StateReader&& other) noexcept;

  std::uint64_t bytes() const { return bytes_; }
  /// Has the system begin to read.
  void expect() const;
  /// The first `out.size()` bytes. Throws Error::io, or Error::bad_file if the file is shorter.
  void read(std::span<std::byte> out) const;

 private:
  StateReader(int descriptor, std::uint64_t bytes, std::filesystem::path path)
      : descriptor_(descriptor), bytes_(bytes), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::filesystem::path path_;
};

/// Writes a file under another name, readable by its owner alone, has it reach the disk, and renames it to `name`.
/// Throws Error::io, NoRoom if the disk is full, and then nothing of it is left.
void write_file(const std::filesystem::path& directory, const std::string& name,
                std::span<const std::span<const std::byte>> pieces);
/// Has the names of a directory reach the disk. Throws Error::io.
void sync_directory(const std::filesystem::path& directory);
/// Says that a file has been used now. A failure is no matter: the file then counts as less recent than it is.
void touch_state(const std::filesystem::path& path);
/// Removes what processes that ended have left half written. The lock must be held alone.
void remove_unfinished(const std::filesystem::path& directory);

/// The lock of a directory, a file called "lock"; released by the destructor or the end of the process.
class DirectoryLock {
 public:
  enum class How { shared, alone };
  /// Nothing if others hold it for longer than `seconds`. Throws Error::io if there can be no lock.
  static std::optional<DirectoryLock> take(const std::filesystem::path& directory, How how, double seconds);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace lockstep
