#include "base/output_file.h"

#include <system_error>

#include "base/error.h"

namespace lockstep {

std::filesystem::path replaced_file(const std::filesystem::path& path) {
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

OutputFile::OutputFile(const std::filesystem::path& path) : path_(replaced_file(path)), part_(path_) {
  part_ += ".part";
  out_.open(part_, std::ios::binary | std::ios::trunc);
  if (!out_) throw Error(Error::Kind::io, part_.string() + ": cannot create");
}

OutputFile::~OutputFile() {
  if (is_whole_) return;
  out_.close();
  std::error_code ignored;  // nobody is left to tell
  std::filesystem::remove(part_, ignored);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  out_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  out_.seekp(static_cast<std::streamoff>(offset));
  write(bytes);
}

void OutputFile::commit() {
  out_.close();
  if (!out_) throw Error(Error::Kind::io, part_.string() + ": cannot write all of it");
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error)
    throw Error(Error::Kind::io, part_.string() + ": cannot rename to " + path_.string() + ": " + error.message());
  is_whole_ = true;
}

}  // namespace lockstep
