// Many tokens by F16 weights: what float_tile.cu offers.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// Whether the tile kernel is in this build, its order covers such products, and it pays: `count` matrices of one
/// width, of which every token reads all.
bool can_tile_floats(const Runtime& runtime, DType dtype, const Product* products, int count);
/// Room that multiply_float_tiles needs.
std::size_t float_tile_bytes(const Product* products, int count);
/// Products of one input.
void multiply_float_tiles(Runtime& runtime, const Product* products, int count, std::byte* room);
/// Once, before the first multiply_float_tiles.
void prepare_float_tiles(Runtime& runtime);

}  // namespace lockstep::gpu
