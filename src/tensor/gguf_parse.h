// Reads the header of one GGUF file: a pure function of its bytes.
//
// This is the only code that trusts nothing: every count, length, offset and product is checked against the bytes that
// are there before memory is taken for it, so a damaged file costs at most a small multiple of its own header. What it
// returns has been checked once and for all; the code above it does not look again. It knows nothing of split files
// (gguf.cc) and nothing of the model. Source of the layout: docs/formats.md, "GGUF files".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/gguf_value.h"

namespace lockstep {

inline constexpr std::uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint64_t kGgufAlignment = 32;  // of tensor data, unless general.alignment says otherwise
inline constexpr std::uint64_t kGgufMaxAlignment = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kGgufMaxKeys = 1 << 16;
inline constexpr std::uint64_t kGgufMaxTensors = 1 << 20;
inline constexpr std::uint64_t kGgufMaxName = 65535;  // bytes of a key or a tensor name

struct GgufOptions {
  /// Tensor type 108 has three meanings in public files and nothing in a file tells them apart. Unset: refuse it.
  /// May be rocmi4, rocmfp2_s40 or rocmfp2_affine.
  std::optional<DType> meaning_of_108;
};

struct GgufTensor {
  std::string_view name;
  DType dtype;                     // type 107 is rocmfp2 here; which of its variants, the data must tell
  std::uint32_t file_id;           // the type's number as it stands in the file
  int dims;                        // as in the file, 1..4
  std::array<std::int64_t, 4> ne;  // ne[0] is the fastest axis; 1 beyond dims
  std::span<const std::byte> bytes;
  int part;              // which file of a split one, from 0
  std::uint64_t offset;  // of bytes, from the beginning of that file

  std::int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
};

struct GgufPart {
  std::uint32_t version;
  std::uint64_t alignment;
  std::uint64_t data_start;
  std::vector<GgufKey> keys;  // in file order; a key may be there twice
  std::vector<GgufTensor> tensors;
};

/// Reads and checks one file. Views in the result point into `bytes`; `name` is used in messages only.
/// Throws Error::bad_file for damage, Error::unsupported for a version or tensor type that we do not read.
GgufPart parse_gguf(std::span<const std::byte> bytes, const std::string& name, const GgufOptions& options);

/// The least multiple of `alignment` (a power of two) that is not below `position`.
constexpr std::uint64_t align_up(std::uint64_t position, std::uint64_t alignment) {
  return (position + alignment - 1) & ~(alignment - 1);
}

}  // namespace lockstep
