// Many tokens by the experts' IQ2_XXS and Q2_K weights, which are decoded where they are multiplied.
#pragma once

#include <cstddef>

#include "gpu/tile.h"

namespace lockstep::gpu {

/// Rounded rows in the order of the walk, a lane of eight blocks a stage: codes [rows, width], the other two [stages,
/// rows, 8].
struct ExpertRows {
  std::int8_t* codes = nullptr;
  float* scales = nullptr;
  float* half_sums[2] = {};            // of the codes, as floats; for Q2_K alone, on WMMA
  std::uint32_t* sum_parts = nullptr;  // on mma instead: of both halves, in parts (expert_tile.cu)
  int rows = 0;
};

struct ExpertCall {
  Matrix w;
  ExpertRows x;
  Rows out;
  int x_share = 1;
  int experts = 0;
  ExpertSort sort;
  ZeroList* zeros = nullptr;  // outputs that are zero are added to it
};

/// Whether the kernel takes this format and width, on this device.
bool can_tile_experts(const Runtime& runtime, DType dtype, int width);
/// Room of ExpertRows.
std::size_t expert_rows_bytes(DType dtype, int rows, int width);
ExpertRows walk_expert_rows(Runtime& runtime, std::byte* room, DType dtype, const Rounded& x);
void multiply_expert_tiles(Runtime& runtime, DType dtype, const ExpertCall& call);
/// Once, before the first multiply_expert_tiles.
void prepare_expert_tiles(Runtime& runtime);

}  // namespace lockstep::gpu
