// Cache rows on a device: reading one value of a packed row, packing a row by a block, and finding what a query
// attends. The formats are those of ops/row_codec.h.
#pragma once

#include "gpu/device.h"
#include "gpu/kernels.h"
#include "numerics/round.h"
#include "ops/rows.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

LOCKSTEP_DEVICE int fp8_blocks(int channels) { return (channels + kFp8Block - 1) / kFp8Block; }

LOCKSTEP_DEVICE const std::uint8_t* bytes_of(const std::byte* memory) {
  return reinterpret_cast<const std::uint8_t*>(memory);
}

/// fp8_value for what a row holds: with a finite scale no code is NaN, and code and scale are multiplied by powers of
/// two, exact like fp8_value's own product unless that overflows. No branch, so that many can be under way.
LOCKSTEP_DEVICE float row_code_value(std::uint32_t code, std::uint32_t e8m0) {
  const int exponent = e8m0_to_exponent(static_cast<std::uint8_t>(e8m0)), low = exponent < 7 ? exponent : 7;
  const float rest = exponent == kBadExponent ? f32_of(kQuietNaN) : power_of_two(exponent - low);
  const float magnitude = f32_of((code & 0x7fu) << 20) * power_of_two(120 + low) * rest;
  return f32_of((code & 0x80u) << 24 | bits_of(magnitude));
}

/// Channel d of a packed row.
LOCKSTEP_DEVICE float row_value(const std::uint8_t* row, int d, const PackedRows& layout) {
  if (layout.is_plain) return reinterpret_cast<const float*>(row)[d];
  const int channels = layout.width - layout.rotary;
  if (d < channels) return row_code_value(row[d], row[channels + d / kFp8Block]);
  return f32_of(load_u32(row + channels + fp8_blocks(channels) + 4 * (d - channels)));
}

/// Channel d of a packed indexer key.
LOCKSTEP_DEVICE float key_value(const std::uint8_t* key, int d, const PackedRows& layout) {
  if (layout.is_plain) return reinterpret_cast<const float*>(key)[d];
  const auto code = static_cast<std::uint8_t>(key[d / 2] >> 4 * (d % 2));
  return fp4_value(code, e8m0_to_exponent(key[layout.key_width / 2 + d / kFp4Block]));
}

/// Packs a row that is rounded already, by all warps of a block. x may be shared or device memory.
LOCKSTEP_DEVICE void pack_row_by_block(std::uint8_t* out, const float* x, const PackedRows& layout) {
  if (layout.is_plain) {
    for (int d = thread_index(); d < layout.width; d += block_threads()) reinterpret_cast<float*>(out)[d] = x[d];
    return;
  }
  const int channels = layout.width - layout.rotary, blocks = fp8_blocks(channels);
  for (int block = thread_index() / kWarp; block < blocks; block += block_threads() / kWarp) {
    const int first = block * kFp8Block + lane_index(), second = first + kWarp;
    const float a = first < channels ? x[first] : 0.0f, b = second < channels ? x[second] : 0.0f;
    const std::uint32_t larger = magnitude_bits(a) > magnitude_bits(b) ? magnitude_bits(a) : magnitude_bits(b);
    const int exponent = fp8_exponent(warp_max(larger));
    if (first < channels) out[first] = fp8_code(a, exponent);
    if (second < channels) out[second] = fp8_code(b, exponent);
    if (lane_index() == 0) out[channels + block] = exponent_to_e8m0(exponent);
  }
  for (int i = thread_index(); i < 4 * layout.rotary; i += block_threads())
    out[channels + blocks + i] = static_cast<std::uint8_t>(bits_of(x[channels + i / 4]) >> (8 * (i % 4)));
}

/// The slice that holds row i of a step, by halving: they are in order.
LOCKSTEP_DEVICE const SequenceSlice& slice_of(const SequenceSlice* slices, int count, int i) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (slices[middle].first_row <= i)
      low = middle;
    else
      high = middle - 1;
  }
  return slices[low];
}

#endif

}  // namespace lockstep::gpu
