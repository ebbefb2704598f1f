#include "server/fields.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include "server/http_error.h"

namespace lockstep {
namespace {

/// What a wrong value is, short enough for a message.
std::string shown(const Json& value) {
  if (value.is_object() || value.is_array()) return std::string("an ") + value.type_name();
  const std::string text = dump_python(value);
  const char* const type = value.is_binary() ? "number" : value.type_name();  // an integer past 64 bits
  return text.size() <= 60 ? text : std::string("a ") + type + " of " + std::to_string(text.size()) + " bytes";
}

}  // namespace

std::string indexed_name(std::string name, std::size_t i) {
  name += '[';
  name += std::to_string(i);
  name += ']';
  return name;
}

void refuse_field(const std::string& name, const Json& value, std::string_view expected) {
  throw ApiError(400, name + ": " + shown(value) + ", expected " + std::string(expected), name);
}

Fields::Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {
  if (!object.is_object()) refuse_field(name_.empty() ? "body" : name_, object, "an object");
}

std::string Fields::name_of(std::string_view key) const {
  std::string out = name_;
  if (!out.empty()) out += '.';
  out += key;
  return out;
}

const Json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::text(const char* key, std::string otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

std::optional<bool> Fields::flag(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<double> Fields::number(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_binary()) return std::strtod(dump_python(*value).c_str(), nullptr);  // an integer past 64 bits
  if (!value->is_number()) refuse(key, "a number");
  return value->get<double>();
}

std::optional<std::int64_t> Fields::integer(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    refuse(key, "a smaller number");
  if (value->is_binary()) refuse(key, "a whole number of 64 bits");
  if (value->is_number_integer()) return value->get<std::int64_t>();
  constexpr double kExact = 9007199254740992.0;  // above, a double skips whole numbers
  if (!value->is_number_float() || std::abs(value->get<double>()) > kExact ||
      value->get<double>() != std::floor(value->get<double>()))
    refuse(key, "a whole number");
  return static_cast<std::int64_t>(value->get<double>());
}

const Json* Fields::array(const char* key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_array()) refuse(key, "an array");
  return value;
}

std::optional<Fields> Fields::object(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return Fields(*value, name_of(key));
}

void Fields::refuse(const char* key, std::string_view expected) const {
  const Json* value = find(key);
  if (value == nullptr)
    throw ApiError(400, name_of(key) + ": missing, expected " + std::string(expected), name_of(key));
  refuse_field(name_of(key), *value, expected);
}

}  // namespace lockstep
