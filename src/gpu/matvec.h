// One to four tokens by quantised weights: a matrix-vector kernel bound by memory, for every format.
//
// Two threads share a lane of the law, one for each half of its blocks; integer dots meet by a shuffle, and both then
// hold the lane's sum. A warp takes a row of 16 lanes or two of 8. Blocks are dealt to lanes in turn, so neighbouring
// threads read neighbouring halves. Bytes: the row, once; the roofline is a bare read of it. The shapes measured for
// Q8_0 are in docs/numerics.md.
#pragma once

#include "gpu/lane_matvec.h"
#include "gpu/matmul.h"
#include "gpu/planes.h"
#include "numerics/order.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_KERNEL)

inline constexpr int kMatvecThreads = 128, kMendBlocks = 64;

template <class F>
constexpr bool kHasPoints = requires {
  F::kHasPoints;
};

template <class F>
constexpr bool kCanFold = requires {
  F::kCanFold;
};
template <class F>
constexpr Kind kTileKind = kCanFold<F> ? Kind::folded : F::kKind;

/// How a matrix-vector kernel cuts its work: rows that a thread reads side by side and blocks that it asks for at once,
/// for enough loads in flight; and how many times a thread block does that, so that a grid in shared memory pays.
template <class F, int kTokens, int kRowThreads>
struct Cut {
  static constexpr int kRows = kTokens == 1 && kRowThreads == 16 ? 2 : 1;
  static constexpr int kUnroll = kTokens == 1 && kRowThreads == 32 ? 8 : 4;
  static constexpr int kPasses = kHasPoints<F> ? 4 : 1;
  static constexpr int kGroups = kMatvecThreads / kRowThreads;  // of threads that share a row
  static constexpr int kBlockRows = kGroups * kRows * kPasses;
};

/// The term of a block whose two halves lie in neighbouring threads: `dot` and `sum` are this half's. The same value in
/// both threads.
template <class F>
LOCKSTEP_DEVICE float term_of(const Half& w, int dot, int sum, int h) {
  float term;
  if constexpr (F::kKind == Kind::dual) {
    const int other = shuffle_xor(dot, 1);
    const float other_scale = shuffle_xor(w.scale, 1);
    const float first = static_cast<float>(h == 0 ? dot : other) * (h == 0 ? w.scale : other_scale);
    term = fma_f32(static_cast<float>(h == 0 ? other : dot), h == 0 ? other_scale : w.scale, first);
  } else {
    int whole = dot * w.factor;
    whole += shuffle_xor(whole, 1);
    term = static_cast<float>(whole) * w.scale;
  }
  if constexpr (F::kHasMin) {
    int min = w.min_level * sum;
    min += shuffle_xor(min, 1);
    term = fma_f32(-static_cast<float>(min), w.min_scale, term);
  }
  return term;
}

/// Sum of the lanes of a chunk (fold of numerics/order.h) over the threads of a row; the same in all of them.
LOCKSTEP_DEVICE float fold_lanes(float lane_sum, int lanes, int first_thread) {
  const int in_row = lane_index() - first_thread, column = in_row / 2 % kColumns;
  const float low = shuffle(lane_sum, first_thread + 2 * column);
  float sum = low;
  if (lanes > kColumns) sum = low + shuffle(lane_sum, first_thread + 2 * (column + kColumns));
  float total = shuffle(sum, first_thread);
  for (int c = 1; c < kColumns; ++c) total = total + shuffle(sum, first_thread + 2 * c);
  return total;
}

/// hyper_expand of channel d of a token by the threads that share its row, of which the first four have a stream each;
/// stored if `is_there`.
LOCKSTEP_DEVICE void expand_at(const Rows& streams, const ConstRows& coefficients, int width, int token, int d, float y,
                               int in_row, bool is_there) {
  constexpr int kStreams = 4;
  const float* post = coefficients.data + token * coefficients.stride + kStreams;
  const float* comb = post + kStreams;
  float* at = streams.data + token * streams.stride + d;
  const int q = in_row % kStreams;
  const float before = at[q * width];
  float sum = post[q] * y;
#pragma unroll
  for (int j = 0; j < kStreams; ++j)
    sum = fma_f32(comb[j * kStreams + q], shuffle(before, lane_index() / kStreams * kStreams + j), sum);
  if (is_there && in_row < kStreams) at[q * width] = sum;
}

/// kRowThreads: 32 where chunks have 16 lanes, 16 where they all have 8.
template <class F, int kTokens, int kRowThreads>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kMatvecThreads, 4) matvec_kernel(LOCKSTEP_PARAMETER ProductList list) {
  let_next_launch_begin();
  using C = Cut<F, kTokens, kRowThreads>;
  constexpr int kRows = C::kRows;
  LOCKSTEP_SHARED Words2 points[kHasPoints<F> ? 256 : 1];
  int part = 0;
  while (part + 1 < list.count && block_x() >= list.first_block[part + 1]) ++part;
  const Product& p = list.part[part];
  if constexpr (kHasPoints<F>) {
    for (int i = thread_index(); i < 256; i += kMatvecThreads)
      points[i] = reinterpret_cast<const Words2*>(p.w.tables->bytes_iq2_xxs)[i];
    block_barrier();
  }
  const auto half_at = [&](const std::uint8_t* row, int block, int h) {
    if constexpr (kHasPoints<F>)
      return F::half(row, p.w.width, block, h, points);
    else
      return F::half(row, p.w.width, block, h, *p.w.tables);
  };
  // Which expert's rows is known when the launch before is done; other rows are asked for before that.
  bool has_waited = p.expert != nullptr;
  if (has_waited) wait_for_launch_before();
  has_waited = has_waited || p.is_input_known;
  const int in_row = thread_index() % kRowThreads, h = in_row % 2, group = thread_index() / kRowThreads;
  const int first_thread = lane_index() / kRowThreads * kRowThreads;
  const int first_out = block_y() * kTokens, all_blocks = p.w.width / kBlock;
  const std::int64_t plane_row =
      p.expert != nullptr ? static_cast<std::int64_t>(p.expert[first_out]) * p.w.rows : std::int64_t{0};
  for (int pass = 0; pass < C::kPasses; ++pass) {
    // Neighbouring groups have neighbouring rows. Rows beyond the last are the last one again.
    const int row = (block_x() - list.first_block[part]) * C::kBlockRows + (pass * C::kGroups + group) * kRows;
    const int last_row = p.w.rows - 1, column_row = row < last_row ? row : last_row;
    const std::uint8_t* from[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      from[r] = p.w.data + (plane_row + (row + r < last_row ? row + r : last_row)) * p.w.row_bytes;
    // Rows side by side are of one group: groups have an even number of rows, or there is one row.
    const int column = p.rows_a_group > 0 ? column_row / p.rows_a_group * p.w.width : 0;
    std::int64_t x_row[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const int y = first_out + t < p.out.rows ? first_out + t : p.out.rows - 1;
      x_row[t] = y / p.x_share * p.rounded.stride + column;
    }
    float total[kRows][kTokens];
    for (int chunk = 0; chunk * (kChunk / kBlock) < all_blocks; ++chunk) {
      const int first = chunk * (kChunk / kBlock);
      const int blocks = all_blocks - first < kChunk / kBlock ? all_blocks - first : kChunk / kBlock;
      const int lanes = block_lanes_of(blocks * kBlock), lane = in_row / 2 % lanes;  // spare threads do as others do
      float sum[kRows][kTokens] = {};
      const std::int8_t* codes[kTokens];  // of this thread's first half, and what belongs to it
      const float* scales[kTokens];
      const std::int16_t* half_sums[kTokens];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const std::int64_t at = x_row[t] + (first + lane) * kBlock + 16 * h;
        codes[t] = p.rounded.codes + at;
        scales[t] = p.rounded.scales + at / kBlock;
        half_sums[t] = p.rounded.half_sums + at / 16;
      }
      const auto add = [&](const Half(&w)[kRows], int further) {  // blocks from the first one on
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const auto x = *reinterpret_cast<const Words4*>(codes[t] + further * kBlock);
          const int code_sum = F::kHasMin ? half_sums[t][further * 2] : 0;
          const float x_scale = scales[t][further];
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            int dot = 0;
#pragma unroll
            for (int k = 0; k < 4; ++k) dot = dot4(w[r].code[k], x.word[k], dot);
            sum[r][t] = fma_f32(term_of<F>(w[r], dot, code_sum, h), x_scale, sum[r][t]);
          }
        }
      };
      const int whole = blocks / lanes;  // blocks that every lane has
      int i = 0;
      constexpr int kLanes = kRowThreads / 2;  // known here, so that places are offsets in the instructions
      for (; lanes == kLanes && i + C::kUnroll <= whole; i += C::kUnroll) {
        Half w[C::kUnroll][kRows];
#pragma unroll
        for (int u = 0; u < C::kUnroll; ++u)
#pragma unroll
          for (int r = 0; r < kRows; ++r) w[u][r] = half_at(from[r], first + lane + i * kLanes + u * kLanes, h);
        if (!has_waited) wait_for_launch_before();
        has_waited = true;
#pragma unroll
        for (int u = 0; u < C::kUnroll; ++u) add(w[u], i * kLanes + u * kLanes);
      }
      if (!has_waited) wait_for_launch_before();
      has_waited = true;
      for (; i * lanes < blocks; ++i) {
        const int in_chunk = lane + i * lanes;
        const bool is_there = in_chunk < blocks;
        const int block = is_there ? in_chunk : 0;
        float before[kRows][kTokens];
        Half w[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          w[r] = half_at(from[r], first + block, h);
#pragma unroll
          for (int t = 0; t < kTokens; ++t) before[r][t] = sum[r][t];
        }
        add(w, block - lane);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int t = 0; t < kTokens; ++t) sum[r][t] = is_there ? sum[r][t] : before[r][t];
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const float chunk_sum = fold_lanes(sum[r][t], lanes, first_thread);
          total[r][t] = chunk == 0 ? chunk_sum : total[r][t] + chunk_sum;
        }
    }
    if (p.streams.data != nullptr) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int t = 0; t < kTokens; ++t)
          expand_at(p.streams, p.coefficients, p.w.rows, first_out + t < p.out.rows ? first_out + t : p.out.rows - 1,
                    row + r < last_row ? row + r : last_row, total[r][t], in_row,
                    row + r <= last_row && first_out + t < p.out.rows);
      continue;
    }
    if (in_row != 0) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
        if (row + r < p.w.rows && first_out + t < p.out.rows)
          p.out.data[(first_out + t) * p.out.stride + row + r] = total[r][t];
  }
  // One block is enough, and the last one keeps none that comes after it from its place.
  if (p.is_input_known && block_x() + 1 == list.first_block[list.count]) wait_for_launch_before();
}

/// Zeros of the tile kernel (matmul.h), a warp an output: a pair of threads a lane, as above.
template <class F>
LOCKSTEP_KERNEL void mend_kernel(LOCKSTEP_PARAMETER Product p, const ZeroList* zeros) {
  follow_launch();
  const int in_row = lane_index(), h = in_row % 2, all_blocks = p.w.width / kBlock;
  const bool is_named = zeros->count <= ZeroList::kMost;
  const std::int64_t places = is_named ? zeros->count : static_cast<std::int64_t>(p.out.rows) * p.w.rows;
  const int warps = block_threads() / kWarp;
  const std::int64_t step = static_cast<std::int64_t>(warps) * kMendBlocks;
  for (std::int64_t i = block_x() * warps + thread_index() / kWarp; i < places; i += step) {
    const int y = is_named ? zeros->place[i].out : static_cast<int>(i / p.w.rows);
    const int row = is_named ? zeros->place[i].row : static_cast<int>(i % p.w.rows);
    float& out = p.out.data[y * p.out.stride + row];
    if (out != 0) continue;
    const std::int64_t plane_row = p.expert != nullptr ? static_cast<std::int64_t>(p.expert[y]) * p.w.rows : 0;
    const std::uint8_t* from = p.w.data + (plane_row + row) * p.w.row_bytes;
    const int column = p.rows_a_group > 0 ? row / p.rows_a_group * p.w.width : 0;
    const std::int64_t x_row = y / p.x_share * p.rounded.stride + column;
    float total = 0;
    for (int first = 0; first < all_blocks; first += kChunk / kBlock) {
      const int blocks = all_blocks - first < kChunk / kBlock ? all_blocks - first : kChunk / kBlock;
      const int lanes = block_lanes_of(blocks * kBlock), lane = in_row / 2 % lanes;
      float sum = 0;
      for (int at = 0; at < blocks; at += lanes) {
        const bool is_there = at + lane < blocks;
        const int block = first + (is_there ? at + lane : 0);
        const Half w = F::half(from, p.w.width, block, h, *p.w.tables);
        const std::int64_t x = x_row + block * kBlock + 16 * h;
        const auto codes = *reinterpret_cast<const Words4*>(p.rounded.codes + x);
        int dot = 0;
        for (int k = 0; k < 4; ++k) dot = dot4(w.code[k], codes.word[k], dot);
        const float term = term_of<F>(w, dot, p.rounded.half_sums[x / 16], h);
        if (is_there) sum = fma_f32(term, p.rounded.scales[x / kBlock], sum);
      }
      const float chunk_sum = fold_lanes(sum, lanes, 0);
      total = first == 0 ? chunk_sum : total + chunk_sum;
    }
    if (in_row == 0) out = total;
  }
}

/// From a half's 16 values to what the tile kernel reads, a thread a half, in the order in which it is written.
template <class F>
LOCKSTEP_KERNEL void unpack_kernel(Matrix w, int first_plane, const int* used, Unpacked out) {
  follow_launch();
  if (used != nullptr && used[first_plane + block_y()] == 0) return;
  const int halves = w.width / 16;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index();
  const std::int64_t row = item / halves;
  const int place = static_cast<int>(item % halves) / 2, h = static_cast<int>(item % 2);
  if (row >= w.rows) return;  // pairs of threads: a row has an even number of halves
  const std::int64_t from = static_cast<std::int64_t>(first_plane + block_y()) * w.rows + row;
  const std::int64_t to = static_cast<std::int64_t>(block_y()) * w.rows + row;
  const Half half = F::half(w.data + from * w.row_bytes, w.width, out.walk.block_at(place), h, *w.tables);
  constexpr Kind kKind = kTileKind<F>;
  const std::uint32_t fold = kKind == Kind::folded ? static_cast<std::uint32_t>(half.factor) : 1u;
  *reinterpret_cast<Words4*>(out.codes + to * w.width + place * kBlock + 16 * h) =
      Words4{{half.code[0] * fold, half.code[1] * fold, half.code[2] * fold, half.code[3] * fold}};
  constexpr int kWords = scale_words(kKind, F::kHasMin);
  const auto scale = [&](int word) -> std::uint32_t& {
    return out.scales[((place / kStageBlocks * kWords + word) * out.rows + to) * kStageBlocks + place % kStageBlocks];
  };
  if constexpr (kKind == Kind::dual) {
    scale(h) = bits_of(half.scale);
  } else if constexpr (kKind == Kind::folded) {
    reinterpret_cast<std::int16_t*>(&scale(2))[h] = static_cast<std::int16_t>(half.min_level);
    if (h == 0) {
      scale(0) = bits_of(half.scale);
      scale(1) = bits_of(half.min_scale);
    }
  } else if constexpr (kKind == Kind::halves) {
    reinterpret_cast<std::int16_t*>(&scale(1))[h] = static_cast<std::int16_t>(half.factor);
    if (F::kHasMin) reinterpret_cast<std::int16_t*>(&scale(kWords - 1))[h] = static_cast<std::int16_t>(half.min_level);
    if (h == 0) {
      scale(0) = bits_of(half.scale);
      if (F::kHasMin) scale(2 % kWords) = bits_of(half.min_scale);
    }
  } else if (h == 0) {  // the small factors are exact in the scales: tensor/block.h
    scale(0) = bits_of(half.scale * static_cast<float>(half.factor));
    if (F::kHasMin) scale(1 % kWords) = bits_of(half.min_scale * static_cast<float>(half.min_level));
  }
}

/// Rows of an embedding as floats (tensor/dequantize.h), a thread a half.
template <class F>
LOCKSTEP_KERNEL void widen_kernel(Rows out, Matrix w, const Token* rows) {
  follow_launch();
  const int half_index = block_x() * block_threads() + thread_index();
  if (half_index >= w.width / 16) return;
  const int block = half_index / 2, h = half_index % 2;
  const Half half =
      F::half(w.data + static_cast<std::int64_t>(rows[block_y()]) * w.row_bytes, w.width, block, h, *w.tables);
  float* to = out.data + block_y() * out.stride + block * kBlock + 16 * h;
  for (int i = 0; i < 16; ++i) {
    const int code = static_cast<std::int8_t>(half.code[i / 4] >> (8 * (i % 4)));
    const float product = static_cast<float>(code * half.factor) * half.scale;
    to[i] = F::kHasMin ? product - static_cast<float>(half.min_level) * half.min_scale : product;
  }
}

template <class F>
LOCKSTEP_KERNEL void relay_kernel(std::uint8_t* out, std::int64_t out_row_bytes, const std::uint8_t* file,
                                  std::int64_t file_row_bytes, int width, std::int64_t rows) {
  follow_launch();
  const int blocks = width / kBlock;
  const std::int64_t item = static_cast<std::int64_t>(block_x()) * block_threads() + thread_index(),
                     row = item / blocks;
  if (row >= rows) return;
  F::relay(out + row * out_row_bytes, file + row * file_row_bytes, width, static_cast<int>(item % blocks));
}

template <class F, int kTokens, int kRowThreads>
void multiply_by(Runtime& runtime, const Product* products, int count) {
  const ProductList list = list_of(products, count, Cut<F, kTokens, kRowThreads>::kBlockRows);
  const Grid grid = {static_cast<unsigned>(list.first_block[count]), blocks_for(products[0].out.rows, kTokens)};
  launch(runtime, matvec_kernel<F, kTokens, kRowThreads>, grid, kMatvecThreads, 0, list);
}

/// Formats in wide use have kernels for narrow rows and for several tokens; the others one that does for all.
template <DType kType, bool kIsCommon>
void multiply_with(Runtime& runtime, const Product* products, int count) {
  using F = Format<kType>;
  if constexpr (kIsCommon) {
    const Product& p = products[0];
    const bool is_narrow = p.w.width < kChunk, is_single = p.out.rows == 1 || p.expert != nullptr;
    if constexpr (has_lanes<kType>()) {
      if (is_single && p.rows_a_group == 0 && p.streams.data == nullptr &&
          sizeof(LaneShared<kType, 16>) <= runtime.most_shared_bytes()) {
        if (is_lane_width(p.w.width, 16)) return multiply_lanes<kType, 16>(runtime, products, count);
        if (is_lane_width(p.w.width, 8)) return multiply_lanes<kType, 8>(runtime, products, count);
      }
    }
    if (is_single && p.rows_a_group % 2 == 0)  // rows side by side read the same columns
      return is_narrow ? multiply_by<F, 1, 16>(runtime, products, count)
                       : multiply_by<F, 1, 32>(runtime, products, count);
    return is_narrow ? multiply_by<F, 4, 16>(runtime, products, count)
                     : multiply_by<F, 4, 32>(runtime, products, count);
  } else {
    multiply_by<F, 1, 32>(runtime, products, count);
  }
}

template <class F>
void unpack_with(Runtime& runtime, const Matrix& w, int first_plane, int planes, const int* used, const Unpacked& out) {
  const std::int64_t halves = static_cast<std::int64_t>(w.rows) * (w.width / 16);
  launch(runtime, unpack_kernel<F>, {blocks_for(halves, 256), static_cast<unsigned>(planes)}, 256, 0, w, first_plane,
         used, out);
}

template <class F>
void mend_with(Runtime& runtime, const Product& product, const ZeroList* zeros) {
  launch(runtime, mend_kernel<F>, {kMendBlocks}, 256, 0, product, zeros);
}

template <class F>
void widen_with(Runtime& runtime, Rows out, const Matrix& w, const Token* rows) {
  launch(runtime, widen_kernel<F>, {blocks_for(w.width / 16, 64), static_cast<unsigned>(out.rows)}, 64, 0, out, w,
         rows);
}

template <class F>
void relay_with(Runtime& runtime, std::uint8_t* out, std::int64_t out_row_bytes, const std::uint8_t* file,
                std::int64_t file_row_bytes, int width, std::int64_t rows) {
  launch(runtime, relay_kernel<F>, {blocks_for(rows * (width / kBlock), 256)}, 256, 0, out, out_row_bytes, file,
         file_row_bytes, width, rows);
}

template <DType kType, bool kIsCommon>
constexpr FormatKernels kernels_for() {
  using F = Format<kType>;
  FormatKernels k = {kTileKind<F>,  F::kHasMin, multiply_with<kType, kIsCommon>, unpack_with<F>, mend_with<F>,
                     widen_with<F>, nullptr};
  if constexpr (has_planes(kType)) k.relay = relay_with<F>;
  return k;
}

#endif

}  // namespace lockstep::gpu
