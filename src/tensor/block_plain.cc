// Decoders of the formats without sub-scales: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4 and NVFP4.
#include "tensor/block_decoders.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

/// Five-bit code of value i: a nibble in split halves and bit i of `high`.
unsigned code5(const std::byte* nibbles, std::uint32_t high, int i) {
  return split_nibble(nibbles, i) | (high >> i & 1u) << 4;
}

}  // namespace

// 34 bytes: f16 scale, 32 int8.
Block decode_q8_0(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 34;
  Block block = block_of_one_scale(f16_at(b, 0));
  for (int i = 0; i < 32; ++i) block.level[i] = static_cast<std::int16_t>(int8_at(b, 2 + i));
  return block;
}

// 18 bytes: f16 scale, nibbles less 8.
Block decode_q4_0(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 18;
  Block block = block_of_one_scale(f16_at(b, 0));
  for (int i = 0; i < 32; ++i) {
    block.level[i] = static_cast<std::int16_t>(static_cast<int>(split_nibble(b + 2, i)) - 8);
  }
  return block;
}

// 20 bytes: f16 scale, f16 addend, nibbles. A float addend is a minimum of level 1 and negated scale.
Block decode_q4_1(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 20;
  Block block = block_of_one_scale(f16_at(b, 0));
  set_minimum(block, -f16_at(b, 2), 1, 1);
  for (int i = 0; i < 32; ++i) block.level[i] = static_cast<std::int16_t>(split_nibble(b + 4, i));
  return block;
}

// 22 bytes: f16 scale, 32 fifth bits, nibbles; codes less 16.
Block decode_q5_0(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 22;
  Block block = block_of_one_scale(f16_at(b, 0));
  const std::uint32_t high = u32_at(b, 2);
  for (int i = 0; i < 32; ++i) {
    block.level[i] = static_cast<std::int16_t>(static_cast<int>(code5(b + 6, high, i)) - 16);
  }
  return block;
}

// 24 bytes: f16 scale, f16 addend, 32 fifth bits, nibbles.
Block decode_q5_1(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 24;
  Block block = block_of_one_scale(f16_at(b, 0));
  set_minimum(block, -f16_at(b, 2), 1, 1);
  const std::uint32_t high = u32_at(b, 4);
  for (int i = 0; i < 32; ++i) block.level[i] = static_cast<std::int16_t>(code5(b + 8, high, i));
  return block;
}

// 18 bytes: f16 scale, nibbles into the codebook.
Block decode_iq4_nl(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 18;
  Block block = block_of_one_scale(f16_at(b, 0));
  for (int i = 0; i < 32; ++i) block.level[i] = kLevelIq4[split_nibble(b + 2, i)];
  return block;
}

// 17 bytes: E8M0 scale, E2M1 nibbles. The levels are doubled, so the scale is halved.
Block decode_mxfp4(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 17;
  Block block = block_of_one_scale(e8m0_half_to_f32(static_cast<std::uint8_t>(b[0])));
  for (int i = 0; i < 32; ++i) block.level[i] = kLevelE2m1[split_nibble(b + 1, i)];
  return block;
}

// 36 bytes for 64 values: four UE4M3 scales of 16 values (bit 7 has no meaning), then E2M1 nibbles, 8 bytes a group in
// split halves of that group.
Block decode_nvfp4(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index / 2 * 36;
  const std::int64_t group = index % 2 * 2;
  const auto scale = [&](std::int64_t g) {
    return ue4m3_half_to_f32(static_cast<std::uint8_t>(byte_at(b, g) & 0x7fu));
  };
  Block block = block_of_two_scales(scale(group), scale(group + 1));
  for (int i = 0; i < 32; ++i) {
    block.level[i] = kLevelE2m1[split_nibble(b + 4 + 8 * (group + i / 16), i % 16, 16)];
  }
  return block;
}

}  // namespace lockstep
