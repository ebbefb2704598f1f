// Files that appear whole or not at all: written beside their place without a name, and renamed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep {

/// The file that writing to `path` will replace: where symbolic links lead. Throws Error::bad_argument if something is
/// there that is no regular file, since a rename would put a file in its place, or if the folder does not exist.
std::filesystem::path replaced_file(const std::filesystem::path& path);

/// Throws Error::bad_argument if `path` is one of `inputs`, by whatever name: they are read until the end.
void refuse_input(const std::filesystem::path& path, std::span<const std::filesystem::path> inputs);

class OutputFile {
 public:
  /// Where the file system has files without names, nothing remains of a program that is killed; elsewhere the file is
  /// PATH.part-XXXXXXXX until it is whole, which no other program takes for its own. Throws what replaced_file throws,
  /// and Error::io.
  explicit OutputFile(const std::filesystem::path& path);
  /// Without commit(), nothing of it remains.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws Error::io, for instance when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Puts everything on the disk, under a name beside PATH; no descriptor is kept. Throws Error::io.
  void close();
  /// Gives the file its name, after close() if that is still to be done. Throws Error::io.
  void commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path work_;  // its name until then; empty: it has none yet
  std::unique_ptr<std::FILE, Close> file_;
  bool is_whole_ = false;
};

}  // namespace lockstep
