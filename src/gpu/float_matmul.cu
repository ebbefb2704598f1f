// Products of float weights with f32 activations, and of the MIX formats, whose codebooks are floats.
//
// A thread is a lane of the law and keeps its eight partial sums; it reads octets, 16 bytes of f16. A warp takes one
// row of a chunk of 4096 values, or four rows of the narrow kind that has eight lanes; chunks of a row go to
// neighbouring warps and meet in shared memory. Up to kTokens tokens share the weights. Bytes: the row, once a group of
// tokens.
#include "base/error.h"
#include "gpu/device.h"
#include "gpu/matmul.h"
#include "numerics/order.h"
#include "numerics/round.h"

namespace lockstep::gpu {
namespace {

constexpr int kMostRowChunks = 64;

/// Rows that a thread multiplies side by side, and warps of a block: many tokens are read again by every row that is
/// not beside another one, and from further away by every block.
LOCKSTEP_HOST_DEVICE constexpr int rows_beside(int tokens) { return tokens > 1 ? 2 : 1; }
LOCKSTEP_HOST_DEVICE constexpr int warps_for(int tokens) { return tokens > 1 ? 8 : 4; }

struct Octet {
  float value[kOctet];
};

/// Value k of a row, and eight values from k on; `plane` chooses the book of a MIX format.
template <DType T>
struct Floats;

template <>
struct Floats<DType::f32> {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    return reinterpret_cast<const float*>(row)[k];
  }
  LOCKSTEP_DEVICE static Octet octet(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    Octet out;
    for (int half = 0; half < 2; ++half) {
      const Words4 words = load_once(row + 4 * k + 16 * half);
      for (int i = 0; i < 4; ++i) out.value[4 * half + i] = f32_of(words.word[i]);
    }
    return out;
  }
};
template <>
struct Floats<DType::f16> {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    return widen_f16(reinterpret_cast<const std::uint16_t*>(row)[k]);
  }
  LOCKSTEP_DEVICE static Octet octet(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    const Words4 words = load_once(row + 2 * k);
    Octet out;
    for (int i = 0; i < kOctet; ++i) out.value[i] = widen_f16(words.word[i / 2] >> (16 * (i % 2)) & 0xffffu);
    return out;
  }
};
template <>
struct Floats<DType::bf16> {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    return bf16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[k]);
  }
  LOCKSTEP_DEVICE static Octet octet(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    const Words4 words = load_once(row + 2 * k);
    Octet out;
    for (int i = 0; i < kOctet; ++i)
      out.value[i] = f32_of(i % 2 == 0 ? words.word[i / 2] << 16 : words.word[i / 2] & 0xffff0000u);
    return out;
  }
};
/// Formats read value by value.
template <class F>
struct ByValue {
  LOCKSTEP_DEVICE static Octet octet(const std::uint8_t* row, std::int64_t k, const Matrix& w, std::int64_t plane) {
    Octet out;
    for (int i = 0; i < kOctet; ++i) out.value[i] = F::value(row, k + i, w, plane);
    return out;
  }
};
template <>
struct Floats<DType::f8_e4m3_b128> : ByValue<Floats<DType::f8_e4m3_b128>> {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix&, std::int64_t) {
    const std::uint8_t* b = row + k / 128 * 129;
    return e4m3_to_f32(b[1 + k % 128]) * e8m0_to_f32(b[0]);
  }
};
/// tensor/dequantize.h: a scale byte's upper bit chooses the book; without books the fixed levels.
template <int kBits>
struct Mix : ByValue<Mix<kBits>> {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix& w, std::int64_t plane) {
    constexpr int kBytes = 4 * kBits + 2;
    const std::uint8_t* b = row + k / 32 * kBytes;
    const int i = static_cast<int>(k % 32);
    const std::uint8_t byte = b[kBytes - 2 + i / 16];
    std::uint32_t code;
    if constexpr (kBits == 3) {
      const std::uint8_t* octet = b + 3 * (i / 8);
      code = (load_u16(octet) | static_cast<std::uint32_t>(octet[2]) << 16) >> (3 * (i % 8)) & 7u;
    } else {
      code = b[i / 4] >> (2 * (i % 4)) & 3u;
    }
    const MixBooks& books = w.books[plane];
    if (books.books) return ue4m3_half_to_f32(byte & 0x7fu) * books.level[byte >> 7][code];
    const int level = kBits == 3 ? w.tables->level_rocmfp3[code] : w.tables->level_rocmfp2[code];
    return static_cast<float>(level) * ue4m3_half_to_f32(byte);
  }
};
template <>
struct Floats<DType::rocmfp3_mix> : Mix<3> {};
template <>
struct Floats<DType::rocmfp2_mix> : Mix<2> {};

/// A row whose octets are not all aligned is read value by value.
template <class F>
struct Unaligned {
  LOCKSTEP_DEVICE static float value(const std::uint8_t* row, std::int64_t k, const Matrix& w, std::int64_t plane) {
    return F::value(row, k, w, plane);
  }
  LOCKSTEP_DEVICE static Octet octet(const std::uint8_t* row, std::int64_t k, const Matrix& w, std::int64_t plane) {
    return ByValue<F>::octet(row, k, w, plane);
  }
};

template <class F>
constexpr bool kIsAligned = true;
template <class F>
constexpr bool kIsAligned<Unaligned<F>> = false;

LOCKSTEP_DEVICE Octet aligned_octet(const float* x) {
  const Floats4 low = *reinterpret_cast<const Floats4*>(x), high = *reinterpret_cast<const Floats4*>(x + 4);
  return {{low.value[0], low.value[1], low.value[2], low.value[3], high.value[0], high.value[1], high.value[2],
           high.value[3]}};
}
LOCKSTEP_DEVICE Octet octet_of(const float* x) { return {{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]}}; }

/// The sums over one chunk by kLanes threads, a lane each; lanes beyond the chunk's own count do nothing. The same in
/// all. Waits for the launch before, if that has not been done, when the first weights are asked for.
template <class F, int kTokens, int kLanes, int kRows>
LOCKSTEP_DEVICE void chunk_dot(float (&out)[kRows][kTokens], const std::uint8_t* const (&row)[kRows],
                               const float* const (&x)[kTokens], int begin, int length, const Matrix& w,
                               std::int64_t plane, bool& has_waited) {
  const auto wait = [&] {
    if (!has_waited) wait_for_launch_before();
    has_waited = true;
  };
  const int lanes = octet_lanes_of(length), lane = lane_index() % kLanes, first_thread = lane_index() - lane;
  float partial[kRows][kTokens][kOctet] = {};
  if (lane < lanes) {
    int k = lane * kOctet;
    const auto add = [&](int at, const Octet(&values)[kRows]) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const Octet xs = kIsAligned<F> ? aligned_octet(x[t] + begin + at) : octet_of(x[t] + begin + at);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < kOctet; ++i)
            partial[r][t][i] = fma_f32(xs.value[i], values[r].value[i], partial[r][t][i]);
      }
    };
    const auto octets_at = [&](Octet(&values)[kRows], int at) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) values[r] = F::octet(row[r], begin + at, w, plane);
    };
    constexpr int kAtOnce = kTokens == 1 ? 8 : 1;  // octets asked for before the first is used
    for (; k + (kAtOnce - 1) * lanes * kOctet + kOctet <= length; k += kAtOnce * lanes * kOctet) {
      Octet values[kAtOnce][kRows];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) octets_at(values[u], k + u * lanes * kOctet);
      wait();
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) add(k + u * lanes * kOctet, values[u]);
    }
    wait();
    for (; k + kOctet <= length; k += lanes * kOctet) {
      Octet values[kRows];
      octets_at(values, k);
      add(k, values);
    }
    for (int i = 0; k + i < length && i < kOctet; ++i) {  // an octet that the row cuts short
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float value = F::value(row[r], begin + k + i, w, plane);
#pragma unroll
        for (int t = 0; t < kTokens; ++t)
#pragma unroll
          for (int place = 0; place < kOctet; ++place)
            if (place == i) partial[r][t][place] = fma_f32(x[t][begin + k + i], value, partial[r][t][place]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float sum = partial[r][t][0];
#pragma unroll
      for (int place = 1; place < kOctet; ++place) sum = sum + partial[r][t][place];
      float column = shuffle(sum, first_thread + lane % kColumns);
      if constexpr (kLanes > kColumns) {
        for (int l = kColumns; l < lanes; l += kColumns)
          column = column + shuffle(sum, first_thread + lane % kColumns + l);
      }
      float total = shuffle(column, first_thread);
      for (int c = 1; c < kColumns; ++c) total = total + shuffle(column, first_thread + c);
      out[r][t] = total;
    }
}

LOCKSTEP_DEVICE int column_of(const Product& p, int row) {
  return p.rows_a_group > 0 ? row / p.rows_a_group * p.w.width : 0;
}

/// kLanes 32: a warp a chunk; row_warps of them share a row. kLanes 8: four rows a warp, for rows of one chunk with
/// eight lanes. In either case rows_beside(kTokens) times as many.
template <class F, int kTokens, int kLanes>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(warps_for(kTokens) * kWarp, 1)
    float_kernel(LOCKSTEP_PARAMETER ProductList list, int row_warps) {
  let_next_launch_begin();
  constexpr int kWarps = warps_for(kTokens), kRows = rows_beside(kTokens), kRowsAWarp = kWarp / kLanes * kRows;
  LOCKSTEP_SHARED float chunk_sums[kWarps][kMostRowChunks][kRows * kTokens];
  const int warp = thread_index() / kWarp, row_in_block = warp / row_warps, share = warp % row_warps;
  int part = 0;
  while (part + 1 < list.count && block_x() >= list.first_block[part + 1]) ++part;
  const Product& p = list.part[part];
  const int block_in_part = block_x() - list.first_block[part];
  const int row =
      block_in_part * (kWarps / row_warps * kRowsAWarp) + row_in_block * kRowsAWarp + lane_index() / kLanes * kRows;
  const int last_row = p.w.rows - 1, first_out = block_y() * kTokens;
  // Which expert's rows is known when the launch before is done; other rows are asked for before that.
  bool has_waited = p.expert != nullptr;
  if (has_waited) wait_for_launch_before();
  const std::int64_t plane = p.expert != nullptr ? p.expert[first_out] : 0;
  const std::uint8_t* from[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    from[r] = p.w.data + (plane * p.w.rows + (row + r < last_row ? row + r : last_row)) * p.w.row_bytes;
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int y = first_out + t < p.out.rows ? first_out + t : p.out.rows - 1;
    x[t] = p.values.data + y / p.x_share * p.values.stride + column_of(p, row < last_row ? row : last_row);
  }
  const int chunks = (p.w.width + kChunk - 1) / kChunk;
  for (int chunk = share; chunk < chunks; chunk += row_warps) {
    const int begin = chunk * kChunk, length = p.w.width - begin < kChunk ? p.w.width - begin : kChunk;
    float sum[kRows][kTokens];
    chunk_dot<F, kTokens, kLanes, kRows>(sum, from, x, begin, length, p.w, plane, has_waited);
    if (lane_index() % kLanes != 0) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (kLanes == kWarp && chunks > 1)
          chunk_sums[row_in_block][chunk][r * kTokens + t] = sum[r][t];
        else if (row + r < p.w.rows && first_out + t < p.out.rows)
          p.out.data[(first_out + t) * p.out.stride + row + r] = sum[r][t];
      }
  }
  if (kLanes != kWarp || chunks == 1) return;
  block_barrier();
  const int r = lane_index() / kTokens, t = lane_index() % kTokens;
  if (share != 0 || r >= kRows || row + r >= p.w.rows || first_out + t >= p.out.rows) return;
  float total = chunk_sums[row_in_block][0][r * kTokens + t];
  for (int chunk = 1; chunk < chunks; ++chunk) total = total + chunk_sums[row_in_block][chunk][r * kTokens + t];
  p.out.data[(first_out + t) * p.out.stride + row + r] = total;
}

template <class F, int kTokens, int kLanes>
void start(Runtime& runtime, const Product* products, int count) {
  constexpr int kWarps = warps_for(kTokens);
  const int chunks = (products[0].w.width + kChunk - 1) / kChunk;
  const int row_warps = chunks >= 4 ? 4 : chunks == 3 ? 2 : chunks;
  const ProductList list = list_of(products, count, kWarps / row_warps * (kWarp / kLanes) * rows_beside(kTokens));
  const Grid grid = {static_cast<unsigned>(list.first_block[count]), blocks_for(products[0].out.rows, kTokens)};
  launch(runtime, float_kernel<F, kTokens, kLanes>, grid, kWarps * kWarp, 0, list, row_warps);
}

template <class F>
void start_by_shape(Runtime& runtime, const Product* products, int count) {
  const Product& p = products[0];
  const bool is_narrow = p.w.width < 2048;
  // Rows side by side read the same columns.
  if (p.out.rows == 1 || p.expert != nullptr || p.rows_a_group % 2 != 0)
    return is_narrow ? start<F, 1, 8>(runtime, products, count) : start<F, 1, 32>(runtime, products, count);
  return is_narrow ? start<F, 8, 8>(runtime, products, count) : start<F, 8, 32>(runtime, products, count);
}

template <class F>
void start_if_aligned(Runtime& runtime, const Product* products, int count) {
  const Product& p = products[0];  // the others have its width and its input
  const bool is_aligned = p.w.row_bytes % 16 == 0 && p.w.width % kOctet == 0 && p.values.stride % 4 == 0;
  if (is_aligned) return start_by_shape<F>(runtime, products, count);
  start<Unaligned<F>, 1, 32>(runtime, products, count);
}

template <class F>
LOCKSTEP_KERNEL void widen_floats_kernel(Rows out, Matrix w, const Token* rows) {
  follow_launch();
  const int k = block_x() * block_threads() + thread_index();
  if (k >= w.width) return;
  const std::uint8_t* row = w.data + static_cast<std::int64_t>(rows[block_y()]) * w.row_bytes;
  out.data[block_y() * out.stride + k] = F::value(row, k, w, 0);
}

template <class F>
void widen(Runtime& runtime, Rows out, const Matrix& w, const Token* rows) {
  launch(runtime, widen_floats_kernel<F>, {blocks_for(w.width, 256), static_cast<unsigned>(out.rows)}, 256, 0, out, w,
         rows);
}

}  // namespace

void multiply_floats(Runtime& runtime, DType dtype, const Product* products, int count) {
  LOCKSTEP_CHECK(products[0].w.width <= kMostRowChunks * kChunk);
  switch (dtype) {
    case DType::f32:
      return start_if_aligned<Floats<DType::f32>>(runtime, products, count);
    case DType::f16:
      return start_if_aligned<Floats<DType::f16>>(runtime, products, count);
    case DType::bf16:
      return start_if_aligned<Floats<DType::bf16>>(runtime, products, count);
    case DType::f8_e4m3_b128:
      return start<Floats<DType::f8_e4m3_b128>, 1, 32>(runtime, products, count);
    case DType::rocmfp3_mix:
      return start<Floats<DType::rocmfp3_mix>, 1, 32>(runtime, products, count);
    case DType::rocmfp2_mix:
      return start<Floats<DType::rocmfp2_mix>, 1, 32>(runtime, products, count);
    default:
      LOCKSTEP_CHECK(!"a float format");
  }
}

void widen_floats(Runtime& runtime, DType dtype, Rows out, const Matrix& w, const Token* rows) {
  switch (dtype) {
    case DType::f32:
      return widen<Floats<DType::f32>>(runtime, out, w, rows);
    case DType::f16:
      return widen<Floats<DType::f16>>(runtime, out, w, rows);
    case DType::bf16:
      return widen<Floats<DType::bf16>>(runtime, out, w, rows);
    case DType::f8_e4m3_b128:
      return widen<Floats<DType::f8_e4m3_b128>>(runtime, out, w, rows);
    case DType::rocmfp3_mix:
      return widen<Floats<DType::rocmfp3_mix>>(runtime, out, w, rows);
    case DType::rocmfp2_mix:
      return widen<Floats<DType::rocmfp2_mix>>(runtime, out, w, rows);
    default:
      LOCKSTEP_CHECK(!"a float format");
  }
}

}  // namespace lockstep::gpu
