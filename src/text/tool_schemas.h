// What the output parser needs to know of a request's tools: their names and the types of their parameters.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/python_json.h"

namespace lockstep {

class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// One JSON text a function: {"name", "parameters"?, ...}. Throws Error::bad_argument naming the tool's index if one
  /// is not such an object.
  explicit ToolSchemas(const std::vector<std::string>& functions);

  bool empty() const { return parameters_.empty(); }
  bool knows(std::string_view tool) const { return find(tool) != nullptr; }
  bool has_property(std::string_view tool, std::string_view property) const;
  /// The schema says a type, and it is not a string. False if it says nothing, or the tool or property is unknown.
  bool is_never_string(std::string_view tool, std::string_view property) const;

 private:
  const Json* find(std::string_view tool) const;
  const Json* find_property(std::string_view tool, std::string_view property) const;

  std::unordered_map<std::string, Json> parameters_;  // by tool; null if it has no schema
};

}  // namespace lockstep
