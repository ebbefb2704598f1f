// Float rows times tokens.
//
// Few tokens: a dot each; the row comes from memory once and from a cache for the other tokens.
//
// Many tokens: as in matmul_panel.cc rows lie across registers. A panel holds one column of a chunk (the lanes c, c +
// 8, ..) widened to f32, and both panel and tile store their values in the order in which the law adds them: lane,
// place of the octet, octet. So every partial sum is a chain of fmas in a register, and a tile has 12 chains, enough to
// hide the latency of an fma. Cost: a value of a register of rows and a token is one fma; filling a panel costs about
// half a cycle a value and is shared by the tokens of a strip.
#include "cpu/float_dot.h"
#include "cpu/kernels.h"

namespace lockstep::cpu {
namespace {

constexpr int kPanelVectors = 2;
constexpr int kRows = kPanelVectors * kWide;
static_assert(kRows <= kPanelRows);

/// The shape of a chunk: what each lane holds.
struct Chunk {
  int begin, length, lanes;

  explicit Chunk(int begin_, int width) : begin(begin_) {
    length = width - begin < kChunk ? width - begin : kChunk;
    lanes = length >= 4096 ? 32 : length >= 2048 ? 16 : 8;  // octet_lanes_of(length)
  }
  /// Octets of a lane that have a value in a place.
  int octets(int lane, int place) const {
    const int count = (length - place + 7) / 8;  // octets of the chunk with that place
    return lane < count ? (count - lane + lanes - 1) / lanes : 0;
  }
  int steps(int column) const {
    int sum = 0;
    for (int l = column; l < lanes; l += 8)
      for (int place = 0; place < 8; ++place) sum += octets(l, place);
    return sum;
  }
};

/// Values of a tile's tokens, [step][token], all columns of the chunk one after the other.
void prepare_tile(const MatmulCall& call, const Chunk& chunk, int first_token, int tokens, float* to) {
  const float* x[kTileTokens];
  for (int t = 0; t < kTileTokens; ++t)
    x[t] = call.values + call.in_rows[first_token + (t < tokens ? t : tokens - 1)] * call.values_stride + chunk.begin;
  for (int c = 0; c < 8; ++c)
    for (int l = c; l < chunk.lanes; l += 8)
      for (int place = 0; place < 8; ++place) {
        const int count = chunk.octets(l, place);
        for (int i = 0; i < count; ++i, to += kTileTokens)
          for (int t = 0; t < kTileTokens; ++t) to[t] = x[t][8 * (l + chunk.lanes * i) + place];
      }
}

/// Rows and columns of eight by eight floats exchanged.
LOCKSTEP_INLINE void transpose8(__m256 (&r)[8]) {
  __m256 s[8];
  for (int i = 0; i < 4; ++i) {
    s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  for (int half = 0; half < 8; half += 4) {
    const __m256 a = _mm256_unpacklo_ps(s[half], s[half + 1]), b = _mm256_unpackhi_ps(s[half], s[half + 1]);
    const __m256 c = _mm256_unpacklo_ps(s[half + 2], s[half + 3]), d = _mm256_unpackhi_ps(s[half + 2], s[half + 3]);
    r[half] = _mm256_shuffle_ps(a, c, 0x44);
    r[half + 1] = _mm256_shuffle_ps(a, c, 0xee);
    r[half + 2] = _mm256_shuffle_ps(b, d, 0x44);
    r[half + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
}

/// One column of a chunk of kRows rows, [step][row]. Rows past the last are copies of it.
template <class Row>
void fill_panel(const MatmulCall& call, const Chunk& chunk, int first_row, int column, float* panel) {
  for (int l = column; l < chunk.lanes; l += 8) {
    float* place_begin[8];
    for (int place = 0; place < 8; ++place) {
      place_begin[place] = panel;
      panel += chunk.octets(l, place) * kRows;
    }
    const int octets = chunk.octets(l, 0);
    for (int first = 0; first < kRows; first += 8) {
      Row rows[8];
      for (int r = 0; r < 8; ++r) {
        const int wanted = first_row + first + r;
        rows[r] = {call.plane + static_cast<std::size_t>(wanted < call.end ? wanted : call.end - 1) * call.row_bytes};
      }
      for (int i = 0; i < octets; ++i) {
        const int k = 8 * (l + chunk.lanes * i);
        if (k + 8 <= chunk.length) {
          __m256 values[8];
          for (int r = 0; r < 8; ++r) values[r] = rows[r].eight(chunk.begin + k);
          transpose8(values);
          for (int place = 0; place < 8; ++place)
            _mm256_storeu_ps(place_begin[place] + i * kRows + first, values[place]);
        } else {
          for (int place = 0; k + place < chunk.length; ++place)
            for (int r = 0; r < 8; ++r)
              place_begin[place][i * kRows + first + r] = rows[r].one(chunk.begin + k + place);
        }
      }
    }
  }
}

/// Adds the sum of one column to total[token][row], or begins it if the column is the first.
template <int kTokens>
void add_column(const float* panel, const float* tile, const Chunk& chunk, int column, float (*total)[kRows]) {
  alignas(64) float sum[kTokens][kRows];
  for (int l = column; l < chunk.lanes; l += 8) {
    Floats lane[kTokens][kPanelVectors];
    for (int place = 0; place < 8; ++place) {
      Floats partial[kTokens][kPanelVectors];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        for (int v = 0; v < kPanelVectors; ++v) partial[t][v] = zero_floats();
      const int count = chunk.octets(l, place);
      for (int i = 0; i < count; ++i, panel += kRows, tile += kTileTokens) {
        Floats weights[kPanelVectors];
        for (int v = 0; v < kPanelVectors; ++v) weights[v] = load_floats(panel + v * kWide);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const Floats x = set_floats(tile[t]);
          for (int v = 0; v < kPanelVectors; ++v) partial[t][v] = fma(weights[v], x, partial[t][v]);
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        for (int v = 0; v < kPanelVectors; ++v)
          lane[t][v] = place == 0 ? partial[t][v] : add(lane[t][v], partial[t][v]);
    }
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < kPanelVectors; ++v) {
        float* at = sum[t] + v * kWide;
        store_floats(at, l == column ? lane[t][v] : add(load_floats(at), lane[t][v]));
      }
  }
  for (int t = 0; t < kTokens; ++t)
    for (int v = 0; v < kPanelVectors; ++v) {
      float* at = total[t] + v * kWide;
      const Floats x = load_floats(sum[t] + v * kWide);
      store_floats(at, column == 0 ? x : add(load_floats(at), x));
    }
}

template <class Row>
void multiply_many(const MatmulCall& call) {
  float* panel = reinterpret_cast<float*>(call.scratch);                                      // a column of a chunk
  float(*total)[kRows] = reinterpret_cast<float(*)[kRows]>(panel + kChunk / 8 * kPanelRows);  // [strip][row]
  float* tiles = reinterpret_cast<float*>(total) + kFloatStrip * kPanelRows;
  for (int strip = 0; strip < call.tokens; strip += kFloatStrip) {
    const int strip_tokens = call.tokens - strip < kFloatStrip ? call.tokens - strip : kFloatStrip;
    for (int begin = 0; begin < call.width; begin += kChunk) {
      const Chunk chunk(begin, call.width);
      const std::ptrdiff_t tile_floats = static_cast<std::ptrdiff_t>(chunk.length) * kTileTokens;
      for (int t = 0; t < strip_tokens; t += kTileTokens)
        prepare_tile(call, chunk, strip + t, strip_tokens - t, tiles + t / kTileTokens * tile_floats);
      for (int row = call.begin; row < call.end; row += kRows) {
        std::ptrdiff_t column_begin = 0;
        for (int column = 0; column < 8; ++column) {
          fill_panel<Row>(call, chunk, row, column, panel);
          for (int t = 0; t < strip_tokens; t += kTileTokens) {
            const float* tile = tiles + t / kTileTokens * tile_floats + column_begin;
            const int tokens = strip_tokens - t;
            if (tokens > 4) {
              add_column<kTileTokens>(panel, tile, chunk, column, total + t);
            } else if (tokens > 2) {
              add_column<4>(panel, tile, chunk, column, total + t);
            } else {
              add_column<2>(panel, tile, chunk, column, total + t);
            }
          }
          column_begin += static_cast<std::ptrdiff_t>(chunk.steps(column)) * kTileTokens;
        }
        const int rows = call.end - row < kRows ? call.end - row : kRows;
        for (int t = 0; t < strip_tokens; ++t) {
          float* out = call.out + call.out_rows[strip + t] * call.out_stride + row;
          for (int r = 0; r < rows; ++r) out[r] = begin == 0 ? total[t][r] : out[r] + total[t][r];
        }
      }
    }
  }
}

template <class Row>
void multiply(const MatmulCall& call) {
  if (call.tokens > kMatvecTokens) return multiply_many<Row>(call);
  for (int r = call.begin; r < call.end; ++r) {
    const Row row{call.plane + static_cast<std::size_t>(r) * call.row_bytes};
    for (int t = 0; t < call.tokens; ++t)
      call.out[call.out_rows[t] * call.out_stride + r] =
          float_dot(row, call.values + call.in_rows[t] * call.values_stride, call.width);
  }
}

}  // namespace

namespace LOCKSTEP_CPU_LEVEL {
void matmul_float(const MatmulCall& call) {
  switch (call.dtype) {
    case DType::f32:
      return multiply<F32Row>(call);
    case DType::f16:
      return multiply<F16Row>(call);
    case DType::bf16:
      return multiply<Bf16Row>(call);
    default:
      return multiply<F8Row>(call);
  }
}
}  // namespace LOCKSTEP_CPU_LEVEL
}  // namespace lockstep::cpu
