// A few tokens an expert by IQ2_XXS and Q2_K weights on mma.m16n8k32: an expert's weights are read and decoded once for
// up to eight of its slots.
//
// Fragments as in thin_matmul.cu: sixteen rows, 32 values, eight slots; a warp has one column of the law
// (numerics/order.h), and eight warps meet in shared memory. Rows come by copies that nobody waits for, whole, since
// neighbouring columns share what memory gives at a time, and a thread decodes what it holds of the fragments: eight
// values of two rows. Of Q2_K a second product, of the minimum levels, makes the minima. The slots are sorted by expert
// first; a thread block takes a piece of all steps, each 32 or 64 rows of eight slots of one expert, so that it changes
// slots rarely and fills its tables once.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/int8_mma.h"
#include "gpu/planes.h"
#include "gpu/thin_experts.h"
#include "numerics/order.h"

#if defined(LOCKSTEP_HAS_MMA)
#include "gpu/gated_mma.h"
#endif

namespace lockstep::gpu {
namespace {

constexpr int kThinSlots = 8;

}  // namespace

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kMostThinParts = 2;

struct ThinExperts {
  Matrix w[kMostThinParts];
  Rows out[kMostThinParts];
  Rounded x;
  int x_share = 1, parts = 1, experts = 0;
  ExpertSort sort;
};

constexpr int kTileRows = 16, kGroups = 2, kThreads = kGroups * kColumns * kWarp, kRing = 3, kLaneBlocks = 8;

/// What a format has in shared memory for decoding, and a thread's part of a block of two rows: the fragment, and what
/// makes a term of a dot.
template <DType T>
struct ThinFormat;

template <>
struct ThinFormat<DType::iq2_xxs> {
  static constexpr int kWidth = 4096;
  static constexpr int kXPad = 32;  // bytes between rows of the activations, so that threads miss one another's banks
  using Lookup = GatedLookup;
  LOCKSTEP_DEVICE static void fill_lookup(Lookup& to, const Tables& tables) { fill<kThreads>(to, tables); }
  struct Block {
    std::uint32_t a[4];
    float scale[2];
  };
  const std::uint8_t* table;
  std::uint32_t copy, levels = 0, negative_levels = 0, choice;
  int turn;
  LOCKSTEP_DEVICE ThinFormat(const Lookup& lookup, const Tables& tables, int quad)
      : table(reinterpret_cast<const std::uint8_t*>(&lookup)),
        copy(static_cast<std::uint32_t>(lane_index() * 4)),
        choice(0x5504u | static_cast<std::uint32_t>(quad) << 4),
        turn((7 * quad + 24) % 32) {
    for (int i = 0; i < 3; ++i) {
      const int level = tables.level_iq2[i];
      levels |= static_cast<std::uint32_t>(level) << (8 * i);
      negative_levels |= static_cast<std::uint32_t>(-level & 255) << (8 * i);
    }
  }
  LOCKSTEP_DEVICE std::uint32_t word_at(std::uint32_t at) const {
    return *reinterpret_cast<const std::uint32_t*>(table + at);
  }
  /// Rows `row` and `row` + far bytes; `block` of the row.
  LOCKSTEP_DEVICE Block decode(const std::uint8_t* row, int far, int block, int) const {
    static_assert(sizeof(GatedLookup::word[0]) == 256 && sizeof(GatedLookup::word[0][0]) == 128);
    Block out;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto part = read_as<Words2>(row + r * far + block * 8);
      const std::uint32_t signs = part.word[1] >> turn | part.word[1] << (32 - turn);  // this thread's at bit 8
      const std::uint32_t nibbles =
          word_at(choose_bytes(part.word[0], copy, choice)) | word_at((signs & 127u << 8) | copy | 128u);
      out.a[r] = choose_bytes(levels, negative_levels, nibbles);
      out.a[2 + r] = choose_bytes(levels, negative_levels, nibbles >> 16);
      out.scale[r] = gated_scale(part.word[1], read_as<std::uint16_t>(row + r * far + kWidth / 4 + block / 8 * 2));
    }
    return out;
  }
  /// This thread's part of a block of activations.
  LOCKSTEP_DEVICE static Words2 part_of(const std::uint8_t* codes, int quad) {
    return read_as<Words2>(codes + quad * 8);
  }
  LOCKSTEP_DEVICE static void terms(float (&term)[4], const Block& block, const Words2& x) {
    int dot[4] = {0, 0, 0, 0};
    add_multiply32(dot, block.a, x.word[0], x.word[1]);
#pragma unroll
    for (int e = 0; e < 4; ++e) term[e] = static_cast<float>(dot[e]) * block.scale[e / 2];
  }
};

template <>
struct ThinFormat<DType::q2_k> {
  static constexpr int kWidth = 2048, kBlocks = kWidth / kBlock;
  static constexpr int kXPad = 16;
  struct Lookup {};
  LOCKSTEP_DEVICE static void fill_lookup(Lookup&, const Tables&) {}
  struct Block {
    std::uint32_t a[4], levels[4];
    float scale[2], min_scale[2];
  };
  LOCKSTEP_DEVICE ThinFormat(const Lookup&, const Tables&, int) {}
  LOCKSTEP_DEVICE Block decode(const std::uint8_t* row, int far, int block, int quad) const {
    Block out;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::uint8_t* from = row + r * far;
      const auto words = read_as<Words2>(from + block * 8);
      const std::uint32_t nibbles = read_as<std::uint16_t>(from + kBlocks * 8 + block * 2);
      const auto scales = read_as<std::uint32_t>(from + kBlocks * 10 + block / 8 * 4);
      out.a[r] = (words.word[0] >> (2 * quad) & 0x03030303u) * (nibbles & 15u);
      out.a[2 + r] = (words.word[1] >> (2 * quad) & 0x03030303u) * (nibbles >> 8 & 15u);
      out.levels[r] = (nibbles >> 4 & 15u) * 0x01010101u;
      out.levels[2 + r] = (nibbles >> 12) * 0x01010101u;
      out.scale[r] = widen_f16(scales & 0xffffu);
      out.min_scale[r] = widen_f16(scales >> 16);
    }
    return out;
  }
  LOCKSTEP_DEVICE static Words2 part_of(const std::uint8_t* codes, int quad) {
    return {{read_as<std::uint32_t>(codes + quad * 4), read_as<std::uint32_t>(codes + 16 + quad * 4)}};
  }
  LOCKSTEP_DEVICE static void terms(float (&term)[4], const Block& block, const Words2& x) {
    int dot[4] = {0, 0, 0, 0}, min[4] = {0, 0, 0, 0};
    add_multiply32(dot, block.a, x.word[0], x.word[1]);
    add_multiply32(min, block.levels, x.word[0], x.word[1]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      term[e] =
          fma_f32(-static_cast<float>(min[e]), block.min_scale[e / 2], static_cast<float>(dot[e]) * block.scale[e / 2]);
  }
};

/// A step: kTiles * kGroups * 16 rows, sixteen blocks of a warp.
template <DType T>
struct ThinStep {
  static constexpr int width = ThinFormat<T>::kWidth, blocks = width / kBlock, lanes = block_lanes_of(width);
  static constexpr int column_lanes = lanes / kColumns, tiles = 2 / column_lanes, rows = kTileRows * kGroups * tiles;
  static constexpr int row_bytes = static_cast<int>(plane_row_bytes(T, width)), row_pitch = row_bytes + 16;
  static constexpr int x_pitch = width + ThinFormat<T>::kXPad, scale_pitch = kThinSlots + 2, sum_pitch = rows + 4;
  static_assert(blocks == lanes * kLaneBlocks && column_lanes <= 2);
  struct Shared {
    typename ThinFormat<T>::Lookup lookup;
    alignas(16) std::uint8_t ring[kRing][rows][row_pitch];
    alignas(16) std::uint8_t codes[kThinSlots][x_pitch];
    float scales[blocks][scale_pitch];
    float columns[2][kColumns][kThinSlots][sum_pitch];
    int slots[2][kThinSlots];  // of the slots now and of those before
  };
};

struct alignas(8) FloatPair {
  float value[2];
};

/// Where a step is: rows of a part by the slots of a tile.
struct ThinAt {
  int tile = -1, part = 0, row = 0;
};

template <DType T>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1)
    thin_expert_kernel(LOCKSTEP_PARAMETER ThinExperts call, int thread_blocks) {
  using S = ThinStep<T>;
  LOCKSTEP_DYNAMIC_SHARED(SharedBytes, thin_expert_shared);
  auto& shared = *reinterpret_cast<typename S::Shared*>(thin_expert_shared);
  const Tables& tables = *call.w[0].tables;
  ThinFormat<T>::fill_lookup(shared.lookup, tables);
  follow_launch();
  const int t = thread_index(), warp = t / kWarp, column = warp % kColumns, half = warp / kColumns;
  const int group = lane_index() / 4, quad = lane_index() % 4;
  const ThinFormat<T> format(shared.lookup, tables, quad);
  const int rows = call.w[0].rows, part_steps = (rows + S::rows - 1) / S::rows, tile_steps = part_steps * call.parts;
  const int all_steps = call.sort.first_tile[call.experts] * tile_steps;
  const int share = (all_steps + thread_blocks - 1) / thread_blocks, begin = block_x() * share;
  const int steps = min(share, all_steps - begin);
  const auto at_step = [&](int step) {
    const int in_tile = (begin + step) % tile_steps;
    return ThinAt{(begin + step) / tile_steps, in_tile / part_steps, in_tile % part_steps * S::rows};
  };
  int fetched_tile = -1, fetched_expert = 0;
  const auto fetch = [&](int step) {
    if (step < steps) {
      const ThinAt at = at_step(step);
      if (at.tile != fetched_tile) {
        fetched_tile = at.tile;
        fetched_expert = call.sort.tile_expert[at.tile];
      }
      constexpr int kUnits = S::row_bytes / 16;
      const Matrix& w = call.w[at.part];
      const std::uint8_t* plane = w.data + static_cast<std::int64_t>(fetched_expert) * rows * S::row_bytes;
#pragma unroll 2
      for (int i = t; i < S::rows * kUnits; i += kThreads) {
        const int row = i / kUnits, unit = i % kUnits;
        copy16_once(shared.ring[step % kRing][row] + unit * 16,
                    plane + static_cast<std::int64_t>(min(at.row + row, rows - 1)) * S::row_bytes + unit * 16);
      }
    }
    end_copy_group();
  };
  int held_tile = -1, parity = 0, count = 0;
  /// The slots of a tile and their activations.
  const auto hold = [&](int tile) {
    held_tile = tile;
    parity ^= 1;
    const int expert = call.sort.tile_expert[tile];
    const int first = call.sort.first_slot[expert] + (tile - call.sort.first_tile[expert]) * kThinSlots;
    count = min(kThinSlots, call.sort.first_slot[expert + 1] - first);
    if (t < count) shared.slots[parity][t] = call.sort.order[first + t];
    const auto x_row = [&](int slot) { return call.sort.order[first + slot] / call.x_share * call.x.stride; };
    for (int i = t; i < count * (S::width / 16); i += kThreads) {
      const int slot = i / (S::width / 16), unit = i % (S::width / 16);
      copy16(shared.codes[slot] + unit * 16, call.x.codes + x_row(slot) + unit * 16);
    }
    for (int i = t; i < count * S::blocks; i += kThreads) {
      const int slot = i / S::blocks, block = i % S::blocks;
      copy4(&shared.scales[block][slot], call.x.scales + x_row(slot) / kBlock + block);
    }
    end_copy_group();
    wait_for_copies<0>();
    block_barrier();
  };
  const auto compute = [&](int step) {
    float sum[4];
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {  // two lanes of the column, or two tiles
      constexpr bool kHasTwo = S::column_lanes == 2;
      const int first_row = ((kHasTwo ? 0 : part) * kGroups + half) * kTileRows + group;
      const int first_block = column + (kHasTwo ? part * kColumns : 0);
      const std::uint8_t* const row = shared.ring[step % kRing][first_row];
      const std::uint8_t* const codes = shared.codes[group] + first_block * kBlock;
      const float* const scales = &shared.scales[first_block][quad * 2];
      float lane[4] = {};
#pragma unroll
      for (int i = 0; i < kLaneBlocks; ++i) {
        const int block = i * S::lanes;
        const auto decoded = format.decode(row, kTileRows / 2 * S::row_pitch, first_block + block, quad);
        const auto x_scale = *reinterpret_cast<const FloatPair*>(scales + block * S::scale_pitch);
        float term[4];
        ThinFormat<T>::terms(term, decoded, ThinFormat<T>::part_of(codes + block * kBlock, quad));
#pragma unroll
        for (int e = 0; e < 4; ++e) lane[e] = fma_f32(term[e], x_scale.value[e % 2], lane[e]);
      }
      float* const to = &shared.columns[step % 2][column][quad * 2][first_row];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum[e] = kHasTwo && part > 0 ? sum[e] + lane[e] : lane[e];
        if (!kHasTwo || part > 0) to[e % 2 * S::sum_pitch + e / 2 * (kTileRows / 2)] = sum[e];
      }
    }
  };
  const auto write = [&](int step, const ThinAt& at, int slots, int slot_parity) {
    for (int i = t; i < S::rows * slots; i += kThreads) {
      const int row = i % S::rows, slot = i / S::rows;
      if (at.row + row >= rows) continue;
      float total = shared.columns[step % 2][0][slot][row];
#pragma unroll
      for (int c = 1; c < kColumns; ++c) total = total + shared.columns[step % 2][c][slot][row];
      const Rows& out = call.out[at.part];
      out.data[shared.slots[slot_parity][slot] * out.stride + at.row + row] = total;
    }
  };

#pragma unroll 1
  for (int step = 0; step < kRing - 1; ++step) fetch(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kRing - 2>();
    block_barrier();
    if (step > 0) write(step - 1, at_step(step - 1), count, parity);
    fetch(step + kRing - 1);
    const int tile = (begin + step) / tile_steps;
    if (tile != held_tile) hold(tile);
    compute(step);
  }
  block_barrier();
  if (steps > 0) write(steps - 1, at_step(steps - 1), count, parity);
}

template <DType T>
void start(Runtime& runtime, const ThinExperts& call, int slots) {
  using S = ThinStep<T>;
  // No more than there are steps, if every slot has an expert of its own.
  const std::int64_t most = static_cast<std::int64_t>(slots) * call.parts * blocks_for(call.w[0].rows, S::rows);
  const int blocks = most < runtime.multiprocessors() ? static_cast<int>(most) : runtime.multiprocessors();
  launch(runtime, thin_expert_kernel<T>, {static_cast<unsigned>(blocks)}, kThreads, sizeof(typename S::Shared), call,
         blocks);
}

template <DType T>
bool takes(const Runtime& runtime, int width) {
  return width == ThinFormat<T>::kWidth && sizeof(typename ThinStep<T>::Shared) <= runtime.most_shared_bytes();
}

template <DType T>
void allow(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&thin_expert_kernel<T>), sizeof(typename ThinStep<T>::Shared));
}

}  // namespace

bool can_thin_experts(const Runtime& runtime, DType dtype, const Product* products, int count, int experts) {
  if (count > kMostThinParts || experts > kMostSortExperts) return false;
  for (int i = 0; i < count; ++i)
    if (products[i].expert == nullptr || products[i].w.rows != products[0].w.rows ||
        products[i].w.width != products[0].w.width)
      return false;
  if (dtype == DType::iq2_xxs) return takes<DType::iq2_xxs>(runtime, products[0].w.width);
  return dtype == DType::q2_k && takes<DType::q2_k>(runtime, products[0].w.width);
}

void multiply_thin_experts(Runtime& runtime, DType dtype, const Product* products, int count, int experts,
                           std::byte* room) {
  const int slots = products[0].out.rows;
  ThinExperts call;
  call.x = products[0].rounded;
  call.x_share = products[0].x_share;
  call.parts = count;
  call.experts = experts;
  for (int i = 0; i < count; ++i) {
    call.w[i] = products[i].w;
    call.out[i] = products[i].out;
  }
  call.sort = expert_sort_in(room, slots, experts);
  sort_by_expert(runtime, call.sort, products[0].expert, slots, experts, kThinSlots);
  if (dtype == DType::iq2_xxs)
    start<DType::iq2_xxs>(runtime, call, slots);
  else
    start<DType::q2_k>(runtime, call, slots);
}

void prepare_thin_experts(Runtime& runtime) {
  allow<DType::iq2_xxs>(runtime);
  allow<DType::q2_k>(runtime);
}

#else

bool can_thin_experts(const Runtime&, DType, const Product*, int, int) { return false; }
void multiply_thin_experts(Runtime&, DType, const Product*, int, int, std::byte*) {
  LOCKSTEP_CHECK(!"no kernel for this device");
}
void prepare_thin_experts(Runtime&) {}

#endif

std::size_t thin_expert_bytes(int slots, int experts) { return expert_sort_bytes(slots, experts, kThinSlots); }

}  // namespace lockstep::gpu
