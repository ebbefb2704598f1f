// Kernels of the hyper-connections. Four streams, as the model has; their coefficients are 24 numbers a token.
#include "gpu/block_dot.h"
#include "gpu/kernels.h"
#include "gpu/round_kernel.h"
#include "gpu/split_streams.h"

namespace lockstep::gpu {
namespace {

constexpr unsigned kThreads = 256;

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
  LOCKSTEP_DYNAMIC_SHARED(float, collapsed);
  const int row = block_x(), t = thread_index(), width = out.width;
  const float* from = streams.data + row * streams.stride;
  const float* mix = mixes.data + row * mixes.stride;
  const float r = block_inverse_rms(from, streams.width, spec.norm_epsilon, scratch);
  if (t < kStreams) pre[t] = pre_coefficient(mix[t], r, scale[0], base[t], spec.epsilon);
  block_barrier();
#pragma unroll 2
  for (int d = t; d < width; d += block_threads()) {
    float sum = pre[0] * from[d];
#pragma unroll
    for (int s = 1; s < kStreams; ++s) sum = fma_f32(pre[s], from[s * width + d], sum);
    collapsed[d] = sum;
  }
  block_barrier();
  const float inverse = block_inverse_rms(collapsed, width, epsilon, scratch);
#pragma unroll 1
  for (int d = t; d < width; d += block_threads()) {
    const float unit = collapsed[d] * inverse;
    const float value = weight == nullptr ? unit : unit * weight[d];
    out.data[row * out.stride + d] = value;
    if (is_rounded) round_value(rounded, row, d, value);
  }
}

/// The float dot of a chunk of 4096 values, of which this block of a cluster of eight has those that make four of the
/// 32 lanes: the sum of the lanes, the same in every thread of the warp. `sums` [4] is in shared memory, and all blocks
/// have written theirs.
LOCKSTEP_DEVICE float fold_cluster(const float* sums) {
  const float value = cluster_value(sums + lane_index() % 4, lane_index() / 4);
  float column = shuffle(value, lane_index() % kColumns);
#pragma unroll
  for (int l = kColumns; l < kMaxLanes; l += kColumns) column = column + shuffle(value, lane_index() % kColumns + l);
  float total = shuffle(column, 0);
#pragma unroll
  for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, c);
  return total;
}

constexpr int kPieces = kChunk / (kOctet * kMaxLanes);  // of a row: every 256th value makes one partial sum
constexpr int kClusterBlocks = 8, kClusterThreads = 256;

/// Partial sums of the squares of 32 neighbouring columns, and from them four lanes' sums.
LOCKSTEP_DEVICE void square_lanes(float* sums, const float (*values)[kWarp]) {
  const int lane = lane_index();
  float partial = 0;
#pragma unroll
  for (int j = 0; j < kPieces; ++j) partial = fma_f32(values[j][lane], values[j][lane], partial);
  const int first = lane / kOctet * kOctet;
  float sum = shuffle(partial, first);
#pragma unroll
  for (int p = 1; p < kOctet; ++p) sum = sum + shuffle(partial, first + p);
  if (lane % kOctet == 0) sums[lane / kOctet] = sum;
}

/// coefficients_kernel where begin_cluster_kernel has left the streams' inverse root mean square in the last of the
/// coefficients: a warp a row, which finds room beside anything.
LOCKSTEP_KERNEL void split_kernel(Rows out, ConstRows mixes, const float* scale, const float* base, HyperSpec spec) {
  prefetch(scale, 3);
  prefetch(base, out.width);
  follow_launch();
  const int row = block_x();
  float* to = out.data + row * out.stride;
  const float r = to[out.width - 1];
  warp_barrier();
  split_streams(to, mixes.data + row * mixes.stride, r, scale, base, spec.epsilon, spec.iterations);
}

/// begin_kernel by eight blocks a row, for rows of 4096: one multiprocessor alone takes some 6 us to issue what there
/// is to do. Block b has channels 32 b to 32 b + 31 of every 256, so whole blocks of 32 to round, and four of the law's
/// 32 lanes, of each stream as well as of what they become.
LOCKSTEP_KERNEL void LOCKSTEP_CLUSTER(kClusterBlocks) LOCKSTEP_BOUNDS(kClusterThreads, 1)
    begin_cluster_kernel(Rows out, Rounded rounded, bool is_rounded, Rows coefficients, ConstRows mixes,
                         ConstRows streams, const float* scale, const float* base, HyperSpec spec, const float* weight,
                         float epsilon) {
  prefetch(weight, out.width);
  prefetch(scale, 3);
  prefetch(base, kStreams);
  follow_launch();
  LOCKSTEP_SHARED float x[kStreams][kPieces][kWarp];
  LOCKSTEP_SHARED float y[kPieces][kWarp];
  LOCKSTEP_SHARED float stream_sums[kStreams][4];
  LOCKSTEP_SHARED float sums[4];
  LOCKSTEP_SHARED float totals[kStreams];
  constexpr int kWarps = kClusterThreads / kWarp, kHalf = kPieces / 2;
  constexpr int kStep = kOctet * kMaxLanes;  // 256
  const int row = block_y(), t = thread_index(), warp = t / kWarp, lane = lane_index(),
            first = block_x() * kWarp + lane;
  const float mix = mixes.data[row * mixes.stride + lane % kStreams];
  {
    const int s = warp % kStreams, begin = warp / kStreams * kHalf;
    const float* from = streams.data + row * streams.stride + s * kChunk + first;
    float held[kHalf];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) held[j] = from[(begin + j) * kStep];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) x[s][begin + j][lane] = held[j];
  }
  block_barrier();
  if (warp < kStreams) square_lanes(stream_sums[warp], x[warp]);
  cluster_barrier();
  if (warp < kStreams) {
    const float total = fold_cluster(stream_sums[warp]);
    if (lane == 0) totals[warp] = total;
  }
  block_barrier();
  float all = totals[0];
#pragma unroll
  for (int s = 1; s < kStreams; ++s) all = all + totals[s];
  const float r = 1.0f / sqrt_f32(all / static_cast<float>(kStreams * kChunk) + spec.norm_epsilon);
  if (block_x() == 0 && t == 0) coefficients.data[row * coefficients.stride + coefficients.width - 1] = r;
  const float mine = pre_coefficient(mix, r, scale[0], base[lane % kStreams], spec.epsilon);
  float pre[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) pre[s] = shuffle(mine, s);
  float value[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int j = warp + i * kWarps;
    value[i] = pre[0] * x[0][j][lane];
#pragma unroll
    for (int s = 1; s < kStreams; ++s) value[i] = fma_f32(pre[s], x[s][j][lane], value[i]);
    y[j][lane] = value[i];
  }
  block_barrier();
  if (warp == 0) square_lanes(sums, y);
  cluster_barrier();
  const float inverse = 1.0f / sqrt_f32(fold_cluster(sums) / static_cast<float>(kChunk) + epsilon);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int d = (warp + i * kWarps) * kStep + first;
    const float unit = value[i] * inverse, result = weight == nullptr ? unit : unit * weight[d];
    out.data[row * out.stride + d] = result;
    if (is_rounded) round_value(rounded, row, d, result);
  }
  cluster_barrier();  // until here others read this block's sums
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

bool hyper_begin(Runtime& runtime, Rows out, const Rounded* rounded, Rows coefficients, ConstRows mixes,
                 ConstRows streams, const float* scale, const float* base, const HyperSpec& spec, const float* weight,
                 float epsilon) {
  if (runtime.has_clusters() && out.width == kChunk) {
    launch(runtime, begin_cluster_kernel, {kClusterBlocks, static_cast<unsigned>(out.rows)}, kClusterThreads, 0, out,
           rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, coefficients, mixes, streams, scale, base,
           spec, weight, epsilon);
    return true;
  }
  launch(runtime, begin_kernel, {static_cast<unsigned>(out.rows)}, static_cast<unsigned>(dot_threads(streams.width)),
         sizeof(float) * static_cast<std::size_t>(out.width), out, rounded != nullptr ? *rounded : Rounded(),
         rounded != nullptr, mixes, streams, scale, base, spec, weight, epsilon);
  return false;
}

void hyper_split(Runtime& runtime, Rows out, ConstRows mixes, const float* scale, const float* base,
                 const HyperSpec& spec) {
  launch(runtime, split_kernel, {static_cast<unsigned>(out.rows)}, kWarp, 0, out, mixes, scale, base, spec);
}

void hyper_expand(Runtime& runtime, Rows streams, ConstRows y, ConstRows coefficients) {
  launch(runtime, expand_kernel, grid_of(y.width, y.rows), kThreads, 0, streams, y, coefficients);
}

void hyper_spread(Runtime& runtime, Rows streams, ConstRows x) {
  launch(runtime, spread_kernel, grid_of(streams.width, streams.rows), kThreads, 0, streams, x);
}

}  // namespace lockstep::gpu
