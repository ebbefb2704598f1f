// Attention of many queries in the model's shape: scores [heads, slots], then weights in their place (attend_many.cu),
// then the sums over rows, a block going through all chains.
//
// Bound by f32 fma. Every row that a query of the step may attend is first unpacked to floats, once: they are few
// beside the queries, and stay in the L2 cache. What is left for the kernels is copies that nobody waits for and
// fmas: a thread makes eight by eight outputs, so that sixteen loads of 16 bytes feed 256 fmas, and the next chain is
// on its way while one is added. Two blocks of four warps a multiprocessor, which do not wait for each other.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/attend_tile.h"
#include "gpu/fma_order.h"

namespace lockstep::gpu {
namespace {

constexpr int kTileWidth = 512, kTileHeads = 64;
#if defined(LOCKSTEP_HAS_MMA)
constexpr bool kHasAttendTile = true;
#else
constexpr bool kHasAttendTile = false;  // HIP: a block has no such shared memory, and copies would be waited for
#endif

bool is_aligned_row(const float* data, std::ptrdiff_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

int sequence_rows_of(const AttendCall& call) { return call.window + call.visible; }

}  // namespace

std::size_t attend_tile_floats(const AttendCall& call) {
  return static_cast<std::size_t>(call.sequences) * static_cast<std::size_t>(sequence_rows_of(call)) * kTileWidth;
}

bool can_attend_tile(const AttendCall& call, int rows, const PackedRows& layout) {
  constexpr int kFewRows = 16, kRowsAQuery = 256;
  constexpr std::size_t kMostFloats = std::size_t{64} << 20;
  const std::size_t floats = attend_tile_floats(call);
  return kHasAttendTile && rows >= kFewRows && layout.width == kTileWidth &&
         call.queries.width % (kTileHeads * kTileWidth) == 0 && floats <= kMostFloats &&
         floats / kTileWidth <= static_cast<std::size_t>(kRowsAQuery * rows) &&
         is_aligned_row(call.queries.data, call.queries.stride) && is_aligned_row(call.out.data, call.out.stride) &&
         is_aligned_row(call.window_rows.data, call.window_rows.stride);
}

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kTileThreads = 128, kTileSide = 16, kTileEach = 8;
constexpr int kTilePitch = kChain + 4;  // floats of a row of 64 in shared memory: neighbours meet different banks
constexpr int kScoreSlots = kTileSide * kTileEach, kSumDims = kTileSide * kTileEach;
constexpr int kHeadStep = kTileHeads / kTileEach, kUnits = kChain / 4;  // units: of 16 bytes
constexpr int kUnpackThreads = 256;

struct TileCall : Attention {
  const float* rows;  // [sequences][sequence_rows][kTileWidth]: the window's before the step, then the compressed ones
  int sequence_rows;
  float* scores;
  float* inverse;
};

/// Which outputs of a tile are a thread's: `head` of 8 and `other` of 16 places. Threads in squares of two by two:
/// loads of 16 bytes by half a warp take one pass where neighbours, or neighbours but one, read the same.
struct TileSpot {
  int head, other;
};
LOCKSTEP_DEVICE TileSpot tile_spot() {
  const int warp = thread_index() / kWarp, lane = lane_index();
  return {warp % 2 * 4 + lane / 16 * 2 + lane / 2 % 2, warp / 2 * 8 + lane / 4 % 4 * 2 + lane % 2};
}

LOCKSTEP_DEVICE Floats4 floats4_at(const float* from) { return *reinterpret_cast<const Floats4*>(from); }

/// sum[i][e] += left[i][s] * right[s][e] for s in [0, count), a multiple of four, in ascending order. Row i of the left
/// operand is i * kLeftStep floats on, step s of the right one s * kPitch; its values are four and, kHalf further,
/// four. Values behind the last step are read, for nothing: what the next steps need is on its way while these are
/// added. Neighbours share a factor: fma_order.h.
template <int kRows, int kLeftStep, int kPitch, int kHalf>
LOCKSTEP_DEVICE void add_products(float (&sum)[kRows][kTileEach], const float* left, const float* right, int count) {
  Floats4 x[kRows], y[2] = {floats4_at(right), floats4_at(right + kHalf)};
#pragma unroll
  for (int i = 0; i < kRows; ++i) x[i] = floats4_at(left + i * kLeftStep);
#pragma unroll 2
  for (int s = 0; s < count; s += 4) {
    left += 4;
    Floats4 x_next[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x_next[i] = floats4_at(left + i * kLeftStep);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      right += kPitch;
      const Floats4 y_next[2] = {floats4_at(right), floats4_at(right + kHalf)};
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kTileEach; ++j) {
          const int e = i % 2 == 0 ? j : kTileEach - 1 - j;
          sum[i][e] = fma_in_order(x[i].value[step], y[e / 4].value[e % 4], sum[i][e]);
        }
      y[0] = y_next[0];
      y[1] = y_next[1];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = x_next[i];
  }
}

/// A warp a row. Grid: rows of a sequence, sequences.
LOCKSTEP_KERNEL void unpack_rows_kernel(TileCall a, float* out, PackedRows layout) {
  follow_launch();
  const SequenceSlice& slice = a.slices[block_y()];
  const int r = block_x() * (kUnpackThreads / kWarp) + thread_index() / kWarp, c = r - a.window;
  const Position last = slice.begin + slice.rows - 1, p = slice.begin + c;
  const std::uint8_t* packed;
  if (c < 0) {
    if (p < 0) return;
    packed = bytes_of(slice.window) + p % slice.window_slots * layout.row_bytes;
  } else {
    if (c >= visible_rows(last, a.ratio)) return;
    packed = bytes_of(slice.pages[c / kPageRows]) + c % kPageRows * layout.row_bytes;
  }
  float* to = out + (static_cast<std::int64_t>(block_y()) * a.sequence_rows + r) * kTileWidth;
#pragma unroll 4
  for (int d = lane_index(); d < kTileWidth; d += kWarp) to[d] = row_value(packed, d, layout);
}

/// Which compressed row a slot is; of a slot of the window anything.
LOCKSTEP_DEVICE int index_of(const TileCall& a, int i, int slot) {
  const int index = slot - a.window_slots;
  if (index < 0 || !a.has_selection) return index;
  return a.selection.ids[static_cast<std::int64_t>(i) * a.selection.capacity + index];
}
LOCKSTEP_DEVICE const float* row_of(const TileCall& a, const Query& q, int slot, int index) {
  const Position p = q.oldest + slot;
  if (slot < a.window_slots && p >= q.slice->begin)
    return a.window_rows.data + (q.slice->first_row + (p - q.slice->begin)) * a.window_rows.stride;
  const std::int64_t first = (q.slice - a.slices) * static_cast<std::int64_t>(a.sequence_rows) + a.window;
  return a.rows + (first + (slot < a.window_slots ? p - q.slice->begin : index)) * kTileWidth;
}

struct ScoreTileShared {
  float query[kTileHeads][kTilePitch];
  float turned[kChain + 1][kTilePitch];  // of channels, heads; the last one is read, for nothing
  float row[2][kScoreSlots][kTilePitch];
  const float* from[kScoreSlots];
};

/// query to turned, by all threads. A warp turns 16 heads; reads and writes meet all banks.
LOCKSTEP_DEVICE void turn_query(ScoreTileShared& shared) {
  constexpr int kHeads = kTileHeads / (kTileThreads / kWarp), kSteps = kWarp / kHeads;
  const int head = thread_index() / kWarp * kHeads + lane_index() % kHeads, first = lane_index() / kHeads * 4;
  Floats4 four[kUnits / kSteps];
#pragma unroll
  for (int j = 0; j < kUnits / kSteps; ++j) four[j] = floats4_at(&shared.query[head][first + j * 4 * kSteps]);
#pragma unroll
  for (int j = 0; j < kUnits / kSteps; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) shared.turned[first + j * 4 * kSteps + e][head] = four[j].value[e];
}

/// The slots that a query uses, numbered without gaps, and those of them that are a block's.
struct Share {
  int in_window, window_slots, first, used;
  LOCKSTEP_DEVICE Share(const TileCall& a, const Query& q, int block)
      : in_window(q.in_window), window_slots(a.window_slots) {
    const int all = q.in_window + q.compressed, blocks = (all + kScoreSlots - 1) / kScoreSlots;
    const int each = ((all + blocks - 1) / blocks + kTileSide - 1) / kTileSide * kTileSide;
    first = block * each;
    used = block >= blocks ? 0 : all - first < each ? all - first : each;
  }
  LOCKSTEP_DEVICE int slot_of(int i) const {
    return first + i < in_window ? first + i : window_slots + (first + i - in_window);
  }
};

/// Scores of kGroups * 16 slots for 64 heads: the slots other + 16 e, the heads 4 * head on and 32 further.
template <int kGroups>
LOCKSTEP_DEVICE void score_tile(ScoreTileShared& shared, const TileCall& a, const Share& share, const float* queries,
                                float* to) {
  constexpr int kStepRows = kTileThreads / kUnits, kHalf = kTileHeads / 2;
  const int t = thread_index(), my_head = tile_spot().head * 4, my_slot = tile_spot().other;
  const int copy_row = t / kUnits, copy_d = t % kUnits * 4;
  const float* query = queries + copy_row * kTileWidth + copy_d;
  const auto fetch = [&](int chain) {
    constexpr int kRows = kGroups * kTileSide / kStepRows;
    const float* from[kRows];  // all asked for before the first is needed
#pragma unroll
    for (int j = 0; j < kRows; ++j) from[j] = shared.from[copy_row + j * kStepRows];
#pragma unroll
    for (int j = 0; j < kTileHeads / kStepRows; ++j)
      copy16(&shared.query[copy_row + j * kStepRows][copy_d], query + j * kStepRows * kTileWidth);
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      copy16(&shared.row[chain % 2][copy_row + j * kStepRows][copy_d], from[j] + chain * kChain + copy_d);
    end_copy_group();
    query += kChain;
  };
  float total[kGroups][kTileEach];
#pragma unroll
  for (int e = 0; e < kGroups; ++e)
#pragma unroll
    for (int h = 0; h < kTileEach; ++h) total[e][h] = -0.0f;  // to which anything can be added, and stays what it is
  fetch(0);
#pragma unroll 1
  for (int chain = 0; chain < kTileWidth / kChain; ++chain) {
    wait_for_copies<0>();
    block_barrier();
    turn_query(shared);
    block_barrier();
    if (chain + 1 < kTileWidth / kChain) fetch(chain + 1);
    float sum[kGroups][kTileEach] = {};
    add_products<kGroups, kTileSide * kTilePitch, kTilePitch, kHalf>(sum, &shared.row[chain % 2][my_slot][0],
                                                                     &shared.turned[0][my_head], kChain);
#pragma unroll
    for (int e = 0; e < kGroups; ++e)
#pragma unroll
      for (int h = 0; h < kTileEach; ++h) total[e][h] = total[e][h] + sum[e][h];
  }
#pragma unroll
  for (int e = 0; e < kGroups; ++e) {
    if (my_slot + e * kTileSide >= share.used) break;
    float* const head_0 = to + share.slot_of(my_slot + e * kTileSide);
#pragma unroll
    for (int h = 0; h < kTileEach; ++h)
      head_0[(my_head + h % 4 + h / 4 * kHalf) * static_cast<std::int64_t>(a.slots)] = total[e][h] * a.scale;
  }
}

/// Grid: shares of the slots, groups of heads, queries.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kTileThreads, 2) score_tile_kernel(LOCKSTEP_PARAMETER TileCall a) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Floats4, score_tile_shared);
  auto& shared = *reinterpret_cast<ScoreTileShared*>(score_tile_shared);
  const int wave_row = block_z(), i = a.first_row + wave_row, first_head = block_y() * kTileHeads, t = thread_index();
  const Query q = query_of(a, i);
  const Share share(a, q, block_x());
  if (share.used <= 0) return;
  if (t < kScoreSlots) {
    const int slot = share.slot_of(t < share.used ? t : share.used - 1);
    shared.from[t] = row_of(a, q, slot, index_of(a, i, slot));
  }
  block_barrier();
  const float* queries = a.queries.data + i * a.queries.stride + static_cast<std::int64_t>(first_head) * kTileWidth;
  float* to = a.scores + (static_cast<std::int64_t>(wave_row) * a.heads + first_head) * a.slots;
  switch ((share.used + kTileSide - 1) / kTileSide) {
    case 1:
      return score_tile<1>(shared, a, share, queries, to);
    case 2:
      return score_tile<2>(shared, a, share, queries, to);
    case 3:
      return score_tile<3>(shared, a, share, queries, to);
    case 4:
      return score_tile<4>(shared, a, share, queries, to);
    case 5:
      return score_tile<5>(shared, a, share, queries, to);
    case 6:
      return score_tile<6>(shared, a, share, queries, to);
    case 7:
      return score_tile<7>(shared, a, share, queries, to);
    default:
      return score_tile<8>(shared, a, share, queries, to);
  }
}

struct SumTileShared {
  struct {
    float weight[kTileHeads][kTilePitch];
    float row[kChain + 1][kSumDims];  // the last one is read, for nothing
  } stage[2];
  const float* from[2][kChain];
};

/// Chains of a query that have rows, numbered without gaps: the window's, then the compressed rows'.
struct Chains {
  int in_window, all;
  LOCKSTEP_DEVICE Chains(const Query& q)
      : in_window((q.in_window + kChain - 1) / kChain), all(in_window + (q.compressed + kChain - 1) / kChain) {}
  LOCKSTEP_DEVICE int first_slot(const TileCall& a, int n) const {
    return n < in_window ? n * kChain : a.window_slots + (n - in_window) * kChain;
  }
};

/// Sums over rows, for 64 heads and 128 channels: channels 4 * other on and 64 further. Grid: groups of channels of
/// groups of heads, queries.
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kTileThreads, 2) sum_tile_kernel(LOCKSTEP_PARAMETER TileCall a) {
  follow_launch();
  LOCKSTEP_DYNAMIC_SHARED(Floats4, sum_tile_shared);
  auto& shared = *reinterpret_cast<SumTileShared*>(sum_tile_shared);
  constexpr int kHalf = kSumDims / 2, kDimGroups = kTileWidth / kSumDims;
  const int first_head = block_x() / kDimGroups * kTileHeads, first_dim = block_x() % kDimGroups * kSumDims;
  const int wave_row = block_y(), i = a.first_row + wave_row, t = thread_index();
  const int my_head = tile_spot().head, my_dim = tile_spot().other * 4;
  const Query q = query_of(a, i);
  const Chains chains(q);
  const auto used_of = [&](int n) {
    const int used = used_from(a, q, chains.first_slot(a, n));
    return used < kChain ? used : kChain;
  };
  // Where a chain's rows are is known a chain before they are copied, and which rows they are another one before.
  int slot = 0, index = 0;
  const auto ask_for = [&](int n) {
    if (t >= kChain || n >= chains.all) return;
    const int used = used_of(n);
    slot = chains.first_slot(a, n) + (t < used ? t : used - 1);
    index = index_of(a, i, slot);
  };
  const auto find = [&](int n) {
    if (t < kChain && n < chains.all) shared.from[n % 2][t] = row_of(a, q, slot, index);
  };
  constexpr int kWeightStep = kTileThreads / kUnits, kRowUnits = kSumDims / 4, kRowStep = kTileThreads / kRowUnits;
  const float* weights =
      a.scores + (static_cast<std::int64_t>(wave_row) * a.heads + first_head + t / kUnits) * a.slots + t % kUnits * 4;
  const std::int64_t weight_step = static_cast<std::int64_t>(kWeightStep) * a.slots;
  const auto fetch = [&](int n) {
    auto& stage = shared.stage[n % 2];
    const float* weight = weights + chains.first_slot(a, n);
    constexpr int kRows = kChain / kRowStep;
    const float* from[kRows];  // all asked for before the first is needed
#pragma unroll
    for (int j = 0; j < kRows; ++j) from[j] = shared.from[n % 2][t / kRowUnits + j * kRowStep];
#pragma unroll
    for (int j = 0; j < kTileHeads / kWeightStep; ++j, weight += weight_step)
      copy16(&stage.weight[t / kUnits + j * kWeightStep][t % kUnits * 4], weight);
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      copy16(&stage.row[t / kRowUnits + j * kRowStep][t % kRowUnits * 4], from[j] + first_dim + t % kRowUnits * 4);
    end_copy_group();
  };
  float total[kTileEach][kTileEach];
#pragma unroll
  for (int h = 0; h < kTileEach; ++h)
#pragma unroll
    for (int e = 0; e < kTileEach; ++e) total[h][e] = -0.0f;
  ask_for(0);
  find(0);
  ask_for(1);
  find(1);
  ask_for(2);
  block_barrier();
  fetch(0);
#pragma unroll 1
  for (int n = 0; n < chains.all; ++n) {
    wait_for_copies<0>();
    block_barrier();
    if (n + 1 < chains.all) fetch(n + 1);
    find(n + 2);
    ask_for(n + 3);
    const auto& stage = shared.stage[n % 2];
    const int used = used_of(n), whole = used / 4 * 4;
    float sum[kTileEach][kTileEach] = {};
    add_products<kTileEach, kHeadStep * kTilePitch, kSumDims, kHalf>(sum, &stage.weight[my_head][0],
                                                                     &stage.row[0][my_dim], whole);
#pragma unroll 1
    for (int s = whole; s < used; ++s)
#pragma unroll
      for (int h = 0; h < kTileEach; ++h) {
        const float w = stage.weight[my_head + h * kHeadStep][s];
#pragma unroll
        for (int e = 0; e < kTileEach; ++e)
          sum[h][e] = fma_f32(w, stage.row[s][my_dim + e % 4 + e / 4 * kHalf], sum[h][e]);
      }
#pragma unroll
    for (int h = 0; h < kTileEach; ++h)
#pragma unroll
      for (int e = 0; e < kTileEach; ++e) total[h][e] = total[h][e] + sum[h][e];
  }
#pragma unroll
  for (int h = 0; h < kTileEach; ++h) {
    const int head = first_head + my_head + h * kHeadStep;
    const float inverse = a.inverse[static_cast<std::int64_t>(wave_row) * a.heads + head];
    float* to = a.out.data + i * a.out.stride + static_cast<std::int64_t>(head) * kTileWidth + first_dim + my_dim;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Floats4 values;
#pragma unroll
      for (int e = 0; e < 4; ++e) values.value[e] = total[h][4 * half + e] * inverse;
      *reinterpret_cast<Floats4*>(to + half * kHalf) = values;
    }
  }
}

}  // namespace

bool suits_attend_tile(const Runtime& runtime, int rows) {
  return 3 * rows >= runtime.multiprocessors() && sizeof(ScoreTileShared) <= runtime.most_shared_bytes() &&
         sizeof(SumTileShared) <= runtime.most_shared_bytes();
}

void attend_tile(Runtime& runtime, const Attention& attention, const AttendCall& call, const PackedRows& layout,
                 int wave_rows, float* rows, float* scores, float* inverse) {
  const TileCall a = {attention, rows, sequence_rows_of(call), scores, inverse};
  const auto n = static_cast<unsigned>(wave_rows), head_groups = static_cast<unsigned>(a.heads / kTileHeads);
  launch(runtime, unpack_rows_kernel,
         {blocks_for(a.sequence_rows, kUnpackThreads / kWarp), static_cast<unsigned>(call.sequences)}, kUnpackThreads,
         0, a, rows, layout);
  launch(runtime, score_tile_kernel, {blocks_for(a.slots, kScoreSlots), head_groups, n}, kTileThreads,
         sizeof(ScoreTileShared), a);
  weigh_scores(runtime, attention, wave_rows, scores, inverse);
  launch(runtime, sum_tile_kernel, {head_groups * (kTileWidth / kSumDims), n}, kTileThreads, sizeof(SumTileShared), a);
}

void prepare_attend_tile(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&score_tile_kernel), sizeof(ScoreTileShared));
  runtime.allow_shared(reinterpret_cast<const void*>(&sum_tile_kernel), sizeof(SumTileShared));
}

#else

bool suits_attend_tile(const Runtime&, int) { return false; }
void attend_tile(Runtime&, const Attention&, const AttendCall&, const PackedRows&, int, float*, float*, float*) {
  LOCKSTEP_CHECK(!"in this build");
}
void prepare_attend_tile(Runtime&) {}

#endif

}  // namespace lockstep::gpu
