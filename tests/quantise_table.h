// Errors of the quantisers on seven kinds of rows, and the errors of the public reference quantisers on the same kinds:
// what ours must not exceed. The test and bench/quantise.cc share it.
//
// An error is sqrt(sum w (x - y)^2 / sum w x^2) over 48 rows of 4096; w is 1 but in the last two columns, where it is
// the importance (log-normal, sigma 1): w0 is that error of rows made without importances, w1 of rows made with them.
// Formats that need importances had ones in the other columns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "numerics/random.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"
#include "tensor/quantise.h"

namespace lockstep::test {

inline constexpr int kTableRows = 48;
inline constexpr int kTableWidth = 4096;
inline constexpr int kTableColumns = 7;
inline constexpr std::string_view kTableColumnNames[kTableColumns] = {"n1",  "n.02", "n.002", "laplace",
                                                                      "fp4", "w0",   "w1"};

struct ReferenceErrors {
  DType dtype;
  float error[kTableColumns];
};
// Measured with the public CPU codecs; sampling noise is below 0.5 %. Two rows are of searches that their formats'
// references do not do, named in docs/quantising.md: mxfp4 and q8_0_rocmfpx.
inline constexpr ReferenceErrors kReferenceErrors[] = {
    {DType::f16, {0.00021f, 0.00021f, 0.00021f, 0.00021f, 0, 0.00021f, 0.00021f}},
    {DType::bf16, {0.00167f, 0.00165f, 0.00166f, 0.00166f, 0, 0.00167f, 0.00167f}},
    {DType::q8_0, {0.00534f, 0.00535f, 0.00536f, 0.00675f, 0.00581f, 0.00534f, 0.00534f}},
    {DType::q4_0, {0.0857f, 0.0859f, 0.0856f, 0.1070f, 0.0762f, 0.0855f, 0.0774f}},
    {DType::q2_k, {0.2961f, 0.2964f, 0.2968f, 0.3436f, 0.3003f, 0.2961f, 0.2375f}},
    {DType::q3_k, {0.1509f, 0.1511f, 0.1509f, 0.1766f, 0.1475f, 0.1512f, 0.1345f}},
    {DType::q4_k, {0.0714f, 0.0713f, 0.0714f, 0.0849f, 0.0670f, 0.0713f, 0.0649f}},
    {DType::q5_k, {0.0361f, 0.0361f, 0.0364f, 0.0428f, 0.0335f, 0.0360f, 0.0329f}},
    {DType::q6_k, {0.0177f, 0.0177f, 0.0192f, 0.0217f, 0.0159f, 0.0177f, 0.0162f}},
    {DType::iq2_xxs, {0.3437f, 0.3448f, 0.3435f, 0.3850f, 0.3466f, 0.3436f, 0.2981f}},
    {DType::iq3_xxs, {0.2135f, 0.2140f, 0.2126f, 0.2482f, 0.2110f, 0.2133f, 0.1540f}},
    {DType::mxfp4, {0.1115f, 0.1115f, 0.1112f, 0.1223f, 0, 0.1149f, 0.1149f}},
    {DType::rocmfp4, {0.0777f, 0.0854f, 0.1496f, 0.0834f, 0.0607f, 0.0778f, 0.0714f}},
    {DType::rocmfp4_fast, {0.0878f, 0.0932f, 0.1496f, 0.0982f, 0.0712f, 0.0879f, 0.0824f}},
    {DType::rocmfp6, {0.0195f, 0.0272f, 0.1410f, 0.0234f, 0, 0.0195f, 0.0185f}},
    {DType::rocmfp8, {0.00556f, 0.0141f, 0.1410f, 0.00701f, 0, 0.0101f, 0.00539f}},
    {DType::rocmfp3, {0.1716f, 0.1724f, 0.2129f, 0.1855f, 0.1610f, 0.1716f, 0.1588f}},
    {DType::rocmfp2, {0.3532f, 0.3519f, 0.3664f, 0.3857f, 0.3530f, 0.3532f, 0.3326f}},
    {DType::rocmfp2_affine, {0.3134f, 0.3120f, 0.3360f, 0.3620f, 0.3094f, 0.3138f, 0.2992f}},
    {DType::rocmfp2_s40, {0.3073f, 0.3074f, 0.3785f, 0.3532f, 0.3077f, 0.3081f, 0.2870f}},
};

/// Normal, from two uniform numbers (Box and Muller): real tails, which numerics' quick one does not have.
inline float table_normal(std::uint64_t seed, std::uint64_t i) {
  const double u = 1.0 - static_cast<double>(random_uniform(seed, i, 0));
  const double v = static_cast<double>(random_uniform(seed, i, 1));
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

/// The rows of a column: unit normal, smaller normal, Laplace of unit variance, or unit normal rounded to fp4 in blocks
/// of 32 under the power of two that brings the largest value to 4..8, clipping it to 6.
inline std::vector<float> table_rows(int column) {
  const std::size_t count = static_cast<std::size_t>(kTableRows) * kTableWidth;
  std::vector<float> rows(count);
  const float sigma = column == 1 ? 0.02f : column == 2 ? 0.002f : 1.0f;
  for (std::size_t i = 0; i < count; ++i) {
    if (column == 3) {
      const float u = random_uniform(3, i) - 0.5f;
      const float magnitude = static_cast<float>(-std::log(1.0 - 2.0 * std::fabs(u)) / std::sqrt(2.0));
      rows[i] = u < 0 ? -magnitude : magnitude;
    } else {
      rows[i] = sigma * table_normal(1, i);
    }
  }
  if (column == 4) {
    for (std::size_t at = 0; at < count; at += 32) {
      std::uint32_t most = 0;
      for (std::size_t i = at; i < at + 32; ++i) most = std::max(most, magnitude_bits(rows[i]));
      const int exponent = static_cast<int>(most >> 23) - 127 - 2;
      for (std::size_t i = at; i < at + 32; ++i) rows[i] = fp4_value(fp4_code(rows[i], exponent), exponent);
    }
  }
  return rows;
}

inline std::vector<float> table_importance() {
  std::vector<float> importance(kTableWidth);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = std::exp(table_normal(2, i));
  return importance;
}

inline std::vector<float> quantised_and_back(const Quantiser& quantiser, std::span<const float> rows,
                                             std::span<const float> importance, int width) {
  std::vector<std::byte> bytes(row_bytes(quantiser.dtype(), width));
  std::vector<float> back(rows.size());
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(width)) {
    quantiser.quantise_row(rows.subspan(at, static_cast<std::size_t>(width)), importance, bytes.data());
    dequantize_row(quantiser.dtype(), bytes.data(), width, back.data() + at);
  }
  return back;
}

/// Relative root mean square error; weights [width] or empty.
inline double relative_error(std::span<const float> rows, std::span<const float> back, std::span<const float> weights) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double w = weights.empty() ? 1.0 : static_cast<double>(weights[i % weights.size()]);
    const double off = static_cast<double>(rows[i]) - static_cast<double>(back[i]);
    error += w * off * off;
    size += w * static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
  }
  return std::sqrt(error / size);
}

inline double table_error(const Quantiser& quantiser, int column) {
  const std::vector<float> rows = table_rows(column < 5 ? column : 0);
  const std::vector<float> importance = column < 5 ? std::vector<float>() : table_importance();
  const std::vector<float> none;
  return relative_error(rows, quantised_and_back(quantiser, rows, column == 6 ? importance : none, kTableWidth),
                        importance);
}

}  // namespace lockstep::test
