// Attention of many queries, of any shape: scores [heads, slots]; then weights in their place, and what to divide by;
// then the sums over rows, a block going through all chains. The model's own shape has faster kernels where the device
// has the shared memory (attend_tile.cu).
//
// Bound by f32 fma: a thread makes eight by four outputs, so that three reads of 16 bytes feed 32 fmas. Rows are
// unpacked on their way into shared memory, four codes a word; a block does that while others add.
#include "gpu/async_copy.h"
#include "gpu/attend_tile.h"
#include "numerics/functions.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 128, kSide = 16, kHeads = 64;
constexpr int kEach = 8, kOthers = 4;  // heads, and slots or channels, of a thread
constexpr int kPitch = kChain + 4;     // floats of a row of 64 in shared memory: neighbours meet different banks
constexpr int kTileSlots = kSide * kOthers, kDims = kSide * kOthers;
static_assert(kTileSlots == kChain);
constexpr int kPieceThreads = 8;                        // that bring a row's piece of 64 channels
constexpr int kWeightThreads = 256, kWeightChains = 8;  // chains of a head that are weighted at a time

/// Which outputs of a tile of heads by slots or channels are a thread's: the heads `head` + 8 h, and of the others what
/// `other` + 16 e are. Threads are laid out in squares of two by two: loads of 16 bytes by half a warp take one pass
/// where neighbours, or neighbours but one, read the same.
struct Spot {
  int head, other;
};
LOCKSTEP_DEVICE Spot my_spot() {
  const int warp = thread_index() / kWarp, lane = lane_index();
  return {warp % 2 * 4 + lane / 16 * 2 + lane / 2 % 2, warp / 2 * 8 + lane / 4 % 4 * 2 + lane % 2};
}

struct Many : Attention {
  float* scores;   // [wave rows, heads, slots]
  float* inverse;  // [wave rows, heads]
  bool is_fast;    // whole pieces of 64 channels, of codes or of floats, and aligned queries
};

/// The word that begins at any byte.
LOCKSTEP_DEVICE std::uint32_t word_at(const std::uint8_t* from) {
  const auto address = reinterpret_cast<std::uintptr_t>(from), rest = address & 3u;
  const auto* words = reinterpret_cast<const std::uint32_t*>(from - rest);
  const std::uint64_t both = static_cast<std::uint64_t>(words[rest != 0 ? 1 : 0]) << 32 | words[0];
  return static_cast<std::uint32_t>(both >> (8 * rest));
}

/// Four codes of one block of a row as row_code_value has them.
LOCKSTEP_DEVICE Floats4 four_values(std::uint32_t codes, std::uint32_t e8m0) {
  const int exponent = e8m0_to_exponent(static_cast<std::uint8_t>(e8m0)), low = exponent < 7 ? exponent : 7;
  const float factor = power_of_two(120 + low);
  Floats4 out;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const auto shifted = static_cast<std::uint32_t>(static_cast<std::int32_t>(codes << (24 - 8 * k)) >> 4);
    out.value[k] = f32_of(shifted & 0x87f00000u) * factor;
  }
  if (exponent > 7) {
    const float rest = exponent == kBadExponent ? f32_of(kQuietNaN) : power_of_two(exponent - low);
#pragma unroll
    for (int k = 0; k < 4; ++k) out.value[k] = out.value[k] * rest;
  }
  return out;
}

/// Channels [begin, begin + 64) of a row by eight threads, of which this is number `part`.
LOCKSTEP_DEVICE void bring_piece(float* to, const Source& source, int begin, int part, const PackedRows& layout) {
  const int channels = layout.width - layout.rotary;
  if (source.floats != nullptr || layout.is_plain) {
    const float* from = (source.floats != nullptr ? source.floats : reinterpret_cast<const float*>(source.packed));
#pragma unroll
    for (int d = 4 * part; d < kChain; d += 4 * kPieceThreads)
      *reinterpret_cast<Floats4*>(to + d) = *reinterpret_cast<const Floats4*>(from + begin + d);
  } else if (begin < channels) {
    const std::uint32_t first = word_at(source.packed + begin + 4 * part),
                        second = word_at(source.packed + begin + 4 * part + 4 * kPieceThreads),
                        e8m0 = source.packed[channels + begin / kFp8Block];
    *reinterpret_cast<Floats4*>(to + 4 * part) = four_values(first, e8m0);
    *reinterpret_cast<Floats4*>(to + 4 * part + 4 * kPieceThreads) = four_values(second, e8m0);
  } else {
    const std::uint8_t* from = source.packed + channels + fp8_blocks(channels) + 4 * (begin - channels);
#pragma unroll
    for (int d = part; d < kChain; d += kPieceThreads) to[d] = f32_of(word_at(from + 4 * d));
  }
}

/// Rows lie in device memory, whatever the pointer came from.
LOCKSTEP_DEVICE std::uint32_t device_word(const std::uint32_t* from) {
#if defined(__CUDA_ARCH__)
  std::uint32_t word;
  asm("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
#else
  return *from;
#endif
}
LOCKSTEP_DEVICE Words4 device_words(const void* from) {
#if defined(__CUDA_ARCH__)
  Words4 v;
  asm("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
      : "l"(from));
  return v;
#else
  return *static_cast<const Words4*>(from);
#endif
}

/// What a thread has to move of a row: read first, for several rows, so that they are on their way together.
struct Piece {
  std::uint32_t word[8];  // floats; or the words around eight codes, and their block's exponent
};
struct Task {
  const Source* source;  // in shared memory
  int begin;             // of 64 channels
  float* to;
};
LOCKSTEP_DEVICE Piece read_piece(const Task& task, int part, const PackedRows& layout) {
  Piece piece;
  const Source source = *task.source;
  const int d = task.begin + 4 * part;
  if (source.floats != nullptr || layout.is_plain) {
    const float* from = source.floats != nullptr ? source.floats : reinterpret_cast<const float*>(source.packed);
    const Words4 first = device_words(from + d), second = device_words(from + d + 4 * kPieceThreads);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      piece.word[k] = first.word[k];
      piece.word[k + 4] = second.word[k];
    }
    return piece;
  }
  const auto rest = static_cast<int>(reinterpret_cast<std::uintptr_t>(source.packed + d) & 3u),
             next = rest != 0 ? 1 : 0;
  const auto* words = reinterpret_cast<const std::uint32_t*>(source.packed + d - rest);
  piece.word[0] = device_word(words);
  piece.word[1] = device_word(words + next);
  piece.word[2] = device_word(words + kPieceThreads);
  piece.word[3] = device_word(words + kPieceThreads + next);
  piece.word[4] = source.packed[layout.width - layout.rotary + task.begin / kFp8Block];
  piece.word[5] = static_cast<std::uint32_t>(8 * rest);
  return piece;
}
LOCKSTEP_DEVICE void write_piece(const Piece& piece, const Task& task, int part, const PackedRows& layout) {
  auto* const first = reinterpret_cast<Floats4*>(task.to + 4 * part);
  auto* const second = reinterpret_cast<Floats4*>(task.to + 4 * part + 4 * kPieceThreads);
  if (task.source->floats != nullptr || layout.is_plain) {
    const std::uint32_t* w = piece.word;
    *first = {{f32_of(w[0]), f32_of(w[1]), f32_of(w[2]), f32_of(w[3])}};
    *second = {{f32_of(w[4]), f32_of(w[5]), f32_of(w[6]), f32_of(w[7])}};
    return;
  }
  const auto joined = [&](int k) {
    const std::uint64_t both = static_cast<std::uint64_t>(piece.word[k + 1]) << 32 | piece.word[k];
    return static_cast<std::uint32_t>(both >> piece.word[5]);
  };
  *first = four_values(joined(0), piece.word[4]);
  *second = four_values(joined(2), piece.word[4]);
}

/// kCount tasks of this thread, task_of(0) and so on; all of them begin at channels that are codes, or none.
template <int kCount, class TaskOf>
LOCKSTEP_DEVICE void bring(bool are_codes, int part, const PackedRows& layout, const TaskOf& task_of) {
  constexpr int kAtOnce = kCount < 4 ? kCount : 4;
  if (!are_codes && !layout.is_plain) {
    for (int j = 0; j < kCount; ++j) {
      const Task task = task_of(j);
      bring_piece(task.to, *task.source, task.begin, part, layout);
    }
    return;
  }
#pragma unroll 1
  for (int first = 0; first < kCount; first += kAtOnce) {
    Piece pieces[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) pieces[j] = read_piece(task_of(first + j), part, layout);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) write_piece(pieces[j], task_of(first + j), part, layout);
  }
}

/// Sixteen bytes into shared memory, without waiting where the device can.
LOCKSTEP_DEVICE void bring16(float* to, const float* from) {
#if defined(__CUDA_ARCH__)
  copy16(to, from);
#else
  *reinterpret_cast<Floats4*>(to) = *reinterpret_cast<const Floats4*>(from);
#endif
}
LOCKSTEP_DEVICE void end_bringing() {
#if defined(__CUDA_ARCH__)
  end_copy_group();
  wait_for_copies<0>();
#endif
}

struct ScoreShared {
  float query[kHeads][kPitch];
  float row[kTileSlots][kPitch];
  Source sources[kTileSlots];
};

/// Scores of kGroups * 16 slots for 64 heads: my_spot.
template <int kGroups>
LOCKSTEP_DEVICE void score_slots(ScoreShared& shared, const Many& a, const PackedRows& layout, int i, int wave_row,
                                 int first_head, int first_slot, int used) {
  const int t = thread_index(), my_head = my_spot().head, my_slot = my_spot().other, width = layout.width;
  const float* queries = a.queries.data + i * a.queries.stride + static_cast<std::int64_t>(first_head) * width;
  float total[kEach][kGroups] = {};
  for (int begin = 0; begin < width; begin += kChain) {
    const int length = width - begin < kChain ? width - begin : kChain;
    block_barrier();
    if (a.is_fast) {
#pragma unroll
      for (int j = 0; j < kHeads * (kChain / 4) / kThreads; ++j) {
        const int r = (t + j * kThreads) / (kChain / 4), d = t % (kChain / 4) * 4;
        const int head = first_head + r < a.heads ? r : a.heads - 1 - first_head;  // one more time, for nothing
        bring16(&shared.query[r][d], queries + head * width + begin + d);
      }
      bring<kGroups>(begin < width - layout.rotary, t % kPieceThreads, layout, [&](int j) {
        const int r = t / kPieceThreads + j * (kThreads / kPieceThreads);
        return Task{&shared.sources[r], begin, shared.row[r]};
      });
      end_bringing();
    } else {
      for (int j = t; j < kHeads * kChain; j += kThreads) {
        const int r = j / kChain, d = j % kChain;
        shared.query[r][d] = first_head + r < a.heads && d < length ? queries[r * width + begin + d] : 0.0f;
      }
      for (int j = t; j < kGroups * kSide * kChain; j += kThreads) {
        const int r = j / kChain, d = j % kChain;
        shared.row[r][d] = d < length ? value_of(shared.sources[r], begin + d, layout) : 0.0f;
      }
    }
    block_barrier();
    float sum[kEach][kGroups] = {};
    const auto step_at = [&](int d, int steps) {
      Floats4 x[kEach];
#pragma unroll
      for (int h = 0; h < kEach; ++h)
        x[h] = *reinterpret_cast<const Floats4*>(&shared.query[my_head + h * (kHeads / kEach)][d]);
#pragma unroll
      for (int e = 0; e < kGroups; ++e) {
        const auto y = *reinterpret_cast<const Floats4*>(&shared.row[my_slot + e * kSide][d]);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          if (step >= steps) break;
#pragma unroll
          for (int h = 0; h < kEach; ++h) sum[h][e] = fma_f32(x[h].value[step], y.value[step], sum[h][e]);
        }
      }
    };
    if (length == kChain) {
#pragma unroll 1
      for (int d = 0; d < kChain; d += 4) step_at(d, 4);
    } else {
#pragma unroll 1
      for (int d = 0; d < length; d += 4) step_at(d, length - d);
    }
#pragma unroll
    for (int h = 0; h < kEach; ++h)
#pragma unroll
      for (int e = 0; e < kGroups; ++e) total[h][e] = begin == 0 ? sum[h][e] : total[h][e] + sum[h][e];
  }
#pragma unroll
  for (int h = 0; h < kEach; ++h) {
    const int head = first_head + my_head + h * (kHeads / kEach);
    if (head >= a.heads) break;
    float* to = a.scores + (static_cast<std::int64_t>(wave_row) * a.heads + head) * a.slots + first_slot;
#pragma unroll
    for (int e = 0; e < kGroups; ++e) {
      const int slot = my_slot + e * kSide;
      if (slot < used) to[slot] = total[h][e] * a.scale;
    }
  }
}

/// Grid: chains of slots, groups of heads, queries.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 4) score_many_kernel(Many a, PackedRows layout) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Floats4, score_shared);
  auto& shared = *reinterpret_cast<ScoreShared*>(score_shared);
  const int wave_row = block_z(), i = a.first_row + wave_row, first_slot = block_x() * kTileSlots,
            first_head = block_y() * kHeads, t = thread_index();
  const Query q = query_of(a, i);
  const int used = used_from(a, q, first_slot);
  if (used <= 0) return;
  if (t < kTileSlots) shared.sources[t] = source_of(a, q, i, first_slot + (t < used ? t : used - 1), layout);
  if (used > 2 * kSide) return score_slots<4>(shared, a, layout, i, wave_row, first_head, first_slot, used);
  if (used > kSide) return score_slots<2>(shared, a, layout, i, wave_row, first_head, first_slot, used);
  score_slots<1>(shared, a, layout, i, wave_row, first_head, first_slot, used);
}

/// Scores to weights, in place, and the reciprocal of their sum: a warp a head.
LOCKSTEP_KERNEL void weight_kernel(Many a) {
  follow_launch();
  LOCKSTEP_SHARED float weights[kWeightThreads / kWarp][kWeightChains][kChain + 1];
  const int item = (block_x() * block_threads() + thread_index()) / kWarp, head = item % a.heads,
            wave_row = item / a.heads, lane = lane_index();
  const int i = a.first_row + wave_row;
  if (i >= a.queries.rows) return;
  const Query q = query_of(a, i);
  float* row = a.scores + static_cast<std::int64_t>(item) * a.slots;
  const int end = a.window_slots + q.compressed;  // slots from in_window to window_slots are not used
  const auto is_used = [&](int slot) { return slot < a.window_slots ? slot < q.in_window : slot < end; };
  const float sink = a.sinks[head];
  float largest = sink;
  for (int s = 4 * lane; s < end; s += 4 * kWarp) {
    const Floats4 scores = *reinterpret_cast<const Floats4*>(row + s);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float score = is_used(s + e) ? scores.value[e] : sink;
      largest = score > largest ? score : largest;
    }
  }
  largest = warp_max(largest);
  float(*const mine)[kChain + 1] = weights[thread_index() / kWarp];
  float denominator = exp_f32(sink - largest);
  for (int first = 0; first < end; first += kWeightChains * kChain) {
    const int stop = end - first < kWeightChains * kChain ? end - first : kWeightChains * kChain;
    warp_barrier();
    for (int s = 4 * lane; s < stop; s += 4 * kWarp) {
      Floats4 scores = *reinterpret_cast<const Floats4*>(row + first + s);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores.value[e] = is_used(first + s + e) ? exp_f32(scores.value[e] - largest) : 0.0f;
        mine[s / kChain][s % kChain + e] = scores.value[e];
      }
      *reinterpret_cast<Floats4*>(row + first + s) = scores;
    }
    warp_barrier();
    int used = lane < kWeightChains && first + lane * kChain < end ? used_from(a, q, first + lane * kChain) : 0;
    used = used < kChain ? used : kChain;
    float sum = 0;
    const float* chain = mine[lane % kWeightChains];
#pragma unroll 8
    for (int s = 0; s < used; ++s) sum = sum + chain[s];
      // A chain that is not used adds a zero, which changes nothing: the denominator is never -0.
#pragma unroll
    for (int c = 0; c < kWeightChains; ++c) denominator = denominator + shuffle(sum, c);
  }
  if (lane == 0) a.inverse[item] = 1.0f / denominator;
}

struct SumShared {
  float weight[kHeads][kPitch];
  float row[kChain][kDims];
  Source sources[kChain];
};

/// Sums over rows, for 64 heads and 128 channels: channels 4 * other and 64 further.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 4) sum_many_kernel(Many a, PackedRows layout) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Floats4, sum_shared);
  auto& shared = *reinterpret_cast<SumShared*>(sum_shared);
  const int width = layout.width, chains = a.slots / kChain, dim_groups = (width + kDims - 1) / kDims;
  const int first_dim = block_x() % dim_groups * kDims, first_head = block_x() / dim_groups * kHeads;
  const int i = a.first_row + block_y(), t = thread_index();
  const Query q = query_of(a, i);
  const float* scores = a.scores + (static_cast<std::int64_t>(block_y()) * a.heads + first_head) * a.slots;
  const int my_head = my_spot().head, my_dim = my_spot().other * 4;
  float total[kEach][kOthers] = {};
  for (int chain = 0; chain < chains; ++chain) {
    int used = used_from(a, q, chain * kChain);
    used = used < kChain ? used : kChain;
    if (used <= 0) continue;
    block_barrier();
    if (t < kChain) shared.sources[t] = source_of(a, q, i, chain * kChain + (t < used ? t : used - 1), layout);
    block_barrier();
    if (a.is_fast) {
#pragma unroll
      for (int j = 0; j < kHeads * (kChain / 4) / kThreads; ++j) {
        const int h = (t + j * kThreads) / (kChain / 4), d = t % (kChain / 4) * 4;
        const int head = first_head + h < a.heads ? h : a.heads - 1 - first_head;  // one more time, for nothing
        bring16(&shared.weight[h][d], scores + static_cast<std::int64_t>(head) * a.slots + chain * kChain + d);
      }
      for (int piece = 0; piece < kDims && first_dim + piece < width; piece += kChain)
        bring<kChain * kPieceThreads / kThreads>(
            first_dim + piece < width - layout.rotary, t % kPieceThreads, layout, [&](int j) {
              const int r = t / kPieceThreads + j * (kThreads / kPieceThreads);
              return Task{&shared.sources[r], first_dim + piece, shared.row[r] + piece};
            });
      end_bringing();
    } else {
      for (int j = t; j < kHeads * kChain; j += kThreads) {
        const int h = j / kChain, slot = j % kChain;
        shared.weight[h][slot] =
            first_head + h < a.heads ? scores[static_cast<std::int64_t>(h) * a.slots + chain * kChain + slot] : 0.0f;
      }
      for (int j = t; j < kChain * kDims; j += kThreads) {
        const int r = j / kDims, d = first_dim + j % kDims;
        shared.row[r][j % kDims] = d < width ? value_of(shared.sources[r], d, layout) : 0.0f;
      }
    }
    block_barrier();
    float sum[kEach][kOthers] = {};
    const auto add_rows = [&](int s, int rows) {
      Floats4 w[kEach];
#pragma unroll
      for (int h = 0; h < kEach; ++h)
        w[h] = *reinterpret_cast<const Floats4*>(&shared.weight[my_head + h * (kHeads / kEach)][s]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (r >= rows) break;
#pragma unroll
        for (int g = 0; g < kOthers / 4; ++g) {
          const Floats4 v = *reinterpret_cast<const Floats4*>(&shared.row[s + r][g * 4 * kSide + my_dim]);
#pragma unroll
          for (int h = 0; h < kEach; ++h)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[h][g * 4 + e] = fma_f32(w[h].value[r], v.value[e], sum[h][g * 4 + e]);
        }
      }
    };
    const int whole = used / 4 * 4;
#pragma unroll 1
    for (int s = 0; s < whole; s += 4) add_rows(s, 4);
    if (whole < used) add_rows(whole, used - whole);
#pragma unroll
    for (int h = 0; h < kEach; ++h)
#pragma unroll
      for (int e = 0; e < kOthers; ++e) total[h][e] = chain == 0 ? sum[h][e] : total[h][e] + sum[h][e];
  }
#pragma unroll
  for (int h = 0; h < kEach; ++h) {
    const int head = first_head + my_head + h * (kHeads / kEach);
    if (head >= a.heads) break;
    const float inverse = a.inverse[static_cast<std::int64_t>(block_y()) * a.heads + head];
#pragma unroll
    for (int g = 0; g < kOthers / 4; ++g) {
      const int d = first_dim + g * 4 * kSide + my_dim;
      float* to = a.out.data + i * a.out.stride + static_cast<std::int64_t>(head) * width + d;
      const Floats4 value = {{total[h][4 * g] * inverse, total[h][4 * g + 1] * inverse, total[h][4 * g + 2] * inverse,
                              total[h][4 * g + 3] * inverse}};
      if (a.is_fast) {
        if (d < width) *reinterpret_cast<Floats4*>(to) = value;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (d + e < width) to[e] = value.value[e];
      }
    }
  }
}

/// Pieces of 64 channels, whole words, everywhere.
bool has_whole_pieces(const AttendCall& call, const PackedRows& layout) {
  const auto is_aligned = [](const float* data, std::ptrdiff_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
  };
  return layout.width % kChain == 0 && (layout.is_plain || layout.rotary % kChain == 0) &&
         is_aligned(call.queries.data, call.queries.stride) && is_aligned(call.out.data, call.out.stride) &&
         is_aligned(call.window_rows.data, call.window_rows.stride);
}

}  // namespace

std::size_t attend_scratch_floats(const AttendCall& call, int rows, const PackedRows& layout) {
  const std::size_t heads = static_cast<std::size_t>(call.queries.width / layout.width),
                    n = static_cast<std::size_t>(rows);
  const std::size_t many = n * heads * (static_cast<std::size_t>(slots_of(call)) + 1) + 2 * kChain;
  const std::size_t few = attend_few_floats(call, rows, layout),
                    tile = can_attend_tile(call, rows, layout) ? many + attend_tile_floats(call) : 0;
  return few > many ? few > tile ? few : tile : many > tile ? many : tile;
}

void attend(Runtime& runtime, const AttendCall& call, const Slices& slices, int first_row, int rows, float* scratch,
            const PackedRows& layout) {
  if (can_attend_few(runtime, call, rows, layout))
    return attend_few(runtime, call, slices, first_row, rows, scratch, layout);
  const Attention attention = attention_of(call, slices, first_row, rows, layout);
  const std::int64_t scores = static_cast<std::int64_t>(rows) * attention.heads * attention.slots;
  if (can_attend_tile(call, rows, layout) && suits_attend_tile(runtime, rows)) {
    float* const behind = scratch + attend_tile_floats(call);
    return attend_tile(runtime, attention, call, layout, rows, scratch, behind, behind + scores);
  }
  const Many a = {attention, scratch, scratch + scores, has_whole_pieces(call, layout)};
  const unsigned n = static_cast<unsigned>(rows);
  const unsigned head_groups = blocks_for(a.heads, kHeads);
  launch(runtime, score_many_kernel, {blocks_for(a.slots, kTileSlots), head_groups, n}, kThreads, sizeof(ScoreShared),
         a, layout);
  weigh_scores(runtime, attention, rows, a.scores, a.inverse);
  launch(runtime, sum_many_kernel, {blocks_for(layout.width, kDims) * head_groups, n}, kThreads, sizeof(SumShared), a,
         layout);
}

void weigh_scores(Runtime& runtime, const Attention& attention, int wave_rows, float* scores, float* inverse) {
  const Many a = {attention, scores, inverse, false};
  launch(runtime, weight_kernel, {blocks_for(static_cast<std::int64_t>(wave_rows) * a.heads, kWeightThreads / kWarp)},
         kWeightThreads, 0, a);
}

void prepare_attend(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&score_many_kernel), sizeof(ScoreShared));
  runtime.allow_shared(reinterpret_cast<const void*>(&sum_many_kernel), sizeof(SumShared));
  prepare_attend_few(runtime);
  prepare_attend_tile(runtime);
}

}  // namespace lockstep::gpu
