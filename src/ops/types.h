// What ops take and give: views of matrices in a back end's memory. Views borrow; they own nothing and are passed by
// value. On a GPU the pointers are device pointers, so nothing above a back end looks through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace lockstep {

struct MixBooks;  // tensor/dequantize.h

using Token = std::int32_t;
using Position = std::int64_t;

/// `rows` rows of `width` floats, `stride` floats from the start of one row to the next.
struct Rows {
  float* data = nullptr;
  int rows = 0;
  int width = 0;
  std::ptrdiff_t stride = 0;

  float* row(int i) const { return data + i * stride; }
  Rows first(int n) const { return {data, n, width, stride}; }
  Rows from(int i, int n) const { return {row(i), n, width, stride}; }
  Rows columns(int begin, int n) const { return {data + begin, rows, n, stride}; }
};

struct ConstRows {
  const float* data = nullptr;
  int rows = 0;
  int width = 0;
  std::ptrdiff_t stride = 0;

  ConstRows() = default;
  ConstRows(const float* data_, int rows_, int width_, std::ptrdiff_t stride_)
      : data(data_), rows(rows_), width(width_), stride(stride_) {}
  ConstRows(const Rows& r) : data(r.data), rows(r.rows), width(r.width), stride(r.stride) {}  // NOLINT: a view widens

  const float* row(int i) const { return data + i * stride; }
  ConstRows first(int n) const { return {data, n, width, stride}; }
  ConstRows from(int i, int n) const { return {row(i), n, width, stride}; }
  ConstRows columns(int begin, int n) const { return {data + begin, rows, n, stride}; }
};

/// Rows rounded to int8 in blocks of 32: value = codes * scales[block], codes in -127..127. `half_sums` holds the sum
/// of the codes of every 16 values (formats with an additive part need it, and vector units with unsigned operands).
struct Rounded {
  std::int8_t* codes = nullptr;
  float* scales = nullptr;
  std::int16_t* half_sums = nullptr;
  int rows = 0;
  int width = 0;              // a multiple of 32
  std::ptrdiff_t stride = 0;  // codes from row to row; scales: stride / 32, half_sums: stride / 16

  const std::int8_t* row_codes(int i) const { return codes + i * stride; }
  const float* row_scales(int i) const { return scales + i * (stride / 32); }
  const std::int16_t* row_half_sums(int i) const { return half_sums + i * (stride / 16); }
  Rounded from(int i, int n) const {
    return {codes + i * stride, scales + i * (stride / 32), half_sums + i * (stride / 16), n, width, stride};
  }
  /// begin and n must be multiples of 32.
  Rounded columns(int begin, int n) const {
    return {codes + begin, scales + begin / 32, half_sums + begin / 16, rows, n, stride};
  }
};

/// The input of a matrix product: the same rows as floats and rounded. Which one is read depends on the weight's format
/// alone; a caller that knows the format may leave the other one empty.
struct Input {
  ConstRows values;
  Rounded rounded;
};

/// A matrix [rows, width] (or `planes` of them, one an expert) in one of the file formats, in the layout that the back
/// end wants. On the CPU this is the file's own bytes.
struct Weight {
  DType dtype = DType::f32;
  int width = 0;
  int rows = 0;
  int planes = 1;
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  const MixBooks* books = nullptr;  // of the MIX formats, one a plane

  bool present() const { return data != nullptr; }
  const std::byte* row(std::int64_t plane, std::int64_t r) const {
    return data + static_cast<std::size_t>(plane * rows + r) * row_bytes;
  }
};

/// How one token is drawn, and from which row of logits (ops/draw.h).
struct DrawChoice {
  std::uint64_t seed = 0;
  Position position = 0;  // the absolute place that the token will have in its sequence
  std::int32_t row = 0;
  std::int32_t top_k = 0;  // 0 = all
  float temperature = 1;   // 0 is greedy
  float top_p = 1;         // 0 to 1; 1 = all
  float min_p = 0;         // 0 to 1; 0 = all
};

/// One (token, expert) pair of a step: which expert's matrix multiplies which input row into which output row.
struct Assignment {
  int expert = 0;
  int in_row = 0;
  int out_row = 0;
};

}  // namespace lockstep
