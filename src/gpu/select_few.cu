// The indexer's choice of few queries, where what counts is how soon a launch is done.
//
// In official mode queries and keys are fp4: a chain of 32 channels is a sum of small integers times a power of two,
// exact whoever adds it, so int8 dots make it. Where there are int8 tensor cores score_few.cu makes scores and choice
// in one launch; here a block scores 32 keys, or 64: a thread holds a key, a warp has some of the heads, whose codes
// come to all of its threads at once; the heads are added in order by one warp. The choice (choose_few.h) follows.
#include "gpu/choose_few.h"

namespace lockstep::gpu {
namespace {

constexpr int kScoreThreads = 512, kScoreWarps = kScoreThreads / kWarp;
constexpr int kCodeWords = kScoreKeyWidth / 4, kMostHeads = 64;
constexpr int kMostChooseThreads = 1024;

/// A block has kGroups of 32 keys, a warp one of them.
template <int kGroups>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kScoreThreads, 1)
    score_fp4_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, float* scores,
                     float* largest, PackedRows layout) {
  follow_launch();
  constexpr int kKeys = kGroups * kWarp;
  static_assert(kKeys * 8 <= kScoreThreads && kScoreWarps % kGroups == 0);
  LOCKSTEP_SHARED Words4 query_words[kMostHeads][kCodeWords / 4];
  LOCKSTEP_SHARED float query_scales[kMostHeads][kScoreBlocks];
  LOCKSTEP_SHARED float weights[kMostHeads];
  LOCKSTEP_SHARED std::uint32_t key_codes[kKeys][kCodeWords + 1];
  LOCKSTEP_SHARED float key_scales[kScoreBlocks][kKeys];
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
    const auto* words = reinterpret_cast<const std::uint32_t*>(bytes_at(key));
    const std::uint32_t exponents = words[kScoreKeyWords - 1];
    if (decode_key_words(key_codes[key], words, word, exponents)) is_odd = 1;
    if (word < kScoreBlocks) key_scales[word][key] = key_block_scale(exponents, word);
  }
  const int heads = call.head_weights.width;
  const float* queries = call.queries.data + i * call.queries.stride;
  // Four values a thread; eight neighbouring threads have a block of 32.
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
    const QueryBlock block = query_block(most);
    bool is_exact = true;
    reinterpret_cast<std::uint32_t*>(query_words)[item] = query_codes(x, block, is_exact);
    if (!is_exact) is_odd = 1;
    if (item % 8 == 0) reinterpret_cast<float*>(query_scales)[item / 8] = block.scale;
  }
  if (t < heads) weights[t] = call.head_weights.data[i * call.head_weights.stride + t];
  block_barrier();
  const int warp = t / kWarp, mine = warp % kGroups * kWarp + lane_index();
  std::uint32_t key[kCodeWords];
  float scales[kScoreBlocks];
#pragma unroll
  for (int w = 0; w < kCodeWords; ++w) key[w] = key_codes[mine][w];
#pragma unroll
  for (int b = 0; b < kScoreBlocks; ++b) scales[b] = key_scales[b][mine];
  const bool is_literal = is_odd != 0;  // the same in all threads
  for (int head = warp / kGroups; head < heads; head += kScoreWarps / kGroups) {
    if (is_literal) {
      dots[head][mine] = literal_dot(queries + head * kScoreKeyWidth, bytes_at(mine), layout);
      continue;
    }
    float total = 0;
#pragma unroll
    for (int b = 0; b < kScoreBlocks; ++b) {
      int sum = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words4 codes = query_words[head][2 * b + half];
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
  keep_score(scores + static_cast<std::int64_t>(block_y()) * call.bound,
             largest + static_cast<std::int64_t>(block_y()) * score_groups(call.bound), first_key + t, visible, score);
}

/// One block a row.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kMostChooseThreads, 1)
    choose_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, const float* scores,
                  const float* largest) {
  follow_launch();
  LOCKSTEP_SHARED ChooseShared shared;
  const int wave_row = block_x(), i = first_row + wave_row;
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  if (largest != nullptr) largest += static_cast<std::int64_t>(wave_row) * score_groups(call.bound);
  choose_row(shared, call, i, visible_rows(slice.begin + i - slice.first_row, call.ratio),
             scores + static_cast<std::int64_t>(wave_row) * call.bound, largest);
}

}  // namespace

bool can_score_fp4(const SelectCall& call, const PackedRows& layout) {
  const auto at = reinterpret_cast<std::uintptr_t>(call.queries.data);
  return !layout.is_plain && layout.key_width == kScoreKeyWidth && layout.key_bytes == 4 * kScoreKeyWords &&
         call.head_weights.width <= kMostHeads && at % 16 == 0 && call.queries.stride % 4 == 0;
}

std::size_t few_score_floats(int bound) { return static_cast<std::size_t>(bound + score_groups(bound)); }

void choose_fp4(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows, float* scores,
                const PackedRows& layout) {
  if (can_choose_by_tiles(runtime, call, rows))
    return choose_by_tiles(runtime, call, slices, first_row, rows, scores, layout);
  float* const largest = scores + static_cast<std::int64_t>(rows) * call.bound;
  const auto launch_groups = [&](auto kernel, int groups) {
    launch(runtime, kernel, {blocks_for(call.bound, groups * kWarp), static_cast<unsigned>(rows)}, kScoreThreads, 0,
           call, slices.memory, slices.size(), first_row, scores, largest, layout);
  };
  if (call.bound * rows <= 4096)  // else there are blocks enough, each of which makes the queries' codes
    launch_groups(score_fp4_kernel<1>, 1);
  else
    launch_groups(score_fp4_kernel<2>, 2);
  choose_few(runtime, call, slices, first_row, rows, scores, true);
}

void choose_few(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                const float* scores, bool has_groups) {
  // Few scores a thread, and no more threads than wait for each other quickly.
  const unsigned wanted = blocks_for(call.bound, 4 * kWarp), most = kMostChooseThreads / kWarp;
  const unsigned threads = kWarp * (wanted < 4 ? 4 : wanted > most ? most : wanted);
  launch(runtime, choose_kernel, {static_cast<unsigned>(rows)}, threads, 0, call, slices.memory, slices.size(),
         first_row, scores, has_groups ? scores + static_cast<std::int64_t>(rows) * call.bound : nullptr);
}

}  // namespace lockstep::gpu
