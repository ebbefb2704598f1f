// Address space that takes memory only where it has been written, and gives it back piece by piece.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

class ReservedMemory {
 public:
  /// Reads as zeros until written. Throws Error::no_memory.
  explicit ReservedMemory(std::size_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Gives back the whole pages of a part, which then reads as zeros.
  void drop(std::size_t begin, std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
