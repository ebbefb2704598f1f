// Many tokens by quantised weights on int8 tensor cores: what tile.cu offers.
#pragma once

#include <cstddef>

#include "gpu/matmul.h"

namespace lockstep::gpu {

inline constexpr int kTileRows = 128, kTileTokens = 64;

/// Slots of a step by expert, in device memory.
struct ExpertSort {
  std::int32_t* order = nullptr;        // [slots]: slots, those of an expert side by side
  std::int32_t* first_slot = nullptr;   // [experts + 1] in `order`
  std::int32_t* used = nullptr;         // [experts]: how many slots
  std::int32_t* first_tile = nullptr;   // [experts + 1]: tiles of so many slots, kTileTokens for tile.cu
  std::int32_t* tile_expert = nullptr;  // [tiles]
};
inline constexpr std::int64_t most_tiles(std::int64_t slots, std::int64_t experts) {
  return (slots + kTileTokens - 1) / kTileTokens + experts;
}
inline constexpr int kMostSortExperts = 1024;
/// Room for one, with tiles of `tile_tokens` slots, and one in such room.
inline std::size_t expert_sort_bytes(int slots, int experts, int tile_tokens = kTileTokens) {
  const int tiles = (slots + tile_tokens - 1) / tile_tokens + experts;
  return (sizeof(std::int32_t) * static_cast<std::size_t>(slots + 3 * (experts + 1) + tiles) + 255) / 256 * 256;
}
inline ExpertSort expert_sort_in(std::byte* room, int slots, int experts) {
  ExpertSort sort;
  sort.order = reinterpret_cast<std::int32_t*>(room);
  sort.first_slot = sort.order + slots;
  sort.used = sort.first_slot + experts + 1;
  sort.first_tile = sort.used + experts + 1;
  sort.tile_expert = sort.first_tile + experts + 1;
  return sort;
}
/// At most kMostSortExperts experts.
void sort_by_expert(Runtime& runtime, const ExpertSort& sort, const std::int32_t* expert, int slots, int experts,
                    int tile_tokens = kTileTokens);

/// Rounded rows in the order of the walk; of several groups of columns one after the other.
struct WalkedRows {
  std::int8_t* codes = nullptr;        // [groups, rows, width]
  float* scales = nullptr;             // [groups, stages, rows, kStageBlocks]
  std::uint32_t* half_sums = nullptr;  // the same of pairs of int16
  int rows = 0;
};
inline std::size_t walked_bytes(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) * 5 / 4;
}
/// x [rows, groups * width] into `room`, walked_bytes(x.rows, x.width).
WalkedRows walk_rows(Runtime& runtime, std::byte* room, const Rounded& x, int width);

struct TileCall {
  Unpacked w;  // of planes [first_plane, first_plane + planes)
  Kind kind = Kind::single;
  bool has_min = false;
  int rows = 0, width = 0;
  WalkedRows x;  // from the group on that the first row reads
  Rows out;
  int x_share = 1;
  int rows_a_group = 0;
  const ExpertSort* sort = nullptr;  // or null: all outputs by plane 0
  int first_plane = 0, planes = 1;
  int first_row = 0;          // of the whole matrix, where w begins
  ZeroList* zeros = nullptr;  // outputs that are zero are added to it
};
/// Whether the tile kernel is in this build, its order covers such rows, and the device has the shared memory for them;
/// if not, the matrix-vector kernels do.
Walk walk_of(int width);
bool can_tile(const Runtime& runtime, Kind kind, bool has_min, int width, int rows_a_group);
void multiply_tiles(Runtime& runtime, const TileCall& call);
/// Once, before the first multiply_tiles.
void prepare_tiles(Runtime& runtime);

}  // namespace lockstep::gpu
