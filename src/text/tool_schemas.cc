#include "text/tool_schemas.h"

#include <algorithm>

#include "base/error.h"
#include "text/schema_references.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 8;  // of references and unions: a schema may refer to itself

bool is_never_string(SchemaReferences& references, const Json& schema, int depth) {
  if (!schema.is_object() || depth > kMaxDepth) return false;
  const auto member = [&](const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  };
  const auto is_string_type = [](const Json& type) { return !type.is_string() || type == "string"; };
  if (const Json* reference = member("$ref"); reference != nullptr && reference->is_string()) {
    const auto target = references.find(reference->get_ref<const std::string&>());
    return target && is_never_string(references, *target->schema, depth + 1);
  }
  if (const Json* type = member("type"); type != nullptr) {
    if (type->is_array()) return !type->empty() && std::none_of(type->begin(), type->end(), is_string_type);
    return !is_string_type(*type);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* choices = member(key);
    if (choices == nullptr || !choices->is_array() || choices->empty()) continue;
    return std::all_of(choices->begin(), choices->end(),
                       [&](const Json& choice) { return is_never_string(references, choice, depth + 1); });
  }
  if (const Json* values = member("enum"); values != nullptr && values->is_array() && !values->empty())
    return std::none_of(values->begin(), values->end(), [](const Json& value) { return value.is_string(); });
  if (const Json* value = member("const"); value != nullptr) return !value->is_string();
  return false;
}

}  // namespace

ToolSchemas::ToolSchemas(const std::vector<std::string>& functions) {
  for (std::size_t i = 0; i < functions.size(); ++i) {
    std::string what = "tools[";
    what += std::to_string(i);
    what += ']';
    const Json function = parse_json(functions[i], what);
    const auto name = function.is_object() ? function.find("name") : function.end();
    if (!function.is_object() || name == function.end() || !name->is_string())
      throw Error(Error::Kind::bad_argument, what + ": no name, expected a function as {\"name\", \"parameters\"}");
    const auto parameters = function.find("parameters");
    parameters_[name->get<std::string>()] = parameters == function.end() ? Json() : *parameters;
  }
}

bool ToolSchemas::has_property(std::string_view tool, std::string_view property) const {
  return find_property(tool, property) != nullptr;
}

bool ToolSchemas::is_never_string(std::string_view tool, std::string_view property) const {
  const Json* schema = find_property(tool, property);
  if (schema == nullptr) return false;
  SchemaReferences references(*find(tool));
  return lockstep::is_never_string(references, *schema, 0);
}

const Json* ToolSchemas::find(std::string_view tool) const {
  const auto found = parameters_.find(std::string(tool));
  return found == parameters_.end() ? nullptr : &found->second;
}

const Json* ToolSchemas::find_property(std::string_view tool, std::string_view property) const {
  const Json* schema = find(tool);
  if (schema == nullptr || !schema->is_object()) return nullptr;
  const auto properties = schema->find("properties");
  if (properties == schema->end() || !properties->is_object()) return nullptr;
  const auto found = properties->find(std::string(property));
  return found == properties->end() ? nullptr : &*found;
}

}  // namespace lockstep
