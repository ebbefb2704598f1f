// The float dot of a row by a whole thread block, in the law's order (numerics/order.h, ops/dot.h).
//
// A group of threads takes a chunk: eight neighbouring threads are the eight places of an octet, so that a warp reads
// 128 neighbouring bytes. Places meet by shuffles, lanes and chunks in shared memory.
#pragma once

#include "gpu/device.h"
#include "numerics/order.h"

namespace lockstep::gpu {

inline constexpr int kMostChunks = 64;  // of a row: 262,144 values
inline constexpr int kMostGroups = 16;  // of a block

/// Threads of a group for rows of that width: a lane is eight threads.
LOCKSTEP_HOST_DEVICE constexpr int group_threads(std::int64_t width) {
  return kOctet * octet_lanes_of(static_cast<int>(width < kChunk ? width : kChunk));
}
/// Threads of a block for a row of that width.
LOCKSTEP_HOST_DEVICE constexpr int dot_threads(std::int64_t width) {
  const std::int64_t chunks = (width + kChunk - 1) / kChunk;
  return group_threads(width) * static_cast<int>(chunks < 4 ? chunks : 4);
}

struct DotScratch {
  float lane[kMostGroups][kMaxLanes];
  float chunk[kMostChunks];
};

#if defined(LOCKSTEP_KERNEL)
/// x . x, the same in every thread. Every thread of a block of dot_threads(width) calls it, or of a multiple of
/// group_threads(width). A call, and without more unrolling than the usual widths need: code that runs once a launch
/// comes from far away.
LOCKSTEP_DEVICE_CALL float block_squares(const float* x, int width, DotScratch& scratch) {
  const int group_size = group_threads(width), group = thread_index() / group_size,
            in_group = thread_index() % group_size;
  const int groups = block_threads() / group_size, chunks = (width + kChunk - 1) / kChunk;
  const int lane = in_group / kOctet, place = in_group % kOctet;
#pragma unroll 1
  for (int round = 0; round < chunks; round += groups) {
    const int chunk = round + group, begin = chunk * kChunk;
    const int length = chunk < chunks ? (width - begin < kChunk ? width - begin : kChunk) : 0;
    const int lanes = octet_lanes_of(length), step = lanes * kOctet;
    float partial = 0;
    constexpr int kAtOnce = 16;  // chunks of 1024, 2048 and 4096 values have so many a thread
    if (length == kAtOnce * step) {
      if (lane < lanes) {
        float values[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) values[k] = x[begin + in_group + k * step];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) partial = fma_f32(values[k], values[k], partial);
      }
    } else if (lane < lanes) {
#pragma unroll 1
      for (int k = in_group; k < length; k += step) partial = fma_f32(x[begin + k], x[begin + k], partial);
    }
    const int first = lane_index() / kOctet * kOctet;
    float sum = shuffle(partial, first);
#pragma unroll
    for (int p = 1; p < kOctet; ++p) sum = sum + shuffle(partial, first + p);
    if (place == 0 && lane < lanes) scratch.lane[group][lane] = sum;
    block_barrier();
    if (in_group < kWarp) {
      float column = 0;
      if (in_group < kColumns) {
        column = scratch.lane[group][in_group];
#pragma unroll 1
        for (int l = in_group + kColumns; l < lanes; l += kColumns) column = column + scratch.lane[group][l];
      }
      float total = shuffle(column, 0);
#pragma unroll
      for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, c);
      if (in_group == 0 && chunk < chunks) scratch.chunk[chunk] = total;
    }
    block_barrier();
  }
  float total = scratch.chunk[0];
#pragma unroll 1
  for (int c = 1; c < chunks; ++c) total = total + scratch.chunk[c];
  return total;
}

/// The sum of eight lanes of eight places, of which the thread l of a warp has places l and l + 32: the same in all.
LOCKSTEP_DEVICE float fold_64(float low, float high) {
  const int first = lane_index() / kOctet * kOctet;
  float low_sum = shuffle(low, first), high_sum = shuffle(high, first);
#pragma unroll
  for (int p = 1; p < kOctet; ++p) {
    low_sum = low_sum + shuffle(low, first + p);
    high_sum = high_sum + shuffle(high, first + p);
  }
  float total = shuffle(low_sum, 0);
#pragma unroll
  for (int c = 1; c < kColumns; ++c)
    total = total + (c < 4 ? shuffle(low_sum, c * kOctet) : shuffle(high_sum, (c - 4) * kOctet));
  return total;
}

/// 1 / sqrt(mean square + epsilon).
LOCKSTEP_DEVICE float block_inverse_rms(const float* x, int width, float epsilon, DotScratch& scratch) {
  const float mean = block_squares(x, width, scratch) / static_cast<float>(width);
  return 1.0f / sqrt_f32(mean + epsilon);
}
#endif

}  // namespace lockstep::gpu
