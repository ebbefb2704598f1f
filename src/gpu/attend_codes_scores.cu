// The scores of attend_codes.h: a block has eight heads, whose norm and rotation it makes in registers, and 16 or 32
// slots; a warp has a chain, a thread one or two slots by four heads of it. Small blocks are for one query: they lie
// more evenly on the multiprocessors, and waits of one are filled by others.
#include "gpu/async_copy.h"
#include "gpu/attend_codes.h"

namespace lockstep::gpu {
namespace {

constexpr int kScoreThreads = kRowChains * kWarp;
constexpr int kThreadHeads = 4, kSlotThreads = kThreadHeads * kWarp / kCodedHeads;
static_assert(kSlotThreads == kLeastTileSlots);
// Bytes of a row in shared memory, wherever in 16 it begins, and the word after it: a multiple of 16, but none of 32.
constexpr int kRowPitch = 16 * (((kRowBytes + 15 + 4 + 15) / 16) | 1);
constexpr int kQueryPitch = kCodedWidth + 4;  // floats: four heads further is half the banks

LOCKSTEP_DEVICE void finish_copies() {
#if defined(LOCKSTEP_HAS_MMA)
  end_copy_group();
  wait_for_copies<0>();
#endif
}

/// Channels 64 j + 2 lane and the one after it of a row, for all j.
using RowPairs = float[kRowChains][2];
LOCKSTEP_DEVICE void load_pairs(RowPairs& x, const float* row) {
#pragma unroll
  for (int j = 0; j < kRowChains; ++j) {
    const FloatPair both = *reinterpret_cast<const FloatPair*>(row + j * kChain + 2 * lane_index());
    x[j][0] = both.value[0];
    x[j][1] = both.value[1];
  }
}

/// Norm without a weight and rotation of a row, by a warp (ops/rows.h): a lane of the dot's octets is four neighbouring
/// threads.
LOCKSTEP_DEVICE void norm_rotate(RowPairs& x, float epsilon, const float* turns) {
  const int lane = lane_index();
  float low = 0, high = 0;  // of the octets' places
#pragma unroll
  for (int j = 0; j < kRowChains; ++j) {
    low = fma_f32(x[j][0], x[j][0], low);
    high = fma_f32(x[j][1], x[j][1], high);
  }
  const int first = lane / 4 * 4;
  float octet = shuffle(low, first);
#pragma unroll
  for (int p = 1; p < kOctet; ++p) octet = octet + shuffle(p % 2 == 0 ? low : high, first + p / 2);
  float total = shuffle(octet, 0);
#pragma unroll
  for (int c = 1; c < kColumns; ++c) total = total + shuffle(octet, 4 * c);
  const float r = 1.0f / sqrt_f32(total / static_cast<float>(kCodedWidth) + epsilon);
#pragma unroll
  for (int j = 0; j < kRowChains; ++j) {
    x[j][0] = x[j][0] * r;
    x[j][1] = x[j][1] * r;
  }
  auto& turned = x[kCodeChains];
  const float a = turned[0], b = turned[1], c = turns[2 * lane], s = turns[2 * lane + 1];
  turned[0] = fma_f32(a, c, -(b * s));
  turned[1] = fma_f32(a, s, b * c);
}

/// Chain j of a row of the step as it will be packed, from `to` on, by a warp: its values are rounded already. `to` is
/// such that the floats are whole words.
LOCKSTEP_DEVICE void pack_chain(std::uint8_t* to, const float* row, int j) {
  const int lane = lane_index();
  const float low = row[j * kChain + lane], high = row[j * kChain + kWarp + lane];
  if (j < kCodeChains) {
    const std::uint32_t most = magnitude_bits(low) > magnitude_bits(high) ? magnitude_bits(low) : magnitude_bits(high);
    const int exponent = fp8_exponent(warp_max(most));
    to[j * kChain + lane] = fp8_code(low, exponent);
    to[j * kChain + kWarp + lane] = fp8_code(high, exponent);
    if (lane == 0) to[kCodedChannels + j] = exponent_to_e8m0(exponent);
  } else {
    auto* const floats = reinterpret_cast<float*>(to + kFloatsAt);
    floats[lane] = low;
    floats[kWarp + lane] = high;
  }
}
constexpr int kStepRowShift = (4 - kFloatsAt % 4) % 4;  // where such a row begins in its words

/// A chain of kEach rows by a thread's heads. The rows' bytes begin `bits` bits into `words`; heads are kQueryPitch
/// floats apart.
template <bool kIsCode, int kEach>
LOCKSTEP_DEVICE void chain_scores(float (&sum)[kEach][kThreadHeads], const std::uint32_t* const (&words)[kEach],
                                  const int (&bits)[kEach], const float (&scale)[kEach], const float* x) {
  std::uint32_t low[kEach];
#pragma unroll
  for (int r = 0; r < kEach; ++r) low[r] = words[r][0];
#pragma unroll 2
  for (int k = 0; k < kChain; k += 4) {
    float row[kEach][4];
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (kIsCode) {
        const std::uint32_t high = words[r][k / 4 + 1], codes = shift_pair(low[r], high, bits[r]);
        const FloatPair first = code_values(codes), second = code_values(codes >> 16);
#pragma unroll
        for (int e = 0; e < 4; ++e) row[r][e] = (e < 2 ? first.value[e] : second.value[e - 2]) * scale[r];
        low[r] = high;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const std::uint32_t high = words[r][k + e + 1];
          row[r][e] = f32_of(shift_pair(low[r], high, bits[r]));
          low[r] = high;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kThreadHeads; ++h) {
      const Floats4 query = *reinterpret_cast<const Floats4*>(x + h * kQueryPitch + k);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int r = 0; r < kEach; ++r) sum[r][h] = fma_f32(query.value[e], row[r][e], sum[r][h]);
    }
  }
}

template <int kEach>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, kEach == 1 ? 5 : 2) score_codes_kernel(Coded a) {
  constexpr int kSlots = kEach * kSlotThreads, kSumPitch = kSlots + 4, kRowsOfWarp = kSlots / kRowChains;
  wait_for_launch_before();
  let_next_launch_begin();  // only now: what is read before the next kernel waits is complete here
  LOCKSTEP_DYNAMIC_SHARED(Words4, coded_shared);
  LOCKSTEP_SHARED const std::uint8_t* sources[kSlots];
  LOCKSTEP_SHARED int shifts[kSlots];
  const int first_slot = block_x() * kSlots;
  const int i = a.first_row + block_z(), first_head = block_y() * kCodedHeads;
  const int t = thread_index(), lane = lane_index(), warp = t / kWarp;
  auto* const rows = reinterpret_cast<std::uint8_t*>(coded_shared);           // [kSlots][kRowPitch]
  auto* const queries = reinterpret_cast<float*>(rows + kSlots * kRowPitch);  // [kCodedHeads][kQueryPitch]
  float* const chain_sums = queries + kCodedHeads * kQueryPitch;              // [kRowChains][kCodedHeads][kSumPitch]
  float* const largest =
      a.tile_largest + (static_cast<std::int64_t>(block_z()) * (a.slots / kSlots) + block_x()) * a.heads + first_head;

  RowPairs query;
  load_pairs(query, a.queries.data + i * a.queries.stride + (first_head + warp) * kCodedWidth);
  const int first_row = warp * kRowsOfWarp;
  const std::uint32_t id = row_id(a, i, first_slot + first_row + lane % kRowsOfWarp);
  const Query q = query_of(a, i, slice_by_warp(a, i));
  int used = used_from(a, q, first_slot);
  used = used < kSlots ? used : kSlots;
  if (used <= 0) {
    if (t < kCodedHeads) largest[t] = -f32_of(kInfinity);
    return;
  }
  // Some rows a warp come as they are. What lies in the step is packed, a chain a warp.
  const Caches caches = caches_of(q);
  int first_step = first_slot < a.window_slots ? first_step_slot(q) - first_slot : kSlots;
  first_step = first_step > 0 ? first_step : 0;
  if (lane < kRowsOfWarp) {
    const int r = first_row + lane;
    const std::uint8_t* source = r < used ? packed_row(a, caches, first_slot + r, id) : caches.ring;
    sources[r] = source;
    shifts[r] = r < first_step ? static_cast<int>(reinterpret_cast<std::uintptr_t>(source) % 16) : kStepRowShift;
  }
  warp_barrier();
#pragma unroll
  for (int n = 0; n < kRowsOfWarp; ++n) {
    const int r = first_row + n, shift = shifts[r];
    const std::uint8_t* const source = sources[r] - shift;
#pragma unroll
    for (int at = 0; at < kRowBytes + 15; at += 16 * kWarp)
      if (r < first_step && at + 16 * lane < shift + kRowBytes)
        copy16(rows + r * kRowPitch + at + 16 * lane, source + at + 16 * lane);
  }
#pragma unroll 1
  for (int r = first_step; r < used; ++r)
    pack_chain(rows + r * kRowPitch + kStepRowShift, step_row(a, q, first_slot + r), warp);
  if (a.is_normed) norm_rotate(query, a.epsilon, a.turns.data + i * a.turns.stride);
#pragma unroll
  for (int j = 0; j < kRowChains; ++j)
    *reinterpret_cast<FloatPair*>(queries + warp * kQueryPitch + j * kChain + 2 * lane) = {{query[j][0], query[j][1]}};
  finish_copies();
  block_barrier();

  constexpr int kApart = kSlotThreads;  // a thread's slots
  const int slot = lane % kApart, half = lane / kApart, chain = warp;
  const bool is_code = chain < kCodeChains;
  const std::uint32_t* words[kEach];
  int bits[kEach];
  float scale[kEach];
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const int begin = (slot + kApart * r) * kRowPitch + shifts[slot + kApart * r];
    const int at = begin + (is_code ? chain * kChain : kFloatsAt);
    words[r] = reinterpret_cast<const std::uint32_t*>(rows) + at / 4;
    bits[r] = at % 4 * 8;
    scale[r] = is_code ? scale_of(rows[begin + kCodedChannels + chain]) : 1.0f;
  }
  const float* const x = queries + kThreadHeads * half * kQueryPitch + chain * kChain;
  float sum[kEach][kThreadHeads] = {};
  if (is_code)
    chain_scores<true, kEach>(sum, words, bits, scale, x);
  else
    chain_scores<false, kEach>(sum, words, bits, scale, x);
#pragma unroll
  for (int h = 0; h < kThreadHeads; ++h)
#pragma unroll
    for (int r = 0; r < kEach; ++r)
      chain_sums[(chain * kCodedHeads + kThreadHeads * half + h) * kSumPitch + slot + kApart * r] = sum[r][h];
  block_barrier();
  const int mine = lane % kSlots;
  float total = chain_sums[warp * kSumPitch + mine];
#pragma unroll
  for (int c = 1; c < kRowChains; ++c) total = total + chain_sums[(c * kCodedHeads + warp) * kSumPitch + mine];
  const float score = total * a.scale;
  if (lane < used)
    a.scores[(static_cast<std::int64_t>(block_z()) * a.heads + first_head + warp) * a.slots + first_slot + lane] =
        score;
  const float most = warp_max(lane < used ? score : -f32_of(kInfinity));
  if (lane == 0) largest[warp] = most;
}

constexpr std::size_t score_bytes(int slots) {
  return static_cast<std::size_t>(slots * kRowPitch) +
         sizeof(float) * static_cast<std::size_t>(kCodedHeads * (kQueryPitch + kRowChains * (slots + 4)));
}
constexpr int kMostSlots = 2 * kSlotThreads;
constexpr std::size_t kScoreStaticBytes = 2 * 1024;  // at most, with what a launch takes for itself

}  // namespace

bool can_score_codes(const Runtime& runtime) {
  return score_bytes(kMostSlots) + kScoreStaticBytes <= runtime.most_shared_bytes();
}

// Where small blocks would be more than two a multiprocessor, as at ratio 4, they make scores 0.3 us faster and the
// sums, which begin beside them, 1 us slower.
int score_tile_slots(const Runtime& runtime, int slots, int heads, int rows) {
  const int small_blocks = slots / kSlotThreads * (heads / kCodedHeads) * rows;
  return small_blocks <= 2 * runtime.multiprocessors() ? kSlotThreads : kMostSlots;
}

void score_codes(Runtime& runtime, const Coded& a, int rows) {
  const auto launch_slots = [&](auto kernel) {
    launch(runtime, kernel,
           {static_cast<unsigned>(a.slots / a.tile_slots), static_cast<unsigned>(a.heads / kCodedHeads),
            static_cast<unsigned>(rows)},
           kScoreThreads, score_bytes(a.tile_slots), a);
  };
  a.tile_slots == kSlotThreads ? launch_slots(score_codes_kernel<1>) : launch_slots(score_codes_kernel<2>);
}

void prepare_score_codes(Runtime& runtime) {
  const auto prepare = [&](auto kernel, int slots) {
    runtime.allow_shared(reinterpret_cast<const void*>(kernel), score_bytes(slots));
    runtime.prefer_shared(reinterpret_cast<const void*>(kernel));  // the sums begin beside it
  };
  prepare(&score_codes_kernel<1>, kSlotThreads);
  prepare(&score_codes_kernel<2>, kMostSlots);
}

}  // namespace lockstep::gpu
