// From a format's bytes to the f32 values that they stand for, and the check of blocks that a file brings.
//
// The quantised formats have one decoder each (decode_block); a value is its level times its scale, less its minimum.
// Every product is exact in f32, so a value is rounded at most once, by that subtraction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tensor/dtype.h"

namespace lockstep {

/// How one expert, or one dense tensor, of a MIX format decodes. It comes from a side table (tensor/mix.h).
struct MixBooks {
  bool books = false;      // mode 1: bit 7 of a scale byte chooses a book; mode 0: as ROCmFP3 or ROCmFP2, books unused
  float level[2][8] = {};  // ROCmFP3 MIX uses all eight, ROCmFP2 MIX the first four
};

/// Writes the values of a row.
///   row [row_bytes(dtype, width)] bytes, any alignment;  out [width] f32, may not overlap row
/// dtype is neither i32 nor a MIX format, width a multiple of its block. Cannot fail: any bytes mean something, if only
/// NaN; see find_invalid_block. Source: docs/formats.md.
void dequantize_row(DType dtype, const std::byte* row, std::int64_t width, float* out);

/// The same for rocmfp3_mix and rocmfp2_mix. A scale byte of 0x7f (below the book's bit) means 0.
void dequantize_row(DType dtype, const MixBooks& books, const std::byte* row, std::int64_t width, float* out);

/// What is wrong with the first block whose scales no encoder writes: an f16 scale or minimum that is infinite or NaN,
/// an E8M0 byte 255, a UE4M3 byte above 0x7e. Nothing if all blocks are sound. MIX blocks use bit 7 of their scale
/// bytes and are not checked, nor are formats without scales.
///   blocks: whole blocks of dtype
/// The sentence begins with the number of the block in `blocks`; the caller puts the tensor's name before it. Reads the
/// scale bytes only.
std::optional<std::string> find_invalid_block(DType dtype, std::span<const std::byte> blocks);

}  // namespace lockstep
