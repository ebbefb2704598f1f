// Attention of every row over its window and its compressed rows.
//
// Attended rows stand in slots: the window's from slot 0, oldest first, the compressed ones from the next multiple of
// 64 on. So the law's chains of 64 rows are 64 neighbouring slots, wherever the query stands; a slot that this query
// does not use counts in no sum. Three steps: scores [heads, slots]; then weights in their place, and what to divide
// by; then the sums over rows. All heads of a query share its rows, so a row is unpacked once for 64 heads. With few
// queries the last step is cut into chains, which meet in order in a fourth; with many, a block goes through all
// chains.
//
// Work of a query in the shape of the model: 640 slots x 512 channels x 64 heads, twice, in f32 fma: 42 million.
#include "base/error.h"
#include "gpu/packed_row.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 256, kSide = 16, kHeads = 64, kEach = 4;
constexpr int kPitch = kChain + 4;  // floats of a row of 64 in shared memory: neighbours meet different banks

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
  float* scores;   // [wave rows, heads, slots]
  float* inverse;  // [wave rows, heads]
  float* parts;    // [wave rows, chains, heads, width], where chains are summed apart,
  bool has_aligned_rows;
  float* rows;  // and the attended rows, unpacked [wave rows, slots, width]; else null
};

/// What row i of the step attends.
struct Query {
  const SequenceSlice* slice;
  Position oldest;
  int in_window, compressed;
};

LOCKSTEP_DEVICE Query query_of(const Attention& a, int i) {
  Query q;
  q.slice = &slice_of(a.slices, a.slice_count, i);
  const Position position = q.slice->begin + i - q.slice->first_row;
  q.oldest = position - a.window + 1 > 0 ? position - a.window + 1 : 0;
  q.in_window = static_cast<int>(position - q.oldest + 1);
  q.compressed = a.has_selection ? a.selection.count[i] : static_cast<int>(visible_rows(position, a.ratio));
  return q;
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

LOCKSTEP_DEVICE Source packed_source_of(const Attention& a, const Query& q, int i, int slot, const PackedRows& layout) {
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

LOCKSTEP_DEVICE Source source_of(const Attention& a, const Query& q, int i, int slot, const PackedRows& layout) {
  if (a.rows == nullptr) return packed_source_of(a, q, i, slot, layout);
  return {a.rows + (static_cast<std::int64_t>(i - a.first_row) * a.slots + slot) * layout.width, nullptr};
}

LOCKSTEP_DEVICE float value_of(const Source& source, int d, const PackedRows& layout) {
  return source.floats != nullptr ? source.floats[d] : row_value(source.packed, d, layout);
}

/// The attended rows as floats, a warp a row: for few queries, where every other kernel would unpack them again.
LOCKSTEP_KERNEL void unpack_rows_kernel(Attention a, PackedRows layout) {
  const int slot = block_x() * (kThreads / kWarp) + thread_index() / kWarp, i = a.first_row + block_y();
  const Query q = query_of(a, i);
  if (slot >= a.slots || used_from(a, q, slot) <= 0) return;
  const Source source = packed_source_of(a, q, i, slot, layout);
  float* to = a.rows + (static_cast<std::int64_t>(block_y()) * a.slots + slot) * layout.width;
#pragma unroll 8
  for (int d = lane_index(); d < layout.width; d += kWarp) to[d] = value_of(source, d, layout);
}

/// Scores of 64 slots for 64 heads, four by four a thread, a chain of 64 channels at a time.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) score_many_kernel(Attention a, PackedRows layout) {
  LOCKSTEP_SHARED float query[kHeads][kPitch];
  LOCKSTEP_SHARED float row[kChain][kPitch];
  LOCKSTEP_SHARED Source sources[kChain];
  const int i = a.first_row + block_z(), first_slot = block_x() * kChain, first_head = block_y() * kHeads;
  const int t = thread_index();
  const Query q = query_of(a, i);
  const int used = used_from(a, q, first_slot);
  if (used <= 0) return;
  if (t < kChain) sources[t] = source_of(a, q, i, first_slot + (t < used ? t : used - 1), layout);
  const float* queries = a.queries.data + i * a.queries.stride;
  const int my_heads = t / kSide * kEach, my_row = t % kSide;
  float total[kEach][kEach] = {};
  for (int begin = 0; begin < layout.width; begin += kChain) {
    const int length = layout.width - begin < kChain ? layout.width - begin : kChain;
    block_barrier();
#pragma unroll 4
    for (int j = t; j < kHeads * kChain; j += kThreads) {
      const int r = j / kChain, d = j % kChain;
      query[r][d] =
          first_head + r < a.heads && d < length ? queries[(first_head + r) * layout.width + begin + d] : 0.0f;
      row[r][d] = d < length ? value_of(sources[r], begin + d, layout) : 0.0f;
    }
    block_barrier();
    float sum[kEach][kEach] = {};
    const auto step_at = [&](int d, int steps) {
      Floats4 x[kEach], y[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        x[e] = *reinterpret_cast<const Floats4*>(&query[my_heads + e][d]);
        y[e] = *reinterpret_cast<const Floats4*>(&row[my_row + e * kSide][d]);
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if (step >= steps) break;
#pragma unroll
        for (int h = 0; h < kEach; ++h)
#pragma unroll
          for (int r = 0; r < kEach; ++r) sum[h][r] = fma_f32(x[h].value[step], y[r].value[step], sum[h][r]);
      }
    };
    if (length == kChain) {
#pragma unroll 4
      for (int d = 0; d < kChain; d += 4) step_at(d, 4);
    } else {
      for (int d = 0; d < length; d += 4) step_at(d, length - d);
    }
#pragma unroll
    for (int h = 0; h < kEach; ++h)
#pragma unroll
      for (int r = 0; r < kEach; ++r) total[h][r] = begin == 0 ? sum[h][r] : total[h][r] + sum[h][r];
  }
#pragma unroll
  for (int h = 0; h < kEach; ++h)
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int head = first_head + my_heads + h, slot = my_row + r * kSide;
      if (head < a.heads && slot < used)
        a.scores[(static_cast<std::int64_t>(block_z()) * a.heads + head) * a.slots + first_slot + slot] =
            total[h][r] * a.scale;
    }
}

constexpr int kFew = 16;  // heads and slots of a block of score_few_kernel

/// Scores of 16 slots for 16 heads, one a thread, all channels in shared memory at once: for few queries, where what
/// counts is how soon a block is done.
LOCKSTEP_KERNEL void score_few_kernel(Attention a, PackedRows layout) {
  extern LOCKSTEP_SHARED float few_shared[];
  LOCKSTEP_SHARED Source sources[kFew];
  const int i = a.first_row + block_z(), first_slot = block_x() * kFew, first_head = block_y() * kFew;
  const int t = thread_index(), width = layout.width, pitch = (width + 3) / 4 * 4 + 4;
  const Query q = query_of(a, i);
  const int used = used_from(a, q, first_slot);
  if (used <= 0) return;
  float* const query = few_shared;
  float* const row = few_shared + kFew * pitch;
  if (t < kFew) sources[t] = source_of(a, q, i, first_slot + (t < used ? t : used - 1), layout);
  block_barrier();
  const float* queries = a.queries.data + i * a.queries.stride;
  for (int r = t / kWarp; r < kFew; r += kThreads / kWarp) {
    const bool is_head = first_head + r < a.heads;
    if (a.has_aligned_rows) {
#pragma unroll 4
      for (int d = 4 * lane_index(); d < width; d += 4 * kWarp) {
        const auto zero = Floats4{};
        *reinterpret_cast<Floats4*>(query + r * pitch + d) =
            is_head ? *reinterpret_cast<const Floats4*>(queries + (first_head + r) * width + d) : zero;
        *reinterpret_cast<Floats4*>(row + r * pitch + d) = *reinterpret_cast<const Floats4*>(sources[r].floats + d);
      }
      continue;
    }
#pragma unroll 8
    for (int d = lane_index(); d < width; d += kWarp) {
      query[r * pitch + d] = is_head ? queries[(first_head + r) * width + d] : 0.0f;
      row[r * pitch + d] = value_of(sources[r], d, layout);
    }
  }
  block_barrier();
  const int head = t / kFew, slot = t % kFew;
  const float* x = query + head * pitch;
  const float* y = row + slot * pitch;
  float total = 0;
  int begin = 0;
  for (; begin + 4 * kChain <= width; begin += 4 * kChain) {  // four chains side by side, so that none waits
    float sum[4] = {};
#pragma unroll 4
    for (int d = 0; d < kChain; d += 4)
#pragma unroll
      for (int chain = 0; chain < 4; ++chain) {
        const Floats4 p = *reinterpret_cast<const Floats4*>(x + begin + chain * kChain + d);
        const Floats4 r = *reinterpret_cast<const Floats4*>(y + begin + chain * kChain + d);
#pragma unroll
        for (int step = 0; step < 4; ++step) sum[chain] = fma_f32(p.value[step], r.value[step], sum[chain]);
      }
#pragma unroll
    for (int chain = 0; chain < 4; ++chain) total = begin + chain == 0 ? sum[chain] : total + sum[chain];
  }
  for (; begin < width; begin += kChain) {
    float sum = 0;
    for (int d = begin; d < (width < begin + kChain ? width : begin + kChain); ++d) sum = fma_f32(x[d], y[d], sum);
    total = begin == 0 ? sum : total + sum;
  }
  if (first_head + head < a.heads && slot < used)
    a.scores[(static_cast<std::int64_t>(block_z()) * a.heads + first_head + head) * a.slots + first_slot + slot] =
        total * a.scale;
}

/// Scores to weights, in place, and the reciprocal of their sum: a warp a head.
LOCKSTEP_KERNEL void weight_kernel(Attention a) {
  const int item = (block_x() * block_threads() + thread_index()) / kWarp, head = item % a.heads,
            wave_row = item / a.heads;
  const int i = a.first_row + wave_row;
  if (i >= a.queries.rows) return;
  const Query q = query_of(a, i);
  float* row = a.scores + static_cast<std::int64_t>(item) * a.slots;
  const float sink = a.sinks[head];
  float largest = sink;
  for (int s = lane_index(); s < q.in_window; s += kWarp) largest = row[s] > largest ? row[s] : largest;
  for (int s = lane_index(); s < q.compressed; s += kWarp) {
    const float score = row[a.window_slots + s];
    largest = score > largest ? score : largest;
  }
  largest = warp_max(largest);
  for (int s = lane_index(); s < q.in_window; s += kWarp) row[s] = exp_f32(row[s] - largest);
  for (int s = lane_index(); s < q.compressed; s += kWarp) {
    float& score = row[a.window_slots + s];
    score = exp_f32(score - largest);
  }
  warp_barrier();
  float denominator = exp_f32(sink - largest);
  const int chains = (a.window_slots + (q.compressed + kChain - 1) / kChain * kChain) / kChain;
  for (int first = 0; first < chains; first += kWarp) {
    const int chain = first + lane_index();
    int used = chain < chains ? used_from(a, q, chain * kChain) : 0;
    used = used < kChain ? used : kChain;
    float sum = 0;
#pragma unroll 8
    for (int s = 0; s < used; ++s) sum = sum + row[chain * kChain + s];
    for (int c = 0; c < kWarp && first + c < chains; ++c) {
      const float next = shuffle(sum, c);
      if (used_from(a, q, (first + c) * kChain) > 0) denominator = denominator + next;
    }
  }
  if (lane_index() == 0) a.inverse[item] = 1.0f / denominator;
}

/// Sums over rows, for 64 heads and kDims channels, four heads and kDims / 16 channels a thread. kApart: of one chain
/// only, into `parts`.
template <int kDims, bool kApart>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) sum_kernel(Attention a, PackedRows layout) {
  constexpr int kGroups = kDims / (4 * kSide);  // of four channels a thread
  LOCKSTEP_SHARED float weight[kHeads][kChain];
  LOCKSTEP_SHARED Source sources[kChain];
  extern LOCKSTEP_SHARED Floats4 sum_shared[];
  auto* const row = reinterpret_cast<float(*)[kDims]>(sum_shared);  // [kChain]
  const int width = layout.width, chains = a.slots / kChain, head_groups = (a.heads + kHeads - 1) / kHeads;
  const int dim_groups = (width + kDims - 1) / kDims;
  const int first_dim = block_x() % dim_groups * kDims, first_head = block_x() / dim_groups % head_groups * kHeads;
  const int i = a.first_row + block_y(), t = thread_index();
  const Query q = query_of(a, i);
  const int first_chain = kApart ? block_z() : 0, end_chain = kApart ? first_chain + 1 : chains;
  const float* scores = a.scores + static_cast<std::int64_t>(block_y()) * a.heads * a.slots;
  const int my_heads = t / kSide * kEach, my_dim = t % kSide * 4;
  float total[kEach][kGroups * 4] = {};
  for (int chain = first_chain; chain < end_chain; ++chain) {
    int used = used_from(a, q, chain * kChain);
    used = used < kChain ? used : kChain;
    if (used <= 0) continue;
    block_barrier();
    if (t < kChain) sources[t] = source_of(a, q, i, chain * kChain + (t < used ? t : used - 1), layout);
    block_barrier();
#pragma unroll 4
    for (int j = 4 * t; j < kHeads * kChain && a.has_aligned_rows && used == kChain; j += 4 * kThreads) {
      const int h = j / kChain, s = j % kChain;
      const auto zero = Floats4{};
      *reinterpret_cast<Floats4*>(&weight[h][s]) =
          first_head + h < a.heads
              ? *reinterpret_cast<const Floats4*>(scores + (first_head + h) * a.slots + chain * kChain + s)
              : zero;
    }
#pragma unroll 4
    for (int j = t; j < kHeads * kChain && !(a.has_aligned_rows && used == kChain); j += kThreads) {
      const int h = j / kChain, s = j % kChain;
      weight[h][s] =
          first_head + h < a.heads && s < used ? scores[(first_head + h) * a.slots + chain * kChain + s] : 0.0f;
    }
#pragma unroll 4
    for (int j = 4 * t; j < kChain * kDims && a.has_aligned_rows; j += 4 * kThreads) {
      const int r = j / kDims, d = first_dim + j % kDims;
      const auto zero = Floats4{};
      *reinterpret_cast<Floats4*>(&row[r][j % kDims]) =
          d < width ? *reinterpret_cast<const Floats4*>(sources[r].floats + d) : zero;
    }
#pragma unroll 4
    for (int j = t; j < kChain * kDims && !a.has_aligned_rows; j += kThreads) {
      const int r = j / kDims, d = first_dim + j % kDims;
      row[r][j % kDims] = d < width ? value_of(sources[r], d, layout) : 0.0f;
    }
    block_barrier();
    float sum[kEach][kGroups * 4] = {};
    const auto add_rows = [&](int s, int rows) {
      Floats4 w[kEach];
#pragma unroll
      for (int h = 0; h < kEach; ++h) w[h] = *reinterpret_cast<const Floats4*>(&weight[my_heads + h][s]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (r >= rows) break;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const Floats4 v = *reinterpret_cast<const Floats4*>(&row[s + r][g * 4 * kSide + my_dim]);
#pragma unroll
          for (int h = 0; h < kEach; ++h)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[h][g * 4 + e] = fma_f32(w[h].value[r], v.value[e], sum[h][g * 4 + e]);
        }
      }
    };
    if (used == kChain) {
#pragma unroll 4
      for (int s = 0; s < kChain; s += 4) add_rows(s, 4);
    } else {
      for (int s = 0; s < used; s += 4) add_rows(s, used - s);
    }
#pragma unroll
    for (int h = 0; h < kEach; ++h)
#pragma unroll
      for (int e = 0; e < kGroups * 4; ++e) total[h][e] = chain == 0 || kApart ? sum[h][e] : total[h][e] + sum[h][e];
  }
#pragma unroll
  for (int h = 0; h < kEach; ++h) {
    const int head = first_head + my_heads + h;
    if (head >= a.heads) break;
    const std::int64_t item = static_cast<std::int64_t>(block_y()) * a.heads + head;
    const float inverse = kApart ? 0.0f : a.inverse[item];
#pragma unroll
    for (int e = 0; e < kGroups * 4; ++e) {
      const int d = first_dim + e / 4 * 4 * kSide + my_dim + e % 4;
      if (d >= width) continue;
      if constexpr (kApart)
        a.parts[((static_cast<std::int64_t>(block_y()) * chains + first_chain) * a.heads + head) * width + d] =
            total[h][e];
      else
        a.out.data[i * a.out.stride + head * width + d] = total[h][e] * inverse;
    }
  }
}

/// Adds the chains that were summed apart.
LOCKSTEP_KERNEL void meet_kernel(Attention a, PackedRows layout) {
  const int d = block_x() * block_threads() + thread_index(), wave_row = block_y(), i = a.first_row + wave_row;
  const int width = a.heads * layout.width;
  if (d >= width) return;
  const Query q = query_of(a, i);
  const int chains = a.slots / kChain;
  const float* parts = a.parts + static_cast<std::int64_t>(wave_row) * chains * width + d;
  float total = parts[0];
  for (int chain = 1; chain < chains; ++chain)
    if (used_from(a, q, chain * kChain) > 0) total = total + parts[static_cast<std::int64_t>(chain) * width];
  a.out.data[i * a.out.stride + d] = total * a.inverse[wave_row * a.heads + d / layout.width];
}

int round_up(int value, int step) { return (value + step - 1) / step * step; }

int slots_of(const AttendCall& call) { return round_up(call.window, kChain) + round_up(call.bound, kChain); }

constexpr std::size_t sum_bytes(int dims) { return sizeof(float) * static_cast<std::size_t>(kChain * dims); }

constexpr int kFewRows = 8;  // up to so many rows of a wave the chains are summed apart

}  // namespace

std::size_t attend_scratch_floats(const AttendCall& call, int rows, const PackedRows& layout) {
  const std::size_t heads = static_cast<std::size_t>(call.queries.width / layout.width),
                    n = static_cast<std::size_t>(rows);
  const std::size_t slots = static_cast<std::size_t>(slots_of(call));
  const std::size_t parts = slots / kChain * static_cast<std::size_t>(call.queries.width);
  const std::size_t unpacked = slots * static_cast<std::size_t>(layout.width);
  return n * (heads * slots + heads + (rows <= kFewRows ? parts + unpacked : 0)) + 2 * kChain;
}

void attend(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
            const PackedRows& layout) {
  Attention a;
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
  a.scores = scratch;
  a.inverse = a.scores + static_cast<std::size_t>(rows) * a.heads * a.slots;
  a.parts = a.inverse + round_up(rows * a.heads, kChain);
  const std::size_t part_floats = static_cast<std::size_t>(rows) * (a.slots / kChain) * call.queries.width;
  a.rows = rows <= kFewRows ? a.parts + (part_floats + kChain - 1) / kChain * kChain : nullptr;
  a.has_aligned_rows = a.rows != nullptr && layout.width % 4 == 0 && a.queries.stride % 4 == 0;

  const unsigned n = static_cast<unsigned>(rows), slots = static_cast<unsigned>(a.slots);
  const bool is_few = rows <= kFewRows;
  const std::size_t few_bytes =
      static_cast<std::size_t>(2 * kFew) * static_cast<std::size_t>(round_up(layout.width, 4) + 4) * sizeof(float);
  if (is_few) launch(runtime, unpack_rows_kernel, {blocks_for(a.slots, kThreads / kWarp), n}, kThreads, 0, a, layout);
  if (is_few && few_bytes <= kMostFewBytes && few_bytes + 1024 <= runtime.most_shared_bytes())
    launch(runtime, score_few_kernel, {slots / kFew, blocks_for(a.heads, kFew), n}, kThreads, few_bytes, a, layout);
  else
    launch(runtime, score_many_kernel, {slots / kChain, blocks_for(a.heads, kHeads), n}, kThreads, 0, a, layout);
  launch(runtime, weight_kernel, {blocks_for(static_cast<std::int64_t>(rows) * a.heads, kThreads / kWarp)}, kThreads, 0,
         a);
  const unsigned head_groups = blocks_for(a.heads, kHeads);
  if (is_few) {
    launch(runtime, sum_kernel<64, true>, {blocks_for(layout.width, 64) * head_groups, n, slots / kChain}, kThreads,
           sum_bytes(64), a, layout);
    launch(runtime, meet_kernel, {blocks_for(call.queries.width, kThreads), n}, kThreads, 0, a, layout);
  } else {
    launch(runtime, sum_kernel<128, false>, {blocks_for(layout.width, 128) * head_groups, n}, kThreads, sum_bytes(128),
           a, layout);
  }
}

void prepare_attend(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&score_few_kernel), kMostFewBytes);
  runtime.allow_shared(reinterpret_cast<const void*>(&sum_kernel<128, false>), sum_bytes(128));
}

}  // namespace lockstep::gpu
