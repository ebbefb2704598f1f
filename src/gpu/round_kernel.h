// The roundings as parts of kernels: a warp rounds the block whose values its threads hold.
#pragma once

#include "gpu/device.h"
#include "numerics/round.h"
#include "ops/cache_view.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

/// Rounds value i of row `row` to int8; the 32 threads of the warp hold the values of one block, in order.
LOCKSTEP_DEVICE void round_value(const Rounded& out, int row, int i, float value) {
  const Int8Scale scale = int8_scale(warp_max(magnitude_bits(value)));
  const int code = int8_code(value, scale.inverse);
  out.codes[row * out.stride + i] = static_cast<std::int8_t>(code);
  int sum = code;
  for (int mask = 1; mask < 16; mask *= 2) sum += shuffle_xor(sum, mask);
  if (lane_index() == 0) out.scales[row * (out.stride / kBlock) + i / kBlock] = scale.scale;
  if (lane_index() % 16 == 0) out.half_sums[row * (out.stride / 16) + i / 16] = static_cast<std::int16_t>(sum);
}

/// round_value for two values of a thread, i[0] and i[1], of two blocks: half a warp makes each block's scale, so that
/// the divisions, whose rare cases are branches, are made once.
LOCKSTEP_DEVICE void round_two_values(const Rounded& out, int row, const int (&i)[2], const float (&value)[2]) {
  const std::uint32_t largest[2] = {warp_max(magnitude_bits(value[0])), warp_max(magnitude_bits(value[1]))};
  const int half = lane_index() / 16;
  const Int8Scale scale = int8_scale(half == 0 ? largest[0] : largest[1]);
  const int code[2] = {int8_code(value[0], shuffle(scale.inverse, 0)), int8_code(value[1], shuffle(scale.inverse, 16))};
  out.codes[row * out.stride + i[0]] = static_cast<std::int8_t>(code[0]);
  out.codes[row * out.stride + i[1]] = static_cast<std::int8_t>(code[1]);
  int sums = code[0] + code[1] * 65536;  // one in each half of the word
  for (int mask = 1; mask < 16; mask *= 2) sums += shuffle_xor(sums, mask);
  const auto low = static_cast<std::int16_t>(sums);
  if (lane_index() % 16 != 0) return;
  out.scales[row * (out.stride / kBlock) + (half == 0 ? i[0] : i[1]) / kBlock] = scale.scale;
  out.half_sums[row * (out.stride / 16) + i[0] / 16] = low;
  out.half_sums[row * (out.stride / 16) + i[1] / 16] = static_cast<std::int16_t>((sums - low) / 65536);
}

/// The fp8 simulation of channels [begin, begin + 64) of x, as far as they are below `channels`, by a warp, in place.
/// Returns the block's exponent.
LOCKSTEP_DEVICE int round_fp8_block(float* x, int begin, int channels) {
  const int first = begin + lane_index(), second = first + kWarp;
  const float a = first < channels ? x[first] : 0.0f, b = second < channels ? x[second] : 0.0f;
  const std::uint32_t larger = magnitude_bits(a) > magnitude_bits(b) ? magnitude_bits(a) : magnitude_bits(b);
  const int exponent = fp8_exponent(warp_max(larger));
  if (first < channels) x[first] = fp8_value(fp8_code(a, exponent), exponent);
  if (second < channels) x[second] = fp8_value(fp8_code(b, exponent), exponent);
  return exponent;
}

/// The Hadamard transform and fp4 simulation of a head, one thread a channel: from the channel of this thread to the
/// same afterwards. `values` [width] is shared; every thread of the block calls it, those from `width` on for the
/// barriers; width is a power of two from 32 on.
LOCKSTEP_DEVICE float hadamard_fp4_value(float value, int width, float* values) {
  const int t = thread_index();
  for (int stride = 1; stride < width; stride *= 2) {
    if (t < width) values[t] = value;
    block_barrier();
    if (t < width) {
      const float a = values[t & ~stride], b = values[t | stride];
      value = (t & stride) == 0 ? a + b : a - b;
    }
    block_barrier();
  }
  value = value * (1.0f / sqrt_f32(static_cast<float>(width)));
  const int exponent = fp4_exponent(warp_max(magnitude_bits(value)));
  return fp4_value(fp4_code(value, exponent), exponent);
}

#endif

}  // namespace lockstep::gpu
