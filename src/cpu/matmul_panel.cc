// Quantised rows times many tokens: rows lie across a register, so nothing is ever reduced across elements.
//
// A panel is kPanelVectors registers of rows and one chunk of their values, unpacked once for a strip of tokens into
// records of one block: byte levels [8][vectors][rows][4 values], then float vectors of the block's terms. Records are
// stored in the order in which the law's fold meets the blocks (column, lane of the column, block of the lane), so that
// a tile of tokens keeps one lane sum in registers and one column and one total in memory.
//
// A dot starts at the bits of 12582912 less the offset's correction, so that its bits are the float 12582912 + I and no
// conversion is needed: t = fma(bits, scale, -12582912 * scale), with both products exact (scale has at most 17 bits).
// It gives +0 where I * scale would be -0, which shows only beside a lane of -0; lanes cannot be -0 with these formats'
// negative scales, because a term is 0 or at least 2^-27 and an activation scale 0 or at least 2^-125 - and where the
// product could vanish all the same (IQ2, IQ3), the plain form is used.
//
// Cost a block and register of rows: 8 dots and 2 fmas for 32 values; AVX-512 does two a cycle.
#include "cpu/formats.h"
#include "cpu/kernels.h"
#include "numerics/order.h"

namespace lockstep::cpu {
namespace {

constexpr int kPanelVectors = 2;
constexpr int kRows = kPanelVectors * kWide;
static_assert(kRows <= kPanelRows);
constexpr float kMagic = 12582912.0f;
constexpr std::int32_t kMagicBits = 0x4b400000;
constexpr int kChunkBlocks = kChunk / 32;

/// What a kernel must know of a format.
template <class Format>
struct KindOf {
  static constexpr Term kTerm = Format::kTerm;
  static constexpr Min kMin = Format::kMin;
  static constexpr bool kSigned = Format::kSigned && !kSignedNeedsOffset;
  static constexpr bool kPlain = Format::kGrid != Grid::none;  // no fusing of the conversion
};
template <Term kTerm_, Min kMin_, bool kSigned_, bool kPlain_>
struct Kind {
  static constexpr Term kTerm = kTerm_;
  static constexpr Min kMin = kMin_;
  static constexpr bool kSigned = kSigned_;
  static constexpr bool kPlain = kPlain_;
};
template <class Format>
using PanelKind = Kind<KindOf<Format>::kTerm, KindOf<Format>::kMin, KindOf<Format>::kSigned, KindOf<Format>::kPlain>;

// Float vectors of a record.
constexpr int kScale = 0;   // scale
constexpr int kStart = 1;   // -12582912 * scale
constexpr int kSecond = 2;  // dual, sub: second scale; Min::one: the minimum; Min::two: both minima as int16
constexpr int kFactor = 3;  // sub: factor; Min::two: the factor of the minima
template <class K>
inline constexpr int kVectorsOf = K::kTerm == Term::sub || K::kMin == Min::two    ? 4
                                  : K::kTerm == Term::dual || K::kMin == Min::one ? 3
                                                                                  : 2;
constexpr int kLevelBytes = 8 * kPanelVectors * kWide * 4;
constexpr int kVectorBytes = kPanelVectors * kWide * 4;
template <class K>
inline constexpr int kRecordBytesOf = kLevelBytes + kVectorsOf<K>* kVectorBytes;
constexpr int kMaxRecordBytes = kLevelBytes + 4 * kVectorBytes;

/// What a tile of tokens brings to a block. Tiles are stored in the panel's order too: the kernel reads two streams.
struct alignas(32) TileBlock {
  std::int8_t codes[kTileTokens][32];
  std::int32_t start[2][kTileTokens];  // bits that a dot starts at, of both halves (or [0] of the whole block)
  float scale[kTileTokens];
  std::uint32_t sum[kTileTokens];  // Min::one: minus the sum of the codes, a float; Min::two: both sums, as int16
};

/// Places of a chunk's blocks in the order of the panel.
struct Walk {
  int blocks, lanes;
  std::int16_t place[kChunkBlocks];
};
inline Walk walk_of(int length) {
  Walk walk;
  walk.blocks = length / 32;
  walk.lanes = length >= 4096 ? 16 : 8;  // block_lanes_of(length)
  std::int16_t place = 0;
  for (int c = 0; c < 8; ++c)
    for (int l = c; l < walk.lanes; l += 8)
      for (int b = l; b < walk.blocks; b += walk.lanes) walk.place[b] = place++;
  return walk;
}

template <class Format>
void prepare_tile(const MatmulCall& call, int first_token, int tokens, int first_block, const Walk& walk,
                  TileBlock* tile) {
  for (int t = 0; t < kTileTokens; ++t) {
    const int row = call.in_rows[first_token + (t < tokens ? t : tokens - 1)];
    const std::int8_t* codes = call.codes + row * call.codes_stride + 32 * first_block;
    const float* scales = call.scales + row * (call.codes_stride / 32) + first_block;
    const std::int16_t* sums = call.half_sums + row * (call.codes_stride / 16) + 2 * first_block;
    for (int b = 0; b < walk.blocks; ++b) {
      TileBlock& to = tile[walk.place[b]];
      store32(to.codes[t], load32(codes + 32 * b));
      const std::int32_t s0 = sums[2 * b], s1 = sums[2 * b + 1];
      const bool joined = Format::kTerm == Term::single;
      to.start[0][t] = kMagicBits - kByteOffset<Format> * (joined ? s0 + s1 : s0);
      to.start[1][t] = kMagicBits - kByteOffset<Format> * s1;
      to.scale[t] = scales[b];
      if constexpr (Format::kMin == Min::two) {
        to.sum[t] = static_cast<std::uint16_t>(-s0) | static_cast<std::uint32_t>(static_cast<std::uint16_t>(-s1)) << 16;
      } else if constexpr (Format::kMin == Min::one) {
        to.sum[t] = __builtin_bit_cast(std::uint32_t, static_cast<float>(-(s0 + s1)));
      }
    }
  }
}

/// Writes 16 values of kWide rows, at from + row * 256, to four consecutive k of a record: a transposition of 32-bit
/// elements.
LOCKSTEP_INLINE void interleave16(const std::byte* from, std::byte* to) {
  Ints a[4];
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int r) __attribute__((always_inline)) { return load16(from + 256 * (i + 4 * r)); };
#if LOCKSTEP_AVX512
    a[i] = _mm512_inserti32x4(
        _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(row(0)), row(1), 1), row(2), 2), row(3), 3);
#else
    a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(row(0)), row(1), 1);
#endif
  }
#if LOCKSTEP_AVX512
#define LOCKSTEP_WIDE(op) _mm512_##op
#define LOCKSTEP_STORE(p, x) _mm512_store_si512(p, x)
#else
#define LOCKSTEP_WIDE(op) _mm256_##op
#define LOCKSTEP_STORE(p, x) _mm256_store_si256(reinterpret_cast<__m256i*>(p), x)
#endif
  const Ints ab = LOCKSTEP_WIDE(unpacklo_epi32)(a[0], a[1]), ab2 = LOCKSTEP_WIDE(unpackhi_epi32)(a[0], a[1]);
  const Ints cd = LOCKSTEP_WIDE(unpacklo_epi32)(a[2], a[3]), cd2 = LOCKSTEP_WIDE(unpackhi_epi32)(a[2], a[3]);
  LOCKSTEP_STORE(to, LOCKSTEP_WIDE(unpacklo_epi64)(ab, cd));
  LOCKSTEP_STORE(to + kVectorBytes, LOCKSTEP_WIDE(unpackhi_epi64)(ab, cd));
  LOCKSTEP_STORE(to + 2 * kVectorBytes, LOCKSTEP_WIDE(unpacklo_epi64)(ab2, cd2));
  LOCKSTEP_STORE(to + 3 * kVectorBytes, LOCKSTEP_WIDE(unpackhi_epi64)(ab2, cd2));
#undef LOCKSTEP_WIDE
#undef LOCKSTEP_STORE
}

/// Writes element b of kWide rows of eight floats to to + b * stride, for eight b.
LOCKSTEP_INLINE void transpose_terms(const float* rows, __m256 (&columns)[8]) {
  __m256 r[8];
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half)
      r[i + 4 * half] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(rows + 8 * i + 4 * half)),
                                             _mm_load_ps(rows + 8 * (i + 4) + 4 * half), 1);
  for (int half = 0; half < 2; ++half) {
    const __m256 a = _mm256_unpacklo_ps(r[4 * half], r[4 * half + 1]),
                 b = _mm256_unpackhi_ps(r[4 * half], r[4 * half + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[4 * half + 2], r[4 * half + 3]);
    const __m256 d = _mm256_unpackhi_ps(r[4 * half + 2], r[4 * half + 3]);
    columns[4 * half] = _mm256_shuffle_ps(a, c, 0x44);
    columns[4 * half + 1] = _mm256_shuffle_ps(a, c, 0xee);
    columns[4 * half + 2] = _mm256_shuffle_ps(b, d, 0x44);
    columns[4 * half + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
}

/// Unpacks a chunk of rows [first_row, first_row + kRows) into a panel. Rows past the last are copies of it.
template <class Format>
void fill_panel(const MatmulCall& call, int first_row, int chunk_begin, const Walk& walk, const std::byte* grid,
                std::byte* panel) {
  using K = PanelKind<Format>;
  constexpr int kRecordBytes = kRecordBytesOf<K>;
  constexpr bool kHasSecond = Format::kTerm != Term::single;
  for (int first = 0; first < walk.blocks; first += 8) {
    const int count = walk.blocks - first < 8 ? walk.blocks - first : 8;
    std::byte* records[8];
    for (int b = 0; b < count; ++b)
      records[b] = panel + static_cast<std::ptrdiff_t>(walk.place[first + b]) * kRecordBytes;
    for (int v = 0; v < kPanelVectors; ++v) {
      alignas(64) std::byte bytes[kWide][kSuperblock];
      alignas(64) float vectors[4][kWide][8];
      for (int r = 0; r < kWide; ++r) {
        const int wanted = first_row + v * kWide + r;
        const int row = wanted < call.end ? wanted : call.end - 1;
        const std::byte* p = call.plane + static_cast<std::size_t>(row) * call.row_bytes +
                             static_cast<std::size_t>(chunk_begin / kSuperblock + first / 8) * Format::kBytes;
        for (int line = 0; line < Format::kBytes; line += 64)  // the row's next superblock
          _mm_prefetch(reinterpret_cast<const char*>(p) + Format::kBytes + line, _MM_HINT_T0);
        alignas(64) std::byte copy[kMaxSpan];
        p = readable<Format>(p, count, call.plane_end, copy);
        Bytes64 levels[4];
        Terms terms;
        Format::unpack(p, grid, levels, terms);
        for (int i = 0; i < 4; ++i) store64(bytes[r] + 64 * i, as_unsigned<Format::kSigned>(levels[i]));
        _mm256_store_ps(vectors[kScale][r], terms.scale);
        if constexpr (kHasSecond) _mm256_store_ps(vectors[kSecond][r], terms.second);
        if constexpr (Format::kTerm == Term::sub) _mm256_store_ps(vectors[kFactor][r], terms.factor);
        if constexpr (Format::kMin == Min::one) _mm256_store_ps(vectors[kSecond][r], terms.min);
        if constexpr (Format::kMin == Min::two) {
          _mm256_store_ps(vectors[kSecond][r], _mm256_castsi256_ps(terms.min_pairs));
          _mm256_store_ps(vectors[kFactor][r], terms.min_factor);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int group = Format::kGroup[i];
        if (group >= 2 * count) continue;
        interleave16(bytes[0] + 16 * i, records[group / 2] + 4 * (group % 2) * kVectorBytes + v * kWide * 4);
      }
      for (int which = 0; which < kVectorsOf<K>; ++which) {
        if (which == kStart) continue;
        for (int part = 0; part < kWide; part += 8) {
          __m256 columns[8];
          transpose_terms(vectors[which][part], columns);
          for (int b = 0; b < count; ++b) {
            float* to = reinterpret_cast<float*>(records[b] + kLevelBytes + which * kVectorBytes) + v * kWide + part;
            _mm256_store_ps(to, columns[b]);
            if (which == kScale) _mm256_store_ps(to + kRows, _mm256_mul_ps(columns[b], _mm256_set1_ps(-kMagic)));
          }
        }
      }
    }
  }
}

/// Adds the terms of one block to the lane sums of a tile.
template <class K, int kTokens>
LOCKSTEP_INLINE void add_block(const std::byte* record, const TileBlock& tile, Floats (&lane)[kTokens][kPanelVectors]) {
  const std::byte* vectors = record + kLevelBytes;
  const auto vector = [&](int which, int v) __attribute__((always_inline)) {
    return load_floats(vectors + which * kVectorBytes + v * kWide * 4);
  };
  Ints dot[kTokens][kPanelVectors];
  const auto multiply_from = [&](int half, int k_begin, int k_end) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < kPanelVectors; ++v) dot[t][v] = set_ints(tile.start[half][t]);
#pragma GCC unroll 8
    for (int k = k_begin; k < k_end; ++k) {
      Ints weights[kPanelVectors];
      for (int v = 0; v < kPanelVectors; ++v) weights[v] = load_ints(record + k * kVectorBytes + v * kWide * 4);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const Ints code = set_ints(static_cast<std::int32_t>(load_u32(tile.codes[t] + 4 * k)));
        for (int v = 0; v < kPanelVectors; ++v) dot[t][v] = dot4<K::kSigned>(dot[t][v], weights[v], code);
      }
    }
  };
  const Floats magic = set_floats(kMagic);
  if constexpr (K::kTerm == Term::single) {
    multiply_from(0, 0, 8);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Floats scale = set_floats(tile.scale[t]);
      for (int v = 0; v < kPanelVectors; ++v) {
        const Floats bits = bits_as_floats(dot[t][v]);
        Floats term = K::kPlain ? multiply(subtract(bits, magic), vector(kScale, v))
                                : fma(bits, vector(kScale, v), vector(kStart, v));
        if constexpr (K::kMin == Min::one)
          term = fma(bits_as_floats(set_ints(static_cast<std::int32_t>(tile.sum[t]))), vector(kSecond, v), term);
        if constexpr (K::kMin == Min::two) {
          const Ints min = dot2(load_ints(vectors + kSecond * kVectorBytes + v * kWide * 4),
                                set_ints(static_cast<std::int32_t>(tile.sum[t])));
          term = fma(to_floats(min), vector(kFactor, v), term);
        }
        lane[t][v] = fma(term, scale, lane[t][v]);
      }
    }
  } else {
    Floats first[kTokens][kPanelVectors];
    multiply_from(0, 0, 4);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < kPanelVectors; ++v)
        first[t][v] = fma(bits_as_floats(dot[t][v]), vector(kScale, v), vector(kStart, v));
    multiply_from(1, 4, 8);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Floats scale = set_floats(tile.scale[t]);
      for (int v = 0; v < kPanelVectors; ++v) {
        Floats term = fma(subtract(bits_as_floats(dot[t][v]), magic), vector(kSecond, v), first[t][v]);
        if constexpr (K::kTerm == Term::sub) term = multiply(term, vector(kFactor, v));
        lane[t][v] = fma(term, scale, lane[t][v]);
      }
    }
  }
}

/// The sums of one chunk for kTokens tokens and all rows of a panel, stored to total[token][row].
template <class K, int kTokens>
void sum_chunk(const std::byte* panel, const Walk& walk, const TileBlock* tile, float (*total)[kRows]) {
  constexpr int kRecordBytes = kRecordBytesOf<K>;
  alignas(64) float column[kTokens][kRows];
  const std::byte* record = panel;
  for (int c = 0; c < 8; ++c) {
    for (int l = c; l < walk.lanes; l += 8) {
      Floats lane[kTokens][kPanelVectors];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        for (int v = 0; v < kPanelVectors; ++v) lane[t][v] = zero_floats();
      for (int b = l; b < walk.blocks; b += walk.lanes, record += kRecordBytes, ++tile)
        add_block<K, kTokens>(record, *tile, lane);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        for (int v = 0; v < kPanelVectors; ++v) {
          float* at = column[t] + v * kWide;
          store_floats(at, l == c ? lane[t][v] : add(load_floats(at), lane[t][v]));
        }
    }
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < kPanelVectors; ++v) {
        float* at = total[t] + v * kWide;
        const Floats sum = load_floats(column[t] + v * kWide);
        store_floats(at, c == 0 ? sum : add(load_floats(at), sum));
      }
  }
}

constexpr std::size_t kPanelBytes = static_cast<std::size_t>(kChunkBlocks) * kMaxRecordBytes;

template <class Format>
void multiply(const MatmulCall& call) {
  using K = PanelKind<Format>;
  std::byte* grid = call.scratch;
  std::byte* panel = grid + kGridBytes;
  TileBlock* tiles = reinterpret_cast<TileBlock*>(panel + kPanelBytes);
  setup_grid(Format::kGrid, grid);
  for (int strip = 0; strip < call.tokens; strip += kPanelStrip) {
    const int strip_tokens = call.tokens - strip < kPanelStrip ? call.tokens - strip : kPanelStrip;
    for (int chunk = 0; chunk < call.width; chunk += kChunk) {
      const Walk walk = walk_of(call.width - chunk < kChunk ? call.width - chunk : kChunk);
      for (int t = 0; t < strip_tokens; t += kTileTokens)
        prepare_tile<Format>(call, strip + t, strip_tokens - t, chunk / 32, walk,
                             tiles + t / kTileTokens * kChunkBlocks);
      for (int row = call.begin; row < call.end; row += kRows) {
        const int rows = call.end - row < kRows ? call.end - row : kRows;
        fill_panel<Format>(call, row, chunk, walk, grid, panel);
        for (int t = 0; t < strip_tokens; t += kTileTokens) {
          const int tokens = strip_tokens - t < kTileTokens ? strip_tokens - t : kTileTokens;
          alignas(64) float total[kTileTokens][kRows];
          const TileBlock* tile = tiles + t / kTileTokens * kChunkBlocks;
          if (tokens > 4) {
            sum_chunk<K, kTileTokens>(panel, walk, tile, total);
          } else if (tokens > 2) {
            sum_chunk<K, 4>(panel, walk, tile, total);
          } else {
            sum_chunk<K, 2>(panel, walk, tile, total);
          }
          for (int i = 0; i < tokens; ++i) {
            float* out = call.out + call.out_rows[strip + t + i] * call.out_stride + row;
            for (int r = 0; r < rows; ++r) out[r] = chunk == 0 ? total[i][r] : out[r] + total[i][r];
          }
        }
      }
    }
  }
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
void matmul_panel(const MatmulCall& call) {
  if (call.dtype == DType::q2_k) return multiply<UnpackQ2KScaled>(call);
  with_format(
      call.dtype, [&]<class Format>() __attribute__((always_inline)) { multiply<Format>(call); });
}
}  // namespace LOCKSTEP_CPU_LEVEL
}  // namespace lockstep::cpu
