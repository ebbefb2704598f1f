// The indexer's choice of one row, by a block: the ids of the top_k largest scores, in order.
//
// The smallest score that is still in is found by a histogram between the smallest and the largest, and by comparing
// the few of one bin; where that does not do (many equal ones, infinities), by counting, two bits at a time.
#pragma once

#include "gpu/select_few.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

constexpr int kBins = 2048, kMostCandidates = 4 * kWarp;  // a block has at least so many threads
// Of more scores than kManyScores, only groups that can have one of the largest are looked at, and only what can be.
constexpr int kManyScores = 6144, kMostGroups = 1024, kMostListed = 1536;

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
  int groups[kMostGroups];
  int listed_ids[kMostListed];
  float listed[kMostListed];
  int candidate_count, bin, wanted;
  std::uint32_t least;
};

/// Equal steps from the smallest score to the largest one. Every step of `of` is monotonic, so bins are in the keys'
/// order.
struct Bins {
  float lowest, factor;
  int found, wanted;  // the bin that the top_k-th largest score is in, and which of that bin's it is
  LOCKSTEP_DEVICE int of(float score) const {
    const int bin = round_to_int((score - lowest) * factor);
    return bin < kBins ? bin : kBins - 1;
  }
};

/// Finds that bin; false, in all threads, if scores are not finite. for_each(body) calls body(score) for every score of
/// this thread.
template <class ForEach>
LOCKSTEP_DEVICE bool find_bin(Bins& bins, ChooseShared& shared, int top_k, const ForEach& for_each) {
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
  bins.lowest = score_of(~ends[1]);
  bins.factor = static_cast<float>(kBins - 1) / (score_of(ends[0]) - bins.lowest);
  if (ends[2] >= kInfinity || !(bins.factor > 0) || magnitude_bits(bins.factor) >= kInfinity) return false;
  for_each([&](float score) {
    const int bin = bins.of(score);
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
  bins.found = shared.bin;
  bins.wanted = shared.wanted;
  return true;
}

/// The top_k-th largest key, by one histogram and a look at the keys of one bin; false, in all threads, if scores are
/// not finite, or too many are in that bin.
template <class ForEach>
LOCKSTEP_DEVICE bool find_by_bins(std::uint32_t& least, ChooseShared& shared, int top_k, const ForEach& for_each) {
  const int t = thread_index();
  Bins bins;
  if (!find_bin(bins, shared, top_k, for_each)) return false;
  const int wanted = bins.wanted;
  for_each([&](float score) {
    if (bins.of(score) != bins.found) return;
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

/// The sum of `value` over the threads before this one, and over all; `parts` is another one than in the call before.
struct Before {
  int mine, all;
};
LOCKSTEP_DEVICE Before block_before(int value, int* parts) {
  const int lane = lane_index(), warp = thread_index() / kWarp;
  int sum = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = shuffle(sum, lane >= step ? lane - step : lane);
    if (lane >= step) sum += other;
  }
  if (lane == kWarp - 1) parts[warp] = sum;
  block_barrier();
  const int part = lane < block_threads() / kWarp ? parts[lane] : 0;
  return {sum - value + warp_sum(lane < warp ? part : 0), warp_sum(part)};
}

/// The choice among many scores. The top_k-th largest of the groups' largest ones is no larger than that of all scores,
/// so only groups that reach it have something to choose, hardly more than top_k of them; what reaches it there is
/// listed, in order, and chosen from. False, in all threads and with nothing written, if that is too much.
LOCKSTEP_DEVICE bool choose_by_groups(std::int32_t* ids, ChooseShared& shared, const float* row, const float* largest,
                                      int visible, int top_k) {
  const int t = thread_index(), threads = block_threads(), groups = score_groups(visible);
  const int run = (groups + 4 * threads - 1) / (4 * threads) * 4, begin = t * run;  // neighbouring groups of a thread
  const int end = begin + run < groups ? begin + run : groups;
  const auto for_each_group = [&](const auto& body) {
#pragma unroll 2
    for (int g = begin; g < end; g += 4) {
      const Floats4 scores = *reinterpret_cast<const Floats4*>(largest + g);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (g + k < end) body(g + k, scores.value[k] + 0.0f);
    }
  };
  Bins bins = {};
  const bool is_found =
      find_bin(bins, shared, top_k, [&](const auto& body) { for_each_group([&](int, float score) { body(score); }); });
  if (!is_found) return false;
  int reaching = 0;
  for_each_group([&](int, float score) { reaching += bins.of(score) >= bins.found ? 1 : 0; });
  const Before before = block_before(reaching, shared.before[1]);
  if (before.all > kMostGroups) return false;
  int at = before.mine;
  if (reaching > 0)
    for_each_group([&](int g, float score) {
      if (bins.of(score) >= bins.found) shared.groups[at++] = g;
    });
  block_barrier();
  const int of_thread = (before.all + threads - 1) / threads;  // neighbouring groups of the list
  const int first = t * of_thread, last = first + of_thread < before.all ? first + of_thread : before.all;
  const auto for_each_score = [&](const auto& body) {
#pragma unroll 2
    for (int n = first; n < last; ++n) {
      const int c = shared.groups[n] * kScoreGroup;
      const Floats4 low = *reinterpret_cast<const Floats4*>(row + c),
                    high = *reinterpret_cast<const Floats4*>(row + c + 4);
#pragma unroll
      for (int k = 0; k < kScoreGroup; ++k) {
        const float score = (k < 4 ? low.value[k % 4] : high.value[k % 4]) + 0.0f;
        if (c + k < visible && score >= bins.lowest && bins.of(score) >= bins.found) body(c + k, score);
      }
    }
  };
  int listed = 0;
  for_each_score([&](int, float) { ++listed; });
  const Before list = block_before(listed, shared.chosen_before[0]);
  if (list.all > kMostListed) return false;
  at = list.mine;
  for_each_score([&](int c, float score) {
    shared.listed_ids[at] = c;
    shared.listed[at++] = score;
  });
  block_barrier();
  const auto for_each = [&](const auto& body) {
#pragma unroll 2
    for (int n = t; n < list.all; n += threads) body(shared.listed[n]);
  };
  std::uint32_t least = 0;
  if (!find_by_bins(least, shared, top_k, for_each)) least = find_by_counting(shared, top_k, list.all, for_each);
  const int share = (list.all + threads - 1) / threads, from = t * share;
  const int to = from + share < list.all ? from + share : list.all;
  int counts = 0;  // above `least`, and in the upper half equal to it
  for (int n = from; n < to; ++n) {
    const std::uint32_t key = ordered(shared.listed[n]);
    counts += key > least ? 1 : key == least ? 1 << 16 : 0;
  }
  const Before chosen = block_before(counts, shared.chosen_before[1]);
  const int wanted = top_k - (chosen.all & 0xffff);
  int above = chosen.mine & 0xffff, equal = chosen.mine >> 16;
  for (int n = from; n < to; ++n) {
    const std::uint32_t key = ordered(shared.listed[n]);
    if (key > least || (key == least && equal < wanted))
      ids[above + (equal < wanted ? equal : wanted)] = shared.listed_ids[n];
    above += key > least ? 1 : 0;
    equal += key == least ? 1 : 0;
  }
  return true;
}

/// Chooses for row i, of which all `all` scores are there; `largest`: of their groups, or null.
LOCKSTEP_DEVICE void choose_row(ChooseShared& shared, const SelectCall& call, int i, std::int64_t all, const float* row,
                                const float* largest) {
  const int t = thread_index(), lane = lane_index(), warp = t / kWarp, threads = block_threads();
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
  if (largest != nullptr && visible > kManyScores && call.top_k <= kMostGroups / 2 && call.bound % 32 == 0 &&
      choose_by_groups(ids, shared, row, largest, visible, call.top_k))
    return;
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

#endif

}  // namespace lockstep::gpu
