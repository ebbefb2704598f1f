// A GGUF model file, or the files of a split one, opened as one whole.
//
// Weights stay where they are: a tensor is a view into the mapping, and the page cache is the only copy. Names and
// values are views too, so everything that a Gguf hands out lives as long as the Gguf (moving it is fine). Whatever
// part of a split file is given, all of its siblings are found, opened and checked against each other. The order of
// keys and tensors means nothing. It does not know what the keys of the model mean; model/config does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/gguf_parse.h"
#include "tensor/gguf_value.h"

namespace lockstep {

class Gguf {
 public:
  /// Opens a file, or all parts of a split one given any of them.
  /// Throws Error::io if a file cannot be read, Error::bad_file for damage, missing parts, and parts that do not belong
  /// together, Error::unsupported for versions and tensor types that we do not read.
  explicit Gguf(const std::filesystem::path& path, const GgufOptions& options = {});

  /// Reads a file that is in memory. `bytes` is borrowed and must outlive the Gguf; `name` is used in messages. Throws
  /// as above; a part of a split file is Error::unsupported, because its siblings cannot be found.
  Gguf(std::span<const std::byte> bytes, std::string name, const GgufOptions& options = {});

  const std::string& name() const { return name_; }  // the path as given
  std::size_t part_count() const { return part_names_.size(); }
  const std::string& part_name(std::size_t part) const { return part_names_[part]; }
  /// The files it reads, and `more`: what no output may replace meanwhile (base/output_file.h).
  std::vector<std::filesystem::path> inputs(std::initializer_list<std::filesystem::path> more = {}) const;
  std::uint64_t file_bytes() const { return file_bytes_; }  // all parts
  std::uint32_t version() const { return version_; }

  // Metadata: the first value of each key, in file order; of a split file, that of its first part.
  std::span<const GgufKey> keys() const { return keys_; }
  const GgufValue* find(std::string_view key) const;  // nullptr when absent

  // One value, whatever its width. `_of` throws Error::bad_file naming key and file when the key is absent; both forms
  // throw when it is there and of another kind.
  std::int64_t int_of(std::string_view key) const;
  std::int64_t int_or(std::string_view key, std::int64_t fallback) const;
  float float_of(std::string_view key) const;  // f64 is rounded to nearest
  float float_or(std::string_view key, float fallback) const;
  bool bool_of(std::string_view key) const;
  bool bool_or(std::string_view key, bool fallback) const;
  std::string_view string_of(std::string_view key) const;
  std::string_view string_or(std::string_view key, std::string_view fallback) const;

  // Lists: an array, or a scalar as a list of one. Throw as above; use find() first where the key may be absent.
  std::vector<std::int64_t> ints_of(std::string_view key) const;
  std::vector<float> floats_of(std::string_view key) const;
  std::vector<std::string_view> strings_of(std::string_view key) const;
  std::span<const std::byte> bytes_of(std::string_view key) const;  // an array of u8 or i8

  // Tensors, in file order, part after part.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr when absent
  const GgufTensor& tensor(std::string_view name) const;       // throws Error::bad_file when absent

  /// Who made the file: "lucebox", "ds4 sidecar", "llama.cpp", "ds4", "fp8 fork" or "unknown". For messages and
  /// defaults only, never for the mathematics. Source: docs/formats.md, "GGUF files".
  std::string_view producer() const;

  /// Blocks `blk.N.` that belong to the trunk, that is, own no `blk.N.nextn.` tensor. The count in the metadata is not
  /// to be trusted: producers differ on whether it includes the block of the drafter.
  int trunk_layers() const;

 private:
  void open_parts(const std::filesystem::path& path, const GgufOptions& options, std::vector<GgufPart>& parts);
  void merge(std::vector<GgufPart>& parts);
  void check_split(const GgufPart& part, std::size_t index, std::size_t count, std::size_t tensors) const;
  const GgufValue& require(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const GgufValue& value, const char* expected) const;

  std::string name_;
  std::vector<std::string> part_names_;
  std::vector<MappedFile> files_;  // empty when the bytes are borrowed
  std::uint64_t file_bytes_ = 0;
  std::uint32_t version_ = 0;
  std::vector<GgufKey> keys_;
  std::unordered_map<std::string_view, std::size_t> key_index_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

/// "<prefix>-00002-of-00005.gguf" taken apart.
struct SplitName {
  std::filesystem::path prefix;  // with its folder
  int number;                    // from 1
  int count;
};
std::optional<SplitName> parse_split_name(const std::filesystem::path& path);
std::filesystem::path split_path(const std::filesystem::path& prefix, int number, int count);

}  // namespace lockstep
