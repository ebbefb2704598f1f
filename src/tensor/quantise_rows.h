// The row functions behind Quantiser, one a format. Only the quantise files include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

class GridTables;

namespace quantise {

/// A row to be made: `values` are finite and at most kLargest in magnitude, `importance` may be null.
struct Row {
  const float* values;
  const float* importance;
  std::int64_t width;
  std::byte* out;
  const GridTables* grid;

  const float* importance_at(std::int64_t i) const { return importance == nullptr ? nullptr : importance + i; }
};

/// Larger values are clipped to it: their squares, summed and weighted, stay far from the end of f32, and no format
/// with an f16 scale reaches it.
inline constexpr float kLargest = 0x1p40f;

void make_q8_0(const Row& row);
void make_q4_0(const Row& row);
void make_mxfp4(const Row& row);
void make_q2_k(const Row& row);
void make_q3_k(const Row& row);
void make_q4_k(const Row& row);
void make_q5_k(const Row& row);
void make_q6_k(const Row& row);
void make_iq2_xxs(const Row& row);
void make_iq3_xxs(const Row& row);
void make_rocmfp4(const Row& row);
void make_rocmfp4_fast(const Row& row);
void make_rocmfp6(const Row& row);
void make_rocmfp8(const Row& row);
void make_rocmfp3(const Row& row);
void make_rocmfp2(const Row& row);
void make_rocmfp2_affine(const Row& row);
void make_rocmfp2_s40(const Row& row);

}  // namespace quantise
}  // namespace lockstep
