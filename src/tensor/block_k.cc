// Decoders of the K formats: 256 values whose groups of 16 or 32 have small integer scales (and minima) of their own,
// under one f16 scale (and one f16 minimum). The integers go into the levels: |level| stays below 2^13.
#include "tensor/block_decoders.h"

namespace lockstep {
namespace {

struct ScaleAndMin {
  unsigned scale, min;
};

/// Six-bit scale and minimum of group g (of 8) from the 12 bytes that Q4_K and Q5_K share: groups 0..3 in the low six
/// bits of a byte each, groups 4..7 as nibbles with their upper bits in the top of those bytes.
ScaleAndMin six_bits(const std::byte* s, int g) {
  if (g < 4) return {byte_at(s, g) & 63u, byte_at(s, g + 4) & 63u};
  return {(byte_at(s, g + 4) & 15u) | byte_at(s, g - 4) >> 6 << 4, byte_at(s, g + 4) >> 4 | byte_at(s, g) >> 6 << 4};
}

/// Two-bit code of value i of group g (16 values) in the 64 bytes that Q2_K and Q3_K share.
unsigned code2(const std::byte* qs, int g, int i) {
  return byte_at(qs, 32 * (g / 8) + 16 * (g % 2) + i) >> (2 * (g % 8 / 2)) & 3u;
}

}  // namespace

// 84 bytes: 16 x (scale, minimum) nibbles, 64 bytes of codes, f16 scale, f16 minimum.
Block decode_q2_k(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 84;
  const int group = static_cast<int>(index % 8) * 2;
  Block block = block_of_one_scale(f16_at(b, 80));
  set_minimum(block, f16_at(b, 82), byte_at(b, group) >> 4, byte_at(b, group + 1) >> 4);
  for (int i = 0; i < 32; ++i) {
    const int g = group + i / 16;
    block.level[i] = static_cast<std::int16_t>((byte_at(b, g) & 15u) * code2(b + 16, g, i % 16));
  }
  return block;
}

// 110 bytes: 32 bytes of third bits, 64 bytes of codes, 16 six-bit scales in 12 bytes, f16 scale. A third bit that is
// set means that 4 is not taken off.
Block decode_q3_k(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 110;
  const std::byte* s = b + 96;
  Block block = block_of_one_scale(f16_at(b, 108));
  for (int half = 0; half < 2; ++half) {
    const int g = static_cast<int>(index % 8) * 2 + half;
    const unsigned low = g < 8 ? byte_at(s, g) & 15u : byte_at(s, g - 8) >> 4;
    const unsigned high = byte_at(s, 8 + g % 4) >> (2 * (g / 4)) & 3u;
    const int scale = static_cast<int>(low | high << 4) - 32;
    for (int i = 0; i < 16; ++i) {
      const unsigned third = byte_at(b, 16 * (g % 2) + i) >> (g / 2) & 1u;
      const int code = static_cast<int>(code2(b + 32, g, i) + 4 * third) - 4;
      block.level[16 * half + i] = static_cast<std::int16_t>(scale * code);
    }
  }
  return block;
}

// 144 bytes: f16 scale, f16 minimum, 12 bytes of six-bit scales and minima, 128 bytes of nibbles: groups 2n and 2n + 1
// are the low and the high nibbles of the same 32 bytes.
Block decode_q4_k(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 144;
  const int g = static_cast<int>(index % 8);
  const ScaleAndMin group = six_bits(b + 4, g);
  Block block = block_of_one_scale(f16_at(b, 0));
  set_minimum(block, f16_at(b, 2), group.min, group.min);
  for (int i = 0; i < 32; ++i) {
    const unsigned code = byte_at(b, 16 + 32 * (g / 2) + i) >> (4 * (g % 2)) & 15u;
    block.level[i] = static_cast<std::int16_t>(group.scale * code);
  }
  return block;
}

// 176 bytes: as Q4_K, with 32 bytes of fifth bits (bit g of byte i: value i of group g) before the nibbles.
Block decode_q5_k(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 176;
  const int g = static_cast<int>(index % 8);
  const ScaleAndMin group = six_bits(b + 4, g);
  Block block = block_of_one_scale(f16_at(b, 0));
  set_minimum(block, f16_at(b, 2), group.min, group.min);
  for (int i = 0; i < 32; ++i) {
    const unsigned fifth = byte_at(b, 16 + i) >> g & 1u;
    const unsigned code = (byte_at(b, 48 + 32 * (g / 2) + i) >> (4 * (g % 2)) & 15u) | fifth << 4;
    block.level[i] = static_cast<std::int16_t>(group.scale * code);
  }
  return block;
}

// 210 bytes: 128 bytes of nibbles, 64 bytes of upper bit pairs, 16 int8 scales of 16 values, f16 scale. In each half of
// 128 values, quarter k of 32 takes nibble k / 2 of bytes 32 * (k % 2) on, and bit pair k.
Block decode_q6_k(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 8 * 210;
  const int part = static_cast<int>(index % 8);
  const int half = part / 4;
  const int k = part % 4;
  Block block = block_of_one_scale(f16_at(b, 208));
  for (int i = 0; i < 32; ++i) {
    const unsigned low = byte_at(b, 64 * half + 32 * (k % 2) + i) >> (4 * (k / 2)) & 15u;
    const unsigned high = byte_at(b, 128 + 32 * half + i) >> (2 * k) & 3u;
    const int code = static_cast<int>(low | high << 4) - 32;
    block.level[i] = static_cast<std::int16_t>(code * int8_at(b, 192 + 2 * part + i / 16));
  }
  return block;
}

}  // namespace lockstep
