// What the ways of scoring few queries for the indexer share: which numbers are ordinary fp4, and what a score leaves.
#pragma once

#include "gpu/packed_row.h"
#include "gpu/planes.h"

namespace lockstep::gpu {

/// Neighbouring scores of which the largest is kept as well, behind all scores of a wave: [rows, groups of the bound].
inline constexpr int kScoreGroup = 8;
inline constexpr int kScoreKeyWidth = 128, kScoreKeyWords = 17, kScoreBlocks = kScoreKeyWidth / kFp4Block;

// Scores on int8 tensor cores, and the choice in the same launch (score_few.cu).
bool can_choose_by_tiles(const Runtime& runtime, const SelectCall& call, int rows);
void choose_by_tiles(Runtime& runtime, const SelectCall& call, const Slices& slices, int first_row, int rows,
                     float* scores, const PackedRows& layout);

#if defined(LOCKSTEP_KERNEL)

/// Exponents whose products, and sums of them, are ordinary floats, so that integers stand for them exactly.
constexpr int kOrdinary = 50;
LOCKSTEP_DEVICE bool is_ordinary(int exponent) { return exponent >= -kOrdinary && exponent <= kOrdinary; }

/// The law's loop, for a query or a key that is not so.
[[maybe_unused]] LOCKSTEP_DEVICE_CALL float literal_dot(const float* query, const std::uint8_t* key,
                                                        const PackedRows& layout) {
  float total = 0;
#pragma unroll 1
  for (int begin = 0; begin < kScoreKeyWidth; begin += kIndexChain) {
    float sum = 0;
#pragma unroll 1
    for (int d = begin; d < begin + kIndexChain; ++d) sum = fma_f32(query[d], key_value(key, d, layout), sum);
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

/// Words `word` and `word` + 8 of a key as int8 codes: words 2 word, 2 word + 1 and these + 16. Whether they are no
/// ordinary fp4.
LOCKSTEP_DEVICE bool decode_key_words(std::uint32_t* to, const std::uint32_t* words, int word,
                                      std::uint32_t exponents) {
  const std::uint32_t low = words[word], high = words[word + 8];
  to[2 * word] = Format<DType::mxfp4>::levels_of(low & 0xffffu);
  to[2 * word + 1] = Format<DType::mxfp4>::levels_of(low >> 16);
  to[16 + 2 * word] = Format<DType::mxfp4>::levels_of(high & 0xffffu);
  to[16 + 2 * word + 1] = Format<DType::mxfp4>::levels_of(high >> 16);
  // Words 4 b to 4 b + 3 are block b's.
  const int of_low = e8m0_to_exponent(static_cast<std::uint8_t>(exponents >> (word / 4 * 8))),
            of_high = e8m0_to_exponent(static_cast<std::uint8_t>(exponents >> (word / 4 * 8 + 16)));
  return (!is_ordinary(of_low) && (of_low == kBadExponent || (low & 0x77777777u) != 0)) ||
         (!is_ordinary(of_high) && (of_high == kBadExponent || (high & 0x77777777u) != 0));
}
/// What the codes of a key's block are multiplied by: they are twice the values.
LOCKSTEP_DEVICE float key_block_scale(std::uint32_t exponents, int block) {
  const int exponent = e8m0_to_exponent(static_cast<std::uint8_t>(exponents >> (8 * block)));
  return power_of_two(is_ordinary(exponent) ? exponent - 1 : 0);
}

/// What the values of a query's block are, whose greatest magnitude that is: a smaller exponent than it was rounded by
/// does as well.
struct QueryBlock {
  bool is_usual;
  float factor, scale;  // of the values, and of their codes
};
LOCKSTEP_DEVICE QueryBlock query_block(std::uint32_t most) {
  const int exponent = most == 0 ? 0 : fp4_exponent(most);
  const bool is_usual = is_ordinary(exponent);
  return {is_usual, power_of_two(is_usual ? 1 - exponent : 0), power_of_two(is_usual ? exponent - 1 : 0)};
}
/// Four values as codes; is_exact becomes false if they are not exactly these.
LOCKSTEP_DEVICE std::uint32_t query_codes(const Floats4& x, const QueryBlock& block, bool& is_exact) {
  std::uint32_t codes = 0;
  is_exact = is_exact && block.is_usual;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float doubled = block.is_usual ? x.value[k] * block.factor : 0.0f;
    const int code = round_to_int(doubled);
    is_exact = is_exact && static_cast<float>(code) == doubled;
    codes |= (static_cast<std::uint32_t>(code) & 255u) << (8 * k);
  }
  return codes;
}

LOCKSTEP_DEVICE std::uint32_t ordered(float score) { return static_cast<std::uint32_t>(ranking_key(score, 0) >> 32); }
LOCKSTEP_DEVICE float score_of(std::uint32_t ordered) {
  return f32_of(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

/// Keeps the score of key c, by a warp with neighbouring keys from a multiple of kScoreGroup on, and the largest one of
/// each group; `groups` is this row's.
LOCKSTEP_DEVICE void keep_score(float* row, float* groups, int c, std::int64_t visible, float score) {
  const bool is_visible = c < visible;
  if (is_visible) row[c] = score;
  std::uint32_t largest = is_visible ? ordered(score) : 0u;
#pragma unroll
  for (int mask = 1; mask < kScoreGroup; mask *= 2) {
    const auto other = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(largest), mask));
    largest = other > largest ? other : largest;
  }
  if (is_visible && c % kScoreGroup == 0) groups[c / kScoreGroup] = score_of(largest);
}

#endif

/// Groups of a row of so many scores.
LOCKSTEP_HOST_DEVICE constexpr int score_groups(int bound) { return (bound + kScoreGroup - 1) / kScoreGroup; }

}  // namespace lockstep::gpu
