// Kernels that fill the caches: compressed rows and keys, window rows, compressor inputs.
//
// A block makes one row. The grid has room for every window that a step of so many rows can complete; whether one is
// complete, and where its row belongs, is read from the slice in device memory, so that the grid does not depend on
// positions.
#include "base/error.h"
#include "gpu/block_dot.h"
#include "gpu/packed_row.h"
#include "gpu/round_kernel.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 256, kMostCandidates = 128, kMostWidth = 1024;

/// CompressorSpec as a kernel reads it.
struct Compressor {
  int ratio, width, input_width;
  bool is_key;
  const float* norm;
  const float* frequencies;
  float epsilon;
};

/// Pointers to the candidates of row c (ops/rows.h, pool_candidates), one a thread. Returns how many there are.
LOCKSTEP_DEVICE int find_candidates(const SequenceSlice& slice, std::int64_t c, const ConstRows& values,
                                    const ConstRows& gates, const Compressor& spec, const float** value_rows,
                                    const float** gate_rows, const float** bias_rows = nullptr,
                                    const ConstRows& biases = {}) {
  const bool overlap = spec.ratio == 4;
  const int previous = overlap && c > 0 ? spec.ratio : 0, count = previous + spec.ratio;
  const float* ring = spec.is_key ? slice.key_pending : slice.pending;
  for (int j = thread_index(); j < count; j += block_threads()) {
    const Position p = c * spec.ratio - previous + j;
    const float *value, *gate, *bias = nullptr;
    if (p >= slice.begin) {
      if (bias_rows != nullptr) bias = biases.data + p % biases.rows * biases.stride;
      const std::int64_t i = slice.first_row + (p - slice.begin);
      value = values.data + i * values.stride;
      gate = gates.data + i * gates.stride;
    } else {
      value = ring + p % slice.pending_slots * 2 * spec.input_width;
      gate = value + spec.input_width;
    }
    const int half = overlap && j >= previous ? spec.width : 0;
    value_rows[j] = value + half;
    gate_rows[j] = gate + half;
    if (bias_rows != nullptr) bias_rows[j] = bias == nullptr ? nullptr : bias + half;
  }
  return count;
}

/// What a block that makes a compressed row works in.
struct CompressRoom {
  DotScratch scratch;
  const float* values[kMostCandidates];
  const float* gates[kMostCandidates];
  const float* biases[kMostCandidates];  // still to be added to the gates, or null
  float row[kMostWidth];
  float turned[kThreads];
};

template <bool kHasBiases>
LOCKSTEP_DEVICE float pool_channel(const CompressRoom& room, int count, int d) {
  const auto gate_of = [&](int j) {
    const float gate = room.gates[j][d];
    if constexpr (kHasBiases) return room.biases[j] == nullptr ? gate : gate + room.biases[j][d];
    return gate;
  };
  float largest = gate_of(0);
#pragma unroll 8
  for (int j = 1; j < count; ++j) {
    const float gate = gate_of(j);
    largest = largest < gate ? gate : largest;
  }
  float total = 0, total_weight = 0;
  for (int first = 0; first < count; first += kChain) {
    const int last = count < first + kChain ? count : first + kChain;
    float sum = 0, weights = 0;
#pragma unroll 4
    for (int j = first; j < last; ++j) {
      const float weight = exp_f32(gate_of(j) - largest);
      sum = fma_f32(weight, room.values[j][d], sum);
      weights = weights + weight;
    }
    total = first == 0 ? sum : total + sum;
    total_weight = first == 0 ? weights : total_weight + weights;
  }
  return total / total_weight;
}

LOCKSTEP_DEVICE void turn_row(float* row, Position position, const Compressor& spec, int rotary) {
  for (int pair = thread_index(); pair < rotary / 2; pair += block_threads()) {
    const float angle = static_cast<float>(position) * spec.frequencies[pair];
    const SinCos turn = sin_cos(angle);
    float* at = row + spec.width - rotary + 2 * pair;
    const float a = at[0], b = at[1];
    at[0] = fma_f32(a, turn.cos, -(b * turn.sin));
    at[1] = fma_f32(a, turn.sin, b * turn.cos);
  }
}

/// Rounds and packs a key whose channels are in `row`.
LOCKSTEP_DEVICE void pack_key_by_block(std::uint8_t* out, float* row, int width, float* scratch,
                                       const PackedRows& layout) {
  const int t = thread_index();
  const float plain = t < width ? row[t] : 0.0f;
  if (layout.is_plain) {
    if (t < width) reinterpret_cast<float*>(out)[t] = plain;
    return;
  }
  const float value = hadamard_fp4_value(plain, width, scratch);
  const int exponent = fp4_exponent(warp_max(magnitude_bits(value)));
  const int code = fp4_code(value, exponent);
  const int next = shuffle(code, (lane_index() + 1) % kWarp);
  if (t >= width) return;
  if (t % 2 == 0) out[t / 2] = static_cast<std::uint8_t>(code | next << 4);
  if (t % kFp4Block == 0) out[width / 2 + t / kFp4Block] = exponent_to_e8m0(exponent);
}

/// Makes compressed row c of a slice, by a block. `biases` are those of the step's gates, if they are still to be
/// added.
template <bool kHasBiases>
LOCKSTEP_DEVICE void compress_row(CompressRoom& room, const SequenceSlice& slice, std::int64_t c,
                                  const ConstRows& values, const ConstRows& gates, const ConstRows& biases,
                                  const Compressor& spec, const PackedRows& layout) {
  float* const row = room.row;
  const int count = find_candidates(slice, c, values, gates, spec, room.values, room.gates,
                                    kHasBiases ? room.biases : nullptr, biases);
  block_barrier();
  for (int d = thread_index(); d < spec.width; d += block_threads()) row[d] = pool_channel<kHasBiases>(room, count, d);
  block_barrier();
  const float r = block_inverse_rms(row, spec.width, spec.epsilon, room.scratch);
  for (int d = thread_index(); d < spec.width; d += block_threads()) {
    const float unit = row[d] * r;
    row[d] = unit * spec.norm[d];
  }
  block_barrier();
  turn_row(row, c * spec.ratio, spec, layout.rotary);
  block_barrier();
  const std::int64_t page = c / kPageRows, in_page = c % kPageRows;
  if (spec.is_key) {
    auto* out = reinterpret_cast<std::uint8_t*>(slice.key_pages[page]) + in_page * layout.key_bytes;
    pack_key_by_block(out, row, spec.width, room.turned, layout);
    return;
  }
  if (!layout.is_plain) {
    const int channels = layout.width - layout.rotary;
    for (int block = thread_index() / kWarp; block < fp8_blocks(channels); block += block_threads() / kWarp)
      round_fp8_block(row, block * kFp8Block, channels);
    block_barrier();
  }
  pack_row_by_block(reinterpret_cast<std::uint8_t*>(slice.pages[page]) + in_page * layout.row_bytes, row, layout);
}

LOCKSTEP_KERNEL void compress_kernel(const SequenceSlice* slices, ConstRows values, ConstRows gates, Compressor spec,
                                     PackedRows layout) {
  prefetch(spec.norm, spec.width);
  follow_launch();
  LOCKSTEP_SHARED CompressRoom room;
  const SequenceSlice slice = slices[block_y()];
  const std::int64_t c = slice.begin / spec.ratio + block_x();
  if (c >= (slice.begin + slice.rows) / spec.ratio) return;
  compress_row<false>(room, slice, c, values, gates, {}, spec, layout);
}

/// Where the last rows of slice s begin in the stage, in rows.
template <bool kIsWindow>
LOCKSTEP_DEVICE int staged_before(const SequenceSlice* slices, int s) {
  int before = 0;
  for (int i = 0; i < s; ++i) {
    const int slots = kIsWindow ? slices[i].window_slots : slices[i].pending_slots;
    before += slices[i].rows < slots ? slices[i].rows : slots;
  }
  return before;
}

LOCKSTEP_KERNEL void pack_window_kernel(std::uint8_t* stage, const SequenceSlice* slices, ConstRows rows,
                                        PackedRows layout) {
  follow_launch();
  const SequenceSlice& slice = slices[block_y()];
  const int kept = slice.rows < slice.window_slots ? slice.rows : slice.window_slots, i = block_x();
  if (i >= kept) return;
  const std::int64_t from = slice.first_row + slice.rows - kept + i;
  const std::int64_t to = staged_before<true>(slices, block_y()) + i;
  pack_row_by_block(stage + to * layout.row_bytes, rows.data + from * rows.stride, layout);
}

LOCKSTEP_KERNEL void keep_pending_kernel(float* stage, const SequenceSlice* slices, ConstRows values, ConstRows gates) {
  follow_launch();
  const SequenceSlice& slice = slices[block_y()];
  const int kept = slice.rows < slice.pending_slots ? slice.rows : slice.pending_slots, i = block_x();
  if (i >= kept) return;
  const std::int64_t from = slice.first_row + slice.rows - kept + i;
  float* to = stage + static_cast<std::int64_t>(staged_before<false>(slices, block_y()) + i) * 2 * values.width;
  for (int d = thread_index(); d < values.width; d += block_threads()) {
    to[d] = values.data[from * values.stride + d];
    to[values.width + d] = gates.data[from * gates.stride + d];
  }
}

/// Ops::KeptRows as a kernel reads it.
struct Kept {
  Rows window_rows;
  const float* norm;
  float epsilon;
  ConstRows turns;
  int fp8_channels;
  std::uint8_t* stage;
  struct Part {
    ConstRows values, gates, biases;
    Compressor spec;
    float* stage;
    int windows;  // of a slice, at most
  } parts[2];
  int part_count;
  Rows head_weights;
  float head_scale;
  int slice_count;
};

/// Norm, rotation and packing of window row i, by a block, and the scale of its head weights.
LOCKSTEP_DEVICE void keep_window_row(const Kept& kept, const SequenceSlice* slices, int i, const PackedRows& layout,
                                     float* head, DotScratch& scratch) {
  int s = 0;
  while (s + 1 < kept.slice_count && slices[s + 1].first_row <= i) ++s;
  const SequenceSlice& slice = slices[s];
  const int width = layout.width, first_turned = width - kept.turns.width, t = thread_index();
  float* at = kept.window_rows.data + i * kept.window_rows.stride;
  const float* turns = kept.turns.data + i * kept.turns.stride;
  if (kept.head_weights.data != nullptr)
    for (int h = t; h < kept.head_weights.width; h += kThreads) {
      float& weight = kept.head_weights.data[i * kept.head_weights.stride + h];
      weight = weight * kept.head_scale;
    }
  for (int d = t; d < width; d += kThreads) head[d] = at[d];
  block_barrier();
  const float r = block_inverse_rms(head, width, kept.epsilon, scratch);
  const auto normed = [&](int d) {
    const float unit = head[d] * r;
    return kept.norm == nullptr ? unit : unit * kept.norm[d];
  };
  for (int d = t; d < first_turned; d += kThreads) head[d] = normed(d);
  for (int d = 2 * t; d < kept.turns.width; d += 2 * kThreads) {
    const float a = normed(first_turned + d), b = normed(first_turned + d + 1), c = turns[d], sine = turns[d + 1];
    head[first_turned + d] = fma_f32(a, c, -(b * sine));
    head[first_turned + d + 1] = fma_f32(a, sine, b * c);
  }
  block_barrier();
  if (kept.fp8_channels > 0) {
    for (int block = t / kWarp; block * kFp8Block < kept.fp8_channels; block += kThreads / kWarp)
      round_fp8_block(head, block * kFp8Block, kept.fp8_channels);
    block_barrier();
  }
  for (int d = t; d < width; d += kThreads) at[d] = head[d];
  const int window_rows = slice.rows < slice.window_slots ? slice.rows : slice.window_slots;
  const int place = i - slice.first_row - (slice.rows - window_rows);
  if (place >= 0)
    pack_row_by_block(kept.stage + static_cast<std::int64_t>(staged_before<true>(slices, s) + place) * layout.row_bytes,
                      head, layout);
}

/// Values and gates of row i, by a block.
LOCKSTEP_DEVICE void keep_pending_row(const Kept::Part& part, const SequenceSlice* slices, int slice_count, int i) {
  int s = 0;
  while (s + 1 < slice_count && slices[s + 1].first_row <= i) ++s;
  const SequenceSlice& slice = slices[s];
  const int rows = slice.rows < slice.pending_slots ? slice.rows : slice.pending_slots;
  const int place = i - slice.first_row - (slice.rows - rows), width = part.values.width;
  if (place < 0) return;
  const Position position = slice.begin + i - slice.first_row;
  const float* values = part.values.data + i * part.values.stride;
  const float* gates = part.gates.data + i * part.gates.stride;
  const float* biases = part.biases.data + position % part.biases.rows * part.biases.stride;
  float* to = part.stage + static_cast<std::int64_t>(staged_before<false>(slices, s) + place) * 2 * width;
  for (int d = thread_index(); d < width; d += kThreads) {
    to[d] = values[d];
    to[width + d] = gates[d] + biases[d];
  }
}

/// Ops::keep_rows of few rows: a block has a window row, a pending row, or a compressed row, in this order.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2)
    keep_rows_kernel(LOCKSTEP_PARAMETER Kept kept, const SequenceSlice* slices, PackedRows layout) {
  prefetch(kept.norm, layout.width);
  follow_launch();
  LOCKSTEP_SHARED CompressRoom room;
  const int rows = kept.window_rows.rows;
  int block = block_x();
  if (block < rows) return keep_window_row(kept, slices, block, layout, room.row, room.scratch);
  block -= rows;
  if (block < rows * kept.part_count)
    return keep_pending_row(kept.parts[block / rows], slices, kept.slice_count, block % rows);
  block -= rows * kept.part_count;
  int p = 0;
  while (block >= kept.parts[p].windows * kept.slice_count) block -= kept.parts[p++].windows * kept.slice_count;
  const Kept::Part& part = kept.parts[p];
  const SequenceSlice slice = slices[block / part.windows];
  const std::int64_t c = slice.begin / part.spec.ratio + block % part.windows;
  if (c >= (slice.begin + slice.rows) / part.spec.ratio) return;
  compress_row<true>(room, slice, c, part.values, part.gates, part.biases, part.spec, layout);
}

/// The longest slice's rows.
int most_rows(const Slices& slices) {
  int most = 0;
  for (const SequenceSlice& slice : slices) most = slice.rows > most ? slice.rows : most;
  return most;
}

Compressor compressor_of(const CompressorSpec& spec) {
  LOCKSTEP_CHECK(spec.width <= kMostWidth && spec.width < 2048 && (!spec.is_key || spec.width <= kThreads));
  return {spec.ratio, spec.width, spec.input_width(), spec.is_key, spec.norm, spec.frequencies, spec.epsilon};
}

}  // namespace

bool keep_rows_few(Runtime& runtime, const Ops::KeptRows& rows, const Slices& slices, const PackedRows& layout) {
  if (layout.width > kMostWidth) return false;
  Kept kept = {};
  kept.window_rows = rows.window_rows;
  kept.norm = rows.norm;
  kept.epsilon = rows.epsilon;
  kept.turns = rows.turns;
  kept.fp8_channels = rows.fp8_channels;
  kept.stage = reinterpret_cast<std::uint8_t*>(rows.stage);
  kept.part_count = rows.part_count;
  kept.head_weights = rows.head_weights;
  kept.head_scale = rows.head_scale;
  kept.slice_count = slices.size();
  int blocks = rows.window_rows.rows * (1 + rows.part_count);
  for (int p = 0; p < rows.part_count; ++p) {
    const Ops::KeptRows::Part& part = rows.parts[p];
    const int windows = most_rows(slices) / part.spec.ratio + 1;
    kept.parts[p] = {part.values, part.gates, part.biases, compressor_of(part.spec), part.stage, windows};
    blocks += windows * slices.size();
  }
  launch(runtime, keep_rows_kernel, {static_cast<unsigned>(blocks)}, kThreads, 0, kept, slices.memory, layout);
  return true;
}

void compress(Runtime& runtime, const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
              const PackedRows& layout) {
  const Compressor compressor = compressor_of(spec);
  const unsigned windows = static_cast<unsigned>(most_rows(slices) / spec.ratio + 1);
  launch(runtime, compress_kernel, {windows, static_cast<unsigned>(slices.size())}, kThreads, 0, slices.memory, values,
         gates, compressor, layout);
}

void pack_window(Runtime& runtime, std::byte* stage, const Slices& slices, ConstRows rows, const PackedRows& layout) {
  const int slots = slices.host[0].window_slots, most = most_rows(slices);
  launch(runtime, pack_window_kernel,
         {static_cast<unsigned>(most < slots ? most : slots), static_cast<unsigned>(slices.size())}, kThreads, 0,
         reinterpret_cast<std::uint8_t*>(stage), slices.memory, rows, layout);
}

void keep_pending(Runtime& runtime, float* stage, const Slices& slices, ConstRows values, ConstRows gates) {
  const int slots = slices.host[0].pending_slots, most = most_rows(slices);
  launch(runtime, keep_pending_kernel,
         {static_cast<unsigned>(most < slots ? most : slots), static_cast<unsigned>(slices.size())}, kThreads, 0, stage,
         slices.memory, values, gates);
}

}  // namespace lockstep::gpu
