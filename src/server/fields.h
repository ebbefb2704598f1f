// Reading a request's JSON: typed members, and errors that name the field, what it holds and what was expected.
//
// Unknown fields are never looked at, so they are ignored. null is the same as absent everywhere. Every error is an
// ApiError 400 whose param is the field's path, "messages[2].content".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/python_json.h"

namespace lockstep {

/// An element's name: "messages[2]".
std::string indexed_name(std::string name, std::size_t i);

/// 400: `name` holds `value`, which is not what was `expected`.
[[noreturn]] void refuse_field(const std::string& name, const Json& value, std::string_view expected);

/// A JSON object of a request. Borrows it.
class Fields {
 public:
  /// `name` is the object's own; empty for the body. Throws if it is no object.
  explicit Fields(const Json& object, std::string name = {});

  const Json& json() const { return object_; }
  const std::string& name() const { return name_; }
  std::string name_of(std::string_view key) const;

  /// A member that is there and not null, or nullptr.
  const Json* find(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }

  std::string text(const char* key, std::string otherwise = {}) const;
  std::optional<bool> flag(const char* key) const;
  bool flag(const char* key, bool otherwise) const { return flag(key).value_or(otherwise); }
  std::optional<double> number(const char* key) const;
  /// A whole number, also one written as 1.0.
  std::optional<std::int64_t> integer(const char* key) const;
  const Json* array(const char* key) const;
  std::optional<Fields> object(const char* key) const;

  [[noreturn]] void refuse(const char* key, std::string_view expected) const;

 private:
  const Json& object_;
  std::string name_;
};

}  // namespace lockstep
