// IQ2_XXS and IQ3_XXS: groups of 32 values as points of a grid of 256, with signs beside it, of which every eighth is
// implied: the number of negative values in eight is even.
//
// For a point p with scale s the error of its values is C - 2 s A + s^2 B, where A = sum of w |x| p and B = sum of
// w p^2 do not depend on s. So A and B are summed once for all 256 points, from the sums of half points, and then
// finding the best point for any scale is a pass over 256 pairs: an exact search, where neighbour lists of the nearest
// lattice points find it in most cases. Where the signs of eight values do not come out even, one value must get the
// wrong sign; that costs 4 s w |x| p, so the cheapest choice for each point is A less twice the least w |x| p, and
// point and sign are searched for together.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/quantise_grid.h"
#include "tensor/quantise_parts.h"

namespace lockstep {

GridTables::GridTables(DType dtype) {
  LOCKSTEP_CHECK(dtype == DType::iq2_xxs || dtype == DType::iq3_xxs);
  const bool is_iq2 = dtype == DType::iq2_xxs;
  const int bits = is_iq2 ? 2 : 3, levels = is_iq2 ? 3 : 8;
  const std::uint16_t* grid = is_iq2 ? kGridIq2Xxs : kGridIq3Xxs;
  const std::int16_t* level_of = is_iq2 ? kLevelIq2 : kLevelIq3Xxs;
  half_width = is_iq2 ? 4 : 2;
  halves = 1;
  for (int j = 0; j < half_width; ++j) halves *= levels;
  for (int h = 0; h < halves; ++h) {
    for (int j = 0, rest = h; j < half_width; ++j, rest /= levels)
      level[j][h] = static_cast<float>(level_of[rest % levels]);
  }
  const auto half_at = [&](unsigned codes) {
    int half = 0;
    for (int j = half_width; j-- > 0;)
      half = half * levels + static_cast<int>(codes >> (bits * j) & ((1u << bits) - 1u));
    return static_cast<std::uint8_t>(half);
  };
  for (int g = 0; g < kPoints; ++g) {
    first[g] = half_at(grid[g]);
    second[g] = half_at(grid[g] >> (bits * half_width));
  }
}

namespace quantise {
namespace {

constexpr int kValues = 256;
constexpr int kPoints = GridTables::kPoints;

/// A point, and its cost: what it adds to the error, over the scale: s * B - 2 * A, negative for a good one.
struct Choice {
  int point;
  float cost;
};

/// 2 A and B of every point for one run of values. `flipped` is 2 A with the wrong sign where that costs least.
struct PointSums {
  alignas(32) float plain[kPoints];
  alignas(32) float flipped[kPoints];
  alignas(32) float b[kPoints];

  template <int kHalfWidth>
  LOCKSTEP_INLINE void sum(const GridTables& grid, const float* magnitude, const float* w, bool wants_plain,
                           bool wants_flipped) {
    constexpr int kMost = GridTables::kMostHalves;
    alignas(32) float half_a[2][kMost], half_b[2][kMost], half_least[2][kMost];
    for (int side = 0; side < 2; ++side) {
      for (int h = 0; h < kMost; h += 8) {
        F8 sum_a = splat(0), sum_b = splat(0), least = splat(3e38f);
        for (int j = 0; j < kHalfWidth; ++j) {
          const float wj = w[kHalfWidth * side + j], wx = 2 * wj * magnitude[kHalfWidth * side + j];
          const F8 level = load8(grid.level[j] + h), product = level * wx;
          sum_a += product;
          sum_b += level * level * wj;
          least = min8(least, product);
        }
        store8(half_a[side] + h, sum_a);
        store8(half_b[side] + h, sum_b);
        store8(half_least[side] + h, least);
      }
    }
    for (int g = 0; g < kPoints; ++g) b[g] = half_b[0][grid.first[g]] + half_b[1][grid.second[g]];
    if (wants_plain) {
      for (int g = 0; g < kPoints; ++g) plain[g] = half_a[0][grid.first[g]] + half_a[1][grid.second[g]];
    }
    if (wants_flipped) {
      for (int g = 0; g < kPoints; ++g) {
        const int f = grid.first[g], s = grid.second[g];
        flipped[g] = half_a[0][f] + half_a[1][s] - 2 * std::min(half_least[0][f], half_least[1][s]);
      }
    }
  }

  /// The least cost of any point.
  LOCKSTEP_INLINE float least_cost(const float* twice_a, float scale) const {
    F8 least[2] = {splat(3e38f), splat(3e38f)};
    for (int g = 0; g < kPoints; g += 16) {
      least[0] = min8(least[0], load8(b + g) * scale - load8(twice_a + g));
      least[1] = min8(least[1], load8(b + g + 8) * scale - load8(twice_a + g + 8));
    }
    return min_of(min8(least[0], least[1]));
  }

  /// The point of the least cost. Its number takes the place of the lowest 8 bits of the cost, so that one minimum
  /// finds both: costs that differ by less than 2^-15 of themselves count as equal.
  LOCKSTEP_INLINE Choice best(const float* twice_a, float scale) const {
    I8 first = {0, 1, 2, 3, 4, 5, 6, 7}, second = first + 8;
    F8 least[2] = {splat(3e38f), splat(3e38f)};
    for (int g = 0; g < kPoints; g += 16) {
      const F8 one = load8(b + g) * scale - load8(twice_a + g);
      const F8 two = load8(b + g + 8) * scale - load8(twice_a + g + 8);
      least[0] = min8(least[0], (F8)(((I8)one & ~255) | first));
      least[1] = min8(least[1], (F8)(((I8)two & ~255) | second));
      first += 16;
      second += 16;
    }
    const float cost = min_of(min8(least[0], least[1]));
    return {static_cast<int>(std::bit_cast<std::uint32_t>(cost) & 255u), cost};
  }
};

/// What a group of 32 values gets for some scale: its points and the runs that carry the wrong sign, and their sums,
/// to which a scale can be fitted.
template <int kRuns>
struct GroupFit {
  int point[kRuns];
  bool flipped[kRuns];
  float twice_a = 0, b = 0;
  float change(float scale) const { return scale * (scale * b - twice_a); }  // of the error
};

/// kRun is the number of values in a point: 8 or 4. Signs are even over eight values.
template <int kRun>
struct GridGroup {
  static constexpr int kRuns = 32 / kRun, kRunsOfSigns = 8 / kRun;
  using Fit = GroupFit<kRuns>;

  PointSums sums[kRuns];
  float magnitude[32], w[32];
  std::uint8_t signs[4];  // bit j: value j of eight is negative
  bool is_odd[4];

  LOCKSTEP_INLINE void prepare(const GridTables& grid, const float* x, const float* weights) {
    for (int eight = 0; eight < 4; ++eight) {
      unsigned mask = 0;
      for (int j = 0; j < 8; ++j) {
        const float value = x[8 * eight + j];
        if (value < 0) mask |= 1u << j;
        magnitude[8 * eight + j] = value < 0 ? -value : value;
        w[8 * eight + j] = weights[8 * eight + j];
      }
      signs[eight] = static_cast<std::uint8_t>(mask);
      is_odd[eight] = __builtin_popcount(mask) % 2 != 0;
    }
    for (int run = 0; run < kRuns; ++run) {
      const bool odd = is_odd[run / kRunsOfSigns];
      sums[run].template sum<kRun / 2>(grid, magnitude + kRun * run, w + kRun * run, kRunsOfSigns > 1 || !odd, odd);
    }
  }

  /// How the error changes with the best points for a scale.
  LOCKSTEP_INLINE float best_change(float scale) const {
    float cost = 0;
    for (int eight = 0; eight < 4; ++eight) {
      const PointSums* of = sums + eight * kRunsOfSigns;
      if constexpr (kRunsOfSigns == 1) {
        cost += of->least_cost(is_odd[eight] ? of->flipped : of->plain, scale);
      } else {
        const float first = of[0].least_cost(of[0].plain, scale), second = of[1].least_cost(of[1].plain, scale);
        cost += is_odd[eight] ? std::min(of[0].least_cost(of[0].flipped, scale) + second,
                                         first + of[1].least_cost(of[1].flipped, scale))
                              : first + second;
      }
    }
    return scale * cost;
  }

  LOCKSTEP_INLINE Fit best(float scale) const {
    Fit fit;
    for (int eight = 0; eight < 4; ++eight) {
      const int begin = eight * kRunsOfSigns;
      const auto take = [&](int run, bool is_flipped, const Choice& choice) LOCKSTEP_INLINE_LAMBDA {
        const PointSums& of = sums[run];
        fit.point[run] = choice.point;
        fit.flipped[run] = is_flipped;
        fit.twice_a += is_flipped ? of.flipped[choice.point] : of.plain[choice.point];
        fit.b += of.b[choice.point];
      };
      if constexpr (kRunsOfSigns == 1) {
        const PointSums& of = sums[begin];
        take(begin, is_odd[eight], of.best(is_odd[eight] ? of.flipped : of.plain, scale));
      } else {
        const PointSums *one = sums + begin, *two = one + 1;
        const Choice plain_one = one->best(one->plain, scale), plain_two = two->best(two->plain, scale);
        int wrong = -1;  // the run that takes the wrong sign
        Choice flipped_one{}, flipped_two{};
        if (is_odd[eight]) {
          flipped_one = one->best(one->flipped, scale);
          flipped_two = two->best(two->flipped, scale);
          wrong = flipped_one.cost + plain_two.cost <= plain_one.cost + flipped_two.cost ? 0 : 1;
        }
        take(begin, wrong == 0, wrong == 0 ? flipped_one : plain_one);
        take(begin + 1, wrong == 1, wrong == 1 ? flipped_two : plain_two);
      }
    }
    return fit;
  }

  /// The scale that this group would like best: the best of some that leave more or less of the largest value out, then
  /// what its points ask for.
  LOCKSTEP_INLINE float wanted_scale(float top_level) const {
    const float most = std::fabs(extreme_of(magnitude, 32));
    if (most == 0) return 0;
    constexpr float kReach[] = {1.05f, 0.9f, 0.78f, 0.67f, 0.57f};
    float scale = 0, least = 0;
    for (const float reach : kReach) {
      const float tried = most * reach / top_level, change = best_change(tried);
      if (change < least) {
        least = change;
        scale = tried;
      }
    }
    const Fit fit = best(scale);
    return fit.b > 0 && fit.twice_a > 0 ? 0.5f * fit.twice_a / fit.b : scale;
  }

  /// The sign mask of eight values, with the wrong sign where it costs least.
  LOCKSTEP_INLINE unsigned final_signs(const GridTables& grid, const Fit& fit, int eight) const {
    unsigned mask = signs[eight];
    for (int r = 0; r < kRunsOfSigns; ++r) {
      const int run = eight * kRunsOfSigns + r;
      if (!fit.flipped[run]) continue;
      int cheapest = 0;
      float least = 3e38f;
      for (int j = 0; j < kRun; ++j) {
        const int half = j < kRun / 2 ? grid.first[fit.point[run]] : grid.second[fit.point[run]];
        const float cost = w[kRun * run + j] * magnitude[kRun * run + j] * grid.level[j % (kRun / 2)][half];
        if (cost < least) {
          least = cost;
          cheapest = j;
        }
      }
      mask ^= 1u << (kRun * r + cheapest);
    }
    return mask;
  }
};

/// A block's eight groups share d; group g has the scale unit * d * (2 * code + 1), with codes 0..15.
template <int kRun>
struct GridBlock {
  using Group = GridGroup<kRun>;
  using Fit = typename Group::Fit;
  static constexpr float kUnit = kRun == 8 ? 0.125f : 0.25f;
  static constexpr float kTopLevel = kRun == 8 ? 43.0f : 62.0f;

  Group group[8];
  Fit fit[8];
  int code[8];
  std::uint16_t d_bits = 0;

  LOCKSTEP_INLINE static float scale_of(float d, int code) { return kUnit * d * static_cast<float>(2 * code + 1); }

  LOCKSTEP_INLINE void make(const GridTables& grid, const float* x, const float* importance) {
    float w[kValues], wanted[8], most = 0;
    block_weights<kValues>(importance, w);
    for (int g = 0; g < 8; ++g) {
      group[g].prepare(grid, x + 32 * g, w + 32 * g);
      wanted[g] = group[g].wanted_scale(kTopLevel);
      most = std::max(most, wanted[g]);
    }
    d_bits = finite_f16(most / (31 * kUnit));
    float d = f16_to_f32(d_bits);
    const float inverse = inverse_of(d * kUnit);
    float error = 0, a = 0, b = 0;
    for (int g = 0; g < 8; ++g) {
      const int near = round_to_int(std::clamp(0.5f * (wanted[g] * inverse - 1), 0.0f, 15.0f));
      code[g] = near;
      float least = group[g].best_change(scale_of(d, near));
      for (const int tried : {near - 1, near + 1}) {
        if (tried < 0 || tried > 15) continue;
        const float change = group[g].best_change(scale_of(d, tried));
        if (change < least) {
          least = change;
          code[g] = tried;
        }
      }
      fit[g] = group[g].best(scale_of(d, code[g]));
      error += fit[g].change(scale_of(d, code[g]));
      const float factor = kUnit * static_cast<float>(2 * code[g] + 1);
      a += 0.5f * factor * fit[g].twice_a;
      b += factor * factor * fit[g].b;
    }
    // d again, by least squares with everything else in place.
    if (!(a > 0) || !(b > 0)) return;
    const std::uint16_t again_bits = finite_f16(a / b);
    if (again_bits == d_bits) return;
    d = f16_to_f32(again_bits);
    Fit again[8];
    float error_again = 0;
    for (int g = 0; g < 8; ++g) {
      again[g] = group[g].best(scale_of(d, code[g]));
      error_again += again[g].change(scale_of(d, code[g]));
    }
    if (error_again < error) {
      d_bits = again_bits;
      std::copy(again, again + 8, fit);
    }
  }

  /// Seven sign bits for each of four times eight values, and the scale code on top.
  LOCKSTEP_INLINE std::uint32_t signs_and_scale(const GridTables& grid, int g) const {
    auto word = static_cast<std::uint32_t>(code[g]) << 28;
    for (int eight = 0; eight < 4; ++eight) word |= (group[g].final_signs(grid, fit[g], eight) & 127u) << (7 * eight);
    return word;
  }
};

}  // namespace

LOCKSTEP_QUANTISE_ROW void make_iq2_xxs(const Row& row) {
  GridBlock<8> block;
  for (std::int64_t b = 0; b < row.width / kValues; ++b) {
    block.make(*row.grid, row.values + kValues * b, row.importance_at(kValues * b));
    std::byte* out = row.out + 66 * b;
    store_as(out, block.d_bits);
    for (int g = 0; g < 8; ++g) {
      for (int run = 0; run < 4; ++run)
        out[2 + 8 * g + run] = std::byte{static_cast<std::uint8_t>(block.fit[g].point[run])};
      store_as(out + 2 + 8 * g + 4, block.signs_and_scale(*row.grid, g));
    }
  }
}

LOCKSTEP_QUANTISE_ROW void make_iq3_xxs(const Row& row) {
  GridBlock<4> block;
  for (std::int64_t b = 0; b < row.width / kValues; ++b) {
    block.make(*row.grid, row.values + kValues * b, row.importance_at(kValues * b));
    std::byte* out = row.out + 98 * b;
    store_as(out, block.d_bits);
    for (int g = 0; g < 8; ++g) {
      for (int run = 0; run < 8; ++run)
        out[2 + 8 * g + run] = std::byte{static_cast<std::uint8_t>(block.fit[g].point[run])};
      store_as(out + 66 + 4 * g, block.signs_and_scale(*row.grid, g));
    }
  }
}

}  // namespace quantise
}  // namespace lockstep
