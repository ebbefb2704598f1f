// A few tokens an expert by IQ2_XXS and Q2_K weights on int8 tensor cores: what thin_experts.cu offers.
#pragma once

#include <cstddef>

#include "gpu/tile.h"

namespace lockstep::gpu {

/// Whether the kernel takes such experts' products (of one input, width and number of rows), on this device.
bool can_thin_experts(const Runtime& runtime, DType dtype, const Product* products, int count, int experts);
/// Room for the order of the slots.
std::size_t thin_expert_bytes(int slots, int experts);
/// At most two products.
void multiply_thin_experts(Runtime& runtime, DType dtype, const Product* products, int count, int experts,
                           std::byte* room);
/// Once, before the first multiply_thin_experts.
void prepare_thin_experts(Runtime& runtime);

}  // namespace lockstep::gpu
