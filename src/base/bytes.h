// Unaligned little-endian reads and writes. Blocks of quantised formats have odd sizes, so no pointer is ever cast.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "file formats are read in place and are little-endian");

template <class T>
T load_as(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store_as(void* to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace lockstep
