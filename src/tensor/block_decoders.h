// The decoders behind decode_block, one a format, and the few helpers they share. Only block.cc and the decoder files
// include this. Each decodes part `index` of a row: value 32 * index on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "numerics/round.h"
#include "tensor/block.h"

namespace lockstep {

inline unsigned byte_at(const std::byte* bytes, std::int64_t i) { return std::to_integer<unsigned>(bytes[i]); }
inline int int8_at(const std::byte* bytes, std::int64_t i) { return static_cast<std::int8_t>(bytes[i]); }
inline std::uint16_t u16_at(const std::byte* bytes, std::int64_t i) { return load_as<std::uint16_t>(bytes + i); }
inline std::uint32_t u32_at(const std::byte* bytes, std::int64_t i) { return load_as<std::uint32_t>(bytes + i); }
inline float f16_at(const std::byte* bytes, std::int64_t i) { return f16_to_f32(u16_at(bytes, i)); }
inline float ue4m3_at(const std::byte* bytes, std::int64_t i) {
  return ue4m3_half_to_f32(static_cast<std::uint8_t>(bytes[i]));
}

/// Nibble of value i of `count` values in "split halves" order: byte j holds value j low and value j + count / 2 high.
inline unsigned split_nibble(const std::byte* bytes, int i, int count = 32) {
  const int half = count / 2;
  return i < half ? byte_at(bytes, i) & 15u : byte_at(bytes, i - half) >> 4;
}

/// Nibble i of bytes that hold value 2j low and value 2j + 1 high.
inline unsigned nibble_at(const std::byte* bytes, std::int64_t i) {
  return i % 2 == 0 ? byte_at(bytes, i / 2) & 15u : byte_at(bytes, i / 2) >> 4;
}

/// The f16 scale of an IQ1_M block, scattered over the top nibbles of its last four words.
inline std::uint16_t iq1_m_scale_bits(const std::byte* block) {
  unsigned bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(u16_at(block, 48 + 2 * i)) >> 12 << (4 * i);
  return static_cast<std::uint16_t>(bits);
}

inline Block block_of_one_scale(float scale) {
  Block block{};
  block.scale[0] = block.scale[1] = scale;
  return block;
}

inline Block block_of_two_scales(float first, float second) {
  Block block{};
  block.scale[0] = first;
  block.scale[1] = second;
  block.dual = true;
  return block;
}

/// Says that value i is level[i] * scale - minimum * min_scale, with a minimum for each half.
inline void set_minimum(Block& block, float min_scale, unsigned first, unsigned second) {
  block.has_min = true;
  block.min_scale = min_scale;
  block.min_level[0] = static_cast<int>(first);
  block.min_level[1] = static_cast<int>(second);
}

// block_plain.cc: one scale (and sometimes a minimum) for 32 values, or for 16.
Block decode_q8_0(const std::byte* row, std::int64_t index);
Block decode_q4_0(const std::byte* row, std::int64_t index);
Block decode_q4_1(const std::byte* row, std::int64_t index);
Block decode_q5_0(const std::byte* row, std::int64_t index);
Block decode_q5_1(const std::byte* row, std::int64_t index);
Block decode_iq4_nl(const std::byte* row, std::int64_t index);
Block decode_mxfp4(const std::byte* row, std::int64_t index);
Block decode_nvfp4(const std::byte* row, std::int64_t index);

// block_k.cc: 256 values with small integer sub-scales.
Block decode_q2_k(const std::byte* row, std::int64_t index);
Block decode_q3_k(const std::byte* row, std::int64_t index);
Block decode_q4_k(const std::byte* row, std::int64_t index);
Block decode_q5_k(const std::byte* row, std::int64_t index);
Block decode_q6_k(const std::byte* row, std::int64_t index);

// block_iq.cc: 256 values as points of a grid.
Block decode_iq1_s(const std::byte* row, std::int64_t index);
Block decode_iq1_m(const std::byte* row, std::int64_t index);
Block decode_iq2_xxs(const std::byte* row, std::int64_t index);
Block decode_iq2_xs(const std::byte* row, std::int64_t index);
Block decode_iq2_s(const std::byte* row, std::int64_t index);
Block decode_iq3_xxs(const std::byte* row, std::int64_t index);
Block decode_iq3_s(const std::byte* row, std::int64_t index);
Block decode_iq4_xs(const std::byte* row, std::int64_t index);

// block_rocm.cc: 32 values with UE4M3 scales.
Block decode_rocmfp4(const std::byte* row, std::int64_t index);
Block decode_rocmfp4_fast(const std::byte* row, std::int64_t index);
Block decode_rocmfp6(const std::byte* row, std::int64_t index);
Block decode_rocmfp8(const std::byte* row, std::int64_t index);
Block decode_rocmfp3(const std::byte* row, std::int64_t index);
Block decode_rocmfp2(const std::byte* row, std::int64_t index);
Block decode_rocmfp2_affine(const std::byte* row, std::int64_t index);
Block decode_rocmfp2_s40(const std::byte* row, std::int64_t index);
Block decode_rocmi4(const std::byte* row, std::int64_t index);

/// Code of value i of a ROCmFP2 block (two bits) and of a ROCmFP3 block (three bits); the MIX formats share them.
inline unsigned rocmfp2_code(const std::byte* block, int i) { return byte_at(block, i / 4) >> (2 * (i % 4)) & 3u; }
inline unsigned rocmfp3_code(const std::byte* block, int i) {
  const int octet = 3 * (i / 8);  // eight codes are three whole bytes
  const unsigned bits = byte_at(block, octet) | byte_at(block, octet + 1) << 8 | byte_at(block, octet + 2) << 16;
  return bits >> (3 * (i % 8)) & 7u;
}

}  // namespace lockstep
