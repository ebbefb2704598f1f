// The indexer's choice of few queries, where what counts is how soon a launch is done.
//
// In official mode queries and keys are fp4: a chain of 32 channels is a sum of small integers times a power of two,
// exact whoever adds it, so int8 dots make it. A block scores 32 keys: a thread holds a key, a warp has an eighth of
// the heads, whose codes come to all of its threads at once; the heads are added in order by one warp. The choice holds
// all scores in registers and finds the smallest one that is still in two bits at a time, by counting.
#include "base/error.h"
#include "gpu/packed_row.h"
#include "gpu/planes.h"

namespace lockstep::gpu {
namespace {

constexpr int kKeys = 32, kScoreThreads = 256, kScoreWarps = kScoreThreads / kWarp;
constexpr int kKeyWidth = 128, kCodeWords = kKeyWidth / 4, kKeyWords = 17, kMostHeads = 64;
constexpr int kBlocks = kKeyWidth / kFp4Block;
constexpr int kMostChooseThreads = 1024, kHold = 32;  // threads; scores of one

/// Exponents whose products, and sums of them, are ordinary floats, so that integers stand for them exactly.
constexpr int kOrdinary = 50;
LOCKSTEP_DEVICE bool is_ordinary(int exponent) { return exponent >= -kOrdinary && exponent <= kOrdinary; }

/// The law's loop, for a query or a key that is not so.
LOCKSTEP_DEVICE_CALL float literal_dot(const float* query, const std::uint8_t* key, const PackedRows& layout) {
  float total = 0;
#pragma unroll 1
  for (int begin = 0; begin < kKeyWidth; begin += kIndexChain) {
    float sum = 0;
#pragma unroll 1
    for (int d = begin; d < begin + kIndexChain; ++d) sum = fma_f32(query[d], key_value(key, d, layout), sum);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, 2)
    score_fp4_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, float* scores,
                     PackedRows layout) {
  follow_launch();
  LOCKSTEP_SHARED Words4 query_codes[kMostHeads][kCodeWords / 4];
  LOCKSTEP_SHARED float query_scales[kMostHeads][kBlocks];
  LOCKSTEP_SHARED float weights[kMostHeads];
  LOCKSTEP_SHARED std::uint32_t key_codes[kKeys][kCodeWords + 1];
  LOCKSTEP_SHARED float key_scales[kBlocks][kKeys];
  LOCKSTEP_SHARED float dots[kMostHeads][kKeys];
  LOCKSTEP_SHARED int is_odd;  // a query or key is no ordinary fp4
  const int i = first_row + block_y(), first_key = block_x() * kKeys, t = thread_index(), lane = lane_index();
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t visible = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  if (visible <= call.top_k || first_key >= visible) return;
  const auto bytes_at = [&](int key) {
    std::int64_t c = first_key + key;
    c = c < visible ? c : visible - 1;
    return bytes_of(slice.key_pages[c / kPageRows]) + c % kPageRows * layout.key_bytes;
  };
  if (t == 0) is_odd = 0;
  block_barrier();
  {
    const int key = t / 8, word = t % 8;
    const std::uint8_t* bytes = bytes_at(key);
    const auto* words = reinterpret_cast<const std::uint32_t*>(bytes);
    const std::uint32_t low = words[word], high = words[word + 8], exponents = words[kKeyWords - 1];
    std::uint32_t* to = key_codes[key];
    to[2 * word] = Format<DType::mxfp4>::levels_of(low & 0xffffu);
    to[2 * word + 1] = Format<DType::mxfp4>::levels_of(low >> 16);
    to[16 + 2 * word] = Format<DType::mxfp4>::levels_of(high & 0xffffu);
    to[16 + 2 * word + 1] = Format<DType::mxfp4>::levels_of(high >> 16);
    // Words 4 b to 4 b + 3 are block b's.
    const auto exponent_of = [&](int block) {
      return e8m0_to_exponent(static_cast<std::uint8_t>(exponents >> (8 * block)));
    };
    const int of_low = exponent_of(word / 4), of_high = exponent_of(word / 4 + 2);
    if ((!is_ordinary(of_low) && (of_low == kBadExponent || (low & 0x77777777u) != 0)) ||
        (!is_ordinary(of_high) && (of_high == kBadExponent || (high & 0x77777777u) != 0)))
      is_odd = 1;
    if (word < kBlocks) {
      const int exponent = exponent_of(word);
      key_scales[word][key] = power_of_two(is_ordinary(exponent) ? exponent - 1 : 0);
    }
  }
  const int heads = call.head_weights.width;
  const float* queries = call.queries.data + i * call.queries.stride;
  // Four values a thread; eight neighbouring threads have a block of 32, whose exponent comes from its own greatest
  // value: a smaller one than it was rounded by does as well.
#pragma unroll 8
  for (int item = t; item < heads * kCodeWords; item += kScoreThreads) {
    const Floats4 x = *reinterpret_cast<const Floats4*>(queries + 4 * item);
    std::uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) most = magnitude_bits(x.value[k]) > most ? magnitude_bits(x.value[k]) : most;
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) {
      const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(most), mask));
      most = other > most ? other : most;
    }
    const int exponent = most == 0 ? 0 : fp4_exponent(most);
    const bool is_usual = is_ordinary(exponent);
    const float factor = power_of_two(is_usual ? 1 - exponent : 0);
    std::uint32_t codes = 0;
    bool is_exact = is_usual;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float doubled = is_usual ? x.value[k] * factor : 0.0f;
      const int code = round_to_int(doubled);
      is_exact = is_exact && static_cast<float>(code) == doubled;
      codes |= (static_cast<std::uint32_t>(code) & 255u) << (8 * k);
    }
    if (!is_exact) is_odd = 1;
    reinterpret_cast<std::uint32_t*>(query_codes)[item] = codes;
    if (item % 8 == 0) reinterpret_cast<float*>(query_scales)[item / 8] = power_of_two(is_usual ? exponent - 1 : 0);
  }
  if (t < heads) weights[t] = call.head_weights.data[i * call.head_weights.stride + t];
  block_barrier();
  std::uint32_t key[kCodeWords];
  float scales[kBlocks];
#pragma unroll
  for (int w = 0; w < kCodeWords; ++w) key[w] = key_codes[lane][w];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) scales[b] = key_scales[b][lane];
  const bool is_literal = is_odd != 0;  // the same in all threads
  for (int head = t / kWarp; head < heads; head += kScoreWarps) {
    if (is_literal) {
      dots[head][lane] = literal_dot(queries + head * kKeyWidth, bytes_at(lane), layout);
      continue;
    }
    float total = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      int sum = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words4 codes = query_codes[head][2 * b + half];
#pragma unroll
        for (int w = 0; w < 4; ++w) sum = dot4(codes.word[w], key[8 * b + 4 * half + w], sum);
      }
      const float chain = static_cast<float>(sum) * query_scales[head][b] * scales[b];
      total = b == 0 ? chain : total + chain;
    }
    dots[head][lane] = total;
  }
  block_barrier();
  if (t >= kKeys) return;
  float score = 0;
#pragma unroll 8
  for (int h = 0; h < heads; ++h) {
    const float dot = dots[h][t];
    score = fma_f32(weights[h], dot > 0 ? dot : 0.0f, score);
  }
  if (first_key + t < visible) scores[static_cast<std::int64_t>(block_y()) * call.bound + first_key + t] = score;
}

LOCKSTEP_DEVICE std::uint32_t ordered(float score) { return static_cast<std::uint32_t>(ranking_key(score, 0) >> 32); }

/// Sums over a block, the same in every thread; `parts` is another one than in the call before.
template <int kCounts>
LOCKSTEP_DEVICE void block_sums(int (&counts)[kCounts], int (*parts)[kCounts]) {
#pragma unroll
  for (int n = 0; n < kCounts; ++n) counts[n] = warp_sum(counts[n]);
  if (lane_index() < kCounts) {
    int mine = counts[0];
#pragma unroll
    for (int n = 1; n < kCounts; ++n) mine = lane_index() == n ? counts[n] : mine;
    parts[thread_index() / kWarp][lane_index()] = mine;
  }
  block_barrier();
#pragma unroll
  for (int n = 0; n < kCounts; ++n)
    counts[n] = warp_sum(lane_index() < block_threads() / kWarp ? parts[lane_index()][n] : 0);
}

/// One block a row. A thread has a run of neighbouring scores, so that what it chooses is in order.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kMostChooseThreads, 1)
    choose_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, const float* scores) {
  follow_launch();
  LOCKSTEP_SHARED int parts[2][kWarp][3];
  LOCKSTEP_SHARED int before[2][kWarp];
  const int i = first_row + block_x(), t = thread_index(), lane = lane_index(), threads = block_threads();
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t all = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  std::int32_t* ids = call.out.ids + static_cast<std::int64_t>(i) * call.out.capacity;
  if (t == 0) call.out.count[i] = static_cast<std::int32_t>(all < call.top_k ? all : call.top_k);
  if (all <= call.top_k) {
    for (int c = t; c < all; c += threads) ids[c] = c;
    return;
  }
  const int visible = static_cast<int>(all), run = (visible + threads - 1) / threads, begin = t * run;
  const int mine = visible - begin < 0 ? 0 : visible - begin < run ? visible - begin : run;
  const float* row = scores + static_cast<std::int64_t>(block_x()) * call.bound + begin;
  std::uint32_t held[kHold];
  const bool is_held = run <= kHold;
#pragma unroll
  for (int k = 0; k < kHold; ++k) held[k] = k < run && k < mine ? ordered(row[k]) : 0u;
  const auto for_each = [&](const auto& body) {  // body(which of this thread's, its key)
    if (is_held) {
#pragma unroll
      for (int k = 0; k < kHold; ++k) {
        if (k >= run) break;  // the same for all threads
        if (k < mine) body(k, held[k]);
      }
    } else {
      for (int k = 0; k < mine; ++k) body(k, ordered(row[k]));
    }
  };
  // The largest `least` that at least top_k scores reach; it has the digits found so far and zeros.
  std::uint32_t least = 0;
  int reached = visible;
  for (int shift = 30, turn = 0; shift >= 0 && reached != call.top_k; shift -= 2, turn ^= 1) {
    const std::uint32_t one = least | 1u << shift, two = least | 2u << shift, three = least | 3u << shift;
    int counts[3] = {};
    for_each([&](int, std::uint32_t key) {
      counts[0] += key >= one ? 1 : 0;
      counts[1] += key >= two ? 1 : 0;
      counts[2] += key >= three ? 1 : 0;
    });
    block_sums<3>(counts, parts[turn]);
    const std::uint32_t options[3] = {one, two, three};
#pragma unroll
    for (int n = 0; n < 3; ++n)
      if (counts[n] >= call.top_k) {
        least = options[n];
        reached = counts[n];
      }
  }
  // All above `least`, and the first of those that are equal to it.
  int above = 0, equal = 0;
  for_each([&](int, std::uint32_t key) {
    above += key > least ? 1 : 0;
    equal += key == least ? 1 : 0;
  });
  int above_to_here = above, equal_to_here = equal;
  for (int step = 1; step < kWarp; step *= 2) {
    const int from = lane >= step ? lane - step : lane;
    const int other_above = shuffle(above_to_here, from), other_equal = shuffle(equal_to_here, from);
    if (lane >= step) {
      above_to_here += other_above;
      equal_to_here += other_equal;
    }
  }
  if (lane == kWarp - 1) {
    before[0][t / kWarp] = above_to_here;
    before[1][t / kWarp] = equal_to_here;
  }
  block_barrier();
  const bool is_warp = lane < threads / kWarp;
  const int warp_above = is_warp ? before[0][lane] : 0, warp_equal = is_warp ? before[1][lane] : 0;
  const int all_above = warp_sum(warp_above), wanted = call.top_k - all_above;
  const int above_before = warp_sum(lane < t / kWarp ? warp_above : 0) + above_to_here - above;
  int equal_before = warp_sum(lane < t / kWarp ? warp_equal : 0) + equal_to_here - equal;
  int at = above_before + (equal_before < wanted ? equal_before : wanted);
  for_each([&](int k, std::uint32_t key) {
    const bool is_equal = key == least;
    if (key > least || (is_equal && equal_before < wanted)) ids[at++] = begin + k;
    equal_before += is_equal ? 1 : 0;
  });
}

}  // namespace

bool can_score_fp4(const SelectCall& call, const PackedRows& layout) {
  const auto at = reinterpret_cast<std::uintptr_t>(call.queries.data);
  return !layout.is_plain && layout.key_width == kKeyWidth && layout.key_bytes == 4 * kKeyWords &&
         call.head_weights.width <= kMostHeads && at % 16 == 0 && call.queries.stride % 4 == 0;
}

void score_fp4(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
               const PackedRows& layout) {
  launch(runtime, score_fp4_kernel, {blocks_for(call.bound, kKeys), static_cast<unsigned>(rows)}, kScoreThreads, 0,
         call, slices.memory, slices.size(), first_row, scores, layout);
}

void choose_few(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                const float* scores) {
  // Enough threads to hold all scores, and no more than wait for each other quickly.
  const unsigned warps = blocks_for(call.bound, 16 * kWarp);
  const unsigned threads = kWarp * (warps < 4                            ? 4
                                    : warps > kMostChooseThreads / kWarp ? kMostChooseThreads / kWarp
                                                                         : warps);
  launch(runtime, choose_kernel, {static_cast<unsigned>(rows)}, threads, 0, call, slices.memory, slices.size(),
         first_row, scores);
}

}  // namespace lockstep::gpu
