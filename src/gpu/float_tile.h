// Many tokens by F16 weights: what float_tile.cu offers.
#pragma once

#include "gpu/matmul.h"

namespace lockstep::gpu {

/// Whether the tile kernel is in this build, its order covers such products, and it pays: `count` matrices of one
/// width, of which every token reads all.
bool can_tile_floats(const Runtime& runtime, DType dtype, const Product* products, int count);
/// Room that multiply_float_tiles needs: both operands as floats, and the columns where tiles are few.
std::size_t float_tile_bytes(const Runtime& runtime, const Product* products, int count);
/// Products of one input.
void multiply_float_tiles(Runtime& runtime, const Product* products, int count, std::byte* room);
/// Once, before the first multiply_float_tiles.
void prepare_float_tiles(Runtime& runtime);

// Few long rows (float_thin.cu): whether they are taken, the room that is needed, and the launches.
bool can_thin_floats(const Runtime& runtime, DType dtype, const Product& p);
std::size_t thin_float_bytes(const Product& p);
void multiply_thin_floats(Runtime& runtime, const Product& p, std::byte* room);
void prepare_thin_floats(Runtime& runtime);

}  // namespace lockstep::gpu
