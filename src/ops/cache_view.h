// How ops see the caches of one layer: rows packed without loss, a ring of recent ones, pages of compressed ones.
//
// In official mode a row's first channels are fp8 values (a code and a power of two each 64 channels), so a packed row
// holds codes, block exponents and the f32 rotary channels; an indexer key is fp4 codes and exponents. In plain mode
// both are f32. Packing is exact either way: unpack(pack(row)) gives the row's bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/types.h"

namespace lockstep {

/// Which of the model's own roundings are applied (docs/numerics.md): official = fp8 rows and Hadamard + fp4 indexer,
/// as the model was trained; plain = neither.
enum class Mode : std::uint8_t { official, plain };

inline constexpr int kFp8Block = 64;  // channels that share one power of two in an fp8 row
inline constexpr int kFp4Block = 32;  // and in an fp4 indexer key or query
inline constexpr int kPageRows = 64;  // compressed rows a page

/// Sizes of the packed rows of one model in one mode.
struct RowLayout {
  Mode mode = Mode::official;
  int width = 0;      // channels of a row (P)
  int rotary = 0;     // the last ones, rotated and never rounded (R)
  int key_width = 0;  // channels of an indexer key (Pi)

  int fp8_channels() const { return width - rotary; }
  int fp8_blocks() const { return (fp8_channels() + kFp8Block - 1) / kFp8Block; }
  std::size_t row_bytes() const {
    return mode == Mode::plain ? sizeof(float) * static_cast<std::size_t>(width)
                               : static_cast<std::size_t>(fp8_channels() + fp8_blocks()) +
                                     sizeof(float) * static_cast<std::size_t>(rotary);
  }
  std::size_t key_bytes() const {
    return mode == Mode::plain ? sizeof(float) * static_cast<std::size_t>(key_width)
                               : static_cast<std::size_t>(key_width / 2 + key_width / kFp4Block);
  }
};

/// One sequence's part of a step, in one layer. Its rows are rows [first_row, first_row + rows) of the step's matrices
/// and stand at positions begin, begin + 1, ... What came before `begin` lies in the rings, at slot position % slots.
struct SequenceSlice {
  int first_row = 0;
  int rows = 0;
  Position begin = 0;

  const std::byte* window = nullptr;  // packed rows of the last window_slots positions
  int window_slots = 0;
  const float* pending = nullptr;      // compressor inputs: slots of [values | gates], each compressor_width floats
  const float* key_pending = nullptr;  // the same of the indexer's compressor
  int pending_slots = 0;
  std::byte* const* pages = nullptr;      // compressed row c is row c % kPageRows of page c / kPageRows; a list, like
                                          // all these pointers, in the back end's memory
  std::byte* const* key_pages = nullptr;  // indexer keys, likewise
};

/// The slices of a step in one layer, twice: for the host, which plans the work by how many there are and how many rows
/// they have, and in the back end's memory, where kernels read positions and pointers. So a step recorded once
/// (Ops::run) can be played again with other positions.
struct Slices {
  std::span<const SequenceSlice> host;
  const SequenceSlice* memory = nullptr;

  auto begin() const { return host.begin(); }
  auto end() const { return host.end(); }
  int size() const { return static_cast<int>(host.size()); }
};

/// Row ids chosen for every row of a step: `count[i]` ids, ascending, at ids + i * capacity.
struct Selection {
  std::int32_t* ids = nullptr;
  std::int32_t* count = nullptr;
  int capacity = 0;
};

/// Experts chosen for every row of a step, `used` a row: slot s of row i at i * used + s.
struct Route {
  std::int32_t* expert = nullptr;
  float* weight = nullptr;
  int rows = 0;
  int used = 0;
};

}  // namespace lockstep
