// The quantised formats on a device: 16 values of a row at a time, as four words of int8 codes and what scales them.
//
// The canonical block of tensor/block.h, cut in halves: with I the dot of a half's codes and activation codes, S the
// sum of the activation codes,
//   single   term = float(factor * (I0 + I1)) * scale           one factor for the block
//   halves   term = float(factor0 * I0 + factor1 * I1) * scale   a factor for each half
//   dual     term = fma(float(I1), scale1, float(I0) * scale0)
//   minimum  term = fma(-float(level0 * S0 + level1 * S1), min_scale, term)
// which are the integers of decode_block with the small factors taken out, so that codes fit in int8. The formats that
// most files use are laid out anew when they are taken in (planes.h); the others are read as they lie in the file.
#pragma once

#include "gpu/device.h"
#include "numerics/round.h"
#include "tensor/dtype.h"

namespace lockstep::gpu {

/// `folded` is for the tile kernel alone: halves whose codes times their factors fit in int8 and are multiplied so.
enum class Kind : std::uint8_t { single, halves, dual, folded };

/// Grids and levels of tensor/tables.h in device memory.
struct Tables {
  std::uint16_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512], iq1[2048];
  std::int8_t level_iq2[4], level_iq3_xxs[8], level_iq3_s[8], level_iq4[16], level_e2m1[16], level_rocmfp4[16],
      level_rocmfp3[8], level_rocmfp2[4], level_rocmfp2_s40[4];
  alignas(8) std::uint32_t bytes_iq2_xxs[256][2];  // grid rows as eight int8 levels
};

struct Half {
  std::uint32_t code[4];
  int factor;
  float scale;
  int min_level;
  float min_scale;
};

#if defined(LOCKSTEP_KERNEL)

LOCKSTEP_DEVICE float f16_at(const std::uint8_t* b) { return widen_f16(load_u16(b)); }

/// Nibble of value i of 32: byte j holds value j low and value j + 16 high.
LOCKSTEP_DEVICE int split_nibble(const std::uint8_t* b, int i) { return i < 16 ? b[i] & 15 : b[i - 16] >> 4; }
LOCKSTEP_DEVICE int nibble_at(const std::uint8_t* b, int i) { return b[i / 2] >> (4 * (i % 2)) & 15; }

/// Formats as they lie in the file, value by value. F gives kValues and kBytes of a block, `scales` of a half, and
/// `code` of value i of part `part` (32 values each).
template <class F>
struct AsInFile {
  LOCKSTEP_DEVICE static Half half(const std::uint8_t* row, int, int block, int h, const Tables& tables) {
    constexpr int kParts = F::kValues / 32;
    const std::uint8_t* b = row + static_cast<std::int64_t>(block / kParts) * F::kBytes;
    const int part = block % kParts;
    Half out = {{}, 1, 0, 1, 0};
    F::scales(out, b, part, h, tables);
    for (int w = 0; w < 4; ++w) {
      std::uint32_t word = 0;
      for (int k = 0; k < 4; ++k) {
        const int code = F::code(b, part, 16 * h + 4 * w + k, tables);
        word |= static_cast<std::uint32_t>(code & 255) << (8 * k);
      }
      out.code[w] = word;
    }
    return out;
  }
};

template <DType T>
struct Format;

#define LOCKSTEP_FORMAT(Name, values, bytes, kind, has_min)                                                      \
  template <>                                                                                                    \
  struct Format<DType::Name> : AsInFile<Format<DType::Name>> {                                                   \
    static constexpr int kValues = values, kBytes = bytes;                                                       \
    static constexpr Kind kKind = Kind::kind;                                                                    \
    static constexpr bool kHasMin = has_min;                                                                     \
    LOCKSTEP_DEVICE static void scales(Half& out, const std::uint8_t* b, int part, int h, const Tables& tables); \
    LOCKSTEP_DEVICE static int code(const std::uint8_t* b, int part, int i, const Tables& tables);               \
  }
#define LOCKSTEP_SCALES(Name)                                                                                          \
  LOCKSTEP_DEVICE void Format<DType::Name>::scales([[maybe_unused]] Half& out, [[maybe_unused]] const std::uint8_t* b, \
                                                   [[maybe_unused]] int part, [[maybe_unused]] int h,                  \
                                                   [[maybe_unused]] const Tables& tables)
#define LOCKSTEP_CODE(Name)                                                                                        \
  LOCKSTEP_DEVICE int Format<DType::Name>::code([[maybe_unused]] const std::uint8_t* b, [[maybe_unused]] int part, \
                                                [[maybe_unused]] int i, [[maybe_unused]] const Tables& tables)

LOCKSTEP_FORMAT(q4_0, 32, 18, single, false);
LOCKSTEP_FORMAT(q4_1, 32, 20, single, true);
LOCKSTEP_FORMAT(q5_0, 32, 22, single, false);
LOCKSTEP_FORMAT(q5_1, 32, 24, single, true);
LOCKSTEP_FORMAT(q3_k, 256, 110, halves, false);
LOCKSTEP_FORMAT(q5_k, 256, 176, single, true);
LOCKSTEP_FORMAT(q6_k, 256, 210, halves, false);
LOCKSTEP_FORMAT(iq1_s, 256, 50, single, false);
LOCKSTEP_FORMAT(iq1_m, 256, 56, halves, false);
LOCKSTEP_FORMAT(iq2_xs, 256, 74, halves, false);
LOCKSTEP_FORMAT(iq2_s, 256, 82, halves, false);
LOCKSTEP_FORMAT(iq3_xxs, 256, 98, single, false);
LOCKSTEP_FORMAT(iq3_s, 256, 110, single, false);
LOCKSTEP_FORMAT(iq4_nl, 32, 18, single, false);
LOCKSTEP_FORMAT(iq4_xs, 256, 136, single, false);
LOCKSTEP_FORMAT(nvfp4, 64, 36, dual, false);
LOCKSTEP_FORMAT(rocmfp4, 32, 18, dual, false);
LOCKSTEP_FORMAT(rocmfp4_fast, 32, 17, single, false);
LOCKSTEP_FORMAT(rocmfp6, 32, 26, dual, false);
LOCKSTEP_FORMAT(rocmfp8, 32, 33, single, false);
LOCKSTEP_FORMAT(rocmfp3, 32, 14, dual, false);
LOCKSTEP_FORMAT(rocmfp2, 32, 10, dual, false);
LOCKSTEP_FORMAT(rocmfp2_affine, 32, 10, single, true);
LOCKSTEP_FORMAT(rocmfp2_s40, 32, 10, dual, false);
LOCKSTEP_FORMAT(rocmi4, 32, 17, single, false);

// ---- One scale for 32 values ----

LOCKSTEP_SCALES(q4_0) { out.scale = f16_at(b); }
LOCKSTEP_CODE(q4_0) { return split_nibble(b + 2, i) - 8; }

LOCKSTEP_SCALES(q4_1) {
  out.scale = f16_at(b);
  out.min_scale = -f16_at(b + 2);
}
LOCKSTEP_CODE(q4_1) { return split_nibble(b + 4, i); }

LOCKSTEP_DEVICE int code5(const std::uint8_t* nibbles, std::uint32_t high, int i) {
  return split_nibble(nibbles, i) | static_cast<int>(high >> i & 1u) << 4;
}
LOCKSTEP_SCALES(q5_0) { out.scale = f16_at(b); }
LOCKSTEP_CODE(q5_0) { return code5(b + 6, load_u32(b + 2), i) - 16; }

LOCKSTEP_SCALES(q5_1) {
  out.scale = f16_at(b);
  out.min_scale = -f16_at(b + 2);
}
LOCKSTEP_CODE(q5_1) { return code5(b + 8, load_u32(b + 4), i); }

LOCKSTEP_SCALES(iq4_nl) { out.scale = f16_at(b); }
LOCKSTEP_CODE(iq4_nl) { return tables.level_iq4[split_nibble(b + 2, i)]; }

LOCKSTEP_SCALES(nvfp4) { out.scale = ue4m3_half_to_f32(static_cast<std::uint8_t>(b[2 * part + h] & 0x7fu)); }
LOCKSTEP_CODE(nvfp4) {
  const std::uint8_t* group = b + 4 + 8 * (2 * part + i / 16);
  const int k = i % 16;
  return tables.level_e2m1[k < 8 ? group[k] & 15 : group[k - 8] >> 4];
}

// ---- K formats ----

struct ScaleAndMin {
  int scale, min;
};
/// Six-bit scale and minimum of group g of the 12 bytes that Q4_K and Q5_K share.
LOCKSTEP_DEVICE ScaleAndMin six_bits(const std::uint8_t* s, int g) {
  if (g < 4) return {s[g] & 63, s[g + 4] & 63};
  return {(s[g + 4] & 15) | s[g - 4] >> 6 << 4, s[g + 4] >> 4 | s[g] >> 6 << 4};
}
/// Two-bit code of value i of group g in the 64 bytes that Q2_K and Q3_K share.
LOCKSTEP_DEVICE int code2(const std::uint8_t* qs, int g, int i) {
  return qs[32 * (g / 8) + 16 * (g % 2) + i] >> (2 * (g % 8 / 2)) & 3;
}

LOCKSTEP_SCALES(q3_k) {
  const std::uint8_t* s = b + 96;
  const int g = 2 * part + h;
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = s[8 + g % 4] >> (2 * (g / 4)) & 3;
  out.factor = (low | high << 4) - 32;
  out.scale = f16_at(b + 108);
}
LOCKSTEP_CODE(q3_k) {
  const int g = 2 * part + i / 16, k = i % 16, third = b[16 * (g % 2) + k] >> (g / 2) & 1;
  return code2(b + 32, g, k) + 4 * third - 4;
}

LOCKSTEP_SCALES(q5_k) {
  const ScaleAndMin group = six_bits(b + 4, part);
  out.factor = group.scale;
  out.scale = f16_at(b);
  out.min_level = group.min;
  out.min_scale = f16_at(b + 2);
}
LOCKSTEP_CODE(q5_k) { return (b[48 + 32 * (part / 2) + i] >> (4 * (part % 2)) & 15) | (b[16 + i] >> part & 1) << 4; }

LOCKSTEP_SCALES(q6_k) {
  out.factor = static_cast<std::int8_t>(b[192 + 2 * part + h]);
  out.scale = f16_at(b + 208);
}
LOCKSTEP_CODE(q6_k) {
  const int outer = part / 4, k = part % 4;
  const int low = b[64 * outer + 32 * (k % 2) + i] >> (4 * (k / 2)) & 15, high = b[128 + 32 * outer + i] >> (2 * k) & 3;
  return (low | high << 4) - 32;
}

// ---- IQ formats ----

LOCKSTEP_DEVICE std::uint32_t even_signs(std::uint32_t seven_bits) {
  std::uint32_t parity = seven_bits ^ seven_bits >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven_bits | (parity & 1u) << 7;
}
LOCKSTEP_DEVICE int signed_by(int level, std::uint32_t signs, int bit) {
  return (signs >> bit & 1u) != 0 ? -level : level;
}

LOCKSTEP_SCALES(iq2_xs) {
  out.factor = 2 * nibble_at(b + 66, 2 * part + h) + 1;
  out.scale = f16_at(b) * 0.125f;
}
LOCKSTEP_CODE(iq2_xs) {
  const std::uint32_t word = load_u16(b + 2 + 2 * (4 * part + i / 8));
  return signed_by(tables.level_iq2[tables.iq2_xs[word & 511u] >> (2 * (i % 8)) & 3], even_signs(word >> 9), i % 8);
}

LOCKSTEP_SCALES(iq2_s) {
  out.factor = 2 * nibble_at(b + 74, 2 * part + h) + 1;
  out.scale = f16_at(b) * 0.125f;
}
LOCKSTEP_CODE(iq2_s) {
  const int sub = i / 8, point = b[2 + 4 * part + sub] | (b[66 + part] >> (2 * sub) & 3) << 8;
  return signed_by(tables.level_iq2[tables.iq2_s[point] >> (2 * (i % 8)) & 3], b[34 + 4 * part + sub], i % 8);
}

LOCKSTEP_SCALES(iq3_xxs) {
  out.factor = 2 * static_cast<int>(load_u32(b + 66 + 4 * part) >> 28) + 1;
  out.scale = f16_at(b) * 0.25f;
}
LOCKSTEP_CODE(iq3_xxs) {
  const int sub = i / 8;
  const std::uint32_t signs = even_signs(load_u32(b + 66 + 4 * part) >> (7 * sub) & 127u);
  const int row = tables.iq3_xxs[b[2 + 8 * part + 2 * sub + i % 8 / 4]];
  return signed_by(tables.level_iq3_xxs[row >> (3 * (i % 4)) & 7], signs, i % 8);
}

LOCKSTEP_SCALES(iq3_s) {
  out.factor = 2 * nibble_at(b + 106, part) + 1;
  out.scale = f16_at(b);
}
LOCKSTEP_CODE(iq3_s) {
  const int sub = i / 8, half = i % 8 / 4;
  const int point = b[2 + 8 * part + 2 * sub + half] | (b[66 + part] >> (2 * sub + half) & 1) << 8;
  return signed_by(tables.level_iq3_s[tables.iq3_s[point] >> (3 * (i % 4)) & 7], b[74 + 4 * part + sub], i % 8);
}

/// Eight times (grid value + delta), delta being one eighth either way.
LOCKSTEP_DEVICE int iq1_code(int row, int i, bool delta_is_negative) {
  return 8 * ((row >> (2 * (i % 8)) & 3) - 1) + (delta_is_negative ? -1 : 1);
}
LOCKSTEP_SCALES(iq1_s) {
  out.factor = 2 * static_cast<int>(load_u16(b + 34 + 2 * part) >> 12 & 7u) + 1;
  out.scale = f16_at(b) * 0.125f;
}
LOCKSTEP_CODE(iq1_s) {
  const std::uint32_t word = load_u16(b + 34 + 2 * part);
  const int sub = i / 8, point = b[2 + 4 * part + sub] | static_cast<int>(word >> (3 * sub) & 7u) << 8;
  return iq1_code(tables.iq1[point], i, (word & 0x8000u) != 0);
}

LOCKSTEP_SCALES(iq1_m) {
  const std::uint32_t scales = load_u16(b + 48 + part / 2 * 2) >> (6 * (part % 2));
  out.factor = 2 * static_cast<int>(scales >> (3 * h) & 7u) + 1;
  std::uint32_t bits = 0;
  for (int k = 0; k < 4; ++k) bits |= load_u16(b + 48 + 2 * k) >> 12 << (4 * k);
  out.scale = widen_f16(bits) * 0.125f;
}
LOCKSTEP_CODE(iq1_m) {
  const int sub = i / 8, high = nibble_at(b + 32, 4 * part + sub), point = b[4 * part + sub] | (high & 7) << 8;
  return iq1_code(tables.iq1[point], i, (high & 8) != 0);
}

LOCKSTEP_SCALES(iq4_xs) {
  out.factor = (nibble_at(b + 4, part) | static_cast<int>(load_u16(b + 2) >> (2 * part) & 3u) << 4) - 32;
  out.scale = f16_at(b);
}
LOCKSTEP_CODE(iq4_xs) { return tables.level_iq4[split_nibble(b + 8 + 16 * part, i)]; }

// ---- ROCmFP formats ----

LOCKSTEP_SCALES(rocmfp4) { out.scale = ue4m3_half_to_f32(b[16 + h]); }
LOCKSTEP_CODE(rocmfp4) { return tables.level_rocmfp4[split_nibble(b, i)]; }

LOCKSTEP_SCALES(rocmfp4_fast) { out.scale = ue4m3_half_to_f32(b[16]); }
LOCKSTEP_CODE(rocmfp4_fast) { return tables.level_rocmfp4[split_nibble(b, i)]; }

/// Three bytes as a number.
LOCKSTEP_DEVICE std::uint32_t load_u24(const std::uint8_t* b) {
  return load_u16(b) | static_cast<std::uint32_t>(b[2]) << 16;
}

LOCKSTEP_SCALES(rocmfp6) { out.scale = ue4m3_half_to_f32(b[24 + h]); }
LOCKSTEP_CODE(rocmfp6) {
  const int code = static_cast<int>(load_u24(b + 3 * (i / 4)) >> (6 * (i % 4)) & 63u), magnitude = code & 31;
  return code < 32 ? magnitude : code == 32 ? -32 : -magnitude;
}

LOCKSTEP_SCALES(rocmfp8) { out.scale = ue4m3_half_to_f32(b[32]); }
LOCKSTEP_CODE(rocmfp8) { return static_cast<std::int8_t>(b[i]); }

LOCKSTEP_DEVICE int rocmfp3_code(const std::uint8_t* b, int i) {
  return static_cast<int>(load_u24(b + 3 * (i / 8)) >> (3 * (i % 8)) & 7u);
}
LOCKSTEP_DEVICE int rocmfp2_code(const std::uint8_t* b, int i) { return b[i / 4] >> (2 * (i % 4)) & 3; }

LOCKSTEP_SCALES(rocmfp3) { out.scale = ue4m3_half_to_f32(b[12 + h]); }
LOCKSTEP_CODE(rocmfp3) { return tables.level_rocmfp3[rocmfp3_code(b, i)]; }

LOCKSTEP_SCALES(rocmfp2) { out.scale = ue4m3_half_to_f32(b[8 + h]); }
LOCKSTEP_CODE(rocmfp2) { return tables.level_rocmfp2[rocmfp2_code(b, i)]; }

LOCKSTEP_SCALES(rocmfp2_s40) { out.scale = ue4m3_half_to_f32(b[8 + h]); }
LOCKSTEP_CODE(rocmfp2_s40) { return tables.level_rocmfp2_s40[rocmfp2_code(b, i)]; }

LOCKSTEP_SCALES(rocmfp2_affine) {
  out.scale = ue4m3_half_to_f32(b[8]);
  out.min_scale = ue4m3_half_to_f32(b[9]);
}
LOCKSTEP_CODE(rocmfp2_affine) { return rocmfp2_code(b, i); }

LOCKSTEP_SCALES(rocmi4) { out.scale = ue4m3_half_to_f32(b[16]); }
LOCKSTEP_CODE(rocmi4) {
  const int code = split_nibble(b, i);
  return code < 8 ? code : code - 16;
}

#undef LOCKSTEP_FORMAT
#undef LOCKSTEP_SCALES
#undef LOCKSTEP_CODE

#endif

}  // namespace lockstep::gpu
