// The tokenizer on the real vocabulary: pieces, added tokens, trust, size and threads. Expected pieces and ids are the
// tokenizer's published ones, or follow from a rule that the test states.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/utf8_stream.h"
#include "text_support.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
/// Processor time, so that a busy machine changes nothing.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

class TokenizerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    vocabulary_ = std::make_unique<Vocabulary>(v4_vocabulary());
    tokenizer_ = std::make_unique<Tokenizer>(*vocabulary_);
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    vocabulary_.reset();
  }
  static std::unique_ptr<Vocabulary> vocabulary_;
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<Vocabulary> TokenizerTest::vocabulary_;
std::unique_ptr<Tokenizer> TokenizerTest::tokenizer_;

// The pre-tokenizer -------------------------------------------------------------------------------------------------

struct PieceCase {
  std::string text;
  std::vector<std::string> pieces;
};

const std::vector<PieceCase> kPieces = {
    {"", {}},
    {"1234567", {"123", "456", "7"}},
    {"12３４٥", {"12３", "４٥"}},  // scripts may mix inside a group
    {"x²½Ⅷ①", {"x", "²½Ⅷ", "①"}},
    {"  5", {"  ", "5"}},
    {"   abc", {"  ", " abc"}},
    {"a  1", {"a", "  ", "1"}},
    {"\n\n  x", {"\n\n", " ", " x"}},
    {" \n \n  x", {" \n \n", " ", " x"}},
    {"\tabc", {"\tabc"}},
    {"\xc2\xa0"
     "abc",
     {"\xc2\xa0"
      "abc"}},  // NBSP is a prefix too
    {"don't", {"don", "'t"}},
    {".fooé", {".foo", "é"}},
    {"!!!x", {"!!!", "x"}},
    {"?!\n\nx", {"?!\n\n", "x"}},
    {" ?!", {" ?!"}},
    {"  ?!", {" ", " ?!"}},
    {"テスト・ケース", {"テスト", "・", "ケース"}},
    {"a日本語b", {"a", "日本語", "b"}},
    {"\xef\xbb\xbf"
     "bom",
     {"\xef\xbb\xbf"
      "bom"}},                                                   // U+FEFF
    {"🙂\xe2\x80\x8d🙂", {"🙂", "\xe2\x80\x8d", "🙂"}},  // U+200D matches nothing and is kept
    {"e\xcc\x81", {"e\xcc\x81"}},
    {" \xcc\x81", {" \xcc\x81"}},
    {"龥龦", {"龥", "龦"}},  // the class ends at U+9FA5
    {"々人", {"々", "人"}},
    {"abc  ", {"abc", "  "}},
    {"abc \n", {"abc", " \n"}},
    {"\r\n\r\nx", {"\r\n\r\n", "x"}},
    {"\xe1\xa0\x8e\xe1\xa0\x8e"
     "a",
     {"\xe1\xa0\x8e",
      "\xe1\xa0\x8e"
      "a"}},                                     // U+180E is not white space
    {"\xc2\x85\xc2\x85", {"\xc2\x85\xc2\x85"}},  // U+0085 is
    {"\x1c\x1c", {"\x1c\x1c"}},                  // U+001C is not: one gap
    {"🫨 🫨\n", {"🫨", " 🫨\n"}},        // U+1FAE8, a symbol since Unicode 15
};

TEST(PreTokenizer, CutsByTheThreeSplits) {
  const PreTokenizer pre_tokenizer;
  for (const PieceCase& c : kPieces) {
    std::vector<std::string_view> pieces;
    pre_tokenizer.split(c.text, pieces);
    EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()), c.pieces) << c.text;
  }
}

// tests/data/text/unicode-16-groups.txt: runs of code points by group, from the Unicode Character Database 16.0.0:
// L, M, N, P, S, - (another category), ? (not assigned, which a later version may change).
TEST(PreTokenizer, EveryCodePointIsInItsUnicode16Group) {
  const std::u32string spaces =
      U"\u0009\u000a\u000b\u000c\u000d\u0020\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
      U"\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
  const PreTokenizer pre_tokenizer;
  // Each group gives its own pieces with what stands around: "1c" "c\n" "a" tell numbers, signs, letters and marks
  // apart.
  const auto count_of = [&](const std::string& text) {
    std::vector<std::string_view> pieces;
    pre_tokenizer.split(text, pieces);
    return pieces.size();
  };
  int checked = 0;
  for (const std::string& line : read_lines("unicode-16-groups.txt")) {
    std::istringstream fields(line);
    char group = 0;
    unsigned first = 0, last = 0;
    fields >> group >> std::hex >> first >> last;
    if (group == '?') continue;
    for (char32_t c = first; c <= last; ++c) {
      const bool is_han_kana = (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff);
      std::string x;
      append_utf8(x, c);
      const bool is_space = spaces.find(c) != std::u32string::npos;
      const bool is_break = c == '\r' || c == '\n';
      ++checked;
      // A number joins a number before it; nothing else does.
      ASSERT_EQ(count_of("1" + x) == 1, group == 'N') << std::hex << static_cast<unsigned>(c);
      if (group == 'N' || is_han_kana) continue;
      // A letter or mark joins a letter before it, and so does nothing else.
      ASSERT_EQ(count_of("a" + x) == 1, group == 'L' || group == 'M') << std::hex << static_cast<unsigned>(c);
      // A punctuation mark or symbol takes a line break after it, and so does white space.
      ASSERT_EQ(count_of(x + "\n") == 1, group == 'P' || group == 'S' || is_space)
          << std::hex << static_cast<unsigned>(c);
      // Before a non-ASCII letter: signs and line breaks stand apart, all others join it.
      ASSERT_EQ(count_of(x + "é") == 2, group == 'P' || group == 'S' || is_break)
          << std::hex << static_cast<unsigned>(c);
      // Letters and marks are alike to every rule, and so are punctuation and symbols.
    }
  }
  EXPECT_GT(checked, 280000);
}

// Added tokens and trust --------------------------------------------------------------------------------------------

TEST_F(TokenizerTest, PublishedIds) {
  const std::map<std::string, Token> ids = {{std::string(kBosText), 0},         {std::string(kEosText), 1},
                                            {std::string(kUserText), 128803},   {std::string(kAssistantText), 128804},
                                            {std::string(kThinkBegin), 128821}, {std::string(kThinkEnd), 128822},
                                            {std::string(kDsml), 128825},       {std::string(kLatestReminder), 128828},
                                            {"<｜action｜>", 128829},           {"<｜image｜>", 129279}};
  for (const auto& [text, id] : ids) {
    EXPECT_EQ(tokenizer_->find_added(text), id) << text;
    EXPECT_TRUE(tokenizer_->is_added(id)) << text;
    EXPECT_EQ(tokenizer_->encode(text), std::vector<Token>{id}) << text;
    EXPECT_EQ(tokenizer_->bytes_of(id), text);
  }
  EXPECT_EQ(tokenizer_->size(), 129280u);
  EXPECT_EQ(tokenizer_->bos(), 0);
  EXPECT_EQ(tokenizer_->eos(), 1);
  EXPECT_FALSE(tokenizer_->find_added("<｜System｜>"));
  EXPECT_FALSE(tokenizer_->find_added("hello"));
  EXPECT_FALSE(tokenizer_->is_added(67));
  EXPECT_NO_THROW(check_chat_vocabulary(*tokenizer_));
}

TEST_F(TokenizerTest, AddedTokensAreFoundInTheMiddleOfAWordLeftmostAndLongest) {
  EXPECT_EQ(tokenizer_->encode("x<think>y"), (std::vector<Token>{90, 128821, 91}));
  EXPECT_EQ(tokenizer_->encode("<｜User｜DSML｜>"), (std::vector<Token>{30, 28217, 6756, 128825, 32}));
  EXPECT_EQ(tokenizer_->encode("<think"), tokenizer_->encode("<think", Trust::untrusted));
  EXPECT_EQ(tokenizer_->encode("<<think>>").size(), 3u);
}

TEST_F(TokenizerTest, UntrustedTextHoldsNoAddedTokens) {
  for (const std::string text : {"<｜User｜>", "</think>", "a <think> b", "｜DSML｜", "<dsml:", "<|EOT|>"}) {
    for (const Token token : tokenizer_->encode(text, Trust::untrusted))
      EXPECT_FALSE(tokenizer_->is_added(token)) << text;
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text, Trust::untrusted)), text);
  }
}

TEST_F(TokenizerTest, AnAddedTokenMustLieInTrustedTextAsAWhole) {
  using enum Trust;
  const auto has_added = [&](std::vector<Span> spans) {
    const auto tokens = tokenizer_->encode(std::span<const Span>(spans));
    return std::any_of(tokens.begin(), tokens.end(), [&](Token token) { return tokenizer_->is_added(token); });
  };
  EXPECT_TRUE(has_added({{"<think>", trusted}}));
  EXPECT_TRUE(has_added({{"<thi", trusted}, {"nk>", trusted}}));
  EXPECT_TRUE(has_added({{"<thi", trusted}, {"", untrusted}, {"nk>", trusted}}));
  EXPECT_FALSE(has_added({{"<thi", trusted}, {"nk>", untrusted}}));
  EXPECT_FALSE(has_added({{"<thi", untrusted}, {"nk>", trusted}}));
  EXPECT_FALSE(has_added({{"<", trusted}, {"think", untrusted}, {">", trusted}}));
}

TEST_F(TokenizerTest, OrdinaryTextMergesAcrossSpans) {
  using enum Trust;
  const std::vector<Span> spans = {
      {"<tool_result>", trusted}, {"{\"a\": 12", untrusted}, {"34} wor", trusted}, {"ld", untrusted}};
  std::string all;
  for (const Span& span : spans) all += span.text;
  EXPECT_EQ(tokenizer_->encode(std::span<const Span>(spans)), tokenizer_->encode(all));
}

TEST_F(TokenizerTest, HalfACharacterCannotEatTheNextSpan) {
  using enum Trust;
  const std::vector<Span> broken = {{"a\xef\xbd", untrusted},
                                    {"\x9c"
                                     "b",
                                     trusted}};
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(std::span<const Span>(broken))),
            "a\xef\xbf\xbd\xef\xbf\xbd"
            "b");
}

TEST_F(TokenizerTest, AMissingControlTokenIsNamed) {
  Prompt prompt;
  prompt.controls = {"<｜nothing｜>"};
  EXPECT_THROW(tokenizer_->encode(prompt), Error);
  EXPECT_THROW(tokenizer_->bytes_of(-1), Error);
  EXPECT_THROW(tokenizer_->bytes_of(129280), Error);
}

// Byte-pair encoding ------------------------------------------------------------------------------------------------

/// The definition, literally: look for the best pair, merge it, begin again.
std::vector<Token> merged_by_the_rule(const std::map<std::pair<std::string, std::string>, int>& ranks,
                                      const std::map<std::string, Token>& ids, const std::vector<std::string>& bytes) {
  std::vector<std::string> parts = bytes;
  for (;;) {
    int best = -1;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && (best < 0 || found->second < best)) {
        best = found->second;
        at = i;
      }
    }
    if (best < 0) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<Token> tokens;
  for (const std::string& part : parts) tokens.push_back(ids.at(part));
  return tokens;
}

TEST_F(TokenizerTest, PiecesAreMergedAsTheDefinitionSays) {
  std::map<std::pair<std::string, std::string>, int> ranks;
  std::map<std::string, Token> ids;
  for (Token token = 0; token < 128000; ++token)
    if (!vocabulary_->is_added(token)) ids[vocabulary_->tokens[static_cast<std::size_t>(token)]] = token;
  for (std::size_t rank = 0; rank < vocabulary_->merges.size(); ++rank) {
    const std::string& merge = vocabulary_->merges[rank];
    const std::size_t space = merge.find(' ');
    ranks.emplace(std::pair(merge.substr(0, space), merge.substr(space + 1)), static_cast<int>(rank));
  }
  std::vector<std::string> mapped(256);
  for (char32_t code_point = 0; code_point < 512; ++code_point)
    if (const int byte = byte_of_mapped(code_point); byte >= 0)
      append_utf8(mapped[static_cast<std::size_t>(byte)], code_point);

  const Bpe bpe(*vocabulary_);
  std::mt19937 random(2);
  const std::string alphabets[] = {"ab",      "etaoin shrdlu", "= ", "\n\t ", "01=-_/+Aa", "\xe4\xbd\xa0\xe5\xa5\xbd",
                                   "(){};\n "};
  for (int round = 0; round < 1500; ++round) {
    const std::string& alphabet = alphabets[static_cast<std::size_t>(round) % std::size(alphabets)];
    std::string piece;
    for (std::size_t n = 1 + random() % (round % 2 == 0 ? 30 : 200); n > 0; --n)
      piece += random() % 50 == 0 ? static_cast<char>(random() % 256) : alphabet[random() % alphabet.size()];
    std::vector<std::string> bytes;
    for (const char byte : piece) bytes.push_back(mapped[static_cast<unsigned char>(byte)]);
    std::vector<Token> tokens;
    bpe.encode(piece, tokens);
    ASSERT_EQ(tokens, merged_by_the_rule(ranks, ids, bytes)) << piece;
  }
}

TEST_F(TokenizerTest, SingleBytesHaveTheirPublishedTokens) {
  const Bpe bpe(*vocabulary_);
  const std::pair<unsigned char, Token> kBytes[] = {{0, 191}, {9, 200},  {10, 201}, {13, 204}, {32, 223},
                                                    {'!', 3}, {'0', 18}, {'A', 35}, {'a', 67}};
  for (const auto& [byte, token] : kBytes) {
    std::vector<Token> tokens;
    bpe.encode(std::string(1, static_cast<char>(byte)), tokens);
    EXPECT_EQ(tokens, std::vector<Token>{token}) << static_cast<int>(byte);
  }
}

// Any bytes, any size, any thread -----------------------------------------------------------------------------------

std::string random_text(std::mt19937& random, std::size_t pieces) {
  static constexpr const char* kWords[] = {
      "hello", " world", "<think>",  "<｜User｜>", "｜DSML｜", "\n\n", "   ", "12345", "你好",         "🙂",
      "é",     "don't",  "\xc2\xa0", "=====",      "\t",       "<",    "｜",  "\r\n",  "\xe2\x80\x8d", "テスト"};
  std::string text;
  for (std::size_t n = random() % pieces; n > 0; --n) {
    if (random() % 3 == 0) {
      for (std::size_t k = random() % 6; k > 0; --k) text += static_cast<char>(random() % 256);
    } else {
      text += kWords[random() % std::size(kWords)];
    }
  }
  return text;
}

TEST_F(TokenizerTest, AnyBytesComeBackAsValidUtf8) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::string bytes = random_text(random, 30);
    for (const Trust trust : {Trust::trusted, Trust::untrusted}) {
      const auto tokens = tokenizer_->encode(bytes, trust);
      ASSERT_EQ(tokenizer_->decode(tokens), to_valid_utf8(bytes));
      Detokenizer stream(*tokenizer_);
      std::string text;
      for (const Token token : tokens) {
        const std::string emitted = stream.push(token);
        ASSERT_TRUE(is_valid_utf8(emitted));
        text += emitted;
      }
      ASSERT_EQ(text + stream.finish(), to_valid_utf8(bytes));
    }
  }
}

TEST_F(TokenizerTest, AnyTokensStreamToWhatTheyDecodeTo) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<Token> tokens(random() % 40);
    for (Token& token : tokens) token = static_cast<Token>(random() % (round % 2 == 0 ? 129280u : 260u));
    Detokenizer stream(*tokenizer_);
    std::string text;
    for (const Token token : tokens) text += stream.push(token);
    ASSERT_EQ(text + stream.finish(), to_valid_utf8(tokenizer_->decode(tokens)));
  }
}

TEST_F(TokenizerTest, StopStringsAreFoundAcrossTokens) {
  Detokenizer stream(*tokenizer_, {"lo wo"});
  std::string text;
  for (const Token token : tokenizer_->encode("Hello world")) text += stream.push(token);
  EXPECT_EQ(text + stream.finish(), "Hel");
  EXPECT_TRUE(stream.is_stopped());
  EXPECT_EQ(stream.matched(), "lo wo");
}

TEST_F(TokenizerTest, TwoMegabytesOfOneKindNeitherFailNorCrawl) {
  const auto repeated = [](const std::string& unit) {
    std::string text;
    while (text.size() < 2'000'000) text += unit;
    return text;
  };
  const std::pair<const char*, std::string> kTexts[] = {
      {"spaces", repeated(" ")},
      {"spaces before a word", repeated(" ") + "x"},
      {"line breaks", repeated("\n")},
      {"spaces before a line break", repeated(" ") + "\n"},
      {"digits", repeated("7")},
      {"Han", repeated("字")},
      {"letters", repeated("a")},
      {"accented letters", repeated("é")},
      {"equals signs", repeated("=")},
      {"less-than signs", repeated("<")},
      {"half a control token", repeated("<｜place▁holder▁no▁")},
      {"control tokens", repeated("<think>")},
      {"zero-width joiners", repeated("\xe2\x80\x8d")},
      {"marks", repeated("\xcc\x81")},
      {"emoji", repeated("🙂")},
      {"no-break spaces", repeated("\xc2\xa0")},
      {"NULs", repeated("\0"s)},
      {"broken bytes", repeated("\xff")},
      {"base64", repeated("QmFzZTY0IGlzIGEgZ3JvdXAgb2YgYmluYXJ5LXRvLXRleHQ")},
      {"code", repeated("  for (int i = 0; i < n; ++i) { x[i] += 1; }\n")},
  };
  for (const auto& [name, text] : kTexts) {
    std::vector<Token> tokens;
    const double seconds = seconds_of([&] { tokens = tokenizer_->encode(text); });
    ASSERT_EQ(tokenizer_->decode(tokens), to_valid_utf8(text)) << name;
    // A quadratic step anywhere takes hours; the limit is wide because sanitizers are slow.
    EXPECT_LT(seconds, 60.0) << name;
    std::printf("%-28s %.1f MB in %.3f s, %zu tokens\n", name, static_cast<double>(text.size()) / 1e6, seconds,
                tokens.size());
  }
}

TEST_F(TokenizerTest, AnyNumberOfThreadsGetTheSameTokens) {
  std::mt19937 random(5);
  std::vector<std::string> texts;
  std::vector<std::vector<Token>> expected;
  const Tokenizer plain(*vocabulary_, 0);
  for (int i = 0; i < 200; ++i) {
    texts.push_back(random_text(random, 60));
    expected.push_back(plain.encode(texts.back()));
  }
  const Tokenizer shared(*vocabulary_, 64);  // so small that every thread throws the others' pieces out
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 4 * texts.size(); ++i) {
        const std::size_t at = (i * 7 + t * 13) % texts.size();
        if (shared.encode(texts[at]) != expected[at]) ++wrong[t];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Texts are cut into blocks where a piece ends whatever follows: the tokens are those of the whole.
TEST_F(TokenizerTest, BlocksOfALongTextHaveTheTokensOfTheWhole) {
  const std::vector<std::string> kParts = {
      "word", " word", "\n",      "\n\n", " ",      "   ",  "\t", "7",    "1234567", "+=", "!?\n", ".foo", "'t", "漢字",
      "かな", "é",     "e\u0301", "\r\n", "\u3000", "２３", "Ⅷ",  "🙂", "<|x|>",   "a",  "Z",    "—",    "’s"};
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::string text;
    const std::size_t different = 2 + random() % (kParts.size() - 1);
    while (text.size() < 150'000) text += kParts[random() % different];
    std::vector<std::string_view> pieces;
    PreTokenizer().split(text, pieces);
    std::vector<Token> expected;
    const Bpe bpe(*vocabulary_);
    for (const std::string_view piece : pieces) bpe.encode(piece, expected);
    ASSERT_EQ(tokenizer_->encode(text, Trust::untrusted), expected) << round;
  }
}

TEST_F(TokenizerTest, ATextOfTooManyTokensIsNotReadToItsEnd) {
  std::string large;
  while (large.size() < 20'000'000) large += "some words and 12 more, in a line\n";
  const auto bounded = [&](const std::string& text, std::size_t most) {
    const Span span{text, Trust::trusted};
    return tokenizer_->encode(std::span<const Span>(&span, 1), most);
  };
  const double seconds = seconds_of([&] {
    const Tokenizer::Bounded encoded = bounded(large, 1000);
    EXPECT_FALSE(encoded.is_whole);
    EXPECT_GT(encoded.at_least, 1000u);
    EXPECT_LT(encoded.at_least, 20'000'000u / 34 * 10);  // so many it has
  });
  EXPECT_LT(seconds, 1);
  const std::string text = large.substr(0, 300'000) + "<｜User｜>" + large.substr(0, 300'000);
  const std::size_t whole = tokenizer_->encode(text).size();
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}, whole / 4, whole / 2, whole - 1, whole, whole + 1}) {
    const Tokenizer::Bounded encoded = bounded(text, most);
    EXPECT_EQ(encoded.is_whole, most >= whole) << most;
    EXPECT_LE(encoded.at_least, whole) << most;
    EXPECT_EQ(encoded.at_least > most, most < whole) << most;
    if (encoded.is_whole) {
      EXPECT_EQ(encoded.tokens, tokenizer_->encode(text)) << most;
    }
  }
}

TEST(PieceCache, KeepsTheLastUsedAndNoMoreThanItsCapacity) {
  PieceCache cache(32);
  std::vector<Token> out;
  for (Token i = 0; i < 1000; ++i) {
    const std::string piece = "piece" + std::to_string(i);
    EXPECT_FALSE(cache.find(piece, out));
    cache.insert(piece, &i, 1);
    EXPECT_TRUE(cache.find(piece, out));
    EXPECT_EQ(out, std::vector<Token>{i});
    out.clear();
    EXPECT_LE(cache.size(), 32u);
  }
  const Token one = 1;
  cache.insert(std::string(PieceCache::kMaxPiece + 1, 'x'), &one, 1);
  EXPECT_FALSE(cache.find(std::string(PieceCache::kMaxPiece + 1, 'x'), out));
  PieceCache none(0);
  none.insert("a", &one, 1);
  EXPECT_FALSE(none.find("a", out));
}

TEST_F(TokenizerTest, LoadingTakesAFractionOfASecond) {
  const double seconds = seconds_of([&] { const Tokenizer tokenizer(*vocabulary_); });
  std::printf("129,280 tokens and 127,741 merges in %.3f s\n", seconds);
  EXPECT_LT(seconds, 5.0);  // wide for the same reason; an optimised build takes about 0.1 s
}

}  // namespace
}  // namespace lockstep
