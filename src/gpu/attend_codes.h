// Attention of few queries over rows of the model's shape in official mode: seven chains of fp8 codes and one of
// floats. What its two launches share (attend_codes.cu has the sums, attend_codes_scores.cu the scores).
//
// What counts is how soon a launch is done, so a warp has little to do and the code is short. Rows lie in shared memory
// as codes; who multiplies them unpacks them, two at a time, for four heads. Eight heads a thread were fewer
// instructions in all, but half as many blocks and warps: the sums took longer, the scores no less.
#pragma once

#include "gpu/attend_heads.h"

namespace lockstep::gpu {

inline constexpr int kRowChains = 8, kCodeChains = kRowChains - 1;  // of a row, and those that are codes
inline constexpr int kCodedWidth = kRowChains * kChain, kCodedChannels = kCodeChains * kChain;
inline constexpr int kFloatsAt = kCodedChannels + kCodeChains;  // an exponent a chain is between
inline constexpr int kRowBytes = kFloatsAt + 4 * kChain;
static_assert(kChain == kFp8Block);

inline constexpr int kCodedHeads = 8;  // of a block

/// What both launches know.
struct Coded : HeadAttention {
  int tile_slots;                     // slots of which the largest score is kept
  int codes_at_once, floats_at_once;  // chains of sums
};

void prepare_score_codes(Runtime& runtime);
/// The scores of so many rows, and what is the largest of each a.tile_slots of them.
void score_codes(Runtime& runtime, const Coded& a, int rows);
/// Slots of a block of scores.
int score_tile_slots(const Runtime& runtime, int slots, int heads, int rows);
bool can_score_codes(const Runtime& runtime);

#if defined(LOCKSTEP_KERNEL)

/// The slice of row i, found by all threads of a warp at once.
LOCKSTEP_DEVICE const SequenceSlice& slice_by_warp(const Attention& a, int i) {
  if (a.slice_count == 1) return a.slices[0];
  if (a.slice_count > kWarp) return slice_of(a.slices, a.slice_count, i);
  const int lane = lane_index();
  return a.slices[warp_sum(lane < a.slice_count && a.slices[lane].first_row <= i ? 1 : 0) - 1];
}

/// Slots of the window from this one on lie as floats in the step.
LOCKSTEP_DEVICE int first_step_slot(const Query& q) {
  const std::int64_t slot = q.slice->begin - q.oldest;
  return static_cast<int>(slot > 0 ? slot : 0);
}

/// Rows in caches, of one query.
struct Caches {
  const std::uint8_t* ring;
  const std::byte* const* pages;
  int first, slots;  // of the ring: where the oldest row stands, and how many there are
};
LOCKSTEP_DEVICE Caches caches_of(const Query& q) {
  Caches c = {bytes_of(q.slice->window), q.slice->pages, 0, q.slice->window_slots};
  const auto slots = static_cast<std::uint32_t>(c.slots);
  if (q.oldest >> 31 == 0)  // the longer division is slow
    c.first = static_cast<int>(static_cast<std::uint32_t>(q.oldest) % slots);
  else
    c.first = static_cast<int>(q.oldest % c.slots);
  return c;
}
/// The id of a slot's compressed row; of a slot without one, anything. It waits for nothing.
LOCKSTEP_DEVICE std::uint32_t row_id(const Attention& a, int i, int slot) {
  const int index = slot - a.window_slots;
  if (!a.has_selection || index < 0 || index >= a.selection.capacity) return static_cast<std::uint32_t>(index);
  return static_cast<std::uint32_t>(a.selection.ids[static_cast<std::int64_t>(i) * a.selection.capacity + index]);
}
/// The packed row of a slot that the query uses, where its id is that; no row of the step.
LOCKSTEP_DEVICE const std::uint8_t* packed_row(const Attention& a, const Caches& c, int slot, std::uint32_t id) {
  if (slot < a.window_slots) {
    const int place = c.first + slot;
    return c.ring + static_cast<std::uint32_t>((place < c.slots ? place : place - c.slots) * kRowBytes);
  }
  return bytes_of(c.pages[id / kPageRows]) + id % kPageRows * kRowBytes;
}
LOCKSTEP_DEVICE const float* step_row(const Attention& a, const Query& q, int slot) {
  const std::int64_t row = q.slice->first_row + (q.oldest + slot - q.slice->begin);
  return a.window_rows.data + row * a.window_rows.stride;
}

struct alignas(8) FloatPair {
  float value[2];
};
/// What the two lower bytes of `codes` stand for, before the row's scale. None of them is NaN if that is finite.
LOCKSTEP_DEVICE FloatPair code_values(std::uint32_t codes) {
  FloatPair out;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n\t.reg .b32 both;\n\t.reg .b16 low, high;\n\tcvt.rn.f16x2.e4m3x2 both, %2;\n\tmov.b32 {low, high}, both;\n\t"
      "cvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
      : "=f"(out.value[0]), "=f"(out.value[1])
      : "h"(static_cast<unsigned short>(codes)));
#else
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const auto top = static_cast<std::int32_t>(codes << (24 - 8 * k) & 0xff000000u);
    out.value[k] = f32_of(static_cast<std::uint32_t>(top >> 4) & 0x87f00000u) * power_of_two(120);
  }
#endif
  return out;
}
/// Exact, unless a value overflows, as it does by the law: exponents are -22 or more.
LOCKSTEP_DEVICE float scale_of(std::uint32_t e8m0) {
  const int exponent = e8m0_to_exponent(static_cast<std::uint8_t>(e8m0));
  return exponent == kBadExponent ? f32_of(kQuietNaN) : power_of_two(exponent);
}

#endif

}  // namespace lockstep::gpu
