// The scalar level: the literal loops, on any machine. Slow, and the yardstick of the others.
#include "cpu/kernels.h"
#include "numerics/round.h"
#include "ops/dot.h"
#include "tensor/block.h"
#include "tensor/dequantize.h"

namespace lockstep::cpu {
namespace {

void round_row(const float* x, int width, std::int8_t* codes, float* scales, std::int16_t* half_sums) {
  for (int b = 0; b < width / kBlock; ++b) {
    std::int8_t* code = codes + b * kBlock;
    scales[b] = round_block_int8(x + b * kBlock, code);
    for (int half = 0; half < 2; ++half) {
      int sum = 0;
      for (int i = 0; i < 16; ++i) sum += code[16 * half + i];
      half_sums[2 * b + half] = static_cast<std::int16_t>(sum);
    }
  }
}

/// A row is decoded a chunk at a time, block by block, and every token's lanes of the chunk are filled from it.
void multiply_quantised(const MatmulCall& call, const std::byte* row, int r, Block* blocks) {
  for (int begin = 0; begin < call.width; begin += kChunk) {
    const int length = call.width - begin < kChunk ? call.width - begin : kChunk;
    const int lanes = block_lanes_of(length);
    for (int b = 0; b < length / kBlock; ++b) blocks[b] = decode_block(call.dtype, row, begin / kBlock + b);
    for (int t = 0; t < call.tokens; ++t) {
      const std::int8_t* codes = call.codes + call.in_rows[t] * call.codes_stride + begin;
      const float* scales = call.scales + call.in_rows[t] * (call.codes_stride / 32) + begin / kBlock;
      float lane[kMaxLanes] = {};
      for (int b = 0; b < length / kBlock; ++b)
        lane[b % lanes] = fma_f32(block_term(blocks[b], codes + b * kBlock), scales[b], lane[b % lanes]);
      const float sum = fold(lane, lanes);
      float& out = call.out[call.out_rows[t] * call.out_stride + r];
      out = begin == 0 ? sum : out + sum;
    }
  }
}

void matmul(const MatmulCall& call) {
  const bool quantised = info_of(call.dtype).quantised;
  float* values = reinterpret_cast<float*>(call.scratch);
  Block* blocks = reinterpret_cast<Block*>(call.scratch);
  for (int r = call.begin; r < call.end; ++r) {
    const std::byte* row = call.plane + static_cast<std::size_t>(r) * call.row_bytes;
    if (quantised) {
      multiply_quantised(call, row, r, blocks);
      continue;
    }
    dequantize_row(call.dtype, row, call.width, values);
    for (int t = 0; t < call.tokens; ++t)
      call.out[call.out_rows[t] * call.out_stride + r] =
          float_dot(call.values + call.in_rows[t] * call.values_stride, values, call.width);
  }
}

float dot(const float* x, const float* y, int width) { return float_dot(x, y, width); }

}  // namespace

namespace scalar {
const Kernels kKernels = {.round_row = round_row, .matmul = matmul, .dot = dot};
}
}  // namespace lockstep::cpu
