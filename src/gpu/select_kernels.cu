// The indexer's choice: scores of all visible keys, then the largest ones.
//
// A block scores 64 keys for one query row: a product of [64 heads] x [64 keys] over the key's channels, f32 fma in the
// law's chains of 32, then the heads in order. The choice finds the smallest score that is still in by its bits, eight
// at a time, and writes what is above it, and the first ones that are equal to it, in order of id. Rows that see no
// more than they may attend have nothing to score.
#include "base/error.h"
#include "gpu/index_tile.h"
#include "gpu/packed_row.h"

namespace lockstep::gpu {
namespace {

constexpr int kTile = 64, kSide = 16, kEach = kTile / kSide, kScoreThreads = kSide * kSide;
constexpr int kPitch = kIndexChain + 4;
constexpr int kSelectThreads = 512;

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, 2)
    score_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, float* scores,
                 PackedRows layout) {
  follow_launch();
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float query[kTile][kPitch];
  LOCKSTEP_SHARED LOCKSTEP_ALIGNED(16) float key[kTile][kPitch];
  LOCKSTEP_SHARED float dots[kTile][kTile + 1];
  LOCKSTEP_SHARED const std::uint8_t* key_rows[kTile];
  const int i = first_row + block_y(), first_key = block_x() * kTile, t = thread_index();
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t visible = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  if (visible <= call.top_k || first_key >= visible) return;
  if (t < kTile) {
    std::int64_t c = first_key + t;
    c = c < visible ? c : visible - 1;
    key_rows[t] = bytes_of(slice.key_pages[c / kPageRows]) + c % kPageRows * layout.key_bytes;
  }
  const int width = layout.key_width, heads = call.head_weights.width;
  const float* queries = call.queries.data + i * call.queries.stride;
  const float* weights = call.head_weights.data + i * call.head_weights.stride;
  const int my_heads = t / kSide * kEach, my_key = t % kSide;
  float total_score = 0;
  for (int first_head = 0; first_head < heads; first_head += kTile) {
    float total[kEach][kEach];
    for (int begin = 0; begin < width; begin += kIndexChain) {
      block_barrier();
      for (int j = t; j < kTile * kIndexChain; j += kScoreThreads) {
        const int row = j / kIndexChain, d = j % kIndexChain;
        query[row][d] = first_head + row < heads ? queries[(first_head + row) * width + begin + d] : 0.0f;
        key[row][d] = key_value(key_rows[row], begin + d, layout);
      }
      block_barrier();
      float sum[kEach][kEach] = {};
#pragma unroll
      for (int d = 0; d < kIndexChain; d += 4) {
        Floats4 q[kEach], k[kEach];
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          q[e] = *reinterpret_cast<const Floats4*>(&query[my_heads + e][d]);
          k[e] = *reinterpret_cast<const Floats4*>(&key[my_key + e * kSide][d]);
        }
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
          for (int a = 0; a < kEach; ++a)
#pragma unroll
            for (int b = 0; b < kEach; ++b) sum[a][b] = fma_f32(q[a].value[step], k[b].value[step], sum[a][b]);
      }
#pragma unroll
      for (int a = 0; a < kEach; ++a)
#pragma unroll
        for (int b = 0; b < kEach; ++b) total[a][b] = begin == 0 ? sum[a][b] : total[a][b] + sum[a][b];
    }
#pragma unroll
    for (int a = 0; a < kEach; ++a)
#pragma unroll
      for (int b = 0; b < kEach; ++b) dots[my_heads + a][my_key + b * kSide] = total[a][b];
    block_barrier();
    if (t < kTile) {
      float sum = 0;
      for (int h = 0; h < kTile && first_head + h < heads; ++h) {
        const float dot = dots[h][t];
        sum = fma_f32(weights[first_head + h], dot > 0 ? dot : 0.0f, sum);
      }
      total_score = first_head == 0 ? sum : total_score + sum;
    }
  }
  if (t < kTile && first_key + t < visible)
    scores[static_cast<std::int64_t>(block_y()) * call.bound + first_key + t] = total_score;
}

LOCKSTEP_DEVICE std::uint32_t ordered(float score) { return static_cast<std::uint32_t>(ranking_key(score, 0) >> 32); }

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kSelectThreads, 2)
    select_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, const float* scores) {
  follow_launch();
  LOCKSTEP_SHARED int histogram[256];
  LOCKSTEP_SHARED int above[2][kSelectThreads];
  LOCKSTEP_SHARED int equal[2][kSelectThreads];
  LOCKSTEP_SHARED std::uint32_t found_digit;
  LOCKSTEP_SHARED int found_wanted;
  const int i = first_row + block_x(), t = thread_index();
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t all = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  std::int32_t* ids = call.out.ids + static_cast<std::int64_t>(i) * call.out.capacity;
  if (t == 0) call.out.count[i] = static_cast<std::int32_t>(all < call.top_k ? all : call.top_k);
  if (all <= call.top_k) {
    for (int c = t; c < all; c += kSelectThreads) ids[c] = c;
    return;
  }
  const int visible = static_cast<int>(all);
  const float* row = scores + static_cast<std::int64_t>(block_x()) * call.bound;
  // `prefix` has the digits found so far of the smallest chosen score; `wanted` is how many are still to be chosen
  // among the scores that begin with them.
  std::uint32_t prefix = 0;
  int wanted = call.top_k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int bin = t; bin < 256; bin += kSelectThreads) histogram[bin] = 0;
    block_barrier();
    for (int c = t; c < visible; c += kSelectThreads) {
      const std::uint32_t key = ordered(row[c]);
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) atomic_add(&histogram[key >> shift & 255u], 1);
    }
    block_barrier();
    if (t < kWarp) {
      // The bin in which the count from above reaches `wanted`: eight bins a thread, the first thread the highest.
      constexpr int kBins = 256 / kWarp;
      int mine = 0;
#pragma unroll
      for (int b = 0; b < kBins; ++b) mine += histogram[255 - t * kBins - b];
      int above_me = mine;
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = shuffle(above_me, t >= step ? t - step : t);
        if (t >= step) above_me += other;
      }
      above_me -= mine;
      if (above_me < wanted && above_me + mine >= wanted) {
        int bin = 255 - t * kBins, left = wanted - above_me;
        while (histogram[bin] < left) left -= histogram[bin--];
        found_digit = static_cast<std::uint32_t>(bin);
        found_wanted = left;
      }
    }
    block_barrier();
    prefix |= found_digit << shift;
    wanted = found_wanted;
  }
  // A run of neighbouring ids a thread: count, add up over threads, write.
  const int run = (visible + kSelectThreads - 1) / kSelectThreads, begin = t * run;
  const int end = visible < begin + run ? visible : begin + run;
  int mine_above = 0, mine_equal = 0;
  for (int c = begin; c < end; ++c) {
    const std::uint32_t key = ordered(row[c]);
    mine_above += key > prefix ? 1 : 0;
    mine_equal += key == prefix ? 1 : 0;
  }
  above[0][t] = mine_above;
  equal[0][t] = mine_equal;
  int from = 0;
  for (int step = 1; step < kSelectThreads; step *= 2, from ^= 1) {
    block_barrier();
    above[from ^ 1][t] = above[from][t] + (t >= step ? above[from][t - step] : 0);
    equal[from ^ 1][t] = equal[from][t] + (t >= step ? equal[from][t - step] : 0);
  }
  int equal_before = equal[from][t] - mine_equal;
  int at = above[from][t] - mine_above + (equal_before < wanted ? equal_before : wanted);
  for (int c = begin; c < end; ++c) {
    const std::uint32_t key = ordered(row[c]);
    const bool is_equal = key == prefix;
    if (key > prefix || (is_equal && equal_before < wanted)) ids[at++] = c;
    equal_before += is_equal ? 1 : 0;
  }
}

}  // namespace

void select_rows(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
                 std::byte* index, const PackedRows& layout) {
  LOCKSTEP_CHECK(layout.key_width % kIndexChain == 0);
  const unsigned n = static_cast<unsigned>(rows);
  // Few, or of so many sequences that hardly any of them share their keys.
  const bool is_few = rows <= 8 || (rows <= 64 && rows < 8 * slices.size());
  if (call.bound > call.top_k && is_few && can_score_fp4(call, layout))
    return choose_fp4(runtime, call, slices, first_row, rows, scores, layout);
  if (call.bound > call.top_k && can_tile_index(runtime, call, layout))
    score_index_tiles(runtime, call, slices, first_row, rows, scores, index, layout);
  else if (call.bound > call.top_k)
    launch(runtime, score_kernel, {blocks_for(call.bound, kTile), n}, kScoreThreads, 0, call, slices.memory,
           slices.size(), first_row, scores, layout);
  if (is_few) return choose_few(runtime, call, slices, first_row, rows, scores, false);
  launch(runtime, select_kernel, {n}, kSelectThreads, 0, call, slices.memory, slices.size(), first_row, scores);
}

}  // namespace lockstep::gpu
