// The orders of summation that are measured against one another: the law's, and what was considered beside it.
//
// An order cuts a row's blocks into chunks, a chunk into columns, a column into lanes, a lane into blocks. A lane is
// added up block by block with fma, a column lane by lane, a chunk column by column, a row chunk by chunk. The "walk"
// of an order is its blocks in exactly that sequence: a kernel that walks the row keeps one open sum of each kind,
// whatever the order. Orders differ in two things only: how many lanes there are, and which blocks a lane holds.
#pragma once

#include "numerics/order.h"

namespace lockstep::law {

struct Order {
  int lane_blocks;       // blocks of a lane
  int lanes_per_column;  // lanes of a column
  int columns;           // columns of a chunk
  bool contiguous;       // a lane holds neighbouring blocks, instead of every lanes()-th

  LOCKSTEP_HOST_DEVICE constexpr int lanes() const { return lanes_per_column * columns; }
  LOCKSTEP_HOST_DEVICE constexpr int column_blocks() const { return lane_blocks * lanes_per_column; }
  LOCKSTEP_HOST_DEVICE constexpr int chunk_blocks() const { return lane_blocks * lanes(); }

  /// Threads that a matrix-vector kernel puts on a lane: as many as leave each four blocks and fit in a warp. They hand
  /// the lane's sum on from one to the next, so the order does not know of them.
  LOCKSTEP_HOST_DEVICE constexpr int lane_threads() const {
    int threads = 1;
    while (lane_blocks % (threads * 2) == 0 && lane_blocks / threads >= 8 && lanes() * threads * 2 <= 32) threads *= 2;
    return threads;
  }

  /// Index in the row of the block at place `walk` of the walk.
  LOCKSTEP_HOST_DEVICE constexpr int block_at(int walk) const {
    if (contiguous) return walk;
    const int chunk = walk / chunk_blocks(), in_chunk = walk % chunk_blocks();
    const int column = in_chunk / column_blocks();
    const int lane = column + columns * (in_chunk / lane_blocks % lanes_per_column);
    return chunk * chunk_blocks() + lane + lanes() * (in_chunk % lane_blocks);
  }
};

/// numerics/order.h for rows of `width` values whose chunks are all of one length.
constexpr Order law_order(int width) {
  const int chunk = width < kChunk ? width : kChunk;
  const int lanes = block_lanes_of(chunk);
  return {chunk / kBlock / lanes, lanes / kColumns, kColumns, false};
}

/// One accumulator over ascending blocks: the yardstick for tile kernels. A matrix-vector kernel cannot be fast with
/// it.
constexpr Order free_order(int width) { return {width / kBlock, 1, 1, true}; }

/// An older proposal: 32 contiguous slices whatever the length, groups of four, then groups.
constexpr Order slice_order(int width) { return {width / kBlock / kMaxLanes, 4, 8, true}; }

/// The law before it was measured: four blocks a lane, so up to 32 lanes, as float dots still have.
constexpr Order short_lane_order(int width) {
  const int chunk = width < kChunk ? width : kChunk;
  const int lanes = octet_lanes_of(chunk);
  return {chunk / kBlock / lanes, lanes / kColumns, kColumns, false};
}

/// An order as a type, because nvcc 13 cannot pass a class as a template value to a kernel.
template <int kLaneBlocks, int kLanesPerColumn, int kColumnCount, bool kContiguous>
struct Fixed {
  static constexpr Order order{kLaneBlocks, kLanesPerColumn, kColumnCount, kContiguous};
};

#define LOCKSTEP_LAW_FIXED(Name, function)                                                                      \
  template <int kWidth>                                                                                         \
  using Name = Fixed<function(kWidth).lane_blocks, function(kWidth).lanes_per_column, function(kWidth).columns, \
                     function(kWidth).contiguous>
LOCKSTEP_LAW_FIXED(LawOrder, law_order);
LOCKSTEP_LAW_FIXED(FreeOrder, free_order);
LOCKSTEP_LAW_FIXED(SliceOrder, slice_order);
LOCKSTEP_LAW_FIXED(ShortLaneOrder, short_lane_order);
#undef LOCKSTEP_LAW_FIXED

}  // namespace lockstep::law
