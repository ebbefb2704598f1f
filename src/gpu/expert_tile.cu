// Many tokens by the experts' weights: a tile kernel on mma.m16n8k32, and one on WMMA for HIP, that decodes IQ2_XXS or
// Q2_K on the way.
//
// An expert has few tokens (48 of a step of 2048), so weights that lay unpacked in device memory would be written and
// read nearly for nothing. Here a warp has 32 rows and all tokens of the tile, up to 64, and a thread decodes exactly
// what it holds of the rows' fragments: eight values of four rows a block. So each weight is decoded once a tile, never
// lies in shared memory as int8, and only the activations go through ldmatrix. The order within a block is free, since
// its sum is an exact integer: for IQ2_XXS a thread's eight values are one grid point, and the activations' words are
// laid out to match.
//
// A grid point of IQ2_XXS lies in shared memory as eight nibbles, and so do the signs of eight values: together they
// choose four signed levels in one instruction, twice. Q2_K's minima are sums of levels times sums of codes, which are
// exact, so a second product makes them: a sum below 2^11 is handed over in three parts of int8.
//
// The row is walked in the law's order (numerics/order.h), one lane of eight blocks a stage. In the file's order two
// blocks side by side belong to neighbouring columns, and copies are of 16 bytes; so a pair of columns is in shared
// memory at a time, and what one lane has used up makes room for the next pair. Sums, scales and zeros: tile.cu.
//
// For HIP a warp has 16 rows, the right operand, whose thread has to hold whole blocks of one row. All sums are
// registers, as is what is to come of the rows: of a pair of columns the even blocks in one half of the warp, the odd
// ones in the other, which a shuffle hands to both. Shared memory has the tables and one stage of the activations.
//
// Work: 2 * 32 * 64 * 32 operations a warp and block, for 16 mma, 128 fma and about 75 instructions of decoding (Q2_K:
// 32 mma, 192 fma and 64 additions). Bytes of weights: the row, once a tile, from the L2 cache twice. What bounds it is
// not one thing: reads of registers (an fma three, an mma ten, of two a cycle), and waits.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/expert_tile.h"
#include "gpu/int8_mma.h"
#include "gpu/planes.h"
#include "numerics/order.h"

namespace lockstep::gpu {

namespace {

#if defined(LOCKSTEP_HAS_MMA)
constexpr int kRowTiles = 2, kBuffers = 2,
              kCopies = kWarp;  // copies of a table: no two threads meet in a bank
#else
constexpr int kRowTiles = 1, kBuffers = 1, kCopies = 4;
#endif
constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWarpRows = 16 * kRowTiles, kRows = kWarps * kWarpRows;
constexpr int kLaneBlocks = 8, kStageBytes = kLaneBlocks * kBlock;  // a stage is a lane
constexpr int kMostPairs = kTileTokens / 16, kOutputs = kRowTiles * kMostPairs * 8;

/// What belongs to tokens one by one lies so that a thread reads that of its four tokens of a pair of 8-token tiles at
/// once, or, on HIP, of its eight of 16: where that of `token` is.
#if defined(LOCKSTEP_HAS_MMA)
LOCKSTEP_DEVICE int spot_of(int token) { return token / 16 * 16 + token % 8 / 2 * 4 + token % 16 / 8 * 2 + token % 2; }
#else
LOCKSTEP_DEVICE int spot_of(int token) { return token / 16 * 16 + token % 2 * 8 + token % 16 / 2; }
#endif

/// Spots of a block's tokens; for mma with room, so that two at most of eight blocks' of a token are in one bank. A
/// multiple of 8: codes begin at multiples of 256 bytes, or the swizzle of a matrix's address would carry.
constexpr int kSpots = kTileTokens + 8 * (kBuffers - 1);
struct Tokens {
  std::uint8_t codes[kTileTokens * kStageBytes];
  float scales[kLaneBlocks][kSpots];
};
static_assert(sizeof(Tokens) % 256 == 0);

/// What a format keeps in shared memory beside the pair of columns, and a block's part of a thread: the fragment's four
/// words, of rows `group` and `group + 8`, and their scales.
template <DType T>
struct Expert;

template <>
struct Expert<DType::iq2_xxs> {
  static constexpr int kLanes = 16;
  static constexpr bool kHasMin = false;
  struct Shared {
#if defined(LOCKSTEP_HAS_MMA)
    std::uint32_t point[256][kCopies];  // a level a nibble: 0, 1, 2
    std::uint32_t signs[128][kCopies];  // 4 in the nibble of every negative value
    static_assert(sizeof(std::uint32_t[kCopies]) == 128);
    Floats4 total[kOutputs / 4][kThreads];  // of columns, a thread's own
#else
    Words2 point[256][kCopies];
    Words2 signs[128][kCopies];  // a byte of ones for every negative value
#endif
    std::uint16_t scale[kRows][16];
    Tokens tokens[kBuffers];
  };
  struct Scale {
    float scale;
  };
#if defined(LOCKSTEP_HAS_MMA)
  static constexpr std::uint32_t kLevels = 0x002b1908u, kNegatives = 0x00d5e7f8u;  // 8, 25, 43, by nibble
  LOCKSTEP_DEVICE static std::uint32_t nibbles_of(std::uint32_t levels) {
    const std::uint32_t bits = levels >> 4 & 0x03030303u, pairs = bits | bits >> 4;  // they differ in bits 4 and 5
    return (pairs & 0xffu) | (pairs >> 8 & 0xff00u);
  }
  LOCKSTEP_DEVICE static std::uint32_t turned_right(std::uint32_t word, int bits) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_r(word, word, static_cast<unsigned>(bits));
#else
    return word >> (bits & 31) | word << (-bits & 31);
#endif
  }
#endif
  LOCKSTEP_DEVICE static void fill(Shared& to, const Tables& tables, const std::uint8_t* plane, std::int64_t row_bytes,
                                   int first_row, int last_row) {
    const auto* points = reinterpret_cast<const Words2*>(tables.bytes_iq2_xxs);
#if defined(LOCKSTEP_HAS_MMA)
    for (int j = 0; j < kOutputs / 4; ++j) to.total[j][thread_index()] = {};
    for (int i = thread_index(); i < 256 * kCopies / 4; i += kThreads) {
      const Words2 point = points[i / (kCopies / 4)];
      const std::uint32_t word = nibbles_of(point.word[0]) | nibbles_of(point.word[1]) << 16;
      reinterpret_cast<Words4*>(to.point)[i] = {{ word, word, word, word }};
    }
    for (int i = thread_index(); i < 128 * kCopies / 4; i += kThreads) {
      const std::uint32_t signs = even_signs(static_cast<std::uint32_t>(i / (kCopies / 4)));
      std::uint32_t word = 0;
      for (int k = 0; k < 8; ++k) word |= (signs >> k & 1u) << (4 * k + 2);
      reinterpret_cast<Words4*>(to.signs)[i] = {{ word, word, word, word }};
    }
#else
    for (int i = thread_index(); i < 256 * kCopies / 2; i += kThreads) {
      const Words2 point = points[i / (kCopies / 2)];
      reinterpret_cast<Words4*>(to.point)[i] = {{point.word[0], point.word[1], point.word[0], point.word[1]}};
    }
    for (int i = thread_index(); i < 128 * kCopies / 2; i += kThreads) {
      const std::uint32_t signs = even_signs(static_cast<std::uint32_t>(i / (kCopies / 2)));
      const std::uint32_t low = ((signs & 15u) * 0x00204081u & 0x01010101u) * 255u,
                          high = ((signs >> 4) * 0x00204081u & 0x01010101u) * 255u;
      reinterpret_cast<Words4*>(to.signs)[i] = {{low, high, low, high}};
    }
#endif
    for (int i = thread_index(); i < kRows * 2; i += kThreads) {
      const int row = first_row + i / 2 < last_row ? first_row + i / 2 : last_row;
      copy16(reinterpret_cast<Words4*>(to.scale) + i, plane + row * row_bytes + kLanes * kLaneBlocks * 8 + i % 2 * 16);
    }
  }
  /// `part` is the block as it lies in the file, `super` the index of its 256 values, `row` of the block's rows.
  LOCKSTEP_DEVICE static Scale decode(std::uint32_t& first, std::uint32_t& second, const Shared& shared, Words2 part,
                                      int row, int super, int, int quad) {
#if defined(LOCKSTEP_HAS_MMA)
    const auto copy = static_cast<std::uint32_t>(lane_index()) * 4;  // in a row of 128 bytes
    const std::uint32_t choice =
        read_as<std::uint32_t>(reinterpret_cast<const std::uint8_t*>(shared.point) +
                               ((turned_right(part.word[0], 8 * quad - 7) & (255u << 7)) | copy)) |
        read_as<std::uint32_t>(reinterpret_cast<const std::uint8_t*>(shared.signs) +
                               ((turned_right(part.word[1], 7 * quad - 7) & (127u << 7)) | copy));
    first = choose_bytes(kLevels, kNegatives, choice);
    second = choose_bytes(kLevels, kNegatives, choice >> 16);
#else
    const int copy = lane_index() % kCopies;
    const Words2 levels = shared.point[part.word[0] >> (8 * quad) & 255u][copy];
    const Words2 signs = shared.signs[part.word[1] >> (7 * quad) & 127u][copy];
    first = (levels.word[0] ^ signs.word[0]) + (signs.word[0] & 0x01010101u);  // no level is 0: nothing is carried
    second = (levels.word[1] ^ signs.word[1]) + (signs.word[1] & 0x01010101u);
#endif
    // An eighth of the odd factor: 0x49800000 is 2^20, whose unit in the last place is an eighth.
    const float factor = f32_of((part.word[1] >> 27 & 30u) | 0x49800001u) - 1048576.0f;
    return {widen_f16(shared.scale[row][super]) * factor};
  }
};

template <>
struct Expert<DType::q2_k> {
  static constexpr int kLanes = 8, kSupers = kLanes;
  static constexpr bool kHasMin = true;
#if defined(LOCKSTEP_HAS_MMA)
  /// Sums of the halves' codes, in parts (parts_of).
  struct MinTokens : Tokens {
    Words2 sums[kLaneBlocks][kSpots];
  };
#else
  struct MinTokens : Tokens {
    float half_sums[2][kLaneBlocks][kSpots];
  };
#endif
  struct Shared {
    std::uint8_t nibbles[kRows * kSupers * 16];  // units swizzled by the row
    std::uint32_t scales[kRows][kSupers];
    MinTokens tokens[kBuffers];
  };
#if defined(LOCKSTEP_HAS_MMA)
  struct Scale {
    float scale, min_scale;
    std::uint32_t levels;  // a fragment's word: of the half `quad` a level and its eightfold twice, of others zeros
  };
#else
  struct Scale {
    float scale, min_scale, level[2];
  };
#endif
  LOCKSTEP_DEVICE static void fill(Shared& to, const Tables&, const std::uint8_t* plane, std::int64_t row_bytes,
                                   int first_row, int last_row) {
    constexpr int kBlocks = kLanes * kLaneBlocks;
    for (int i = thread_index(); i < kRows * kSupers; i += kThreads) {
      const int r = i / kSupers, unit = i % kSupers, row = first_row + r < last_row ? first_row + r : last_row;
      copy16(to.nibbles + (r * kSupers + (unit ^ (r & 7))) * 16, plane + row * row_bytes + kBlocks * 8 + unit * 16);
    }
    for (int i = thread_index(); i < kRows * 2; i += kThreads) {
      const int row = first_row + i / 2 < last_row ? first_row + i / 2 : last_row;
      copy16(reinterpret_cast<Words4*>(to.scales) + i, plane + row * row_bytes + kBlocks * 10 + i % 2 * 16);
    }
  }
  LOCKSTEP_DEVICE static float level_of(std::uint32_t level) { return f32_of(kMagicBits | level) - kMagic; }
  LOCKSTEP_DEVICE static Scale decode(std::uint32_t& first, std::uint32_t& second, const Shared& shared, Words2 part,
                                      int row, int super, int column, int quad) {
    const std::uint32_t nibbles = *reinterpret_cast<const std::uint16_t*>(
        shared.nibbles + (row * kSupers + (super ^ (row & 7))) * 16 + 2 * column);
    const std::uint32_t scales = shared.scales[row][super];
    first = (part.word[0] >> (2 * quad) & 0x03030303u) * (nibbles & 15u);
    second = (part.word[1] >> (2 * quad) & 0x03030303u) * (nibbles >> 8 & 15u);
#if defined(LOCKSTEP_HAS_MMA)
    return {widen_f16(scales & 0xffffu), widen_f16(scales >> 16),
            (nibbles >> (quad % 2 * 8 + 4) & 15u) * (quad < 2 ? 0x00080801u : 0u)};
#else
    return {
        widen_f16(scales & 0xffffu), widen_f16(scales >> 16), {level_of(nibbles >> 4 & 15u), level_of(nibbles >> 12)}};
#endif
  }
};

/// What tensor cores multiply with a level, its eightfold and that again: the sum of a half's codes, below 2^11.
[[maybe_unused]] LOCKSTEP_DEVICE std::uint32_t parts_of(int sum) {
  const int eighths = sum >> 3, first = eighths / 2;
  return static_cast<std::uint32_t>((sum & 7) | (first & 255) << 8 | ((eighths - first) & 255) << 16);
}

/// A thread a half of a block. In pairs, for mma, half h of a block gets its words h, h + 2, h + 4, h + 6.
LOCKSTEP_KERNEL void walk_kernel(ExpertRows out, Rounded x, Walk walk, bool is_paired) {
  follow_launch();
  const int halves = x.width / 16;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const std::int64_t row = item / halves;
  const int place = static_cast<int>(item % halves) / 2, h = static_cast<int>(item % 2);
  if (row >= x.rows) return;
  const std::int64_t from = row * x.stride + walk.block_at(place) * kBlock;
  auto* const to = reinterpret_cast<Words4*>(out.codes + row * x.width + place * kBlock) + h;
  const auto* codes = reinterpret_cast<const Words4*>(x.codes + from);
#if defined(LOCKSTEP_HAS_MMA)
  if (is_paired) {
    const Words4 low = codes[0], high = codes[1];
    *to = h == 0 ? Words4{{low.word[0], low.word[2], high.word[0], high.word[2]}}
                 : Words4{{low.word[1], low.word[3], high.word[1], high.word[3]}};
  } else {
    *to = codes[h];
  }
#else
  *to = codes[h];
#endif
  const std::int64_t place_to =
      (place / kLaneBlocks * static_cast<std::int64_t>(x.rows) + row) * kLaneBlocks + place % kLaneBlocks;
  if (h == 0) out.scales[place_to] = x.scales[from / kBlock];
  if (is_paired) return;
  const int sum = x.half_sums[from / 16 + h];
#if defined(LOCKSTEP_HAS_MMA)
  out.sum_parts[2 * place_to + h] = parts_of(sum);
#else
  (h == 0 ? out.half_sums[0] : out.half_sums[1])[place_to] = static_cast<float>(sum);
#endif
}

#if !defined(LOCKSTEP_HAS_MMA)
/// What a block of a row adds to an output but for the token's scale. `start` is -kMagic times the scale.
template <class E>
LOCKSTEP_DEVICE float term_of(int dot, const typename E::Scale& scale, float start, [[maybe_unused]] float half_sum,
                              [[maybe_unused]] float second_half_sum) {
  float term = fma_f32(magic_float(dot), scale.scale, start);
  if constexpr (E::kHasMin) {
    const float min = fma_f32(second_half_sum, scale.level[1], half_sum * scale.level[0]);
    term = fma_f32(-min, scale.min_scale, term);
  }
  return term;
}
#endif

/// Which slots of which expert a block takes, and in how many tiles of 16; false if there are none.
LOCKSTEP_DEVICE bool find_slots(const ExpertCall& call, int (&slots)[kTileTokens], int& expert, int& count,
                                int& tiles) {
  const int index = block_y(), t = thread_index();
  if (index >= call.sort.first_tile[call.experts]) return false;
  expert = call.sort.tile_expert[index];
  const int begin = call.sort.first_slot[expert] + (index - call.sort.first_tile[expert]) * kTileTokens;
  count = min(kTileTokens, call.sort.first_slot[expert + 1] - begin);
  tiles = (count + 15) / 16;
  if (t < kTileTokens) slots[t] = call.sort.order[begin + min(t, count - 1)];
  return true;
}

LOCKSTEP_DEVICE void write_output(const ExpertCall& call, const int& slot, int row, float value) {
  call.out.data[slot * call.out.stride + row] = value;
  if (value == 0) {
    const int n = atomic_add(&call.zeros->count, 1);
    if (n < ZeroList::kMost) call.zeros->place[n] = {slot, row};
  }
}

#if defined(LOCKSTEP_HAS_MMA)

constexpr int kSlots = 16;  // of 16 bytes: what a row has in shared memory

template <DType T>
struct Shared {
  std::uint8_t raw[kWarps][kWarpRows * kSlots * 16];
  typename Expert<T>::Shared format;
  int slots[kTileTokens];
};

/// The sums of one stage: kPairs * 16 tokens by the warp's rows.
template <DType T, int kPairs>
LOCKSTEP_DEVICE void multiply_stage(float (&lane)[kOutputs], const Shared<T>& shared, int stage) {
  using E = Expert<T>;
  constexpr bool kHasTwo = E::kLanes > kColumns;  // lanes of a column
  const int warp = thread_index() / kWarp, lane_id = lane_index(), group = lane_id / 4, quad = lane_id % 4;
  const int column = kHasTwo ? stage / 2 : stage;
  const auto& tokens = shared.format.tokens[stage % 2];
  const std::uint8_t* raw = shared.raw[warp] + group * (kSlots * 16) + column % 2 * 8;
  const std::uint32_t b_from = shared_address(tokens.codes) + (lane_id % 8 + lane_id / 16 * 8) * kStageBytes +
                               ((lane_id / 8 % 2) ^ (lane_id % 8)) * 16;
#pragma unroll 2
  for (int i = 0; i < kLaneBlocks; ++i) {
    const int super = kHasTwo ? 2 * i + stage % 2 : i, slot = kHasTwo ? super : column / 2 % 2 * 8 + i;
    const int at = (slot ^ group) * 16;
    std::uint32_t a[kRowTiles][4];
    typename E::Scale scale[2 * kRowTiles];
    float start[2 * kRowTiles];
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      scale[r] = E::decode(a[r / 2][r % 2], a[r / 2][2 + r % 2], shared.format,
                           read_as<Words2>(raw + at + r * 8 * kSlots * 16), warp * kWarpRows + group + 8 * r, super,
                           column, quad);
      start[r] = -kMagic * scale[r].scale;
    }
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      std::uint32_t b[4];
      load_matrices(b, (b_from ^ (i * 32)) + p * 16 * kStageBytes);
      const Floats4 token_scale = *reinterpret_cast<const Floats4*>(&tokens.scales[i][p * 16 + quad * 4]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        [[maybe_unused]] std::uint32_t sums = 0;
        if constexpr (E::kHasMin) sums = tokens.sums[i][p * 16 + n * 8 + group].word[quad % 2];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          int dot[4];
          [[maybe_unused]] int least[4];
          multiply32(dot, a[m], b[2 * n], b[2 * n + 1]);
          if constexpr (E::kHasMin) multiply16(least, scale[2 * m].levels, scale[2 * m + 1].levels, sums);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int r = 2 * m + e / 2;
            float term = fma_f32(magic_float(dot[e]), scale[r].scale, start[r]);
            if constexpr (E::kHasMin) term = fma_f32(kMagic - magic_float(least[e]), scale[r].min_scale, term);
            float& sum = lane[((p * 2 + n) * kRowTiles + m) * 4 + e];
            sum = fma_f32(term, token_scale.value[2 * n + e % 2], sum);
          }
        }
      }
    }
  }
}

/// A stage of kPairs * 16 tokens. `sum` is of a column's first lane, or, if it has one, of columns, and begins with a
/// zero, as do the totals in shared memory, which only a zero can show.
template <DType T, int kPairs>
LOCKSTEP_DEVICE void add_stage(float (&lane)[kOutputs], float (&sum)[kOutputs], Shared<T>& shared, int stage) {
  multiply_stage<T, kPairs>(lane, shared, stage);
  if constexpr (Expert<T>::kLanes > kColumns) {
    if (stage % 2 == 0) {
#pragma unroll
      for (int j = 0; j < kPairs * 16; ++j) sum[j] = lane[j];
    } else {
#pragma unroll
      for (int j = 0; j < kPairs * 16; j += 4) {
        Floats4 total = shared.format.total[j / 4][thread_index()];
#pragma unroll
        for (int e = 0; e < 4; ++e) total.value[e] += sum[j + e] + lane[j + e];
        shared.format.total[j / 4][thread_index()] = total;
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPairs * 16; ++j) sum[j] += lane[j];
  }
#pragma unroll
  for (int j = 0; j < kPairs * 16; ++j) lane[j] = 0;
}

/// Grid: tiles of rows, tiles of an expert's slots.
template <DType T>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) expert_kernel(LOCKSTEP_PARAMETER ExpertCall call) {
  follow_launch();
  using E = Expert<T>;
  constexpr int kBlocks = E::kLanes * kLaneBlocks, kStages = E::kLanes;
  constexpr bool kHasTwo = E::kLanes > kColumns;
  LOCKSTEP_DYNAMIC_SHARED(SharedBytes, expert_shared);
  auto& shared = *reinterpret_cast<Shared<T>*>(expert_shared);
  const int t = thread_index(), warp = t / kWarp, lane_id = lane_index(), group = lane_id / 4, quad = lane_id % 4;
  const int first_row = block_x() * kRows, last_row = call.w.rows - 1;
  int expert, count, pairs;
  if (!find_slots(call, shared.slots, expert, count, pairs)) return;
  const std::uint8_t* plane = call.w.data + static_cast<std::int64_t>(expert) * call.w.rows * call.w.row_bytes;
  block_barrier();

  // What this thread copies of the tokens: a unit of 16 bytes of some, scales of one.
  constexpr int kUnitTokens = kThreads / 16;
  const int unit = t % 16;
  std::uint32_t code_from[kTileTokens / kUnitTokens];  // a step's rounded rows are below 4 GB
#pragma unroll
  for (int k = 0; k < kTileTokens / kUnitTokens; ++k)
    code_from[k] = static_cast<std::uint32_t>(
        static_cast<std::int64_t>(shared.slots[t / 16 + kUnitTokens * k] / call.x_share) * (kBlocks * kBlock) +
        unit * 16);
  const int scaled_block = t % kLaneBlocks;
  std::uint32_t scale_from[kTileTokens / (kThreads / kLaneBlocks)];
#pragma unroll
  for (int k = 0; k < kTileTokens / (kThreads / kLaneBlocks); ++k)
    scale_from[k] = static_cast<std::uint32_t>(
        shared.slots[t / kLaneBlocks + k * (kThreads / kLaneBlocks)] / call.x_share * kLaneBlocks + scaled_block);
  const auto fetch_tokens = [&](int stage) {
    auto& to = shared.format.tokens[stage % 2];
#pragma unroll
    for (int k = 0; k < kTileTokens / kUnitTokens; ++k) {
      const int token = t / 16 + kUnitTokens * k;
      if (token < pairs * 16)
        copy16(to.codes + token * kStageBytes + (unit ^ (token & 7)) * 16,
               call.x.codes + (code_from[k] + static_cast<std::uint32_t>(stage * kStageBytes)));
    }
#pragma unroll
    for (int k = 0; k < kTileTokens / (kThreads / kLaneBlocks); ++k) {
      const int token = t / kLaneBlocks + k * (kThreads / kLaneBlocks);
      if (token >= pairs * 16) continue;
      const std::uint32_t from = static_cast<std::uint32_t>(stage * call.x.rows * kLaneBlocks) + scale_from[k];
      copy4(&to.scales[scaled_block][spot_of(token)], call.x.scales + from);
      if constexpr (E::kHasMin) copy8(&to.sums[scaled_block][token], call.x.sum_parts + 2 * from);
    }
  };
  // Eight units of each of the warp's rows, of a pair of columns: with two lanes a column every second one.
  const int warp_row = first_row + warp * kWarpRows;
  const std::uint8_t* const warp_rows = plane + min(warp_row, last_row) * call.w.row_bytes;
  const auto row_bytes = static_cast<std::uint32_t>(call.w.row_bytes);
  const auto fetch_units = [&](int pair, int odd) {
    const int j = kHasTwo ? lane_id % 8 * 2 + odd : lane_id % 8, slot = kHasTwo ? j : pair % 2 * 8 + j;
    const std::uint8_t* const from = warp_rows + (4 * j + pair) * 16;
#pragma unroll
    for (int k = 0; k < kWarpRows * 8 / kWarp; ++k) {
      const int r = lane_id / 8 + 4 * k;
      copy16(shared.raw[warp] + r * (kSlots * 16) + (slot ^ (r & 7)) * 16,
             from + static_cast<std::uint32_t>(max(min(r, last_row - warp_row), 0)) * row_bytes);
    }
  };

  fetch_tokens(0);
  fetch_units(0, 0);
  if (kHasTwo) fetch_units(0, 1);
  E::fill(shared.format, *call.w.tables, plane, call.w.row_bytes, first_row, last_row);
  end_copy_group();
  float lane[kOutputs] = {}, sum[kOutputs] = {};
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) {
    wait_for_copies<0>();
    block_barrier();
    if (stage + 1 < kStages) fetch_tokens(stage + 1);
    if constexpr (kHasTwo) {  // stages of a pair: first column, even and odd units, second column, likewise
      if (stage % 4 == 3 && stage + 1 < kStages) fetch_units(stage / 4 + 1, 0);
      if (stage % 4 == 0 && stage > 0) fetch_units(stage / 4, 1);
    } else {
      if (stage % 2 == 0 && stage + 2 < kStages) fetch_units(stage / 2 + 1, 0);
    }
    end_copy_group();
    switch (pairs) {
      case 1:
        add_stage<T, 1>(lane, sum, shared, stage);
        break;
      case 2:
        add_stage<T, 2>(lane, sum, shared, stage);
        break;
      case 3:
        add_stage<T, 3>(lane, sum, shared, stage);
        break;
      default:
        add_stage<T, 4>(lane, sum, shared, stage);
        break;
    }
  }

#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    const int m = j / 4 % kRowTiles, row = first_row + warp * kWarpRows + m * 16 + j % 4 / 2 * 8 + group,
              token = j / 4 / kRowTiles * 8 + quad * 2 + j % 2;
    if (row > last_row || token >= count) continue;
    float value = sum[j];
    if constexpr (kHasTwo) value = shared.format.total[j / 4][t].value[j % 4];
    write_output(call, shared.slots[token], row, value);
  }
}

#else

template <DType T>
struct Shared {
  typename Expert<T>::Shared format;
  int slots[kTileTokens];
};

/// The weights of a block of a row, both units of 16, as they are in the right operand.
LOCKSTEP_DEVICE void keep_fragment(Words4 (&to)[2], DType dtype, int quad, std::uint32_t first, std::uint32_t second) {
  if (dtype == DType::iq2_xxs) {  // eight values side by side
    to[quad / 2].word[quad % 2 * 2] = first;
    to[quad / 2].word[quad % 2 * 2 + 1] = second;
  } else {
    to[0].word[quad] = first;
    to[1].word[quad] = second;
  }
}

/// Grid: tiles of rows, tiles of an expert's slots.
template <DType T>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1) expert_kernel(LOCKSTEP_PARAMETER ExpertCall call) {
  follow_launch();
  using E = Expert<T>;
  constexpr int kStages = E::kLanes, kBlocks = kStages * kLaneBlocks, kColumnLanes = kStages / kColumns,
                kPairStages = 2 * kColumnLanes, kValues = E::kHasMin ? 3 : 1, kMine = kLaneBlocks / 2;
  LOCKSTEP_DYNAMIC_SHARED(Words4, expert_shared);
  auto& shared = *reinterpret_cast<Shared<T>*>(expert_shared);
  auto& tokens = shared.format.tokens[0];
  const int t = thread_index(), warp = t / kWarp, half = lane_index() / 16, mine = lane_index() % 16;
  const int first_row = block_x() * kRows, last_row = call.w.rows - 1;
  int expert, count, tiles;
  if (!find_slots(call, shared.slots, expert, count, tiles)) return;
  const std::uint8_t* plane = call.w.data + static_cast<std::int64_t>(expert) * call.w.rows * call.w.row_bytes;
  block_barrier();

  // What this thread brings of the tokens: a unit of 16 bytes of four, two blocks' scales of one.
  constexpr int kUnitTokens = kThreads / 16, kTokenCopies = kTileTokens / kUnitTokens;
  const int unit = t % 16, scaled = t / 4, scaled_block = t % 4 * 2;
  std::uint32_t code_from[kTokenCopies];  // a step's rounded rows are below 4 GB
#pragma unroll
  for (int k = 0; k < kTokenCopies; ++k)
    code_from[k] = static_cast<std::uint32_t>(
        static_cast<std::int64_t>(shared.slots[t / 16 + kUnitTokens * k] / call.x_share) * (kBlocks * kBlock) +
        unit * 16);
  const std::int64_t scale_row = shared.slots[scaled] / call.x_share;
  Copies<kTokenCopies> copies;
  std::uint32_t values[kValues][2];
  const auto fetch_values = [&](int v, const float* from) {
    const auto& words = *reinterpret_cast<const Words2*>(from);
    values[v][0] = words.word[0], values[v][1] = words.word[1];
  };
  const auto fetch_tokens = [&](int stage) {
#pragma unroll
    for (int k = 0; k < kTokenCopies; ++k) {
      const int token = t / 16 + kUnitTokens * k;
      copies.begin(k, tokens.codes + token * kStageBytes + (unit ^ (token & 7)) * 16,
                   call.x.codes + (code_from[k] + static_cast<std::uint32_t>(stage * kStageBytes)));
    }
    const std::int64_t from = (static_cast<std::int64_t>(stage) * call.x.rows + scale_row) * kLaneBlocks + scaled_block;
    fetch_values(0, call.x.scales + from);
    if constexpr (E::kHasMin) {
#pragma unroll
      for (int h = 0; h < 2; ++h) fetch_values(1 + h, call.x.half_sums[h] + from);
    }
  };
  const auto store_tokens = [&] {
    copies.wait();
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      tokens.scales[scaled_block + b][spot_of(scaled)] = f32_of(values[0][b]);
      if constexpr (E::kHasMin) {
#pragma unroll
        for (int h = 0; h < 2; ++h) tokens.half_sums[h][scaled_block + b][spot_of(scaled)] = f32_of(values[1 + h][b]);
      }
    }
  };
  // Units of a pair of columns, of the row that this thread has: lane by lane, every second one.
  const int in_block = warp * kWarpRows + mine;
  const std::uint8_t* const row_data = plane + min(first_row + in_block, last_row) * call.w.row_bytes;
  std::uint32_t raw[kColumnLanes][kMine][4];
  const auto fetch_rows = [&](int pair) {
#pragma unroll
    for (int q = 0; q < kColumnLanes; ++q)
#pragma unroll
      for (int k = 0; k < kMine; ++k) {
        const auto& words =
            *reinterpret_cast<const Words4*>(row_data + (4 * (kColumnLanes * (2 * k + half) + q) + pair) * 16);
#pragma unroll
        for (int w = 0; w < 4; ++w) raw[q][k][w] = words.word[w];
      }
  };

  fetch_tokens(0);
  fetch_rows(0);
  E::fill(shared.format, *call.w.tables, plane, call.w.row_bytes, first_row, last_row);
  float lane[kOutputs] = {}, sum[kOutputs] = {}, total[kOutputs] = {};  // of columns; `sum`: of a column with two lanes
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) {
    block_barrier();  // the last stage has been read
    store_tokens();
    block_barrier();
    if (stage + 1 < kStages) fetch_tokens(stage + 1);
    const int column = stage / kColumnLanes, q = stage % kColumnLanes;
    std::uint32_t parts[kMine][2];  // of this thread's blocks
#pragma unroll
    for (int k = 0; k < kMine; ++k)
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        // Values, since a choice between places would keep them all in memory.
        const std::uint32_t even[2] = {raw[0][k][w], raw[kColumnLanes - 1][k][w]},
                            odd[2] = {raw[0][k][2 + w], raw[kColumnLanes - 1][k][2 + w]};
        const std::uint32_t first = column % 2 == 0 ? even[0] : odd[0], second = column % 2 == 0 ? even[1] : odd[1];
        parts[k][w] = q == 0 ? first : second;
      }
    if (stage % kPairStages == kPairStages - 1 && stage + 1 < kStages) fetch_rows(stage / kPairStages + 1);
#pragma unroll 1
    for (int i = 0; i < kLaneBlocks; i += 2) {
      const std::uint32_t part[2] = {parts[0][0], parts[0][1]};
#pragma unroll
      for (int k = 0; k + 1 < kMine; ++k) parts[k][0] = parts[k + 1][0], parts[k][1] = parts[k + 1][1];
#pragma unroll 1
      for (int b = 0; b < 2; ++b) {
        const int block = i + b, super = kColumnLanes * block + q;
        const Words2 whole = {{static_cast<std::uint32_t>(shuffle(static_cast<int>(part[0]), mine + 16 * b)),
                               static_cast<std::uint32_t>(shuffle(static_cast<int>(part[1]), mine + 16 * b))}};
        Words4 weights[2];
        typename E::Scale scale;
#pragma unroll
        for (int quad = 0; quad < 4; ++quad) {
          std::uint32_t first, second;
          scale = E::decode(first, second, shared.format, whole, in_block, super, column, quad);
          keep_fragment(weights, T, quad, first, second);
        }
        const float start = -kMagic * scale.scale;
#pragma unroll
        for (int n = 0; n < kTileTokens / 16; ++n) {
          keep_order();
          if (n >= tiles) continue;
          const std::uint8_t* codes = tokens.codes + (n * 16 + mine) * kStageBytes;
          Dots dots = magic_dots();
#pragma unroll
          for (int h = 0; h < 2; ++h)
            dots = add_products(*reinterpret_cast<const Words4*>(codes + ((2 * block + h) ^ (mine & 7)) * 16),
                                weights[h], dots);
          const int spot = n * 16 + half * 8;
#pragma unroll
          for (int four = 0; four < 2; ++four) {
            const Floats4 token_scale = *reinterpret_cast<const Floats4*>(&tokens.scales[block][spot + 4 * four]);
            Floats4 half_sum[2] = {};
            if constexpr (E::kHasMin) {
#pragma unroll
              for (int h = 0; h < 2; ++h)
                half_sum[h] = *reinterpret_cast<const Floats4*>(&tokens.half_sums[h][block][spot + 4 * four]);
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float term =
                  term_of<E>(dots.value[4 * four + e], scale, start, half_sum[0].value[e], half_sum[1].value[e]);
              float& to = lane[n * 8 + 4 * four + e];
              to = fma_f32(term, token_scale.value[e], to);
            }
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      sum[j] = q == 0 ? lane[j] : sum[j] + lane[j];
      if (q == kColumnLanes - 1) total[j] = column == 0 ? sum[j] : total[j] + sum[j];
      lane[j] = 0;
    }
  }

  const int row = first_row + in_block;
#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    const int token = j / 8 * 16 + j % 8 * 2 + half;
    if (row <= last_row && token < count) write_output(call, shared.slots[token], row, total[j]);
  }
}

#endif

template <DType T>
void start(Runtime& runtime, const ExpertCall& call) {
  launch(runtime, expert_kernel<T>,
         {blocks_for(call.w.rows, kRows), static_cast<unsigned>(most_tiles(call.out.rows, call.experts))}, kThreads,
         sizeof(Shared<T>), call);
}

}  // namespace

bool can_tile_experts(const Runtime& runtime, DType dtype, int width) {
  if (dtype == DType::iq2_xxs)
    return width == Expert<DType::iq2_xxs>::kLanes * kLaneBlocks * kBlock &&
           sizeof(Shared<DType::iq2_xxs>) <= runtime.most_shared_bytes();
  return dtype == DType::q2_k && width == Expert<DType::q2_k>::kLanes * kLaneBlocks * kBlock &&
         sizeof(Shared<DType::q2_k>) <= runtime.most_shared_bytes();
}

std::size_t expert_rows_bytes(DType dtype, int rows, int width) {
  const std::size_t values = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  return (values + values / kBlock * sizeof(float) * (dtype == DType::q2_k ? 3 : 1) + 255) / 256 * 256;
}

ExpertRows walk_expert_rows(Runtime& runtime, std::byte* room, DType dtype, const Rounded& x) {
  const std::int64_t values = static_cast<std::int64_t>(x.rows) * x.width;
  ExpertRows out;
  out.codes = reinterpret_cast<std::int8_t*>(room);
  out.scales = reinterpret_cast<float*>(room + values);
  const bool is_paired = dtype == DType::iq2_xxs;
  for (int h = 0; h < 2 && dtype == DType::q2_k; ++h) out.half_sums[h] = out.scales + (h + 1) * (values / kBlock);
  if (dtype == DType::q2_k) out.sum_parts = reinterpret_cast<std::uint32_t*>(out.half_sums[0]);
  out.rows = x.rows;
  launch(runtime, walk_kernel, {blocks_for(values / 16, 256)}, 256, 0, out, x, walk_of(x.width), is_paired);
  return out;
}

void multiply_expert_tiles(Runtime& runtime, DType dtype, const ExpertCall& call) {
  if (dtype == DType::iq2_xxs) return start<DType::iq2_xxs>(runtime, call);
  LOCKSTEP_CHECK(dtype == DType::q2_k);
  start<DType::q2_k>(runtime, call);
}

void prepare_expert_tiles(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&expert_kernel<DType::iq2_xxs>), sizeof(Shared<DType::iq2_xxs>));
  runtime.allow_shared(reinterpret_cast<const void*>(&expert_kernel<DType::q2_k>), sizeof(Shared<DType::q2_k>));
}

}  // namespace lockstep::gpu
