// The indexer's choice of few queries in one launch, its scores made on int8 tensor cores.
//
// A block has up to 256 keys, decoded into shared memory, and all 64 heads: a warp has eight heads, whose codes it
// makes in the registers of its right operand, and goes through half of the keys, 32 at a time. A dot starts from
// 0x4B400000, so that one fma scales it by the query's power of two, exactly, and the next one by the key's and adds
// it. Then a thread a key adds the heads in order. The block of a query that is done last chooses (choose_few.h): a
// launch of its own would wait for a place where something large runs beside.
#include "gpu/async_copy.h"
#include "gpu/choose_few.h"
#include "gpu/device.h"
#include "gpu/int8_mma.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kHeads = 64, kChains = kScoreBlocks, kHeadTiles = kHeads / 8;
constexpr int kThreads = 512, kWarps = kThreads / kWarp, kStepKeys = kWarps / kHeadTiles * kWarp, kMostKeys = 256;
// Of a key's codes in shared memory: eight rows of 16 bytes meet different banks. Dots of a head are four banks from
// the next head's, for there is a multiple of 32 keys.
constexpr int kCodePitch = kScoreKeyWidth + 16, kDotPad = 4;
static_assert(kIndexChain == kFp4Block);

constexpr std::size_t tile_bytes(int keys) {
  return static_cast<std::size_t>(keys) * (kCodePitch + kChains * sizeof(float)) +
         sizeof(float) * kHeads * static_cast<std::size_t>(keys + kDotPad);
}

static_assert(sizeof(ChooseShared) <= tile_bytes(kStepKeys));  // the choice's room is what the scores' was

LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 2)
    choose_tile_kernel(SelectCall call, const SequenceSlice* slices, int slice_count, int first_row, int keys,
                       float* scores, float* largest, PackedRows layout) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Words4, score_shared);
  LOCKSTEP_SHARED float weights[kHeads];
  LOCKSTEP_SHARED int is_odd;  // a query or key is no ordinary fp4
  LOCKSTEP_SHARED int arrived;
  auto* const codes = reinterpret_cast<std::uint8_t*>(score_shared);             // [keys][kCodePitch]
  auto* const key_scales = reinterpret_cast<float*>(codes + keys * kCodePitch);  // [keys][kChains]
  float* const dots = key_scales + keys * kChains;                               // [kHeads][keys + kDotPad]
  const int pitch = keys + kDotPad;
  const int i = first_row + block_y(), first_key = block_x() * keys, t = thread_index();
  const int lane = lane_index(), group = lane / 4, quad = lane % 4;
  const SequenceSlice& slice = slice_of(slices, slice_count, i);
  const std::int64_t visible = visible_rows(slice.begin + i - slice.first_row, call.ratio);
  if (visible <= call.top_k ? block_x() > 0 : first_key >= visible) return;
  float* const row_scores = scores + static_cast<std::int64_t>(block_y()) * call.bound;
  float* const row_largest = largest + static_cast<std::int64_t>(block_y()) * score_groups(call.bound);
  auto& choosing = *reinterpret_cast<ChooseShared*>(score_shared);
  if (visible <= call.top_k) return choose_row(choosing, call, i, visible, row_scores, row_largest);
  const auto bytes_at = [&](int key) {
    std::int64_t c = first_key + key;
    c = c < visible ? c : visible - 1;
    return bytes_of(slice.key_pages[c / kPageRows]) + c % kPageRows * layout.key_bytes;
  };
  // Values 4 quad to 4 quad + 3 of each half of a chain, of head `group` of this warp's.
  const int warp = t / kWarp, first_head = warp % kHeadTiles * 8;
  const float* queries = call.queries.data + i * call.queries.stride;
  const float* query = queries + (first_head + group) * kScoreKeyWidth + 4 * quad;
  if (t == 0) is_odd = 0;
  if (t < kHeads) weights[t] = call.head_weights.data[i * call.head_weights.stride + t];
  block_barrier();
#pragma unroll 2
  for (int item = t; item < keys * 8; item += kThreads) {
    const int key = item / 8, word = item % 8;
    const auto* words = reinterpret_cast<const std::uint32_t*>(bytes_at(key));
    const std::uint32_t exponents = words[kScoreKeyWords - 1];
    if (decode_key_words(reinterpret_cast<std::uint32_t*>(codes + key * kCodePitch), words, word, exponents))
      is_odd = 1;
    if (word < kChains) key_scales[key * kChains + word] = key_block_scale(exponents, word);
  }
  Words2 right[kChains];
  float scale[kChains][2], start[kChains][2];  // of heads 2 quad and 2 quad + 1
  bool is_exact = true;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    Floats4 x[2];
    std::uint32_t most = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x[half] = *reinterpret_cast<const Floats4*>(query + chain * kIndexChain + 16 * half);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        most = magnitude_bits(x[half].value[k]) > most ? magnitude_bits(x[half].value[k]) : most;
    }
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(most), mask));
      most = other > most ? other : most;
    }
    const QueryBlock block = query_block(most);
#pragma unroll
    for (int half = 0; half < 2; ++half) right[chain].word[half] = query_codes(x[half], block, is_exact);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      scale[chain][n] = shuffle(block.scale, 4 * (2 * quad + n));
      start[chain][n] = -kMagic * scale[chain][n];
    }
  }
  if (!is_exact) is_odd = 1;
  block_barrier();
  if (is_odd == 0) {
#pragma unroll 1
    for (int first = warp / kHeadTiles * kWarp; first < keys; first += kStepKeys) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const int from = first + 16 * tile;
        Floats4 of_key[2];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          of_key[r] = *reinterpret_cast<const Floats4*>(key_scales + (from + 8 * r + group) * kChains);
        float total[4] = {};
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) {
          std::uint32_t left[4];
          load_matrices(left,
                        shared_address(codes + (from + lane % 16) * kCodePitch + chain * kIndexChain + lane / 16 * 16));
          int dot[4];
          multiply32(dot, left, right[chain].word[0], right[chain].word[1]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float scaled = fma_f32(magic_float(dot[e]), scale[chain][e % 2], start[chain][e % 2]);
            total[e] = fma_f32(scaled, of_key[e / 2].value[chain], total[e]);
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dots[(first_head + 2 * quad + e % 2) * pitch + from + 8 * (e / 2) + group] = total[e];
      }
    }
  } else {
#pragma unroll 1
    for (int item = t; item < kHeads * keys; item += kThreads) {
      const int head = item / keys, key = item % keys;
      dots[head * pitch + key] = literal_dot(queries + head * kScoreKeyWidth, bytes_at(key), layout);
    }
  }
  block_barrier();
  if (t < keys) {
    float score = 0;
#pragma unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const float dot = dots[h * pitch + t];
      score = fma_f32(weights[h], dot > 0 ? dot : 0.0f, score);
    }
    keep_score(row_scores, row_largest, first_key + t, visible, score);
  }
  block_barrier();
  if (t == 0) {  // for the whole block
    device_fence();
    arrived = atomic_add(&call.arrivals[block_y()], 1);
    device_fence();
  }
  block_barrier();
  if ((arrived + 1) * static_cast<std::int64_t>(keys) < visible) return;
  if (t == 0) call.arrivals[block_y()] = 0;
  choose_row(choosing, call, i, visible, row_scores, row_largest);
}

constexpr std::size_t kStaticBytes = 2 * 1024;  // at most, with what a launch takes for itself

}  // namespace

bool can_choose_by_tiles(const Runtime& runtime, const SelectCall& call, int rows) {
  return call.head_weights.width == kHeads && rows <= kMostArrivals &&
         tile_bytes(kStepKeys) + kStaticBytes <= runtime.most_shared_bytes();
}

void choose_by_tiles(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                     float* scores, const PackedRows& layout) {
  // More keys a block where there are blocks enough for all multiprocessors: each makes the queries' codes. At 131,072
  // tokens one query is fastest with 128 (20.5 us for 25.1 with 256), and eight are with 256 (70 for 90).
  const std::int64_t all = static_cast<std::int64_t>(call.bound) * rows, places = 2 * runtime.multiprocessors();
  int keys = all <= kStepKeys * places ? kStepKeys : all <= kMostKeys * places ? kMostKeys / 2 : kMostKeys;
  while (keys > kStepKeys && 2 * (tile_bytes(keys) + kStaticBytes) > runtime.most_shared_bytes()) keys /= 2;
  launch(runtime, choose_tile_kernel, {blocks_for(call.bound, keys), static_cast<unsigned>(rows)}, kThreads,
         tile_bytes(keys), call, slices.memory, slices.size(), first_row, keys, scores,
         scores + static_cast<std::int64_t>(rows) * call.bound, layout);
}

void prepare_score_tiles(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&choose_tile_kernel), tile_bytes(kMostKeys));
}

#else

bool can_choose_by_tiles(const Runtime&, const SelectCall&, int) { return false; }
void choose_by_tiles(Runtime&, const SelectCall&, const Slices&, int, int, float*, const PackedRows&) {}
void prepare_score_tiles(Runtime&) {}

#endif

}  // namespace lockstep::gpu
