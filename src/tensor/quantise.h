// From f32 values to the bytes of a format, a row at a time.
//
// A Quantiser is made once for a format and may be used by any number of threads: it is const, owns the tables that its
// search needs, and a row's bytes depend on the row and its importances alone. What is minimised is the squared error,
// each column weighted by its importance where there is one; the ROCmFP formats weight as their reference does, so that
// their bytes are the same (docs/quantising.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tensor/dtype.h"

namespace lockstep {

class GridTables;  // of IQ2_XXS and IQ3_XXS

/// The formats that can be made: f32, f16, bf16, q8_0, q4_0, q2_K to q6_K, iq2_xxs, iq3_xxs, mxfp4 and the ROCmFP
/// formats without side tables.
bool can_quantise(DType dtype);
std::span<const DType> quantisable_dtypes();

class Quantiser {
 public:
  /// Throws Error::unsupported, naming the formats that can be made, if !can_quantise(dtype).
  explicit Quantiser(DType dtype);
  ~Quantiser();
  Quantiser(Quantiser&&) noexcept;
  Quantiser& operator=(Quantiser&&) noexcept;

  DType dtype() const { return dtype_; }

  /// Writes one row.
  ///   values      [width] f32, width a multiple of the format's block
  ///   importance  [width] f32, finite and >= 0: the mean square of the input that multiplies the column; or empty,
  ///               which means all columns alike. A block whose importances are all 0 is treated like that too.
  ///   out         [row_bytes(dtype, width)] bytes, any alignment; may not overlap values
  /// Every block written is one that find_invalid_block accepts. In quantised formats a value that is not finite counts
  /// as 0, and values beyond what the largest scale reaches are clipped; f32, f16 and bf16 are converted, to nearest.
  /// Does not fail. Source: docs/formats.md for the layouts, docs/quantising.md for the searches.
  void quantise_row(std::span<const float> values, std::span<const float> importance, std::byte* out) const;

 private:
  DType dtype_;
  std::unique_ptr<const GridTables> grid_;  // null where the format has none
};

/// The first value of a row that its format cannot hold: not finite, or so large that the largest scale clips it.
///   values, importance: as they were given to quantise_row;  made: what it wrote
/// Rounding, however coarse, is no fault: clipped is a block's largest value that comes back by a quarter smaller than
/// it does when the row is made with this block brought down to about 64. The cost is one pass over the values; only a
/// row with one above 256, which every format reaches and weights do not, is decoded and made again.
std::optional<std::size_t> first_unheld(const Quantiser& quantiser, std::span<const float> values,
                                        std::span<const float> importance, const std::byte* made);

}  // namespace lockstep
