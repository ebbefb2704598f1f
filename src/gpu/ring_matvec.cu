// One token by rows that pass through shared memory, with what comes before and after the product in the same kernel:
// the input's norm and rounding; the result's rounding, or its spreading over the streams.
//
// About one thread block a multiprocessor, all with the same number of rows. A warp copies its own rows into a ring of
// slots that nobody else waits for, so memory is busy from the launch on, also while the launch before ends and the
// input is made ready. Every block norms the input itself. A thread keeps its part of the int8 input in registers.
// Bytes: the weights, once; a multiprocessor needs some 130 KB of them under way.
#include "gpu/async_copy.h"
#include "gpu/block_dot.h"
#include "gpu/device.h"
#include "gpu/planes.h"
#include "gpu/ring_matvec.h"
#include "gpu/round_kernel.h"
#include "numerics/order.h"
#include "numerics/round.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kNormed = 1024;  // values of an input that is normed here
constexpr int kMostBlockRows = 256;
constexpr int kStreams = 4;

/// How Q8_0 rows are shared out: a unit is what a warp multiplies at a time, four rows of 1024 values or 4096 of one.
template <int kWidth>
struct UnitShape {
  static constexpr bool kIsNarrow = kWidth < kChunk;
  static constexpr int kLength = kIsNarrow ? kWidth : kChunk, kChunks = kWidth / kLength;
  static constexpr int kLanes = block_lanes_of(kLength), kHold = kLength / kBlock / kLanes;  // blocks of a lane
  static constexpr int kLaneThreads = kIsNarrow ? 1 : 2, kRowThreads = kLanes * kLaneThreads;
  static constexpr int kRows = kWarp / kRowThreads;
  static constexpr int kRowBytes = kLength + kLength / kBlock * 2, kBytes = kRows * kRowBytes;
  static constexpr int kWords = kIsNarrow ? 8 : 4;  // of a block that a thread multiplies
};

template <int kUnitBytes, int kWarps, int kAhead>
struct Ring {
  alignas(16) std::uint8_t slot[kWarps][kAhead][kUnitBytes];
  float out[kMostBlockRows];
};
template <int kWidth, int kWarps, int kAhead>
struct RingOfCodes : Ring<UnitShape<kWidth>::kBytes, kWarps, kAhead> {
  alignas(16) std::int8_t codes[kNormed];
  float scales[kNormed / kBlock];
};

/// kHeld values of a normed row of kNormed: thread l of warp w has 32 (kHeld w + i) + l. Every warp makes the whole
/// sum, as rms_norm_narrow_kernel does. To be made before the launch before is waited for; `take` is called after that.
template <int kThreads>
class NarrowNorm {
 public:
  static constexpr int kHeld = kNormed / kThreads;
  LOCKSTEP_DEVICE explicit NarrowNorm(const float* weight) : weight_(weight) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) factor_[i] = weight != nullptr ? weight[place(i)] : 1.0f;
  }
  LOCKSTEP_DEVICE static int place(int i) { return thread_index() / kWarp * kWarp * kHeld + i * kWarp + lane_index(); }
  LOCKSTEP_DEVICE void take(float (&value)[kHeld], const float* from, float epsilon) const {
    float own[kHeld], low = 0, high = 0;  // partial sums of places `lane` and lane + 32 of 64
#pragma unroll
    for (int i = 0; i < kHeld; ++i) own[i] = from[place(i)];
#pragma unroll
    for (int k = lane_index(); k < kNormed; k += 2 * kWarp) {
      const float a = from[k], b = from[k + kWarp];
      low = fma_f32(a, a, low);
      high = fma_f32(b, b, high);
    }
    const float r = 1.0f / sqrt_f32(fold_64(low, high) / static_cast<float>(kNormed) + epsilon);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float unit = own[i] * r;
      value[i] = weight_ == nullptr ? unit : unit * factor_[i];
    }
  }

 private:
  const float* weight_;
  float factor_[kHeld];
};

/// What is done with a block's outputs, which lie in shared memory. Begun after the launch before is done, with what it
/// reads besides; all threads call `finish`.
class RingEnd {
 public:
  LOCKSTEP_DEVICE RingEnd(const RingCall& call, int first_row) : call_(call), first_row_(first_row) {
    if (call.p.streams.data == nullptr || thread_index() >= kStreams * kWarp) return;
    const float* post = call.p.coefficients.data + kStreams;
    const int q = thread_index() / kWarp;
    const float* from = call.p.streams.data + first_row + lane_index();
    post_ = post[q];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      before_[j] = from[j * call.p.w.rows];
      comb_[j] = post[kStreams + j * kStreams + q];
    }
  }
  LOCKSTEP_DEVICE void finish(const float* out) const {
    block_barrier();
    const int t = thread_index();
    if (call_.p.streams.data != nullptr) {  // hyper_expand of 32 channels, a warp a stream
      if (t >= kStreams * kWarp) return;
      float sum = post_ * out[lane_index()];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) sum = fma_f32(comb_[j], before_[j], sum);
      call_.p.streams.data[first_row_ + lane_index() + t / kWarp * call_.p.w.rows] = sum;
      return;
    }
    for (int i = t; i < call_.block_rows; i += block_threads()) {  // whole warps
      call_.p.out.data[first_row_ + i] = out[i];
      if (call_.rounded.codes != nullptr) round_value(call_.rounded, 0, first_row_ + i, out[i]);
    }
  }

 private:
  const RingCall& call_;
  int first_row_;
  float before_[kStreams] = {}, comb_[kStreams] = {}, post_ = 0;
};

template <int kWidth, bool kHasNorm, int kWarps, int kAhead>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kWarps* kWarp, 2) ring_kernel(LOCKSTEP_PARAMETER RingCall call) {
  using S = UnitShape<kWidth>;
  static_assert(!kHasNorm || kWidth == kNormed);
  LOCKSTEP_DYNAMIC_SHARED(Words4, ring_shared);
  auto& shared = *reinterpret_cast<RingOfCodes<kWidth, kWarps, kAhead>*>(ring_shared);
  let_next_launch_begin();
  const Product& p = call.p;
  const int warp = thread_index() / kWarp, thread = lane_index();
  const int first_row = block_x() * call.block_rows, rounds = call.block_rows / (kWarps * S::kRows);
  const std::uint8_t* const weights = p.w.data + (first_row + warp * S::kRows) * p.w.row_bytes;
  const auto begin = [&](int round, int chunk, int slot) {
    if (round < rounds) {
      const std::uint8_t* codes = weights + round * (kWarps * S::kRows) * p.w.row_bytes + chunk * S::kLength;
      // The scales of a row that is one chunk lie behind its codes.
      const std::uint8_t* scales = codes + S::kLength;
      if (S::kChunks > 1) scales += kWidth - S::kLength - chunk * (S::kLength - S::kLength / kBlock * 2);
      std::uint8_t* to = shared.slot[warp][slot];
      constexpr int kPieces = S::kBytes / 16, kCodePieces = S::kIsNarrow ? kPieces : S::kLength / 16;
#pragma unroll
      for (int i = 0; i < kPieces; i += kWarp) {
        const int piece = i + thread;
        if (i + kWarp <= kCodePieces || piece < kCodePieces)
          copy16_once(to + piece * 16, codes + piece * 16);
        else if (piece < kPieces)
          copy16_once(to + piece * 16, scales + (piece - kCodePieces) * 16);
      }
    }
    end_copy_group();
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) begin(u / S::kChunks, u % S::kChunks, u);

  // The input of this thread's blocks: lane + i * kLanes of every chunk.
  const int lane = thread % S::kRowThreads / S::kLaneThreads;
  // Eight lanes would read every second 16 bytes, so half of them read a block's second half first.
  const int first_half = S::kIsNarrow ? lane / 4 : thread % 2;
  std::uint32_t codes[S::kChunks][S::kHold][S::kWords];
  float scales[S::kChunks][S::kHold];
  const auto take = [&](const std::int8_t* all_codes, const float* all_scales) {
#pragma unroll
    for (int c = 0; c < S::kChunks; ++c)
#pragma unroll
      for (int i = 0; i < S::kHold; ++i) {
        const int block = c * (kChunk / kBlock) + lane + i * S::kLanes;
        scales[c][i] = all_scales[block];
#pragma unroll
        for (int h = 0; h < S::kWords / 4; ++h) {
          const auto words = *reinterpret_cast<const Words4*>(all_codes + block * kBlock + (h ^ first_half) * 16);
#pragma unroll
          for (int k = 0; k < 4; ++k) codes[c][i][h * 4 + k] = words.word[k];
        }
      }
  };
  if constexpr (kHasNorm) {
    using Norm = NarrowNorm<kWarps * kWarp>;
    const Norm norm(call.norm);
    wait_for_launch_before();
    float value[Norm::kHeld];
    norm.take(value, call.raw.data, call.epsilon);
#pragma unroll
    for (int i = 0; i < Norm::kHeld; ++i) {
      const Int8Scale scale = int8_scale(warp_max(magnitude_bits(value[i])));
      shared.codes[Norm::place(i)] = int8_code(value[i], scale.inverse);
      if (thread == 0) shared.scales[Norm::place(i) / kBlock] = scale.scale;
    }
    block_barrier();
    take(shared.codes, shared.scales);
  } else {
    wait_for_launch_before();
    const int column = p.rows_a_group > 0 ? first_row / p.rows_a_group * kWidth : 0;
    take(p.rounded.codes + column, p.rounded.scales + column / kBlock);
  }
  const RingEnd end(call, first_row);

  int slot = 0;
  for (int round = 0; round < rounds; ++round) {
    float total = 0;
#pragma unroll
    for (int c = 0; c < S::kChunks; ++c) {
      wait_for_copies<kAhead - 1>();
      warp_barrier();
      const std::uint8_t* unit = shared.slot[warp][slot] + thread / S::kRowThreads * S::kRowBytes;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < S::kHold; ++i) {
        const int block = lane + i * S::kLanes;
        int dot = 0;
#pragma unroll
        for (int h = 0; h < S::kWords / 4; ++h) {
          const auto words = *reinterpret_cast<const Words4*>(unit + block * kBlock + (h ^ first_half) * 16);
#pragma unroll
          for (int k = 0; k < 4; ++k) dot = dot4(words.word[k], codes[c][i][h * 4 + k], dot);
        }
        if (S::kLaneThreads == 2) dot += shuffle_xor(dot, 1);
        const float scale = widen_f16(read_as<std::uint16_t>(unit + S::kLength + 2 * block));
        sum = fma_f32(static_cast<float>(dot) * scale, scales[c][i], sum);
      }
      warp_barrier();
      begin((round * S::kChunks + c + kAhead) / S::kChunks, (c + kAhead) % S::kChunks, slot);
      slot = slot + 1 < kAhead ? slot + 1 : 0;
      // fold of numerics/order.h
      if (S::kLanes > kColumns) sum = sum + shuffle_xor(sum, kColumns * S::kLaneThreads);  // the same on both sides
      const int first = thread / S::kRowThreads * S::kRowThreads;
      float chunk_sum = shuffle(sum, first);
#pragma unroll
      for (int k = 1; k < kColumns; ++k) chunk_sum = chunk_sum + shuffle(sum, first + k * S::kLaneThreads);
      total = c == 0 ? chunk_sum : total + chunk_sum;
    }
    if (thread % S::kRowThreads == 0) shared.out[(round * kWarps + warp) * S::kRows + thread / S::kRowThreads] = total;
  }
  end.finish(shared.out);
}

// F16 rows of kNormed values. A thread is a lane of two rows and keeps their eight places; a unit is a quarter of eight
// rows, so that an octet of the input that has been read is used twice.
constexpr int kUnitRows = 8, kUnitValues = kNormed / 4, kUnitBytes = kUnitRows * kUnitValues * 2;

constexpr int kFloatWarps = 8, kFloatThreads = kFloatWarps * kWarp;

template <int kAhead>
struct RingOfFloats : Ring<kUnitBytes, kFloatWarps, kAhead> {
  Floats4 x[2][kNormed / kOctet];  // the halves of octets, so that neighbours read neighbouring 16 bytes
};

template <int kAhead>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kFloatThreads, 2) ring_f16_kernel(LOCKSTEP_PARAMETER RingCall call) {
  constexpr int kUnits = kNormed / kUnitValues, kLanes = octet_lanes_of(kNormed), kHold = kUnitValues / kOctet / kLanes;
  LOCKSTEP_DYNAMIC_SHARED(Words4, ring_shared);
  auto& shared = *reinterpret_cast<RingOfFloats<kAhead>*>(ring_shared);
  let_next_launch_begin();
  const Product& p = call.p;
  const int warp = thread_index() / kWarp, thread = lane_index();
  const int first_row = block_x() * call.block_rows, rounds = call.block_rows / (kFloatWarps * kUnitRows);
  const std::uint8_t* const weights = p.w.data + (first_row + warp * kUnitRows) * p.w.row_bytes;
  const auto begin = [&](int round, int unit, int slot) {
    if (round < rounds) {
      const std::uint8_t* from = weights + round * (kFloatWarps * kUnitRows) * p.w.row_bytes + unit * (kUnitValues * 2);
#pragma unroll
      for (int r = 0; r < kUnitRows; ++r)
        copy16_once(shared.slot[warp][slot] + r * (kUnitValues * 2) + thread * 16,
                    from + r * p.w.row_bytes + thread * 16);
    }
    end_copy_group();
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) begin(u / kUnits, u % kUnits, u);
  {
    using Norm = NarrowNorm<kFloatThreads>;
    const Norm norm(call.norm);
    wait_for_launch_before();
    float value[Norm::kHeld];
    norm.take(value, call.raw.data, call.epsilon);
#pragma unroll
    for (int i = 0; i < Norm::kHeld; ++i) {
      const int at = Norm::place(i);
      reinterpret_cast<float*>(&shared.x[at / 4 % 2][at / kOctet])[at % 4] = value[i];
    }
    block_barrier();
  }
  const RingEnd end(call, first_row);
  const int lane = thread % kLanes, row = thread / kLanes;  // and row + 4
  int slot = 0;
  for (int round = 0; round < rounds; ++round) {
    float partial[2][kOctet] = {};
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      wait_for_copies<kAhead - 1>();
      warp_barrier();
#pragma unroll
      for (int i = 0; i < kHold; ++i) {
        const int in_unit = lane + i * kLanes, octet = unit * (kUnitValues / kOctet) + in_unit;
        const Floats4 x[2] = {shared.x[0][octet], shared.x[1][octet]};
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const auto words = *reinterpret_cast<const Words4*>(shared.slot[warp][slot] +
                                                              (row + 4 * r) * (kUnitValues * 2) + in_unit * 16);
#pragma unroll
          for (int k = 0; k < kOctet; ++k)
            partial[r][k] =
                fma_f32(x[k / 4].value[k % 4], widen_f16(words.word[k / 2] >> (16 * (k % 2)) & 0xffffu), partial[r][k]);
        }
      }
      warp_barrier();
      begin((round * kUnits + unit + kAhead) / kUnits, (unit + kAhead) % kUnits, slot);
      slot = slot + 1 < kAhead ? slot + 1 : 0;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = partial[r][0];
#pragma unroll
      for (int k = 1; k < kOctet; ++k) sum = sum + partial[r][k];
      float total = shuffle(sum, row * kLanes);
#pragma unroll
      for (int c = 1; c < kColumns; ++c) total = total + shuffle(sum, row * kLanes + c);
      if (lane == 0) shared.out[(round * kFloatWarps + warp) * kUnitRows + row + 4 * r] = total;
    }
  }
  end.finish(shared.out);
}

constexpr int kSlots = 4;  // of F16; more leave no room for the next kernel

/// Warps of a block and slots of each: 136 KB under way; rows of kNormed leave registers for the scores beside them.
template <int kWidth>
constexpr int kWarpsFor = kWidth == kNormed ? 4 : 8;
template <int kWidth>
constexpr int kSlotsFor = 32 / kWarpsFor<kWidth>;

template <int kWidth, bool kHasNorm>
struct Start {
  static constexpr int kWarps = kWarpsFor<kWidth>, kAhead = kSlotsFor<kWidth>;
  static constexpr std::size_t kSharedBytes = sizeof(RingOfCodes<kWidth, kWarps, kAhead>);
  static constexpr auto* kKernel = ring_kernel<kWidth, kHasNorm, kWarps, kAhead>;
  static void allow(Runtime& runtime) { runtime.allow_shared(reinterpret_cast<const void*>(kKernel), kSharedBytes); }
  static void run(Runtime& runtime, const RingCall& call) {
    launch(runtime, kKernel, {static_cast<unsigned>(call.p.w.rows / call.block_rows)}, kWarps * kWarp, kSharedBytes,
           call);
  }
};

/// Shared memory of the largest of them.
constexpr std::size_t kRingBytes = std::size_t{144} << 10;

/// Rows of a thread block: as many as make one wave, in steps of `step`, so that no warp has less to do than another.
int rows_for(const Runtime& runtime, const RingCall& call, int step) {
  if (call.p.streams.data != nullptr) return kWarp;
  const int share = (call.p.w.rows + runtime.multiprocessors() - 1) / runtime.multiprocessors();
  const int rows = (share + step - 1) / step * step;
  return rows < kMostBlockRows ? rows : kMostBlockRows;
}

}  // namespace

bool can_ring(const Runtime& runtime, DType dtype, const RingCall& call) {
  const Product& p = call.p;
  const int width = p.w.width;
  if (p.out.rows != 1 || p.expert != nullptr || runtime.most_shared_bytes() < kRingBytes) return false;
  if (p.w.rows > kMostBlockRows * runtime.multiprocessors() && width != kNormed) return false;  // no need of it
  if (p.w.rows % kMostBlockRows != 0 || (p.rows_a_group > 0 && p.rows_a_group % kMostBlockRows != 0)) return false;
  if (call.raw.data != nullptr) return width == kNormed && (dtype == DType::q8_0 || dtype == DType::f16);
  return dtype == DType::q8_0 && (width == kNormed || width == kChunk || width == 2 * kChunk);
}

void multiply_ring(Runtime& runtime, DType dtype, RingCall call) {
  const int width = call.p.w.width;
  int step = dtype == DType::f16 || width == kNormed ? 64 : 32;
  call.block_rows = rows_for(runtime, call, step);
  while (call.p.w.rows % call.block_rows != 0 ||
         (call.p.rows_a_group > 0 && call.p.rows_a_group % call.block_rows != 0))
    call.block_rows -= step;
  if (dtype == DType::f16) {
    const auto blocks = static_cast<unsigned>(call.p.w.rows / call.block_rows);
    return launch(runtime, ring_f16_kernel<kSlots>, {blocks}, kFloatThreads, sizeof(RingOfFloats<kSlots>), call);
  }
  if (call.raw.data != nullptr) return Start<kNormed, true>::run(runtime, call);
  if (width == kNormed) return Start<kNormed, false>::run(runtime, call);
  if (width == kChunk) return Start<kChunk, false>::run(runtime, call);
  Start<2 * kChunk, false>::run(runtime, call);
}

void prepare_rings(Runtime& runtime) {
  Start<kNormed, true>::allow(runtime);
  Start<kNormed, false>::allow(runtime);
  Start<kChunk, false>::allow(runtime);
  Start<2 * kChunk, false>::allow(runtime);
  runtime.allow_shared(reinterpret_cast<const void*>(&ring_f16_kernel<kSlots>), sizeof(RingOfFloats<kSlots>));
}

#else

bool can_ring(const Runtime&, DType, const RingCall&) { return false; }
void multiply_ring(Runtime&, DType, RingCall) {}
void prepare_rings(Runtime&) {}

#endif

}  // namespace lockstep::gpu
