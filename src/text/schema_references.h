// What the references of a JSON schema lead to: pointers into it, anchors, and the names that it gives itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "text/python_json.h"

namespace lockstep {

/// The place of `name` in what stands at `place`: a JSON pointer.
std::string place_in(const std::string& place, std::string_view name);

/// The schema must outlive it.
class SchemaReferences {
 public:
  explicit SchemaReferences(const Json& root) : root_(root) {}

  struct Target {
    const Json* schema;
    std::string place;  // a JSON pointer from the root
  };

  /// What `reference`, a $ref's value, leads to: "#/$defs/a", "#anchor", "its-$id#/..."; nothing if that is not there.
  std::optional<Target> find(const std::string& reference);

  /// Whether it begins with a name that the schema does not give itself.
  bool leads_out(const std::string& reference);

 private:
  const Target* named(const std::string& name);
  void find_anchors(const Json& schema, const std::string& place);

  const Json& root_;
  std::map<std::string, Target> known_;                   // by reference
  std::optional<std::map<std::string, Target>> anchors_;  // by "#name", or by an $id; made when one is asked for
};

}  // namespace lockstep
