// Writes GGUF files of any size in bounded memory: first all keys and tensors are declared, then the data goes by once.
//
// A file appears under its final name only when it is whole (base/output_file.h): finish() gives the names, and a
// writer that is destroyed before leaves nothing. Of a split output the first part is renamed last, so that whoever can
// open part 1 can open them all. Offsets and padding are the writer's business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/output_file.h"
#include "tensor/dtype.h"
#include "tensor/gguf.h"

namespace lockstep {

template <class T>
inline constexpr bool kIsGgufScalar = false;
template <class T>
inline constexpr GgufType kGgufTypeOf = GgufType::array;
#define LOCKSTEP_GGUF_SCALAR(cpp_type, name)            \
  template <>                                           \
  inline constexpr bool kIsGgufScalar<cpp_type> = true; \
  template <>                                           \
  inline constexpr GgufType kGgufTypeOf<cpp_type> = GgufType::name
LOCKSTEP_GGUF_SCALAR(std::uint8_t, u8);
LOCKSTEP_GGUF_SCALAR(std::int8_t, i8);
LOCKSTEP_GGUF_SCALAR(std::uint16_t, u16);
LOCKSTEP_GGUF_SCALAR(std::int16_t, i16);
LOCKSTEP_GGUF_SCALAR(std::uint32_t, u32);
LOCKSTEP_GGUF_SCALAR(std::int32_t, i32);
LOCKSTEP_GGUF_SCALAR(std::uint64_t, u64);
LOCKSTEP_GGUF_SCALAR(std::int64_t, i64);
LOCKSTEP_GGUF_SCALAR(float, f32);
LOCKSTEP_GGUF_SCALAR(double, f64);
LOCKSTEP_GGUF_SCALAR(bool, boolean);
#undef LOCKSTEP_GGUF_SCALAR

template <class T>
concept GgufScalar = kIsGgufScalar<T>;

struct GgufWriterOptions {
  std::uint64_t alignment = kGgufAlignment;
  /// Greatest size of one file; 0 for one file of any size. A tensor is never cut: one that is larger than this lies
  /// alone in a larger part.
  std::uint64_t part_bytes = 0;
  /// Files that are read meanwhile: begin() refuses to write to any of them.
  std::vector<std::filesystem::path> inputs;
  /// Told how many bytes of tensor data are done, of how many: at most once every few megabytes, and at the end.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

class GgufWriter {
 public:
  /// `out` is the final name. If the output turns out to need several parts, they are called
  /// <out without .gguf>-00001-of-0000N.gguf. Nothing is written before begin().
  explicit GgufWriter(std::filesystem::path out, GgufWriterOptions options = {});
  ~GgufWriter() = default;
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // Declare. A key that is set again keeps its place and gets the new value. general.alignment and split.* are the
  // writer's own and are refused (Error::bad_argument), as are empty and overlong names.
  template <GgufScalar T>
  void set(std::string_view key, T value) {
    put(key, kGgufTypeOf<T>, kGgufTypeOf<T>, 1, std::as_bytes(std::span(&value, 1)));
  }
  void set(std::string_view key, std::string_view value);
  template <GgufScalar T>
  void set_array(std::string_view key, std::span<const T> values) {
    put(key, GgufType::array, kGgufTypeOf<T>, values.size(), std::as_bytes(values));
  }
  void set_array(std::string_view key, std::span<const std::string_view> values);
  void set_value(std::string_view key, const GgufValue& value);
  /// Every key of `from` but the writer's own.
  void set_all(const Gguf& from);

  /// ne has 1 to 4 extents, ne[0] fastest and a multiple of the dtype's block.
  /// Throws Error::bad_argument for a bad shape and for a name that was declared before.
  void add_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> ne);

  /// Ends the declarations, decides on the parts and opens the first. Throws Error::io, and Error::bad_argument for a
  /// place where no file can be put, or where an input lies.
  void begin();

  /// Instead of begin(), for a file that is never written: what stands before the data of a whole file, which begins
  /// behind it. Tensors follow in order, each padded to the alignment.
  std::string header();

  /// The next bytes of the tensor data, in the order of declaration; a tensor may come in any number of pieces, but a
  /// piece must not reach into the next tensor. Throws Error::io, for instance when the disk is full.
  void append(std::span<const std::byte> bytes);

  /// Index of the tensor that the next append() goes to; the number of tensors when all are complete.
  std::size_t current() const { return current_; }
  std::uint64_t total_bytes() const { return total_bytes_; }  // of tensor data, without padding

  /// Ends the file: all data must have been appended. Returns the files that are now there, in order. Throws Error::io.
  std::vector<std::filesystem::path> finish();

 private:
  struct Key {
    std::string name;
    std::string encoded;  // name, type and value, as they stand in the file
  };
  struct Tensor {
    std::string name;
    std::uint32_t file_id;
    std::vector<std::int64_t> ne;
    std::uint64_t size;
    std::uint64_t offset;  // in its part's data section
  };
  struct Part {
    std::filesystem::path path;
    std::size_t first = 0;  // tensors [first, last)
    std::size_t last = 0;
    std::unique_ptr<OutputFile> file;  // once it has begun
  };

  void put(std::string_view key, GgufType type, GgufType element, std::uint64_t count,
           std::span<const std::byte> bytes);
  std::string header_of(std::size_t part) const;
  void check_keys() const;
  void plan_parts();
  void name_parts();
  void open_part();
  void advance();
  void write(std::span<const std::byte> bytes) { parts_[part_].file->write(bytes); }
  void report(bool at_end);

  std::filesystem::path out_;
  GgufWriterOptions options_;
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> tensor_names_;
  std::vector<Part> parts_;
  bool has_begun_ = false;
  bool has_finished_ = false;
  std::size_t part_ = 0;      // the part being written
  std::size_t current_ = 0;   // the tensor being written
  std::uint64_t filled_ = 0;  // bytes of it
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t reported_bytes_ = 0;
};

}  // namespace lockstep
