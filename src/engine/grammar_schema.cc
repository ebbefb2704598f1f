#include "engine/grammar_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <optional>

#include "base/error.h"

namespace lockstep {
namespace {

using Json = SchemaCompiler::Json;
using Node = SchemaCompiler::Node;

constexpr int kMostDepth = 128;     // of schemas in schemas, and of references to references
constexpr int kMostParts = 50'000;  // of allOf and $ref, counted as often as they are met
constexpr int kMostWays = 20'000;   // of anyOf and oneOf, counted as often as they are met

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
                                    "maxProperties",
                                    "additionalItems"};
constexpr std::array kTypes = {"object", "array", "string", "integer", "number", "boolean", "null"};
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

/// What the value of a keyword must be; nullptr if this one is.
const char* expected_instead(std::string_view keyword, const Json& value) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), keyword) != names.end();
  };
  const auto is_text = [](const Json& element) { return element.is_string(); };
  if (keyword == "type") {
    if (value.is_string()) return nullptr;
    const bool is_list = value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_text);
    return is_list ? nullptr : "a name or an array of names";
  }
  if (is_one_of({"$ref", "pattern", "format"})) return value.is_string() ? nullptr : "a string";
  if (is_one_of({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})) {
    const double number = value.is_number() ? value.get<double>() : -1;
    return number >= 0 && number == std::floor(number) ? nullptr : "a whole number of at least 0";
  }
  if (is_one_of({"minimum", "maximum"})) return value.is_number() ? nullptr : "a number";
  if (is_one_of({"exclusiveMinimum", "exclusiveMaximum"}))
    return value.is_number() || value.is_boolean() ? nullptr : "a number";
  if (keyword == "multipleOf") return value.is_number() && value.get<double>() > 0 ? nullptr : "a number above 0";
  if (is_one_of({"properties", "$defs", "definitions"})) return value.is_object() ? nullptr : "an object of schemas";
  if (keyword == "required")
    return value.is_array() && std::all_of(value.begin(), value.end(), is_text) ? nullptr : "an array of names";
  if (is_one_of({"additionalProperties", "additionalItems"}))
    return value.is_object() || value.is_boolean() ? nullptr : "a schema";
  if (keyword == "items") return value.is_structured() || value.is_boolean() ? nullptr : "a schema";
  if (keyword == "prefixItems") return value.is_array() ? nullptr : "an array of schemas";
  if (is_one_of({"anyOf", "oneOf", "allOf"}))
    return value.is_array() && !value.empty() ? nullptr : "an array of schemas, at least one";
  if (keyword == "enum") return value.is_array() && !value.empty() ? nullptr : "an array of values, at least one";
  if (keyword == "nullable") return value.is_boolean() ? nullptr : "true or false";
  return nullptr;
}

bool is_too_large(const Error& error) { return std::string_view(error.what()).starts_with("schema: too large"); }

/// JSON Schema's keywords that are not understood here: they may be named in a log, other words are the client's.
constexpr std::array kNotUnderstood = {"not",
                                       "if",
                                       "then",
                                       "else",
                                       "uniqueItems",
                                       "patternProperties",
                                       "propertyNames",
                                       "contains",
                                       "minContains",
                                       "maxContains",
                                       "dependencies",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "unevaluatedItems",
                                       "unevaluatedProperties",
                                       "$dynamicRef",
                                       "$recursiveRef",
                                       "contentSchema"};

/// A keyword that asks for nothing where it has this value.
bool has_no_effect(std::string_view name, const Json& value) {
  if (name == "uniqueItems" || name == "not") return value == false;
  const bool is_empty = value.is_object() && value.empty();
  if (name == "patternProperties" || name == "dependencies" || name == "dependentRequired" ||
      name == "dependentSchemas")
    return is_empty;
  if (name == "unevaluatedItems" || name == "unevaluatedProperties") return value == true || is_empty;
  if (name != "propertyNames") return false;
  if (value == true) return true;
  if (!value.is_object()) return false;
  for (const auto& [key, inner] : value.items())
    if (!is_in(kAnnotations, key) && !(key == "type" && inner == "string")) return false;
  return true;
}

/// A place without the client's words: names of properties and definitions become "*".
std::string logged_place(std::string_view place) {
  if (place.empty()) return "its root";
  std::string out, keyword;
  bool is_keyword = true;  // of a schema; else a name or a number in what the keyword has
  while (!place.empty()) {
    if (place.starts_with('/')) place.remove_prefix(1);
    const std::string_view part = place.substr(0, place.find('/'));
    place.remove_prefix(part.size());
    const bool is_number = !part.empty() && part.size() < 4 && part.find_first_not_of("0123456789") == part.npos;
    if (!is_keyword) {
      const bool is_list = keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf" || keyword == "prefixItems";
      out += is_list && is_number ? "/" + std::string(part) : "/*";
      is_keyword = true;
    } else if (is_number && keyword == "items") {  // a list of schemas, in the form before 2020
      out += "/" + std::string(part);
      keyword.clear();
    } else {
      keyword = is_in(kUnderstood, part) ? std::string(part) : "*";
      out += "/" + keyword;
      is_keyword = keyword == "items" || keyword == "additionalProperties" || keyword == "additionalItems";
    }
  }
  return out;
}

std::string named_place(const std::string& place) { return place.empty() ? "its root" : place; }

}  // namespace

void SchemaCompiler::fail(const std::string& place, const std::string& what) const {
  throw Error(Error::Kind::bad_argument, "schema at " + named_place(place) + ": " + what);
}

void SchemaCompiler::fail_hopeless(const std::string& place, const std::string& what) const {
  throw NothingMeets("schema at " + named_place(place) + ": " + what);
}

/// What cannot be kept to here, but may mean something elsewhere.
void SchemaCompiler::leave_out(const std::string& place, const std::string& what, const std::string& logged) {
  if (strict_) fail(place, what);
  std::string line = "schema at " + logged_place(place) + ": " + (logged.empty() ? what : logged);
  if (!is_in(left_out_, line)) left_out_.push_back(std::move(line));
}

void SchemaCompiler::recover() {
  rules_.clear();
  hopeless_.clear();
  open_.clear();
  depth_ = 0;
}

void SchemaCompiler::check_keywords(const Json& schema, const std::string& place) {
  for (const auto& [name, value] : schema.items()) {
    if (const char* expected = expected_instead(name, value)) {
      const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
      fail(place, name + ": " + (text.size() <= 60 ? text : std::string("an ") + value.type_name()) + ", expected " +
                      expected);
    }
    if (is_in(kUnderstood, name) || is_in(kAnnotations, name) || name.starts_with("x-")) continue;
    if (has_no_effect(name, value)) continue;
    leave_out(place, "keyword \"" + name + "\" is not supported",
              is_in(kNotUnderstood, name) ? "" : "a keyword that JSON Schema does not have is not supported");
  }
  if (schema.contains("multipleOf") && schema["multipleOf"] != 1)
    leave_out(place, "keyword \"multipleOf\" is supported for 1 only");
}

bool SchemaCompiler::has_known_types(const Json& schema, const std::string& place) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
    const std::string name = one.get<std::string>();
    if (is_in(kTypes, name)) continue;
    const std::string expected = "expected object, array, string, integer, number, boolean or null";
    leave_out(place, "type \"" + name + "\", " + expected, "type: no type of JSON, " + expected);
    return false;
  }
  return true;
}

/// Both schemas at once, as far as their keywords can be put together.
Json SchemaCompiler::merged(Json a, const Json& b, const std::string& place) {
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name) || is_in(kAnnotations, name)) {
      a[name] = value;
    } else if (name == "type") {
      const std::vector<std::string> ours = types_of({{"type", a[name]}}), theirs = types_of({{"type", value}});
      Json both = Json::array();
      for (const std::string& type : ours)
        if (is_in(theirs, type) || (type == "integer" && is_in(theirs, "number"))) both.push_back(type);
      if (is_in(ours, "number") && is_in(theirs, "integer") && !is_in(ours, "integer")) both.push_back("integer");
      if (both.empty()) fail_hopeless(place, "type: nothing can have two types at once");
      a[name] = std::move(both);
    } else if (name == "const") {
      if (!is_same_value(a[name], value)) fail_hopeless(place, "const: nothing can be two values at once");
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
        if (std::any_of(value.begin(), value.end(), [&](const Json& one) { return is_same_value(one, choice); }))
          both.push_back(choice);
      a[name] = std::move(both);
    } else if (a[name] != value) {
      leave_out(place, "allOf or $ref with two different \"" + name + "\" is not supported",
                is_in(kUnderstood, name) ? "" : "allOf or $ref with two different keywords is not supported");
    }
  }
  return a;
}

Json SchemaCompiler::resolved(const Json& schema, const std::string& place) {
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) fail_hopeless(place, "nothing can meet false");
    return Json::object();
  }
  if (!schema.is_object()) fail(place, "a " + std::string(schema.type_name()) + ", expected an object");
  if (++parts_ > kMostParts)
    throw Error(Error::Kind::bad_argument,
                "schema: too large, expected at most " + std::to_string(kMostParts) + " parts to take together");
  if (open_.size() > std::size_t{kMostDepth})
    fail(place, "$ref to $ref more than " + std::to_string(kMostDepth) + " deep");
  check_keywords(schema, place);
  if (!has_known_types(schema, place)) {  // then any value may stand here, but for one that is listed
    Json listed = Json::object();
    for (const char* keyword : {"enum", "const"})
      if (schema.contains(keyword)) listed[keyword] = schema[keyword];
    return listed;
  }
  Json out = schema;
  if (const auto all = schema.find("allOf"); all != schema.end()) {
    out.erase("allOf");
    for (std::size_t i = 0; i < all->size(); ++i)
      out = merged(std::move(out), resolved((*all)[i], place_in(place_in(place, "allOf"), std::to_string(i))), place);
  }
  if (const auto ref = schema.find("$ref"); ref != schema.end()) {
    const std::string reference = ref->get<std::string>();
    const Target to = target(reference, place);
    if (!open_.insert(to.place).second) fail(place, "$ref \"" + reference + "\" refers to itself alone");
    out.erase("$ref");
    out = merged(std::move(out), resolved(*to.schema, to.place), place);
    open_.erase(to.place);
  }
  return out;
}

SchemaCompiler::Target SchemaCompiler::target(const std::string& reference, const std::string& place) {
  if (const auto found = references_.find(reference)) return *found;
  if (!references_.leads_out(reference)) fail(place, "$ref \"" + reference + "\" refers to nothing");
  const std::string expected = "expected one that begins with # or with an $id of the schema";
  leave_out(place, "$ref \"" + reference + "\", " + expected, "$ref out of the schema, " + expected);
  return {&anything_, "$ref " + reference};
}

SchemaCompiler::Rule SchemaCompiler::rule_of(const Json& schema, const std::string& place) {
  // A bare reference is a rule by its target, so that a schema may contain itself; anything else by its place.
  if (schema.is_object() && schema.contains("$ref") && schema["$ref"].is_string()) {
    bool is_bare = true;
    for (const auto& [key, value] : schema.items()) is_bare = is_bare && (key == "$ref" || is_in(kAnnotations, key));
    if (is_bare) {
      const std::string reference = schema["$ref"].get<std::string>();
      const Target to = target(reference, place);
      if (to.schema->is_object() && to.schema->contains("$ref") && !open_.insert(to.place).second)
        fail(place, "$ref \"" + reference + "\" refers to itself alone");
      if (open_.size() > std::size_t{kMostDepth})
        fail(place, "$ref to $ref more than " + std::to_string(kMostDepth) + " deep");
      const Rule rule = rule_of(*to.schema, to.place);
      open_.erase(to.place);
      return rule;
    }
  }
  if (const auto found = rules_.find(place); found != rules_.end()) return found->second;
  if (const auto found = hopeless_.find(place); found != hopeless_.end()) throw NothingMeets(found->second);
  const Rule rule = builder_.declare();
  rules_[place] = rule;
  if (++depth_ > kMostDepth) fail(place, "schemas nested more than " + std::to_string(kMostDepth) + " deep");
  try {
    builder_.define(rule, [&](Node next) { return resolved_value(resolved(schema, place), place, next); });
  } catch (const NothingMeets& error) {
    // What was made meanwhile may call it, so it must be a rule; one that never comes to an end.
    builder_.define(rule, [&](Node) { return builder_.any_of(std::span<const Node>{}); });
    rules_.erase(place);
    hopeless_[place] = error.what();
    throw;
  }
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

bool SchemaCompiler::each_way(const Json& schema, const std::string& place, const UseWay& use) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto choices = schema.find(keyword);
    if (choices == schema.end()) continue;
    Json rest = schema;
    rest.erase(keyword);
    for (const char* annotation : kAnnotations) rest.erase(annotation);
    rest.erase("$defs");
    rest.erase("definitions");
    std::optional<NothingMeets> first;
    bool is_any = false;
    for (std::size_t i = 0; i < choices->size(); ++i) {
      const std::string at = place_in(place_in(place, keyword), std::to_string(i));
      const std::set<std::string> open = open_;
      const int depth = depth_;
      // Choices in choices multiply, and those that come to nothing leave no trace in the program's size.
      if (++ways_ > kMostWays)
        throw Error(Error::Kind::bad_argument,
                    "schema: too large, expected at most " + std::to_string(kMostWays) + " ways of anyOf and oneOf");
      try {
        if (rest.empty()) {
          use((*choices)[i], at, true);
        } else {
          use(merged(resolved((*choices)[i], at), rest, at), at, false);
        }
        is_any = true;
      } catch (const NothingMeets& error) {
        open_ = open;
        depth_ = depth;
        if (!first) first = error;
      }
    }
    if (!is_any) throw NothingMeets(first->what());
    return true;
  }
  return false;
}

Node SchemaCompiler::resolved_value(const Json& schema, const std::string& place, Node next) {
  std::vector<Node> either;
  const bool has_ways = each_way(schema, place, [&](const Json& way, const std::string& at, bool is_alone) {
    either.push_back(is_alone ? value(way, at, next) : resolved_value(way, at, next));
  });
  if (has_ways) return builder_.any_of(either);
  if (schema.contains("const") || schema.contains("enum")) {
    std::vector<Node> ways;
    for (const Json& choice : choices_of(schema, place)) ways.push_back(builder_.literal(text_of(choice), next));
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

int SchemaCompiler::count_of(const Json& schema, const char* keyword, int otherwise) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? otherwise : static_cast<int>(std::min(found->get<double>(), 1e9));
}

Node SchemaCompiler::string(const Json& schema, const std::string& place, bool in_json, Node next) {
  if (in_json) next = builder_.literal("\"", next);
  const auto opened = [&](Node node) { return in_json ? builder_.literal("\"", node) : node; };
  const int least = count_of(schema, "minLength", 0), most = count_of(schema, "maxLength", -1);
  if (most >= 0 && most < least) fail_hopeless(place, "maxLength below minLength");
  const auto matching = [&](std::string_view pattern, int fewest, int longest) -> std::optional<Node> {
    try {
      return opened(build_pattern(builder_, pattern, in_json, next, fewest, longest));
    } catch (const NothingMeets& error) {
      fail_hopeless(place, error.what());
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::unsupported) {
        leave_out(place, error.what(), "pattern: its parts, or its lengths, are not supported");
        return std::nullopt;
      }
      if (is_too_large(error)) throw;
      fail(place, error.what());
    }
  };
  std::vector<std::string> patterns;
  if (schema.contains("pattern")) patterns.push_back(schema["pattern"].get<std::string>());
  if (schema.contains("format")) patterns.emplace_back(pattern_of_format(schema["format"].get<std::string>()));
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) continue;
    if (const std::optional<Node> node = matching(pattern, least, most)) return *node;
    if (least == 0 && most < 0) continue;
    if (const std::optional<Node> node = matching(pattern, 0, -1)) return *node;
  }
  const auto character = [&](Node n) {
    return in_json ? builder_.call(builder_.string_character(), n) : builder_.character(all_code_points(), n);
  };
  return opened(builder_.repeat(character, least, most, next));
}

NumberBounds SchemaCompiler::bounds_of(const Json& schema, const std::string& place, bool is_integer) {
  NumberBounds bounds;
  const auto multiple = schema.find("multipleOf");  // of a whole number: whole itself
  bounds.is_integer = is_integer || (multiple != schema.end() && std::fmod(multiple->get<double>(), 1) == 0);
  const auto take = [&](const char* keyword, std::string& bound, bool& is_excluded, bool excludes, bool is_least) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return;
    if (found->is_boolean()) {  // the form of draft 4: it speaks of minimum or maximum
      is_excluded = found->get<bool>();
      return;
    }
    if (!bound.empty()) {
      const double before = std::stod(bound), now = found->get<double>();
      if (before != now && (is_least ? before > now : before < now)) return;
    }
    bound = found->dump();
    is_excluded = excludes;
  };
  take("minimum", bounds.least, bounds.excludes_least, false, true);
  take("exclusiveMinimum", bounds.least, bounds.excludes_least, true, true);
  take("maximum", bounds.most, bounds.excludes_most, false, false);
  take("exclusiveMaximum", bounds.most, bounds.excludes_most, true, false);
  if (!bounds.least.empty() && !bounds.most.empty()) {
    const double low = std::stod(bounds.least), high = std::stod(bounds.most);
    const double first = bounds.excludes_least ? std::floor(low) + 1 : std::ceil(low);
    const double last = bounds.excludes_most ? std::ceil(high) - 1 : std::floor(high);
    constexpr double kExact = 9007199254740992.0;  // above, a double skips whole numbers
    const bool is_exact = std::abs(low) < kExact && std::abs(high) < kExact;
    if (low > high || (bounds.is_integer && is_exact && first > last))
      fail_hopeless(place, std::string(bounds.is_integer ? "a whole number" : "a number") + " of at least " +
                               bounds.least + " and at most " + bounds.most + ": there is none");
  }
  for (const bool is_least : {true, false}) {
    std::string& bound = is_least ? bounds.least : bounds.most;
    if (bound.empty()) continue;
    try {
      check_bound(bound, is_least);
    } catch (const Error& error) {
      leave_out(place, error.what(),
                is_least ? "a least bound that numbers here do not reach"
                         : "a greatest bound that numbers here do not reach");
      bound.clear();
    }
  }
  return bounds;
}

Node SchemaCompiler::number(const Json& schema, const std::string& place, bool is_integer, Node next) {
  const NumberBounds bounds = bounds_of(schema, place, is_integer);
  if (!bounds.is_bounded())
    return builder_.call(bounds.is_integer ? builder_.json_integer() : builder_.json_number(), next);
  try {
    return build_bounded_number(builder_, bounds, next);
  } catch (const NothingMeets& error) {
    fail_hopeless(place, error.what());
  } catch (const Error& error) {
    if (is_too_large(error)) throw;
    fail(place, error.what());
  }
}

Node SchemaCompiler::array(const Json& schema, const std::string& place, Node next) {
  const int least = count_of(schema, "minItems", 0);
  int most = count_of(schema, "maxItems", -1);
  if (most >= 0 && most < least) fail_hopeless(place, "maxItems below minItems");
  Json first = schema.contains("prefixItems") ? schema["prefixItems"] : Json::array();
  Json rest = schema.contains("items") ? schema["items"] : Json(true);
  std::string first_place = place_in(place, "prefixItems");
  if (rest.is_array()) {  // the form before 2020
    first = rest;
    rest = schema.contains("additionalItems") ? schema["additionalItems"] : Json(true);
    first_place = place_in(place, "items");
  }
  const auto none = std::find(first.begin(), first.end(), Json(false));  // it, and what follows it, may not be there
  auto fixed = static_cast<int>(none - first.begin());
  if (none != first.end() || rest == false) {
    most = most < 0 ? fixed : std::min(most, fixed);
    if (most < least) fail_hopeless(place, "minItems above the number of items that there may be");
    rest = true;
  }
  if (most >= 0) fixed = std::min(fixed, most);
  const Rule space = builder_.space();
  // A list that says how many items it wants says so; one that names its first items wants all of them.
  const int wanted = schema.contains("minItems") ? least : fixed;
  const Node close = builder_.literal("]", next);
  const auto item = [&](int i, Node n) {
    const bool is_fixed = i < fixed;
    const Json& one = is_fixed ? first[static_cast<std::size_t>(i)] : rest;
    const std::string at = is_fixed ? place_in(first_place, std::to_string(i)) : place_in(place, "items");
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
  std::vector<std::string> names, required;
  for (const auto& [name, property] : properties.items()) names.push_back(name);
  if (const auto found = schema.find("required"); found != schema.end()) {
    for (const Json& name : *found) {
      required.push_back(name.get<std::string>());
      if (!is_in(names, required.back())) names.push_back(required.back());
    }
  }
  const auto additional = schema.find("additionalProperties");
  // Said nothing of, more properties are not written where some are named: what is left out cannot be wrong.
  const bool is_open = additional != schema.end() ? *additional != false : names.empty();
  const int least = count_of(schema, "minProperties", 0), most = count_of(schema, "maxProperties", -1);
  const auto count = [](const std::vector<std::string>& list) { return static_cast<int>(list.size()); };
  if (most >= 0 && most < least) fail_hopeless(place, "maxProperties below minProperties");
  if (most >= 0 && most < count(required))
    fail_hopeless(place, "maxProperties below the number of required properties");
  if (!is_open && least > count(names))
    fail_hopeless(place, "minProperties above the number of properties that there may be");
  if (!names.empty() && (least > count(required) || (most >= 0 && (is_open || most < count(names)))))
    leave_out(place, "minProperties and maxProperties beside named properties are not supported");
  for (const std::string& name : required) {
    const bool is_described = properties.contains(name);
    if (!is_described && additional != schema.end() && *additional == false)
      fail_hopeless(place, "required: \"" + name + "\", which additionalProperties does not let through");
    if (is_described && properties[name] == false)
      fail_hopeless(place_in(place_in(place, "properties"), name), "nothing can meet false");
  }

  const Rule space = builder_.space();
  const Node close = builder_.literal("}", next);
  const auto colon = [&](Node n) { return builder_.literal(":", builder_.call(space, n)); };
  const auto undescribed = [&](Node after) {
    const bool is_typed = additional != schema.end() && additional->is_object();
    return is_typed ? value(*additional, place_in(place, "additionalProperties"), after)
                    : builder_.call(builder_.json_value(), after);
  };
  const auto member = [&](const std::string& name, Node n) {
    const bool is_described = properties.contains(name);
    const Node after = builder_.call(space, n);
    const Node content = is_described ? value(properties[name], place_in(place_in(place, "properties"), name), after)
                                      : undescribed(after);
    return builder_.literal(Json(name).dump(), colon(content));
  };
  const auto other = [&](Node n) {
    const Node content = undescribed(builder_.call(space, n));
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
    if (properties.contains(names[i]) && properties[names[i]] == false) continue;  // it may not be there
    const Node first = member(names[i], begun);
    const Node later = comma(first);
    fresh = is_required ? first : builder_.any_of({first, fresh});
    begun = is_required ? later : builder_.any_of({later, begun});
  }
  return builder_.literal("{", builder_.call(space, fresh));
}

}  // namespace lockstep
