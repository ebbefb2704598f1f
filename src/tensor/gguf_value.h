// One metadata value of a GGUF file, as a view into the file's bytes.
//
// Nothing is copied or converted until it is asked for: a vocabulary of 129280 strings costs one walk to check and one
// to read. A value borrows the bytes of the file that it was read from and must not outlive it. Writers disagree about
// widths (u32 or i64, f32 or f64, scalar or array of equal numbers), so the readers here accept every width that holds
// the number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr std::uint32_t kGgufTypeCount = 13;

/// "u32", "string", ... as used in messages.
std::string_view name_of(GgufType type);
/// Bytes of one value; 0 for strings and arrays, whose length varies.
std::size_t size_of(GgufType type);
bool is_integer(GgufType type);

class GgufValue {
 public:
  /// `bytes` is the payload: the value itself, or the elements of an array one after another, strings with their
  /// lengths. It must have been checked to hold `count` whole values; a scalar has count 1 and element == type.
  GgufValue(GgufType type, GgufType element, std::uint64_t count, std::span<const std::byte> bytes)
      : type_(type), element_(element), count_(count), bytes_(bytes) {}

  GgufType type() const { return type_; }
  bool is_array() const { return type_ == GgufType::array; }
  GgufType element_type() const { return element_; }  // of an array; of a scalar its own type
  std::uint64_t count() const { return count_; }      // elements of an array; 1 for a scalar
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Value `index` of an array, or the scalar itself (index 0), if it is of a fitting kind; nothing otherwise, or when
  /// index is past the end. An integer is any integer type that fits int64; a number is any float or integer type; a
  /// truth is a bool, or an integer 0 or 1.
  std::optional<std::int64_t> to_int(std::uint64_t index = 0) const;
  std::optional<double> to_number(std::uint64_t index = 0) const;
  std::optional<bool> to_bool(std::uint64_t index = 0) const;

  /// The text of a scalar string; nothing if it is something else.
  std::optional<std::string_view> to_string() const;
  /// The first `most` strings of a string array, or the one of a scalar; empty if it is something else.
  std::vector<std::string_view> to_strings(std::uint64_t most = UINT64_MAX) const;

  /// "u32", "array of 44 i32".
  std::string describe() const;

 private:
  GgufType type_;
  GgufType element_;
  std::uint64_t count_;
  std::span<const std::byte> bytes_;
};

struct GgufKey {
  std::string_view name;
  GgufValue value;
};

/// Text of a file made safe to print: 'text', with control bytes and broken UTF-8 as \xNN, cut after about `most`
/// bytes.
std::string quoted(std::string_view text, std::size_t most = 80);

}  // namespace lockstep
