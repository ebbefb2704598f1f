// Decoders of the ROCmFP formats: 32 values, codes first, then one UE4M3 scale byte for all or one for each 16 values.
// Scale bytes above 0x7e are refused when a file is loaded (find_invalid_block) and decode to 0 here.
#include "tensor/block_decoders.h"
#include "tensor/tables.h"

namespace lockstep {
namespace {

Block decode_two_bits(const std::byte* b, const std::int16_t* levels) {
  Block block = block_of_two_scales(ue4m3_at(b, 8), ue4m3_at(b, 9));
  for (int i = 0; i < 32; ++i) block.level[i] = levels[rocmfp2_code(b, i)];
  return block;
}

}  // namespace

// 18 bytes: nibbles into the codebook, two scales.
Block decode_rocmfp4(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 18;
  Block block = block_of_two_scales(ue4m3_at(b, 16), ue4m3_at(b, 17));
  for (int i = 0; i < 32; ++i) block.level[i] = kLevelRocmfp4[split_nibble(b, i)];
  return block;
}

// 17 bytes: the same with one scale.
Block decode_rocmfp4_fast(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 17;
  Block block = block_of_one_scale(ue4m3_at(b, 16));
  for (int i = 0; i < 32; ++i) block.level[i] = kLevelRocmfp4[split_nibble(b, i)];
  return block;
}

// 26 bytes: 6-bit codes of sign and magnitude, four in three bytes, two scales. Code 32 (minus zero) is -32: encoders
// that took it for 0 never wrote it, so this rule reads files of both kinds.
Block decode_rocmfp6(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 26;
  Block block = block_of_two_scales(ue4m3_at(b, 24), ue4m3_at(b, 25));
  for (int i = 0; i < 32; ++i) {
    const int at = 3 * (i / 4);
    const unsigned bits = byte_at(b, at) | byte_at(b, at + 1) << 8 | byte_at(b, at + 2) << 16;
    const unsigned code = bits >> (6 * (i % 4)) & 63u;
    const int magnitude = static_cast<int>(code & 31u);
    block.level[i] = static_cast<std::int16_t>(code < 32 ? magnitude : code == 32 ? -32 : -magnitude);
  }
  return block;
}

// 33 bytes: int8 levels, one scale.
Block decode_rocmfp8(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 33;
  Block block = block_of_one_scale(ue4m3_at(b, 32));
  for (int i = 0; i < 32; ++i) block.level[i] = static_cast<std::int16_t>(int8_at(b, i));
  return block;
}

// 14 bytes: 3-bit codes, two scales.
Block decode_rocmfp3(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 14;
  Block block = block_of_two_scales(ue4m3_at(b, 12), ue4m3_at(b, 13));
  for (int i = 0; i < 32; ++i) block.level[i] = kLevelRocmfp3[rocmfp3_code(b, i)];
  return block;
}

// 10 bytes: 2-bit codes, two scale bytes. Three formats with one id.
Block decode_rocmfp2(const std::byte* row, std::int64_t index) {
  return decode_two_bits(row + index * 10, kLevelRocmfp2);
}
Block decode_rocmfp2_s40(const std::byte* row, std::int64_t index) {
  return decode_two_bits(row + index * 10, kLevelRocmfp2S40);
}
// The first scale byte is for all 32 values, the second an offset that is taken off.
Block decode_rocmfp2_affine(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 10;
  Block block = block_of_one_scale(ue4m3_at(b, 8));
  set_minimum(block, ue4m3_at(b, 9), 1, 1);
  for (int i = 0; i < 32; ++i) block.level[i] = static_cast<std::int16_t>(rocmfp2_code(b, i));
  return block;
}

// 17 bytes: two's complement nibbles, one scale.
Block decode_rocmi4(const std::byte* row, std::int64_t index) {
  const std::byte* b = row + index * 17;
  Block block = block_of_one_scale(ue4m3_at(b, 16));
  for (int i = 0; i < 32; ++i) {
    const int code = static_cast<int>(split_nibble(b, i));
    block.level[i] = static_cast<std::int16_t>(code < 8 ? code : code - 16);
  }
  return block;
}

}  // namespace lockstep
