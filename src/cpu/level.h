// A CPU level: one table of kernels for one instruction set.
//
// Every level is compiled from the same sources with other flags and exports this one table; the table is chosen once,
// at start. Kernels work on a range of outputs, so that the caller can hand ranges to threads; no kernel adds across
// ranges. All levels give the same bits: those of ops/reference.cc.
#pragma once

#include <span>
#include <string_view>

#include "ops/types.h"

namespace lockstep::cpu {

/// Scratch of one thread, a multiple of 64 bytes aligned to 64. Kernels say how much they need.
struct Scratch {
  std::byte* data = nullptr;
  std::size_t size = 0;
};

struct Level {
  std::string_view name;  // scalar, avx2, avx512

  /// Rounds one row to int8 blocks of 32 (numerics/round.h). width is a multiple of 32.
  void (*round_row)(const float* x, int width, std::int8_t* codes, float* scales, std::int16_t* half_sums);

  /// out[t][r] = W[r] . x[in_rows[t]] for r in [begin, end) and all t; out row of t is out_rows[t]. W is one plane of a
  /// weight of any format; quantised formats read x.rounded, the others x.values. in_rows and out_rows have equal
  /// length.
  void (*matmul)(const Weight& weight, int plane, int begin, int end, const Input& x, std::span<const int> in_rows,
                 Rows out, std::span<const int> out_rows, Scratch scratch);

  /// The dot of two float rows in the law's order (norms use it with x = y).
  float (*dot)(const float* x, const float* y, int width);
};

/// Bytes of scratch that matmul wants for rows of `width` values.
std::size_t matmul_scratch_bytes(int width);

/// The levels that this machine can run, slowest first. Never empty: the scalar level runs anywhere.
std::span<const Level* const> available_levels();

}  // namespace lockstep::cpu
