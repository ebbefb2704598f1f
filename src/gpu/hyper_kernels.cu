// Kernels of the hyper-connections. Four streams, as the model has; their coefficients are 24 numbers a token.
#include "gpu/block_dot.h"
#include "gpu/kernels.h"
#include "gpu/matmul.h"
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

constexpr int kPieces = kChunk / (kOctet * kMaxLanes);  // of a row: every 256th value makes one partial sum
constexpr int kClusterBlocks = 8, kClusterThreads = 256;
constexpr int kClusterMixes = 4;  // rows of the mixes' matrix that a cluster multiplies: the first cluster's are `pre`

/// The sum of the eight places of a lane, in each of the eight threads that have one.
LOCKSTEP_DEVICE float add_places(float place) {
  const int first = lane_index() / kOctet * kOctet;
  float sum = shuffle(place, first);
#pragma unroll
  for (int p = 1; p < kOctet; ++p) sum = sum + shuffle(place, first + p);
  return sum;
}

/// The float dot of a chunk of 4096 values from its 32 lanes' sums, of which a thread has one: the same in all.
LOCKSTEP_DEVICE float fold_lanes(float lane_sum) {
  float column = shuffle(lane_sum, lane_index() % kColumns);
#pragma unroll
  for (int l = kColumns; l < kMaxLanes; l += kColumns) column = column + shuffle(lane_sum, lane_index() % kColumns + l);
  float total = shuffle(column, 0);
#pragma unroll
  for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, c);
  return total;
}

/// coefficients_kernel where begin_cluster_kernel has left the streams' inverse root mean square in the last of the
/// coefficients: a warp a row, which finds room beside anything.
LOCKSTEP_KERNEL void split_kernel(Rows out, ConstRows mixes, const float* scale, const float* base, HyperSpec spec,
                                  bool is_known) {
  prefetch(scale, 3);
  prefetch(base, out.width);
  let_next_launch_begin();
  if (!is_known) wait_for_launch_before();
  const int row = block_x();
  float* to = out.data + row * out.stride;
  const float r = to[out.width - 1];
  warp_barrier();
  split_streams(to, mixes.data + row * mixes.stride, r, scale, base, spec.epsilon, spec.iterations);
  if (is_known) wait_for_launch_before();
}

/// begin_kernel by clusters of eight blocks, for rows of 4096: one multiprocessor alone takes some 6 us to issue what
/// there is to do. Block b has channels 32 b to 32 b + 31 of every 256, so whole blocks of 32 to round, and four of the
/// law's 32 lanes, of each stream as well as of what they become; the lanes' sums are sent to all eight.
///
/// kMakesMixes: with the product of the mixes. Of a row's clusters the first makes the four that `pre` is made of and
/// goes on with them, each other one makes four more, which only split_kernel takes. A block's weights (16 KB) are
/// asked for before the wait, as 32 halves a thread, so that four such blocks, or one and the products before, find
/// room on a multiprocessor.
template <bool kMakesMixes>
LOCKSTEP_KERNEL void LOCKSTEP_CLUSTER(kClusterBlocks) LOCKSTEP_BOUNDS(kClusterThreads, 4)
    begin_cluster_kernel(Rows out, Rounded rounded, bool is_rounded, Rows coefficients, Rows mixes, Matrix fn,
                         ConstRows streams, const float* scale, const float* base, HyperSpec spec, const float* weight,
                         float epsilon) {
  let_next_launch_begin();
  constexpr int kWarps = kClusterThreads / kWarp, kStep = kOctet * kMaxLanes, kWarpMixes = 2;
  constexpr int kMixDots = kMakesMixes ? kClusterMixes * kStreams : 0, kDots = kMixDots + kStreams;
  LOCKSTEP_SHARED float x[kStreams][kPieces][kWarp];
  LOCKSTEP_SHARED float y[kPieces][kWarp];
  LOCKSTEP_SHARED float dot_lanes[kDots][kMaxLanes];  // of the mixes' dots, stream by stream, and of the squares
  LOCKSTEP_SHARED float square_lanes[kMaxLanes];
  LOCKSTEP_SHARED float totals[kDots];
  LOCKSTEP_SHARED Arrivals dots_there, squares_there;
  const int parts = kMakesMixes ? mixes.width / kClusterMixes : 1;
  const int row = block_y() / parts, first_mix = block_y() % parts * kClusterMixes;
  const int t = thread_index(), warp = t / kWarp, lane = lane_index(), first = block_x() * kWarp + lane;
  const int s = warp % kStreams, own_mix = warp / kStreams * kWarpMixes;
  const int own_lane = block_x() * (kWarp / kOctet) + lane / kOctet, peer = lane % kClusterBlocks;
  const bool goes_on = first_mix == 0, is_first_warp_of_stream = own_mix == 0;
  if (t == 0) {
    expect_arrivals(dots_there, (goes_on ? kDots : kMixDots) * kMaxLanes);
    expect_arrivals(squares_there, kMaxLanes);
    show_arrivals();
  }
  std::uint16_t w[kWarpMixes][kPieces];
  if constexpr (kMakesMixes) {
    const std::uint8_t* const weights = fn.data + (first_mix + own_mix) * fn.row_bytes + 2 * (s * kChunk + first);
#pragma unroll
    for (int m = 0; m < kWarpMixes; ++m)
#pragma unroll
      for (int j = 0; j < kPieces; ++j) load_once(w[m][j], weights + m * fn.row_bytes + 2 * j * kStep);
  }
  const float own_scale = scale[0], own_base = base[lane % kStreams];
  if (goes_on) prefetch(weight, out.width);
  cluster_barrier();  // nothing is sent to a block that has not begun
  wait_for_launch_before();
  float given = 0;
  if constexpr (!kMakesMixes) given = mixes.data[row * mixes.stride + lane % kClusterMixes];
  float dot[kWarpMixes + 1] = {};
  {
    const float* from = streams.data + row * streams.stride + s * kChunk + first;
    float held[kPieces];
#pragma unroll
    for (int j = 0; j < kPieces; ++j) held[j] = from[j * kStep];
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (is_first_warp_of_stream) x[s][j][lane] = held[j];
      if constexpr (kMakesMixes) {
#pragma unroll
        for (int m = 0; m < kWarpMixes; ++m) dot[m] = fma_f32(held[j], widen_f16(w[m][j]), dot[m]);
      }
      dot[kWarpMixes] = fma_f32(held[j], held[j], dot[kWarpMixes]);
    }
  }
  // Each of the eight threads that have a lane's sum sends it to another block; those of a cluster that does not go on
  // are for its first block alone.
#pragma unroll
  for (int m = kMakesMixes ? 0 : kWarpMixes; m <= kWarpMixes; ++m) {
    const float sum = add_places(dot[m]);
    const int at = m < kWarpMixes ? (own_mix + m) * kStreams + s : kMixDots + s;
    const bool is_wanted = goes_on ? m < kWarpMixes || is_first_warp_of_stream : m < kWarpMixes && peer == 0;
    if (is_wanted) send_to_block(&dot_lanes[at][own_lane], peer, sum, dots_there);
  }
  if (!goes_on && block_x() != 0) return;
  wait_for_arrivals(dots_there);
#pragma unroll
  for (int i = 0; i < (kDots + kWarps - 1) / kWarps; ++i) {
    const int at = warp + i * kWarps;
    const float total = fold_lanes(dot_lanes[at < kDots ? at : 0][lane]);
    if (lane == 0 && at < kDots) totals[at] = total;
  }
  block_barrier();
  const auto add_streams = [&](int at) {
    float all = totals[at];
#pragma unroll
    for (int stream = 1; stream < kStreams; ++stream) all = all + totals[at + stream];
    return all;
  };
  const float mix = kMakesMixes ? add_streams(lane % kClusterMixes * kStreams) : given;
  if (kMakesMixes && block_x() == 0 && t < kClusterMixes) mixes.data[row * mixes.stride + first_mix + t] = mix;
  if (!goes_on) return;
  const float r = 1.0f / sqrt_f32(add_streams(kMixDots) / static_cast<float>(kStreams * kChunk) + spec.norm_epsilon);
  if (block_x() == 0 && t == 0) coefficients.data[row * coefficients.stride + coefficients.width - 1] = r;
  const float mine = pre_coefficient(mix, r, own_scale, own_base, spec.epsilon);
  float pre[kStreams];
#pragma unroll
  for (int stream = 0; stream < kStreams; ++stream) pre[stream] = shuffle(mine, stream);
  float value[2], norm[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int j = warp + i * kWarps;
    value[i] = pre[0] * x[0][j][lane];
#pragma unroll
    for (int stream = 1; stream < kStreams; ++stream) value[i] = fma_f32(pre[stream], x[stream][j][lane], value[i]);
    y[j][lane] = value[i];
    norm[i] = weight == nullptr ? 1.0f : weight[j * kStep + first];
  }
  block_barrier();
  if (warp == 0) {
    float square = 0;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) square = fma_f32(y[j][lane], y[j][lane], square);
    send_to_block(&square_lanes[own_lane], peer, add_places(square), squares_there);
  }
  wait_for_arrivals(squares_there);
  const float inverse = 1.0f / sqrt_f32(fold_lanes(square_lanes[lane]) / static_cast<float>(kChunk) + epsilon);
  int d[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    d[i] = (warp + i * kWarps) * kStep + first;
    value[i] = value[i] * inverse * norm[i];
    out.data[row * out.stride + d[i]] = value[i];
  }
  if (is_rounded) round_two_values(rounded, row, d, value);
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

bool can_mix_begin(const Runtime& runtime, DType dtype, const Matrix& fn, int width) {
  return runtime.has_clusters() && dtype == DType::f16 && width == kChunk && fn.width == kStreams * kChunk &&
         fn.rows == kStreams * (kStreams + 2) && fn.row_bytes % 2 == 0;
}

void hyper_mix_begin(Runtime& runtime, Rows out, const Rounded* rounded, Rows coefficients, Rows mixes,
                     const Matrix& fn, ConstRows streams, const float* scale, const float* base, const HyperSpec& spec,
                     const float* weight, float epsilon) {
  launch(runtime, begin_cluster_kernel<true>,
         {kClusterBlocks, static_cast<unsigned>(out.rows * (mixes.width / kClusterMixes))}, kClusterThreads, 0, out,
         rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, coefficients, mixes, fn, streams, scale, base,
         spec, weight, epsilon);
}

bool hyper_begin(Runtime& runtime, Rows out, const Rounded* rounded, Rows coefficients, ConstRows mixes,
                 ConstRows streams, const float* scale, const float* base, const HyperSpec& spec, const float* weight,
                 float epsilon) {
  if (runtime.has_clusters() && out.width == kChunk) {
    const Rows given = {const_cast<float*>(mixes.data), mixes.rows, mixes.width, mixes.stride};  // which it only reads
    launch(runtime, begin_cluster_kernel<false>, {kClusterBlocks, static_cast<unsigned>(out.rows)}, kClusterThreads, 0,
           out, rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, coefficients, given, Matrix(), streams,
           scale, base, spec, weight, epsilon);
    return true;
  }
  launch(runtime, begin_kernel, {static_cast<unsigned>(out.rows)}, static_cast<unsigned>(dot_threads(streams.width)),
         sizeof(float) * static_cast<std::size_t>(out.width), out, rounded != nullptr ? *rounded : Rounded(),
         rounded != nullptr, mixes, streams, scale, base, spec, weight, epsilon);
  return false;
}

void hyper_split(Runtime& runtime, Rows out, ConstRows mixes, const float* scale, const float* base,
                 const HyperSpec& spec, bool is_known) {
  launch(runtime, split_kernel, {static_cast<unsigned>(out.rows)}, kWarp, 0, out, mixes, scale, base, spec, is_known);
}

void hyper_expand(Runtime& runtime, Rows streams, ConstRows y, ConstRows coefficients) {
  launch(runtime, expand_kernel, grid_of(y.width, y.rows), kThreads, 0, streams, y, coefficients);
}

void hyper_spread(Runtime& runtime, Rows streams, ConstRows x) {
  launch(runtime, spread_kernel, grid_of(streams.width, streams.rows), kThreads, 0, streams, x);
}

}  // namespace lockstep::gpu
