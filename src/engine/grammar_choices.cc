// The values that a JSON schema lists, held against the rest of it: those that do not meet it may not come.
//
// The rest is JSON Schema's as it is written, not as the grammar has it: members of a listed object come in the order
// in which they are listed. `format` is an annotation here.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "engine/grammar.h"
#include "engine/grammar_schema.h"

namespace lockstep {
namespace {

using Json = SchemaCompiler::Json;

constexpr int kMostChecks = 100'000;  // of a value against a schema, in one compiler
constexpr int kMostCheckDepth = 128;

/// The number that a value is; integers past 64 bits are binary values (text/python_json.h).
long double number_of(const Json& value) {
  if (value.is_binary()) {
    const auto& digits = value.get_binary();
    return std::stold(std::string(digits.begin(), digits.end()));
  }
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return static_cast<long double>(value.get<std::int64_t>());
  return static_cast<long double>(value.get<double>());
}

bool is_numeric(const Json& value) { return value.is_number() || value.is_binary(); }

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!is_numeric(value)) return false;
  if (type == "number") return true;
  const long double number = number_of(value);
  return type == "integer" && number == std::floor(number);
}

bool has_type_of(const Json& value, const Json& schema) {
  const std::vector<std::string> types = SchemaCompiler::types_of(schema);
  return std::any_of(types.begin(), types.end(), [&](const std::string& type) { return is_of_type(value, type); });
}

/// Code points.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// `number` is at least what `keyword` says, at most (both false), and so on; true where the schema does not have it.
bool keeps_count(const Json& schema, const char* least, const char* most, std::size_t count) {
  const auto low = schema.find(least), high = schema.find(most);
  const auto number = static_cast<long double>(count);
  return (low == schema.end() || number >= number_of(*low)) && (high == schema.end() || number <= number_of(*high));
}

}  // namespace

bool is_same_value(const Json& a, const Json& b) {
  if (is_numeric(a) && is_numeric(b)) {
    if (a.is_binary() && b.is_binary()) return a == b;  // to the last digit
    return number_of(a) == number_of(b);
  }
  if (a.type() != b.type()) return false;
  if (!a.is_structured()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), is_same_value);
  for (const auto& [key, value] : a.items()) {
    const auto other = b.find(key);
    if (other == b.end() || !is_same_value(value, *other)) return false;
  }
  return true;
}

std::string SchemaCompiler::text_of(const Json& value) {
  if (value.is_binary()) {
    const auto& digits = value.get_binary();
    return std::string(digits.begin(), digits.end());
  }
  if (!value.is_structured()) return value.dump();
  std::string out;
  if (value.is_array()) {
    for (const Json& element : value) out += (out.empty() ? "" : ",") + text_of(element);
    return "[" + out + "]";
  }
  for (const auto& [key, element] : value.items())
    out += (out.empty() ? "" : ",") + Json(key).dump() + ":" + text_of(element);
  return "{" + out + "}";
}

std::vector<Json> SchemaCompiler::choices_of(const Json& schema, const std::string& place) {
  const char* const keyword = schema.contains("const") ? "const" : "enum";
  const Json listed = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  Json rest = schema;
  for (const char* known : {keyword, "$defs", "definitions", "format", "title", "description", "default", "examples"})
    rest.erase(known);
  const bool has_type = rest.contains("type");
  std::vector<Json> out;
  bool is_any_typed = false;
  for (const Json& value : listed) {
    if (has_type && !has_type_of(value, rest)) continue;
    is_any_typed = true;
    if (meets(value, rest, place)) out.push_back(value);
  }
  const std::string which = std::string(keyword) + ": ";
  if (listed.empty()) fail_hopeless(place, which + "allOf leaves none of its values");
  if (!is_any_typed) fail_hopeless(place, which + "none of its values has the type that is asked for");
  if (out.empty()) fail_hopeless(place, which + "none of its values meets what stands beside it");
  return out;
}

bool SchemaCompiler::meets(const Json& value, const Json& schema, const std::string& place) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) fail(place, "a " + std::string(schema.type_name()) + ", expected an object");
  if (++checks_ > kMostChecks || depth_ > kMostCheckDepth)
    throw Error(Error::Kind::bad_argument, "schema: too large, the values that it lists cannot be held against it all");
  check_keywords(schema, place);
  ++depth_;
  const bool is_met = [&] {
    if (const auto one = schema.find("const"); one != schema.end() && !is_same_value(*one, value)) return false;
    if (const auto list = schema.find("enum"); list != schema.end()) {
      const auto is_it = [&](const Json& choice) { return is_same_value(choice, value); };
      if (std::none_of(list->begin(), list->end(), is_it)) return false;
    }
    if (!has_known_types(schema, place)) return true;
    if (schema.contains("type") && !has_type_of(value, schema)) return false;
    if (const auto reference = schema.find("$ref"); reference != schema.end()) {
      const Target to = target(reference->get<std::string>(), place);
      if (!meets(value, *to.schema, to.place)) return false;
    }
    if (const auto all = schema.find("allOf"); all != schema.end())
      for (std::size_t i = 0; i < all->size(); ++i)
        if (!meets(value, (*all)[i], place_in(place_in(place, "allOf"), std::to_string(i)))) return false;
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const auto choices = schema.find(keyword);
      if (choices == schema.end()) continue;
      bool is_any = false;
      for (std::size_t i = 0; i < choices->size() && !is_any; ++i)
        is_any = meets(value, (*choices)[i], place_in(place_in(place, keyword), std::to_string(i)));
      if (!is_any) return false;
    }
    return meets_type(value, schema, place);
  }();
  --depth_;
  return is_met;
}

/// The keywords that speak of values of one type.
bool SchemaCompiler::meets_type(const Json& value, const Json& schema, const std::string& place) {
  if (value.is_object()) return object_meets(value, schema, place);
  if (value.is_array()) return array_meets(value, schema, place);
  if (value.is_string()) return text_meets(value.get_ref<const std::string&>(), schema, place);
  return !is_numeric(value) || number_meets(value, schema);
}

bool SchemaCompiler::object_meets(const Json& value, const Json& schema, const std::string& place) {
  if (!keeps_count(schema, "minProperties", "maxProperties", value.size())) return false;
  if (const auto required = schema.find("required"); required != schema.end())
    for (const Json& name : *required)
      if (!value.contains(name.get_ref<const std::string&>())) return false;
  const auto properties = schema.find("properties"), additional = schema.find("additionalProperties");
  for (const auto& [name, member] : value.items()) {
    const bool is_named = properties != schema.end() && properties->contains(name);
    if (is_named) {
      if (!meets(member, (*properties)[name], place_in(place_in(place, "properties"), name))) return false;
    } else if (additional != schema.end()) {
      if (!meets(member, *additional, place_in(place, "additionalProperties"))) return false;
    }
  }
  return true;
}

bool SchemaCompiler::array_meets(const Json& value, const Json& schema, const std::string& place) {
  if (!keeps_count(schema, "minItems", "maxItems", value.size())) return false;
  const auto items = schema.find("items");
  const bool is_old_form = items != schema.end() && items->is_array();
  const auto first = is_old_form ? items : schema.find("prefixItems");
  const auto rest = is_old_form ? schema.find("additionalItems") : items;
  const std::size_t fixed = first == schema.end() ? 0 : first->size();
  const std::string first_place = place_in(place, is_old_form ? "items" : "prefixItems");
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (i < fixed) {
      if (!meets(value[i], (*first)[i], place_in(first_place, std::to_string(i)))) return false;
    } else if (rest != schema.end() && !meets(value[i], *rest, place_in(place, "items"))) {
      return false;
    }
  }
  return true;
}

bool SchemaCompiler::text_meets(const std::string& text, const Json& schema, const std::string& place) {
  if (!keeps_count(schema, "minLength", "maxLength", length_of(text))) return false;
  const auto found = schema.find("pattern");
  if (found == schema.end()) return true;
  const std::string pattern = found->get<std::string>();
  auto known = patterns_.find(pattern);
  if (known == patterns_.end()) {
    std::shared_ptr<Grammar> grammar;
    try {
      GrammarBuilder builder;
      grammar = std::make_shared<Grammar>(
          builder.finish([&](Node next) { return build_pattern(builder, pattern, false, next); }, "pattern"));
    } catch (const NothingMeets& error) {
      fail_hopeless(place, error.what());
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::unsupported) fail(place, error.what());
      leave_out(place, error.what(), "pattern: its parts are not supported");
    }
    known = patterns_.emplace(pattern, std::move(grammar)).first;
  }
  if (known->second == nullptr) return true;
  GrammarState state(known->second, nullptr);  // bytes need no vocabulary
  return state.accept_bytes(text) && state.is_complete();
}

bool SchemaCompiler::number_meets(const Json& value, const Json& schema) {
  const long double number = number_of(value);
  const auto bound = [&](const char* keyword) { return schema.find(keyword); };
  const auto is_flag = [&](const char* keyword) {
    return schema.contains(keyword) && schema[keyword].is_boolean() && schema[keyword].get<bool>();
  };
  if (const auto least = bound("minimum"); least != schema.end())
    if (number < number_of(*least) || (number == number_of(*least) && is_flag("exclusiveMinimum"))) return false;
  if (const auto most = bound("maximum"); most != schema.end())
    if (number > number_of(*most) || (number == number_of(*most) && is_flag("exclusiveMaximum"))) return false;
  if (const auto least = bound("exclusiveMinimum"); least != schema.end() && least->is_number())
    if (number <= number_of(*least)) return false;
  if (const auto most = bound("exclusiveMaximum"); most != schema.end() && most->is_number())
    if (number >= number_of(*most)) return false;
  // Of a whole number only: a multiple of 0.1 has no exact double.
  const auto multiple = bound("multipleOf");
  if (multiple == schema.end() || std::fmod(multiple->get<double>(), 1) != 0) return true;
  return std::fmod(number, number_of(*multiple)) == 0;
}

}  // namespace lockstep
