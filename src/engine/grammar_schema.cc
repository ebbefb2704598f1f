#include "engine/grammar_schema.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

using Json = SchemaCompiler::Json;
using Node = SchemaCompiler::Node;

constexpr int kMostDepth = 128;  // of schemas in schemas

constexpr std::array kUnderstood = {"type",
                                    "enum",
                                    "const",
                                    "properties",
                                    "required",
                                    "additionalProperties",
                                    "items",
                                    "prefixItems",
                                    "minItems",
                                    "maxItems",
                                    "minLength",
                                    "maxLength",
                                    "pattern",
                                    "minimum",
                                    "maximum",
                                    "anyOf",
                                    "oneOf",
                                    "allOf",
                                    "exclusiveMinimum",
                                    "exclusiveMaximum",
                                    "$ref",
                                    "$defs",
                                    "format",
                                    "multipleOf",
                                    "nullable",
                                    "definitions",
                                    "minProperties",
                                    "maxProperties"};
constexpr std::array kAnnotations = {
    "title",      "description", "default",      "examples", "example",   "$schema",         "$id",
    "id",         "$comment",    "$anchor",      "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
    "deprecated", "$vocabulary", "discriminator"};

bool is_in(const auto& list, std::string_view name) { return std::find(list.begin(), list.end(), name) != list.end(); }

/// Formats whose text has a form of its own; others are annotations.
std::string_view pattern_of_format(std::string_view format) {
  if (format == "date") return R"(^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$)";
  if (format == "time") return R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)";
  if (format == "date-time")
    return R"(^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)";
  if (format == "uuid") return R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)";
  if (format == "ipv4") return R"(^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$)";
  if (format == "email") return R"(^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$)";
  return {};
}

/// The part of a pointer for a name.
std::string step(const std::string& place, std::string_view name) {
  std::string out = place + "/";
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return value.is_number();
}

}  // namespace

void SchemaCompiler::fail(const std::string& place, const std::string& what) const {
  throw Error(Error::Kind::bad_argument, "schema at " + (place.empty() ? "its root" : place) + ": " + what);
}

void SchemaCompiler::check_keywords(const Json& schema, const std::string& place) const {
  if (!strict_) return;
  for (const auto& [name, value] : schema.items()) {
    if (is_in(kUnderstood, name) || is_in(kAnnotations, name) || name.starts_with("x-")) continue;
    fail(place, "keyword \"" + name + "\" is not supported");
  }
  if (schema.contains("multipleOf") && schema["multipleOf"] != 1)
    fail(place, "keyword \"multipleOf\" is supported for 1 only");
}

const Json& SchemaCompiler::target(const std::string& reference, const std::string& place) const {
  if (!reference.starts_with('#')) fail(place, "$ref \"" + reference + "\", expected one that begins with #");
  try {
    return root_.at(Json::json_pointer(reference.substr(1)));
  } catch (const Json::exception&) {
    fail(place, "$ref \"" + reference + "\" refers to nothing");
  }
}

/// Both schemas at once, as far as their keywords can be put together.
Json SchemaCompiler::merged(Json a, const Json& b, const std::string& place) const {
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name) || is_in(kAnnotations, name)) {
      a[name] = value;
    } else if (name == "properties") {
      for (const auto& [key, property] : value.items())
        a[name][key] = a[name].contains(key) && a[name][key] != property
                           ? Json{{"allOf", Json::array({a[name][key], property})}}
                           : property;
    } else if (name == "required") {
      for (const Json& key : value)
        if (std::find(a[name].begin(), a[name].end(), key) == a[name].end()) a[name].push_back(key);
    } else if (name == "minimum" || name == "minLength" || name == "minItems" || name == "exclusiveMinimum") {
      a[name] = std::max(a[name], value);
    } else if (name == "maximum" || name == "maxLength" || name == "maxItems" || name == "exclusiveMaximum") {
      a[name] = std::min(a[name], value);
    } else if (name == "enum") {
      Json both = Json::array();
      for (const Json& choice : a[name])
        if (std::find(value.begin(), value.end(), choice) != value.end()) both.push_back(choice);
      a[name] = std::move(both);
    } else if (a[name] != value && strict_) {
      fail(place, "allOf or $ref with two different \"" + name + "\" is not supported");
    }
  }
  return a;
}

Json SchemaCompiler::resolved(const Json& schema, const std::string& place) {
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) fail(place, "nothing can meet false");
    return Json::object();
  }
  if (!schema.is_object()) fail(place, "a " + std::string(schema.type_name()) + ", expected an object");
  check_keywords(schema, place);
  Json out = schema;
  if (const auto all = schema.find("allOf"); all != schema.end()) {
    if (!all->is_array()) fail(place, "allOf is no array");
    out.erase("allOf");
    for (std::size_t i = 0; i < all->size(); ++i)
      out = merged(std::move(out), resolved((*all)[i], step(step(place, "allOf"), std::to_string(i))), place);
  }
  if (const auto ref = schema.find("$ref"); ref != schema.end()) {
    if (!ref->is_string()) fail(place, "$ref is no string");
    const std::string reference = ref->get<std::string>();
    if (!open_.insert(reference).second) fail(place, "$ref \"" + reference + "\" refers to itself alone");
    out.erase("$ref");
    out = merged(std::move(out), resolved(target(reference, place), reference.substr(1)), place);
    open_.erase(reference);
  }
  return out;
}

SchemaCompiler::Rule SchemaCompiler::rule_of(const Json& schema, const std::string& place) {
  // A bare reference is a rule by its target, so that a schema may contain itself; anything else by its place.
  std::string name = place;
  if (schema.is_object() && schema.contains("$ref") && schema["$ref"].is_string()) {
    bool is_bare = true;
    for (const auto& [key, value] : schema.items()) is_bare = is_bare && (key == "$ref" || is_in(kAnnotations, key));
    if (is_bare) {
      const std::string reference = schema["$ref"].get<std::string>();
      const Json& to = target(reference, place);
      if (to.is_object() && to.contains("$ref") && !open_.insert(reference).second)
        fail(place, "$ref \"" + reference + "\" refers to itself alone");
      const Rule rule = rule_of(to, reference.substr(1));
      open_.erase(reference);
      return rule;
    }
  }
  if (const auto found = rules_.find(name); found != rules_.end()) return found->second;
  const Rule rule = builder_.declare();
  rules_[name] = rule;
  if (++depth_ > kMostDepth) fail(place, "schemas nested more than " + std::to_string(kMostDepth) + " deep");
  builder_.define(rule, [&](Node next) { return resolved_value(resolved(schema, place), place, next); });
  --depth_;
  return rule;
}

Node SchemaCompiler::value(const Json& schema, const std::string& place, Node next) {
  return builder_.call(rule_of(schema, place), next);
}

std::vector<std::string> SchemaCompiler::types_of(const Json& schema) {
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const Json& one : type->is_array() ? *type : Json::array({*type}))
      if (one.is_string()) types.push_back(one.get<std::string>());
  } else {
    for (const char* keyword : {"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
      if (schema.contains(keyword)) return {"object"};
    for (const char* keyword : {"items", "prefixItems", "minItems", "maxItems"})
      if (schema.contains(keyword)) return {"array"};
    for (const char* keyword : {"pattern", "minLength", "maxLength", "format"})
      if (schema.contains(keyword)) return {"string"};
    for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
      if (schema.contains(keyword)) return {"number"};
    return {"object", "array", "string", "number", "boolean", "null"};
  }
  const auto nullable = schema.find("nullable");
  if (nullable != schema.end() && *nullable == true && !is_in(types, "null")) types.emplace_back("null");
  return types;
}

Node SchemaCompiler::resolved_value(const Json& schema, const std::string& place, Node next) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto choices = schema.find(keyword);
    if (choices == schema.end()) continue;
    if (!choices->is_array() || choices->empty()) fail(place, std::string(keyword) + ": expected an array of schemas");
    Json rest = schema;
    rest.erase(keyword);
    for (const char* annotation : kAnnotations) rest.erase(annotation);
    rest.erase("$defs");
    rest.erase("definitions");
    std::vector<Node> ways;
    for (std::size_t i = 0; i < choices->size(); ++i) {
      const std::string at = step(step(place, keyword), std::to_string(i));
      // Each way is a rule of its own only if nothing stands beside the choice.
      ways.push_back(rest.empty() ? value((*choices)[i], at, next)
                                  : resolved_value(merged(resolved((*choices)[i], at), rest, at), at, next));
    }
    return builder_.any_of(ways);
  }
  if (schema.contains("const") || schema.contains("enum")) {
    const Json choices = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    if (!choices.is_array() || choices.empty()) fail(place, "enum: expected an array of values, not an empty one");
    const std::vector<std::string> types = types_of(schema);
    std::vector<Node> ways;
    for (const Json& choice : choices)
      if (std::any_of(types.begin(), types.end(), [&](const std::string& type) { return is_of_type(choice, type); }) ||
          !schema.contains("type"))
        ways.push_back(builder_.literal(choice.dump(), next));
    if (ways.empty()) fail(place, "enum: none of its values has the type that is asked for");
    return builder_.any_of(ways);
  }
  std::vector<Node> ways;
  for (const std::string& type : types_of(schema)) ways.push_back(typed(type, schema, place, next));
  if (ways.empty()) fail(place, "type: expected a name or an array of names");
  return builder_.any_of(ways);
}

Node SchemaCompiler::typed(const std::string& type, const Json& schema, const std::string& place, Node next) {
  if (type == "object") return object(schema, place, next);
  if (type == "array") return array(schema, place, next);
  if (type == "string") return string(schema, place, true, next);
  if (type == "integer") return number(schema, place, true, next);
  if (type == "number") return number(schema, place, false, next);
  if (type == "boolean") return builder_.any_of({builder_.literal("true", next), builder_.literal("false", next)});
  if (type == "null") return builder_.literal("null", next);
  fail(place, "type \"" + type + "\", expected object, array, string, integer, number, boolean or null");
}

int SchemaCompiler::count_of(const Json& schema, const char* keyword, const std::string& place, int otherwise) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return otherwise;
  if (!found->is_number() || found->get<double>() < 0 ||
      found->get<double>() != static_cast<double>(found->get<std::int64_t>()))
    fail(place, std::string(keyword) + ": " + found->dump() + ", expected a whole number of at least 0");
  return static_cast<int>(std::min<std::int64_t>(found->get<std::int64_t>(), 1'000'000'000));
}

Node SchemaCompiler::string(const Json& schema, const std::string& place, bool in_json, Node next) {
  if (in_json) next = builder_.literal("\"", next);
  const auto opened = [&](Node node) { return in_json ? builder_.literal("\"", node) : node; };
  std::string pattern;
  if (const auto found = schema.find("pattern"); found != schema.end()) {
    if (!found->is_string()) fail(place, "pattern is no string");
    pattern = found->get<std::string>();
  } else if (const auto format = schema.find("format"); format != schema.end() && format->is_string()) {
    pattern = pattern_of_format(format->get<std::string>());
  }
  const bool has_lengths = schema.contains("minLength") || schema.contains("maxLength");
  if (!pattern.empty() && (!has_lengths || !strict_ || !schema.contains("pattern"))) {
    try {
      return opened(build_pattern(builder_, pattern, in_json, next));
    } catch (const Error& error) {
      if (strict_ || std::string_view(error.what()).starts_with("schema: too large")) fail(place, error.what());
    }
  } else if (!pattern.empty()) {
    fail(place, "\"pattern\" together with minLength or maxLength is not supported");
  }
  const int least = count_of(schema, "minLength", place, 0), most = count_of(schema, "maxLength", place, -1);
  if (most >= 0 && most < least) fail(place, "maxLength below minLength");
  const auto character = [&](Node n) {
    return in_json ? builder_.call(builder_.string_character(), n) : builder_.character(all_code_points(), n);
  };
  return opened(builder_.repeat(character, least, most, next));
}

Node SchemaCompiler::number(const Json& schema, const std::string& place, bool is_integer, Node next) {
  NumberBounds bounds;
  bounds.is_integer = is_integer || schema.contains("multipleOf");
  const auto take = [&](const char* keyword, std::string& bound, bool& is_excluded, bool excludes, bool takes_greater) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return;
    if (found->is_boolean()) {  // the form of draft 4: it speaks of minimum or maximum
      is_excluded = found->get<bool>();
      return;
    }
    if (!found->is_number()) fail(place, std::string(keyword) + ": " + found->dump() + ", expected a number");
    if (!bound.empty()) {
      const double before = std::stod(bound), now = found->get<double>();
      if (before != now && (takes_greater ? before > now : before < now)) return;
    }
    bound = found->dump();
    is_excluded = excludes;
  };
  take("minimum", bounds.least, bounds.excludes_least, false, true);
  take("exclusiveMinimum", bounds.least, bounds.excludes_least, true, true);
  take("maximum", bounds.most, bounds.excludes_most, false, false);
  take("exclusiveMaximum", bounds.most, bounds.excludes_most, true, false);
  if (!bounds.is_bounded())
    return builder_.call(bounds.is_integer ? builder_.json_integer() : builder_.json_number(), next);
  try {
    return build_bounded_number(builder_, bounds, next);
  } catch (const Error& error) {
    fail(place, error.what());
  }
}

Node SchemaCompiler::array(const Json& schema, const std::string& place, Node next) {
  const int least = count_of(schema, "minItems", place, 0);
  int most = count_of(schema, "maxItems", place, -1);
  if (most >= 0 && most < least) fail(place, "maxItems below minItems");
  Json first = schema.contains("prefixItems") ? schema["prefixItems"] : Json::array();
  Json rest = schema.contains("items") ? schema["items"] : Json(true);
  std::string first_place = step(place, "prefixItems");
  if (rest.is_array()) {  // the form before 2020
    first = rest;
    rest = schema.contains("additionalItems") ? schema["additionalItems"] : Json(true);
    first_place = step(place, "items");
  }
  if (!first.is_array()) fail(place, "prefixItems is no array");
  const auto fixed = static_cast<int>(first.size());
  if (rest.is_boolean() && !rest.get<bool>()) {
    most = most < 0 ? fixed : std::min(most, fixed);
    if (most < least) fail(place, "minItems above the number of items that there may be");
    rest = true;
  }
  const Rule space = builder_.space();
  // A list that says how many items it wants says so; one that names its first items wants all of them.
  const int wanted = schema.contains("minItems") ? least : most >= 0 ? std::min(most, fixed) : fixed;
  const Node close = builder_.literal("]", next);
  const auto item = [&](int i, Node n) {
    const bool is_fixed = i < fixed;
    const Json& one = is_fixed ? first[static_cast<std::size_t>(i)] : rest;
    const std::string at = is_fixed ? step(first_place, std::to_string(i)) : step(place, "items");
    const Node after = builder_.call(space, n);
    return one.is_boolean() ? builder_.call(builder_.json_value(), after) : value(one, at, after);
  };
  const auto separated = [&](int i, Node n) { return builder_.literal(",", builder_.call(space, item(i, n))); };
  // Backwards: what follows the items that may come without a count, then each counted place.
  const int counted = std::max({wanted, fixed, most});
  Node node = close;
  if (most < 0) node = builder_.repeat([&](Node n) { return separated(counted, n); }, 0, -1, close);
  for (int i = counted - 1; i >= 1; --i) {
    node = separated(i, node);
    if (i >= wanted) node = builder_.any_of({node, close});
  }
  if (counted > 0) {
    node = item(0, node);
    if (wanted == 0) node = builder_.any_of({node, close});
  } else if (most < 0) {
    node = builder_.any_of({item(0, node), close});
  }
  return builder_.literal("[", builder_.call(space, node));
}

/// The rest of a key and its closing quote, for keys that are none of `names`. Without escapes, which could spell one.
Node SchemaCompiler::other_key(const std::vector<std::string>& names, Node next) {
  const CodePoints plain = complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  const Node quote = builder_.literal("\"", next);
  const Node anything = builder_.repeat([&](Node n) { return builder_.character(plain, n); }, 0, -1, quote);
  // Follows the names byte by byte, and leaves them with a byte that none has there. To stay whole characters, it only
  // leaves at ASCII bytes; names in other scripts are left by any ASCII character.
  const std::function<Node(const std::vector<std::string>&, std::size_t)> follow =
      [&](const std::vector<std::string>& live, std::size_t depth) -> Node {
    ByteSet leaving;
    for (int b = 0x20; b < 0x80; ++b) leaving.set(static_cast<std::size_t>(b), b != '"' && b != '\\');
    std::map<unsigned char, std::vector<std::string>> by_byte;
    bool is_name = false;
    for (const std::string& name : live) {
      if (name.size() == depth) {
        is_name = true;
      } else {
        by_byte[static_cast<unsigned char>(name[depth])].push_back(name);
      }
    }
    std::vector<Node> ways;
    for (const auto& [byte, longer] : by_byte) {
      leaving.reset(byte);
      if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\')
        ways.push_back(builder_.range(byte, byte, follow(longer, depth + 1)));
    }
    ways.push_back(builder_.bytes(leaving, anything));
    if (!is_name && depth > 0) ways.push_back(quote);
    return builder_.any_of(ways);
  };
  return follow(names, 0);
}

Node SchemaCompiler::object(const Json& schema, const std::string& place, Node next) {
  const Json properties = schema.contains("properties") ? schema["properties"] : Json::object();
  if (!properties.is_object()) fail(place, "properties is no object");
  std::vector<std::string> names, required;
  for (const auto& [name, property] : properties.items()) names.push_back(name);
  if (const auto found = schema.find("required"); found != schema.end()) {
    if (!found->is_array()) fail(place, "required is no array");
    for (const Json& name : *found) {
      if (!name.is_string()) fail(place, "required: " + name.dump() + ", expected a name");
      required.push_back(name.get<std::string>());
      if (!is_in(names, required.back())) names.push_back(required.back());
    }
  }
  const auto additional = schema.find("additionalProperties");
  // Said nothing of, more properties are not written where some are named: what is left out cannot be wrong.
  const bool is_open = additional != schema.end() ? *additional != false : names.empty();
  const int least = count_of(schema, "minProperties", place, 0), most = count_of(schema, "maxProperties", place, -1);
  if (!names.empty() &&
      (least > static_cast<int>(required.size()) || (most >= 0 && most < static_cast<int>(names.size()))) && strict_)
    fail(place, "minProperties and maxProperties beside named properties are not supported");

  const Rule space = builder_.space();
  const Node close = builder_.literal("}", next);
  const auto colon = [&](Node n) { return builder_.literal(":", builder_.call(space, n)); };
  const auto member = [&](const std::string& name, Node n) {
    const bool is_described = properties.contains(name);
    const Node after = builder_.call(space, n);
    const Node content = is_described ? value(properties[name], step(step(place, "properties"), name), after)
                                      : builder_.call(builder_.json_value(), after);
    return builder_.literal(Json(name).dump(), colon(content));
  };
  const auto other = [&](Node n) {
    const Node after = builder_.call(space, n);
    const bool is_typed = additional != schema.end() && additional->is_object();
    const Node content = is_typed ? value(*additional, step(place, "additionalProperties"), after)
                                  : builder_.call(builder_.json_value(), after);
    if (names.empty()) return builder_.call(builder_.json_string(), colon(content));
    return builder_.literal("\"", other_key(names, colon(content)));
  };
  const auto comma = [&](Node n) { return builder_.literal(",", builder_.call(space, n)); };

  // Members in the order of the schema. `begun[i]` goes on at the i-th name after some member, `fresh` before any.
  Node begun = close, fresh = close;
  if (is_open) {
    const int more = names.empty() ? most : -1, fewest = names.empty() ? least : 0;
    begun = builder_.repeat([&](Node n) { return comma(other(n)); }, std::max(0, fewest - 1),
                            more < 0 ? -1 : std::max(0, more - 1), close);
    fresh = more == 0 ? close : other(begun);
    if (fewest == 0 && more != 0) fresh = builder_.any_of({fresh, close});
  }
  for (std::size_t i = names.size(); i-- > 0;) {
    const bool is_required = is_in(required, names[i]);
    const Node first = member(names[i], begun);
    const Node later = comma(first);
    fresh = is_required ? first : builder_.any_of({first, fresh});
    begun = is_required ? later : builder_.any_of({later, begun});
  }
  return builder_.literal("{", builder_.call(space, fresh));
}

}  // namespace lockstep
