// 64-bit hashes of bytes (XXH3), for comparing results and naming data. Not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

std::uint64_t hash_bytes(std::span<const std::byte> bytes);

/// The same hash over bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> bytes);
  template <class T>
  void add_values(std::span<const T> values) {
    add(std::as_bytes(values));
  }
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
