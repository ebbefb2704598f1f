// lockstep dequantize: raw blocks in, f32 out, for comparing formats with other programs.
#pragma once

#include <iosfwd>

#include "tensor/dtype.h"

namespace lockstep {

/// Reads blocks of dtype from `in` to its end and writes their values to `out` as little-endian f32, in bounded memory.
/// Returns 0. Throws Error::bad_argument (exit code 2) if the format has no values of its own (i32, MIX) or if the
/// input is not a whole number of blocks, then with the whole ones written; Error::io if a stream fails.
int run_dequantize(DType dtype, std::istream& in, std::ostream& out);

}  // namespace lockstep
