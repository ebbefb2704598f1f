// The element formats that a tensor may have in a file, with their block sizes. Facts: docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  i32,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  f8_e4m3_b128,
  rocmfp4,
  rocmfp4_fast,
  rocmfp6,
  rocmfp8,
  rocmfp3,
  rocmfp3_mix,
  rocmfp2_mix,
  rocmfp2,
  rocmfp2_affine,
  rocmfp2_s40,
  rocmi4,  // the first three share id 107 in files; the data tells them apart
};
inline constexpr int kDTypeCount = 37;

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as in `lockstep dequantize --type NAME`
  std::uint32_t file_id;  // GGUF tensor type
  int block_values;       // values a block
  int block_bytes;        // bytes a block
  bool quantised;         // multiplied with int8 activations; the others are widened exactly to f32
};

const DTypeInfo& info_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
std::span<const DTypeInfo> all_dtypes();

/// Bytes of a row of `width` values. `width` must be a multiple of the block.
inline std::size_t row_bytes(DType dtype, std::int64_t width) {
  const DTypeInfo& info = info_of(dtype);
  return static_cast<std::size_t>(width / info.block_values) * static_cast<std::size_t>(info.block_bytes);
}

}  // namespace lockstep
