// Decoders of the IQ formats of 256 values: eight (or four) values at a time are a point of a grid, with separate
// signs. The odd sub-scales 2s + 1 go into the levels and the constant factor of the format into the scale, where it is
// exact.
#include "tensor/block_decoders.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

/// Levels of sub-group `sub` (8 values) of an IQ2 block.
void set_iq2(Block& block, int sub, unsigned grid_row, unsigned signs, unsigned scale_code) {
  const int scale = 2 * static_cast<int>(scale_code) + 1;
  for (int i = 0; i < 8; ++i) {
    const int level = kLevelIq2[grid_row >> (2 * i) & 3u] * scale;
    block.level[8 * sub + i] = static_cast<std::int16_t>((signs >> i & 1u) != 0 ? -level : level);
  }
}

/// Levels of sub-group `sub` (8 values) of an IQ3 block: two grid rows of four.
void set_iq3(Block& block, int sub, unsigned first, unsigned second, const std::int16_t* levels, unsigned signs,
             unsigned scale_code) {
  const int scale = 2 * static_cast<int>(scale_code) + 1;
  const unsigned rows = first | second << 12;
  for (int i = 0; i < 8; ++i) {
    const int level = levels[rows >> (3 * i) & 7u] * scale;
    block.level[8 * sub + i] = static_cast<std::int16_t>((signs >> i & 1u) != 0 ? -level : level);
  }
}

/// Levels of sub-group `sub` of an IQ1 block: eight times (grid value + delta), delta being one eighth either way.
void set_iq1(Block& block, int sub, unsigned grid_row, bool delta_is_negative, unsigned scale_code) {
  const int scale = 2 * static_cast<int>(scale_code) + 1;
  const int delta = delta_is_negative ? -1 : 1;
  for (int i = 0; i < 8; ++i) {
    const int value = static_cast<int>(grid_row >> (2 * i) & 3u) - 1;
    block.level[8 * sub + i] = static_cast<std::int16_t>((8 * value + delta) * scale);
  }
}

}  // namespace

// 66 bytes: f16 scale, then for each 32 values four grid indices and a word of four 7-bit sign masks and a 4-bit scale.
Block decode_iq2_xxs(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 66;
  const std::int64_t at = 2 + 8 * (index % 8);
  const std::uint32_t word = u32_at(b, at + 4);
  Block block = block_of_one_scale(f16_at(b, 0) * 0.125f);
  for (int sub = 0; sub < 4; ++sub) {
    set_iq2(block, sub, kGridIq2Xxs[byte_at(b, at + sub)], even_signs(word >> (7 * sub) & 127u), word >> 28);
  }
  return block;
}

// 74 bytes: f16 scale, 32 words of a 9-bit grid index and a 7-bit sign mask, 16 scale nibbles of 16 values.
Block decode_iq2_xs(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 74;
  const std::int64_t part = index % 8;
  Block block = block_of_one_scale(f16_at(b, 0) * 0.125f);
  for (int sub = 0; sub < 4; ++sub) {
    const unsigned word = u16_at(b, 2 + 2 * (4 * part + sub));
    set_iq2(block, sub, kGridIq2Xs[word & 511u], even_signs(word >> 9), nibble_at(b + 66, 2 * part + sub / 2));
  }
  return block;
}

// 82 bytes: f16 scale, 32 low index bytes, 32 sign masks, 8 bytes of upper index bits, 16 scale nibbles of 16 values.
Block decode_iq2_s(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 82;
  const std::int64_t part = index % 8;
  const unsigned high = byte_at(b, 66 + part);
  Block block = block_of_one_scale(f16_at(b, 0) * 0.125f);
  for (int sub = 0; sub < 4; ++sub) {
    const unsigned point = byte_at(b, 2 + 4 * part + sub) | (high >> (2 * sub) & 3u) << 8;
    set_iq2(block, sub, kGridIq2S[point], byte_at(b, 34 + 4 * part + sub), nibble_at(b + 74, 2 * part + sub / 2));
  }
  return block;
}

// 98 bytes: f16 scale, 64 grid indices of four values, 8 words of four 7-bit sign masks and a 4-bit scale.
Block decode_iq3_xxs(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 98;
  const std::int64_t part = index % 8;
  const std::uint32_t word = u32_at(b, 66 + 4 * part);
  Block block = block_of_one_scale(f16_at(b, 0) * 0.25f);
  for (int sub = 0; sub < 4; ++sub) {
    const std::int64_t at = 2 + 8 * part + 2 * sub;
    set_iq3(block, sub, kGridIq3Xxs[byte_at(b, at)], kGridIq3Xxs[byte_at(b, at + 1)], kLevelIq3Xxs,
            even_signs(word >> (7 * sub) & 127u), word >> 28);
  }
  return block;
}

// 110 bytes: f16 scale, 64 low index bytes, 8 bytes of ninth index bits, 32 sign masks, 8 scale nibbles of 32 values.
Block decode_iq3_s(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 110;
  const std::int64_t part = index % 8;
  const unsigned high = byte_at(b, 66 + part);
  Block block = block_of_one_scale(f16_at(b, 0));
  for (int sub = 0; sub < 4; ++sub) {
    const auto point = [&](int half) {
      return byte_at(b, 2 + 8 * part + 2 * sub + half) | (high >> (2 * sub + half) & 1u) << 8;
    };
    set_iq3(block, sub, kGridIq3S[point(0)], kGridIq3S[point(1)], kLevelIq3S, byte_at(b, 74 + 4 * part + sub),
            nibble_at(b + 106, part));
  }
  return block;
}

// 50 bytes: f16 scale, 32 low index bytes, and for each 32 values a word of four 3-bit upper index parts, a 3-bit scale
// and the sign of delta.
Block decode_iq1_s(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 50;
  const std::int64_t part = index % 8;
  const unsigned word = u16_at(b, 34 + 2 * part);
  Block block = block_of_one_scale(f16_at(b, 0) * 0.125f);
  for (int sub = 0; sub < 4; ++sub) {
    const unsigned point = byte_at(b, 2 + 4 * part + sub) | (word >> (3 * sub) & 7u) << 8;
    set_iq1(block, sub, kGridIq1[point], (word & 0x8000u) != 0, word >> 12 & 7u);
  }
  return block;
}

// 56 bytes: 32 low index bytes, a nibble for each 8 values (3 upper index bits, sign of delta), four words of four
// 3-bit scales of 16 values. The top nibbles of those words, lowest first, are the f16 scale.
Block decode_iq1_m(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 56;
  const int part = static_cast<int>(index % 8);
  Block block = block_of_one_scale(f16_to_f32(iq1_m_scale_bits(b)) * 0.125f);
  const unsigned scales = u16_at(b, 48 + part / 2 * 2) >> (6 * (part % 2));
  for (int sub = 0; sub < 4; ++sub) {
    const unsigned high = nibble_at(b + 32, 4 * part + sub);
    const unsigned point = byte_at(b, 4 * part + sub) | (high & 7u) << 8;
    set_iq1(block, sub, kGridIq1[point], (high & 8u) != 0, scales >> (3 * (sub / 2)) & 7u);
  }
  return block;
}

// 136 bytes: f16 scale, 8 upper bit pairs and 8 nibbles of six-bit scales less 32, nibbles into the codebook.
Block decode_iq4_xs(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 136;
  const std::int64_t part = index % 8;
  const unsigned high = u16_at(b, 2) >> (2 * part) & 3u;
  const int scale = static_cast<int>(nibble_at(b + 4, part) | high << 4) - 32;
  Block block = block_of_one_scale(f16_at(b, 0));
  for (int i = 0; i < 32; ++i) {
    block.level[i] = static_cast<std::int16_t>(kLevelIq4[split_nibble(b + 8 + 16 * part, i)] * scale);
  }
  return block;
}

}  // namespace lockstep
