#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr mode_t kMode = 0666;  // less the umask
constexpr int kNames = 100;     // tried before giving up

/// PATH.part- and eight letters that chance has chosen.
std::filesystem::path work_name(const std::filesystem::path& path) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::random_device random;
  std::string suffix = ".part-";
  for (int i = 0; i < 8; ++i) suffix += kLetters[random() % 32];
  std::filesystem::path name = path;
  name += suffix;
  return name;
}

/// The name under which a descriptor can be linked to a file.
std::string descriptor_path(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

/// A file without a name in `folder`, or -1 where there is no such thing.
int open_nameless(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (descriptor >= 0 && ::access(descriptor_path(descriptor).c_str(), F_OK) != 0) {
    ::close(descriptor);  // it could never get one
    return -1;
  }
  return descriptor;
}

}  // namespace

std::filesystem::path replaced_file(const std::filesystem::path& path) {
  if (path.empty()) throw Error(Error::Kind::bad_argument, "the name of the file to write is empty");
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) throw Error(Error::Kind::bad_argument, path.string() + ": no such place: " + error.message());
  const std::filesystem::file_status status = std::filesystem::status(target, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(Error::Kind::bad_argument, path.string() + ": not a regular file, expected one or a new name");
  if (!std::filesystem::is_directory(target.parent_path(), error))
    throw Error(Error::Kind::bad_argument,
                path.string() + ": the folder " + target.parent_path().string() + " does not exist");
  return target;
}

void refuse_input(const std::filesystem::path& path, std::span<const std::filesystem::path> inputs) {
  for (const std::filesystem::path& input : inputs) {
    std::error_code error;  // an output that is not there yet is none of them
    if (std::filesystem::equivalent(input, path, error))
      throw Error(Error::Kind::bad_argument, path.string() + ": is an input, expected another file to write");
  }
}

OutputFile::OutputFile(const std::filesystem::path& path) : path_(replaced_file(path)) {
  int descriptor = open_nameless(path_.parent_path());
  for (int i = 0; descriptor < 0 && i < kNames; ++i) {
    work_ = work_name(path_);
    descriptor = ::open(work_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) {
    work_.clear();
    fail("cannot create");
  }
  file_.reset(::fdopen(descriptor, "wb"));
  if (!file_) {
    ::close(descriptor);
    if (!work_.empty()) ::unlink(work_.c_str());
    fail("cannot create");
  }
  std::setvbuf(file_.get(), nullptr, _IOFBF, kBufferBytes);
}

OutputFile::~OutputFile() {
  if (is_whole_) return;
  file_.reset();
  if (!work_.empty()) ::unlink(work_.c_str());  // if it fails, nobody is left to tell
}

void OutputFile::fail(const char* what) const {
  throw Error(Error::Kind::io, path_.string() + ": " + what + ": " + std::strerror(errno));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(file_);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail("cannot write");
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(file_);
  if (::fseeko(file_.get(), static_cast<off_t>(offset), SEEK_SET) != 0) fail("cannot write");
  write(bytes);
}

void OutputFile::close() {
  LOCKSTEP_CHECK(file_);
  const int descriptor = ::fileno(file_.get());
  if (std::fflush(file_.get()) != 0 || ::fsync(descriptor) != 0) fail("cannot write");
  for (int i = 0; work_.empty(); ++i) {
    const std::filesystem::path name = work_name(path_);
    if (::linkat(AT_FDCWD, descriptor_path(descriptor).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
      work_ = name;
    else if (errno != EEXIST || i == kNames)
      fail("cannot give it a name");
  }
  if (std::fclose(file_.release()) != 0) fail("cannot write");
}

void OutputFile::commit() {
  if (file_) close();
  std::error_code error;
  std::filesystem::rename(work_, path_, error);
  if (error)
    throw Error(Error::Kind::io, work_.string() + ": cannot rename to " + path_.string() + ": " + error.message());
  is_whole_ = true;
}

}  // namespace lockstep
