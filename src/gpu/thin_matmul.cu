// A few tokens, more than one, by Q8_0 weights on mma.m16n8k32: the weights are read once for up to 32 tokens.
//
// Tokens are the narrow side of the fragments: sixteen rows, 32 values, eight tokens. The order within a block is free,
// since its dot is an exact integer, so a thread takes eight bytes side by side as its share of a row's block, in
// weights and activations alike, and the weights go from memory to the registers that multiply them. A warp has one
// column of the law (numerics/order.h) of sixteen rows, or of several times sixteen where the chunk is short; eight
// warps have the same rows and meet in shared memory. A thread block stays for as many such steps as there are for
// every multiprocessor: the activations of a chunk lie in shared memory, and the rows of the next step are on their way
// while these are added up. Bytes: the weights, once for 32 tokens; the roofline is a bare read of them.
#include "base/error.h"
#include "gpu/async_copy.h"
#include "gpu/device.h"
#include "gpu/int8_mma.h"
#include "gpu/planes.h"
#include "gpu/thin_matmul.h"
#include "numerics/order.h"

namespace lockstep::gpu {

#if defined(LOCKSTEP_HAS_MMA)

namespace {

constexpr int kTileRows = 16, kTileTokens = 8;  // of a fragment
constexpr int kStepParts = 2, kAhead = 8;       // a warp multiplies two times eight blocks in a step
constexpr int kGroups = 2;                      // of eight warps that share their rows
constexpr int kThreads = kGroups * kColumns * kWarp;

/// A step of a thread block: kColumnBlocks blocks of every column of a chunk.
template <int kColumnBlocks, int kTokenTiles>
struct Thin {
  static constexpr bool has_two = kColumnBlocks > kAhead;  // lanes of a column
  static constexpr int blocks = kColumns * kColumnBlocks;  // of the chunk
  static constexpr int lanes = block_lanes_of(blocks * kBlock), lane_blocks = blocks / lanes;
  static constexpr int part_tiles = has_two ? 1 : kAhead / kColumnBlocks, tiles = has_two ? 1 : kStepParts * part_tiles;
  static constexpr int rows = kTileRows * kGroups * tiles, tokens = kTileTokens * kTokenTiles;
  static constexpr int token_parts = has_two ? kStepParts : 1;  // in which the activations come
  static constexpr int buffers = kTokenTiles <= 2 ? 2 : 1;      // of the columns: where there is room
  static constexpr int outputs = (rows * tokens + kThreads - 1) / kThreads;
  // Pitches by which threads miss one another's banks.
  static constexpr int code_pitch = blocks * kBlock + kBlock, token_pitch = tokens + 2, scale_pitch = blocks + 8,
                       row_pitch = rows + 4;
  struct Shared {
    std::uint8_t codes[tokens][code_pitch];
    float scales[blocks][token_pitch];
    std::uint16_t row_scales[2][rows][scale_pitch];
    float columns[buffers][kColumns][tokens][row_pitch];
  };
  static_assert(lanes == (has_two ? 2 : 1) * kColumns && rows * blocks / 8 == kThreads);
  static_assert(sizeof(Shared::codes[0]) % 16 == 0 && sizeof(Shared::row_scales[0][0]) % 16 == 0);
  /// First row of tile i of a part of a step, and the part's first block but for the column.
  LOCKSTEP_DEVICE static int row_of(int part, int i, int group) {
    return ((has_two ? 0 : part * part_tiles + i) * kGroups + group) * kTileRows;
  }
  LOCKSTEP_DEVICE static int first_block(int part) { return has_two ? part * kColumns : 0; }
};

struct alignas(8) Floats2 {
  float value[2];
};

/// Ops::hyper_expand of one channel of a token, all four streams.
LOCKSTEP_DEVICE void spread(const Product& p, int token, int d, float y) {
  constexpr int kStreams = 4;
  const float* post = p.coefficients.data + token * p.coefficients.stride + kStreams;
  const float* comb = post + kStreams;
  float* at = p.streams.data + token * p.streams.stride + d;
  float before[kStreams];
#pragma unroll
  for (int q = 0; q < kStreams; ++q) before[q] = at[q * p.w.rows];
#pragma unroll
  for (int q = 0; q < kStreams; ++q) {
    float sum = post[q] * y;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) sum = fma_f32(comb[j * kStreams + q], before[j], sum);
    at[q * p.w.rows] = sum;
  }
}

/// Rows and chunk of a step.
struct ThinPlace {
  int part = 0, row = 0, chunk = 0;
};

/// `thread_blocks` of them deal out the units of the list, each of S::rows rows, in turn.
template <int kColumnBlocks, int kTokenTiles>
LOCKSTEP_KERNEL void LOCKSTEP_BOUNDS(kThreads, 1)
    thin_matmul_kernel(LOCKSTEP_PARAMETER ProductList list, int thread_blocks) {
  using S = Thin<kColumnBlocks, kTokenTiles>;
  LOCKSTEP_DYNAMIC_SHARED(SharedBytes, thin_shared);
  auto& shared = *reinterpret_cast<typename S::Shared*>(thin_shared);
  let_next_launch_begin();
  const int t = thread_index(), warp = t / kWarp, column = warp % kColumns, half = warp / kColumns;
  const int group = lane_index() / 4, quad = lane_index() % 4;
  const int width = list.part[0].w.width, tokens = list.part[0].out.rows;
  const int chunks = width / (S::blocks * kBlock), units = list.first_block[list.count];
  const int steps = (units - block_x() + thread_blocks - 1) / thread_blocks * chunks;
  const auto place_of = [&](int step) {
    const int unit = block_x() + step / chunks * thread_blocks;
    int part = 0;
    while (part + 1 < list.count && unit >= list.first_block[part + 1]) ++part;
    return ThinPlace{part, (unit - list.first_block[part]) * S::rows, step % chunks};
  };
  /// Rows beyond the last are the last one again.
  const auto row_at = [&](const ThinPlace& place, int row) {
    const Matrix& w = list.part[place.part].w;
    return w.data + static_cast<std::int64_t>(min(place.row + row, w.rows - 1)) * w.row_bytes;
  };
  const auto begin_row_scales = [&](const ThinPlace& place, int buffer) {
    constexpr int kUnits = S::blocks / 8;
    const int row = t / kUnits, unit = t % kUnits;
    copy16(&shared.row_scales[buffer][row][unit * 8],
           row_at(place, row) + width + place.chunk * (S::blocks * 2) + unit * 16);
  };
  // What is asked for: kAhead blocks of a step, the first part or the second; of rows `group` and `group + 8` of a
  // tile.
  const std::uint8_t* source[S::part_tiles][2];
  const auto aim = [&](const ThinPlace& place, int part) {
    const int offset = place.chunk * (S::blocks * kBlock) + quad * 8 + (column + S::first_block(part)) * kBlock;
#pragma unroll
    for (int i = 0; i < S::part_tiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        source[i][h] = row_at(place, S::row_of(part, i, half) + h * (kTileRows / 2) + group) + offset;
  };
  Words2 held[kAhead][2];
  const auto load = [&](int i) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      load_once(held[i][h], source[i / kColumnBlocks][h] + i % kColumnBlocks * (S::lanes * kBlock));
  };
  // Blocks of the activations that a part of a step reads, from value `from` of each row on.
  const auto load_tokens = [&](const Product& p, int from, int part) {
    constexpr int kBlocks = S::blocks / S::token_parts;
    const auto x_row = [&](int token) {
      return static_cast<std::int64_t>(min(token, tokens - 1)) * p.rounded.stride + from;
    };
    const auto block_at = [&](int i) {
      return S::has_two ? i / kColumns * S::lanes + part * kColumns + i % kColumns : i;
    };
#pragma unroll 2
    for (int i = t; i < S::tokens * kBlocks * 2; i += kThreads) {
      const int token = i / (kBlocks * 2), unit = block_at(i / 2 % kBlocks) * 2 + i % 2;
      copy16(shared.codes[token] + unit * 16, p.rounded.codes + x_row(token) + unit * 16);
    }
#pragma unroll 2
    for (int i = t; i < S::tokens * kBlocks; i += kThreads) {
      const int token = i / kBlocks, block = block_at(i % kBlocks);
      copy4(&shared.scales[block][token], p.rounded.scales + x_row(token) / kBlock + block);
    }
    end_copy_group();
  };

  ThinPlace now = place_of(0);
  begin_row_scales(now, 0);
  aim(now, 0);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i);
  wait_for_launch_before();
  int held_from = -1;  // column of the input from which the activations in shared memory are
  float total[S::outputs];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const Product& p = list.part[now.part];
    const bool has_next = step + 1 < steps;
    const ThinPlace next = has_next ? place_of(step + 1) : now;
    const int from = (p.rows_a_group > 0 ? now.row / p.rows_a_group * width : 0) + now.chunk * (S::blocks * kBlock);
    const bool is_new = from != held_from;
    held_from = from;
    if (is_new)
      for (int part = 0; part < S::token_parts; ++part) load_tokens(p, from, part);
    if (has_next) begin_row_scales(next, (step + 1) % 2);
    end_copy_group();
    if (is_new) {
      wait_for_copies<S::token_parts>();
      block_barrier();
    }
    float lane[kTokenTiles][4], sum[kTokenTiles][4];
#pragma unroll 1
    for (int part = 0; part < kStepParts; ++part) {
      const bool has_more = part + 1 < kStepParts || has_next;
      if (part + 1 < kStepParts)
        aim(now, part + 1);
      else if (has_next)
        aim(next, 0);
      if (S::token_parts > 1 && part > 0 && is_new) {
        wait_for_copies<1>();
        block_barrier();
      }
      const int first_row = S::row_of(part, 0, half) + group, first_block = column + S::first_block(part);
      const std::uint16_t* const row_scales = &shared.row_scales[step % 2][first_row][first_block];
      const std::uint8_t* const codes = shared.codes[group] + first_block * kBlock + quad * 8;
      const float* const x_scales = &shared.scales[first_block][quad * 2];
      float* const to = &shared.columns[step % S::buffers][column][quad * 2][first_row];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        // Rows of tiles and blocks of lanes are so far apart.
        const int j = i % kColumnBlocks, row = i / kColumnBlocks * (kGroups * kTileRows), block = j * S::lanes;
        warp_barrier();  // or operands of later blocks are loaded until registers spill
        const Words2 low = held[i][0], high = held[i][1];
        const std::uint32_t a[4] = {low.word[0], high.word[0], low.word[1], high.word[1]};
        if (has_more) load(i);
        const float scale[2] = {widen_f16(row_scales[row * S::scale_pitch + block]),
                                widen_f16(row_scales[(row + kTileRows / 2) * S::scale_pitch + block])};
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          const auto b = *reinterpret_cast<const Words2*>(codes + n * kTileTokens * S::code_pitch + block * kBlock);
          const auto x_scale = *reinterpret_cast<const Floats2*>(x_scales + block * S::token_pitch + n * kTileTokens);
          int dot[4] = {};  // a conversion is cheaper here than taking kMagic off
          add_multiply32(dot, a, b.word[0], b.word[1]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float term = static_cast<float>(dot[e]) * scale[e / 2];
            lane[n][e] = fma_f32(term, x_scale.value[e % 2], j == 0 ? 0.0f : lane[n][e]);
          }
        }
        if ((i + 1) % S::lane_blocks == 0) {
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              sum[n][e] = S::has_two && part > 0 ? sum[n][e] + lane[n][e] : lane[n][e];
              if (!S::has_two || part > 0)
                to[(n * kTileTokens + e % 2) * S::row_pitch + row + e / 2 * (kTileRows / 2)] = sum[n][e];
            }
        }
      }
    }
    wait_for_copies<0>();
    block_barrier();
#pragma unroll
    for (int k = 0; k < S::outputs; ++k) {
      const int i = t + k * kThreads, row = i % S::rows, token = i / S::rows;
      if (token >= tokens) break;
      float chunk_sum = shared.columns[step % S::buffers][0][token][row];
#pragma unroll
      for (int c = 1; c < kColumns; ++c) chunk_sum = chunk_sum + shared.columns[step % S::buffers][c][token][row];
      total[k] = now.chunk == 0 ? chunk_sum : total[k] + chunk_sum;
      if (now.chunk + 1 < chunks || now.row + row >= p.w.rows) continue;
      if (p.streams.data != nullptr)
        spread(p, token, now.row + row, total[k]);
      else
        p.out.data[token * p.out.stride + now.row + row] = total[k];
    }
    if (S::buffers == 1) block_barrier();
    now = next;
  }
}

template <int kColumnBlocks, int kTokenTiles>
void start(Runtime& runtime, const Product* products, int count) {
  using S = Thin<kColumnBlocks, kTokenTiles>;
  const ProductList list = list_of(products, count, S::rows);
  const int thread_blocks =
      list.first_block[count] < runtime.multiprocessors() ? list.first_block[count] : runtime.multiprocessors();
  launch(runtime, thin_matmul_kernel<kColumnBlocks, kTokenTiles>, {static_cast<unsigned>(thread_blocks)}, kThreads,
         sizeof(typename S::Shared), list, thread_blocks);
}

/// body.operator()<kColumnBlocks>() of a row's chunks; nothing if there is no kernel for such rows.
template <class Body>
bool with_column_blocks(int width, const Body& body) {
  if (width % kChunk == 0) return body.template operator()<16>();
  if (width == kChunk / 2) return body.template operator()<8>();
  if (width == kChunk / 4) return body.template operator()<4>();
  return false;
}

/// Token tiles of a launch: as many as there are, of what the device has the shared memory for; 0 if none.
template <int kColumnBlocks>
int token_tiles_of(const Runtime& runtime, int tokens) {
  const auto fits = [&]<int kTiles>() {
    return sizeof(typename Thin<kColumnBlocks, kTiles>::Shared) <= runtime.most_shared_bytes();
  };
  if (tokens > 2 * kTileTokens && fits.template operator()<4>()) return 4;
  if (tokens > kTileTokens && fits.template operator()<2>()) return 2;
  return fits.template operator()<1>() ? 1 : 0;
}

template <int kColumnBlocks>
void allow(Runtime& runtime) {
  const auto one = [&]<int kTiles>() {
    runtime.allow_shared(reinterpret_cast<const void*>(&thin_matmul_kernel<kColumnBlocks, kTiles>),
                         sizeof(typename Thin<kColumnBlocks, kTiles>::Shared));
  };
  one.template operator()<1>();
  one.template operator()<2>();
  one.template operator()<4>();
}

/// The same product of tokens [first, first + n).
Product tokens_of(Product p, int first, int n) {
  p.rounded = p.rounded.from(first, n);
  p.out = p.out.from(first, n);
  if (p.streams.data != nullptr) {
    p.streams = p.streams.from(first, n);
    p.coefficients = p.coefficients.from(first, n);
  }
  return p;
}

}  // namespace

bool can_thin(const Runtime& runtime, DType dtype, const Product* products, int count) {
  // Up to four tokens the matrix-vector kernel reads small matrices once as well, and begins sooner.
  constexpr int kFewest = 2, kMost = 64, kOnce = 4;
  constexpr std::int64_t kSmall = std::int64_t{1} << 24;  // values
  const int tokens = products[0].out.rows, width = products[0].w.width;
  if (dtype != DType::q8_0 || tokens < kFewest || tokens > kMost) return false;
  std::int64_t values = 0;
  for (int i = 0; i < count; ++i) values += static_cast<std::int64_t>(products[i].w.rows) * width;
  if (tokens <= kOnce && values < kSmall) return false;
  return with_column_blocks(width, [&]<int kColumnBlocks>() {
    for (int i = 0; i < count; ++i)
      if (products[i].expert != nullptr || products[i].x_share != 1 ||
          products[i].rows_a_group % Thin<kColumnBlocks, 1>::rows != 0)
        return false;
    return token_tiles_of<kColumnBlocks>(runtime, tokens) > 0;
  });
}

void multiply_thin(Runtime& runtime, const Product* products, int count) {
  const int tokens = products[0].out.rows;
  with_column_blocks(products[0].w.width, [&]<int kColumnBlocks>() {
    for (int first = 0; first < tokens;) {
      const int token_tiles = token_tiles_of<kColumnBlocks>(runtime, tokens - first);
      const int most = token_tiles * kTileTokens, n = tokens - first < most ? tokens - first : most;
      Product part[kMostParts];
      for (int i = 0; i < count; ++i) part[i] = tokens_of(products[i], first, n);
      if (token_tiles == 4)
        start<kColumnBlocks, 4>(runtime, part, count);
      else if (token_tiles == 2)
        start<kColumnBlocks, 2>(runtime, part, count);
      else
        start<kColumnBlocks, 1>(runtime, part, count);
      first += n;
    }
    return true;
  });
}

void prepare_thin(Runtime& runtime) {
  allow<16>(runtime);
  allow<8>(runtime);
  allow<4>(runtime);
}

#else

bool can_thin(const Runtime&, DType, const Product*, int) { return false; }
void multiply_thin(Runtime&, const Product*, int) { LOCKSTEP_CHECK(!"no kernel for this device"); }
void prepare_thin(Runtime&) {}

#endif

}  // namespace lockstep::gpu
