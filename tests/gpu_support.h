// Helpers of the tests that run ops on a GPU and as the literal loops: memory on both sides, random operands.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu/gpu_ops.h"
#include "numerics/random.h"
#include "ops/ops.h"
#include "tensor/dequantize.h"

namespace lockstep::testing {

/// The two back ends that are compared.
struct BackEnds {
  std::unique_ptr<Ops> loops = make_reference_ops();
  std::unique_ptr<Ops> device = gpu::make_gpu_ops({});
};

/// The same values in the memory of both back ends. `at(ops)` is the one of that back end.
template <class T>
class Twin {
 public:
  Twin(BackEnds& ends, const std::vector<T>& values) : ends_(ends), count_(values.size()) {
    loops_ = static_cast<T*>(ends.loops->allocate(bytes()));
    device_ = static_cast<T*>(ends.device->allocate(bytes()));
    ends.loops->upload(loops_, values.data(), bytes());
    ends.device->upload(device_, values.data(), bytes());
  }
  /// Results to be: bytes that no op writes by chance.
  Twin(BackEnds& ends, std::size_t count) : Twin(ends, poison(count)) {}
  ~Twin() {
    ends_.loops->release(loops_);
    ends_.device->release(device_);
  }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  T* at(const Ops& ops) const { return &ops == ends_.loops.get() ? loops_ : device_; }
  std::size_t count() const { return count_; }

  /// Where the two differ first, as a sentence; empty if nowhere.
  std::string difference() const {
    std::vector<T> device(count_);
    ends_.device->download(device.data(), device_, bytes());
    for (std::size_t i = 0; i < count_; ++i) {
      if (std::memcmp(&device[i], &loops_[i], sizeof(T)) == 0) continue;
      if constexpr (std::is_same_v<T, float>) {
        if (device[i] != device[i] && loops_[i] != loops_[i]) continue;  // machines make different NaNs
      }
      return "value " + std::to_string(i) + " of " + std::to_string(count_) + ": " + text(loops_[i]) + " is " +
             text(device[i]) + " on the device";
    }
    return "";
  }

 private:
  static std::vector<T> poison(std::size_t count) {
    std::vector<T> values(count);
    std::memset(static_cast<void*>(values.data()), 0x5a, count * sizeof(T));
    return values;
  }
  static std::string text(const T& value) {
    if constexpr (std::is_same_v<T, std::byte>)
      return std::to_string(std::to_integer<int>(value));
    else
      return std::to_string(value);
  }
  std::size_t bytes() const { return count_ * sizeof(T); }

  BackEnds& ends_;
  std::size_t count_;
  T* loops_;
  T* device_;
};

inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed, float spread = 1.0f) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = spread * random_normal(seed, i, 3);
  return values;
}

/// Rows of a format whose scales an encoder could have written.
inline std::vector<std::byte> random_rows(DType dtype, int width, int rows, std::uint64_t seed) {
  const DTypeInfo& info = info_of(dtype);
  std::vector<std::byte> bytes(row_bytes(dtype, width) * static_cast<std::size_t>(rows));
  std::uint64_t draws = 0;
  const std::size_t block_bytes = static_cast<std::size_t>(info.block_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
    const std::span block(&bytes[at], block_bytes);
    if (dtype == DType::f32) {
      const float value = random_normal(seed, draws++, 4);
      std::memcpy(block.data(), &value, sizeof value);
      continue;
    }
    do {
      for (std::byte& b : block) b = static_cast<std::byte>(random_u64(seed, draws++));
      if (dtype == DType::f16 || dtype == DType::bf16) block[1] = (block[1] & std::byte{0x83}) | std::byte{0x3c};
      if (dtype == DType::mxfp4 || dtype == DType::f8_e4m3_b128) block[0] = std::byte{112} | (block[0] & std::byte{15});
      if (dtype == DType::f8_e4m3_b128)
        for (std::size_t i = 1; i < block_bytes; ++i)
          if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] ^= std::byte{1};
    } while (find_invalid_block(dtype, block).has_value());
  }
  return bytes;
}

/// The same rows rounded on both sides, by the loops.
class TwinRounded {
 public:
  TwinRounded(BackEnds& ends, int rows, int width)
      : codes_(ends, static_cast<std::size_t>(rows) * width),
        scales_(ends, static_cast<std::size_t>(rows) * width / 32),
        half_sums_(ends, static_cast<std::size_t>(rows) * width / 16),
        rows_(rows),
        width_(width) {}
  Rounded at(const Ops& ops) const {
    return {codes_.at(ops), scales_.at(ops), half_sums_.at(ops), rows_, width_, width_};
  }
  std::string difference() const { return codes_.difference() + scales_.difference() + half_sums_.difference(); }

 private:
  Twin<std::int8_t> codes_;
  Twin<float> scales_;
  Twin<std::int16_t> half_sums_;
  int rows_, width_;
};

}  // namespace lockstep::testing
