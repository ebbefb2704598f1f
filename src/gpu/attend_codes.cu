// The sums of attend_codes.h, and the two launches. A block has eight heads and 32 channels and goes through all
// chains; a warp has a chain of rows, a thread two channels by four heads. Its rows come while the scores are still
// being made, for they depend on nothing that the first launch writes. Slots that nobody uses have a weight of 0 and a
// value of -0, whose product changes no sum, so all loops go by four. Chains meet in order; what attention gives is
// rotated back and rounded there.
#include "gpu/attend_codes.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

// Chains at a time: as many as there are at ratio 4, or of a long context at ratio 128. A warp has one, and some add
// the weights of them all.
constexpr int kShortChains = 10, kLongChains = 18;
LOCKSTEP_HOST_DEVICE constexpr int sum_warps(int chains) {
  const int all = chains + (chains * kCodedHeads + kWarp - 1) / kWarp;
  return all < kCodedHeads ? kCodedHeads : all;
}

// Of a block of sums: room of a chain of rows, as floats or as codes, and of its weights. Those are eight a slot, and
// eight more floats after every four slots, so that what a warp writes or reads at a time meets
// different banks.
constexpr int kThreadHeads = 4, kPairs = kThreadHeads * kWarp / kCodedHeads, kDims = 2 * kPairs;
constexpr int kDimGroups = kCodedWidth / kDims;
constexpr int kRowFloats = kChain * kDims, kRowCodes = kRowFloats / 4;  // both in floats
constexpr int kQuadFloats = 5 * kCodedHeads;
constexpr int kChainWeights = kChain / 4 * kQuadFloats;

/// Codes of a block's channels of a chain's rows, by a warp: `to` [16 quads of slots][kPairs of channels][4 slots][2].
/// There is a source for every slot of the last quad.
LOCKSTEP_DEVICE void bring_codes(std::uint8_t* to, const std::uint8_t* const* sources, int used, int first_dim) {
  constexpr int kWords = kPairs / 2;  // of a row
  const int lane = lane_index(), word = lane % kWords;
#pragma unroll 1
  for (int quad = lane / kWords; quad * 4 < used; quad += kWarp / kWords) {
    std::uint32_t low[4], high[4], codes[4];
    int bits[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto at = reinterpret_cast<std::uintptr_t>(sources[4 * quad + k]);
      const auto* words = reinterpret_cast<const std::uint32_t*>(at - at % 4) + first_dim / 4 + word;
      bits[k] = static_cast<int>(at % 4) * 8;
      low[k] = words[0];
      high[k] = words[1];  // no code is at a row's end
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) codes[k] = shift_pair(low[k], high[k], bits[k]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const std::uint32_t selector = n == 0 ? 0x5410u : 0x7632u;
      *reinterpret_cast<Words2*>(to + (quad * kPairs + 2 * word + n) * 8) = {
          {choose_bytes(codes[0], codes[1], selector), choose_bytes(codes[2], codes[3], selector)}};
    }
  }
}
/// Codes of -0 where the last quad has no slots.
LOCKSTEP_DEVICE void fill_codes(std::uint8_t* to, int used) {
  for (int s = used; s % 4 != 0; ++s)
    if (lane_index() < kPairs)
      *reinterpret_cast<std::uint16_t*>(to + (s / 4 * kPairs + lane_index()) * 8 + s % 4 * 2) = 0x8080u;
}
/// The same as floats: `to` [slots][kDims].
LOCKSTEP_DEVICE void bring_values(float* to, const std::uint8_t* const* sources, const float* scales, int used,
                                  int first_dim) {
  constexpr int kWords = kPairs / 2;  // of a row
  const int lane = lane_index(), word = lane % kWords;
#pragma unroll 1
  for (int quad = lane / kWords; quad * 4 < used; quad += kWarp / kWords) {
    std::uint32_t low[4], high[4];
    int bits[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto at = reinterpret_cast<std::uintptr_t>(sources[4 * quad + k]);
      const auto* words = reinterpret_cast<const std::uint32_t*>(at - at % 4) + first_dim / 4 + word;
      bits[k] = static_cast<int>(at % 4) * 8;
      low[k] = words[0];
      high[k] = words[1];  // no code is at a row's end
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int slot = 4 * quad + k;
      const std::uint32_t codes = slot < used ? shift_pair(low[k], high[k], bits[k]) : 0x80808080u;
      const FloatPair first = code_values(codes), second = code_values(codes >> 16);
      const float scale = scales[slot];
      *reinterpret_cast<Floats4*>(to + slot * kDims + 4 * word) = {
          {first.value[0] * scale, first.value[1] * scale, second.value[0] * scale, second.value[1] * scale}};
    }
  }
}
/// One of the rows of the step, in its place among them, by a warp; its scale.
LOCKSTEP_DEVICE float put_codes(std::uint8_t* to, const float* row, int slot, int first_dim) {
  const int lane = lane_index(), block = first_dim / kFp8Block * kFp8Block;
  const float low = row[block + lane], high = row[block + kWarp + lane];
  const std::uint32_t most = magnitude_bits(low) > magnitude_bits(high) ? magnitude_bits(low) : magnitude_bits(high);
  const int exponent = fp8_exponent(warp_max(most));
  to[(slot / 4 * kPairs + lane / 2) * 8 + slot % 4 * 2 + lane % 2] =
      fp8_code(first_dim == block ? low : high, exponent);
  return scale_of(exponent_to_e8m0(exponent));
}
/// A block's channels that lie as floats, anywhere: `to` [slots][kDims]. A packed row's begin at byte `packed_at`,
/// one's of the step, which are those of slots from first_float on, at `step_at`.
LOCKSTEP_DEVICE void bring_floats(float* to, const std::uint8_t* const* sources, int used, int first_float,
                                  int packed_at, int step_at) {
  const int lane = lane_index(), d = lane % (kDims / 4) * 4;
#pragma unroll 2
  for (int s = lane / (kDims / 4); s < kChain; s += kWarp / (kDims / 4)) {
    Floats4 values = {{-0.0f, -0.0f, -0.0f, -0.0f}};
    if (s < used) {
      const auto at = reinterpret_cast<std::uintptr_t>(sources[s] + (s >= first_float ? step_at : packed_at) + 4 * d);
      const auto* words = reinterpret_cast<const std::uint32_t*>(at - at % 4);
      std::uint32_t word[5];
#pragma unroll
      for (int k = 0; k < 5; ++k) word[k] = k < 4 || at % 4 != 0 ? words[k] : 0u;
#pragma unroll
      for (int k = 0; k < 4; ++k)
        values.value[k] = f32_of(shift_pair(word[k], word[k + 1], static_cast<int>(at % 4) * 8));
    }
    *reinterpret_cast<Floats4*>(to + s * kDims + d) = values;
  }
}

/// Sums over a chain's rows, two channels by a thread's heads: weights as above, of the first of these heads.
template <bool kIsCode>
LOCKSTEP_DEVICE void chain_sums_of(float (&sum)[kThreadHeads][2], const float* weights, const float* rows,
                                   const float* scales, int pair, int used) {
#pragma unroll 2
  for (int quad = 0; quad * 4 < used; ++quad) {
    float value[4][2];
    if (kIsCode) {
      const Words2 codes = reinterpret_cast<const Words2*>(rows)[quad * kPairs + pair];
      const Floats4 scale = *reinterpret_cast<const Floats4*>(scales + 4 * quad);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const FloatPair both = code_values(codes.word[k / 2] >> (k % 2 * 16));
#pragma unroll
        for (int d = 0; d < 2; ++d) value[k][d] = both.value[d] * scale.value[k];
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto both = *reinterpret_cast<const FloatPair*>(rows + (4 * quad + k) * 2 * kPairs + 2 * pair);
#pragma unroll
        for (int d = 0; d < 2; ++d) value[k][d] = both.value[d];
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Floats4 weight = *reinterpret_cast<const Floats4*>(weights + quad * kQuadFloats + k * kCodedHeads);
#pragma unroll
      for (int h = 0; h < kThreadHeads; ++h)
#pragma unroll
        for (int d = 0; d < 2; ++d) sum[h][d] = fma_f32(weight.value[h], value[k][d], sum[h][d]);
    }
  }
}

/// Of each of a block's heads, its sink included, the largest score, from what blocks of scores left: a tile and head a
/// thread, for all blocks of a head group read the same few lines. Thread 4 h of a warp gives `parts` what it saw of
/// head h.
LOCKSTEP_DEVICE void largest_parts(const Coded& a, const float* tile_largest, float (*parts)[kCodedHeads]) {
  const int lane = lane_index(), tiles = a.slots / a.tile_slots;
  float largest = -f32_of(kInfinity);
#pragma unroll 1
  for (int tile = thread_index() / kWarp * 4 + lane % 4; tile < tiles; tile += block_threads() / kCodedHeads) {
    const float other = tile_largest[tile * a.heads + lane / 4];
    largest = other > largest ? other : largest;
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    const float other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (lane % 4 == 0) parts[thread_index() / kWarp][lane / 4] = largest;
}

/// Not as many as there are: so that 56 registers are left to a thread. A quarter of a multiprocessor has room for four
/// such warps beside six of scores; of 64 registers some blocks began only when the scores were done.
constexpr int kUnpackThreads = 576;

/// kUnpacks: rows are unpacked before the scores are there, which takes more room.
template <int kMostChains, bool kUnpacks>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kUnpacks ? kUnpackThreads : sum_warps(kMostChains) * kWarp,
                                     kMostChains != kShortChains ? 1
                                     : kUnpacks                  ? 2
                                                                 : 3) sum_codes_kernel(Coded a) {
  let_next_launch_begin();
  LOCKSTEP_DYNAMIC_SHARED(Words4, coded_shared);
  LOCKSTEP_SHARED const std::uint8_t* sources[kMostChains][kChain];
  LOCKSTEP_SHARED float scales[kMostChains][kChain] LOCKSTEP_ALIGNED(16);
  LOCKSTEP_SHARED float warp_parts[sum_warps(kMostChains)][kCodedHeads];  // largest scores, then sums of weights
  LOCKSTEP_SHARED float sink_weights[kCodedHeads];
  const int t = thread_index(), warp = t / kWarp, lane = lane_index();
  const int wave_row = block_y(), i = a.first_row + wave_row;
  const int first_dim = block_x() % kDimGroups * kDims, first_head = block_x() / kDimGroups * kCodedHeads;
  const bool is_code = first_dim < kCodedChannels;
  const int at_once = is_code ? a.codes_at_once : a.floats_at_once,
            row_room = is_code && !kUnpacks ? kRowCodes : kRowFloats;
  const bool has_chain = warp < at_once;
  float* const rows = reinterpret_cast<float*>(coded_shared);  // [at_once][row_room]
  float* const weights = rows + at_once * row_room;            // [at_once][kChainWeights]
  const Query q = query_of(a, i, slice_by_warp(a, i));
  const Caches caches = caches_of(q);
  const int used_slots = q.compressed > 0 ? a.window_slots + q.compressed : q.in_window;
  const int chains = (used_slots + kChain - 1) / kChain;
  const auto used_of = [&](int chain) {
    const int used = chain < chains ? used_from(a, q, chain * kChain) : 0;
    return used < kChain ? used : kChain;
  };
  float* const my_rows = rows + warp * row_room;
  float* const my_weights = weights + warp * kChainWeights;
  float total = 0, denominator = 0, largest = 0;
#pragma unroll 1
  for (int base = 0; base < chains; base += at_once) {
    const int chain = base + warp, used = has_chain ? used_of(chain) : 0;
    const std::uint32_t used_chains = warp_ballot(lane < at_once && used_of(base + lane) > 0);
    if (used > 0) {
      int first_step = chain * kChain < a.window_slots ? first_step_slot(q) - chain * kChain : kChain;
      first_step = first_step > 0 ? first_step : 0;
#pragma unroll
      for (int s = lane; s < kChain; s += kWarp) {
        const int slot = chain * kChain + (s < used ? s : used - 1);
        const std::uint8_t* source = slot < chain * kChain + first_step
                                         ? packed_row(a, caches, slot, row_id(a, i, slot))
                                         : reinterpret_cast<const std::uint8_t*>(step_row(a, q, slot));
        sources[warp][s] = source;
        scales[warp][s] =
            is_code && s < used && s < first_step ? scale_of(source[kCodedChannels + first_dim / kFp8Block]) : 1.0f;
      }
      warp_barrier();
      if (kUnpacks && is_code) {
        bring_values(my_rows, sources[warp], scales[warp], used, first_dim);
        warp_barrier();
#pragma unroll 1
        for (int s = first_step; s < used; ++s)  // rounded already
          my_rows[s * kDims + lane] = reinterpret_cast<const float*>(sources[warp][s])[first_dim + lane];
      } else if (is_code) {
        auto* const codes = reinterpret_cast<std::uint8_t*>(my_rows);
        bring_codes(codes, sources[warp], used, first_dim);
        warp_barrier();
        fill_codes(codes, used);
#pragma unroll 1
        for (int s = first_step; s < used; ++s) {
          const float scale = put_codes(codes, reinterpret_cast<const float*>(sources[warp][s]), s, first_dim);
          if (lane == 0) scales[warp][s] = scale;
        }
      } else {
        bring_floats(my_rows, sources[warp], used, first_step, kFloatsAt + 4 * (first_dim - kCodedChannels),
                     4 * first_dim);
      }
    }
    const int head = first_head + lane / 4;
    const float sink = a.sinks[head];
    if (base == 0) wait_for_launch_before();
    constexpr int kQuads = kChain / 16;  // of a thread, every fourth
    static_assert(kWarp == 4 * kCodedHeads);
    Floats4 scores[kQuads] = {};
    if (used > 0) {
      const float* from = a.scores + (static_cast<std::int64_t>(wave_row) * a.heads + head) * a.slots + chain * kChain;
#pragma unroll
      for (int n = 0; n < kQuads; ++n) scores[n] = reinterpret_cast<const Floats4*>(from)[lane % 4 + 4 * n];
    }
    if (base == 0) {  // while the scores are on their way
      largest_parts(
          a, a.tile_largest + static_cast<std::int64_t>(wave_row) * (a.slots / a.tile_slots) * a.heads + first_head,
          warp_parts);
      block_barrier();
      largest = sink;
#pragma unroll 4
      for (int w = 0; w < block_threads() / kWarp; ++w) {
        const float other = warp_parts[w][lane / 4];
        largest = other > largest ? other : largest;
      }
      if (warp == 0 && lane % 4 == 0) sink_weights[lane / 4] = exp_f32(sink - largest);
    }
    if (used > 0) {
      float* to = my_weights + lane % 4 * kQuadFloats + lane / 4;
#pragma unroll 1
      for (int slot = 4 * (lane % 4); slot < kChain; slot += 16) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {  // of a slot that is not used, 0
          const float score = slot + k < used ? scores[0].value[k] : -f32_of(kInfinity);
          to[k * kCodedHeads] = exp_f32(score - largest);
        }
        to += 4 * kQuadFloats;
#pragma unroll
        for (int m = 0; m + 1 < kQuads; ++m) scores[m] = scores[m + 1];
      }
    }
    block_barrier();
    if (has_chain) {
      if (used > 0) {
        const int pair = lane % kPairs, half = lane / kPairs;
        float sum[kThreadHeads][2] = {};
        if (is_code && !kUnpacks)
          chain_sums_of<true>(sum, my_weights + kThreadHeads * half, my_rows, scales[warp], pair, used);
        else
          chain_sums_of<false>(sum, my_weights + kThreadHeads * half, my_rows, scales[warp], pair, used);
        warp_barrier();  // the sums stand where the chain's rows stood
#pragma unroll
        for (int h = 0; h < kThreadHeads; ++h)
          *reinterpret_cast<FloatPair*>(my_rows + (kThreadHeads * half + h) * kDims +
                                        2 * pair) = {{sum[h][0], sum[h][1]}};
      }
    } else {  // the sums of the weights of a chain and head
      const int item = t - at_once * kWarp, c = item / kCodedHeads, h = item % kCodedHeads;
      if (c < at_once && (used_chains >> c & 1u) != 0) {
        const float* w = weights + c * kChainWeights + h;
        float sum = 0;
#pragma unroll 2
        for (int quad = 0; quad < kChain / 4; ++quad)
#pragma unroll
          for (int k = 0; k < 4; ++k) sum = sum + w[quad * kQuadFloats + k * kCodedHeads];
        warp_parts[c][h] = sum;
      }
    }
    block_barrier();
    if (warp < kCodedHeads) {
      if (base == 0) denominator = sink_weights[warp];
#pragma unroll 2
      for (int c = 0; c < at_once; ++c) {
        if ((used_chains >> c & 1u) == 0) continue;
        const float part = rows[c * row_room + warp * kDims + lane];
        total = base + c == 0 ? part : total + part;
        denominator = denominator + warp_parts[c][warp];
      }
    }
    if (base + at_once < chains) block_barrier();
  }
  if (warp >= kCodedHeads) return;
  finish_head(a, i, first_head + warp, first_dim + lane, kCodedWidth, total, denominator);
}

std::size_t sum_bytes(int at_once, int row_room) {
  return sizeof(float) * static_cast<std::size_t>(at_once * (row_room + kChainWeights));
}
constexpr std::size_t kLaunchBytes = 1024;        // of shared memory that a launch takes for itself
constexpr std::size_t static_bytes(int chains) {  // at most, with that
  return (chains == kShortChains ? 8 * 1024 : 15 * 1024) + kLaunchBytes;
}

void launch_sums(Runtime& runtime, Coded a, int rows) {
  // Codes of all chains at once, if there is room. Rows of floats, of which few blocks have any, likewise if there is
  // one query; if there are more, two blocks are to fit on a multiprocessor.
  const int chains = a.slots / kChain;
  const bool is_long = rows == 1 && chains > kShortChains;
  const int most = is_long ? kLongChains : kShortChains;
  const std::size_t taken = static_bytes(most), room = runtime.most_shared_bytes() - taken,
                    half = (runtime.most_shared_bytes() + kLaunchBytes) / 2 - taken;
  a.codes_at_once = chains < most ? chains : most;
  while (sum_bytes(a.codes_at_once, kRowCodes) > room) --a.codes_at_once;
  const std::size_t of_codes = sum_bytes(a.codes_at_once, kRowCodes), wanted = rows == 1 ? room : half,
                    allowed = wanted > of_codes ? wanted : of_codes;
  a.floats_at_once = a.codes_at_once;
  while (a.floats_at_once > 1 && sum_bytes(a.floats_at_once, kRowFloats) > allowed) --a.floats_at_once;
  const std::size_t of_floats = sum_bytes(a.floats_at_once, kRowFloats);
  std::size_t bytes = of_codes > of_floats ? of_codes : of_floats;
  // Of one query there is a block for every multiprocessor: where there is much to do, two on one take longer.
  if (rows == 1 && bytes > half / 2 && bytes < half + kLaunchBytes) bytes = half + kLaunchBytes;
  const auto launch_kind = [&](auto kernel) {
    launch(runtime, kernel, {static_cast<unsigned>(kDimGroups * (a.heads / kCodedHeads)), static_cast<unsigned>(rows)},
           static_cast<unsigned>(sum_warps(a.codes_at_once) * kWarp), bytes, a);
  };
  if (is_long)
    launch_kind(sum_codes_kernel<kLongChains, false>);
  else if (rows == 1 && a.floats_at_once == a.codes_at_once)
    launch_kind(sum_codes_kernel<kShortChains, true>);
  else
    launch_kind(sum_codes_kernel<kShortChains, false>);
}

}  // namespace

bool can_attend_codes(const Runtime& runtime, const AttendCall& call, const PackedRows& layout) {
  return !layout.is_plain && layout.width == kCodedWidth && layout.rotary == kChain &&
         call.queries.width / kCodedWidth % kCodedHeads == 0 &&
         (call.turns.data == nullptr || call.turns.width == kChain) &&
         reinterpret_cast<std::uintptr_t>(call.queries.data) % 8 == 0 && call.queries.stride % 2 == 0 &&
         can_score_codes(runtime) &&
         sum_bytes(1, kRowFloats) + static_bytes(kLongChains) <= runtime.most_shared_bytes();
}

void attend_codes(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows,
                  float* scratch, const PackedRows& layout) {
  Coded a = {};
  static_cast<HeadAttention&>(a) = head_attention_of(call, slices, first_row, rows, scratch, layout);
  a.tile_slots = score_tile_slots(runtime, a.slots, a.heads, rows);
  score_codes(runtime, a, rows);
  launch_sums(runtime, a, rows);
}

void prepare_attend_codes(Runtime& runtime) {
  prepare_score_codes(runtime);
  const auto prepare = [&](auto kernel, int chains) {
    runtime.allow_shared(reinterpret_cast<const void*>(kernel), runtime.most_shared_bytes() - static_bytes(chains));
    runtime.prefer_shared(reinterpret_cast<const void*>(kernel));
  };
  prepare(&sum_codes_kernel<kShortChains, false>, kShortChains);
  prepare(&sum_codes_kernel<kShortChains, true>, kShortChains);
  prepare(&sum_codes_kernel<kLongChains, false>, kLongChains);
}

}  // namespace lockstep::gpu
