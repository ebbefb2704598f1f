// Side tables of the MIX formats (type ids 105 and 106): which codebooks each expert, or each dense matrix, decodes
// with.
//
// They lie in a GGUF file's metadata as arrays of bytes, in older files beside it. A MIX tensor without its table
// cannot be decoded, so check_covers is part of loading. Layout: docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dequantize.h"
#include "tensor/dtype.h"

namespace lockstep {

enum class MixKind : std::uint8_t { down_experts, experts, dense };

struct MixKindInfo {
  MixKind kind;
  std::string_view key;     // of the metadata
  std::string_view suffix;  // of a file beside the model, in place of the metadata
};
std::span<const MixKindInfo> mix_kinds();

/// What the tables say of one tensor.
struct MixTensor {
  std::string name;  // "blk.3.ffn_down_exps.weight"
  DType dtype;
  std::int64_t in = 0;          // values a row and
  std::int64_t out = 0;         // rows an expert; both 0 for dense tensors, whose table does not say
  std::vector<MixBooks> books;  // one an expert; one for a dense tensor
};

/// A MIX tensor of the model's file.
struct MixShape {
  std::string name;
  DType dtype;
  std::int64_t in, out, experts;  // experts is 1 for a dense tensor
};

class MixTables {
 public:
  /// Reads one table. Throws Error::bad_file if the bytes are not a table of that kind, if a dimension cannot be, or if
  /// a tensor is described twice; nothing is added then, and nothing is allocated that the bytes do not hold.
  ///   source  where the bytes come from, for messages
  void add(MixKind kind, std::span<const std::byte> bytes, std::string_view source);

  /// Throws Error::bad_file unless the tables describe exactly these tensors, with these formats and dimensions.
  void check_covers(std::span<const MixShape> tensors) const;

  /// Null if no table describes the tensor. Valid until the next add.
  const MixTensor* find(std::string_view name) const;
  std::size_t size() const { return tensors_.size(); }

 private:
  std::map<std::string, MixTensor, std::less<>> tensors_;
};

}  // namespace lockstep
