// The two dots of the engine, as the literal loops that define their bits. Slow: the yardstick for every kernel.
#pragma once

#include <cstdint>

#include "numerics/order.h"
#include "numerics/primitives.h"
#include "tensor/block.h"

namespace lockstep {

/// Float dot of `width` values. Octet o = k / 8 of a chunk goes to lane o % lanes; each of the 8 places of an octet has
/// a partial sum of its own in the lane, so that a vector unit adds whole octets and a thread loads 16 bytes. The
/// places of a lane are added in ascending order, then the lanes by fold, then the chunks in ascending order.
inline float float_dot(const float* x, const float* y, std::int64_t width) {
  float total = 0;
  for (std::int64_t begin = 0; begin < width; begin += kChunk) {
    const int length = static_cast<int>(width - begin < kChunk ? width - begin : kChunk);
    const int lanes = octet_lanes_of(length);
    float partial[kMaxLanes][kOctet] = {};
    for (int k = 0; k < length; ++k) {
      float& sum = partial[k / kOctet % lanes][k % kOctet];
      sum = fma_f32(x[begin + k], y[begin + k], sum);
    }
    float lane[kMaxLanes];
    for (int l = 0; l < lanes; ++l) {
      lane[l] = partial[l][0];
      for (int place = 1; place < kOctet; ++place) lane[l] = lane[l] + partial[l][place];
    }
    const float sum = fold(lane, lanes);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

/// Term of one block with one block of int8 codes: tensor/block.h.
inline float block_term(const Block& block, const std::int8_t* codes) {
  std::int32_t dot[2] = {0, 0};
  std::int32_t code_sum[2] = {0, 0};
  for (int i = 0; i < kBlock; ++i) {
    dot[i / 16] += block.level[i] * codes[i];
    code_sum[i / 16] += codes[i];
  }
  float term = block.dual
                   ? fma_f32(static_cast<float>(dot[1]), block.scale[1], static_cast<float>(dot[0]) * block.scale[0])
                   : static_cast<float>(dot[0] + dot[1]) * block.scale[0];
  if (block.has_min) {
    const std::int32_t min = block.min_level[0] * code_sum[0] + block.min_level[1] * code_sum[1];
    term = fma_f32(-static_cast<float>(min), block.min_scale, term);
  }
  return term;
}

/// Dot of a quantised row with rounded activations. Block b of a chunk goes to lane b % lanes.
inline float quantised_dot(DType dtype, const std::byte* row, const std::int8_t* codes, const float* scales,
                           std::int64_t width) {
  float total = 0;
  for (std::int64_t begin = 0; begin < width; begin += kChunk) {
    const int length = static_cast<int>(width - begin < kChunk ? width - begin : kChunk);
    const int lanes = block_lanes_of(length);
    float lane[kMaxLanes] = {};
    for (int b = 0; b < length / kBlock; ++b) {
      const std::int64_t block = begin / kBlock + b;
      const float term = block_term(decode_block(dtype, row, block), codes + block * kBlock);
      lane[b % lanes] = fma_f32(term, scales[block], lane[b % lanes]);
    }
    const float sum = fold(lane, lanes);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace lockstep
