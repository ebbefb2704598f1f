// The ROCmFP formats: small levels times a scale that is one byte, UE4M3 at half its value.
//
// There are 126 scales, so the best one is found by trying them, eight at a time, one a lane: each lane adds its errors
// in the order of the values, as the reference does, and ties go to the smaller byte, so the bytes are the reference's.
// What cannot win is left out: from the scale that just reaches the largest value, going down ends when clipping that
// value alone costs more than the best so far, and going up ends when the values that round to nothing do.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "tensor/quantise_parts.h"

namespace lockstep::quantise {
namespace {

struct Ue4m3 {
  alignas(32) float scale[128];
  alignas(32) float inverse[128];
};
constexpr Ue4m3 ue4m3_tables() {
  Ue4m3 tables{};
  for (int e = 1; e < 127; ++e) {
    tables.scale[e] = ue4m3_half_to_f32(static_cast<std::uint8_t>(e));
    tables.inverse[e] = 1.0f / tables.scale[e];
  }
  return tables;  // bytes 0 and 127 have the scale 0
}
constexpr Ue4m3 kUe4m3 = ue4m3_tables();
constexpr int kChunks = 16;  // of eight bytes
constexpr float kWorst = 3e38f;
constexpr float kMargin = 1.001f;  // more than rounding can take off a sum of 32 errors

LOCKSTEP_INLINE F8 with_sign_of(F8 magnitude, F8 q) { return q < 0.0f ? -magnitude : magnitude; }

/// Halves away from zero; |a| <= 127 and a >= 0.
LOCKSTEP_INLINE F8 round_away8(F8 a) {
  const F8 whole = __builtin_convertvector(__builtin_convertvector(a, I8), F8);
  return a - whole >= 0.5f ? whole + 1.0f : whole;
}

// A format's levels: `level` is the one nearest to q = x / scale. kUp and kDown are the largest positive and negative.
struct LevelsFp4 {
  static constexpr float kUp = 10, kDown = 10;
  static constexpr bool kHasZero = true;
  LOCKSTEP_INLINE static F8 level(F8 q) {
    const F8 a = abs8(q), zero = splat(0), one = splat(1), two = splat(2);
    return with_sign_of((a > 0.5f ? one : zero) + (a > 1.5f ? one : zero) + (a > 2.5f ? one : zero) +
                            (a > 3.5f ? one : zero) + (a > 5.0f ? two : zero) + (a > 7.0f ? two : zero) +
                            (a > 9.0f ? two : zero),
                        q);
  }
  LOCKSTEP_INLINE static unsigned code(int level) {
    const auto m = static_cast<unsigned>(level < 0 ? -level : level);
    return (m <= 4 ? m : m / 2 + 2) | (level < 0 ? 8u : 0u);
  }
};
struct LevelsFp3 {
  static constexpr float kUp = 4, kDown = 4;
  static constexpr bool kHasZero = true;
  LOCKSTEP_INLINE static F8 level(F8 q) {
    const F8 a = abs8(q), zero = splat(0), one = splat(1), two = splat(2);
    return with_sign_of((a > 0.5f ? one : zero) + (a > 1.5f ? one : zero) + (a > 3.0f ? two : zero), q);
  }
  LOCKSTEP_INLINE static unsigned code(int level) {
    const auto m = static_cast<unsigned>(level < 0 ? -level : level);
    return (m <= 2 ? m : 3u) | (level < 0 ? 4u : 0u);
  }
};
template <int kTop>
struct LevelsWhole {
  static constexpr float kUp = kTop, kDown = kTop;
  static constexpr bool kHasZero = true;
  LOCKSTEP_INLINE static F8 level(F8 q) { return with_sign_of(round_away8(min8(abs8(q), splat(kTop))), q); }
};
struct LevelsFp6 : LevelsWhole<31> {
  LOCKSTEP_INLINE static unsigned code(int level) {
    return static_cast<unsigned>(level < 0 ? -level : level) | (level < 0 ? 32u : 0u);
  }
};
struct LevelsFp8 : LevelsWhole<127> {
  LOCKSTEP_INLINE static unsigned code(int level) { return static_cast<unsigned>(level) & 255u; }
};
struct LevelsFp2 {
  static constexpr float kUp = 2, kDown = 1;
  static constexpr bool kHasZero = true;
  LOCKSTEP_INLINE static F8 level(F8 q) {
    const F8 zero = splat(0), one = splat(1);
    return (q > -0.5f ? one : zero) + (q > 0.5f ? one : zero) + (q > 1.5f ? one : zero) - 1.0f;
  }
  LOCKSTEP_INLINE static unsigned code(int level) { return static_cast<unsigned>(level + 1); }
};
struct LevelsS40 {
  static constexpr float kUp = 4, kDown = 4;
  static constexpr bool kHasZero = false;
  LOCKSTEP_INLINE static F8 level(F8 q) { return with_sign_of(abs8(q) > 2.5f ? splat(4) : splat(1), q); }
  LOCKSTEP_INLINE static unsigned code(int level) { return level < -1 ? 0u : level < 0 ? 1u : level < 2 ? 2u : 3u; }
};

struct Best {
  int byte = 1;
  float error = kWorst;
};

/// Takes a chunk's best lane, the lowest of equal ones, if it beats `best` or has the same error at a smaller byte.
LOCKSTEP_INLINE void take(Best& best, F8 error, int chunk) {
  for (int i = 0; i < 8; ++i) {
    const int byte = 8 * chunk + i;
    if (error[i] < best.error || (error[i] == best.error && byte < best.byte)) best = {byte, error[i]};
  }
}

/// The byte of the largest scale that is not above `scale`, at least 1.
LOCKSTEP_INLINE int byte_below(float scale) {
  int low = 1, high = 127;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (kUe4m3.scale[middle] <= scale ? low : high) = middle;
  }
  return low;
}

/// The scale byte of a group, by search; 0 for a group of zeros.
template <class Levels, int kCount>
LOCKSTEP_INLINE int find_scale(const float* x, const float* w) {
  float up = 0, up_weight = 0, down = 0, down_weight = 0;
  for (int i = 0; i < kCount; ++i) {
    if (x[i] > up) {
      up = x[i];
      up_weight = w[i];
    }
    if (-x[i] > down) {
      down = -x[i];
      down_weight = w[i];
    }
  }
  if (up == 0 && down == 0) return 0;

  Best best;
  const auto evaluate = [&](int chunk) {
    const F8 scale = load8(kUe4m3.scale + 8 * chunk), inverse = load8(kUe4m3.inverse + 8 * chunk);
    F8 error = splat(0);
    for (int i = 0; i < kCount; ++i) {
      const F8 off = splat(x[i]) - Levels::level(inverse * x[i]) * scale;
      error += off * w[i] * off;
    }
    take(best, scale > 0.0f ? error : splat(kWorst), chunk);
  };
  // Less than any larger scale can cost, and than any smaller one.
  const auto least_above = [&](float scale) {
    float sum = 0;
    for (int i = 0; i < kCount; ++i) {
      const float a = x[i] < 0 ? -x[i] : x[i];
      if constexpr (Levels::kHasZero) {
        if (a < 0.499f * scale) sum += w[i] * a * a;
      } else {
        if (a < scale) sum += w[i] * (scale - a) * (scale - a);
      }
    }
    return sum;
  };
  const auto least_below = [&](float scale) {
    const float up_off = std::max(up - Levels::kUp * scale, 0.0f);
    const float down_off = std::max(down - Levels::kDown * scale, 0.0f);
    return std::max(up_weight * up_off * up_off, down_weight * down_off * down_off);
  };

  const int start = byte_below(std::max(up / Levels::kUp, down / Levels::kDown)) / 8;
  evaluate(start);
  for (int chunk = start - 1; chunk >= 0; --chunk) {
    if (least_below(kUe4m3.scale[8 * chunk + 7]) > best.error * kMargin) break;
    evaluate(chunk);
  }
  for (int chunk = start + 1; chunk < kChunks; ++chunk) {
    if (best.error == 0 || least_above(kUe4m3.scale[8 * chunk]) > best.error * kMargin) break;
    evaluate(chunk);
  }
  if constexpr (!Levels::kHasZero) {
    // A format that cannot say zero is better off with all of them where the values are far below its least scale.
    float nothing = 0;
    for (int i = 0; i < kCount; ++i) nothing += w[i] * x[i] * x[i];
    if (nothing < best.error) return 0;
  }
  return best.byte;
}

/// The codes of a group under a scale.
template <class Levels, int kCount>
LOCKSTEP_INLINE void find_codes(const float* x, int byte, unsigned* codes) {
  const float inverse = kUe4m3.inverse[byte];
  for (int i = 0; i < kCount; i += 8) {
    const I8 level = __builtin_convertvector(Levels::level(load8(x + i) * inverse), I8);
    for (int j = 0; j < 8; ++j) codes[i + j] = byte == 0 && !Levels::kHasZero ? 0u : Levels::code(level[j]);
  }
}

/// Weights of the reference: importance * sqrt(mean square of the row + x^2), or 1.
class Weighting {
 public:
  LOCKSTEP_INLINE explicit Weighting(const Row& row) : row_(row) {
    if (row.importance == nullptr) return;
    double sum = 0;
    for (std::int64_t i = 0; i < row.width; ++i) sum += static_cast<double>(row.values[i]) * row.values[i];
    mean_square_ = static_cast<float>(sum / static_cast<double>(row.width));
  }
  LOCKSTEP_INLINE void weights(std::int64_t begin, int count, float* w) const {
    float sum = 0;
    for (int i = 0; i < count; ++i) {
      const float x = row_.values[begin + i];
      w[i] = row_.importance == nullptr ? 1.0f : row_.importance[begin + i] * std::sqrt(mean_square_ + x * x);
      sum += w[i];
    }
    if (!(sum > 0) || !(sum < kWorst)) std::fill(w, w + count, 1.0f);
  }

 private:
  const Row& row_;
  float mean_square_ = 0;
};

/// Rows of blocks of 32 whose scales cover kCount values: pack(codes [32], scale bytes, out).
template <class Levels, int kCount, class Pack>
LOCKSTEP_INLINE void make_row(const Row& row, int block_bytes, Pack pack) {
  const Weighting weighting(row);
  for (std::int64_t b = 0; b < row.width / 32; ++b) {
    const float* x = row.values + 32 * b;
    float w[32];
    int scale[32 / kCount];
    unsigned codes[32];
    weighting.weights(32 * b, 32, w);
    for (int part = 0; part < 32 / kCount; ++part) {
      scale[part] = find_scale<Levels, kCount>(x + kCount * part, w + kCount * part);
      find_codes<Levels, kCount>(x + kCount * part, scale[part], codes + kCount * part);
    }
    pack(codes, scale, row.out + block_bytes * b);
  }
}

LOCKSTEP_INLINE std::byte byte_of(unsigned value) { return std::byte{static_cast<std::uint8_t>(value)}; }

LOCKSTEP_INLINE void pack_nibbles(const unsigned* codes, std::byte* out) {
  for (int j = 0; j < 16; ++j) out[j] = byte_of(codes[j] | codes[j + 16] << 4);
}

/// Codes of `bits` bits one after the other, low bits first; eight of them are `bits` whole bytes.
template <int kBits>
LOCKSTEP_INLINE void pack_bits(const unsigned* codes, std::byte* out) {
  for (int eight = 0; eight < 4; ++eight) {
    std::uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= static_cast<std::uint64_t>(codes[8 * eight + j]) << (kBits * j);
    for (int j = 0; j < kBits; ++j) out[kBits * eight + j] = byte_of(static_cast<unsigned>(word >> (8 * j)) & 255u);
  }
}

/// Two-bit blocks with a scale and an offset for all 32 values: value = code * scale - offset.
struct AffinePair {
  const float* x;
  const float* w;

  /// Errors of eight scales with an offset, or of eight offsets with a scale.
  LOCKSTEP_INLINE F8 errors(F8 scale, F8 inverse, F8 offset) const {
    F8 sum = splat(0);
    for (int i = 0; i < 32; ++i) {
      const F8 code = code_of((x[i] + offset) * inverse);
      const F8 off = x[i] - (code * scale - offset);
      sum += off * w[i] * off;
    }
    return sum;
  }
  LOCKSTEP_INLINE static F8 code_of(F8 q) {
    const F8 zero = splat(0), one = splat(1);
    return (q >= 0.5f ? one : zero) + (q >= 1.5f ? one : zero) + (q >= 2.5f ? one : zero);
  }

  /// One-dimensional searches in turn, over the scales within a factor of four of what would reach everything, until
  /// neither byte moves.
  LOCKSTEP_INLINE void find(int& scale, int& offset) const {
    float low = 0, high = 0;
    for (int i = 0; i < 32; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    scale = offset = 0;
    if (low == 0 && high == 0) return;
    const int wide_scale = byte_below((high - low) / 3), wide_offset = byte_below(-low);
    offset = low < 0 ? wide_offset : 0;
    scale = wide_scale;
    const auto chunks = [](int byte, auto&& evaluate) {
      const int middle = byte / 8;
      for (int chunk = std::max(middle - 2, 0); chunk <= std::min(middle + 1, kChunks - 1); ++chunk) evaluate(chunk);
    };
    for (int pass = 0; pass < 3; ++pass) {
      const int scale_before = scale, offset_before = offset;
      Best best;
      chunks(wide_scale, [&](int chunk) {
        const F8 s = load8(kUe4m3.scale + 8 * chunk);
        const F8 error = errors(s, load8(kUe4m3.inverse + 8 * chunk), splat(kUe4m3.scale[offset]));
        take(best, s > 0.0f ? error : splat(kWorst), chunk);
      });
      scale = best.byte;
      const F8 s = splat(kUe4m3.scale[scale]), inverse = splat(kUe4m3.inverse[scale]);
      best = {0, errors(s, inverse, splat(0))[0]};
      chunks(wide_offset, [&](int chunk) {
        const F8 o = load8(kUe4m3.scale + 8 * chunk);
        take(best, o > 0.0f ? errors(s, inverse, o) : splat(kWorst), chunk);
      });
      offset = best.byte;
      if (scale == scale_before && offset == offset_before) break;
    }
  }
};

}  // namespace

LOCKSTEP_QUANTISE_ROW void make_rocmfp4(const Row& row) {
  make_row<LevelsFp4, 16>(row, 18, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_nibbles(codes, out);
    out[16] = byte_of(static_cast<unsigned>(scale[0]));
    out[17] = byte_of(static_cast<unsigned>(scale[1]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp4_fast(const Row& row) {
  make_row<LevelsFp4, 32>(row, 17, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_nibbles(codes, out);
    out[16] = byte_of(static_cast<unsigned>(scale[0]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp6(const Row& row) {
  make_row<LevelsFp6, 16>(row, 26, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_bits<6>(codes, out);
    out[24] = byte_of(static_cast<unsigned>(scale[0]));
    out[25] = byte_of(static_cast<unsigned>(scale[1]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp8(const Row& row) {
  make_row<LevelsFp8, 32>(row, 33, [](const unsigned* codes, const int* scale, std::byte* out) {
    for (int i = 0; i < 32; ++i) out[i] = byte_of(codes[i]);
    out[32] = byte_of(static_cast<unsigned>(scale[0]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp3(const Row& row) {
  make_row<LevelsFp3, 16>(row, 14, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_bits<3>(codes, out);
    out[12] = byte_of(static_cast<unsigned>(scale[0]));
    out[13] = byte_of(static_cast<unsigned>(scale[1]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp2(const Row& row) {
  make_row<LevelsFp2, 16>(row, 10, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_bits<2>(codes, out);
    out[8] = byte_of(static_cast<unsigned>(scale[0]));
    out[9] = byte_of(static_cast<unsigned>(scale[1]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp2_s40(const Row& row) {
  make_row<LevelsS40, 16>(row, 10, [](const unsigned* codes, const int* scale, std::byte* out) {
    pack_bits<2>(codes, out);
    out[8] = byte_of(static_cast<unsigned>(scale[0]));
    out[9] = byte_of(static_cast<unsigned>(scale[1]));
  });
}

LOCKSTEP_QUANTISE_ROW void make_rocmfp2_affine(const Row& row) {
  const Weighting weighting(row);
  for (std::int64_t b = 0; b < row.width / 32; ++b) {
    const float* x = row.values + 32 * b;
    std::byte* out = row.out + 10 * b;
    float w[32];
    weighting.weights(32 * b, 32, w);
    int scale, offset;
    AffinePair{x, w}.find(scale, offset);
    unsigned codes[32];
    for (int i = 0; i < 32; ++i) {
      const F8 q = splat((x[i] + kUe4m3.scale[offset]) * kUe4m3.inverse[scale]);
      codes[i] = static_cast<unsigned>(AffinePair::code_of(q)[0]);
    }
    pack_bits<2>(codes, out);
    out[8] = byte_of(static_cast<unsigned>(scale));
    out[9] = byte_of(static_cast<unsigned>(offset));
  }
}

}  // namespace lockstep::quantise
