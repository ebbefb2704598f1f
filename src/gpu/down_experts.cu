// The second half of one token's experts in one launch: their last products by Q2_K weights, that of the shared expert
// by Q8_0 weights, the sum of them all, and its spreading over the streams.
//
// A thread block has 32 channels, of every expert; so what is added up is its own. A warp takes eight rows
// of an expert, and of each of them the eight lanes of the law; what it multiplies comes in one piece that a single
// thread has asked for. Integers are added to the bits of 1.5 * 2^23, which makes a float of them by one subtraction.
#include "gpu/bulk_copy.h"
#include "gpu/device.h"
#include "gpu/down_experts.h"
#include "gpu/lane_matvec.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kDownLanes = 8, kDownUsed = 6;  // of rows of 2048 values; experts of a token, at most
constexpr int kWarpRows = 8, kRows = 32;      // of a warp, of a thread block

struct Down {
  Matrix w;
  Rounded x;
  const std::int32_t* expert;
  int used;
  bool is_expert_known;  // Product
  Matrix shared_w;
  Rounded shared_x;
  Rows streams;
  ConstRows coefficients;
};

constexpr int kDownRowBytes = static_cast<int>(plane_row_bytes(DType::q2_k, kDownLanes* kLaneHold* kBlock));
constexpr int kSharedRowBytes = static_cast<int>(plane_row_bytes(DType::q8_0, kDownLanes* kLaneHold* kBlock));

struct DownShared {
  static constexpr int kSlots = kDownUsed + 1;  // the last one is the shared expert's
  LaneInput<kDownLanes> x[kSlots];
  alignas(16) std::uint8_t row[kDownUsed][kRows][kDownRowBytes];  // neighbouring ones are a quarter of the banks apart
  alignas(16) std::uint8_t shared_row[kRows][kSharedRowBytes];
  float total[kSlots][kRows];
  BulkCopy copy[kSlots * kRows / kWarpRows];
};

constexpr int kAhead = 8;  // warps whose rows are under way: 43 KB

constexpr int kFloatBits = 0x4B400000;  // of 1.5 * 2^23: so many units of 1 are added by adding integers
LOCKSTEP_DEVICE float float_of(int biased) { return f32_of(static_cast<std::uint32_t>(biased)) - 12582912.0f; }

/// sum + the dot of a pair of int16 with the lower two bytes of `bytes`.
LOCKSTEP_DEVICE int dot2(std::uint32_t pair, std::uint32_t bytes, int sum) {
#if defined(__CUDA_ARCH__)
  return __dp2a_lo(static_cast<int>(pair), static_cast<int>(bytes), sum);
#else
  return sum + static_cast<std::int16_t>(pair & 0xffffu) * static_cast<std::int8_t>(bytes & 255u) +
         static_cast<std::int16_t>(pair >> 16) * static_cast<std::int8_t>(bytes >> 8 & 255u);
#endif
}

constexpr int kRowBlocks = kDownLanes * kLaneHold;

/// An expert's rows of Q2_K.
struct ExpertRows {
  static constexpr int kBytes = kDownRowBytes;
  /// Term i of a lane; |whole| is at most 182,880.
  LOCKSTEP_DEVICE static float term(const std::uint8_t* row, int i, int lane, const Words4 (&codes)[2],
                                    std::uint32_t half_sums) {
    const int block = lane + i * kDownLanes;
    const Words2 code = read_as<Words2>(row + block * 8);
    const std::uint32_t nibbles = read_as<std::uint16_t>(row + kRowBlocks * 8 + block * 2);
    const std::uint32_t scales = read_as<std::uint32_t>(row + kRowBlocks * 10 + i * 4);
    int dot[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int k = 0; k < 4; ++k) dot[h] = dot4(code.word[h] >> (2 * k) & 0x03030303u, codes[h].word[k], dot[h]);
    const int whole =
        dot[0] * static_cast<int>(nibbles & 15u) + kFloatBits + dot[1] * static_cast<int>(nibbles >> 8 & 15u);
    const int min = dot2(half_sums, nibbles >> 4 & 0x0f0fu, kFloatBits);
    return fma_f32(-float_of(min), widen_f16(scales >> 16), float_of(whole) * widen_f16(scales & 0xffffu));
  }
  LOCKSTEP_DEVICE static int first_half(int) { return 0; }
};

/// The shared expert's rows of Q8_0.
struct SharedRows {
  static constexpr int kBytes = kSharedRowBytes;
  /// |dot| is at most 516,128.
  LOCKSTEP_DEVICE static float term(const std::uint8_t* row, int i, int lane, const Words4 (&codes)[2], std::uint32_t) {
    const int block = lane + i * kDownLanes, first = first_half(lane);
    int dot = kFloatBits;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Words4 code = read_as<Words4>(row + block * kBlock + 16 * (h ^ first));
#pragma unroll
      for (int k = 0; k < 4; ++k) dot = dot4(code.word[k], codes[h].word[k], dot);
    }
    return float_of(dot) * widen_f16(read_as<std::uint16_t>(row + kRowBlocks * kBlock + block * 2));
  }
  /// The half that a lane reads first, so that eight of them read all banks.
  LOCKSTEP_DEVICE static int first_half(int lane) { return lane / (kDownLanes / 2); }
};

/// Two rows of a warp's eight by each of its groups of lanes: `sum` of the lanes.
template <class T>
LOCKSTEP_DEVICE void add_rows(float (&sum)[2], const std::uint8_t* rows, const LaneInput<kDownLanes>& x) {
  const int lane = lane_index() % kDownLanes, group = lane_index() / kDownLanes, first = T::first_half(lane);
  const std::uint8_t* row = rows + (group % 2 * 2 + group / 2) * T::kBytes;  // and the fourth after it
#pragma unroll 4
  for (int i = 0; i < kLaneHold; ++i) {
    const Words4 codes[2] = {x.codes[i][first][lane], x.codes[i][1 - first][lane]};
    const std::uint32_t half_sums = x.half_sums[i][lane];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      sum[r] = fma_f32(T::term(row + r * 4 * T::kBytes, i, lane, codes, half_sums), x.scales[i][lane], sum[r]);
  }
}

/// A row's input, as lanes read it, by `threads` threads.
LOCKSTEP_DEVICE void stage_input(LaneInput<kDownLanes>& to, const Rounded& x, std::int64_t at, int thread,
                                 int threads) {
  constexpr int kCodes = kDownLanes * kLaneHold * 2, kWords = kDownLanes * kLaneHold / 4;
  for (int i = thread; i < kCodes + 2 * kWords; i += threads) {
    const int block = i / 2;
    if (i < kCodes)
      to.codes[block / kDownLanes][i % 2][block % kDownLanes] = *reinterpret_cast<const Words4*>(x.codes + at + i * 16);
    else if (i < kCodes + kWords)
      reinterpret_cast<Words4*>(to.scales)[i - kCodes] =
          reinterpret_cast<const Words4*>(x.scales + at / kBlock)[i - kCodes];
    else
      reinterpret_cast<Words4*>(to.half_sums)[i - kCodes - kWords] =
          reinterpret_cast<const Words4*>(x.half_sums + at / 16)[i - kCodes - kWords];
  }
}

constexpr int kDownThreads = DownShared::kSlots * kRows / kWarpRows * kWarp;

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kDownThreads, 1) down_kernel(LOCKSTEP_PARAMETER Down p) {
  constexpr int kSlotWarps = kRows / kWarpRows, kSlotThreads = kSlotWarps * kWarp, kStreams = 4;
  static_assert(kSlotThreads == kStreams * kRows);
  LOCKSTEP_DYNAMIC_SHARED(Words4, down_shared);
  auto& shared = *reinterpret_cast<DownShared*>(down_shared);
  let_next_launch_begin();
  const int t = thread_index() % kSlotThreads, slot = thread_index() / kSlotThreads;
  const int first_row = block_x() * kRows, warp_row = t / kWarp * kWarpRows;
  const bool is_shared = slot == p.used;
  const int warp = thread_index() / kWarp;
  shared.copy[warp].prepare();
  block_barrier();
  if (!p.is_expert_known) wait_for_launch_before();
  int place = slot;  // in the order of the sum
  std::uint8_t* rows = &shared.shared_row[warp_row][0];
  const std::uint8_t* from = p.shared_w.data + static_cast<std::int64_t>(first_row + warp_row) * kSharedRowBytes;
  if (!is_shared) {
    const int own = p.expert[slot];
    rows = &shared.row[slot][warp_row][0];
    from = p.w.data + (static_cast<std::int64_t>(own) * p.w.rows + first_row + warp_row) * kDownRowBytes;
    place = 0;
    for (int s = 0; s < p.used; ++s) place += p.expert[s] < own || (p.expert[s] == own && s < slot) ? 1 : 0;
  }
  // If all asked at once, all would have the last of their rows at the end.
  const int bytes = kWarpRows * (is_shared ? kSharedRowBytes : kDownRowBytes);
  if (warp < kAhead) shared.copy[warp].begin(rows, from, bytes);
  if (p.is_expert_known) wait_for_launch_before();
  if (is_shared)
    stage_input(shared.x[slot], p.shared_x, 0, t, kSlotThreads);
  else
    stage_input(shared.x[slot], p.x, slot * p.x.stride, t, kSlotThreads);
  // The first slot's threads spread the sum: each has a channel of one stream.
  const int d = first_row + t % kRows, q = t / kRows, width = p.w.rows;
  float* const at = p.streams.data + d;
  float before[kStreams] = {}, comb[kStreams] = {}, post = 0;
  if (slot == 0) {
    const float* coefficients = p.coefficients.data + kStreams;
    post = coefficients[q];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      comb[j] = coefficients[kStreams + j * kStreams + q];
      before[j] = at[j * width];
    }
  }
  block_barrier();
  if (warp >= kAhead) {
    shared.copy[warp - kAhead].wait_for_another();
    shared.copy[warp].begin(rows, from, bytes);
  }
  shared.copy[warp].wait();
  float sum[2] = {0, 0};
  if (is_shared)
    add_rows<SharedRows>(sum, rows, shared.x[slot]);
  else
    add_rows<ExpertRows>(sum, rows, shared.x[slot]);
  const int lane = lane_index() % kDownLanes, group = lane_index() / kDownLanes,
            row = warp_row + group % 2 * 2 + group / 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = fold_threads<kDownLanes>(sum[r]);
    if (lane == 0) shared.total[place][row + 4 * r] = total;
  }
  block_barrier();
  if (slot != 0) return;
  float y = shared.total[0][t % kRows];
  for (int s = 1; s < p.used; ++s) y = y + shared.total[s][t % kRows];
  y = y + shared.total[p.used][t % kRows];
  float out = post * y;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) out = fma_f32(comb[j], before[j], out);
  at[q * width] = out;
}

}  // namespace

bool multiply_down(Runtime& runtime, DType dtype, const Product& down, int used, DType shared_dtype,
                   const Product& shared, Rows streams, ConstRows coefficients) {
  const bool is_known = dtype == DType::q2_k && shared_dtype == DType::q8_0;
  if (!is_known || streams.rows != 1 || used > kDownUsed || !is_lane_width(down.w.width, kDownLanes) ||
      shared.w.width != down.w.width || shared.w.rows != down.w.rows || down.w.rows % kRows != 0 ||
      sizeof(DownShared) > runtime.most_shared_bytes())
    return false;
  const Down p = {down.w,   down.rounded,   down.expert, used,        down.is_expert_known,
                  shared.w, shared.rounded, streams,     coefficients};
  launch(runtime, down_kernel, {static_cast<unsigned>(down.w.rows / kRows)},
         static_cast<unsigned>((used + 1) * kRows / kWarpRows * kWarp), sizeof(DownShared), p);
  return true;
}

void prepare_down(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&down_kernel), sizeof(DownShared));
}

#else

bool multiply_down(Runtime&, DType, const Product&, int, DType, const Product&, Rows, ConstRows) { return false; }
void prepare_down(Runtime&) {}

#endif

}  // namespace lockstep::gpu
