// One row of a checkpoint's matrix: to f32, and to the bytes of a format. It knows nothing of names and files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/convert.h"
#include "tensor/quantise.h"

namespace lockstep {

/// Codes two to a byte: the row of a packed FP4 matrix has width / 2 bytes.
inline bool is_packed_fp4(const StoredTensor& weight) {
  return weight.type == StoredType::i8 || weight.type == StoredType::u8;
}

/// Values that share one scale of an FP8 matrix, in each direction, and of a packed FP4 row.
inline constexpr std::int64_t kFp8Tile = 128;
inline constexpr std::int64_t kPackedBlock = 32;

/// Whether a packed FP4 matrix goes into the format without rounding.
inline bool is_repacked(const StoredTensor& weight, DType dtype) {
  return dtype == DType::mxfp4 && is_packed_fp4(weight);
}

/// Writes the f32 values of row `row`: codes times scales, each product exact.
///   source: a matrix of `width` values a row, f32, f16, bf16, f8_e4m3 with its tile scales or packed FP4 with its
///   block scales, as the plan checked;  out [width] f32.  Cannot fail; damaged scales and codes give NaN.
/// Source: docs/formats.md, "Checkpoints".
void decode_row(const ConvertSource& source, std::int64_t row, std::int64_t width, float* out);

/// How many values of a matrix are not among those of f32, f16 or bf16, which is `dtype`.
///   source: as for decode_row, [rows, width]
/// Of FP8 and packed FP4 the scales are read, and the codes only where a scale is near the end of the format's range.
std::int64_t inexact_values(const ConvertSource& source, std::int64_t rows, std::int64_t width, DType dtype);

/// Makes the rows of one tensor of the file. Const after construction: any number of threads may use it.
class RowConverter {
 public:
  explicit RowConverter(const ConvertTensor& tensor);

  /// Writes row `row` of plane `plane` in the tensor's format.
  ///   scratch [width] f32;  out [row_bytes(dtype, width)] bytes
  /// Returns what is wrong with the row, or nothing. Does not throw.
  std::optional<std::string> convert(std::int64_t plane, std::int64_t row, float* scratch, std::byte* out) const;

 private:
  const ConvertTensor& tensor_;
  std::int64_t width_;
  std::unique_ptr<const Quantiser> quantiser_;  // null for a table
};

}  // namespace lockstep
