// Ops that work row by row, for many rows: bound by memory, so a thread moves 8 or 16 bytes at a time and no block
// waits for a barrier where a warp can do. The bits are those of row_kernels.cu and hyper_kernels.cu, whose kernels are
// made for how soon one row is done. Each function says whether it takes the operands.
#include "gpu/block_dot.h"
#include "gpu/kernels.h"
#include "gpu/round_kernel.h"
#include "gpu/split_streams.h"
#include "ops/rows.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 256;

bool is_aligned(const void* data, std::ptrdiff_t stride, int floats) {
  return reinterpret_cast<std::uintptr_t>(data) % (sizeof(float) * static_cast<std::size_t>(floats)) == 0 &&
         stride % floats == 0;
}

/// Rounds values i to i + 3 of a row to int8: eight neighbouring threads hold a block.
LOCKSTEP_DEVICE void round_four(const Rounded& out, int row, int i, const Floats4& x) {
  std::uint32_t most = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const std::uint32_t magnitude = magnitude_bits(x.value[e]);
    most = magnitude > most ? magnitude : most;
  }
#pragma unroll
  for (int mask = 1; mask < kBlock / 4; mask *= 2) {
    const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(most), mask));
    most = other > most ? other : most;
  }
  const Int8Scale scale = int8_scale(most);
  std::uint32_t codes = 0;
  int sum = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int code = int8_code(x.value[e], scale.inverse);
    codes |= static_cast<std::uint32_t>(code & 255) << (8 * e);
    sum += code;
  }
  sum += shuffle_xor(sum, 1);
  sum += shuffle_xor(sum, 2);
  *reinterpret_cast<std::uint32_t*>(out.codes + row * out.stride + i) = codes;
  if (i % kBlock == 0) out.scales[row * (out.stride / kBlock) + i / kBlock] = scale.scale;
  if (i % 16 == 0) out.half_sums[row * (out.stride / 16) + i / 16] = static_cast<std::int16_t>(sum);
}

/// Turns channels i to i + 3 of a head, whose turned ones begin at an even channel, if they are among those.
LOCKSTEP_DEVICE bool turn_four(Floats4& x, int channel, const float* turns, bool inverse) {
  bool is_turned = false;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int at = channel + 2 * pair;
    if (at < 0) continue;
    const Words2 turn = *reinterpret_cast<const Words2*>(turns + at);
    const float c = f32_of(turn.word[0]), s = inverse ? -f32_of(turn.word[1]) : f32_of(turn.word[1]);
    const float a = x.value[2 * pair], b = x.value[2 * pair + 1];
    x.value[2 * pair] = fma_f32(a, c, -(b * s));
    x.value[2 * pair + 1] = fma_f32(a, s, b * c);
    is_turned = true;
  }
  return is_turned;
}

LOCKSTEP_KERNEL void round_kernel(Rounded out, ConstRows x) {
  follow_launch();
  const int row = block_y(), i = 4 * (block_x() * block_threads() + thread_index());
  if (i >= x.width) return;  // whole blocks of eight threads; the shuffles are among those
  round_four(out, row, i, *reinterpret_cast<const Floats4*>(x.data + row * x.stride + i));
}

LOCKSTEP_KERNEL void rotate_round_kernel(Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  follow_launch();
  const int row = block_y(), i = 4 * (block_x() * block_threads() + thread_index());
  if (i >= x.width) return;
  auto* const at = reinterpret_cast<Floats4*>(x.data + row * x.stride + i);
  Floats4 value = *at;
  if (turn_four(value, i % head_width - (head_width - table.width), table.data + row * table.stride, inverse))
    *at = value;
  round_four(rounded, row, i, value);
}

LOCKSTEP_KERNEL void swiglu_round_kernel(Rows out, Rounded rounded, ConstRows gate, ConstRows up,
                                         const float* row_weights, float limit) {
  follow_launch();
  const int row = block_y(), i = 4 * (block_x() * block_threads() + thread_index());
  if (i >= out.width) return;
  const Floats4 g = *reinterpret_cast<const Floats4*>(gate.data + row * gate.stride + i),
                u = *reinterpret_cast<const Floats4*>(up.data + row * up.stride + i);
  Floats4 value;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    value.value[e] = swiglu_value(g.value[e], u.value[e], limit);
    if (row_weights != nullptr) value.value[e] = value.value[e] * row_weights[row];
  }
  *reinterpret_cast<Floats4*>(out.data + row * out.stride + i) = value;
  round_four(rounded, row, i, value);
}

/// A warp a head of kPieces * 64 channels; thread t has channels 2 t and 2 t + 1 of every piece, which are places of
/// the law's lane t / 4.
template <int kPieces>
LOCKSTEP_KERNEL void norm_rotate_kernel(Rows x, const float* weight, float epsilon, ConstRows table, int fp8_channels) {
  follow_launch();
  constexpr int kPiece = 2 * kWarp, kWidth = kPieces * kPiece;
  static_assert(octet_lanes_of(kWidth) * kOctet == kPiece && kPiece == kFp8Block);
  const int heads = x.width / kWidth, t = lane_index();
  const std::int64_t item = (static_cast<std::int64_t>(block_x()) * block_threads() + thread_index()) / kWarp;
  const int row = static_cast<int>(item / heads), head = static_cast<int>(item % heads);
  if (row >= x.rows) return;
  float* const at = x.data + row * x.stride + head * kWidth + 2 * t;
  float a[kPieces], b[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const Words2 pair = *reinterpret_cast<const Words2*>(at + i * kPiece);
    a[i] = f32_of(pair.word[0]);
    b[i] = f32_of(pair.word[1]);
  }
  float first = 0, second = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    first = fma_f32(a[i], a[i], first);
    second = fma_f32(b[i], b[i], second);
  }
  constexpr int kShare = kOctet / 2;  // threads of a lane
  const int base = t / kShare * kShare;
  float lane = shuffle(first, base) + shuffle(second, base);
#pragma unroll
  for (int k = 1; k < kShare; ++k) lane = (lane + shuffle(first, base + k)) + shuffle(second, base + k);
  float total = shuffle(lane, 0);
#pragma unroll
  for (int l = 1; l < kColumns; ++l) total = total + shuffle(lane, l * kShare);
  const float r = 1.0f / sqrt_f32(total / static_cast<float>(kWidth) + epsilon);
  const float* turns = table.data + row * table.stride;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int d = i * kPiece + 2 * t, channel = d - (kWidth - table.width);
    a[i] = a[i] * r;
    b[i] = b[i] * r;
    if (weight != nullptr) {
      a[i] = a[i] * weight[d];
      b[i] = b[i] * weight[d + 1];
    }
    if (channel >= 0) {
      const float x0 = a[i], x1 = b[i], c = turns[channel], s = turns[channel + 1];
      a[i] = fma_f32(x0, c, -(x1 * s));
      b[i] = fma_f32(x0, s, x1 * c);
    }
    if (i * kPiece < fp8_channels) {  // of whole warps
      const bool has_first = d < fp8_channels, has_second = d + 1 < fp8_channels;
      const std::uint32_t m = has_first ? magnitude_bits(a[i]) : 0u, n = has_second ? magnitude_bits(b[i]) : 0u;
      const int exponent = fp8_exponent(warp_max(m > n ? m : n));
      if (has_first) a[i] = fp8_value(fp8_code(a[i], exponent), exponent);
      if (has_second) b[i] = fp8_value(fp8_code(b[i], exponent), exponent);
    }
    *reinterpret_cast<Words2*>(at + i * kPiece) = {{bits_of(a[i]), bits_of(b[i])}};
  }
}

constexpr int kKeyWidth = 4 * kWarp;

/// A warp a head of 128 channels, of which a thread has four neighbours: steps of one and two are its own.
LOCKSTEP_KERNEL void rotate_hadamard_kernel(Rows x, ConstRows table) {
  follow_launch();
  const int heads = x.width / kKeyWidth, i = 4 * lane_index();
  const std::int64_t item = (static_cast<std::int64_t>(block_x()) * block_threads() + thread_index()) / kWarp;
  const int row = static_cast<int>(item / heads), head = static_cast<int>(item % heads);
  if (row >= x.rows) return;
  auto* const at = reinterpret_cast<Floats4*>(x.data + row * x.stride + head * kKeyWidth + i);
  Floats4 v = *at;
  turn_four(v, i - (kKeyWidth - table.width), table.data + row * table.stride, false);
  const Floats4 ones = {
      {v.value[0] + v.value[1], v.value[0] - v.value[1], v.value[2] + v.value[3], v.value[2] - v.value[3]}};
  v = {{ones.value[0] + ones.value[2], ones.value[1] + ones.value[3], ones.value[0] - ones.value[2],
        ones.value[1] - ones.value[3]}};
#pragma unroll
  for (int mask = 1; mask < kWarp; mask *= 2) {
    const bool is_second = (lane_index() & mask) != 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float other = shuffle_xor(v.value[e], mask);
      v.value[e] = is_second ? other - v.value[e] : v.value[e] + other;
    }
  }
  std::uint32_t most = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    v.value[e] = v.value[e] * (1.0f / sqrt_f32(static_cast<float>(kKeyWidth)));
    const std::uint32_t magnitude = magnitude_bits(v.value[e]);
    most = magnitude > most ? magnitude : most;
  }
#pragma unroll
  for (int mask = 1; mask < kFp4Block / 4; mask *= 2) {
    const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(most), mask));
    most = other > most ? other : most;
  }
  const int exponent = fp4_exponent(most);
#pragma unroll
  for (int e = 0; e < 4; ++e) v.value[e] = fp4_value(fp4_code(v.value[e], exponent), exponent);
  *at = v;
}

// Blocks of 1024 threads on a multiprocessor: the newest ones have 1536.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
[[maybe_unused]] constexpr int kBeginBlocks = 1;
#else
[[maybe_unused]] constexpr int kBeginBlocks = 2;
#endif

/// Collapse, norm and rounding of one row by one block. What the streams' norm comes to is left where the row's first
/// coefficient goes, for split_kernel.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(1024, kBeginBlocks)
    begin_kernel(Rows coefficients, Rows out, Rounded rounded, bool is_rounded, ConstRows mixes, ConstRows streams,
                 const float* scale, const float* base, HyperSpec spec, const float* weight, float epsilon) {
  follow_launch();
  LOCKSTEP_SHARED DotScratch scratch;
  LOCKSTEP_SHARED float pre[kStreams];
  LOCKSTEP_DYNAMIC_SHARED(Floats4, collapsed4);
  auto* const collapsed = reinterpret_cast<float*>(collapsed4);
  const int row = block_x(), t = thread_index(), width = out.width;
  const float* from = streams.data + row * streams.stride;
  const float* mix = mixes.data + row * mixes.stride;
  const float r = block_inverse_rms(from, streams.width, spec.norm_epsilon, scratch);
  if (t < kStreams) pre[t] = pre_coefficient(mix[t], r, scale[0], base[t], spec.epsilon);
  if (t == 0) coefficients.data[row * coefficients.stride] = r;
  block_barrier();
  for (int d = 4 * t; d < width; d += 4 * block_threads()) {
    Floats4 sum;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const Floats4 x = *reinterpret_cast<const Floats4*>(from + s * width + d);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum.value[e] = s == 0 ? pre[0] * x.value[e] : fma_f32(pre[s], x.value[e], sum.value[e]);
    }
    collapsed4[d / 4] = sum;
  }
  block_barrier();
  const float inverse = block_inverse_rms(collapsed, width, epsilon, scratch);
  for (int d = 4 * t; d < width; d += 4 * block_threads()) {
    Floats4 value = collapsed4[d / 4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float unit = value.value[e] * inverse;
      value.value[e] = weight == nullptr ? unit : unit * weight[d + e];
    }
    *reinterpret_cast<Floats4*>(out.data + row * out.stride + d) = value;
    if (is_rounded) round_four(rounded, row, d, value);
  }
}

/// The coefficients of one row by one warp, where begin_kernel has left the norm.
LOCKSTEP_KERNEL void split_kernel(Rows out, ConstRows mixes, const float* scale, const float* base, HyperSpec spec) {
  follow_launch();
  const int row = (block_x() * block_threads() + thread_index()) / kWarp;
  if (row >= out.rows) return;
  const float r = out.data[row * out.stride];
  warp_barrier();
  split_streams(out.data + row * out.stride, mixes.data + row * mixes.stride, r, scale, base, spec.epsilon,
                spec.iterations);
}

Grid fours_of(int width, int rows) { return {blocks_for(width / 4, kThreads), static_cast<unsigned>(rows)}; }

bool can_round(const Rounded& rounded) { return is_aligned(rounded.codes, rounded.stride / 4, 1); }

template <int kPieces>
void start_norm_rotate(Runtime& runtime, Rows x, const float* weight, float epsilon, ConstRows table,
                       int fp8_channels) {
  const std::int64_t heads = static_cast<std::int64_t>(x.rows) * (x.width / (kPieces * 2 * kWarp));
  launch(runtime, norm_rotate_kernel<kPieces>, {blocks_for(heads, kThreads / kWarp)}, kThreads, 0, x, weight, epsilon,
         table, fp8_channels);
}

}  // namespace

bool round_many(Runtime& runtime, Rounded out, ConstRows x) {
  if (!is_aligned(x.data, x.stride, 4) || !can_round(out)) return false;
  launch(runtime, round_kernel, fours_of(x.width, x.rows), kThreads, 0, out, x);
  return true;
}

bool rotate_round_many(Runtime& runtime, Rows x, Rounded rounded, int head_width, ConstRows table, bool inverse) {
  if (!is_aligned(x.data, x.stride, 4) || head_width % 4 != 0 || !is_aligned(table.data, table.stride, 2) ||
      !can_round(rounded))
    return false;
  launch(runtime, rotate_round_kernel, fours_of(x.width, x.rows), kThreads, 0, x, rounded, head_width, table, inverse);
  return true;
}

bool swiglu_round_many(Runtime& runtime, Rows out, Rounded rounded, ConstRows gate, ConstRows up,
                       const float* row_weights, float limit) {
  if (!is_aligned(out.data, out.stride, 4) || !is_aligned(gate.data, gate.stride, 4) ||
      !is_aligned(up.data, up.stride, 4) || !can_round(rounded))
    return false;
  launch(runtime, swiglu_round_kernel, fours_of(out.width, out.rows), kThreads, 0, out, rounded, gate, up, row_weights,
         limit);
  return true;
}

bool norm_rotate_many(Runtime& runtime, Rows x, int head_width, const float* weight, float epsilon, ConstRows table,
                      int fp8_channels) {
  if (!is_aligned(x.data, x.stride, 2)) return false;
  switch (head_width) {
    case 64:
      start_norm_rotate<1>(runtime, x, weight, epsilon, table, fp8_channels);
      return true;
    case 128:
      start_norm_rotate<2>(runtime, x, weight, epsilon, table, fp8_channels);
      return true;
    case 512:
      start_norm_rotate<8>(runtime, x, weight, epsilon, table, fp8_channels);
      return true;
    default:
      return false;
  }
}

bool rotate_hadamard_fp4_many(Runtime& runtime, Rows x, int head_width, ConstRows table) {
  if (head_width != kKeyWidth || !is_aligned(x.data, x.stride, 4) || !is_aligned(table.data, table.stride, 2))
    return false;
  launch(runtime, rotate_hadamard_kernel,
         {blocks_for(static_cast<std::int64_t>(x.rows) * (x.width / kKeyWidth), kThreads / kWarp)}, kThreads, 0, x,
         table);
  return true;
}

bool hyper_begin_many(Runtime& runtime, Rows coefficients, Rows out, const Rounded* rounded, ConstRows mixes,
                      ConstRows streams, const float* scale, const float* base, const HyperSpec& spec,
                      const float* weight, float epsilon) {
  if (!is_aligned(streams.data, streams.stride, 4) || !is_aligned(out.data, out.stride, 4) || out.width % 4 != 0 ||
      (rounded != nullptr && !can_round(*rounded)))
    return false;
  launch(runtime, begin_kernel, {static_cast<unsigned>(out.rows)}, static_cast<unsigned>(dot_threads(streams.width)),
         sizeof(float) * static_cast<std::size_t>(out.width), coefficients, out,
         rounded != nullptr ? *rounded : Rounded(), rounded != nullptr, mixes, streams, scale, base, spec, weight,
         epsilon);
  launch(runtime, split_kernel, {blocks_for(out.rows, kThreads / kWarp)}, kThreads, 0, coefficients, mixes, scale, base,
         spec);
  return true;
}

}  // namespace lockstep::gpu
