// A few tokens (2 to 63) by float weights in the model's widths.
//
// A thread is a place of a lane (numerics/order.h): sixteen values of a chunk, for some rows and some tokens, so that
// neighbouring threads read neighbouring weights and activations, and a value that has been read is used for all of
// them. Blocks of one multiprocessor read the same activations, which so come from its L1 cache. Places, lanes, columns
// and chunks meet in shared memory. Bytes: the weights, once for every kTokens tokens, all asked for before the launch
// before is waited for. Bound by fma from about eight tokens on.
#include "gpu/device.h"
#include "gpu/float_few.h"
#include "numerics/order.h"
#include "numerics/round.h"

namespace lockstep::gpu {
namespace {

constexpr int kSteps = 16;          // values of a chunk that a thread has
constexpr int kLongChunks = 4;      // of a long row
constexpr int kFewThreads = 256;    // of a block, but for long rows
constexpr int kMostFewTokens = 63;  // more are for the tile kernels

LOCKSTEP_HOST_DEVICE constexpr int round_to_warps(int count) { return (count + kWarp - 1) / kWarp * kWarp; }

template <DType T>
struct Value;
template <>
struct Value<DType::f16> {
  using Word = std::uint16_t;
  LOCKSTEP_DEVICE static float of(Word word) { return widen_f16(word); }
};
template <>
struct Value<DType::bf16> {
  using Word = std::uint16_t;
  LOCKSTEP_DEVICE static float of(Word word) { return bf16_to_f32(word); }
};
template <>
struct Value<DType::f32> {
  using Word = std::uint32_t;
  LOCKSTEP_DEVICE static float of(Word word) { return f32_of(word); }
};

/// kPlaces threads a chunk. Rows of one chunk: kRows rows for each kPlaces threads of a block. Long rows: kRows rows a
/// block, of which every kPlaces threads take one chunk.
template <DType T, int kRows, int kTokens, int kPlaces, bool kIsLong>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kIsLong ? kPlaces* kLongChunks : kFewThreads, kIsLong ? 1 : 2)
    float_few_kernel(LOCKSTEP_PARAMETER ProductList list) {
  using Word = typename Value<T>::Word;
  constexpr int kThreads = kIsLong ? kPlaces * kLongChunks : kFewThreads, kGroups = kThreads / kPlaces,
                kLanes = kPlaces / kOctet, kSums = kRows * kTokens;
  LOCKSTEP_SHARED float LOCKSTEP_ALIGNED(16) places[kSums * kThreads];  // [kSums][kGroups][kLanes][kOctet]
  LOCKSTEP_SHARED float lanes[kSums * kGroups * kLanes];
  LOCKSTEP_SHARED float chunk_sums[kSums * kGroups];
  let_next_launch_begin();
  int part = 0;
  while (part + 1 < list.count && block_x() >= list.first_block[part + 1]) ++part;
  const Product& p = list.part[part];
  const int t = thread_index(), group = t / kPlaces, first_out = block_y() * kTokens, last_row = p.w.rows - 1;
  const int first_row = (block_x() - list.first_block[part]) * (kIsLong ? kRows : kRows * kGroups);
  const int own_row = kIsLong ? first_row : first_row + group * kRows;
  const int at = (kIsLong ? group * kSteps * kPlaces : 0) + t % kPlaces;
  Word words[kRows][kSteps];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = own_row + r < last_row ? own_row + r : last_row;
    const std::uint8_t* from = p.w.data + row * p.w.row_bytes + at * static_cast<std::int64_t>(sizeof(Word));
#pragma unroll
    for (int j = 0; j < kSteps; ++j) load_once(words[r][j], from + j * kPlaces * static_cast<int>(sizeof(Word)));
  }
  wait_for_launch_before();
  const float* x[kTokens];
#pragma unroll
  for (int k = 0; k < kTokens; ++k) {
    const int y = first_out + k < p.out.rows ? first_out + k : p.out.rows - 1;
    x[k] = p.values.data + y / p.x_share * p.values.stride + at;
  }
  float sum[kSums] = {};
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    float value[kTokens];
#pragma unroll
    for (int k = 0; k < kTokens; ++k) value[k] = x[k][j * kPlaces];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float w = Value<T>::of(words[r][j]);
#pragma unroll
      for (int k = 0; k < kTokens; ++k) sum[r * kTokens + k] = fma_f32(value[k], w, sum[r * kTokens + k]);
    }
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s) places[s * kThreads + t] = sum[s];
  block_barrier();
#pragma unroll
  for (int i = t; i < kSums * kGroups * kLanes; i += kThreads) {
    const float* from = places + i * kOctet;
    const Floats4 low = *reinterpret_cast<const Floats4*>(from), high = *reinterpret_cast<const Floats4*>(from + 4);
    float lane = low.value[0] + low.value[1];
    lane = lane + low.value[2];
    lane = lane + low.value[3];
#pragma unroll
    for (int k = 0; k < 4; ++k) lane = lane + high.value[k];
    lanes[i] = lane;
  }
  block_barrier();
  // A thread a column; eight neighbours have those of one chunk of one sum.
#pragma unroll
  for (int i = t; i < round_to_warps(kSums * kGroups * kColumns); i += kThreads) {
    const bool is_there = i < kSums * kGroups * kColumns;
    const float* from = lanes + (is_there ? i / kColumns * kLanes + i % kColumns : 0);
    float column = from[0];
#pragma unroll
    for (int l = kColumns; l < kLanes; l += kColumns) column = column + from[l];
    const int first = lane_index() / kColumns * kColumns;
    float total = shuffle(column, first);
#pragma unroll
    for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, first + c);
    if (!is_there || i % kColumns != 0) continue;
    const int s = i / kColumns / kGroups, g = i / kColumns % kGroups, out = first_out + s % kTokens;
    const int row = (kIsLong ? first_row : first_row + g * kRows) + s / kTokens;
    if (kIsLong)
      chunk_sums[i / kColumns] = total;
    else if (row < p.w.rows && out < p.out.rows)
      p.out.data[out * p.out.stride + row] = total;
  }
  if (!kIsLong) return;
  block_barrier();
  const int row = first_row + t / kTokens, out = first_out + t % kTokens;
  if (t >= kSums || row >= p.w.rows || out >= p.out.rows) return;
  float total = chunk_sums[t * kGroups];
#pragma unroll
  for (int chunk = 1; chunk < kGroups; ++chunk) total = total + chunk_sums[t * kGroups + chunk];
  p.out.data[out * p.out.stride + row] = total;
}

template <DType T, int kRows, int kTokens, int kPlaces, bool kIsLong = false>
void start_few(Runtime& runtime, const Product* products, int count) {
  const ProductList list = list_of(products, count, kIsLong ? kRows : kRows * (kFewThreads / kPlaces));
  launch(runtime, float_few_kernel<T, kRows, kTokens, kPlaces, kIsLong>,
         {static_cast<unsigned>(list.first_block[count]), blocks_for(products[0].out.rows, kTokens)},
         kIsLong ? kPlaces * kLongChunks : kFewThreads, 0, list);
}

template <DType T>
void start_few_by_shape(Runtime& runtime, const Product* products, int count) {
  const int width = products[0].w.width, tokens = products[0].out.rows;
  int rows = 0;
  for (int i = 0; i < count; ++i) rows += products[i].w.rows;
  if (width == kLongChunks * kChunk)
    return tokens <= 8 ? start_few<T, 1, 2, 256, true>(runtime, products, count)
                       : start_few<T, 1, 4, 256, true>(runtime, products, count);
  const bool is_wide = rows >= 1024;
  if (width == kChunk) {
    if (tokens <= 4)
      return is_wide ? start_few<T, 4, 4, 256>(runtime, products, count)
                     : start_few<T, 2, 4, 256>(runtime, products, count);
    return is_wide ? start_few<T, 4, 8, 256>(runtime, products, count)
                   : start_few<T, 2, 8, 256>(runtime, products, count);
  }
  if (width == kChunk / 2) return start_few<T, 2, 4, 128>(runtime, products, count);
  return tokens <= 4 ? start_few<T, 4, 4, 64>(runtime, products, count)
                     : start_few<T, 4, 8, 64>(runtime, products, count);
}

}  // namespace

bool can_multiply_few(DType dtype, const Product* products, int count) {
  const int width = products[0].w.width, tokens = products[0].out.rows;
  if (tokens < 2 || tokens > kMostFewTokens) return false;
  if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32) return false;
  if (width != kChunk && width != kLongChunks * kChunk && width != kChunk / 2 && width != kChunk / 4) return false;
  for (int i = 0; i < count; ++i)
    if (products[i].expert != nullptr || products[i].rows_a_group > 0 || products[i].w.row_bytes % 4 != 0) return false;
  return true;
}

void multiply_few_floats(Runtime& runtime, DType dtype, const Product* products, int count) {
  if (dtype == DType::f16) return start_few_by_shape<DType::f16>(runtime, products, count);
  if (dtype == DType::bf16) return start_few_by_shape<DType::bf16>(runtime, products, count);
  start_few_by_shape<DType::f32>(runtime, products, count);
}

}  // namespace lockstep::gpu
