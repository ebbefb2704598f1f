// Attention of few queries, where what counts is how soon a launch is done: two launches.
//
// Scores: a block has 32 slots and some heads, whose norm and rotation it makes as well; a thread unpacks one chain of
// one row into registers, a warp sharing the chain, and the queries come to all of its threads at once from shared
// memory. Sums: a block has eight heads and 32 channels and goes through all chains, a warp a chain; its rows are
// unpacked while the scores are still being made, for they depend on nothing that the first launch writes. Chains meet
// in order in the block, and what attention gives is rotated back and rounded there.
//
// Rows of the model's shape in official mode go through attend_codes.cu instead.
#include "gpu/attend_heads.h"
#include "gpu/block_dot.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

constexpr int kScoreThreads = 256, kScoreSlots = 32, kHeadStep = 4, kMostHeads = 16;  // of a block of scores
constexpr int kSumHeads = 8, kSumDims = 32, kMostAtOnce = 10;                         // of a block of sums
constexpr int kFewRows = 8;  // up to so many rows of a wave are few

struct Few : HeadAttention {
  int heads_a_block;   // of scores
  int word_pitch;      // of packed rows in shared memory
  int chains_at_once;  // of sums
};

/// The first of the window's slots whose rows lie as floats in the step.
LOCKSTEP_DEVICE int first_float_slot(const Query& q) {
  const std::int64_t slot = q.slice->begin - q.oldest;
  return static_cast<int>(slot > 0 ? slot : 0);
}
LOCKSTEP_DEVICE bool has_floats(const Attention& a, int slot, int first_float) {
  return slot < a.window_slots && slot >= first_float;
}
LOCKSTEP_DEVICE const std::uint8_t* address_of(const Attention& a, const Query& q, int i, int slot,
                                               const PackedRows& layout) {
  const Source source = source_of(a, q, i, slot, layout);
  return source.floats != nullptr ? reinterpret_cast<const std::uint8_t*>(source.floats) : source.packed;
}

/// What a code of an fp8 block is multiplied by, in two steps (row_code_value).
struct CodeScale {
  float first, second;
};
LOCKSTEP_DEVICE CodeScale code_scale(std::uint32_t e8m0) {
  const int exponent = e8m0_to_exponent(static_cast<std::uint8_t>(e8m0)), low = exponent < 7 ? exponent : 7;
  return {power_of_two(120 + low), exponent == kBadExponent ? f32_of(kQuietNaN) : power_of_two(exponent - low)};
}
/// The value of the code in byte k of `codes`.
LOCKSTEP_DEVICE float code_value(std::uint32_t codes, int k, const CodeScale& scale) {
  const auto top = static_cast<std::int32_t>(codes << (24 - 8 * k) & 0xff000000u);
  return f32_of(static_cast<std::uint32_t>(top >> 4) & 0x87f00000u) * scale.first * scale.second;
}

/// Norm without a weight and rotation of a head in shared memory, by a warp (ops/rows.h); width is at most 1024, so
/// that its dot has eight lanes.
LOCKSTEP_DEVICE void norm_rotate_by_warp(float* head, int width, float epsilon, const float* turns, int rotary) {
  const int l = lane_index();
  float low = 0, high = 0;  // partial sums of places l and l + 32 of 64
  for (int k = l; k < width; k += 2 * kWarp) {
    low = fma_f32(head[k], head[k], low);
    if (k + kWarp < width) high = fma_f32(head[k + kWarp], head[k + kWarp], high);
  }
  const float r = 1.0f / sqrt_f32(fold_64(low, high) / static_cast<float>(width) + epsilon);
  warp_barrier();
  const int turned = width - rotary;
  for (int k = l; k < turned; k += kWarp) head[k] = head[k] * r;
  for (int k = 2 * l; k < rotary; k += 2 * kWarp) {
    const float x = head[turned + k] * r, y = head[turned + k + 1] * r, c = turns[k], s = turns[k + 1];
    head[turned + k] = fma_f32(x, c, -(y * s));
    head[turned + k + 1] = fma_f32(x, s, y * c);
  }
  warp_barrier();
}

LOCKSTEP_DEVICE_CALL float any_row_value(const std::uint8_t* row, int d, const PackedRows& layout) {
  return row_value(row, d, layout);
}

constexpr int kPiece = 16;  // channels of a row that a thread unpacks at a time: what is executed once is slow, for its
                            // code is read from far away

/// Floats of a row of queries in shared memory.
LOCKSTEP_HOST_DEVICE constexpr int query_pitch(int width) { return (width + 3) / 4 * 4 + 4; }

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, 2) score_few_kernel(Few a, PackedRows layout) {
  wait_for_launch_before();
  let_next_launch_begin();  // only now: what is read before the next kernel waits is complete here
  LOCKSTEP_DYNAMIC_SHARED(Words4, few_shared);
  LOCKSTEP_SHARED const std::uint8_t* sources[kScoreSlots];
  const int i = a.first_row + block_z(), first_slot = block_x() * kScoreSlots, t = thread_index();
  const int first_head = block_y() * a.heads_a_block, width = layout.width, pitch = query_pitch(width);
  const Query q = query_of(a, i);
  int used = used_from(a, q, first_slot);
  used = used < kScoreSlots ? used : kScoreSlots;
  if (used <= 0) return;
  const int lane = lane_index(), warp = t / kWarp, first_float = first_float_slot(q);
  constexpr int kWarps = kScoreThreads / kWarp;
  float* const query = reinterpret_cast<float*>(few_shared);  // [heads_a_block][pitch]
  float* const chain_sums = query + a.heads_a_block * pitch;  // [chains][heads_a_block][kScoreSlots]
  const int chains = (width + kChain - 1) / kChain;
  auto* const words = reinterpret_cast<std::uint32_t*>(chain_sums + chains * a.heads_a_block * kScoreSlots);
  if (t < kScoreSlots) sources[t] = address_of(a, q, i, first_slot + (t < used ? t : used - 1), layout);
  block_barrier();
  // Packed rows as they lie in memory, from the word on in which each begins.
  constexpr int kRows = kScoreSlots / kWarps;  // of a warp
  const std::uint8_t* from[kRows];
  int from_words[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::uint8_t* source = sources[warp * kRows + r];
    const auto shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(source) % 4);
    from[r] = source - shift;
    from_words[r] = has_floats(a, first_slot + warp * kRows + r, first_float) ? 0 : (layout.row_bytes + shift + 3) / 4;
  }
  constexpr int kWordsAtOnce = 6;  // of a thread and row: all of a row of the model's
  for (int first = 0; first < a.word_pitch; first += kWordsAtOnce * kWarp) {
    std::uint32_t held[kRows][kWordsAtOnce];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int u = 0; u < kWordsAtOnce; ++u) {
        const int w = first + u * kWarp + lane;
        held[r][u] = w < from_words[r] ? reinterpret_cast<const std::uint32_t*>(from[r])[w] : 0u;
      }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int u = 0; u < kWordsAtOnce; ++u) {
        const int w = first + u * kWarp + lane;
        if (w < a.word_pitch) words[(warp * kRows + r) * a.word_pitch + w] = held[r][u];
      }
  }
  const float* queries = a.queries.data + i * a.queries.stride;
  const float* turns = a.turns.data + i * a.turns.stride;
  for (int h = warp; h < a.heads_a_block; h += kWarps) {
    const int head = first_head + h < a.heads ? first_head + h : a.heads - 1;
#pragma unroll 16
    for (int d = lane; d < width; d += kWarp) query[h * pitch + d] = queries[head * width + d];
    warp_barrier();
    if (a.is_normed) norm_rotate_by_warp(query + h * pitch, width, a.epsilon, turns, a.turns.width);
  }
  block_barrier();
  const int slot = lane;
  const std::uint32_t* const my_words = words + slot * a.word_pitch;
  const std::uint8_t* const my_source = sources[slot];
  const auto my_shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(my_source) % 4);
  const bool is_float = has_floats(a, first_slot + slot, first_float) && slot < used;
  const int channels = layout.is_plain ? 0 : layout.width - layout.rotary;
  const int floats_at = layout.is_plain ? 0 : channels + fp8_blocks(channels);
  for (int chain = warp; chain < chains; chain += kWarps) {
    const int chain_begin = chain * kChain, chain_end = chain_begin + kChain < width ? chain_begin + kChain : width;
    CodeScale scale = {};
    if (chain_begin < channels) {
      const int at = my_shift + channels + chain;
      scale = code_scale(my_words[at / 4] >> (at % 4 * 8) & 255u);
    }
    float sum[kMostHeads] = {};
#pragma unroll 1
    for (int begin = chain_begin; begin < chain_end; begin += kPiece) {
      float row[kPiece];
      const bool is_whole = begin + kPiece <= chain_end;
      if (is_float) {
#pragma unroll
        for (int d = 0; d < kPiece; ++d)
          row[d] = begin + d < chain_end ? reinterpret_cast<const float*>(my_source)[begin + d] : 0.0f;
      } else if (is_whole && (begin >= channels || begin + kPiece <= channels)) {
        const bool is_code = begin < channels;
        const int at = my_shift + (is_code ? begin : floats_at + 4 * (begin - channels)), bits = at % 4 * 8;
        const std::uint32_t* const row_words = my_words + at / 4;
        std::uint32_t low = row_words[0];
        if (is_code) {
#pragma unroll
          for (int d = 0; d < kPiece; d += 4) {
            const std::uint32_t high = row_words[d / 4 + 1], codes = shift_pair(low, high, bits);
#pragma unroll
            for (int k = 0; k < 4; ++k) row[d + k] = code_value(codes, k, scale);
            low = high;
          }
        } else {
#pragma unroll
          for (int d = 0; d < kPiece; ++d) {
            const std::uint32_t high = row_words[d + 1];
            row[d] = f32_of(shift_pair(low, high, bits));
            low = high;
          }
        }
      } else {
        const std::uint8_t* const bytes = reinterpret_cast<const std::uint8_t*>(my_words) + my_shift;
#pragma unroll
        for (int d = 0; d < kPiece; ++d)
          row[d] = begin + d < chain_end ? any_row_value(bytes, begin + d, layout) : 0.0f;
      }
      const float* const x = query + begin;
#pragma unroll
      for (int h = 0; h < kMostHeads; h += kHeadStep) {
        if (h >= a.heads_a_block) break;
        if (is_whole) {
#pragma unroll
          for (int d = 0; d < kPiece; d += 4)
#pragma unroll
            for (int e = h; e < h + kHeadStep; ++e) {
              const Floats4 values = *reinterpret_cast<const Floats4*>(x + e * pitch + d);
#pragma unroll
              for (int k = 0; k < 4; ++k) sum[e] = fma_f32(values.value[k], row[d + k], sum[e]);
            }
        } else {
#pragma unroll
          for (int d = 0; d < kPiece; ++d) {
            if (begin + d >= chain_end) break;
#pragma unroll
            for (int e = h; e < h + kHeadStep; ++e) sum[e] = fma_f32(x[e * pitch + d], row[d], sum[e]);
          }
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h)
      if (h < a.heads_a_block) chain_sums[(chain * a.heads_a_block + h) * kScoreSlots + slot] = sum[h];
  }
  block_barrier();
  for (int h = warp; h < a.heads_a_block && first_head + h < a.heads; h += kWarps) {
    const int head = first_head + h;
    const float* sums = chain_sums + h * kScoreSlots + slot;
    float total = sums[0];
    for (int chain = 1; chain < chains; ++chain) total = total + sums[chain * a.heads_a_block * kScoreSlots];
    const float score = total * a.scale;
    if (slot < used)
      a.scores[(static_cast<std::int64_t>(block_z()) * a.heads + head) * a.slots + first_slot + slot] = score;
    const float largest = warp_max(slot < used ? score : -f32_of(kInfinity));
    if (lane == 0)
      a.tile_largest[(static_cast<std::int64_t>(block_z()) * (a.slots / kScoreSlots) + block_x()) * a.heads + head] =
          largest;
  }
}

constexpr int kChainFloats = kChain * kSumDims;
// Weights of a chain: eight heads a slot, and eight more floats after every four slots and at the end, so that what a
// warp writes or reads at a time meets different banks.
constexpr int kWeightPitch = kChain * kSumHeads + kChain / 4 * kSumHeads + kSumHeads;
LOCKSTEP_DEVICE int weight_at(int slot) { return slot * kSumHeads + slot / 4 * kSumHeads; }

/// Four channels of a row from d on, of which those from `width` on are zero.
LOCKSTEP_DEVICE Floats4 four_channels(const std::uint8_t* source, bool is_float, int d, const PackedRows& layout) {
  Floats4 out = {};
  if (is_float || layout.is_plain) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (d + k < layout.width) out.value[k] = reinterpret_cast<const float*>(source)[d + k];
    return out;
  }
  const int channels = layout.width - layout.rotary;
  if (d + 4 <= channels) {
    const auto at = reinterpret_cast<std::uintptr_t>(source + d);
    const auto* words = reinterpret_cast<const std::uint32_t*>(at - at % 4);
    const std::uint32_t low = words[0], high = at % 4 == 0 ? 0u : words[1];
    const std::uint32_t codes = shift_pair(low, high, static_cast<int>(at % 4) * 8);
    const CodeScale scale = code_scale(source[channels + d / kFp8Block]);
#pragma unroll
    for (int k = 0; k < 4; ++k) out.value[k] = code_value(codes, k, scale);
    return out;
  }
  if (d >= channels && d + 4 <= layout.width) {
    const auto at = reinterpret_cast<std::uintptr_t>(source + channels + fp8_blocks(channels) + 4 * (d - channels));
    const auto* words = reinterpret_cast<const std::uint32_t*>(at - at % 4);
    std::uint32_t word[5];
#pragma unroll
    for (int k = 0; k < 5; ++k) word[k] = k < 4 || at % 4 != 0 ? words[k] : 0u;
#pragma unroll
    for (int k = 0; k < 4; ++k) out.value[k] = f32_of(shift_pair(word[k], word[k + 1], static_cast<int>(at % 4) * 8));
    return out;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (d + k < layout.width) out.value[k] = any_row_value(source, d + k, layout);
  return out;
}

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS((kMostAtOnce + 3) * kWarp, 2) sum_few_kernel(Few a, PackedRows layout) {
  let_next_launch_begin();
  LOCKSTEP_DYNAMIC_SHARED(Words4, few_shared);
  LOCKSTEP_SHARED const std::uint8_t* sources[kMostAtOnce][kChain];
  LOCKSTEP_SHARED float chain_sums[kMostAtOnce][kSumHeads];
  LOCKSTEP_SHARED float largest_of[kSumHeads];
  const int at_once = a.chains_at_once, t = thread_index(), warp = t / kWarp, lane = lane_index();
  float* const rows = reinterpret_cast<float*>(few_shared);  // [at_once][kChain][kSumDims]
  float* const weights = rows + at_once * kChainFloats;      // [at_once][kWeightPitch]
  const int wave_row = block_y(), i = a.first_row + wave_row, width = layout.width;
  const int dim_groups = (width + kSumDims - 1) / kSumDims;
  const int first_dim = block_x() % dim_groups * kSumDims, first_head = block_x() / dim_groups * kSumHeads;
  const int chains = a.slots / kChain, tiles = a.slots / kScoreSlots;
  const Query q = query_of(a, i);
  const int first_float = first_float_slot(q);
  const auto used_of = [&](int chain) {
    const int used = chain < chains ? used_from(a, q, chain * kChain) : 0;
    return used < kChain ? used : kChain;
  };
  float largest = 0, total = 0, denominator = 0;
  for (int base = 0; base < chains; base += at_once) {
    const bool has_chain = warp < at_once;
    const int chain = base + warp, used = has_chain ? used_of(chain) : 0;
    float* const my_rows = rows + warp * kChainFloats;
    float* const my_weights = weights + warp * kWeightPitch;
    if (used > 0) {
#pragma unroll
      for (int s = lane; s < kChain; s += kWarp)
        if (s < used) sources[warp][s] = address_of(a, q, i, chain * kChain + s, layout);
      warp_barrier();
      const int d = lane % 8 * 4;
#pragma unroll 4
      for (int s = lane / 8; s < used; s += kWarp / 8)
        *reinterpret_cast<Floats4*>(my_rows + s * kSumDims + d) =
            four_channels(sources[warp][s], has_floats(a, chain * kChain + s, first_float), first_dim + d, layout);
    }
    if (base == 0) wait_for_launch_before();
    const int head = first_head + lane % kSumHeads < a.heads ? first_head + lane % kSumHeads : a.heads - 1;
    constexpr int kQuads = kChain / 4 / (kWarp / kSumHeads);
    if (used > 0) {
      const float* from = a.scores + (static_cast<std::int64_t>(wave_row) * a.heads + head) * a.slots + chain * kChain;
      Floats4 scores[kQuads];
#pragma unroll
      for (int n = 0; n < kQuads; ++n)
        scores[n] = *reinterpret_cast<const Floats4*>(from + 4 * (lane / kSumHeads + n * (kWarp / kSumHeads)));
#pragma unroll
      for (int n = 0; n < kQuads; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          my_weights[weight_at(4 * (lane / kSumHeads + n * (kWarp / kSumHeads)) + e) + lane % kSumHeads] =
              scores[n].value[e];
    }
    warp_barrier();
    if (base == 0) {
      const float* from = a.tile_largest + static_cast<std::int64_t>(wave_row) * tiles * a.heads + head;
      largest = a.sinks[head];
      const float sink = largest;
#pragma unroll 4
      for (int tile = lane / kSumHeads; tile < tiles; tile += kWarp / kSumHeads) {
        const float other = used_from(a, q, tile * kScoreSlots) > 0 ? from[tile * a.heads] : largest;
        largest = other > largest ? other : largest;
      }
      for (int mask = kSumHeads; mask < kWarp; mask *= 2) {
        const float other = shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
      }
      if (warp == 0 && lane < kSumHeads) largest_of[lane] = exp_f32(sink - largest);
    }
    if (used > 0) {
#pragma unroll 2
      for (int s = lane / kSumHeads; s < kChain; s += kWarp / kSumHeads) {
        float& weight = my_weights[weight_at(s) + lane % kSumHeads];  // a score that this thread or another one read
        weight = s < used ? exp_f32(weight - largest) : 0.0f;
      }
    }
    block_barrier();
    if (has_chain) {
      float sum[kSumHeads] = {};
      const auto add = [&](int s) {
        const auto* w = reinterpret_cast<const Floats4*>(my_weights + weight_at(s));
        const Floats4 low = w[0], high = w[1];
        const float value = my_rows[s * kSumDims + lane];
#pragma unroll
        for (int h = 0; h < 4; ++h) {
          sum[h] = fma_f32(low.value[h], value, sum[h]);
          sum[4 + h] = fma_f32(high.value[h], value, sum[4 + h]);
        }
      };
#pragma unroll 4
      for (int s = 0; s < used; ++s) add(s);
      warp_barrier();  // the sums stand where the chain's rows stood
#pragma unroll
      for (int h = 0; h < kSumHeads; ++h) my_rows[h * kSumDims + lane] = sum[h];
    } else {  // the sums of the weights of a chain and head
      const int item = t - at_once * kWarp, c = item / kSumHeads, h = item % kSumHeads;
      if (c < at_once) {
        const float* w = weights + c * kWeightPitch + h;
        const int count = used_of(base + c);
        float sum = 0;
#pragma unroll 4
        for (int s = 0; s < count; ++s) sum = sum + w[weight_at(s)];
        chain_sums[c][h] = sum;
      }
    }
    block_barrier();
    if (warp < kSumHeads) {
      if (base == 0) denominator = largest_of[warp];
      for (int c = 0; c < at_once; ++c) {
        if (used_of(base + c) <= 0) continue;
        const float part = rows[c * kChainFloats + warp * kSumDims + lane];
        total = base + c == 0 ? part : total + part;
        denominator = denominator + chain_sums[c][warp];
      }
    }
    if (base + at_once < chains) block_barrier();
  }
  if (warp >= kSumHeads) return;
  const int head = first_head + warp, d = first_dim + lane;
  finish_head(a, i, head, d, width, total, denominator);
}

int chains_of(int width) { return (width + kChain - 1) / kChain; }
int word_pitch_of(const PackedRows& layout) { return (layout.row_bytes + 6) / 4 | 1; }

std::size_t score_bytes(int heads_a_block, const PackedRows& layout) {
  return sizeof(float) *
         static_cast<std::size_t>(heads_a_block * (query_pitch(layout.width) + chains_of(layout.width) * kScoreSlots) +
                                  kScoreSlots * word_pitch_of(layout) + 1);
}
std::size_t sum_bytes(int at_once) {
  return sizeof(float) * static_cast<std::size_t>(at_once * (kChainFloats + kWeightPitch));
}
constexpr std::size_t kStaticBytes = 8 * 1024;  // of the two kernels, at most, with what a launch takes for itself

std::size_t room_of(const Runtime& runtime) { return runtime.most_shared_bytes() - kStaticBytes; }

}  // namespace

bool can_attend_few(const Runtime& runtime, const AttendCall& call, int rows, const PackedRows& layout) {
  return rows <= kFewRows && score_bytes(kHeadStep, layout) <= room_of(runtime) && sum_bytes(1) <= room_of(runtime) &&
         (call.turns.data == nullptr || layout.width <= 1024) &&
         (call.rounded == nullptr || layout.width % kBlock == 0);
}

std::size_t attend_few_floats(const AttendCall& call, int rows, const PackedRows& layout) {
  if (rows > kFewRows) return 0;
  const std::size_t heads = static_cast<std::size_t>(call.queries.width / layout.width),
                    n = static_cast<std::size_t>(rows), slots = static_cast<std::size_t>(slots_of(call));
  return n * heads * (slots + slots / kLeastTileSlots) + kChain;
}

void attend_few(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
                const PackedRows& layout) {
  if (can_attend_codes(runtime, call, layout))
    return attend_codes(runtime, call, slices, first_row, rows, scratch, layout);
  Few a = {};
  static_cast<HeadAttention&>(a) = head_attention_of(call, slices, first_row, rows, scratch, layout);
  a.word_pitch = word_pitch_of(layout);
  // As many heads a block as leave no multiprocessor without one.
  const int tiles = a.slots / kScoreSlots * rows;
  const int groups = runtime.multiprocessors() > tiles ? runtime.multiprocessors() / tiles : 1;
  const int wanted = round_up((a.heads + groups - 1) / groups, kHeadStep);
  a.heads_a_block = wanted < kMostHeads ? wanted : kMostHeads;
  while (a.heads_a_block > kHeadStep && score_bytes(a.heads_a_block, layout) > room_of(runtime))
    a.heads_a_block -= kHeadStep;
  a.chains_at_once = a.slots / kChain < kMostAtOnce ? a.slots / kChain : kMostAtOnce;
  while (sum_bytes(a.chains_at_once) > room_of(runtime)) --a.chains_at_once;
  const unsigned n = static_cast<unsigned>(rows);
  launch(runtime, score_few_kernel,
         {static_cast<unsigned>(a.slots / kScoreSlots), blocks_for(a.heads, a.heads_a_block), n}, kScoreThreads,
         score_bytes(a.heads_a_block, layout), a, layout);
  const int sum_warps = (a.chains_at_once * kSumHeads + kWarp - 1) / kWarp;
  const int all_warps = a.chains_at_once + sum_warps, warps = all_warps < kSumHeads ? kSumHeads : all_warps;
  launch(runtime, sum_few_kernel, {blocks_for(layout.width, kSumDims) * blocks_for(a.heads, kSumHeads), n},
         static_cast<unsigned>(warps * kWarp), sum_bytes(a.chains_at_once), a, layout);
}

void prepare_attend_few(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&score_few_kernel), room_of(runtime));
  runtime.allow_shared(reinterpret_cast<const void*>(&sum_few_kernel), room_of(runtime));
  prepare_attend_codes(runtime);
}

}  // namespace lockstep::gpu
