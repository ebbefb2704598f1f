#include "engine/convert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/round.h"

namespace lockstep {
namespace {

constexpr std::uint8_t kBadScale = 255;  // E8M0's NaN

std::uint8_t byte_at(const StoredTensor& tensor, std::int64_t i) {
  return std::to_integer<std::uint8_t>(tensor.bytes[static_cast<std::size_t>(i)]);
}

void decode_fp8(const ConvertSource& source, std::int64_t row, std::int64_t width, float* out) {
  const std::int64_t tiles = (width + kFp8Tile - 1) / kFp8Tile;
  for (std::int64_t i = 0; i < width; ++i) {
    const float scale = e8m0_to_f32(byte_at(*source.scale, row / kFp8Tile * tiles + i / kFp8Tile));
    out[i] = e4m3_to_f32(byte_at(*source.weight, row * width + i)) * scale;
  }
}

void decode_fp4(const ConvertSource& source, std::int64_t row, std::int64_t width, float* out) {
  for (std::int64_t i = 0; i < width; i += 2) {
    const float scale = e8m0_to_f32(byte_at(*source.scale, (row * width + i) / kPackedBlock));
    const std::uint8_t codes = byte_at(*source.weight, (row * width + i) / 2);
    out[i] = e2m1_to_f32(static_cast<std::uint8_t>(codes & 15)) * scale;
    out[i + 1] = e2m1_to_f32(static_cast<std::uint8_t>(codes >> 4)) * scale;
  }
}

/// Packed FP4 to MXFP4: the same codes and scales, with values j and j + 16 of a block in one byte instead of 2j and
/// 2j + 1. Returns the first block without a sound scale, or -1.
std::int64_t repack_fp4(const ConvertSource& source, std::int64_t row, std::int64_t width, std::byte* out) {
  for (std::int64_t block = 0; block < width / kPackedBlock; ++block) {
    const std::int64_t index = row * (width / kPackedBlock) + block;
    const std::uint8_t scale = byte_at(*source.scale, index);
    if (scale == kBadScale) return block;
    const std::byte* from = source.weight->bytes.data() + index * (kPackedBlock / 2);
    const auto code = [&](int i) {
      return std::to_integer<unsigned>(i % 2 == 0 ? from[i / 2] & std::byte{15} : from[i / 2] >> 4);
    };
    *out++ = std::byte{scale};
    for (int j = 0; j < 16; ++j) *out++ = static_cast<std::byte>(code(j) | code(j + 16) << 4);
  }
  return -1;
}

/// Whether every code times every one of the scales is a value of f16 or bf16: all are whole multiples of one power of
/// two, below another, and have fewer significant bits than either format.
bool scales_are_safe(const ConvertSource& source, DType dtype) {
  const bool is_fp4 = is_packed_fp4(*source.weight);
  const int unit = is_fp4 ? -1 : -9, top = is_fp4 ? 3 : 9;  // 0.5 to 6; 2^-9 to 448
  const int least = dtype == DType::f16 ? -24 : -133, most = dtype == DType::f16 ? 16 : 128;
  return std::all_of(source.scale->bytes.begin(), source.scale->bytes.end(), [&](std::byte scale) {
    const int exponent = std::to_integer<int>(scale) - 127;
    return exponent + unit >= least && exponent + top <= most;
  });
}

template <class T>
std::optional<std::string> copy_ids(const StoredTensor& table, std::int64_t row, std::int64_t width, std::int64_t ids,
                                    std::byte* out) {
  for (std::int64_t i = 0; i < width; ++i) {
    const auto id = load_as<T>(table.bytes.data() + static_cast<std::size_t>(row * width + i) * sizeof(T));
    if (id < 0 || id >= ids) return fmt::format("column {} is expert {} of {}, expected 0 to {}", i, id, ids, ids - 1);
    store_as(out + i * 4, static_cast<std::int32_t>(id));
  }
  return std::nullopt;
}

}  // namespace

void decode_row(const ConvertSource& source, std::int64_t row, std::int64_t width, float* out) {
  const StoredTensor& weight = *source.weight;
  const std::byte* from = weight.bytes.data() + static_cast<std::size_t>(row * width) * size_of(weight.type);
  switch (weight.type) {
    case StoredType::f32:
      for (std::int64_t i = 0; i < width; ++i) out[i] = load_as<float>(from + 4 * i);
      return;
    case StoredType::f16:
      for (std::int64_t i = 0; i < width; ++i) out[i] = f16_to_f32(load_as<std::uint16_t>(from + 2 * i));
      return;
    case StoredType::bf16:
      for (std::int64_t i = 0; i < width; ++i) out[i] = bf16_to_f32(load_as<std::uint16_t>(from + 2 * i));
      return;
    case StoredType::f8_e4m3:
      return decode_fp8(source, row, width, out);
    case StoredType::i8:
    case StoredType::u8:
      return decode_fp4(source, row, width, out);
    case StoredType::f8_e8m0:
    case StoredType::i32:
    case StoredType::i64:
      break;
  }
  LOCKSTEP_CHECK(!"a matrix of a type that the plan lets through");
}

std::int64_t inexact_values(const ConvertSource& source, std::int64_t rows, std::int64_t width, DType dtype) {
  if (dtype == DType::f32 || (source.scale != nullptr && scales_are_safe(source, dtype))) return 0;
  std::vector<float> values(static_cast<std::size_t>(width));
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    decode_row(source, row, width, values.data());
    for (const float x : values)
      count += x != (dtype == DType::f16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x)));
  }
  return count;
}

RowConverter::RowConverter(const ConvertTensor& tensor) : tensor_(tensor), width_(tensor.ne[0]) {
  if (tensor.dtype != DType::i32) quantiser_ = std::make_unique<const Quantiser>(tensor.dtype);
}

std::optional<std::string> RowConverter::convert(std::int64_t plane, std::int64_t row, float* scratch,
                                                 std::byte* out) const {
  const ConvertSource& source = tensor_.planes[static_cast<std::size_t>(plane)];
  if (!quantiser_)
    return source.weight->type == StoredType::i64
               ? copy_ids<std::int64_t>(*source.weight, row, width_, tensor_.ids, out)
               : copy_ids<std::int32_t>(*source.weight, row, width_, tensor_.ids, out);
  if (is_repacked(*source.weight, tensor_.dtype)) {
    const std::int64_t bad = repack_fp4(source, row, width_, out);
    if (bad < 0) return std::nullopt;
    return fmt::format("the scale of columns {} to {} is not a number, expected a power of two", bad * kPackedBlock,
                       bad * kPackedBlock + 31);
  }
  decode_row(source, row, width_, scratch);
  const std::span<const float> values(scratch, static_cast<std::size_t>(width_));
  quantiser_->quantise_row(values, {}, out);
  if (const auto bad = first_unheld(*quantiser_, values, {}, out))
    return fmt::format("column {} is {}, expected a number that {} holds", *bad, values[*bad],
                       info_of(tensor_.dtype).name);
  return std::nullopt;
}

}  // namespace lockstep
