// The indexer's choice of few queries, where what counts is how soon a launch is done.
//
// In official mode queries and keys are fp4: a chain of 32 channels is a sum of small integers times a power of two,
// exact whoever adds it, so int8 dots make it. A block scores 32 keys, or 64: a thread holds a key, a warp has some
// of the heads, whose codes come to all of its threads at once; the heads are added in order by one warp. The choice
// finds the smallest score that is still in by a histogram between the smallest and the largest, and by comparing the
// few of one bin; where that does not do (many equal ones, infinities), by counting, two bits at a time.
#include "base/error.h"
#include "gpu/packed_row.h"
#include "gpu/planes.h"

namespace lockstep::gpu {
namespace {

constexpr int kScoreThreads = 512, kScoreWarps = kScoreThreads / kWarp;
constexpr int kKeyWidth = 128, kCodeWords = kKeyWidth / 4, kKeyWords = 17, kMostHeads = 64;
constexpr int kBlocks = kKeyWidth / kFp4Block;
constexpr int kMostChooseThreads = 1024;
constexpr int kBins = 2048, kMostCandidates = 4 * kWarp;  // of a choice; there are at least so many threads

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

/// A block has kGroups of 32 keys, a warp one of them.
template <int kGroups>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, 1)
    score_fp4_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, float* scores,
                     PackedRows layout) {
  follow_launch();
  constexpr int kKeys = kGroups * kWarp;
  static_assert(kKeys * 8 <= kScoreThreads && kScoreWarps % kGroups == 0);
  LOCKSTEP_SHARED Words4 query_codes[kMostHeads][kCodeWords / 4];
  LOCKSTEP_SHARED float query_scales[kMostHeads][kBlocks];
  LOCKSTEP_SHARED float weights[kMostHeads];
  LOCKSTEP_SHARED std::uint32_t key_codes[kKeys][kCodeWords + 1];
  LOCKSTEP_SHARED float key_scales[kBlocks][kKeys];
  LOCKSTEP_SHARED float dots[kMostHeads][kKeys];
  LOCKSTEP_SHARED int is_odd;  // a query or key is no ordinary fp4
  const int i = first_row + block_y(), first_key = block_x() * kKeys, t = thread_index();
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
  if (t < kKeys * 8) {
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
#pragma unroll 4
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
  const int warp = t / kWarp, mine = warp % kGroups * kWarp + lane_index();
  std::uint32_t key[kCodeWords];
  float scales[kBlocks];
#pragma unroll
  for (int w = 0; w < kCodeWords; ++w) key[w] = key_codes[mine][w];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) scales[b] = key_scales[b][mine];
  const bool is_literal = is_odd != 0;  // the same in all threads
  for (int head = warp / kGroups; head < heads; head += kScoreWarps / kGroups) {
    if (is_literal) {
      dots[head][mine] = literal_dot(queries + head * kKeyWidth, bytes_at(mine), layout);
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
    dots[head][mine] = total;
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

/// What a choosing block shares. Bins are of equal width between the smallest and the largest score; bin b is at
/// b + b / 32, so that runs of bins meet different banks.
struct ChooseShared {
  int bins[kBins + kBins / kWarp];
  int parts[2][kWarp][3];
  std::uint32_t ends[3][kWarp];
  int before[2][kWarp], chosen_before[2][kWarp];
  std::uint32_t candidates[kMostCandidates];
  int candidate_count, bin, wanted;
  std::uint32_t least;
};

LOCKSTEP_DEVICE float score_of(std::uint32_t ordered) {
  return f32_of(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

/// The top_k-th largest key, by one histogram and a look at the keys of one bin; false, in all threads, if scores are
/// not finite, or too many are in that bin. for_each(body) calls body(score) for every score of this thread.
template <class ForEach>
LOCKSTEP_DEVICE bool find_by_bins(std::uint32_t& least, ChooseShared& shared, int top_k, const ForEach& for_each) {
  const int t = thread_index(), lane = lane_index(), warp = t / kWarp, threads = block_threads();
  float highest = -f32_of(kInfinity), lowest = f32_of(kInfinity);
  std::uint32_t ends[3] = {};  // largest key, inverse of the smallest one, largest magnitude
  for_each([&](float score) {
    const std::uint32_t magnitude = magnitude_bits(score);
    ends[2] = magnitude > ends[2] ? magnitude : ends[2];
    highest = score > highest ? score : highest;
    lowest = score < lowest ? score : lowest;
  });
  ends[0] = ordered(highest);
  ends[1] = ~ordered(lowest);
#pragma unroll
  for (int n = 0; n < 3; ++n) {
    ends[n] = warp_max(ends[n]);
    if (lane == 0) shared.ends[n][warp] = ends[n];
  }
#pragma unroll 4
  for (int b = t; b < kBins + kBins / kWarp; b += threads) shared.bins[b] = 0;
  if (t == 0) shared.candidate_count = 0;
  block_barrier();
#pragma unroll
  for (int n = 0; n < 3; ++n) ends[n] = warp_max(lane < threads / kWarp ? shared.ends[n][lane] : 0u);
  lowest = score_of(~ends[1]);
  const float factor = static_cast<float>(kBins - 1) / (score_of(ends[0]) - lowest);
  if (ends[2] >= kInfinity || !(factor > 0) || magnitude_bits(factor) >= kInfinity) return false;
  // Every step of it is monotonic, so bins are in the keys' order.
  const auto bin_of = [&](float score) {
    const int bin = round_to_int((score - lowest) * factor);
    return bin < kBins ? bin : kBins - 1;
  };
  for_each([&](float score) {
    const int bin = bin_of(score);
    atomic_add(&shared.bins[bin + bin / kWarp], 1);
  });
  block_barrier();
  // The bin in which the count from above reaches top_k: a run of bins a thread, the first thread the highest.
  const int run = (kBins + threads - 1) / threads, top = kBins - 1 - t * run;
  const auto count_in = [&](int bin) { return bin >= 0 ? shared.bins[bin + bin / kWarp] : 0; };
  int mine = 0;
#pragma unroll 4
  for (int b = 0; b < run; ++b) mine += count_in(top - b);
  int above = mine;
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = shuffle(above, lane >= step ? lane - step : lane);
    if (lane >= step) above += other;
  }
  if (lane == kWarp - 1) shared.before[0][warp] = above;
  block_barrier();
  above += warp_sum(lane < warp ? shared.before[0][lane] : 0) - mine;
  if (above < top_k && above + mine >= top_k) {
    int bin = top, left = top_k - above;
    while (count_in(bin) < left) left -= count_in(bin--);
    shared.bin = bin;
    shared.wanted = left;
  }
  block_barrier();
  const int found = shared.bin, wanted = shared.wanted;
  for_each([&](float score) {
    if (bin_of(score) != found) return;
    const int at = atomic_add(&shared.candidate_count, 1);
    if (at < kMostCandidates) shared.candidates[at] = ordered(score);
  });
  block_barrier();
  const int candidates = shared.candidate_count;
  if (candidates > kMostCandidates) return false;
  if (t < candidates) {
    const std::uint32_t key = shared.candidates[t];
    int larger = 0, equal = 0;
    for (int c = 0; c < candidates; ++c) {
      larger += shared.candidates[c] > key ? 1 : 0;
      equal += shared.candidates[c] == key ? 1 : 0;
    }
    if (larger < wanted && larger + equal >= wanted) shared.least = key;  // the same, whoever writes it
  }
  block_barrier();
  least = shared.least;
  return true;
}

/// The same by counting, two bits at a time.
template <class ForEach>
LOCKSTEP_DEVICE std::uint32_t find_by_counting(ChooseShared& shared, int top_k, int visible, const ForEach& for_each) {
  // The largest `least` that at least top_k scores reach; it has the digits found so far and zeros.
  std::uint32_t least = 0;
#pragma unroll 1
  for (int shift = 30, turn = 0, reached = visible; shift >= 0 && reached != top_k; shift -= 2, turn ^= 1) {
    const std::uint32_t options[3] = {least | 1u << shift, least | 2u << shift, least | 3u << shift};
    int counts[3] = {};
    for_each([&](float score) {
      const std::uint32_t key = ordered(score);
#pragma unroll
      for (int n = 0; n < 3; ++n) counts[n] += key >= options[n] ? 1 : 0;
    });
    block_sums<3>(counts, shared.parts[turn]);
#pragma unroll
    for (int n = 0; n < 3; ++n)
      if (counts[n] >= top_k) {
        least = options[n];
        reached = counts[n];
      }
  }
  return least;
}

/// One block a row.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kMostChooseThreads, 1)
    choose_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, const float* scores) {
  follow_launch();
  LOCKSTEP_SHARED ChooseShared shared;
  const int i = first_row + block_x(), t = thread_index(), lane = lane_index(), warp = t / kWarp;
  const int threads = block_threads();
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t all = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  std::int32_t* ids = call.out.ids + static_cast<std::int64_t>(i) * call.out.capacity;
  if (t == 0) call.out.count[i] = static_cast<std::int32_t>(all < call.top_k ? all : call.top_k);
  if (all <= call.top_k) {
    for (int c = t; c < all; c += threads) ids[c] = c;
    return;
  }
  // A warp has a run of neighbouring scores, a thread every 32nd of them. They are read again and again: they are near
  // after the first time, and the code is short.
  const int visible = static_cast<int>(all), run = (visible + threads - 1) / threads * kWarp, begin = warp * run;
  const int end = begin + run < visible ? begin + run : visible;
  const float* row = scores + static_cast<std::int64_t>(block_x()) * call.bound;
  const auto for_each = [&](const auto& body) {
#pragma unroll 8
    for (int c = begin + lane; c < end; c += kWarp) body(row[c] + 0.0f);  // not -0
  };
  std::uint32_t least = 0;
  if (!find_by_bins(least, shared, call.top_k, for_each))
    least = find_by_counting(shared, call.top_k, visible, for_each);
  // All above `least`, and the first of those that are equal to it.
  int above = 0, equal = 0;
  for_each([&](float score) {
    const std::uint32_t key = ordered(score);
    above += key > least ? 1 : 0;
    equal += key == least ? 1 : 0;
  });
  above = warp_sum(above);
  equal = warp_sum(equal);
  if (lane == 0) {
    shared.chosen_before[0][warp] = above;
    shared.chosen_before[1][warp] = equal;
  }
  block_barrier();
  const bool is_warp = lane < threads / kWarp;
  const int warp_above = is_warp ? shared.chosen_before[0][lane] : 0,
            warp_equal = is_warp ? shared.chosen_before[1][lane] : 0;
  const int wanted = call.top_k - warp_sum(warp_above);
  int above_before = warp_sum(lane < warp ? warp_above : 0), equal_before = warp_sum(lane < warp ? warp_equal : 0);
  const std::uint32_t lower = (1u << lane) - 1u;  // threads
#pragma unroll 2
  for (int first = begin; first < end; first += kWarp) {
    const int c = first + lane;
    const std::uint32_t key = c < end ? ordered(row[c]) : 0u;
    const bool is_above = c < end && key > least, is_equal = c < end && key == least;
    const std::uint32_t all_above = warp_ballot(is_above), all_equal = warp_ballot(is_equal);
    const int equals = equal_before + count_bits(all_equal & lower);
    const int at = above_before + count_bits(all_above & lower) + (equals < wanted ? equals : wanted);
    if (is_above || (is_equal && equals < wanted)) ids[at] = c;
    above_before += count_bits(all_above);
    equal_before += count_bits(all_equal);
  }
}

}  // namespace

bool can_score_fp4(const SelectCall& call, const PackedRows& layout) {
  const auto at = reinterpret_cast<std::uintptr_t>(call.queries.data);
  return !layout.is_plain && layout.key_width == kKeyWidth && layout.key_bytes == 4 * kKeyWords &&
         call.head_weights.width <= kMostHeads && at % 16 == 0 && call.queries.stride % 4 == 0;
}

void score_fp4(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
               const PackedRows& layout) {
  const auto launch_groups = [&](auto kernel, int groups) {
    launch(runtime, kernel, {blocks_for(call.bound, groups * kWarp), static_cast<unsigned>(rows)}, kScoreThreads, 0,
           call, slices.memory, slices.size(), first_row, scores, layout);
  };
  if (call.bound * rows <= 4096)  // else there are blocks enough, each of which makes the queries' codes
    launch_groups(score_fp4_kernel<1>, 1);
  else
    launch_groups(score_fp4_kernel<2>, 2);
}

void choose_few(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                const float* scores) {
  // Few scores a thread, and no more threads than wait for each other quickly.
  const unsigned wanted = blocks_for(call.bound, 4 * kWarp), most = kMostChooseThreads / kWarp;
  const unsigned threads = kWarp * (wanted < 4 ? 4 : wanted > most ? most : wanted);
  launch(runtime, choose_kernel, {static_cast<unsigned>(rows)}, threads, 0, call, slices.memory, slices.size(),
         first_row, scores);
}

}  // namespace lockstep::gpu
