// Checkpoints as they are published: one safetensors file, or several with an index.
//
// A file is u64 header length, a JSON header, data. Tensors stay in the mapping; a checkpoint of 160 GB costs its
// headers. Headers are read strictly, as a stream: what is not exactly the format is refused before memory is taken for
// it. It knows nothing of what the names mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"

namespace lockstep {

/// Element types that a checkpoint may store. i8 and u8 are bytes: packed FP4 codes, two each.
enum class StoredType : std::uint8_t { f32, f16, bf16, f8_e4m3, f8_e8m0, i8, u8, i32, i64 };

std::string_view name_of(StoredType type);  // as in the header: "F8_E4M3"
std::size_t size_of(StoredType type);
std::optional<StoredType> stored_type_named(std::string_view name);

/// A tensor of a file, as a view into its bytes.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  // slowest axis first; empty for a single value
  std::span<const std::byte> bytes;
};

/// "[256, 128]".
std::string shape_text(std::span<const std::int64_t> shape);

/// Reads one file's header. `bytes` is the whole file, borrowed by the result; `name` stands in messages.
/// Refused: a header that is not a JSON object of {"dtype", "shape", "data_offsets"} and one "__metadata__" of strings,
/// names that occur twice, types that we do not know, offsets that do not match type and shape, gaps, overlaps and
/// bytes that no tensor has. Throws Error::bad_file, Error::unsupported for a type.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

class Checkpoint {
 public:
  /// Opens a folder: the files that its model.safetensors.index.json names, or all its *.safetensors. With an index,
  /// files that hold no tensor that is `wanted` are left alone and need not be there; `wanted` may be empty.
  /// Throws Error::io, what parse_safetensors throws, and Error::bad_file when index and files disagree or a tensor
  /// lies in two files.
  explicit Checkpoint(const std::filesystem::path& folder, const std::function<bool(std::string_view)>& wanted = {});

  const std::filesystem::path& folder() const { return folder_; }
  std::size_t file_count() const { return files_.size(); }
  std::uint64_t file_bytes() const;  // of the files that are open

  /// File after file, in each in the order of the data.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // nullptr when absent

  /// Lets go of the memory that reading a tensor took. It may be read again, from the disk.
  void release(const StoredTensor& tensor) const;

 private:
  void open(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

/// Writes one file: a header padded to 8 bytes, then the tensors in the order given. It appears when it is whole.
/// Throws Error::io; Error::bad_argument for a tensor whose bytes do not match its type and shape.
void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors);

}  // namespace lockstep
