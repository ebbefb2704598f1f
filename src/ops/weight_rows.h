// A row of a weight as floats, whatever its format.
#pragma once

#include "ops/types.h"
#include "tensor/dequantize.h"

namespace lockstep {

/// out [w.width] = row r of plane `plane`, widened exactly.
inline void widen_row(const Weight& w, std::int64_t plane, std::int64_t r, float* out) {
  if (w.books != nullptr)
    dequantize_row(w.dtype, w.books[plane], w.row(plane, r), w.width, out);
  else
    dequantize_row(w.dtype, w.row(plane, r), w.width, out);
}

}  // namespace lockstep
