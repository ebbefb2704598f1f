// What was sampled as certain tokens is these tokens in later prompts, whatever the tokenizer would choose; and a turn
// whose tokens are not its text is text.
#include "text/sampled_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "split_tokens.h"
#include "text/chat.h"
#include "text/output_parser.h"
#include "text/replay.h"
#include "text/utf8.h"
#include "text_support.h"

namespace lockstep {
namespace {

const std::string kTool = R"({"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "s": {}}}})";
const std::string kBlock =
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">café au "
    "lait</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

class SampledTokens : public testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = std::make_unique<Tokenizer>(v4_vocabulary()); }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  std::vector<Token> bytes(std::string_view text) const {
    std::vector<Token> out;
    for (const char byte : text) out.push_back(byte_token(byte));
    return out;
  }
  Token byte_token(char byte) const {
    for (std::size_t i = 0; i < tokenizer.size(); ++i)
      if (tokenizer.bytes_of(static_cast<Token>(i)) == std::string_view(&byte, 1)) return static_cast<Token>(i);
    ADD_FAILURE() << "no token for byte " << static_cast<int>(byte);
    return 0;
  }

  static ChatRequest request(bool thinking) {
    ChatRequest request;
    request.thinking = thinking;
    request.tools = {kTool};
    Message user;
    user.content = "What is it?";
    request.messages = {user};
    return request;
  }

  /// A turn as it was parsed from the tokens after the prompt, and what was said of it.
  struct Turn {
    std::vector<Token> tokens;  // those that were sampled until the turn ended
    ParsedOutput output;
    std::optional<SampledTurn> sampled;
    bool is_cut = false;  // the last token has more than the turn
  };
  Turn sample(const ChatRequest& request, std::span<const Token> tokens) const {
    OutputParser parser({.opening = phase_after(render_chat(request)), .tools = {kTool}});
    Turn turn;
    for (const Token token : tokens) {
      if (parser.is_done()) break;
      turn.tokens.push_back(token);
      for (const ParserEvent& event : parser.feed_token(tokenizer.bytes_of(token), tokenizer.is_added(token)))
        append(turn.output, event);
    }
    for (const ParserEvent& event : parser.finish(GenerationEnd::stop)) append(turn.output, event);
    turn.sampled = parser.sampled_turn();
    if (!turn.sampled) return turn;
    turn.is_cut = turn.sampled->whole.text() != to_valid_utf8(tokenizer.decode(turn.tokens));
    keep_tokens(*turn.sampled, turn.tokens, tokenizer);
    return turn;
  }

  /// As a client sends it back: without the reasoning.
  static Message sent_back(const Turn& turn) {
    Message message;
    message.role = Role::assistant;
    message.content = turn.output.content;
    for (std::size_t i = 0; i < turn.output.tool_calls.size(); ++i)
      message.tool_calls.push_back(
          {"id" + std::to_string(i), turn.output.tool_calls[i].name, turn.output.tool_calls[i].arguments});
    return message;
  }

  static void remember(ReplayMap& map, const Turn& turn) {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < turn.output.tool_calls.size(); ++i) ids.push_back("id" + std::to_string(i));
    map.remember(turn.output, *turn.sampled, ids, std::vector<std::string>{"key"});
  }

  /// Of the tokens of the next prompt, those that lie behind the first prompt.
  std::vector<Token> repeated(ChatRequest request, Message message) const {
    const std::vector<Token> before = tokenizer.encode(render_chat(request));
    Message next;
    next.content = "And then?";
    request.messages.push_back(std::move(message));
    request.messages.push_back(next);
    const std::vector<Token> after = tokenizer.encode(render_chat(request));
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
    return {after.begin() + static_cast<std::ptrdiff_t>(before.size()), after.end()};
  }

  void expect_repeated(const Turn& turn, const std::vector<Token>& after) const {
    std::size_t n = turn.tokens.size() - (turn.is_cut ? 1 : 0);
    ASSERT_GT(after.size(), n);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(after[i], turn.tokens[i]) << "token " << i << " of " << tokenizer.decode(turn.tokens);
    if (turn.is_cut) {  // what the turn has of it, as text
      while (after[n] != *tokenizer.eos()) ASSERT_LT(++n, after.size());
    }
    ASSERT_EQ(after[n], *tokenizer.eos());
    ASSERT_EQ(after[n + 1], tokenizer.require_added(kUserText));
  }

  static std::unique_ptr<Tokenizer> tokenizer_;
  const Tokenizer& tokenizer = *tokenizer_;
};
std::unique_ptr<Tokenizer> SampledTokens::tokenizer_;

TEST_F(SampledTokens, ThePromptTakesThemIfTheyAreTheText) {
  const std::string text = "the café";
  const std::vector<Token> canonical = tokenizer.encode(text), spelled = bytes(text);
  ASSERT_LT(canonical.size(), spelled.size());
  const Token think_end = tokenizer.require_added(kThinkEnd);
  const auto last = static_cast<Token>(tokenizer.size() - 1);
  std::vector<Token> other = spelled, shorter = spelled, longer = spelled;
  other[0] = byte_token('T');
  shorter.pop_back();
  longer.push_back(byte_token('!'));
  const struct {
    const char* name;
    std::string text;
    Trust trust;
    std::vector<Token> tokens, encoded;
  } cases[] = {
      {"none", text, Trust::untrusted, {}, canonical},
      {"as they are", text, Trust::untrusted, spelled, spelled},
      {"of another text", text, Trust::untrusted, other, canonical},
      {"of less", text, Trust::untrusted, shorter, canonical},
      {"of more", text, Trust::untrusted, longer, canonical},
      {"of another vocabulary", text, Trust::untrusted, {last + 1}, canonical},
      {"no token", text, Trust::untrusted, {-1}, canonical},
      {"a control token",
       std::string(kThinkEnd),
       Trust::untrusted,
       {think_end},
       tokenizer.encode(kThinkEnd, Trust::untrusted)},
      {"of trusted text", std::string(kThinkEnd), Trust::trusted, bytes(kThinkEnd), {think_end}},
      {"broken characters", "a\xef\xbf\xbd\xef\xbf\xbd", Trust::untrusted, bytes("a\xc3\xff"), bytes("a\xc3\xff")},
  };
  for (const auto& c : cases) {
    Prompt prompt;
    prompt.append({c.text, c.trust, c.tokens});
    EXPECT_EQ(tokenizer.encode(prompt), c.encoded) << c.name;
    const Tokenizer::Bounded bounded = tokenizer.encode(prompt, c.encoded.size());
    EXPECT_TRUE(bounded.is_whole) << c.name;
    EXPECT_EQ(bounded.at_least, c.encoded.size()) << c.name;
    const Tokenizer::Bounded given_up = tokenizer.encode(prompt, c.encoded.size() - 1);
    EXPECT_FALSE(given_up.is_whole) << c.name;
    EXPECT_LE(given_up.at_least, c.encoded.size()) << c.name;
  }
}

TEST_F(SampledTokens, NothingIsJoinedWithThem) {
  // "t" and "he" on either side would be one token, and with what is sampled too.
  ASSERT_EQ(tokenizer.encode("the").size(), 1u);
  Prompt prompt;
  prompt.append("the t", Trust::untrusted);
  prompt.append({"he", Trust::untrusted, bytes("he")});
  prompt.append("the", Trust::untrusted);
  std::vector<Token> expected = tokenizer.encode("the t");
  for (const Token token : bytes("he")) expected.push_back(token);
  for (const Token token : tokenizer.encode("the")) expected.push_back(token);
  EXPECT_EQ(tokenizer.encode(prompt), expected);
  EXPECT_EQ(prompt.text(), "the thethe");
  EXPECT_EQ(tokenizer.encode(prompt.from(5)), std::vector<Token>(expected.end() - 3, expected.end()));
  EXPECT_EQ(tokenizer.encode(prompt.from(6)), tokenizer.encode("ethe")) << "what is cut is text";
}

TEST_F(SampledTokens, EveryPartOfATurnKeepsItsOwn) {
  const ChatRequest chat = request(true);
  test::TokenSplitter splitter(tokenizer, 7);
  const auto tokens_of = [&](std::string_view text) { return splitter.split(tokenizer.encode(text)); };
  const struct {
    const char* name;
    std::string text;
    void (*change)(Message&);
    bool repeats_thought;
  } cases[] = {
      {"reasoning dropped", "Let me weigh it.</think>The answer is this.", [](Message&) {}, true},
      {"reasoning changed", "Let me weigh it.</think>The answer is this.", [](Message& m) { m.reasoning = "Hm, so"; },
       false},
      {"with a call", "Weigh it.</think>The answer\n\n" + kBlock, [](Message&) {}, true},
      {"with a call and its content dropped", "Weigh it.</think>The answer\n\n" + kBlock,
       [](Message& m) { m.content.clear(); }, true},
      {"a call in an open thought", "Weigh the answer.\n\n" + kBlock, [](Message&) {}, true},
      {"no thought", "</think>The answer is this.", [](Message&) {}, true},
      {"an open thought", "Let me weigh it", [](Message&) {}, true},
      {"a thought that begins twice", "<think>Let me weigh</think>it", [](Message&) {}, true},
      {"an empty turn", "</think>", [](Message&) {}, true},
  };
  for (const auto& c : cases) {
    const Turn turn = sample(chat, tokens_of(c.text));
    ASSERT_TRUE(turn.sampled) << c.name;
    ReplayMap first(1 << 20), map(1 << 20);
    remember(first, turn);
    map.load(first.save());
    EXPECT_EQ(map.bytes(), first.bytes());
    Message message = sent_back(turn);
    c.change(message);
    ASSERT_TRUE(map.restore(message, "key")) << c.name;
    const std::vector<Token> after = repeated(chat, message);
    if (c.repeats_thought) {
      expect_repeated(turn, after);
    } else {
      const Token end = tokenizer.require_added(kThinkEnd);
      Turn answer = turn;
      answer.tokens.erase(answer.tokens.begin(), std::find(answer.tokens.begin(), answer.tokens.end(), end));
      expect_repeated(answer, {std::find(after.begin(), after.end(), end), after.end()});
      EXPECT_NE(tokenizer.decode(after).find("Hm, so</think>"), std::string::npos);
    }
    if (HasFatalFailure()) FAIL() << c.name;
  }
}

TEST_F(SampledTokens, ATurnThatEndsWithinATokenKeepsTheWholeOnes) {
  SampledTurn turn;
  turn.whole.append("the café", Trust::untrusted);
  std::vector<Token> tokens = bytes("the caf\xc3\xa9");
  const auto kept = [&](std::span<const Token> sampled) {
    SampledTurn copy = turn;
    keep_tokens(copy, sampled, tokenizer);
    EXPECT_EQ(copy.whole.text(), turn.whole.text());
    return copy.whole.spans;
  };
  EXPECT_EQ(kept(tokens).size(), 1u);
  EXPECT_EQ(kept(tokens)[0].tokens, tokens);
  tokens.push_back(byte_token('!'));
  EXPECT_EQ(kept(tokens)[0].tokens.size(), tokens.size() - 1) << "what came after the turn is none of it";
  const std::size_t letter = tokens.size() - 3;
  EXPECT_EQ(kept(std::span(tokens).first(letter))[0].text, "the caf");
  const std::vector<Span> half = kept(std::span(tokens).first(letter + 1));
  ASSERT_EQ(half.size(), 2u);
  EXPECT_EQ(half[0].text, "the caf") << "never up to the middle of a character";
  EXPECT_TRUE(half[1].tokens.empty());
  tokens[2] = byte_token('x');
  EXPECT_EQ(kept(tokens)[0].text, "th");
  EXPECT_TRUE(kept({})[0].tokens.empty());
}

TEST_F(SampledTokens, TheTokensCountInTheMapsBudget) {
  const ChatRequest chat = request(false);
  const Turn few = sample(chat, tokenizer.encode("the the the the")), many = sample(chat, bytes("the the the the"));
  ReplayMap a(1 << 20), b(1 << 20);
  remember(a, few);
  remember(b, many);
  EXPECT_EQ(b.bytes() - a.bytes(), sizeof(Token) * (many.tokens.size() - few.tokens.size()));
}

TEST_F(SampledTokens, TheNextPromptBeginsWithThePromptAndWhatWasSampled) {
  std::mt19937 random(11);
  test::TokenSplitter splitter(tokenizer, 12);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::string> texts = {"The ",
                                          "answer. ",
                                          "\n\n",
                                          "<",
                                          "<｜DSML｜tool_calls>",
                                          "café ",
                                          "</think>",
                                          "<think>",
                                          "\u6f22\u5b57",
                                          "  ",
                                          "if (a < b)",
                                          kBlock,
                                          "\n\n" + kBlock,
                                          "Well.\n\n" + kBlock + "\n\n"};
  int turns = 0, cut = 0, calls = 0, broken = 0, in_thought = 0;
  for (int i = 0; i < 3000; ++i) {
    const ChatRequest chat = request(below(2) == 0);
    std::vector<Token> tokens;
    const std::size_t pieces = 1 + below(12);
    for (std::size_t k = 0; k < pieces; ++k) {
      const auto any = static_cast<Token>(below(tokenizer.size()));
      const std::string_view bytes = tokenizer.bytes_of(any);
      const bool ends_turn = bytes == kEosText || bytes == kBosText || bytes == kUserText || bytes == kAssistantText;
      if (below(2) == 0 && !ends_turn) {
        tokens.push_back(any);
      } else {
        for (const Token token : splitter.split(tokenizer.encode(texts[below(texts.size())]))) tokens.push_back(token);
      }
    }
    const Turn turn = sample(chat, tokens);
    if (!turn.sampled) continue;
    ReplayMap first(1 << 20), map(1 << 20);
    remember(first, turn);
    map.load(first.save());
    Message message = sent_back(turn);
    if (below(2) == 0) message.reasoning = turn.output.reasoning;
    ASSERT_TRUE(map.restore(message, "key"));
    const std::vector<Token> after = repeated(chat, message);
    expect_repeated(turn, after);
    if (HasFailure()) FAIL() << i;
    ++turns;
    cut += turn.is_cut ? 1 : 0;
    calls += turn.output.tool_calls.empty() ? 0 : 1;
    broken += turn.sampled->whole.text().find("\ufffd") == std::string::npos ? 0 : 1;
    in_thought += !turn.output.tool_calls.empty() && turn.sampled->whole.text().find(kThinkEnd) == std::string::npos &&
                          chat.thinking
                      ? 1
                      : 0;
  }
  std::printf("%d turns: %d with calls (%d in a thought), %d with broken characters, %d that end within a token\n",
              turns, calls, in_thought, broken, cut);
  EXPECT_GT(turns, 1000);
  for (const int kind : {calls, broken, in_thought, cut}) EXPECT_GT(kind, 20);
}

}  // namespace
}  // namespace lockstep
