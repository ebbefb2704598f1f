// Random weights, made directly in the format of the file: random codes under scales that give the values a wanted
// size.
//
// No quantiser runs, so a model of any size is written as fast as random bits can be made. Blocks are the bytes that an
// encoder could have written: scales are finite, codes that no encoder uses do not occur, sub-scales vary, and the
// values have mean 0, so that a matrix does not act on the sum of its input alone. What a block holds depends on (key,
// index) only: threads and pieces cannot change a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace lockstep {

class RandomBlocks {
 public:
  /// Values with a root mean square of `rms` (that of a ROCmFP format is off by up to a tenth: its scales are coarse).
  /// Formats: f32, f16, bf16, q8_0, q2_K, q4_K, iq2_xxs, mxfp4, rocmfp2, rocmfp3, rocmfp4, rocmfp4_fast.
  /// Throws Error::unsupported for others.
  RandomBlocks(DType dtype, float rms, std::uint64_t key);

  /// Bytes that are made at a time: a block, or kFloatRun values of a float format. A run never depends on another one.
  std::size_t run_bytes() const { return run_bytes_; }

  /// The bytes of runs first_run, first_run + 1, ...; the last one may be cut short. Cannot fail; may be called from
  /// several threads.
  void fill(std::int64_t first_run, std::span<std::byte> out) const;

  static constexpr int kFloatRun = 8;

 private:
  void fill_run(std::int64_t run, std::uint32_t scale_bits, std::byte* out) const;
  void fill_floats(std::int64_t run, std::byte* out) const;
  double measured_rms() const;

  DType dtype_;
  std::uint64_t key_;
  std::size_t run_bytes_;
  float scale_ = 1;
  // Values of a float format are drawn from a table of normal ones in pairs x, -x: 16 bits a value instead of 128.
  std::vector<std::uint32_t> table_;
};

}  // namespace lockstep
