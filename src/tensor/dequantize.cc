#include "tensor/dequantize.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"
#include "tensor/block.h"
#include "tensor/block_decoders.h"

namespace lockstep {
namespace {

void dequantize_block(const Block& block, float* out) {
  for (int i = 0; i < 32; ++i) {
    const float product = static_cast<float>(block.level[i]) * block.scale[i / 16];
    out[i] = block.has_min ? product - static_cast<float>(block.min_level[i / 16]) * block.min_scale : product;
  }
}

void dequantize_f8(const std::byte* row, std::int64_t width, float* out) {
  for (std::int64_t block = 0; block < width / 128; ++block) {
    const std::byte* b = row + block * 129;
    const float scale = e8m0_to_f32(static_cast<std::uint8_t>(b[0]));
    for (int i = 0; i < 128; ++i) out[block * 128 + i] = e4m3_to_f32(static_cast<std::uint8_t>(b[1 + i])) * scale;
  }
}

enum class ScaleKind { none, f16, e8m0, ue4m3, iq1_m };

// Where a block keeps its scales: `count` of them in a row from byte `offset` on.
struct ScaleFields {
  ScaleKind kind;
  int offset;
  int count;
};

ScaleFields scale_fields(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::rocmfp3_mix:
    case DType::rocmfp2_mix:
      return {ScaleKind::none, 0, 0};
    case DType::q8_0:
    case DType::q4_0:
    case DType::q5_0:
    case DType::iq1_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq4_nl:
    case DType::iq4_xs:
      return {ScaleKind::f16, 0, 1};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {ScaleKind::f16, 0, 2};
    case DType::q2_k:
      return {ScaleKind::f16, 80, 2};
    case DType::q3_k:
      return {ScaleKind::f16, 108, 1};
    case DType::q6_k:
      return {ScaleKind::f16, 208, 1};
    case DType::iq1_m:
      return {ScaleKind::iq1_m, 0, 1};
    case DType::mxfp4:
    case DType::f8_e4m3_b128:
      return {ScaleKind::e8m0, 0, 1};
    case DType::nvfp4:
      return {ScaleKind::ue4m3, 0, 4};
    case DType::rocmfp4:
      return {ScaleKind::ue4m3, 16, 2};
    case DType::rocmfp4_fast:
    case DType::rocmi4:
      return {ScaleKind::ue4m3, 16, 1};
    case DType::rocmfp6:
      return {ScaleKind::ue4m3, 24, 2};
    case DType::rocmfp8:
      return {ScaleKind::ue4m3, 32, 1};
    case DType::rocmfp3:
      return {ScaleKind::ue4m3, 12, 2};
    case DType::rocmfp2:
    case DType::rocmfp2_affine:
    case DType::rocmfp2_s40:
      return {ScaleKind::ue4m3, 8, 2};
  }
  LOCKSTEP_CHECK(!"a dtype without a row in scale_fields");
  return {ScaleKind::none, 0, 0};
}

bool is_finite_f16(std::uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }

/// What is wrong with scale i of a block, or an empty string.
std::string describe_bad_scale(const ScaleFields& fields, const std::byte* block, int i) {
  switch (fields.kind) {
    case ScaleKind::none:
      break;
    case ScaleKind::f16:
    case ScaleKind::iq1_m: {
      const int offset = fields.offset + 2 * i;
      const std::uint16_t bits = fields.kind == ScaleKind::f16 ? u16_at(block, offset) : iq1_m_scale_bits(block);
      if (!is_finite_f16(bits)) return fmt::format("f16 scale 0x{:04x} is not finite", bits);
      break;
    }
    case ScaleKind::e8m0:
      if (byte_at(block, fields.offset + i) == 255) return "E8M0 scale 255 is not a number";
      break;
    case ScaleKind::ue4m3: {
      const unsigned byte = byte_at(block, fields.offset + i);
      if (byte > 0x7e) return fmt::format("UE4M3 scale 0x{:02x} is above 0x7e", byte);
      break;
    }
  }
  return {};
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* row, std::int64_t width, float* out) {
  const DTypeInfo& info = info_of(dtype);
  LOCKSTEP_CHECK(width >= 0 && width % info.block_values == 0);
  if (info.quantised) {
    for (std::int64_t index = 0; index < width / 32; ++index) {
      dequantize_block(decode_block(dtype, row, index), out + 32 * index);
    }
    return;
  }
  switch (dtype) {
    case DType::f32:
      if (width > 0) std::memcpy(out, row, row_bytes(dtype, width));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < width; ++i) out[i] = f16_at(row, 2 * i);
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < width; ++i) out[i] = bf16_to_f32(u16_at(row, 2 * i));
      return;
    case DType::f8_e4m3_b128:
      dequantize_f8(row, width, out);
      return;
    default:
      LOCKSTEP_CHECK(!"i32 has no float value and MIX formats need their books");
  }
}

void dequantize_row(DType dtype, const MixBooks& books, const std::byte* row, std::int64_t width, float* out) {
  LOCKSTEP_CHECK(dtype == DType::rocmfp3_mix || dtype == DType::rocmfp2_mix);
  const bool three_bits = dtype == DType::rocmfp3_mix;
  if (!books.books) return dequantize_row(three_bits ? DType::rocmfp3 : DType::rocmfp2, row, width, out);
  const DTypeInfo& info = info_of(dtype);
  LOCKSTEP_CHECK(width >= 0 && width % info.block_values == 0);
  for (std::int64_t index = 0; index < width / 32; ++index) {
    const std::byte* b = row + index * info.block_bytes;
    for (int half = 0; half < 2; ++half) {
      const unsigned byte = byte_at(b, info.block_bytes - 2 + half);
      const float scale = ue4m3_half_to_f32(static_cast<std::uint8_t>(byte & 0x7fu));
      const float* book = books.level[byte >> 7];
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        out[32 * index + i] = scale * book[three_bits ? rocmfp3_code(b, i) : rocmfp2_code(b, i)];
      }
    }
  }
}

std::optional<std::string> find_invalid_block(DType dtype, std::span<const std::byte> blocks) {
  const std::size_t block_bytes = static_cast<std::size_t>(info_of(dtype).block_bytes);
  LOCKSTEP_CHECK(blocks.size() % block_bytes == 0);
  const ScaleFields fields = scale_fields(dtype);
  if (fields.kind == ScaleKind::none) return std::nullopt;
  for (std::size_t begin = 0; begin < blocks.size(); begin += block_bytes) {
    for (int i = 0; i < fields.count; ++i) {
      const std::string wrong = describe_bad_scale(fields, blocks.data() + begin, i);
      if (!wrong.empty()) return fmt::format("block {} of {}: {}", begin / block_bytes, info_of(dtype).name, wrong);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
