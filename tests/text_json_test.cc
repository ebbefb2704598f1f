// JSON as Python writes it. Expected values are what CPython 3.11's json.dumps(json.loads(text), ensure_ascii=False)
// and repr() give, but where a case says otherwise.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ctime>
#include <limits>

#include "base/error.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr struct {
  const char* name;
  std::string_view in, out;
} kTexts[] = {
    {"separators", R"({"a":1,"b":[1,2,{"c":null}]})", R"({"a": 1, "b": [1, 2, {"c": null}]})"},
    {"empty ones", "[{}, [ ], \"\"]", R"([{}, [], ""])"},
    {"keys keep their order", R"({"z":1,"a":2,"m":3})", R"({"z": 1, "a": 2, "m": 3})"},
    {"of duplicates the last value in the first place", R"({"a":1,"b":2,"a":3})", R"({"a": 3, "b": 2})"},
    {"words", "[true,false,null]", "[true, false, null]"},
    {"a float keeps its point", "[1.0,-0.0,100.0]", "[1.0, -0.0, 100.0]"},
    {"a negative zero integer is zero", "-0", "0"},
    {"integers past 64 bits",
     "[18446744073709551615,18446744073709551616,-9223372036854775809,123456789012345678901234567890]",
     "[18446744073709551615, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]"},
    {"exponents", "[1e-7,1E5,1e16,1e15,1.5e300,123456789.125]",
     "[1e-07, 100000.0, 1e+16, 1000000000000000.0, 1.5e+300, 123456789.125]"},
    {"small floats", "[0.0001,0.00001,0.00012]", "[0.0001, 1e-05, 0.00012]"},
    {"non-ASCII is literal", R"("\u00e9\u20ac\ud83c\udf75")", "\"é€🍵\""},
    {"escapes", R"("\"\\\/\n\r\t\b\f\u0001\u001f")", "\"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\""},
    {"DEL and the C1 controls are literal", "\"\x7f\xc2\x85\"", "\"\x7f\xc2\x85\""},
    {"a NUL", R"("a\u0000b")", R"("a\u0000b")"},
    {"line separators are literal", R"("\u2028\u2029")", "\"\xe2\x80\xa8\xe2\x80\xa9\""},
    // Python would keep these; a prompt is UTF-8, so ours become U+FFFD.
    {"a lone high surrogate", R"("a\ud800b")",
     "\"a\xef\xbf\xbd"
     "b\""},
    {"a lone low surrogate", R"("\uDFFF")", "\"\xef\xbf\xbd\""},
    {"two high surrogates, the second paired", R"("\ud83c\ud83c\udf75")", "\"\xef\xbf\xbd🍵\""},
    {"a high surrogate and another escape", R"("\ud83c\n")", "\"\xef\xbf\xbd\\n\""},
    {"an escaped backslash is no surrogate", R"("\\ud800")", R"("\\ud800")"},
};

TEST(PythonJson, WritesAsPythonDoes) {
  for (const auto& c : kTexts) EXPECT_EQ(dump_python(parse_json(c.in, "x")), c.out) << c.name;
}

TEST(PythonJson, WhatItWroteItReadsBackTheSame) {
  for (const auto& c : kTexts) EXPECT_EQ(dump_python(parse_json(c.out, "x")), c.out) << c.name;
}

constexpr struct {
  double value;
  const char* text;
} kFloats[] = {
    {0.0, "0.0"},
    {1.0, "1.0"},
    {-1.5, "-1.5"},
    {0.1, "0.1"},
    {1.0 / 3, "0.3333333333333333"},
    {100.0, "100.0"},
    {1e15, "1000000000000000.0"},
    {9999999999999998.0, "9999999999999998.0"},
    {1e16, "1e+16"},
    {1.5e16, "1.5e+16"},
    {1e22, "1e+22"},
    {1e100, "1e+100"},
    {1e-4, "0.0001"},
    {1.25e-4, "0.000125"},
    {9.5e-5, "9.5e-05"},
    {1e-5, "1e-05"},
    {5e-324, "5e-324"},
    {1.7976931348623157e308, "1.7976931348623157e+308"},
    {2.5e-310, "2.5e-310"},
    {12345.678, "12345.678"},
};

TEST(PythonJson, FloatsAreTheShortestDigitsInReprsForm) {
  for (const auto& c : kFloats) EXPECT_EQ(repr_python(c.value), c.text);
  EXPECT_EQ(repr_python(-0.0), "-0.0");
  EXPECT_EQ(repr_python(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(repr_python(std::nan("")), "nan");
}

TEST(PythonJson, EveryFloatReadsBackAsItself) {
  std::uint64_t bits = 1;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const double value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(parse_json(repr_python(value), "x").get<double>(), value) << repr_python(value);
  }
}

constexpr struct {
  const char* name;
  std::string_view text;
} kBad[] = {
    {"nothing", ""},
    {"only space", "  "},
    {"a word", "nan"},
    {"an open array", "[1"},
    {"a trailing comma", "[1,]"},
    {"two values", "1 2"},
    {"single quotes", "{'a': 1}"},
    {"a raw line break in a string", "\"a\nb\""},
    {"a bad escape", R"("\x41")"},
    {"half an escape", R"("\u12")"},
    {"half an escaped surrogate", R"("\ud83c\u12")"},
    {"bytes that are not UTF-8", "\"\xff\""},
    {"a raw surrogate", "\"\xed\xa0\x80\""},
    {"leading zero", "01"},
    {"a plus", "+1"},
    {"a lone backslash at the end", "\"\\"},
    {"escape cut at the end", "\"\\ud8"},
};

TEST(PythonJson, WhatIsNotJsonIsRefusedByName) {
  for (const auto& c : kBad) {
    try {
      parse_json(c.text, "body");
      ADD_FAILURE() << c.name << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::bad_argument) << c.name;
      EXPECT_EQ(std::string(error.what()).rfind("body: not JSON: ", 0), 0u) << c.name << ": " << error.what();
    }
  }
}

TEST(PythonJson, WhatIsJsonButTooLargeIsNotCalledAnythingElse) {
  const struct {
    const char* name;
    std::string text, message;
  } kCases[] = {
      {"past the range of a double", "[1e999]", "body: a number past the range of a double: 1e999"},
      {"below it", "-1e400", "body: a number past the range of a double: -1e400"},
      {"of many digits", std::string(400, '9'), "body: a number past the range of a double: one of 400 bytes"},
      {"levels", std::string(kMaxJsonDepth + 1, '['), "body: nested deeper than 512 levels"},
  };
  for (const auto& c : kCases) {
    try {
      parse_json(c.text, "body");
      ADD_FAILURE() << c.name << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), c.message) << c.name;
    }
  }
}

TEST(PythonJson, DepthHasALimit) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(dump_python(parse_json(nested(kMaxJsonDepth), "x")), nested(kMaxJsonDepth));
  EXPECT_THROW(parse_json(nested(kMaxJsonDepth + 1), "x"), Error);
  EXPECT_THROW(parse_json(std::string(10'000'000, '['), "x"), Error);
  EXPECT_THROW(parse_json(std::string(10'000'000, '{'), "x"), Error);
}

TEST(PythonJson, WhatIsInATextHasALimit) {
  const auto list_of = [](std::string_view part, std::size_t count) {
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) text.append(part) += i + 1 < count ? "," : "";
    return text + "]";
  };
  EXPECT_EQ(parse_json(list_of("[]", kMostJsonNests - 1), "x").size(), kMostJsonNests - 1);
  EXPECT_EQ(parse_json(list_of("1", kMostJsonNests * 2), "x").size(), kMostJsonNests * 2);
  EXPECT_THROW(parse_json(list_of("[]", kMostJsonNests), "x"), Error);
  EXPECT_THROW(parse_json(list_of("{}", kMostJsonNests), "x"), Error);
  EXPECT_THROW(parse_json(list_of("1", kMostJsonValues), "x"), Error);
}

TEST(PythonJson, ManyKeysTakeLinearTimeAndDuplicatesAreStillFound) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += "\"key" + std::to_string(i) + "\": " + std::to_string(i) + ", ";
  text += "\"key7\": -7, \"key199999\": 1, \"last\": 0}";
  const std::clock_t begin = std::clock();  // processor time, so that a busy machine changes nothing
  const Json json = parse_json(text, "x");
  EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);  // quadratic would take minutes
  ASSERT_EQ(json.size(), 200001u);
  EXPECT_EQ(std::next(json.begin(), 7).value(), -7);
  EXPECT_EQ(std::next(json.begin(), 199999).value(), 1);
}

TEST(PythonJson, ABigIntegerIsNoNumberToItsReader) {
  EXPECT_FALSE(parse_json("18446744073709551616", "x").is_number());
  EXPECT_TRUE(parse_json("18446744073709551615", "x").is_number_unsigned());
}

}  // namespace
}  // namespace lockstep
