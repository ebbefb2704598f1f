// What the two ways of attention share: how attended rows stand, and where each one lies.
//
// Attended rows stand in slots: the window's from slot 0, oldest first, the compressed ones from the next multiple of
// 64 on. So the law's chains of 64 rows are 64 neighbouring slots, wherever the query stands; a slot that this query
// does not use counts in no sum. All heads of a query share its rows, so a row is unpacked once for many heads.
//
// Work of a query in the shape of the model: 640 slots x 512 channels x 64 heads, twice, in f32 fma: 42 million.
#pragma once

#include "gpu/packed_row.h"
#include "numerics/order.h"

namespace lockstep::gpu {

/// AttendCall as kernels read it.
struct Attention {
  Rows out;
  ConstRows queries, window_rows;
  int window, window_slots, slots;  // slots of the window, a multiple of 64, and of all
  int ratio, heads, first_row;      // first_row: of this wave
  bool has_selection;
  Selection selection;
  const float* sinks;
  float scale;
  const SequenceSlice* slices;
  int slice_count;
};

inline int round_up(int value, int step) { return (value + step - 1) / step * step; }

/// Slots that a query of the call can have.
inline int slots_of(const AttendCall& call) { return round_up(call.window, kChain) + round_up(call.bound, kChain); }

/// All of it but the room that kernels need.
inline Attention attention_of(const AttendCall& call, const Slices& slices, int first_row, int rows,
                              const PackedRows& layout) {
  Attention a = {};
  a.out = call.out;
  a.queries = call.queries.first(first_row + rows);
  a.window_rows = call.window_rows;
  a.window = call.window;
  a.window_slots = round_up(call.window, kChain);
  a.slots = slots_of(call);
  a.ratio = call.ratio;
  a.heads = call.queries.width / layout.width;
  a.first_row = first_row;
  a.has_selection = call.selection != nullptr;
  a.selection = a.has_selection ? *call.selection : Selection();
  a.sinks = call.sinks;
  a.scale = call.scale;
  a.slices = slices.memory;
  a.slice_count = slices.size();
  return a;
}

// Of few queries (attend_few.cu): floats of scratch, and the launches.
std::size_t attend_few_floats(const AttendCall& call, int rows, const PackedRows& layout);
void attend_few(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
                const PackedRows& layout);
void prepare_attend_few(Runtime& runtime);

// The same where rows are fp8 codes in whole chains (attend_codes.cu), with the same scratch; attend_few calls it.
bool can_attend_codes(const Runtime& runtime, const AttendCall& call, const PackedRows& layout);
void attend_codes(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows,
                  float* scratch, const PackedRows& layout);
void prepare_attend_codes(Runtime& runtime);

#if defined(LOCKSTEP_KERNEL)

/// What row i of the step attends.
struct Query {
  const SequenceSlice* slice;
  Position oldest;
  int in_window, compressed;
};

LOCKSTEP_DEVICE Query query_of(const Attention& a, int i, const SequenceSlice& slice) {
  Query q;
  q.slice = &slice;
  const Position position = q.slice->begin + i - q.slice->first_row;
  q.oldest = position - a.window + 1 > 0 ? position - a.window + 1 : 0;
  q.in_window = static_cast<int>(position - q.oldest + 1);
  q.compressed = a.has_selection ? a.selection.count[i] : static_cast<int>(visible_rows(position, a.ratio));
  return q;
}

LOCKSTEP_DEVICE Query query_of(const Attention& a, int i) {
  return query_of(a, i, slice_of(a.slices, a.slice_count, i));
}

/// Slots from `slot` on, as far as the next multiple of 64, that the query uses.
LOCKSTEP_DEVICE int used_from(const Attention& a, const Query& q, int slot) {
  const int used = slot < a.window_slots ? q.in_window - slot : q.compressed - (slot - a.window_slots);
  return used < 0 ? 0 : used;
}

/// A row that lies as floats in the step, or packed in a cache.
struct Source {
  const float* floats;
  const std::uint8_t* packed;
};

LOCKSTEP_DEVICE Source source_of(const Attention& a, const Query& q, int i, int slot, const PackedRows& layout) {
  if (slot < a.window_slots) {
    const Position p = q.oldest + slot;
    if (p >= q.slice->begin) {
      const std::int64_t row = q.slice->first_row + (p - q.slice->begin);
      return {a.window_rows.data + row * a.window_rows.stride, nullptr};
    }
    return {nullptr, bytes_of(q.slice->window) + p % q.slice->window_slots * layout.row_bytes};
  }
  const int index = slot - a.window_slots;
  const std::int64_t c =
      a.has_selection ? a.selection.ids[static_cast<std::int64_t>(i) * a.selection.capacity + index] : index;
  return {nullptr, bytes_of(q.slice->pages[c / kPageRows]) + c % kPageRows * layout.row_bytes};
}

LOCKSTEP_DEVICE float value_of(const Source& source, int d, const PackedRows& layout) {
  return source.floats != nullptr ? source.floats[d] : row_value(source.packed, d, layout);
}

#endif

}  // namespace lockstep::gpu
