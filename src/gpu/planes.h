// The formats of most files as the device keeps them: each row's codes first, aligned and side by side, then its
// scales.
//
// A row stays a piece of its own, of a multiple of 16 bytes, so that blocks of rows and planes of experts are plain
// offsets. `relay` writes one block of 32 values from the file's bytes; `half` reads what it wrote. With b blocks a
// row:
//   q8_0     [b] 32 codes               [b] f16
//   q2_k     [b][2] 16 codes of 2 bits  [b][2] scale and minimum nibbles   [b / 8] f16 scale, f16 minimum
//   q4_k     [b][2] 16 codes of 4 bits  [b] scale and minimum bytes        [b / 8] f16 scale, f16 minimum
//   iq2_xxs  [b] 8 bytes as in the file [b / 8] f16
//   mxfp4    [b][2] 16 codes of 4 bits  [b] E8M0
#pragma once

#include "gpu/formats.h"

namespace lockstep::gpu {

constexpr bool has_planes(DType dtype) {
  return dtype == DType::q8_0 || dtype == DType::q2_k || dtype == DType::q4_k || dtype == DType::iq2_xxs ||
         dtype == DType::mxfp4;
}

/// Bytes of a row of `width` values in planes.
constexpr std::size_t plane_row_bytes(DType dtype, std::int64_t width) {
  const std::size_t blocks = static_cast<std::size_t>(width / 32), supers = blocks / 8;
  const std::size_t bytes = dtype == DType::q8_0      ? blocks * 34
                            : dtype == DType::q2_k    ? blocks * 10 + supers * 4
                            : dtype == DType::q4_k    ? blocks * 18 + supers * 4
                            : dtype == DType::iq2_xxs ? blocks * 8 + supers * 2
                                                      : blocks * 17;
  return (bytes + 15) / 16 * 16;
}

#if defined(LOCKSTEP_KERNEL)

template <class T>
LOCKSTEP_DEVICE T read_as(const std::uint8_t* from) {
  return *reinterpret_cast<const T*>(from);
}
/// The same in a weight, which passes through.
template <class T>
LOCKSTEP_DEVICE T read_weight(const std::uint8_t* from) {
  T value;
  load_once(value, from);
  return value;
}
LOCKSTEP_DEVICE float f16_aligned(const std::uint8_t* from) { return widen_f16(read_weight<std::uint16_t>(from)); }

template <>
struct Format<DType::q8_0> {
  static constexpr int kValues = 32, kBytes = 34;
  static constexpr Kind kKind = Kind::single;
  static constexpr bool kHasMin = false;
  LOCKSTEP_DEVICE static void relay(std::uint8_t* row, const std::uint8_t* file, int width, int block) {
    const std::uint8_t* b = file + block * 34;
    for (int i = 0; i < 32; ++i) row[block * 32 + i] = b[2 + i];
    *reinterpret_cast<std::uint16_t*>(row + width + 2 * block) = static_cast<std::uint16_t>(load_u16(b));
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h, const Tables&) {
    const Words4 words = load_once(row + block * 32 + 16 * h);
    return {
        {words.word[0], words.word[1], words.word[2], words.word[3]}, 1, f16_aligned(row + width + 2 * block), 1, 0};
  }
};

template <>
struct Format<DType::iq2_xxs> {
  static constexpr int kValues = 256, kBytes = 66;
  static constexpr bool kHasPoints = true;  // `half` can read the grid in shared memory
  static constexpr Kind kKind = Kind::single;
  static constexpr bool kHasMin = false;
  LOCKSTEP_DEVICE static void relay(std::uint8_t* row, const std::uint8_t* file, int width, int block) {
    const std::uint8_t* b = file + block / 8 * 66;
    for (int i = 0; i < 8; ++i) row[block * 8 + i] = b[2 + block % 8 * 8 + i];
    if (block % 8 == 0)
      *reinterpret_cast<std::uint16_t*>(row + width / 4 + block / 4) = static_cast<std::uint16_t>(load_u16(b));
  }
  /// Four levels of a grid row with four signs. No level is 0, so a byte's two's complement carries nothing out.
  LOCKSTEP_DEVICE static std::uint32_t with_signs(std::uint32_t levels, std::uint32_t signs) {
    const std::uint32_t ones = (signs & 15u) * 0x00204081u & 0x01010101u;
    return (levels ^ ones * 255u) + ones;
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h,
                                   const Tables& tables) {
    return half(row, width, block, h, reinterpret_cast<const Words2*>(tables.bytes_iq2_xxs));
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h,
                                   const Words2* points) {
    const Words2 part = read_weight<Words2>(row + block * 8);
    Half out = {
        {}, 2 * static_cast<int>(part.word[1] >> 28) + 1, f16_aligned(row + width / 4 + block / 8 * 2) * 0.125f, 1, 0};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t signs = even_signs(part.word[1] >> (7 * (2 * h + k)) & 127u);
      const Words2 levels = points[part.word[0] >> (8 * (2 * h + k)) & 255u];
      out.code[2 * k] = with_signs(levels.word[0], signs);
      out.code[2 * k + 1] = with_signs(levels.word[1], signs >> 4);
    }
    return out;
  }
};

template <>
struct Format<DType::q2_k> {
  static constexpr int kValues = 256, kBytes = 84;
  static constexpr Kind kKind = Kind::halves;
  static constexpr bool kCanFold = true;  // codes are at most 3, factors 15
  static constexpr bool kHasMin = true;
  LOCKSTEP_DEVICE static void relay(std::uint8_t* row, const std::uint8_t* file, int width, int block) {
    const std::uint8_t* b = file + block / 8 * 84;
    const int blocks = width / 32;
    for (int h = 0; h < 2; ++h) {
      const int group = block % 8 * 2 + h;
      std::uint32_t word = 0;  // value 4k + m at bit 2k of byte m: shifting by 2k brings four codes into place
      for (int i = 0; i < 16; ++i)
        word |= static_cast<std::uint32_t>(code2(b + 16, group, i)) << (8 * (i % 4) + 2 * (i / 4));
      *reinterpret_cast<std::uint32_t*>(row + block * 8 + 4 * h) = word;
      row[blocks * 8 + 2 * block + h] = b[group];
    }
    if (block % 8 == 0) *reinterpret_cast<std::uint32_t*>(row + blocks * 10 + block / 2) = load_u32(b + 80);
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h, const Tables&) {
    const unsigned blocks = width / 32;
    const auto word = read_weight<std::uint32_t>(row + block * 8 + 4 * h);
    const int nibbles = row[blocks * 8 + 2 * block + h];
    const auto scales = read_weight<std::uint32_t>(row + blocks * 10 + block / 8 * 4);
    Half out = {{}, nibbles & 15, widen_f16(scales & 0xffffu), nibbles >> 4, widen_f16(scales >> 16)};
#pragma unroll
    for (int k = 0; k < 4; ++k) out.code[k] = word >> (2 * k) & 0x03030303u;
    return out;
  }
};

template <>
struct Format<DType::q4_k> {
  static constexpr int kValues = 256, kBytes = 144;
  static constexpr Kind kKind = Kind::single;
  static constexpr bool kHasMin = true;
  LOCKSTEP_DEVICE static void relay(std::uint8_t* row, const std::uint8_t* file, int width, int block) {
    const std::uint8_t* b = file + block / 8 * 144;
    const int blocks = width / 32, g = block % 8;
    for (int h = 0; h < 2; ++h)
      for (int w = 0; w < 2; ++w) {
        std::uint32_t word = 0;  // byte m: value 8w + m low, value 8w + 4 + m high
        for (int m = 0; m < 4; ++m)
          for (int high = 0; high < 2; ++high) {
            const int i = 16 * h + 8 * w + 4 * high + m;
            const std::uint32_t code = b[16 + 32 * (g / 2) + i] >> (4 * (g % 2)) & 15u;
            word |= code << (8 * m + 4 * high);
          }
        *reinterpret_cast<std::uint32_t*>(row + block * 16 + 8 * h + 4 * w) = word;
      }
    const ScaleAndMin group = six_bits(b + 4, g);
    row[blocks * 16 + 2 * block] = static_cast<std::uint8_t>(group.scale);
    row[blocks * 16 + 2 * block + 1] = static_cast<std::uint8_t>(group.min);
    if (g == 0) *reinterpret_cast<std::uint32_t*>(row + blocks * 18 + block / 2) = load_u32(b);
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h, const Tables&) {
    const unsigned blocks = width / 32;
    const Words2 words = read_weight<Words2>(row + block * 16 + 8 * h);
    const int group = read_weight<std::uint16_t>(row + blocks * 16 + 2 * block);
    const auto scales = read_weight<std::uint32_t>(row + blocks * 18 + block / 8 * 4);
    return {{words.word[0] & 0x0f0f0f0fu, words.word[0] >> 4 & 0x0f0f0f0fu, words.word[1] & 0x0f0f0f0fu,
             words.word[1] >> 4 & 0x0f0f0f0fu},
            group & 255,
            widen_f16(scales & 0xffffu),
            group >> 8,
            widen_f16(scales >> 16)};
  }
};

template <>
struct Format<DType::mxfp4> {
  static constexpr int kValues = 32, kBytes = 17;
  static constexpr Kind kKind = Kind::single;
  static constexpr bool kHasMin = false;
  LOCKSTEP_DEVICE static void relay(std::uint8_t* row, const std::uint8_t* file, int width, int block) {
    const std::uint8_t* b = file + block * 17;
    for (int w = 0; w < 4; ++w) {
      std::uint32_t word = 0;  // nibbles in order of their values
      for (int i = 0; i < 8; ++i) word |= static_cast<std::uint32_t>(split_nibble(b + 1, 8 * w + i)) << (4 * i);
      *reinterpret_cast<std::uint32_t*>(row + block * 16 + 4 * w) = word;
    }
    row[width / 2 + block] = b[0];
  }
  /// Levels of four codes: the magnitudes 0, 1, 2, 3, 4, 6, 8, 12 and their negatives are both looked up.
  LOCKSTEP_DEVICE static std::uint32_t levels_of(std::uint32_t codes) {
    const std::uint32_t magnitude = codes & 0x7777u;
    const std::uint32_t positive = choose_bytes(0x03020100u, 0x0c080604u, magnitude);
    const std::uint32_t negative = choose_bytes(0xfdfeff00u, 0xf4f8fafcu, magnitude);
    const std::uint32_t is_negative = choose_bytes(0x0000ff00u, 0, codes >> 3 & 0x1111u);
    return positive ^ ((positive ^ negative) & is_negative);
  }
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, unsigned width, unsigned block, unsigned h, const Tables&) {
    const Words2 words = read_weight<Words2>(row + block * 16 + 8 * h);
    return {{levels_of(words.word[0] & 0xffffu), levels_of(words.word[0] >> 16), levels_of(words.word[1] & 0xffffu),
             levels_of(words.word[1] >> 16)},
            1,
            e8m0_half_to_f32(row[width / 2 + block]),
            1,
            0};
  }
};

#endif

}  // namespace lockstep::gpu
