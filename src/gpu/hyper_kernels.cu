// Kernels of the hyper-connections. Four streams, as the model has; their coefficients are 24 numbers a token.
#include "gpu/block_dot.h"
#include "gpu/kernels.h"
#include "gpu/round_kernel.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

constexpr int kStreams = 4;
constexpr unsigned kThreads = 256;

LOCKSTEP_DEVICE float pre_coefficient(float mix, float r, float scale, float base, float epsilon) {
  return sigmoid_f32((mix * r) * scale + base) + epsilon;
}

/// The split of one row by one warp: thread l < 16 holds the comb's entry from stream l / 4 to stream l % 4. Every sum
/// is the one of ops/rows.h: four terms in ascending order. (It begins with zero there, which changes no sum of what is
/// never -0.)
LOCKSTEP_DEVICE void split_streams(float* out, const float* mixes, float r, const float* scale, const float* base,
                                   float epsilon, int iterations) {
  const int l = lane_index();
  if (l < kStreams) out[l] = pre_coefficient(mixes[l], r, scale[0], base[l], epsilon);
  if (l >= kStreams && l < 2 * kStreams) out[l] = 2.0f * sigmoid_f32((mixes[l] * r) * scale[1] + base[l]);
  const int entry = l % (kStreams * kStreams), i = 2 * kStreams + entry;
  const int row = entry / kStreams * kStreams, column = entry % kStreams;  // first threads of this row and column
  float value = (mixes[i] * r) * scale[2] + base[i];
  float largest = shuffle(value, row);
  for (int q = 1; q < kStreams; ++q) {
    const float other = shuffle(value, row + q);
    largest = largest < other ? other : largest;
  }
  value = exp_f32(value - largest);
  const auto sum_of = [&](int first, int step) {
    float sum = shuffle(value, first);
    for (int k = 1; k < kStreams; ++k) sum = sum + shuffle(value, first + k * step);
    return sum;
  };
  value = value / sum_of(row, 1) + epsilon;
  value = value / (sum_of(column, kStreams) + epsilon);
  for (int iteration = 1; iteration < iterations; ++iteration) {
    value = value / (sum_of(row, 1) + epsilon);
    value = value / (sum_of(column, kStreams) + epsilon);
  }
  if (l < kStreams * kStreams) out[2 * kStreams + l] = value;
}

LOCKSTEP_KERNEL void coefficients_kernel(Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                                         const float* base, HyperSpec spec) {
  prefetch(scale, 3);
  prefetch(base, out.width);
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  const int row = block_x();
  const float r = block_inverse_rms(streams.data + row * streams.stride, streams.width, spec.norm_epsilon, scratch);
  if (thread_index() < kWarp)
    split_streams(out.data + row * out.stride, mixes.data + row * mixes.stride, r, scale, base, spec.epsilon,
                  spec.iterations);
}

LOCKSTEP_KERNEL void head_coefficients_kernel(Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                                              const float* base, HyperSpec spec) {
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  const int row = block_x(), s = thread_index();
  const float r = block_inverse_rms(streams.data + row * streams.stride, streams.width, spec.norm_epsilon, scratch);
  if (s < spec.streams)
    out.data[row * out.stride + s] =
        pre_coefficient(mixes.data[row * mixes.stride + s], r, scale[0], base[s], spec.epsilon);
}

LOCKSTEP_KERNEL void collapse_kernel(Rows out, ConstRows streams, ConstRows coefficients, int count) {
  follow_launch();
  const int d = block_x() * block_threads() + thread_index(), row = block_y();
  if (d >= out.width) return;
  const float* pre = coefficients.data + row * coefficients.stride;
  const float* from = streams.data + row * streams.stride + d;
  float sum = pre[0] * from[0];
  for (int s = 1; s < count; ++s) sum = fma_f32(pre[s], from[s * out.width], sum);
  out.data[row * out.stride + d] = sum;
}

/// Collapse, norm and rounding of one row by one block, for which only the first coefficients are needed. All of them,
/// with their Sinkhorn iterations, take about as long: coefficients_kernel, which can run beside this one.
LOCKSTEP_KERNEL void begin_kernel(Rows out, Rounded rounded, bool is_rounded, ConstRows mixes, ConstRows streams,
                                  const float* scale, const float* base, HyperSpec spec, const float* weight,
                                  float epsilon) {
  prefetch(weight, out.width);
  prefetch(scale, 3);
  prefetch(base, kStreams);
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  LOCKSTEP_SHARED float pre[kStreams];
  extern LOCKSTEP_SHARED float collapsed[];
  const int row = block_x(), t = thread_index(), width = out.width;
  const float* from = streams.data + row * streams.stride;
  const float* mix = mixes.data + row * mixes.stride;
  const float r = block_inverse_rms(from, streams.width, spec.norm_epsilon, scratch);
  if (t < kStreams) pre[t] = pre_coefficient(mix[t], r, scale[0], base[t], spec.epsilon);
  block_barrier();
#pragma unroll 4
  for (int d = t; d < width; d += block_threads()) {
    float sum = pre[0] * from[d];
#pragma unroll
    for (int s = 1; s < kStreams; ++s) sum = fma_f32(pre[s], from[s * width + d], sum);
    collapsed[d] = sum;
  }
  block_barrier();
  const float inverse = block_inverse_rms(collapsed, width, epsilon, scratch);
#pragma unroll 4
  for (int d = t; d < width; d += block_threads()) {
    const float unit = collapsed[d] * inverse;
    const float value = weight == nullptr ? unit : unit * weight[d];
    out.data[row * out.stride + d] = value;
    if (is_rounded) round_value(rounded, row, d, value);
  }
}

LOCKSTEP_KERNEL void expand_kernel(Rows streams, ConstRows y, ConstRows coefficients) {
  follow_launch();
  const int d = block_x() * block_threads() + thread_index(), row = block_y();
  if (d >= y.width) return;
  const float* post = coefficients.data + row * coefficients.stride + kStreams;
  const float* comb = post + kStreams;
  float* at = streams.data + row * streams.stride + d;
  const float added = y.data[row * y.stride + d];
  float before[kStreams];
  for (int j = 0; j < kStreams; ++j) before[j] = at[j * y.width];
  for (int q = 0; q < kStreams; ++q) {
    float sum = post[q] * added;
    for (int j = 0; j < kStreams; ++j) sum = fma_f32(comb[j * kStreams + q], before[j], sum);
    at[q * y.width] = sum;
  }
}

LOCKSTEP_KERNEL void spread_kernel(Rows streams, ConstRows x) {
  follow_launch();
  const int d = block_x() * block_threads() + thread_index(), row = block_y();
  if (d < streams.width) streams.data[row * streams.stride + d] = x.data[row * x.stride + d % x.width];
}

Grid grid_of(int width, int rows) { return {blocks_for(width, kThreads), static_cast<unsigned>(rows)}; }

}  // namespace

void hyper_coefficients(Runtime& runtime, Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                        const float* base, const HyperSpec& spec) {
  launch(runtime, coefficients_kernel, {static_cast<unsigned>(out.rows)},
         static_cast<unsigned>(dot_threads(streams.width)), 0, out, mixes, streams, scale, base, spec);
}

void hyper_head_coefficients(Runtime& runtime, Rows out, ConstRows mixes, ConstRows streams, const float* scale,
                             const float* base, const HyperSpec& spec) {
  launch(runtime, head_coefficients_kernel, {static_cast<unsigned>(out.rows)},
         static_cast<unsigned>(dot_threads(streams.width)), 0, out, mixes, streams, scale, base, spec);
}

void hyper_collapse(Runtime& runtime, Rows out, ConstRows streams, ConstRows coefficients) {
  launch(runtime, collapse_kernel, grid_of(out.width, out.rows), kThreads, 0, out, streams, coefficients,
         streams.width / out.width);
}

void hyper_begin(Runtime& runtime, Rows out, const Rounded* rounded, ConstRows mixes, ConstRows streams,
                 const float* scale, const float* base, const HyperSpec& spec, const float* weight, float epsilon) {
  launch(runtime, begin_kernel, {static_cast<unsigned>(out.rows)}, static_cast<unsigned>(dot_threads(streams.width)),
         sizeof(float) * static_cast<std::size_t>(out.width), out, rounded != nullptr ? *rounded : Rounded(),
         rounded != nullptr, mixes, streams, scale, base, spec, weight, epsilon);
}

void hyper_expand(Runtime& runtime, Rows streams, ConstRows y, ConstRows coefficients) {
  launch(runtime, expand_kernel, grid_of(y.width, y.rows), kThreads, 0, streams, y, coefficients);
}

void hyper_spread(Runtime& runtime, Rows streams, ConstRows x) {
  launch(runtime, spread_kernel, grid_of(streams.width, streams.rows), kThreads, 0, streams, x);
}

}  // namespace lockstep::gpu
