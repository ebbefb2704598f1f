// THE LAW: the order of every sum.
//
// A reduction's order is a property of the tensor, never of the batch, the thread count, the vector width or the back
// end. This header holds the constants that define it; every kernel of every back end must give the same bits as the
// loops in ops/ that use them. docs/numerics.md explains the choice and has the measurements behind it.
//
// A row of `width` values is cut into chunks of kChunk. A chunk is dealt out to lanes in units: the 32-value block of a
// quantised dot, the 8-value octet of a float dot. Unit u goes to lane u % lanes, in ascending order. `fold` adds the
// lanes of a chunk; chunk sums are added in ascending order, beginning with the first. ops/dot.h has the loops.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#elif defined(__HIP__)
#define LOCKSTEP_HOST_DEVICE __attribute__((host)) __attribute__((device))
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

inline constexpr int kChunk = 4096;     // values of a row that are folded together
inline constexpr int kMaxLanes = 32;    // lanes of a chunk, at most
inline constexpr int kColumns = 8;      // lanes l with equal l % kColumns are added first
inline constexpr int kBlock = 32;       // values that share one activation scale: the unit of a quantised dot
inline constexpr int kOctet = 8;        // the unit of a float dot
inline constexpr int kChain = 64;       // attention: channels of a score, rows of a value sum, candidates of a pool
inline constexpr int kIndexChain = 32;  // indexer scores: one fp4 block, so that its sum is exact

/// Lanes of a chunk of `length` values of a quantised dot. Eight blocks a lane where there are enough: a tile kernel
/// pays one addition a lane, a matrix-vector kernel wants many lanes (measured: docs/numerics.md).
LOCKSTEP_HOST_DEVICE constexpr int block_lanes_of(int length) { return length >= 4096 ? 16 : 8; }

/// The same of a float dot. A lane is eight partial sums, so even 32 lanes cost a tile kernel little, and the few long
/// rows of the hyper-connections need many threads.
LOCKSTEP_HOST_DEVICE constexpr int octet_lanes_of(int length) { return length >= 4096 ? 32 : length >= 2048 ? 16 : 8; }

/// Adds the lanes of a chunk: column c = lanes c, c + 8, c + 16, c + 24 in ascending order (those that exist), then the
/// columns in ascending order.
LOCKSTEP_HOST_DEVICE inline float fold(const float* lane, int lanes) {
  float total = 0;
  for (int column = 0; column < kColumns; ++column) {
    float sum = lane[column];
    for (int l = column + kColumns; l < lanes; l += kColumns) sum = sum + lane[l];
    total = column == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace lockstep
