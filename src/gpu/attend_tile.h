// Attention of many queries in the model's shape, in f32 tiles (attend_tile.cu).
#pragma once

#include "gpu/attend.h"

namespace lockstep::gpu {

/// Whether these kernels take the call: rows of 512 floats once unpacked, whole groups of 64 heads, aligned operands,
/// and enough queries that unpacking every row which any of them may attend costs little beside them.
bool can_attend_tile(const AttendCall& call, int rows, const PackedRows& layout);
/// Floats of scratch for the unpacked rows.
std::size_t attend_tile_floats(const AttendCall& call);
/// Whether the device has the shared memory, and so many queries fill it.
bool suits_attend_tile(const Runtime& runtime, int rows);
/// `rows` is the unpacked rows' room; scores [rows of the wave, heads, slots], inverse [rows of the wave, heads].
void attend_tile(Runtime& runtime, const Attention& attention, const AttendCall& call, const PackedRows& layout,
                 int wave_rows, float* rows, float* scores, float* inverse);
void prepare_attend_tile(Runtime& runtime);

/// Scores to weights, in place, and the reciprocal of each head's sum (attend_many.cu).
void weigh_scores(Runtime& runtime, const Attention& attention, int wave_rows, float* scores, float* inverse);

}  // namespace lockstep::gpu
