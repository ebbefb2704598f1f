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
                                    const float** gate_rows) {
  const bool overlap = spec.ratio == 4;
  const int previous = overlap && c > 0 ? spec.ratio : 0, count = previous + spec.ratio;
  const float* ring = spec.is_key ? slice.key_pending : slice.pending;
  for (int j = thread_index(); j < count; j += block_threads()) {
    const Position p = c * spec.ratio - previous + j;
    const float *value, *gate;
    if (p >= slice.begin) {
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
  }
  return count;
}

LOCKSTEP_DEVICE float pool_channel(const float* const* values, const float* const* gates, int count, int d) {
  float largest = gates[0][d];
#pragma unroll 8
  for (int j = 1; j < count; ++j) {
    const float gate = gates[j][d];
    largest = largest < gate ? gate : largest;
  }
  float total = 0, total_weight = 0;
  for (int first = 0; first < count; first += kChain) {
    const int last = count < first + kChain ? count : first + kChain;
    float sum = 0, weights = 0;
#pragma unroll 4
    for (int j = first; j < last; ++j) {
      const float weight = exp_f32(gates[j][d] - largest);
      sum = fma_f32(weight, values[j][d], sum);
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

LOCKSTEP_KERNEL void compress_kernel(const SequenceSlice* slices, ConstRows values, ConstRows gates, Compressor spec,
                                     PackedRows layout) {
  prefetch(spec.norm, spec.width);
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  LOCKSTEP_SHARED const float* value_rows[kMostCandidates];
  LOCKSTEP_SHARED const float* gate_rows[kMostCandidates];
  LOCKSTEP_SHARED float row[kMostWidth];
  LOCKSTEP_SHARED float turned[kThreads];
  const SequenceSlice slice = slices[block_y()];
  const std::int64_t c = slice.begin / spec.ratio + block_x();
  if (c >= (slice.begin + slice.rows) / spec.ratio) return;
  const int count = find_candidates(slice, c, values, gates, spec, value_rows, gate_rows);
  block_barrier();
  for (int d = thread_index(); d < spec.width; d += block_threads())
    row[d] = pool_channel(value_rows, gate_rows, count, d);
  block_barrier();
  const float r = block_inverse_rms(row, spec.width, spec.epsilon, scratch);
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
    pack_key_by_block(out, row, spec.width, turned, layout);
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

/// The longest slice's rows.
int most_rows(const Slices& slices) {
  int most = 0;
  for (const SequenceSlice& slice : slices) most = slice.rows > most ? slice.rows : most;
  return most;
}

}  // namespace

void compress(Runtime& runtime, const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
              const PackedRows& layout) {
  LOCKSTEP_CHECK(spec.width <= kMostWidth && spec.width < 2048 && (!spec.is_key || spec.width <= kThreads));
  const Compressor compressor = {spec.ratio, spec.width,       spec.input_width(), spec.is_key,
                                 spec.norm,  spec.frequencies, spec.epsilon};
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
