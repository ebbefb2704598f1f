// Attention of every row over its window and its compressed rows.
//
// Attended rows stand in slots: the window's from slot 0, oldest first, the compressed ones from the next multiple of
// 64 on. So the law's chains of 64 rows are 64 neighbouring slots, wherever the query stands; a slot that this query
// does not use counts in no sum. All heads of a query share its rows, so a row is unpacked once for many heads.
//
// Many queries: scores [heads, slots]; then weights in their place, and what to divide by; then the sums over rows, a
// block going through all chains. Few queries, where what counts is how soon a launch is done: scores, with the rows as
// floats and the largest score of every 16 slots beside them; the sums of each chain apart, with its weights; then the
// chains meet in order.
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
  // Of few queries:
  bool has_aligned_queries;
  int pitch;            // floats of an unpacked row
  float* parts;         // [wave rows, chains, heads, width]
  float* rows;          // [wave rows, slots, pitch]
  float* tile_largest;  // [wave rows, slots / kFew, heads]
  float* largest;       // [wave rows, heads]
  float* chain_sums;    // [wave rows, chains, heads]: of weights
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

/// Scores of 64 slots for 64 heads, four by four a thread, a chain of 64 channels at a time.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) score_many_kernel(Attention a, PackedRows layout) {
  follow_launch();
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

/// 512 channels of a row by a warp, a thread every 32nd: first as they lie in memory, so that all reads are under way
/// before the first is used, then as floats.
struct RowPart {
  static constexpr int kValues = 16, kChannels = kValues * kWarp;
  std::uint32_t bits[kValues];           // codes, or floats
  std::uint32_t exponents[kValues / 2];  // of 64 channels each, where there are codes
};
LOCKSTEP_DEVICE RowPart read_part(const Source& source, int begin, const PackedRows& layout) {
  RowPart part;
  const int channels = layout.width - layout.rotary;
  if (source.floats != nullptr || layout.is_plain) {
    const float* from = source.floats != nullptr ? source.floats : reinterpret_cast<const float*>(source.packed);
#pragma unroll
    for (int u = 0; u < RowPart::kValues; ++u) {
      const int d = begin + u * kWarp + lane_index();
      part.bits[u] = d < layout.width ? bits_of(from[d]) : 0;
    }
    return part;
  }
  const std::uint8_t* row = source.packed;
  const int floats_at = channels + fp8_blocks(channels);
#pragma unroll
  for (int u = 0; u < RowPart::kValues; ++u) {
    const int d = begin + u * kWarp + lane_index(), at = d < channels ? d : floats_at + 4 * (d - channels);
    const bool is_float = d >= channels && d < layout.width;
    part.bits[u] = d < layout.width ? row[at] : 0u;
    const std::uint32_t second = is_float ? row[at + 1] : 0u, third = is_float ? row[at + 2] : 0u,
                        fourth = is_float ? row[at + 3] : 0u;
    part.bits[u] |= second << 8 | third << 16 | fourth << 24;
  }
#pragma unroll
  for (int u = 0; u < RowPart::kValues / 2; ++u) {
    const int d = begin + u * kFp8Block;
    part.exponents[u] = d < channels ? row[channels + d / kFp8Block] : 0u;
  }
  return part;
}
/// Channel begin + u * 32 + lane.
LOCKSTEP_DEVICE float part_value(const RowPart& part, const Source& source, int begin, int u,
                                 const PackedRows& layout) {
  const bool is_code =
      source.floats == nullptr && !layout.is_plain && begin + u * kWarp + lane_index() < layout.width - layout.rotary;
  return is_code ? row_code_value(part.bits[u], part.exponents[u / 2]) : f32_of(part.bits[u]);
}

/// Scores of 16 slots for 16 heads, all channels in shared memory at once.
LOCKSTEP_KERNEL void score_few_kernel(Attention a, PackedRows layout) {
  follow_launch();
  extern LOCKSTEP_SHARED float few_shared[];
  LOCKSTEP_SHARED Source sources[kFew];
  const int i = a.first_row + block_z(), first_slot = block_x() * kFew, first_head = block_y() * kFew;
  const int t = thread_index(), width = layout.width, pitch = a.pitch + 4;
  const Query q = query_of(a, i);
  const int used = used_from(a, q, first_slot);
  if (used <= 0) return;
  float* const query = few_shared;
  float* const row = few_shared + kFew * pitch;
  if (t < kFew) sources[t] = source_of(a, q, i, first_slot + (t < used ? t : used - 1), layout);
  const float* queries = a.queries.data + i * a.queries.stride;
  for (int r = t / kWarp; r < kFew; r += kThreads / kWarp) {
    const bool is_head = first_head + r < a.heads;
    if (a.has_aligned_queries) {
#pragma unroll 4
      for (int d = 4 * lane_index(); d < width; d += 4 * kWarp) {
        const auto zero = Floats4{};
        *reinterpret_cast<Floats4*>(query + r * pitch + d) =
            is_head ? *reinterpret_cast<const Floats4*>(queries + (first_head + r) * width + d) : zero;
      }
      continue;
    }
    for (int d = lane_index(); d < width; d += kWarp)
      query[r * pitch + d] = is_head ? queries[(first_head + r) * width + d] : 0.0f;
  }
  block_barrier();
  constexpr int kWarps = kThreads / kWarp, kRows = kFew / kWarps;  // of a warp
  for (int begin = 0; begin < width; begin += RowPart::kChannels) {
    RowPart parts[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) parts[k] = read_part(sources[t / kWarp + k * kWarps], begin, layout);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int r = t / kWarp + k * kWarps;
      float* const to = a.rows + (static_cast<std::int64_t>(block_z()) * a.slots + first_slot + r) * a.pitch;
#pragma unroll
      for (int u = 0; u < RowPart::kValues; ++u) {
        const int d = begin + u * kWarp + lane_index();
        if (d >= width) break;
        const float value = part_value(parts[k], sources[r], begin, u, layout);
        row[r * pitch + d] = value;
        if (block_y() == 0 && r < used) to[d] = value;
      }
    }
  }
  block_barrier();
  // A warp takes every eighth chain, a thread four heads and two slots of it.
  float* const chain_sums = row + kFew * pitch;  // [chains][kFew heads][kFew slots]
  const int chains = (width + kChain - 1) / kChain;
  constexpr int kSlotThreads = 8, kThreadHeads = 4, kThreadSlots = kFew / kSlotThreads;
  const int my_head = lane_index() / kSlotThreads * kThreadHeads, my_slot = lane_index() % kSlotThreads;
  for (int chain = t / kWarp; chain < chains; chain += kWarps) {
    const float* x = query + my_head * pitch + chain * kChain;
    const float* y = row + my_slot * pitch + chain * kChain;
    float sum[kThreadHeads][kThreadSlots] = {};
    const auto add = [&](int d, int steps) {
      Floats4 xs[kThreadHeads], ys[kThreadSlots];
#pragma unroll
      for (int h = 0; h < kThreadHeads; ++h) xs[h] = *reinterpret_cast<const Floats4*>(x + h * pitch + d);
#pragma unroll
      for (int k = 0; k < kThreadSlots; ++k)
        ys[k] = *reinterpret_cast<const Floats4*>(y + k * kSlotThreads * pitch + d);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if (step >= steps) break;
#pragma unroll
        for (int h = 0; h < kThreadHeads; ++h)
#pragma unroll
          for (int k = 0; k < kThreadSlots; ++k) sum[h][k] = fma_f32(xs[h].value[step], ys[k].value[step], sum[h][k]);
      }
    };
    const int length = width - chain * kChain;
    if (length >= kChain) {
#pragma unroll 4
      for (int d = 0; d < kChain; d += 4) add(d, 4);
    } else {
      for (int d = 0; d < length; d += 4) add(d, length - d);
    }
#pragma unroll
    for (int h = 0; h < kThreadHeads; ++h)
#pragma unroll
      for (int k = 0; k < kThreadSlots; ++k)
        chain_sums[(chain * kFew + my_head + h) * kFew + my_slot + k * kSlotThreads] = sum[h][k];
  }
  block_barrier();
  const int head = t / kFew, slot = t % kFew;
  float total = chain_sums[t];
  for (int chain = 1; chain < chains; ++chain) total = total + chain_sums[chain * kFew * kFew + t];
  const float score = total * a.scale;
  if (first_head + head < a.heads && slot < used)
    a.scores[(static_cast<std::int64_t>(block_z()) * a.heads + first_head + head) * a.slots + first_slot + slot] =
        score;
  float largest = slot < used ? score : -f32_of(kInfinity);
  for (int mask = kFew / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (first_head + head < a.heads && slot == 0)
    a.tile_largest[(static_cast<std::int64_t>(block_z()) * (a.slots / kFew) + block_x()) * a.heads + first_head +
                   head] = largest;
}

/// Scores to weights, in place, and the reciprocal of their sum: a warp a head.
LOCKSTEP_KERNEL void weight_kernel(Attention a) {
  follow_launch();
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

/// What 64 heads take of a chain's rows: sum[h][channel] += weight[h][s] * row[s][channel] for s below `used`, in
/// order, four heads from `my_heads` on and groups of four channels, 64 apart, from `my_dim` on.
template <int kDims, int kWeightPitch>
LOCKSTEP_DEVICE void add_chain(float (&sum)[kEach][kDims / kSide], const float (*weight)[kWeightPitch],
                               const float (*row)[kDims], int used, int my_heads, int my_dim) {
  constexpr int kGroups = kDims / (4 * kSide);
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
}

constexpr int kManyDims = 128, kFewDims = 64;

/// Sums over rows, for 64 heads and kManyDims channels, four heads and eight channels a thread.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) sum_many_kernel(Attention a, PackedRows layout) {
  follow_launch();
  constexpr int kDims = kManyDims, kValues = kDims / kSide;
  LOCKSTEP_SHARED float weight[kHeads][kChain];
  LOCKSTEP_SHARED Source sources[kChain];
  extern LOCKSTEP_SHARED Floats4 sum_shared[];
  auto* const row = reinterpret_cast<float(*)[kDims]>(sum_shared);  // [kChain]
  const int width = layout.width, chains = a.slots / kChain, dim_groups = (width + kDims - 1) / kDims;
  const int first_dim = block_x() % dim_groups * kDims, first_head = block_x() / dim_groups * kHeads;
  const int i = a.first_row + block_y(), t = thread_index();
  const Query q = query_of(a, i);
  const float* scores = a.scores + static_cast<std::int64_t>(block_y()) * a.heads * a.slots;
  const int my_heads = t / kSide * kEach, my_dim = t % kSide * 4;
  float total[kEach][kValues] = {};
  for (int chain = 0; chain < chains; ++chain) {
    int used = used_from(a, q, chain * kChain);
    used = used < kChain ? used : kChain;
    if (used <= 0) continue;
    block_barrier();
    if (t < kChain) sources[t] = source_of(a, q, i, chain * kChain + (t < used ? t : used - 1), layout);
    block_barrier();
#pragma unroll 4
    for (int j = t; j < kHeads * kChain; j += kThreads) {
      const int h = j / kChain, s = j % kChain;
      weight[h][s] =
          first_head + h < a.heads && s < used ? scores[(first_head + h) * a.slots + chain * kChain + s] : 0.0f;
    }
#pragma unroll 4
    for (int j = t; j < kChain * kDims; j += kThreads) {
      const int r = j / kDims, d = first_dim + j % kDims;
      row[r][j % kDims] = d < width ? value_of(sources[r], d, layout) : 0.0f;
    }
    block_barrier();
    float sum[kEach][kValues] = {};
    add_chain<kDims, kChain>(sum, weight, row, used, my_heads, my_dim);
#pragma unroll
    for (int h = 0; h < kEach; ++h)
#pragma unroll
      for (int e = 0; e < kValues; ++e) total[h][e] = chain == 0 ? sum[h][e] : total[h][e] + sum[h][e];
  }
#pragma unroll
  for (int h = 0; h < kEach; ++h) {
    const int head = first_head + my_heads + h;
    if (head >= a.heads) break;
    const float inverse = a.inverse[static_cast<std::int64_t>(block_y()) * a.heads + head];
#pragma unroll
    for (int e = 0; e < kValues; ++e) {
      const int d = first_dim + e / 4 * 4 * kSide + my_dim + e % 4;
      if (d < width) a.out.data[i * a.out.stride + head * width + d] = total[h][e] * inverse;
    }
  }
}

/// Of one chain, for 64 heads and kFewDims channels: weights, their sums over the rows, and, by the blocks of the first
/// channels, the sum of the weights and the largest score of every head.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2) sum_few_kernel(Attention a, PackedRows layout) {
  prefetch(a.sinks, a.heads);
  follow_launch();
  constexpr int kDims = kFewDims, kValues = kDims / kSide;
  LOCKSTEP_SHARED float weight[kHeads][kPitch];
  LOCKSTEP_SHARED float row[kChain][kDims];
  LOCKSTEP_SHARED float largest[kHeads];
  const int width = layout.width, chain = block_z(), chains = a.slots / kChain, wave_row = block_y();
  const int dim_groups = (width + kDims - 1) / kDims;
  const int first_dim = block_x() % dim_groups * kDims, first_head = block_x() / dim_groups * kHeads;
  const int i = a.first_row + wave_row, t = thread_index();
  const Query q = query_of(a, i);
  int used = used_from(a, q, chain * kChain);
  used = used < kChain ? used : kChain;
  if (used <= 0) return;
  const float* rows = a.rows + (static_cast<std::int64_t>(wave_row) * a.slots + chain * kChain) * a.pitch;
#pragma unroll
  for (int j = 4 * t; j < kChain * kDims; j += 4 * kThreads) {
    const int r = j / kDims, d = first_dim + j % kDims;
    const auto zero = Floats4{};
    *reinterpret_cast<Floats4*>(&row[r][j % kDims]) =
        r < used && d < a.pitch ? *reinterpret_cast<const Floats4*>(rows + r * a.pitch + d) : zero;
  }
  {
    constexpr int kShare = kThreads / kHeads;  // threads of a head
    const int h = t / kShare, head = first_head + h < a.heads ? first_head + h : a.heads - 1;
    const int tiles = a.slots / kFew;
    const float* from = a.tile_largest + static_cast<std::int64_t>(wave_row) * tiles * a.heads + head;
    float most = a.sinks[head];
#pragma unroll 4
    for (int tile = t % kShare; tile < tiles; tile += kShare) {
      const float other = used_from(a, q, tile * kFew) > 0 ? from[tile * a.heads] : most;
      most = other > most ? other : most;
    }
    for (int mask = kShare / 2; mask > 0; mask /= 2) {
      const float other = shuffle_xor(most, mask);
      most = other > most ? other : most;
    }
    if (t % kShare == 0) {
      largest[h] = most;
      if (chain == 0 && first_dim == 0 && first_head + h < a.heads) a.largest[wave_row * a.heads + head] = most;
    }
  }
  block_barrier();
  const float* scores = a.scores + static_cast<std::int64_t>(wave_row) * a.heads * a.slots + chain * kChain;
#pragma unroll
  for (int j = 4 * t; j < kHeads * kChain; j += 4 * kThreads) {
    const int h = j / kChain, s = j % kChain, head = first_head + h < a.heads ? first_head + h : a.heads - 1;
    Floats4 score = *reinterpret_cast<const Floats4*>(scores + head * a.slots + s);
#pragma unroll
    for (int e = 0; e < 4; ++e) score.value[e] = s + e < used ? exp_f32(score.value[e] - largest[h]) : 0.0f;
    *reinterpret_cast<Floats4*>(&weight[h][s]) = score;
  }
  block_barrier();
  if (first_dim == 0 && t < kHeads && first_head + t < a.heads) {
    float sum = 0;
#pragma unroll 8
    for (int s = 0; s < used; ++s) sum = sum + weight[t][s];
    a.chain_sums[(wave_row * chains + chain) * a.heads + first_head + t] = sum;
  }
  float sum[kEach][kValues] = {};
  const int my_heads = t / kSide * kEach, my_dim = t % kSide * 4;
  add_chain<kDims, kPitch>(sum, weight, row, used, my_heads, my_dim);
#pragma unroll
  for (int h = 0; h < kEach; ++h) {
    const int head = first_head + my_heads + h;
    if (head >= a.heads) break;
    float* to = a.parts + ((static_cast<std::int64_t>(wave_row) * chains + chain) * a.heads + head) * width;
#pragma unroll
    for (int e = 0; e < kValues; ++e) {
      const int d = first_dim + my_dim + e;
      if (d < width) to[d] = sum[h][e];
    }
  }
}

/// Adds the chains that were summed apart.
LOCKSTEP_KERNEL void meet_kernel(Attention a, PackedRows layout) {
  follow_launch();
  const int d = block_x() * block_threads() + thread_index(), wave_row = block_y(), i = a.first_row + wave_row;
  constexpr int kAtOnce = 10;
  const int width = a.heads * layout.width;
  if (d >= width) return;
  const Query q = query_of(a, i);
  const int chains = a.slots / kChain, head = d / layout.width;
  const float* parts = a.parts + static_cast<std::int64_t>(wave_row) * chains * width + d;
  const float* sums = a.chain_sums + wave_row * chains * a.heads + head;
  float denominator = exp_f32(a.sinks[head] - a.largest[wave_row * a.heads + head]), total = 0;
  for (int first = 0; first < chains; first += kAtOnce) {
    float part[kAtOnce], sum[kAtOnce];
    bool is_used[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {  // all reads are under way before the first is used
      const int chain = first + u;
      is_used[u] = chain < chains && used_from(a, q, chain * kChain) > 0;
      part[u] = is_used[u] ? parts[static_cast<std::int64_t>(chain) * width] : 0.0f;
      sum[u] = is_used[u] ? sums[chain * a.heads] : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (!is_used[u]) continue;
      total = first + u == 0 ? part[u] : total + part[u];
      denominator = denominator + sum[u];
    }
  }
  a.out.data[i * a.out.stride + d] = total * (1.0f / denominator);
}

int round_up(int value, int step) { return (value + step - 1) / step * step; }

int slots_of(const AttendCall& call) { return round_up(call.window, kChain) + round_up(call.bound, kChain); }

constexpr std::size_t kManyBytes = sizeof(float) * kChain * kManyDims;
constexpr int kFewRows = 8;  // up to so many rows of a wave are few

std::size_t few_bytes(int width) {
  const int chains = (width + kChain - 1) / kChain;
  return sizeof(float) * static_cast<std::size_t>(2 * kFew * (round_up(width, 4) + 4) + chains * kFew * kFew);
}

}  // namespace

std::size_t attend_scratch_floats(const AttendCall& call, int rows, const PackedRows& layout) {
  const std::size_t heads = static_cast<std::size_t>(call.queries.width / layout.width),
                    n = static_cast<std::size_t>(rows);
  const std::size_t slots = static_cast<std::size_t>(slots_of(call)), chains = slots / kChain;
  const std::size_t few = slots * static_cast<std::size_t>(round_up(layout.width, 4)) +
                          chains * static_cast<std::size_t>(call.queries.width) + heads * (slots / kFew + 1 + chains);
  return n * (heads * slots + heads + (rows <= kFewRows ? few : 0)) + 8 * kChain;
}

void attend(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
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
  const bool is_few = rows <= kFewRows && few_bytes(layout.width) <= kMostFewBytes &&
                      few_bytes(layout.width) + 1024 <= runtime.most_shared_bytes();
  a.has_aligned_queries = layout.width % 4 == 0 && a.queries.stride % 4 == 0;
  a.pitch = round_up(layout.width, 4);
  const std::int64_t wave = rows, chains = a.slots / kChain;
  const auto take = [&](std::int64_t floats) {  // pieces begin at multiples of 64 floats
    float* const piece = scratch;
    scratch += (floats + kChain - 1) / kChain * kChain;
    return piece;
  };
  a.scores = take(wave * a.heads * a.slots);
  a.inverse = take(wave * a.heads);
  if (is_few) {
    a.rows = take(wave * a.slots * a.pitch);
    a.parts = take(wave * chains * call.queries.width);
    a.tile_largest = take(wave * (a.slots / kFew) * a.heads);
    a.largest = take(wave * a.heads);
    a.chain_sums = take(wave * chains * a.heads);
  }

  const unsigned n = static_cast<unsigned>(rows), slots = static_cast<unsigned>(a.slots);
  const unsigned head_groups = blocks_for(a.heads, kHeads);
  if (is_few) {
    launch(runtime, score_few_kernel, {slots / kFew, blocks_for(a.heads, kFew), n}, kThreads, few_bytes(layout.width),
           a, layout);
    launch(runtime, sum_few_kernel, {blocks_for(layout.width, kFewDims) * head_groups, n, slots / kChain}, kThreads, 0,
           a, layout);
    launch(runtime, meet_kernel, {blocks_for(call.queries.width, kThreads), n}, kThreads, 0, a, layout);
    return;
  }
  launch(runtime, score_many_kernel, {slots / kChain, head_groups, n}, kThreads, 0, a, layout);
  launch(runtime, weight_kernel, {blocks_for(static_cast<std::int64_t>(rows) * a.heads, kThreads / kWarp)}, kThreads, 0,
         a);
  launch(runtime, sum_many_kernel, {blocks_for(layout.width, kManyDims) * head_groups, n}, kThreads, kManyBytes, a,
         layout);
}

void prepare_attend(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&score_few_kernel), kMostFewBytes);
  runtime.allow_shared(reinterpret_cast<const void*>(&sum_many_kernel), kManyBytes);
}

}  // namespace lockstep::gpu
