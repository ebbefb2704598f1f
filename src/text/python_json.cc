#include "text/python_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostMessage = 400;  // bytes of what is said of text that is no JSON
constexpr std::size_t kMostShown = 60;     // bytes of a number in it
constexpr std::string_view kNotJson = "not JSON: ";

constexpr std::uint64_t kBigInteger = 1;  // binary subtype: the bytes are an integer's text
constexpr std::size_t kIndexedKeys = 16;  // objects with more keys get a hash index

/// Four hex digits at `at`, or nothing.
std::optional<unsigned> hex4(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  if (error != std::errc() || end != text.data() + at + 4) return std::nullopt;
  return value;
}

/// Rewrites lone \ud800..\udfff escapes as \ufffd. Escapes occur only inside strings, and a text where a backslash
/// stands elsewhere is refused by the parser anyway, so strings need not be tracked.
std::string without_lone_surrogates(std::string_view text) {
  std::string out(text);
  for (std::size_t at = out.find('\\'); at != std::string::npos; at = out.find('\\', at)) {
    if (at + 1 >= out.size()) break;
    const std::optional<unsigned> unit = out[at + 1] == 'u' ? hex4(out, at + 2) : std::nullopt;
    if (!unit) {
      at += 2;
      continue;
    }
    const bool high = *unit >= 0xd800 && *unit < 0xdc00;
    const bool low = *unit >= 0xdc00 && *unit < 0xe000;
    if (high && at + 7 < out.size() && out[at + 6] == '\\' && out[at + 7] == 'u') {
      if (const auto next = hex4(out, at + 8); next && *next >= 0xdc00 && *next < 0xe000) {
        at += 12;
        continue;
      }
    }
    if (high || low) out.replace(at + 2, 4, "fffd");
    at += 6;
  }
  return out;
}

/// Builds an ordered_json from parser events.
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return add(Json(value));
    return add(Json::binary({digits.begin(), digits.end()}, kBigInteger));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      const std::string number = last.size() <= kMostShown ? last : "one of " + std::to_string(last.size()) + " bytes";
      message_ = "a number past the range of a double: " + number;
      return false;
    }
    message_ = kNotJson;
    message_ += error.what();
    // nlohmann prefixes its own name and number; what follows the bracket is for people.
    if (const auto bracket = message_.find("] "); bracket != std::string::npos)
      message_.erase(kNotJson.size(), bracket + 2 - kNotJson.size());
    if (message_.find("byte") == std::string::npos && message_.find("column") == std::string::npos)
      message_ += " (byte " + std::to_string(position) + ")";
    // It quotes what was read of a string, however long that is.
    if (message_.size() > kMostMessage)
      message_ = message_.substr(0, kMostMessage / 2) + " ... " + message_.substr(message_.size() - kMostMessage / 2);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& message() const { return message_; }

 private:
  struct Open {
    Json value;
    std::string key;
    std::unordered_map<std::string, std::size_t> index;  // of an object's keys, once there are many
  };

  bool open(Json&& value) {
    if (open_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) {
      message_ = "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels";
      return false;
    }
    if (++nests_ > kMostJsonNests) {
      message_ = "more than " + std::to_string(kMostJsonNests) + " arrays and objects";
      return false;
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json&& value) {
    if (++values_ > kMostJsonValues) {
      message_ = "more than " + std::to_string(kMostJsonValues) + " values";
      return false;
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.value.is_array()) {
      parent.value.get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      // object_t is a vector of pairs; its own emplace would look through all of them.
      auto& members = parent.value.get_ref<Json::object_t&>();
      if (const auto place = find(parent, members)) {
        members.begin()[static_cast<std::ptrdiff_t>(*place)].second = std::move(value);
      } else {
        Json::object_t::Container& pairs = members;
        pairs.emplace_back(std::move(parent.key), std::move(value));
      }
    }
    return true;
  }

  /// Where the parent's current key already is. Indexes the key if it is new and there are many.
  std::optional<std::size_t> find(Open& parent, const Json::object_t::Container& members) {
    if (members.size() < kIndexedKeys) {
      for (std::size_t i = 0; i < members.size(); ++i)
        if (members[i].first == parent.key) return i;
      return std::nullopt;
    }
    if (parent.index.empty())
      for (std::size_t i = 0; i < members.size(); ++i) parent.index.emplace(members[i].first, i);
    const auto [entry, is_new] = parent.index.emplace(parent.key, members.size());
    if (is_new) return std::nullopt;
    return entry->second;
  }

  std::vector<Open> open_;
  std::size_t nests_ = 0, values_ = 0;
  Json root_;
  std::string message_;
};

void quote(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        } else {
          out += c;
        }
      }
    }
  }
  out += '"';
}

void dump(std::string& out, const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
    case Json::value_t::discarded:
      out += "null";
      return;
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return;
    case Json::value_t::number_integer:
      out += std::to_string(value.get<std::int64_t>());
      return;
    case Json::value_t::number_unsigned:
      out += std::to_string(value.get<std::uint64_t>());
      return;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      if (std::isnan(number)) {
        out += "NaN";
      } else if (std::isinf(number)) {
        out += number < 0 ? "-Infinity" : "Infinity";
      } else {
        out += repr_python(number);
      }
      return;
    }
    case Json::value_t::binary: {
      const Json::binary_t& digits = value.get_binary();
      LOCKSTEP_CHECK(digits.has_subtype() && digits.subtype() == kBigInteger);
      out.append(digits.begin(), digits.end());
      return;
    }
    case Json::value_t::string:
      quote(out, value.get_ref<const std::string&>());
      return;
    case Json::value_t::array: {
      out += '[';
      bool is_first = true;
      for (const Json& item : value) {
        if (!std::exchange(is_first, false)) out += ", ";
        dump(out, item);
      }
      out += ']';
      return;
    }
    case Json::value_t::object: {
      out += '{';
      bool is_first = true;
      for (const auto& [key, item] : value.get_ref<const Json::object_t&>()) {
        if (!std::exchange(is_first, false)) out += ", ";
        quote(out, key);
        out += ": ";
        dump(out, item);
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  Builder builder;
  // Most texts hold no escaped surrogate at all: then nothing is copied. Case varies, so look for the common stem.
  const bool may_have_surrogates =
      text.find("\\ud") != std::string_view::npos || text.find("\\uD") != std::string_view::npos;
  const std::string clean = may_have_surrogates ? without_lone_surrogates(text) : std::string();
  const std::string_view source = may_have_surrogates ? std::string_view(clean) : text;
  if (!Json::sax_parse(source.begin(), source.end(), &builder))
    throw Error(Error::Kind::bad_argument, std::string(what) + ": " + builder.message());
  // The reader takes one for the end of the text, and looks at nothing behind it.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw Error(Error::Kind::bad_argument, std::string(what) + ": " + std::string(kNotJson) + "a NUL byte at " +
                                               std::to_string(nul) + ", expected text to the end");
  return builder.take();
}

std::string dump_python(const Json& value) {
  std::string out;
  dump(out, value);
  return out;
}

std::string quote_python(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  quote(out, text);
  return out;
}

std::string repr_python(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  LOCKSTEP_CHECK(error == std::errc());
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += '.' + digits.substr(1);
    const int size = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const int whole = exponent + 1;
  if (count <= whole) return out + digits + std::string(static_cast<std::size_t>(whole - count), '0') + ".0";
  return out + digits.substr(0, static_cast<std::size_t>(whole)) + "." + digits.substr(static_cast<std::size_t>(whole));
}

}  // namespace lockstep
