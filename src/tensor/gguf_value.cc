#include "tensor/gguf_value.h"

#include <array>

#include "base/bytes.h"
#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kGgufTypeCount> kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                                 "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<std::size_t, kGgufTypeCount> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/// Length of the well-formed, printable UTF-8 character that begins `text`, or 0.
std::size_t printable_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  const unsigned second = at(1);
  if (lead == 0xc2 && second < 0xa0) return 0;  // C1 controls: a terminal obeys them
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  return length;
}

}  // namespace

std::string_view name_of(GgufType type) { return kNames[static_cast<std::uint32_t>(type)]; }
std::size_t size_of(GgufType type) { return kSizes[static_cast<std::uint32_t>(type)]; }

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::u16:
    case GgufType::i16:
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::u64:
    case GgufType::i64:
      return true;
    default:
      return false;
  }
}

std::optional<std::int64_t> GgufValue::to_int(std::uint64_t index) const {
  if (index >= count_ || !is_integer(element_)) return std::nullopt;
  const std::byte* at = bytes_.data() + index * size_of(element_);
  switch (element_) {
    case GgufType::u8:
      return load_as<std::uint8_t>(at);
    case GgufType::i8:
      return load_as<std::int8_t>(at);
    case GgufType::u16:
      return load_as<std::uint16_t>(at);
    case GgufType::i16:
      return load_as<std::int16_t>(at);
    case GgufType::u32:
      return load_as<std::uint32_t>(at);
    case GgufType::i32:
      return load_as<std::int32_t>(at);
    case GgufType::i64:
      return load_as<std::int64_t>(at);
    default:
      break;
  }
  const auto value = load_as<std::uint64_t>(at);
  if (value > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<double> GgufValue::to_number(std::uint64_t index) const {
  if (index >= count_) return std::nullopt;
  if (element_ == GgufType::f32) return static_cast<double>(load_as<float>(bytes_.data() + index * 4));
  if (element_ == GgufType::f64) return load_as<double>(bytes_.data() + index * 8);
  if (element_ == GgufType::u64) return static_cast<double>(load_as<std::uint64_t>(bytes_.data() + index * 8));
  if (const auto value = to_int(index)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> GgufValue::to_bool(std::uint64_t index) const {
  if (index >= count_) return std::nullopt;
  if (element_ == GgufType::boolean) return load_as<std::uint8_t>(bytes_.data() + index) != 0;
  const auto value = to_int(index);
  if (!value || *value < 0 || *value > 1) return std::nullopt;
  return *value == 1;
}

std::optional<std::string_view> GgufValue::to_string() const {
  if (type_ != GgufType::string) return std::nullopt;
  return to_strings(1).front();
}

std::vector<std::string_view> GgufValue::to_strings(std::uint64_t most) const {
  std::vector<std::string_view> strings;
  if (element_ != GgufType::string) return strings;
  const std::uint64_t count = most < count_ ? most : count_;
  strings.reserve(count);
  const std::byte* at = bytes_.data();
  const std::byte* end = at + bytes_.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    LOCKSTEP_CHECK(end - at >= 8);
    const auto length = load_as<std::uint64_t>(at);
    at += 8;
    LOCKSTEP_CHECK(length <= static_cast<std::uint64_t>(end - at));
    strings.emplace_back(reinterpret_cast<const char*>(at), length);
    at += length;
  }
  return strings;
}

std::string GgufValue::describe() const {
  if (!is_array()) return std::string(name_of(type_));
  return "array of " + std::to_string(count_) + " " + std::string(name_of(element_));
}

std::string quoted(std::string_view text, std::size_t most) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  while (!text.empty()) {
    if (out.size() > most) return out + "'...";
    std::size_t length = printable_length(text);
    if (length > 0) {
      out += text.substr(0, length);
    } else {
      const auto byte = static_cast<unsigned char>(text[0]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      length = 1;
    }
    text.remove_prefix(length);
  }
  return out + "'";
}

}  // namespace lockstep
