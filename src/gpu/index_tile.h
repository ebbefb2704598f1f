// The indexer's scores of many queries on int8 tensor cores, in official mode.
#pragma once

#include <cstddef>

#include "gpu/kernels.h"

namespace lockstep::gpu {

/// Once, before the first score_index_tiles.
void prepare_index_tiles(Runtime& runtime);
/// Whether the kernel takes these sizes, on this device.
bool can_tile_index(const Runtime& runtime, const SelectCall& call, const PackedRows& layout);
/// Room that a row's codes and scales take, beside its scores.
std::size_t index_row_bytes();
/// scores [rows, call.bound] of the rows that have to choose. `room` has index_row_bytes() for each.
void score_index_tiles(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                       float* scores, std::byte* room, const PackedRows& layout);

}  // namespace lockstep::gpu
