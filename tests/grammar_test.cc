// The grammar engine: what a schema lets through byte by byte, masks that say the same as trying every token, and
// generation under a mask that always ends in JSON which meets the schema.
#include "engine/grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "text/chat.h"
#include "text/python_json.h"
#include "text/tokenizer.h"
#include "text_support.h"

namespace lockstep {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer instance(v4_vocabulary());
  return instance;
}

std::shared_ptr<const TokenTrie> trie() {
  static const auto instance = std::make_shared<const TokenTrie>(tokenizer());
  return instance;
}

std::shared_ptr<Grammar> schema(const char* text, bool strict = true) {
  return Grammar::json_schema(OrderedJson::parse(text), strict);
}

/// Feeds bytes, and every ｜DSML｜ as the control token it is.
bool feed(GrammarState& state, std::string_view text) {
  while (!text.empty()) {
    const std::size_t at = text.find(kDsml);
    if (!state.accept_bytes(text.substr(0, at))) return false;
    if (at == std::string_view::npos) return true;
    if (!state.accept_added(kDsml)) return false;
    text.remove_prefix(at + kDsml.size());
  }
  return true;
}

bool matches(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  GrammarState state(grammar, trie());
  return feed(state, text) && state.is_complete();
}

struct SchemaCase {
  const char* name;
  const char* schema;
  std::vector<std::string> accepted, refused;
};

const SchemaCase kSchemas[] = {
    {"any_value", "true", {"1", "{}", "[1, 2]", R"("a")", "null", R"({"a":{"b":[]}})"}, {"", "{", "nul", "01", "[1,]"}},
    {"string",
     R"({"type":"string"})",
     {R"("")", R"("a\"b")", R"("é")", R"("\u00e9")", R"("\n")"},
     {"\"a\nb\"", R"("\x")", R"("\ud800")", "\"\xff\"", "a", R"("a)"}},
    {"integer", R"({"type":"integer"})", {"0", "-1", "42", "-0"}, {"1.0", "01", "1e3", "", "-"}},
    {"number", R"({"type":"number"})", {"0", "-1.5", "1e3", "2.50E-7"}, {".5", "1.", "+1", "1e"}},
    {"boolean_or_null", R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"0", "True"}},
    {"nullable", R"({"type":"string","nullable":true})", {"null", R"("x")"}, {"1"}},
    {"enumeration", R"({"enum":["red","green",3,null]})", {R"("red")", "3", "null"}, {R"("re")", R"("blue")", "33"}},
    {"constant", R"({"const":{"a":1}})", {R"({"a":1})"}, {R"({"a":2})"}},
    {"object_in_order",
     R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})",
     {R"({"a":1})", R"({"a": 1, "b": "x"})", "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
     {"{}", R"({"b":"x"})", R"({"b":"x","a":1})", R"({"a":1,})", R"({"a":1,"c":2})", R"({"a":"1"})"}},
    {"all_optional",
     R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false})",
     {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"c":[]})", R"({"a":1,"b":2,"c":3})"},
     {R"({,"a":1})", R"({"c":1,"a":1})"}},
    {"additional",
     R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
     {"{}", R"({"ab":1})", R"({"ab":1,"x":true})", R"({"a":true})", R"({"abc":false})", R"({"b":true,"c":true})"},
     {R"({"ab":true})", R"({"x":1})", R"({"x":true,"ab":1})"}},
    {"free_object", R"({"type":"object"})", {"{}", R"({"x":{"y":[1]}})"}, {"[]", R"({x:1})"}},
    {"counted_properties",
     R"({"type":"object","minProperties":1,"maxProperties":2})",
     {R"({"a":1})", R"({"a":1,"b":2})"},
     {"{}", R"({"a":1,"b":2,"c":3})"}},
    {"array_of",
     R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
     {"[1]", "[1, 2]", "[1,2,3]"},
     {"[]", "[1,2,3,4]", R"(["a"])", "[1 2]"}},
    {"no_items_or_many",
     R"({"type":"array","items":{"type":"integer"}})",
     {"[]", "[1]", "[1,2,3,4,5,6]"},
     {"[,]", "[1,]"}},
    {"at_least_two", R"({"type":"array","minItems":2})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"}},
    {"tuple",
     R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})",
     {R"(["a",1])"},
     {R"(["a"])", R"([1,"a"])", R"(["a",1,2])"}},
    {"tuple_and_more",
     R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"}})",
     {R"(["a"])", R"(["a",null,null])"},
     {"[]", R"(["a",1])"}},
    {"no_item", R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {"lengths",
     R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("äöü")", R"("a\n")"},
     {R"("a")", R"("abcd")"}},
    {"pattern_tied",
     R"({"type":"string","pattern":"^[a-c]{2,3}\\d?$"})",
     {R"("ab")", R"("abc9")"},
     {R"("a")", R"("abcd")", R"("ab99")"}},
    {"pattern_untied", R"({"type":"string","pattern":"b+"})", {R"("b")", R"("abba")"}, {R"("aa")", R"("")"}},
    {"pattern_alternatives",
     R"~({"type":"string","pattern":"^(?:cat|dog)s?$"})~",
     {R"("cat")", R"("dogs")"},
     {R"("cats ")", R"("cow")"}},
    {"pattern_escapes", R"({"type":"string","pattern":"^[^\"]\"\\\\$"})", {R"("x\"\\")"}, {R"("xx")"}},
    {"pattern_unicode", R"({"type":"string","pattern":"^[α-ω]+$"})", {R"("αβγ")"}, {R"("abc")", R"("")"}},
    {"date", R"({"type":"string","format":"date"})", {R"("2026-11-30")"}, {R"("2026-13-30")", R"("today")"}},
    {"unknown_format", R"({"type":"string","format":"hostname"})", {R"("x")"}, {}},
    {"integers_between",
     R"({"type":"integer","minimum":-5,"maximum":120})",
     {"-5", "-1", "0", "9", "10", "99", "100", "120"},
     {"-6", "121", "200", "1000", "-10", "05"}},
    {"integers_above", R"({"type":"integer","exclusiveMinimum":99})", {"100", "5000"}, {"99", "0", "-100"}},
    {"integers_below", R"({"type":"integer","maximum":-10})", {"-10", "-11", "-99", "-1000"}, {"-9", "0", "10"}},
    {"large_bounds",
     R"({"type":"integer","minimum":0,"maximum":9007199254740991})",
     {"0", "9007199254740991"},
     {"9007199254740992", "-1"}},
    {"numbers_between",
     R"({"type":"number","minimum":0.5,"maximum":2})",
     {"0.5", "0.51", "0.5001", "1", "1.999", "2", "2.0", "0.6"},
     {"0.4", "0.49", "2.01", "3", "0", "-1"}},
    {"numbers_within",
     R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
     {"0.1", "0.999", "0.001"},
     {"0", "1", "0.0", "1.0"}},
    {"negative_numbers",
     R"({"type":"number","minimum":-1.25,"maximum":-0.5})",
     {"-1.25", "-1", "-0.5", "-0.75", "-1.2"},
     {"-1.26", "-0.4", "0", "1", "-2"}},
    {"bounds_that_all_numbers_here_keep_to",
     R"({"type":"integer","minimum":-1e30,"maximum":1.7976931348623157e308})",
     {"0", "-7", "999999999999999999"},
     {"1.5"}},
    {"pattern_with_lengths",
     R"({"type":"string","pattern":"^a+b*$","minLength":2,"maxLength":4})",
     {R"("aa")", R"("ab")", R"("aabb")", R"("aaaa")"},
     {R"("a")", R"("abbbb")", R"("b")", R"("")"}},
    {"pattern_with_a_greatest_length",
     R"~({"type":"string","pattern":"^\\w+@(\\w+[.])+\\w{2,}$","maxLength":8})~",
     {R"("a@b.cd")", R"("a@b.cdef")", R"("ab@cd.ef")"},
     {R"("a@b.cdefg")", R"("abc@cd.ef")", R"("a@b.c")"}},
    {"pattern_with_a_least_length",
     R"({"type":"string","pattern":"^(ab)*$","minLength":3})",
     {R"("abab")", R"("abababababab")"},
     {R"("ab")", R"("")", R"("aba")"}},
    {"untied_pattern_with_lengths",
     R"({"type":"string","pattern":"b","minLength":2,"maxLength":3})",
     {R"("ab")", R"("éb")", R"("bxx")", R"("\"b")"},
     {R"("b")", R"("aaa")", R"("aabb")"}},
    {"optional_counts_with_lengths",
     R"({"type":"string","pattern":"^[a-z]{0,50}[0-9]?$","minLength":1,"maxLength":3})",
     {R"("a")", R"("7")", R"("ab7")", R"("abc")"},
     {R"("")", R"("abc7")", R"("a77")"}},
    {"empty_text_of_a_pattern", R"({"type":"string","pattern":"^a*$","maxLength":0})", {R"("")"}, {R"("a")"}},
    {"format_with_a_length",
     R"({"type":"string","format":"email","maxLength":7})",
     {R"("a@b.cd")"},
     {R"("ab@cd.ef")", R"("x")"}},
    {"a_property_that_may_not_be",
     R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})",
     {"{}", R"({"b":null})"},
     {R"({"a":1})"}},
    {"a_choice_that_is_none", R"({"anyOf":[false,{"type":"null"}]})", {"null"}, {"1"}},
    {"multiple_of_one", R"({"type":"number","multipleOf":1})", {"3"}, {"3.5"}},
    {"any_of",
     R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]})",
     {"1", "[1]"},
     {R"("a")"}},
    {"one_of_objects",
     R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},
        {"type":"object","properties":{"k":{"const":"b"},"n":{"type":"integer"}},"required":["k","n"]}]})",
     {R"({"k":"a"})", R"({"k":"b","n":1})"},
     {R"({"k":"b"})", R"({"k":"a","n":1})"}},
    {"any_of_beside",
     R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"anyOf":[{"title":"x"}]})",
     {R"({"a":1})"},
     {"{}"}},
    {"all_of",
     R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
        {"properties":{"b":{"type":"string"}},"required":["b"]}]})",
     {R"({"a":1,"b":""})"},
     {R"({"a":1})"}},
    {"references",
     R"({"$defs":{"n":{"type":"integer"}},"type":"array","items":{"$ref":"#/$defs/n"}})",
     {"[1,2]"},
     {R"(["a"])"}},
    {"recursion",
     R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},
        "required":["v","next"]})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":1})"}},
    {"tree",
     R"({"$defs":{"node":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},
        "required":["kids"]}},"$ref":"#/$defs/node"})",
     {R"({"kids":[]})", R"({"kids":[{"kids":[]},{"kids":[{"kids":[]}]}]})"},
     {R"({"kids":[1]})"}},
    {"a_listed_number_keeps_to_bounds", R"({"enum":[1,5,9,"x"],"minimum":4})", {"5", "9", R"("x")"}, {"1"}},
    {"a_listed_number_keeps_to_exclusive_bounds",
     R"({"enum":[1,2,3,4.5,6],"exclusiveMinimum":1,"exclusiveMaximum":6,"multipleOf":1})",
     {"2", "3"},
     {"1", "4.5", "6"}},
    {"a_listed_text_keeps_to_lengths", R"({"enum":["a","b1","é"],"maxLength":1})", {R"("a")", R"("é")"}, {R"("b1")"}},
    {"a_listed_text_keeps_to_a_pattern", R"({"enum":["a1","b1",7],"pattern":"^a"})", {R"("a1")", "7"}, {R"("b1")"}},
    {"a_listed_array_keeps_to_its_items",
     R"({"enum":[[1],[1,2],["a","b"],[1,2,3,4]],"minItems":2,"maxItems":3,"items":{"type":"integer"}})",
     {"[1,2]"},
     {"[1]", R"(["a","b"])", "[1,2,3,4]"}},
    {"a_listed_object_keeps_to_its_properties",
     R"({"enum":[{"b":2,"a":1},{"b":1},{"a":"x","b":1},{"a":1,"b":2,"c":3}],"required":["b","a"],
        "properties":{"a":{"$ref":"#/$defs/n"},"b":{}},"additionalProperties":false,"$defs":{"n":{"minimum":0,
        "type":"number"}}})",
     {R"({"b":2,"a":1})"},
     {R"({"b":1})", R"({"a":"x","b":1})", R"({"a":1,"b":2,"c":3})"}},
    {"a_constant_of_one_part_keeps_to_the_other",
     R"({"anyOf":[{"allOf":[{"const":1},{"type":"integer","minimum":2}]},{"allOf":[{"const":3},{"minimum":2}]}]})",
     {"3"},
     {"1", "2"}},
    {"a_constant_is_one_of_those_listed",
     R"({"anyOf":[{"const":{"a":1,"b":2},"enum":[{"b":2.0,"a":1}]},{"const":5,"enum":[4]}]})",
     {R"({"a":1,"b":2})"},
     {"5", "4"}},
    {"a_listed_value_beside_a_choice",
     R"({"enum":["a",1,2],"anyOf":[{"type":"string"},{"type":"integer","minimum":2}]})",
     {R"("a")", "2"},
     {"1"}},
    {"a_whole_number_written_with_a_point", R"({"enum":[1.0,2.5],"type":"integer"})", {"1.0"}, {"2.5"}},
    {"first_items_up_to_a_count",
     R"({"prefixItems":[{"const":1},{"const":2}],"maxItems":1})",
     {"[1]"},
     {"[1,2]", "[]", "[2]"}},
    {"first_items_and_none", R"({"prefixItems":[{"const":1}],"maxItems":0})", {"[]"}, {"[1]"}},
    {"first_items_that_may_not_be",
     R"({"prefixItems":[{"const":1},false,{"const":3}],"minItems":0})",
     {"[]", "[1]"},
     {"[1,2]", "[1,2,3]"}},
    {"a_way_that_nothing_meets",
     R"({"anyOf":[{"type":"string","minLength":3,"maxLength":2},{"type":"number","minimum":2,"maximum":1},
        {"enum":[1],"minimum":2},{"type":"string","pattern":"[]"},{"type":"null"}]})",
     {"null"},
     {"1", R"("")"}},
    {"a_way_that_nothing_meets_within",
     R"({"oneOf":[{"type":"object","properties":{"a":{"type":"array","minItems":2,"maxItems":1}},"required":["a"]},
        {"anyOf":[{"$ref":"#/$defs/none"},{"type":"integer"}]},{"$ref":"#/$defs/none"}],
        "$defs":{"none":{"type":"array","items":{"$ref":"#/$defs/none"},"minItems":3,"maxItems":2}}})",
     {"1"},
     {"{}", "[]"}},
    {"types_that_a_choice_narrows",
     R"({"type":["string","number"],"anyOf":[{"type":"integer"},{"type":"null"}]})",
     {"1"},
     {"1.5", R"("a")", "null"}},
    {"references_in_the_code_of_addresses",
     R"({"definitions":{"Record<string,number>":{"const":1},"a/b~c%":{"const":2}},"type":"array","prefixItems":[
        {"$ref":"#/definitions/Record%3Cstring%2Cnumber%3E"},{"$ref":"#/definitions/Record<string,number>"},
        {"$ref":"#/definitions/a~1b~0c%25"},{"$ref":"#/definitions/a~1b~0c%"}],"items":false})",
     {"[1,1,2,2]"},
     {"[1,1,2,1]"}},
    {"references_by_name",
     R"({"$id":"https://x.y/s.json","$defs":{"n":{"$anchor":"foo","const":1},"m":{"$id":"m.json","const":2},
        "o":{"$id":"#old","const":3}},"type":"array","prefixItems":[{"$ref":"#foo"},{"$ref":"m.json"},
        {"$ref":"https://x.y/s.json#/$defs/n"},{"$ref":"#old"},{"$ref":"https://x.y/s.json#foo"}],"items":false})",
     {"[1,2,1,3,1]"},
     {"[1,1,1,1,1]"}},
    {"a_schema_that_holds_itself_by_its_name",
     R"({"$id":"https://x.y/s","type":"object","properties":{"next":{"$ref":"https://x.y/s"}}})",
     {"{}", R"({"next":{"next":{}}})"},
     {R"({"next":1})"}},
    {"keywords_that_ask_for_nothing",
     R"({"type":"array","uniqueItems":false,"not":false,"items":{"type":"object","propertyNames":{"type":"string"},
        "patternProperties":{}}})",
     {"[{},{}]"},
     {"[1]"}},
    {"quoted_names",
     R"({"type":"object","properties":{"a\"b":{"type":"null"}},"required":["a\"b"]})",
     {R"({"a\"b":null})"},
     {}},
};

TEST(GrammarSchema, LetsThroughWhatMeetsTheSchemaAndNothingElse) {
  for (const SchemaCase& c : kSchemas) {
    const auto grammar = schema(c.schema);
    for (const std::string& text : c.accepted) EXPECT_TRUE(matches(grammar, text)) << c.name << ": " << text;
    for (const std::string& text : c.refused) EXPECT_FALSE(matches(grammar, text)) << c.name << ": " << text;
  }
}

struct RefusedCase {
  const char* schema;
  const char* message;
};

const RefusedCase kRefused[] = {
    {R"({"type":"string","not":{}})", R"(schema at its root: keyword "not" is not supported)"},
    {R"({"properties":{"a":{"if":{}}}})", R"(schema at /properties/a: keyword "if" is not supported)"},
    {R"({"type":"array","uniqueItems":true})", R"(schema at its root: keyword "uniqueItems" is not supported)"},
    {R"({"type":"text"})",
     R"(schema at its root: type "text", expected object, array, string, integer, number, boolean or null)"},
    {R"({"$ref":"#/$defs/x"})", R"(schema at its root: $ref "#/$defs/x" refers to nothing)"},
    {R"({"$ref":"http://x/y"})", R"(schema at its root: $ref "http://x/y", expected one that begins with #)"},
    {R"({"$ref":"#"})", "refers to itself alone"},
    {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})", "refers to itself alone"},
    {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "nothing can meet it"},
    {R"({"anyOf":[{"$ref":"#"}]})", "nothing can meet it"},
    {R"({"type":"integer","minimum":5,"maximum":4})", "there is none"},
    {R"({"type":"string","minLength":5,"maxLength":4})", "maxLength below minLength"},
    {R"({"type":"string","minLength":-1})", "minLength: -1, expected a whole number of at least 0"},
    {R"~({"type":"string","pattern":"(?=a)"})~", "a group (? at character 0"},
    {R"({"type":"string","pattern":"\\bx"})", R"(\b at character 0)"},
    {R"~({"type":"string","pattern":"(a"})~", "an unmatched ( at character 0"},
    {R"({"type":"string","pattern":"a{2,1}"})", "a { that counts nothing"},
    {R"({"type":"string","maxLength":100000000})", "too large"},
    {R"({"type":"integer","minimum":1e30})", "a least bound of 1e+30"},
    {R"({"type":"integer","maximum":-1e30})", "a greatest bound of -1e+30"},
    {R"({"type":"number","exclusiveMinimum":1e300})", "a least bound of 1e+300"},
    {R"({"type":"number","exclusiveMaximum":-1e18})", "a greatest bound of -1e+18"},
    {R"({"type":"object","properties":{"a":{"type":"number","minimum":1e-30}}})",
     "schema at /properties/a: bound 1e-30"},
    {R"({"type":"string","pattern":"^a{5}$","maxLength":3})", "no text of these lengths matches the pattern"},
    {R"~({"type":"string","pattern":"^(.|..|...)+$","maxLength":100000})~", "is not supported"},
    {"3", "expected an object"},
    {"false", "nothing can meet false"},
    {R"({"$ref":"#nowhere"})", "$ref \"#nowhere\" refers to nothing"},
    {R"({"type":"object","propertyNames":{"pattern":"a"}})", "keyword \"propertyNames\" is not supported"},
    {R"({"type":"array","enum":[[1,1]],"items":{"not":{"const":1}}})", "schema at /items: keyword \"not\""},
};

TEST(GrammarSchema, RefusesWhatItDoesNotUnderstandByNameAndPlace) {
  for (const RefusedCase& c : kRefused) {
    try {
      schema(c.schema);
      ADD_FAILURE() << "accepted: " << c.schema;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument);
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what() << "\n  " << c.schema;
    }
  }
}

// Errors of whoever wrote the schema, whether or not it is to be kept to the letter.
const RefusedCase kMalformed[] = {
    {R"({"type":5})", "schema at its root: type: 5, expected a name or an array of names"},
    {R"({"type":[]})", "type: [], expected a name"},
    {R"({"type":"string","pattern":5})", "schema at its root: pattern: 5, expected a string"},
    {R"~({"type":"string","pattern":"(a"})~", "an unmatched ( at character 0"},
    {R"({"type":"string","pattern":"*a"})", "* behind nothing at character 0"},
    {R"({"type":"string","minLength":5,"maxLength":3})", "maxLength below minLength"},
    {R"({"type":"string","maxLength":1.5})", "maxLength: 1.5, expected a whole number"},
    {R"({"type":"integer","minimum":9,"maximum":5})", "there is none"},
    {R"({"type":"integer","minimum":0.2,"maximum":0.8})", "a whole number of at least 0.2 and at most 0.8"},
    {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":4})", "there is none"},
    {R"({"type":"number","minimum":"1"})", "minimum: \"1\", expected a number"},
    {R"({"type":"number","multipleOf":0})", "multipleOf: 0, expected a number above 0"},
    {R"({"type":"array","minItems":3,"maxItems":2})", "maxItems below minItems"},
    {R"({"type":"array","items":5})", "items: 5, expected a schema"},
    {R"({"type":"array","prefixItems":{}})", "prefixItems: {}, expected an array of schemas"},
    {R"({"type":"object","properties":{"a":{"type":"array","minItems":3,"maxItems":2}}})", "schema at /properties/a: "},
    {R"({"type":"object","properties":[]})", "properties: [], expected an object of schemas"},
    {R"({"type":"object","properties":{"a":5}})", "schema at /properties/a: a number, expected an object"},
    {R"({"type":"object","required":"a"})", "required: \"a\", expected an array of names"},
    {R"({"type":"object","required":["a"],"additionalProperties":false})", "which additionalProperties does not let"},
    {R"({"type":"object","properties":{"a":false},"required":["a"]})",
     "schema at /properties/a: nothing can meet false"},
    {R"({"type":"object","minProperties":3,"maxProperties":2})", "maxProperties below minProperties"},
    {R"({"type":"object","properties":{"a":{}},"minProperties":2})", "minProperties above the number of properties"},
    {R"({"anyOf":[]})", "anyOf: [], expected an array of schemas, at least one"},
    {R"({"anyOf":[false]})", "nothing can meet false"},
    {R"({"enum":[]})", "enum: [], expected an array of values, at least one"},
    {R"({"type":"string","enum":[1]})", "none of its values has the type"},
    {R"({"const":5,"minimum":6})", "schema at its root: const: none of its values meets what stands beside it"},
    {R"({"enum":["ab"],"maxLength":1})", "enum: none of its values meets"},
    {R"({"allOf":[{"const":1},{"type":"integer","minimum":2}]})", "const: none of its values meets"},
    {R"({"allOf":[{"const":1},{"const":2}]})", "const: nothing can be two values at once"},
    {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "type: nothing can have two types at once"},
    {R"({"anyOf":[{"type":"string","minLength":2,"maxLength":1},false]})", "schema at /anyOf/0: maxLength below"},
    {R"({"anyOf":[{"type":"string","minLength":-1},{"type":"null"}]})", "schema at /anyOf/0: minLength: -1"},
    {R"({"type":"array","prefixItems":[{},false],"minItems":2})", "minItems above the number of items"},
    {R"({"type":"string","pattern":"[]"})", "schema at its root: pattern \"[]\": no text matches it"},
    {R"({"type":"string","pattern":"^a[]$","maxLength":5})", "no text of these lengths matches the pattern"},
    {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1e-18})", "a number above 0 and below 1e-18: there"},
    {R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":1})", "there is none"},
    {R"({"$ref":"#/$defs/x"})", "refers to nothing"},
    {R"({"$ref":"#"})", "refers to itself alone"},
    {R"({"nullable":1})", "nullable: 1, expected true or false"},
};

TEST(GrammarSchema, AMalformedOrHopelessSchemaIsRefusedStrictOrNot) {
  for (const RefusedCase& c : kMalformed)
    for (const bool strict : {true, false}) {
      try {
        schema(c.schema, strict);
        ADD_FAILURE() << "accepted: " << c.schema;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what() << "\n  " << c.schema;
      }
    }
}

struct LooseCase {
  const char* schema;
  std::vector<std::string> accepted, refused;
  const char* left_out;  // a part of the one line
};

const LooseCase kLoose[] = {
    {R"({"type":"string","not":{"const":"a"}})", {R"("a")"}, {"1"}, R"(schema at its root: keyword "not")"},
    {R"~({"type":"string","pattern":"(?=a)b"})~",
     {R"("x")"},
     {"1"},
     "schema at its root: pattern: its parts, or its lengths, are not supported"},
    {R"~({"type":"string","pattern":"(?!a)","maxLength":2})~",
     {R"("ab")"},
     {R"("abc")"},
     "schema at its root: pattern: its parts, or its lengths, are not supported"},
    {R"~({"type":"string","pattern":"(?!a)","format":"date"})~",
     {R"("2026-11-30")"},
     {R"("x")"},
     "schema at its root: pattern: its parts, or its lengths, are not supported"},
    {R"({"type":"string","pattern":"^[a-z]{1,900}$","maxLength":500000})",
     {R"("ab")"},
     {R"("1")"},
     "pattern: its parts, or its lengths, are not supported"},
    {R"({"type":"foo"})", {"1", R"("x")", "{}"}, {"x"}, "schema at its root: type: no type of JSON"},
    {R"({"type":"object","properties":{"a":{"type":"any"},"b":{"type":"integer"}},"required":["a","b"]})",
     {R"({"a":[1],"b":2})", R"({"a":"x","b":2})"},
     {R"({"a":1,"b":"x"})", R"({"b":2})", "1"},
     "schema at /properties/*: type: no type of JSON"},
    {R"({"type":"foo","enum":["x",1]})", {"1", R"("x")"}, {"2"}, "type: no type of JSON"},
    {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})", {"[1,1]"}, {R"(["a"])"}, "uniqueItems"},
    {R"({"type":"object","properties":{"a":{"$ref":"http://x/y"}},"required":["a"]})",
     {R"({"a":[1]})"},
     {"{}"},
     "schema at /properties/*: $ref out of the schema"},
    {R"({"type":"integer","minimum":1e30})", {"5"}, {"1.5", R"("x")"}, "a least bound that numbers here do not reach"},
    {R"({"type":"number","minimum":1e-30,"maximum":2})",
     {"1.5"},
     {"3"},
     "a least bound that numbers here do not reach"},
    {R"({"type":"number","multipleOf":0.01})", {"1.25"}, {R"("x")"}, "multipleOf"},
    {R"({"type":"number","multipleOf":5})", {"10"}, {"1.5"}, "multipleOf"},
    {R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":1})", {R"({"b":1})"}, {R"({"c":1})"}, "minProp"},
};

TEST(GrammarSchema, NotStrictLeavesOutThatKeywordAloneAndSaysSo) {
  for (const LooseCase& c : kLoose) {
    EXPECT_THROW(schema(c.schema), Error) << c.schema;
    std::vector<std::string> left_out;
    const auto grammar = Grammar::json_schema(OrderedJson::parse(c.schema), false, &left_out);
    for (const std::string& text : c.accepted) EXPECT_TRUE(matches(grammar, text)) << c.schema << ": " << text;
    for (const std::string& text : c.refused) EXPECT_FALSE(matches(grammar, text)) << c.schema << ": " << text;
    ASSERT_EQ(left_out.size(), 1u) << c.schema;
    EXPECT_NE(left_out[0].find(c.left_out), std::string::npos) << left_out[0];
  }
}

TEST(GrammarSchema, WhatIsSaidOfKeywordsLeftOutHoldsNoWordsOfTheClients) {
  for (const char* text :
       {R"~({"$defs":{"secret":{"secret":1,"anyOf":[{"pattern":"(?=secret)"},{"type":"secret"}]}},"type":"object",
           "properties":{"secret":{"$ref":"#/$defs/secret"},"a":{"items":[{"$ref":"secret://x"}]}},
           "additionalProperties":{"not":{"const":"secret"}}})~",
        R"~({"allOf":[{"secret":1},{"secret":2}]})~",
        R"~({"$ref":"#/secret/secret","secret":{"secret":{"secret":1}}})~",
        R"~({"enum":["secret"],"pattern":"(?=secret)"})~",
        R"~({"properties":{"777":{"not":{}},"secret/777":{"if":{}}}})~"}) {
    std::vector<std::string> left_out;
    Grammar::json_schema(OrderedJson::parse(text), false, &left_out);
    EXPECT_FALSE(left_out.empty()) << text;
    for (const std::string& line : left_out) {
      EXPECT_EQ(line.find("secret"), std::string::npos) << line;
      EXPECT_EQ(line.find("777"), std::string::npos) << line;
    }
  }
}

TEST(GrammarSchema, AnIntegerPast64BitsIsListedWithAllOfItsDigits) {
  const OrderedJson digits = parse_json("12345678901234567890123", "value");
  const auto grammar =
      Grammar::json_schema({{"enum", OrderedJson::array({digits, OrderedJson::array({digits})})}}, true);
  EXPECT_TRUE(matches(grammar, "12345678901234567890123"));
  EXPECT_TRUE(matches(grammar, "[12345678901234567890123]"));
  EXPECT_FALSE(matches(grammar, "1.2345678901234568e+22"));
  EXPECT_TRUE(matches(Grammar::json_schema({{"const", digits}, {"type", "integer"}, {"minimum", 5}}, true),
                      "12345678901234567890123"));
  EXPECT_THROW(Grammar::json_schema({{"const", digits}, {"type", "integer"}, {"maximum", 5}}, true), Error);
}

TEST(GrammarSchema, HostileSchemasAreBoundedInTime) {
  const auto start = std::chrono::steady_clock::now();
  std::string deep = R"({"type":"null"})";
  for (int i = 0; i < 400; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_THROW(schema(deep.c_str()), Error);
  OrderedJson choices = OrderedJson::array();
  for (int i = 0; i < 5000; ++i) choices.push_back("choice number " + std::to_string(i));
  const auto many = schema(OrderedJson{{"enum", choices}}.dump().c_str());
  EXPECT_TRUE(matches(many, R"("choice number 4999")"));
  EXPECT_TRUE(
      matches(schema(R"~({"type":"string","pattern":"^(a*)*(a|aa)+$"})~"), "\"" + std::string(2000, 'a') + "\""));
  EXPECT_THROW(schema(R"~({"type":"string","pattern":"((((a{100}){100}){100}){100})"})~"), Error);
  // Choices that double at every step: against a listed value, against a type, and of what nothing meets.
  for (const auto& [root, leaf] : {std::pair(R"("enum":[[1]],"$ref":"#/$defs/d0")", R"({"items":{"type":"string"}})"),
                                   std::pair(R"("type":"string","$ref":"#/$defs/d0")", R"({"type":"integer"})"),
                                   std::pair(R"("enum":[[1]],"items":{"$ref":"#/$defs/d0"})", R"({"type":"string"})"),
                                   std::pair(R"("$ref":"#/$defs/d0")", "false")}) {
    std::string text = std::string("{") + root + R"(,"$defs":{)";
    for (int i = 0; i < 50; ++i) {
      const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
      text += "\"d" + std::to_string(i) + R"(":{"anyOf":[)" + next + "," + next + "]},";
    }
    text += R"("d50":)" + std::string(leaf) + "}}";
    EXPECT_THROW(schema(text.c_str()), Error) << root;
    std::vector<OrderedJson> list(1);
    list[0]["name"] = "f";
    list[0]["parameters"] = OrderedJson::parse(text);
    list[0]["parameters"]["properties"]["a"] = {{"type", "string"}, {"$ref", "#/$defs/d0"}};
    try {
      Grammar::tool_calls(list, ToolChoice::required, "", true);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("too large"), std::string::npos) << error.what();
    }
  }
  // References to references, one by one and doubling.
  for (const auto& [form, count] :
       {std::pair(R"({"$ref":"#/$defs/dN"})", 5000), std::pair(R"({"$ref":"#/$defs/dN","minimum":1})", 5000),
        std::pair(R"({"allOf":[{"$ref":"#/$defs/dN"},{"$ref":"#/$defs/dN"}]})", 50)}) {
    std::string text = R"({"$ref":"#/$defs/d0","$defs":{)";
    for (int i = 0; i < count; ++i) {
      std::string next = form;
      for (std::size_t at; (at = next.find('N')) != std::string::npos;) next.replace(at, 1, std::to_string(i + 1));
      text += "\"d" + std::to_string(i) + "\":" + next + ",";
    }
    EXPECT_THROW(schema((text + "\"d" + std::to_string(count) + "\":{}}}").c_str()), Error) << form;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// ---- Masks ----

const std::vector<Token>& ends() {
  static const std::vector<Token> instance = {*tokenizer().eos()};
  return instance;
}

std::vector<bool> allowed(const GrammarState& state) {
  std::vector<float> logits(tokenizer().size(), 0.0f);
  state.mask(logits, ends());
  std::vector<bool> out(logits.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = logits[i] == 0.0f;
  return out;
}

bool follow(GrammarState& state, Token token) {
  const std::string_view bytes = tokenizer().bytes_of(token);
  return tokenizer().is_added(token) ? state.accept_added(bytes) : !bytes.empty() && state.accept_bytes(bytes);
}

const char* const kWeather = R"({"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14},"unit":{"enum":["C","F"]},
    "tags":{"type":"array","items":{"type":"string"}}},"required":["city"]}})";
const char* const kNow = R"({"name":"now","parameters":{"type":"object","properties":{}}})";

std::shared_ptr<Grammar> tools(ToolChoice choice, std::string_view only = {}, bool parallel = true) {
  const std::vector<OrderedJson> list = {OrderedJson::parse(kWeather), OrderedJson::parse(kNow)};
  return Grammar::tool_calls(list, choice, only, parallel);
}

/// Samples under the mask, at random, with a liking for ends once they may come.
std::string generate(const std::shared_ptr<Grammar>& grammar, std::mt19937& random, int most) {
  GrammarState state(grammar, trie());
  std::string text;
  for (int i = 0; i < most; ++i) {
    if (state.is_complete() && (state.is_finished() || random() % 3 == 0)) return text;
    const std::vector<bool> may = allowed(state);
    std::vector<Token> tokens;
    for (std::size_t t = 0; t < may.size(); ++t)
      if (may[t] && static_cast<Token>(t) != ends()[0]) tokens.push_back(static_cast<Token>(t));
    if (tokens.empty()) return state.is_complete() ? text : text + "<stuck>";
    // Short tokens more often: they come to an end sooner.
    Token token = tokens[random() % tokens.size()];
    for (int tries = 0; tries < 8; ++tries) {
      const Token other = tokens[random() % tokens.size()];
      if (tokenizer().bytes_of(other).size() < tokenizer().bytes_of(token).size()) token = other;
    }
    EXPECT_TRUE(follow(state, token)) << "the mask let through what cannot follow";
    text += tokenizer().bytes_of(token);
  }
  return state.is_complete() ? text : text + "<cut>";
}

TEST(GrammarMask, SaysTheSameAsTryingEveryToken) {
  std::mt19937 random(1);
  for (const auto& grammar : {schema(kSchemas[10].schema), schema(R"({"type":"string","pattern":"^[α-ω]+ x$"})"),
                              schema(R"({"type":"number","minimum":0.5,"maximum":20})"), Grammar::json_object(),
                              tools(ToolChoice::required), tools(ToolChoice::automatic)}) {
    GrammarState state(grammar, trie());
    for (int i = 0; i < 6; ++i) {
      const std::vector<bool> may = allowed(state);
      std::vector<Token> tokens;
      for (std::size_t t = 0; t < may.size(); ++t) {
        GrammarState copy = state;
        const auto token = static_cast<Token>(t);
        const bool expected = token == ends()[0] ? state.is_complete() : follow(copy, token);
        ASSERT_EQ(may[t], expected) << "step " << i << " token " << t;
        if (may[t] && token != ends()[0]) tokens.push_back(token);
      }
      if (tokens.empty()) break;
      ASSERT_TRUE(follow(state, tokens[random() % tokens.size()]));
    }
  }
}

TEST(GrammarMask, GenerationUnderItEndsInJsonThatMeetsTheSchema) {
  std::mt19937 random(2);
  const auto grammar = schema(R"({"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":500},
      "kind":{"enum":["a","b"]},"flag":{"type":"boolean"}},"required":["id","kind"]})");
  for (int i = 0; i < 20; ++i) {
    const std::string text = generate(grammar, random, 300);
    const OrderedJson value = OrderedJson::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_GE(value.at("id").get<int>(), 1) << text;
    EXPECT_LE(value.at("id").get<int>(), 500) << text;
    EXPECT_TRUE(value.at("kind") == "a" || value.at("kind") == "b") << text;
  }
}

TEST(GrammarMask, APatternWithLengthsNeverLeadsIntoADeadEnd) {
  std::mt19937 random(4);
  for (const char* text : {R"~({"type":"string","pattern":"^[a-z]+@([a-z]+[.])+[a-z]{2,}$","maxLength":12})~",
                           R"~({"type":"string","pattern":"^(abc|de)*$","minLength":5,"maxLength":7})~",
                           R"~({"type":"string","pattern":"x.*y","minLength":4,"maxLength":6})~",
                           R"~({"type":"string","pattern":"^(ab)*c$","minLength":4})~"}) {
    const auto grammar = schema(text);
    for (int i = 0; i < 10; ++i) {
      const std::string answer = generate(grammar, random, 300);
      if (answer.ends_with("<cut>")) continue;  // one without a greatest length may go on
      EXPECT_TRUE(matches(grammar, answer)) << text << ": " << answer;
    }
  }
}

// ---- Tools ----

std::string call(const std::string& inside) { return "<｜DSML｜tool_calls>\n" + inside + "\n</｜DSML｜tool_calls>"; }
std::string invoke(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜invoke name=\"" + name + "\">\n" + parameters + "\n</｜DSML｜invoke>";
}
std::string parameter(const std::string& name, const std::string& value, bool is_string) {
  return "<｜DSML｜parameter name=\"" + name + "\" string=\"" + (is_string ? "true" : "false") + "\">" + value +
         "</｜DSML｜parameter>";
}

TEST(GrammarTools, ACallHasItsToolsParametersWithTheirTypes) {
  const auto grammar = tools(ToolChoice::required);
  const std::string city = parameter("city", "Paris <\"&\n é", true);
  EXPECT_TRUE(matches(grammar, call(invoke("now", ""))));
  EXPECT_TRUE(matches(grammar, "\n\n" + call(invoke("get_weather", city))));
  EXPECT_TRUE(matches(grammar, call(invoke("get_weather", parameter("days", "3", false) + "\n" + city))));
  EXPECT_TRUE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("unit", "C", true)))));
  EXPECT_TRUE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("tags", R"(["a"])", false)))));
  EXPECT_TRUE(matches(grammar, call(invoke("now", "") + "\n" + invoke("get_weather", city))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", ""))));  // city is required
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", city + "\n" + city))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("days", "30", false)))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("days", "3", true)))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("unit", "K", true)))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_weather", city + "\n" + parameter("town", "x", true)))));
  EXPECT_FALSE(matches(grammar, call(invoke("get_time", ""))));
  EXPECT_FALSE(matches(grammar, "Hello"));
  EXPECT_FALSE(matches(grammar, call("")));
}

TEST(GrammarTools, ChoiceAndParallelAreKept) {
  const std::string now = invoke("now", "");
  const auto named = tools(ToolChoice::required, "now");
  EXPECT_TRUE(matches(named, call(now)));
  EXPECT_FALSE(matches(named, call(invoke("get_weather", parameter("city", "x", true)))));
  EXPECT_FALSE(matches(tools(ToolChoice::required, "", false), call(now + "\n" + now)));
  EXPECT_THROW(tools(ToolChoice::required, "later"), Error);
  const auto free = tools(ToolChoice::automatic);
  EXPECT_TRUE(matches(free, ""));
  EXPECT_TRUE(matches(free, "a < b </x> text"));
  EXPECT_TRUE(matches(free, "I look.\n\n" + call(now)));
  EXPECT_FALSE(matches(free, "I look.\n\n" + call(now) + " and more"));
  EXPECT_FALSE(matches(free, "I look.\n\n<｜DSML｜function_calls>"));
}

TEST(GrammarTools, AToolWithoutParametersOrWithAnyTakesThem) {
  const std::vector<OrderedJson> list = {OrderedJson::parse(R"({"name":"a"})"),
                                         OrderedJson::parse(R"({"name":"b","parameters":{"type":"object"}})"),
                                         OrderedJson::parse(R"({"name":"c","parameters":{"type":"object","properties":{
                                             "x":{},"y":{"anyOf":[{"type":"string"},{"type":"null"}]}}}})")};
  const auto grammar = Grammar::tool_calls(list, ToolChoice::required, "", true);
  EXPECT_TRUE(matches(grammar, call(invoke("a", ""))));
  EXPECT_FALSE(matches(grammar, call(invoke("a", parameter("x", "1", true)))));
  EXPECT_TRUE(
      matches(grammar, call(invoke("b", parameter("any", "1", true) + "\n" + parameter("more", "[1]", false)))));
  EXPECT_TRUE(matches(grammar, call(invoke("c", parameter("x", "text", true)))));
  EXPECT_TRUE(matches(grammar, call(invoke("c", parameter("x", "{\"a\": 1}", false)))));
  EXPECT_TRUE(matches(grammar, call(invoke("c", parameter("y", "null", false)))));
  EXPECT_FALSE(matches(grammar, call(invoke("c", parameter("y", "1", false)))));
}

TEST(GrammarTools, ListedValuesAndChoicesKeepToWhatStandsBesideThem) {
  const std::vector<OrderedJson> list = {OrderedJson::parse(R"({"name":"a","parameters":{"type":"object","properties":{
      "n":{"enum":[1,5,"x"],"minimum":4,"type":"integer"},
      "s":{"maxLength":1,"anyOf":[{"const":"ab"},{"enum":["c","de"]},{"type":"null"}]}}}})")};
  const auto grammar = Grammar::tool_calls(list, ToolChoice::required, "", true);
  EXPECT_TRUE(matches(grammar, call(invoke("a", parameter("n", "5", false)))));
  EXPECT_FALSE(matches(grammar, call(invoke("a", parameter("n", "1", false)))));
  EXPECT_FALSE(matches(grammar, call(invoke("a", parameter("n", "x", true)))));
  EXPECT_TRUE(matches(grammar, call(invoke("a", parameter("s", "c", true)))));
  EXPECT_TRUE(matches(grammar, call(invoke("a", parameter("s", "null", false)))));
  EXPECT_FALSE(matches(grammar, call(invoke("a", parameter("s", "ab", true)))));
  EXPECT_FALSE(matches(grammar, call(invoke("a", parameter("s", "de", true)))));
}

TEST(GrammarTools, GenerationUnderTheMaskIsAlwaysAWholeBlock) {
  std::mt19937 random(3);
  const auto grammar = tools(ToolChoice::required, "now");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(matches(grammar, generate(grammar, random, 200)));
}

TEST(Grammar, IsFinishedWhenNothingMoreMayCome) {
  GrammarState state(schema(R"({"const":1})"), trie());
  EXPECT_FALSE(state.is_complete());
  EXPECT_TRUE(state.accept_bytes("1"));
  EXPECT_TRUE(state.is_complete());
  EXPECT_TRUE(state.is_finished());
  EXPECT_FALSE(state.accept_bytes("1"));
  EXPECT_TRUE(state.is_complete()) << "a refused byte changes nothing";
}

}  // namespace
}  // namespace lockstep
