// One token by IQ2_XXS or Q2_K weights: a matrix-vector kernel in which a thread is a lane of the law.
//
// These formats have few bytes and much to unpack, so a thread takes whole blocks, and what it looks up lies in shared
// memory so often that no two threads of a warp meet in a bank: a grid point sixteen times, eight signs thirty-two
// times. A thread block has rows for several rounds, so that this pays; the next row is on its way while one is added
// up, of Q2_K two of them, in shared memory where a device copies by itself. Only for rows of one chunk in which every
// lane has eight blocks; the kernel in matvec.h does for the others. Bytes: the row, once. Per 32 values of IQ2_XXS 28
// integer operations and 20 passes through shared memory a warp.
#pragma once

#include <type_traits>

#include "gpu/async_copy.h"
#include "gpu/matmul.h"
#include "gpu/planes.h"
#include "numerics/order.h"

namespace lockstep::gpu {

inline constexpr int kLaneThreads = 256, kLaneHold = 8;  // of a thread block; blocks of a lane
inline constexpr int kLaneBlocks = 3;                    // thread blocks of a multiprocessor

/// A single product whose rows the kernel takes: so many lanes of kLaneHold blocks.
constexpr bool is_lane_width(int width, int lanes) {
  return width == lanes * kLaneHold * kBlock && block_lanes_of(width) == lanes;
}

#if defined(LOCKSTEP_KERNEL)

/// Activations of a row, as threads read them: neighbouring lanes side by side.
template <int kLanes>
struct LaneInput {
  Words4 codes[kLaneHold][2][kLanes];
  float scales[kLaneHold][kLanes];
  std::uint32_t half_sums[kLaneHold][kLanes];  // pairs of int16
};

template <bool kIsShared, class T>
LOCKSTEP_DEVICE T read_row(const std::uint8_t* from) {
  if constexpr (kIsShared)
    return read_as<T>(from);
  else
    return read_weight<T>(from);
}

/// kLanes lanes of a format: what a thread keeps of a row, and its term of one block.
template <DType T, int kLanes>
struct LaneFormat;

template <int kLanes>
struct LaneFormat<DType::iq2_xxs, kLanes> {
  static constexpr int kPointCopies = 16, kSignCopies = 32;
  struct alignas(16) Lookup {
    Words2 point[256][kPointCopies];
    std::uint32_t signs[128][kSignCopies];  // byte j: the sign of value j in bit 7, of value j + 4 in bit 6
  };
  struct Row {
    Words2 part[kLaneHold];
    std::uint16_t scale[kLaneHold];
  };
  LOCKSTEP_DEVICE static void fill(Lookup& to, const Tables& tables) {
    const auto* points = reinterpret_cast<const Words2*>(tables.bytes_iq2_xxs);
#pragma unroll 8
    for (int i = thread_index(); i < 256 * kPointCopies / 2; i += kLaneThreads) {
      const Words2 point = points[i / (kPointCopies / 2)];
      reinterpret_cast<Words4*>(to.point)[i] = {{point.word[0], point.word[1], point.word[0], point.word[1]}};
    }
    for (int i = thread_index(); i < 128 * kSignCopies / 4; i += kLaneThreads) {
      const std::uint32_t signs = even_signs(static_cast<std::uint32_t>(i / (kSignCopies / 4)));
      const std::uint32_t bits =
          ((signs & 15u) * 0x10204080u & 0x80808080u) | ((signs >> 4) * 0x08102040u & 0x40404040u);
      reinterpret_cast<Words4*>(to.signs)[i] = {{bits, bits, bits, bits}};
    }
  }
  template <bool>
  LOCKSTEP_DEVICE static Row load(const std::uint8_t* row, int lane) {
    constexpr int kBlocks = kLanes * kLaneHold;
    Row out;
#pragma unroll
    for (int i = 0; i < kLaneHold; ++i) {
      out.part[i] = read_weight<Words2>(row + (lane + i * kLanes) * 8);
      out.scale[i] = read_weight<std::uint16_t>(row + kBlocks * 8 + (lane + i * kLanes) / 8 * 2);
    }
    return out;
  }
  /// No level is 0 or beyond 63, so with ~l = -l - 1 the dot is that of the flipped levels less that of the masks.
  LOCKSTEP_DEVICE static float term(const Row& row, int i, const LaneInput<kLanes>& x, int lane, const Lookup& lookup) {
    const int point_copy = lane_index() % kPointCopies, sign_copy = lane_index();
    int flipped = 0, masks = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Words4 codes = x.codes[i][h][lane];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int g = 2 * h + k;
        const Words2 levels = lookup.point[row.part[i].word[0] >> (8 * g) & 255u][point_copy];
        const std::uint32_t signs = lookup.signs[row.part[i].word[1] >> (7 * g) & 127u][sign_copy];
        const std::uint32_t low = sign_masks(signs), high = sign_masks(signs << 1);
        flipped = dot4(levels.word[0] ^ low, codes.word[2 * k], flipped);
        masks = dot4(low, codes.word[2 * k], masks);
        flipped = dot4(levels.word[1] ^ high, codes.word[2 * k + 1], flipped);
        masks = dot4(high, codes.word[2 * k + 1], masks);
      }
    }
    const int factor = 2 * static_cast<int>(row.part[i].word[1] >> 28) + 1;
    return static_cast<float>((flipped - masks) * factor) * (widen_f16(row.scale[i]) * 0.125f);
  }
};

template <int kLanes>
struct LaneFormat<DType::q2_k, kLanes> {
  struct Lookup {};
  struct Row {
    Words2 code[kLaneHold];
    std::uint16_t nibbles[kLaneHold];
    std::uint32_t scales[kLaneHold];
  };
  LOCKSTEP_DEVICE static void fill(Lookup&, const Tables&) {}
  template <bool kIsShared>
  LOCKSTEP_DEVICE static Row load(const std::uint8_t* row, int lane) {
    constexpr int kBlocks = kLanes * kLaneHold;
    Row out;
#pragma unroll
    for (int i = 0; i < kLaneHold; ++i) {
      const int block = lane + i * kLanes;
      out.code[i] = read_row<kIsShared, Words2>(row + block * 8);
      out.nibbles[i] = read_row<kIsShared, std::uint16_t>(row + kBlocks * 8 + block * 2);
      out.scales[i] = read_row<kIsShared, std::uint32_t>(row + kBlocks * 10 + block / 8 * 4);
    }
    return out;
  }
  LOCKSTEP_DEVICE static float term(const Row& row, int i, const LaneInput<kLanes>& x, int lane, const Lookup&) {
    int whole = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Words4 codes = x.codes[i][h][lane];
      int dot = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) dot = dot4(row.code[i].word[h] >> (2 * k) & 0x03030303u, codes.word[k], dot);
      whole += dot * (row.nibbles[i] >> (8 * h) & 15);
    }
    const std::uint32_t sums = x.half_sums[i][lane];
    const int min = (row.nibbles[i] >> 4 & 15) * static_cast<std::int16_t>(sums & 0xffffu) +
                    (row.nibbles[i] >> 12) * (static_cast<int>(sums) >> 16);
    const float term = static_cast<float>(whole) * widen_f16(row.scales[i] & 0xffffu);
    return fma_f32(-static_cast<float>(min), widen_f16(row.scales[i] >> 16), term);
  }
};

/// Sum of the lanes of a row over the threads that hold them; the same in all of them.
template <int kLanes>
LOCKSTEP_DEVICE float fold_threads(float sum) {
  const int first = lane_index() / kLanes * kLanes;
  if constexpr (kLanes > kColumns) sum = sum + shuffle_xor(sum, kColumns);  // the same sum on both sides
  float total = shuffle(sum, first);
#pragma unroll
  for (int c = 1; c < kColumns; ++c) total = total + shuffle(sum, first + c);
  return total;
}

/// Where the rows of a thread block begin and end.
struct RowRange {
  const std::uint8_t* plane;
  std::int64_t row_bytes;
  int first, count, last_row;
  LOCKSTEP_DEVICE const std::uint8_t* at(int i) const {
    return plane + (first + i < last_row ? first + i : last_row) * row_bytes;
  }
};

/// A thread's rows, one a round; the next one is on its way into registers.
template <DType T, int kLanes>
class RowsHeld {
 public:
  using Row = typename LaneFormat<T, kLanes>::Row;
  struct Shared {};
  LOCKSTEP_DEVICE RowsHeld(const RowRange& range, Shared&) : range_(range) { load(); }
  LOCKSTEP_DEVICE Row take(int) {
    const Row now = next_;
    if (next_row_ < range_.count) load();
    return now;
  }

 private:
  LOCKSTEP_DEVICE void load() {
    next_ = LaneFormat<T, kLanes>::template load<false>(range_.at(next_row_ + thread_index() / kLanes),
                                                        thread_index() % kLanes);
    next_row_ += kLaneThreads / kLanes;
  }
  RowRange range_;
  int next_row_ = 0;  // of the block's first thread
  Row next_;
};

#if defined(LOCKSTEP_HAS_MMA)

/// The same with the next two on their way into shared memory; a warp copies its own.
template <DType T, int kLanes>
class RowsCopied {
 public:
  using Row = typename LaneFormat<T, kLanes>::Row;
  static constexpr int kAhead = 2, kRows = kWarp / kLanes;
  static constexpr int kBytes = static_cast<int>(plane_row_bytes(T, kLanes* kLaneHold* kBlock));
  static constexpr int kStride = kLanes == 8 ? (kBytes + 63) / 128 * 128 + 64 : kBytes;  // two rows fill the banks
  struct Shared {
    alignas(16) std::uint8_t row[kLaneThreads / kWarp][kAhead][kRows][kStride];
  };
  LOCKSTEP_DEVICE RowsCopied(const RowRange& range, Shared& shared)
      : range_(range), shared_(shared), warp_(thread_index() / kWarp) {
#pragma unroll
    for (int round = 0; round < kAhead; ++round) begin(round);
  }
  LOCKSTEP_DEVICE Row take(int round) {
    wait_for_copies<kAhead - 1>();
    warp_barrier();
    const Row now = LaneFormat<T, kLanes>::template load<true>(
        shared_.row[warp_][round % kAhead][lane_index() / kLanes], thread_index() % kLanes);
    warp_barrier();
    begin(round + kAhead);
    return now;
  }

 private:
  LOCKSTEP_DEVICE void begin(int round) {
    constexpr int kChunks = kBytes / 16, kAll = kRows * kChunks;
    const int first = round * (kLaneThreads / kLanes);
    if (first < range_.count) {
#pragma unroll
      for (int i = 0; i < kAll; i += kWarp) {
        const int chunk = i + lane_index(), row = chunk / kChunks, at = chunk % kChunks * 16;
        if (chunk < kAll)
          copy16_once(&shared_.row[warp_][round % kAhead][row][at], range_.at(first + warp_ * kRows + row) + at);
      }
    }
    end_copy_group();
  }
  RowRange range_;
  Shared& shared_;
  int warp_;
};

template <DType T, int kLanes>
using LaneRows = std::conditional_t<T == DType::q2_k, RowsCopied<T, kLanes>, RowsHeld<T, kLanes>>;

#else

template <DType T, int kLanes>
using LaneRows = RowsHeld<T, kLanes>;

#endif

template <DType T, int kLanes>
struct LaneShared {
  LaneInput<kLanes> x;
  typename LaneFormat<T, kLanes>::Lookup lookup;
  typename LaneRows<T, kLanes>::Shared rows;
};

/// A block makes block_rows rows, a multiple of kLaneThreads / kLanes, of one output row.
template <DType T, int kLanes>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kLaneThreads, kLaneBlocks)
    lane_kernel(LOCKSTEP_PARAMETER ProductList list, int block_rows) {
  using F = LaneFormat<T, kLanes>;
  constexpr int kGroups = kLaneThreads / kLanes;
  LOCKSTEP_DYNAMIC_SHARED(Words4, lane_shared);
  auto& shared = *reinterpret_cast<LaneShared<T, kLanes>*>(lane_shared);
  let_next_launch_begin();
  int part = 0;
  while (part + 1 < list.count && block_x() >= list.first_block[part + 1]) ++part;
  const Product& p = list.part[part];
  F::fill(shared.lookup, *p.w.tables);
  if (!p.is_expert_known) wait_for_launch_before();
  const int y = block_y(), t = thread_index(), lane = t % kLanes;
  const std::uint8_t* plane = p.w.data;
  if (p.expert != nullptr) plane += static_cast<std::int64_t>(p.expert[y]) * p.w.rows * p.w.row_bytes;
  const int first_row = (block_x() - list.first_block[part]) * block_rows, last_row = p.w.rows - 1;
  LaneRows<T, kLanes> rows({plane, p.w.row_bytes, first_row, block_rows, last_row}, shared.rows);
  if (p.is_expert_known) wait_for_launch_before();
  const std::int64_t x_row = y / p.x_share * p.rounded.stride;
  for (int i = t; i < kLanes * kLaneHold * 2; i += kLaneThreads) {
    const int block = i / 2;
    shared.x.codes[block / kLanes][i % 2][block % kLanes] =
        *reinterpret_cast<const Words4*>(p.rounded.codes + x_row + i * 16);
  }
  for (int block = t; block < kLanes * kLaneHold; block += kLaneThreads) {
    shared.x.scales[block / kLanes][block % kLanes] = p.rounded.scales[x_row / kBlock + block];
    shared.x.half_sums[block / kLanes][block % kLanes] =
        *reinterpret_cast<const std::uint32_t*>(p.rounded.half_sums + x_row / 16 + 2 * block);
  }
  block_barrier();
  for (int round = 0; round * kGroups < block_rows; ++round) {
    const typename F::Row now = rows.take(round);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kLaneHold; ++i)
      sum = fma_f32(F::term(now, i, shared.x, lane, shared.lookup), shared.x.scales[i][lane], sum);
    const float total = fold_threads<kLanes>(sum);
    const int row = first_row + round * kGroups + t / kLanes;
    if (lane == 0 && row <= last_row) p.out.data[y * p.out.stride + row] = total;
  }
}

/// kLaneBlocks thread blocks a multiprocessor, if there are rows for so many.
template <DType T, int kLanes>
void multiply_lanes(Runtime& runtime, const Product* products, int count) {
  constexpr int kGroups = kLaneThreads / kLanes;
  std::int64_t rows = 0;
  for (int i = 0; i < count; ++i) rows += static_cast<std::int64_t>(products[i].w.rows) * products[i].out.rows;
  const int blocks = kLaneBlocks * runtime.multiprocessors(), share = static_cast<int>((rows + blocks - 1) / blocks);
  constexpr int kMostRows = 512;  // of several slots: a last wave of large blocks would find half of the places empty
  const int whole_share = (share + kGroups - 1) / kGroups * kGroups;
  const int block_rows = whole_share < kMostRows ? whole_share : kMostRows;
  const ProductList list = list_of(products, count, block_rows);
  const Grid grid = {static_cast<unsigned>(list.first_block[count]), static_cast<unsigned>(products[0].out.rows)};
  launch(runtime, lane_kernel<T, kLanes>, grid, kLaneThreads, sizeof(LaneShared<T, kLanes>), list, block_rows);
}

template <DType T, int kLanes>
void allow_lanes(Runtime& runtime) {
  runtime.allow_shared(reinterpret_cast<const void*>(&lane_kernel<T, kLanes>), sizeof(LaneShared<T, kLanes>));
}

template <DType T>
constexpr bool has_lanes() {
  return T == DType::iq2_xxs || T == DType::q2_k;
}

#endif

}  // namespace lockstep::gpu
