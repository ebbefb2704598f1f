// Kernels of the ops that work row by row: norms, roundings, rotations, experts' choice and sum.
//
// What comes before a large product lets it begin late: its blocks would take all places while they wait, and what runs
// beside (Ops::run_both) would find none.
//
// All are bound by memory or, at one token, by the launch; so each reads and writes every value once, and what follows
// a norm or an activation is rounded in the same kernel. Every expression is the one of ops/rows.h or ops/reference.cc.
#include "gpu/block_dot.h"
#include "gpu/kernels.h"
#include "gpu/round_kernel.h"
#include "gpu/route.h"
#include "numerics/functions.h"
#include "ops/rows.h"

namespace lockstep::gpu {
namespace {

LOCKSTEP_KERNEL void round_kernel(Rounded out, ConstRows x) {
  follow_launch();
  const std::int64_t warp = (static_cast<std::int64_t>(block_x()) * block_threads() + thread_index()) / kWarp;
  const int blocks = x.width / kBlock;
  const int row = static_cast<int>(warp / blocks), block = static_cast<int>(warp % blocks);
  if (row >= x.rows) return;
  const int i = block * kBlock + lane_index();
  round_value(out, row, i, x.data[row * x.stride + i]);
}

LOCKSTEP_KERNEL void rms_norm_kernel(Rows out, Rounded rounded, bool is_rounded, ConstRows x, const float* weight,
                                     float epsilon) {
  prefetch(weight, x.width);
  wait_for_launch_before();  // and lets the next one, which is large, begin no sooner than it ends
  LOCKSTEP_SHARED DotScratch scratch;
  const int row = block_x();
  const float* from = x.data + row * x.stride;
  float* to = out.data + row * out.stride;
  const float r = block_inverse_rms(from, x.width, epsilon, scratch);
#pragma unroll 1
  for (int i = thread_index(); i < x.width; i += block_threads()) {
    const float unit = from[i] * r;
    const float value = weight == nullptr ? unit : unit * weight[i];
    to[i] = value;
    if (is_rounded) round_value(rounded, row, i, value);
  }
}

constexpr int kNarrow = 1024, kNarrowThreads = 256, kNarrowHeld = kNarrow / kNarrowThreads;

/// The same of rows of kNarrow values, whose dot has eight lanes: every warp makes all of it, so that none waits for
/// another's sums, and then has four blocks of 32.
LOCKSTEP_KERNEL void rms_norm_narrow_kernel(Rows out, Rounded rounded, bool is_rounded, ConstRows x,
                                            const float* weight, float epsilon) {
  const int row = block_x(), lane = lane_index(), first = thread_index() / kWarp * kWarp * kNarrowHeld + lane;
  float factor[kNarrowHeld] = {};
#pragma unroll
  for (int i = 0; i < kNarrowHeld; ++i) factor[i] = weight != nullptr ? weight[first + i * kWarp] : 1.0f;
  wait_for_launch_before();  // and lets the next one, which is large, begin no sooner than it ends
  const float* from = x.data + row * x.stride;
  float own[kNarrowHeld], low = 0, high = 0;  // partial sums of places `lane` and lane + 32 of 64
#pragma unroll
  for (int i = 0; i < kNarrowHeld; ++i) own[i] = from[first + i * kWarp];
#pragma unroll
  for (int k = lane; k < kNarrow; k += 2 * kWarp) {
    const float a = from[k], b = from[k + kWarp];
    low = fma_f32(a, a, low);
    high = fma_f32(b, b, high);
  }
  block_barrier();  // all have read: x and out may be the same
  const float r = 1.0f / sqrt_f32(fold_64(low, high) / static_cast<float>(kNarrow) + epsilon);
#pragma unroll
  for (int i = 0; i < kNarrowHeld; ++i) {
    const float unit = own[i] * r, value = weight == nullptr ? unit : unit * factor[i];
    out.data[row * out.stride + first + i * kWarp] = value;
    if (is_rounded) round_value(rounded, row, first + i * kWarp, value);
  }
}

LOCKSTEP_KERNEL void rotation_table_kernel(Rows out, const Position* positions, const float* frequencies) {
  follow_launch();
  const int pairs = out.width / 2;
  const int item = block_x() * block_threads() + thread_index();
  const int row = item / pairs, pair = item % pairs;
  if (row >= out.rows) return;
  const float angle = static_cast<float>(positions[row]) * frequencies[pair];
  const SinCos turn = sin_cos(angle);
  out.data[row * out.stride + 2 * pair] = turn.cos;
  out.data[row * out.stride + 2 * pair + 1] = turn.sin;
}

LOCKSTEP_KERNEL void rotate_kernel(Rows x, int head_width, ConstRows table, bool inverse) {
  follow_launch();
  const int pairs = table.width / 2, heads = x.width / head_width;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const int pair = static_cast<int>(item % pairs), head = static_cast<int>(item / pairs % heads);
  const int row = static_cast<int>(item / pairs / heads);
  if (row >= x.rows) return;
  const float c = table.data[row * table.stride + 2 * pair], sine = table.data[row * table.stride + 2 * pair + 1];
  const float s = inverse ? -sine : sine;
  float* at = x.data + row * x.stride + head * head_width + head_width - table.width + 2 * pair;
  const float a = at[0], b = at[1];
  at[0] = fma_f32(a, c, -(b * s));
  at[1] = fma_f32(a, s, b * c);
}

/// A block a row; neighbouring threads hold the pairs, warps the blocks of 32.
LOCKSTEP_KERNEL void rotate_round_kernel(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  follow_launch();
  const int row = block_y(), i = block_x() * block_threads() + thread_index();
  if (i >= x.width) return;  // whole warps
  float* at = x.data + row * x.stride + i;
  float value = *at;
  const float other = shuffle_xor(value, 1);
  const int channel = i % head_width - (head_width - table.width);
  if (channel >= 0) {
    const float* turn = table.data + row * table.stride + channel / 2 * 2;
    const float c = turn[0], s = inverse ? -turn[1] : turn[1];
    value = channel % 2 == 0 ? fma_f32(value, c, -(other * s)) : fma_f32(other, s, value * c);
    *at = value;
  }
  round_value(rounded, row, i, value);
}

inline constexpr int kMostHeadWidth = 1024;

/// A block a head.
LOCKSTEP_KERNEL void norm_rotate_kernel(Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                                        int fp8_channels) {
  prefetch(weight, head_width);
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  LOCKSTEP_SHARED float head[kMostHeadWidth];
  float* at = x.data + block_y() * x.stride + block_x() * head_width;
  const float* turns = table.data + block_y() * table.stride;
  const int threads = block_threads(), first_turned = head_width - table.width;
  for (int i = thread_index(); i < head_width; i += threads) head[i] = at[i];
  block_barrier();
  const float r = block_inverse_rms(head, head_width, epsilon, scratch);
  const auto normed = [&](int i) {
    const float unit = head[i] * r;
    return weight == nullptr ? unit : unit * weight[i];
  };
  for (int i = thread_index(); i < first_turned; i += threads) head[i] = normed(i);
  for (int i = 2 * thread_index(); i < table.width; i += 2 * threads) {
    const float a = normed(first_turned + i), b = normed(first_turned + i + 1), c = turns[i], s = turns[i + 1];
    head[first_turned + i] = fma_f32(a, c, -(b * s));
    head[first_turned + i + 1] = fma_f32(a, s, b * c);
  }
  block_barrier();
  if (fp8_channels > 0) {
    for (int block = thread_index() / kWarp; block * kFp8Block < fp8_channels; block += threads / kWarp)
      round_fp8_block(head, block * kFp8Block, fp8_channels);
    block_barrier();
  }
  for (int i = thread_index(); i < head_width; i += threads) at[i] = head[i];
}

LOCKSTEP_KERNEL void rotate_hadamard_kernel(Rows x, int head_width, ConstRows table) {
  follow_launch();
  LOCKSTEP_SHARED float values[kMostHeadWidth];
  const int i = thread_index(), channel = i - (head_width - table.width);
  float* at = x.data + block_y() * x.stride + block_x() * head_width + i;
  float value = *at;
  const float other = shuffle_xor(value, 1);
  if (channel >= 0) {
    const float* turn = table.data + block_y() * table.stride + channel / 2 * 2;
    const float c = turn[0], s = turn[1];
    value = channel % 2 == 0 ? fma_f32(value, c, -(other * s)) : fma_f32(other, s, value * c);
  }
  *at = hadamard_fp4_value(value, head_width, values);
}

LOCKSTEP_KERNEL void add_by_position_kernel(Rows x, ConstRows table, const Position* positions) {
  follow_launch();
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const int row = static_cast<int>(item / x.width), d = static_cast<int>(item % x.width);
  if (row >= x.rows) return;
  float& value = x.data[row * x.stride + d];
  value = value + table.data[positions[row] % table.rows * table.stride + d];
}

LOCKSTEP_KERNEL void round_fp8_kernel(Rows x, int channels) {
  follow_launch();
  const int blocks = (channels + kFp8Block - 1) / kFp8Block;
  const std::int64_t warp = (static_cast<std::int64_t>(block_x()) * block_threads() + thread_index()) / kWarp;
  const int row = static_cast<int>(warp / blocks);
  if (row >= x.rows) return;
  round_fp8_block(x.data + row * x.stride, static_cast<int>(warp % blocks) * kFp8Block, channels);
}

LOCKSTEP_KERNEL void hadamard_fp4_kernel(Rows x, int head_width) {
  follow_launch();
  LOCKSTEP_SHARED float values[1024];
  const int heads = x.width / head_width, row = block_x() / heads, head = block_x() % heads;
  float* at = x.data + row * x.stride + head * head_width + thread_index();
  *at = hadamard_fp4_value(*at, head_width, values);
}

LOCKSTEP_KERNEL void scale_kernel(Rows x, float factor) {
  follow_launch();
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const int row = static_cast<int>(item / x.width), d = static_cast<int>(item % x.width);
  if (row < x.rows) x.data[row * x.stride + d] = x.data[row * x.stride + d] * factor;
}

LOCKSTEP_KERNEL void swiglu_kernel(Rows out, Rounded rounded, bool is_rounded, ConstRows gate, ConstRows up,
                                   const float* row_weights, float limit) {
  follow_launch();
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const int row = static_cast<int>(item / out.width), d = static_cast<int>(item % out.width);
  if (row >= out.rows) return;  // whole warps: a rounded width is a multiple of 32
  float value = swiglu_value(gate.data[row * gate.stride + d], up.data[row * up.stride + d], limit);
  if (row_weights != nullptr) value = value * row_weights[row];
  out.data[row * out.stride + d] = value;
  if (is_rounded) round_value(rounded, row, d, value);
}

/// The slots of a row in order of expert, then of slot.
LOCKSTEP_DEVICE void sort_slots(int* slots, const std::int32_t* expert, int used) {
  if (thread_index() < used) {
    const int mine = thread_index();
    int rank = 0;
    for (int s = 0; s < used; ++s)
      if (expert[s] < expert[mine] || (expert[s] == expert[mine] && s < mine)) ++rank;
    slots[rank] = mine;
  }
  block_barrier();
}

/// combine_experts, and hyper_expand by the sum where it stands.
LOCKSTEP_KERNEL void combine_expand_kernel(Rows streams, int width, ConstRows parts, Route route, ConstRows shared,
                                           ConstRows coefficients) {
  follow_launch();
  constexpr int kStreams = 4;
  LOCKSTEP_SHARED int slots[kMostUsed];
  const int row = block_y(), used = route.used;
  sort_slots(slots, route.expert + static_cast<std::int64_t>(row) * used, used);
  const int d = block_x() * block_threads() + thread_index();
  if (d >= width) return;
  const std::int64_t first = static_cast<std::int64_t>(row) * used;
  float y = parts.data[(first + slots[0]) * parts.stride + d];
  for (int s = 1; s < used; ++s) y = y + parts.data[(first + slots[s]) * parts.stride + d];
  y = y + shared.data[row * shared.stride + d];
  const float* post = coefficients.data + row * coefficients.stride + kStreams;
  const float* comb = post + kStreams;
  float* at = streams.data + row * streams.stride + d;
  float before[kStreams];
  for (int j = 0; j < kStreams; ++j) before[j] = at[j * width];
  for (int q = 0; q < kStreams; ++q) {
    float sum = post[q] * y;
    for (int j = 0; j < kStreams; ++j) sum = fma_f32(comb[j * kStreams + q], before[j], sum);
    at[q * width] = sum;
  }
}

LOCKSTEP_KERNEL void combine_experts_kernel(Rows out, ConstRows parts, Route route, ConstRows shared) {
  follow_launch();
  LOCKSTEP_SHARED int slots[kMostUsed];
  const int row = block_y(), used = route.used;
  sort_slots(slots, route.expert + static_cast<std::int64_t>(row) * used, used);
  const int d = block_x() * block_threads() + thread_index();
  if (d >= out.width) return;
  const std::int64_t first = static_cast<std::int64_t>(row) * used;
  float sum = parts.data[(first + slots[0]) * parts.stride + d];
  for (int s = 1; s < used; ++s) sum = sum + parts.data[(first + slots[s]) * parts.stride + d];
  out.data[row * out.stride + d] = sum + shared.data[row * shared.stride + d];
}

inline constexpr int kMostExperts = 1024, kRouteThreads = 256, kHeldExperts = kMostExperts / kWarp;

/// One block a row; the first warp chooses.
template <int kHeld>
LOCKSTEP_KERNEL void route_kernel(Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                                  const Token* tokens, float route_scale) {
  prefetch(bias, logits.width);
  wait_for_launch_before();  // and lets the next one, which is large, begin no sooner than it ends
  LOCKSTEP_SHARED std::uint32_t keys[kHeld * kWarp];
  LOCKSTEP_SHARED float scores[kHeld * kWarp];
  LOCKSTEP_SHARED std::int32_t chosen[kMostUsed];
  const int row = block_x(), experts = logits.width;
  for (int e = thread_index(); e < experts; e += block_threads()) {
    const float score = sqrt_softplus_f32(logits.data[row * logits.stride + e]);
    scores[e] = score;
    keys[e] = route_key(score, bias, e);
  }
  block_barrier();
  if (thread_index() >= kWarp) return;
  choose_by_warp<kHeld>(
      route, row, chosen, [&](int e) { return keys[e]; }, [&](int e) { return scores[e]; }, experts, table, tokens,
      route_scale);
}

LOCKSTEP_KERNEL void gather_kernel(Rows out, ConstRows x, const std::int32_t* rows) {
  follow_launch();
  const int d = block_x() * block_threads() + thread_index();
  if (d < out.width) out.data[block_y() * out.stride + d] = x.data[rows[block_y()] * x.stride + d];
}

LOCKSTEP_KERNEL void copy_kernel(const Ops::Copy* copies) {
  follow_launch();
  const Ops::Copy copy = copies[block_x()];
  const auto address = reinterpret_cast<std::uintptr_t>(copy.to) | reinterpret_cast<std::uintptr_t>(copy.from);
  const int thread = thread_index(), threads = block_threads();
  if ((address | copy.bytes) % 16 == 0) {
    const int n = static_cast<int>(copy.bytes / 16);
    for (int i = thread; i < n; i += threads)
      static_cast<Words4*>(copy.to)[i] = static_cast<const Words4*>(copy.from)[i];
  } else {
    const int n = static_cast<int>(copy.bytes);
    for (int i = thread; i < n; i += threads)
      static_cast<std::uint8_t*>(copy.to)[i] = static_cast<const std::uint8_t*>(copy.from)[i];
  }
}

constexpr unsigned kThreads = 256;

/// Threads for a row of a norm: what the dot needs, or more, so that what follows has few values a thread.
unsigned row_threads(int width) {
  const int group = group_threads(width), needed = dot_threads(width);
  const int wanted = (width / 2 + group - 1) / group * group;
  return static_cast<unsigned>(wanted < needed ? needed : wanted > 1024 ? 1024 : wanted);
}

unsigned grid_of(const ConstRows& x) { return blocks_for(static_cast<std::int64_t>(x.rows) * x.width, kThreads); }

}  // namespace

void round(Runtime& runtime, Rounded out, ConstRows x) {
  launch(runtime, round_kernel, {grid_of(x)}, kThreads, 0, out, x);
}

void rms_norm(Runtime& runtime, Rows out, const Rounded* rounded, ConstRows x, const float* weight, float epsilon) {
  if (x.width == kNarrow)
    return launch(runtime, rms_norm_narrow_kernel, {static_cast<unsigned>(x.rows)}, kNarrowThreads, 0, out,
                  rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, x, weight, epsilon);
  launch(runtime, rms_norm_kernel, {static_cast<unsigned>(x.rows)}, row_threads(x.width), 0, out,
         rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, x, weight, epsilon);
}

void rotation_table(Runtime& runtime, Rows out, const Position* positions, const float* frequencies) {
  launch(runtime, rotation_table_kernel, {blocks_for(static_cast<std::int64_t>(out.rows) * (out.width / 2), 64)}, 64, 0,
         out, positions, frequencies);
}

void rotate(Runtime& runtime, Rows x, int head_width, ConstRows table, bool inverse) {
  const std::int64_t items = static_cast<std::int64_t>(x.rows) * (x.width / head_width) * (table.width / 2);
  launch(runtime, rotate_kernel, {blocks_for(items, kThreads)}, kThreads, 0, x, head_width, table, inverse);
}

void rotate_round(Runtime& runtime, Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  launch(runtime, rotate_round_kernel, {blocks_for(x.width, kThreads), static_cast<unsigned>(x.rows)}, kThreads, 0, x,
         rounded, head_width, table, inverse);
}

void norm_rotate(Runtime& runtime, Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                 int fp8_channels) {
  launch(runtime, norm_rotate_kernel, {static_cast<unsigned>(x.width / head_width), static_cast<unsigned>(x.rows)},
         row_threads(head_width), 0, x, head_width, weight, epsilon, table, fp8_channels);
}

void rotate_hadamard_fp4(Runtime& runtime, Rows x, int head_width, ConstRows table) {
  launch(runtime, rotate_hadamard_kernel, {static_cast<unsigned>(x.width / head_width), static_cast<unsigned>(x.rows)},
         static_cast<unsigned>(head_width), 0, x, head_width, table);
}

void add_by_position(Runtime& runtime, Rows x, ConstRows table, const Position* positions) {
  launch(runtime, add_by_position_kernel, {grid_of(x)}, kThreads, 0, x, table, positions);
}

void round_fp8(Runtime& runtime, Rows x, int channels) {
  const int blocks = (channels + kFp8Block - 1) / kFp8Block;
  launch(runtime, round_fp8_kernel, {blocks_for(static_cast<std::int64_t>(x.rows) * blocks, kThreads / kWarp)},
         kThreads, 0, x, channels);
}

void hadamard_fp4(Runtime& runtime, Rows x, int head_width) {
  const unsigned heads = static_cast<unsigned>(x.rows) * static_cast<unsigned>(x.width / head_width);
  launch(runtime, hadamard_fp4_kernel, {heads}, static_cast<unsigned>(head_width), 0, x, head_width);
}

void scale(Runtime& runtime, Rows x, float factor) {
  launch(runtime, scale_kernel, {grid_of(x)}, kThreads, 0, x, factor);
}

void swiglu(Runtime& runtime, Rows out, const Rounded* rounded, ConstRows gate, ConstRows up, const float* row_weights,
            float limit) {
  launch(runtime, swiglu_kernel, {grid_of(out)}, kThreads, 0, out, rounded != nullptr ? *rounded : Rounded(),
         rounded != nullptr, gate, up, row_weights, limit);
}

void combine_experts(Runtime& runtime, Rows out, ConstRows parts, const Route& route, ConstRows shared) {
  launch(runtime, combine_experts_kernel, {blocks_for(out.width, kThreads), static_cast<unsigned>(out.rows)}, kThreads,
         0, out, parts, route, shared);
}

void combine_expand(Runtime& runtime, Rows streams, ConstRows parts, const Route& route, ConstRows shared,
                    ConstRows coefficients) {
  launch(runtime, combine_expand_kernel, {blocks_for(shared.width, kThreads), static_cast<unsigned>(shared.rows)},
         kThreads, 0, streams, shared.width, parts, route, shared, coefficients);
}

void route_experts(Runtime& runtime, Route route, ConstRows logits, const float* bias, const std::int32_t* table,
                   const Token* tokens, float route_scale) {
  const auto kernel = logits.width <= 256 ? route_kernel<256 / kWarp> : route_kernel<kHeldExperts>;
  launch(runtime, kernel, {static_cast<unsigned>(route.rows)}, kRouteThreads, 0, route, logits, bias, table, tokens,
         route_scale);
}

void gather(Runtime& runtime, Rows out, ConstRows x, const std::int32_t* rows) {
  launch(runtime, gather_kernel, {blocks_for(out.width, kThreads), static_cast<unsigned>(out.rows)}, kThreads, 0, out,
         x, rows);
}

void copy(Runtime& runtime, const Ops::Copy* memory, int count) {
  launch(runtime, copy_kernel, {static_cast<unsigned>(count)}, 128, 0, memory);
}

}  // namespace lockstep::gpu
