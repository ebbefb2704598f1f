// The K formats: 256 values in groups, whose scales (and minimums) are small integers times one or two f16 numbers.
//
// Every group is fitted on its own first. Then the f16 numbers are chosen, and with them in place each group tries the
// neighbours of its integers, because rounding a scale moves the best minimum and the other way round; with the
// integers in place the f16 numbers are fitted again by least squares over the whole block. Codes always come from the
// scales as they are stored.
#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "tensor/quantise_fit.h"
#include "tensor/quantise_parts.h"

namespace lockstep::quantise {
namespace {

constexpr int kValues = 256;

LOCKSTEP_INLINE int to_code(float x, float inverse, int low, int high) {
  return round_to_int(std::clamp(x * inverse, static_cast<float>(low), static_cast<float>(high)));
}

/// kGroups groups with codes 0 .. kMostCode, whose scales and minimums are integers 0 .. kMostScale.
template <int kGroups, int kMostCode, int kMostScale>
struct AffineBlock {
  static constexpr int kCount = kValues / kGroups;
  using Group = Affine<kCount, kMostCode>;
  using Fit = typename Group::Fit;

  int scale[kGroups], minimum[kGroups];
  std::uint16_t d_bits = 0, m_bits = 0;
  float d = 0, m = 0;
  float codes[kValues];

  LOCKSTEP_INLINE void make(const float* x, const float* importance) {
    float w[kValues];
    block_weights<kValues>(importance, w);
    Fit wanted[kGroups];
    float most_scale = 0, most_minimum = 0;
    for (int g = 0; g < kGroups; ++g) {
      wanted[g] = Group{x + kCount * g, w + kCount * g}.fit();
      most_scale = std::max(most_scale, wanted[g].scale);
      most_minimum = std::max(most_minimum, wanted[g].minimum);
    }
    store(most_scale / kMostScale, most_minimum / kMostScale);
    const float d_inverse = inverse_of(d), m_inverse = inverse_of(m);
    for (int g = 0; g < kGroups; ++g) {
      scale[g] = to_code(wanted[g].scale, d_inverse, 0, kMostScale);
      minimum[g] = to_code(wanted[g].minimum, m_inverse, 0, kMostScale);
    }
    float least = try_neighbours(x, w);
    for (int round = 0; round < 2; ++round) {
      const AffineBlock before = *this;
      refit(x, w);
      const float error = try_neighbours(x, w);
      if (error < least) {
        least = error;
      } else {
        *this = before;
        break;
      }
    }
    for (int g = 0; g < kGroups; ++g) Group{x + kCount * g, w + kCount * g}.codes(fit_of(g), codes + kCount * g);
  }

 private:
  LOCKSTEP_INLINE void store(float new_d, float new_m) {
    d_bits = finite_f16(new_d);
    m_bits = finite_f16(new_m);
    d = f16_to_f32(d_bits);
    m = f16_to_f32(m_bits);
  }
  LOCKSTEP_INLINE Fit fit_of(int g) const {
    return {d * static_cast<float>(scale[g]), m * static_cast<float>(minimum[g])};
  }

  /// Moves every group to the best of the pairs around its own (all but one corner). Returns the block's error.
  LOCKSTEP_INLINE float try_neighbours(const float* x, const float* w) {
    const F8 scale_step = F8{0, 0, 0, -1, 1, -1, 1, -1}, minimum_step = F8{0, -1, 1, 0, 0, -1, -1, 1};
    float total = 0;
    for (int g = 0; g < kGroups; ++g) {
      const Group group{x + kCount * g, w + kCount * g};
      const F8 scales = clamp8(static_cast<float>(scale[g]) + scale_step, 0, kMostScale);
      const F8 minimums = clamp8(static_cast<float>(minimum[g]) + minimum_step, 0, kMostScale);
      const F8 errors = group.errors(scales * d, minimums * m);
      const int lane = lane_of_least(errors);
      scale[g] = static_cast<int>(scales[lane]);
      minimum[g] = static_cast<int>(minimums[lane]);
      total += errors[lane];
    }
    return total;
  }

  /// d and m by least squares, for the integers and codes as they are.
  LOCKSTEP_INLINE void refit(const float* x, const float* w) {
    float ss = 0, mm = 0, sm = 0, sx = 0, mx = 0;
    for (int g = 0; g < kGroups; ++g) {
      const float* gx = x + kCount * g;
      const float* gw = w + kCount * g;
      const Fit fit = fit_of(g);
      const F8 inverse = splat(inverse_of(fit.scale)), offset = splat(fit.minimum);
      F8 c = splat(0), cc = splat(0), cx = splat(0), sum_w = splat(0), sum_x = splat(0);
      for (int i = 0; i < kCount; i += 8) {
        const F8 value = load8(gx + i), wi = load8(gw + i), code = Group::code_of(value, inverse, offset);
        c += wi * code;
        cc += wi * code * code;
        cx += wi * code * value;
        sum_w += wi;
        sum_x += wi * value;
      }
      const auto s = static_cast<float>(scale[g]), n = static_cast<float>(minimum[g]);
      ss += s * s * sum_of(cc);
      sm += s * n * sum_of(c);
      mm += n * n * sum_of(sum_w);
      sx += s * sum_of(cx);
      mx += n * sum_of(sum_x);
    }
    const float determinant = ss * mm - sm * sm;
    if (determinant > 0) {
      const float new_d = (sx * mm - mx * sm) / determinant, new_m = (sx * sm - mx * ss) / determinant;
      if (new_d > 0 && new_m >= 0) store(new_d, new_m);
    } else if (ss > 0 && sx > 0) {
      store(sx / ss, m);
    }
  }
};

/// 16 groups of 16 with codes -kHalf .. kHalf - 1, whose scales are integers -kMostScale - 1 .. kMostScale.
template <int kHalf, int kMostScale>
struct SymmetricBlock {
  static constexpr int kGroups = 16, kCount = 16;
  using Group = Symmetric<kCount, kHalf>;

  int scale[kGroups];
  std::uint16_t d_bits = 0;
  float d = 0;
  float codes[kValues];

  LOCKSTEP_INLINE void make(const float* x, const float* importance) {
    float w[kValues], wanted[kGroups];
    block_weights<kValues>(importance, w);
    for (int g = 0; g < kGroups; ++g) wanted[g] = Group{x + kCount * g, w + kCount * g}.fit();
    store(extreme_of(wanted, kGroups) / static_cast<float>(-kMostScale - 1));
    const float inverse = inverse_of(d);
    for (int g = 0; g < kGroups; ++g) scale[g] = to_code(wanted[g], inverse, -kMostScale - 1, kMostScale);
    float least = try_neighbours(x, w);
    for (int round = 0; round < 2; ++round) {
      const SymmetricBlock before = *this;
      refit(x, w);
      const float error = try_neighbours(x, w);
      if (error < least) {
        least = error;
      } else {
        *this = before;
        break;
      }
    }
    for (int g = 0; g < kGroups; ++g)
      Group{x + kCount * g, w + kCount * g}.codes(d * static_cast<float>(scale[g]), codes + kCount * g);
  }

 private:
  LOCKSTEP_INLINE void store(float new_d) {
    d_bits = finite_f16(new_d);
    d = f16_to_f32(d_bits);
  }

  /// Moves every group to the best of the scales around its own. Returns the block's error.
  LOCKSTEP_INLINE float try_neighbours(const float* x, const float* w) {
    const F8 step = F8{0, -1, 1, -2, 2, -3, 3, 4};
    float total = 0;
    for (int g = 0; g < kGroups; ++g) {
      const F8 scales = clamp8(static_cast<float>(scale[g]) + step, -kMostScale - 1, kMostScale);
      const F8 errors = Group{x + kCount * g, w + kCount * g}.errors(scales * d);
      const int lane = lane_of_least(errors);
      scale[g] = static_cast<int>(scales[lane]);
      total += errors[lane];
    }
    return total;
  }

  LOCKSTEP_INLINE void refit(const float* x, const float* w) {
    float ss = 0, sx = 0;
    for (int g = 0; g < kGroups; ++g) {
      const auto s = static_cast<float>(scale[g]);
      const F8 inverse = splat(inverse_of(d * s));
      F8 cc = splat(0), cx = splat(0);
      for (int i = 0; i < kCount; i += 8) {
        const F8 value = load8(x + kCount * g + i), code = Group::code_of(value, inverse);
        const F8 weighted = load8(w + kCount * g + i) * code;
        cc += weighted * code;
        cx += weighted * value;
      }
      ss += s * s * sum_of(cc);
      sx += s * sum_of(cx);
    }
    if (ss > 0) store(sx / ss);
  }
};

LOCKSTEP_INLINE std::byte byte_of(unsigned value) { return std::byte{static_cast<std::uint8_t>(value)}; }

/// Eight 6-bit scales and minimums in 12 bytes, as Q4_K and Q5_K have them.
LOCKSTEP_INLINE void put_scales(const int* scale, const int* minimum, std::byte* out) {
  for (int g = 0; g < 4; ++g) {
    const auto s = static_cast<unsigned>(scale[g]), n = static_cast<unsigned>(minimum[g]);
    const auto s4 = static_cast<unsigned>(scale[g + 4]), n4 = static_cast<unsigned>(minimum[g + 4]);
    out[g] = byte_of(s | s4 >> 4 << 6);
    out[g + 4] = byte_of(n | n4 >> 4 << 6);
    out[g + 8] = byte_of((s4 & 15u) | (n4 & 15u) << 4);
  }
}

LOCKSTEP_INLINE void q2_k_block(const float* x, const float* importance, std::byte* out) {
  AffineBlock<16, 3, 15> block;
  block.make(x, importance);
  std::fill(out, out + 80, std::byte{0});
  for (int g = 0; g < 16; ++g)
    out[g] = byte_of(static_cast<unsigned>(block.scale[g]) | static_cast<unsigned>(block.minimum[g]) << 4);
  for (int i = 0; i < kValues; ++i) {
    const auto code = static_cast<unsigned>(block.codes[i]);
    out[16 + 32 * (i / 128) + i % 32] |= byte_of(code << (2 * (i % 128 / 32)));
  }
  store_as(out + 80, block.d_bits);
  store_as(out + 82, block.m_bits);
}

LOCKSTEP_INLINE void q3_k_block(const float* x, const float* importance, std::byte* out) {
  SymmetricBlock<4, 31> block;
  block.make(x, importance);
  std::fill(out, out + 108, std::byte{0});
  for (int i = 0; i < kValues; ++i) {
    const auto code = static_cast<unsigned>(static_cast<int>(block.codes[i]) + 4);
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    out[l] |= byte_of((code >> 2) << (4 * half + quarter));
    out[32 + 32 * half + l] |= byte_of((code & 3u) << (2 * quarter));
  }
  for (int g = 0; g < 16; ++g) {
    const auto scale = static_cast<unsigned>(block.scale[g] + 32);
    out[96 + g % 8] |= byte_of(g < 8 ? scale & 15u : (scale & 15u) << 4);
    out[104 + g % 4] |= byte_of((scale >> 4) << (2 * (g / 4)));
  }
  store_as(out + 108, block.d_bits);
}

LOCKSTEP_INLINE void q4_k_block(const float* x, const float* importance, std::byte* out) {
  AffineBlock<8, 15, 63> block;
  block.make(x, importance);
  store_as(out, block.d_bits);
  store_as(out + 2, block.m_bits);
  put_scales(block.scale, block.minimum, out + 4);
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) {
      const auto low = static_cast<unsigned>(block.codes[64 * pair + l]);
      const auto high = static_cast<unsigned>(block.codes[64 * pair + 32 + l]);
      out[16 + 32 * pair + l] = byte_of(low | high << 4);
    }
  }
}

LOCKSTEP_INLINE void q5_k_block(const float* x, const float* importance, std::byte* out) {
  AffineBlock<8, 31, 63> block;
  block.make(x, importance);
  store_as(out, block.d_bits);
  store_as(out + 2, block.m_bits);
  put_scales(block.scale, block.minimum, out + 4);
  std::fill(out + 16, out + 176, std::byte{0});
  for (int i = 0; i < kValues; ++i) {
    const auto code = static_cast<unsigned>(block.codes[i]);
    const int g = i / 32, l = i % 32;
    out[16 + l] |= byte_of((code >> 4) << g);
    out[48 + 32 * (g / 2) + l] |= byte_of((code & 15u) << (4 * (g % 2)));
  }
}

LOCKSTEP_INLINE void q6_k_block(const float* x, const float* importance, std::byte* out) {
  SymmetricBlock<32, 127> block;
  block.make(x, importance);
  std::fill(out, out + 192, std::byte{0});
  for (int i = 0; i < kValues; ++i) {
    const auto code = static_cast<unsigned>(static_cast<int>(block.codes[i]) + 32);
    const int half = i / 128, k = i % 128 / 32, l = i % 32;
    out[64 * half + 32 * (k % 2) + l] |= byte_of((code & 15u) << (4 * (k / 2)));
    out[128 + 32 * half + l] |= byte_of((code >> 4) << (2 * k));
  }
  for (int g = 0; g < 16; ++g) out[192 + g] = byte_of(static_cast<unsigned>(block.scale[g]) & 255u);
  store_as(out + 208, block.d_bits);
}

}  // namespace

LOCKSTEP_QUANTISE_ROW void make_q2_k(const Row& row) {
  for (std::int64_t b = 0; b < row.width / kValues; ++b)
    q2_k_block(row.values + kValues * b, row.importance_at(kValues * b), row.out + 84 * b);
}

LOCKSTEP_QUANTISE_ROW void make_q3_k(const Row& row) {
  for (std::int64_t b = 0; b < row.width / kValues; ++b)
    q3_k_block(row.values + kValues * b, row.importance_at(kValues * b), row.out + 110 * b);
}

LOCKSTEP_QUANTISE_ROW void make_q4_k(const Row& row) {
  for (std::int64_t b = 0; b < row.width / kValues; ++b)
    q4_k_block(row.values + kValues * b, row.importance_at(kValues * b), row.out + 144 * b);
}

LOCKSTEP_QUANTISE_ROW void make_q5_k(const Row& row) {
  for (std::int64_t b = 0; b < row.width / kValues; ++b)
    q5_k_block(row.values + kValues * b, row.importance_at(kValues * b), row.out + 176 * b);
}

LOCKSTEP_QUANTISE_ROW void make_q6_k(const Row& row) {
  for (std::int64_t b = 0; b < row.width / kValues; ++b)
    q6_k_block(row.values + kValues * b, row.importance_at(kValues * b), row.out + 210 * b);
}

}  // namespace lockstep::quantise
