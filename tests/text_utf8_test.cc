// UTF-8 and the streams over it. Expected values by hand, after the Unicode standard's table 3-7 and its examples of
// maximal subparts (section 3.9).
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/utf8.h"
#include "text/utf8_stream.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

#define FFFD "\xef\xbf\xbd"

constexpr struct {
  const char* name;
  std::string_view bytes, text;
} kRepairs[] = {
    {"ascii", "tea"sv, "tea"sv},
    {"NUL is a character", "a\0b"sv, "a\0b"sv},
    {"two, three and four bytes", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8d\xb5"sv, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8d\xb5"sv},
    {"a lone continuation", "a\x80z"sv, "a" FFFD "z"sv},
    {"two lone continuations", "\x80\xbf"sv, FFFD FFFD ""sv},
    {"bytes that begin nothing", "\xc0\xc1\xf5\xff"sv, FFFD FFFD FFFD FFFD ""sv},
    {"an overlong form", "\xc0\xaf"sv, FFFD FFFD ""sv},
    {"an overlong three-byte form", "\xe0\x80\xaf"sv, FFFD FFFD FFFD ""sv},
    {"a surrogate", "\xed\xa0\x80"sv, FFFD FFFD FFFD ""sv},
    {"past the last code point", "\xf4\x90\x80\x80"sv, FFFD FFFD FFFD FFFD ""sv},
    {"the last code point", "\xf4\x8f\xbf\xbf"sv, "\xf4\x8f\xbf\xbf"sv},
    {"truncated characters are one each", "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"sv, FFFD FFFD FFFD FFFD "A"sv},
    {"cut at the end", "abcdefghijkl\xf0\x9f\x8d"sv, "abcdefghijkl" FFFD ""sv},
};

TEST(Utf8, EachMaximalBrokenSubpartBecomesOneReplacement) {
  for (const auto& c : kRepairs) {
    EXPECT_EQ(to_valid_utf8(c.bytes), c.text) << c.name;
    EXPECT_EQ(is_valid_utf8(c.bytes), c.bytes == c.text) << c.name;
  }
}

TEST(Utf8, EveryCodePointIsValidAndNothingElse) {
  for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xd800 && code_point < 0xe000) continue;
    std::string text;
    append_utf8(text, code_point);
    ASSERT_TRUE(is_valid_utf8(text)) << std::hex << static_cast<unsigned>(code_point);
    if (text.size() > 1) {
      ASSERT_FALSE(is_valid_utf8(text.substr(0, text.size() - 1)));
      ASSERT_FALSE(is_valid_utf8(text.substr(1)));
    }
  }
}

constexpr struct {
  const char* name;
  std::string_view bytes, emit, hold;
} kStreams[] = {
    {"ascii passes through", "tea"sv, "tea"sv, ""sv},
    {"half a letter waits", "caf\xc3"sv, "caf"sv, "\xc3"sv},
    {"three of four bytes wait", "\xf0\x9f\x8d"sv, ""sv, "\xf0\x9f\x8d"sv},
    {"a whole character goes", "\xf0\x9f\x8d\xb5"sv, "\xf0\x9f\x8d\xb5"sv, ""sv},
    {"what cannot be completed goes",
     "\xf0\x9f"
     "A"sv,
     FFFD "A"sv, ""sv},
    {"a second lead byte breaks the first", "\xf0\x9f\xf0\x9f"sv, FFFD ""sv, "\xf0\x9f"sv},
    {"a surrogate's lead may still be another", "\xed"sv, ""sv, "\xed"sv},
};

TEST(Utf8Stream, EmitsWholeCharactersAndHoldsTheRest) {
  for (const auto& c : kStreams) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push(c.bytes), c.emit) << c.name;
    EXPECT_EQ(stream.held(), c.hold) << c.name;
    EXPECT_EQ(stream.finish(), c.hold.empty() ? ""sv : kReplacement) << c.name;
    EXPECT_EQ(stream.held(), "") << c.name;
  }
}

TEST(Utf8Stream, AnyCutGivesTheSameTextAndNeverHoldsFourBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int n = static_cast<int>(random() % 24); n > 0; --n)  // mostly lead and continuation bytes
      bytes += static_cast<char>(random() % 4 == 0 ? random() % 128 : 128 + random() % 128);
    Utf8Stream stream;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 5, bytes.size() - at);
      const std::string emitted = stream.push(std::string_view(bytes).substr(at, n));
      ASSERT_TRUE(is_valid_utf8(emitted));
      ASSERT_LE(stream.held().size(), 3u);
      text += emitted;
      at += n;
    }
    text += stream.finish();
    ASSERT_EQ(text, to_valid_utf8(bytes));
  }
}

struct StopCase {
  const char* name;
  std::vector<std::string> stops;
  std::string text, emit, hold, rest, matched;  // matched: empty if none
};

const std::vector<StopCase> kStops = {
    {"no stop strings", {}, "abc", "abc", "", "", ""},
    {"a match cuts", {"END"}, "abENDcd", "ab", "", "", "END"},
    {"a beginning waits", {"END"}, "abEN", "ab", "EN", "EN", ""},
    {"a false start goes", {"END"}, "abENcd", "abENcd", "", "", ""},
    {"a false start may hold a true one", {"aab"}, "aaab", "a", "", "", "aab"},
    {"the first to be complete counts", {"abcd", "bc"}, "xabcd", "xa", "", "", "bc"},
    {"of those that end together the longest", {"bc", "abc"}, "xabc", "x", "", "", "abc"},
    {"at the very start", {"\n\n"}, "\n\nx", "", "", "", "\n\n"},
    {"across lines", {"\n\n"}, "a\n", "a", "\n", "\n", ""},
    {"more than ASCII", {"停止"}, "好停止好", "好", "", "", "停止"},
};

TEST(StopFilter, CutsBeforeTheStopStringHoweverTheTextArrives) {
  for (const StopCase& c : kStops) {
    StopFilter whole(c.stops);
    EXPECT_EQ(whole.push(c.text), c.emit) << c.name;
    EXPECT_EQ(whole.held(), c.hold) << c.name;
    EXPECT_EQ(whole.is_stopped(), !c.matched.empty()) << c.name;
    if (whole.is_stopped()) {
      EXPECT_EQ(whole.matched(), c.matched) << c.name;
    }
    EXPECT_EQ(whole.finish(), c.rest) << c.name;

    StopFilter bytes(c.stops);
    std::string text;
    for (const char byte : c.text) text += bytes.push(std::string_view(&byte, 1));
    EXPECT_EQ(text, c.emit) << c.name;
    EXPECT_EQ(bytes.is_stopped(), !c.matched.empty()) << c.name;
    if (bytes.is_stopped()) {
      EXPECT_EQ(bytes.matched(), c.matched) << c.name;
    }
  }
}

TEST(StopFilter, AfterAMatchEverythingIsSwallowed) {
  StopFilter filter({"x"});
  EXPECT_EQ(filter.push("ax"), "a");
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, AnEmptyStopStringIsRefused) { EXPECT_THROW(StopFilter({"a", ""}), Error); }

}  // namespace
}  // namespace lockstep
