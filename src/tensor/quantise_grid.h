// The grids of IQ2_XXS and IQ3_XXS in the shape that their search wants.
//
// A grid point is a row of `kPoint` levels out of a short list. It is cut into two halves, which repeat: 256 points
// have at most 81 or 64 different halves, so that sums over a point are two look-ups and an addition.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace lockstep {

class GridTables {
 public:
  static constexpr int kPoints = 256;
  static constexpr int kMostHalves = 88;  // 81, filled up to whole groups of eight

  /// dtype is iq2_xxs or iq3_xxs.
  explicit GridTables(DType dtype);

  int half_width;               // values in half a point: 4 or 2
  int halves;                   // 81 or 64
  std::uint8_t first[kPoints];  // which half
  std::uint8_t second[kPoints];
  float level[4][kMostHalves] = {};  // level[j][h]: value j of half h
};

}  // namespace lockstep
