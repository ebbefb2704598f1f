// A file mapped read-only for its lifetime. The kernel's page cache is the only copy of the weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

class MappedFile {
 public:
  /// Throws Error::io if the file cannot be opened, is not a regular file, or cannot be mapped. An empty file maps to
  /// an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
