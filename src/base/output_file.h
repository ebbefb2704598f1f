// Files that appear whole or not at all: written beside their place under another name, and renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

namespace lockstep {

/// The file that writing to `path` will replace: where symbolic links lead. Throws Error::bad_argument if something is
/// there that is no regular file, since a rename would put a file in its place, or if the folder does not exist.
std::filesystem::path replaced_file(const std::filesystem::path& path);

class OutputFile {
 public:
  /// Creates PATH.part. Throws what replaced_file throws, and Error::io.
  explicit OutputFile(const std::filesystem::path& path);
  /// Without commit(), nothing of it remains.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Errors are kept until commit().
  void write(std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Gives the file its name. Throws Error::io if anything could not be written.
  void commit();

 private:
  std::filesystem::path path_, part_;
  std::ofstream out_;
  bool is_whole_ = false;
};

}  // namespace lockstep
