// What a vocabulary must hold, on a small one made here: 256 bytes, a few merges, and the control tokens.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "text/bpe.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace lockstep {
namespace {

/// BOS 0, EOS 1, byte b at 2 + b in byte-mapped form, then "he", "ll", "hell", "hello", then the chat's tokens.
Vocabulary small_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.pre = "joyai-llm";
  const auto add = [&](std::string_view text, TokenType type) {
    vocabulary.tokens.emplace_back(text);
    vocabulary.types.push_back(static_cast<std::int32_t>(type));
  };
  add(kBosText, TokenType::control);
  add(kEosText, TokenType::control);
  std::vector<std::string> by_byte(256);
  for (char32_t code_point = 0; code_point < 512; ++code_point) {
    const int byte = byte_of_mapped(code_point);
    if (byte >= 0) append_utf8(by_byte[static_cast<std::size_t>(byte)], code_point);
  }
  for (const std::string& text : by_byte) add(text, TokenType::normal);
  for (const char* text : {"he", "ll", "hell", "hello"}) add(text, TokenType::normal);
  vocabulary.merges = {"h e", "l l", "he ll", "hell o"};
  for (const std::string_view text : {kUserText, kAssistantText}) add(text, TokenType::control);
  for (const std::string_view text : {kThinkBegin, kThinkEnd, kDsml}) add(text, TokenType::user_defined);
  add("[PAD0]", TokenType::unused);
  vocabulary.bos = 0;
  vocabulary.eos = 1;
  return vocabulary;
}

TEST(Vocabulary, TheByteMapIsTheKnownOne) {
  // GPT-2's table: space is U+0120, newline U+010A, tab U+0109, and the soft hyphen is the last one.
  EXPECT_EQ(byte_of_mapped(0x120), ' ');
  EXPECT_EQ(byte_of_mapped(0x10a), '\n');
  EXPECT_EQ(byte_of_mapped(0x109), '\t');
  EXPECT_EQ(byte_of_mapped(0x100), 0);
  EXPECT_EQ(byte_of_mapped(0x121), 127);
  EXPECT_EQ(byte_of_mapped(0x142), 160);
  EXPECT_EQ(byte_of_mapped(0x143), 173);
  EXPECT_EQ(byte_of_mapped('!'), '!');
  EXPECT_EQ(byte_of_mapped(0xff), 255);
  for (const char32_t none : {U' ', U'\x7f', char32_t{0xa0}, char32_t{0xad}, char32_t{0x144}, char32_t{0xff5c}})
    EXPECT_EQ(byte_of_mapped(none), -1);
  std::vector<int> seen(256, 0);
  for (char32_t code_point = 0; code_point < 0x10000; ++code_point)
    if (const int byte = byte_of_mapped(code_point); byte >= 0) ++seen[static_cast<std::size_t>(byte)];
  EXPECT_EQ(seen, std::vector<int>(256, 1));
}

TEST(Vocabulary, ASmallOneWorksForRawTokensAndChat) {
  const Tokenizer tokenizer(small_vocabulary());
  EXPECT_EQ(tokenizer.encode("hello"), (std::vector<Token>{261}));
  EXPECT_EQ(tokenizer.encode("hel"), (std::vector<Token>{258, 2 + 'l'}));
  EXPECT_EQ(tokenizer.encode("a<think>"), (std::vector<Token>{2 + 'a', 264}));
  EXPECT_EQ(tokenizer.encode("[PAD0]").size(), 6u) << "an unused token is never matched";
  EXPECT_EQ(tokenizer.decode(std::vector<Token>{267, 264, 261}), "[PAD0]<think>hello");
  EXPECT_NO_THROW(check_chat_vocabulary(tokenizer));
}

TEST(Vocabulary, WithoutTypesTheIdsTellWhatIsAdded) {
  Vocabulary vocabulary;
  for (const Token token : {0, 1, 2, 128000, 129279}) EXPECT_TRUE(vocabulary.is_added(token));
  for (const Token token : {3, 100, 127999}) EXPECT_FALSE(vocabulary.is_added(token));
}

TEST(Vocabulary, AMissingControlTokenMattersOnlyToThePromptThatUsesIt) {
  Vocabulary vocabulary = small_vocabulary();
  vocabulary.tokens[266] = "no longer DSML";
  const Tokenizer tokenizer(vocabulary);
  EXPECT_THROW(check_chat_vocabulary(tokenizer), Error);
  ChatRequest request;
  request.messages = {{Role::user, "hello", {}, {}, {}, {}, false}};
  const Prompt plain = render_chat(request);
  EXPECT_EQ(tokenizer.encode(plain), (std::vector<Token>{0, 262, 261, 263, 264}));
  request.tools = {"{\"name\": \"now\"}"};
  try {
    tokenizer.encode(render_chat(request));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::unsupported);
    EXPECT_NE(std::string(error.what()).find("'｜DSML｜'"), std::string::npos) << error.what();
  }
}

TEST(Vocabulary, TheNextModelsEncodingIsRefusedByName) {
  Vocabulary vocabulary = small_vocabulary();
  vocabulary.tokens.emplace_back("<｜System｜>");
  vocabulary.types.push_back(static_cast<std::int32_t>(TokenType::control));
  const Tokenizer tokenizer(vocabulary);
  try {
    check_chat_vocabulary(tokenizer);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("V4.1"), std::string::npos) << error.what();
  }
}

struct BadCase {
  const char* name;
  std::function<void(Vocabulary&)> damage;
  const char* message;  // a part of it
};

const std::vector<BadCase> kBad = {
    {"another model", [](Vocabulary& v) { v.model = "llama"; }, "tokenizer.ggml.model: 'llama'"},
    {"another pre-tokenizer", [](Vocabulary& v) { v.pre = "qwen2"; }, "tokenizer.ggml.pre: 'qwen2'"},
    {"no pre-tokenizer", [](Vocabulary& v) { v.pre.clear(); }, "tokenizer.ggml.pre: ''"},
    {"a type too few", [](Vocabulary& v) { v.types.pop_back(); },
     "tokenizer.ggml.token_type: 267 entries, expected 268"},
    {"a byte token", [](Vocabulary& v) { v.types[5] = 6; }, "token 5 has type 6"},
    {"a type that is none", [](Vocabulary& v) { v.types[5] = 0; }, "token 5 has type 0"},
    {"BOS elsewhere", [](Vocabulary& v) { v.bos = 7; }, "tokenizer.ggml.bos_token_id: token 7"},
    {"BOS past the end", [](Vocabulary& v) { v.bos = 268; }, "bos_token_id: 268 is not a token"},
    {"EOS negative", [](Vocabulary& v) { v.eos = -1; }, "eos_token_id: -1 is not a token"},
    {"EOS and BOS swapped", [](Vocabulary& v) { std::swap(v.bos, v.eos); }, "bos_token_id: token 1 is"},
    {"a byte without a token", [](Vocabulary& v) { v.tokens[2 + 'q'] = "qqq"; }, "no token for byte 113"},
    {"two equal tokens", [](Vocabulary& v) { v.tokens[261] = "hell"; }, "tokens 260 and 261 are both 'hell'"},
    {"a normal token in plain text",
     [](Vocabulary& v) {
       v.tokens[258] = "h e";
       v.merges.clear();
     },
     "token 258: 'h e'"},
    {"a merge of no token", [](Vocabulary& v) { v.merges[1] = "l x"; }, "merge 1 'l x'"},
    {"a merge with an unknown part", [](Vocabulary& v) { v.merges[2] = "hx ll"; }, "'hx' is not a token"},
    {"a merge without a space", [](Vocabulary& v) { v.merges[0] = "he"; }, "merge 0 'he'"},
    {"an added token without text", [](Vocabulary& v) { v.tokens[264].clear(); },
     "token 264: an added token has no text"},
};

TEST(Vocabulary, WhatIsWrongIsRefusedByName) {
  for (const BadCase& c : kBad) {
    Vocabulary vocabulary = small_vocabulary();
    c.damage(vocabulary);
    try {
      const Tokenizer tokenizer(vocabulary);
      ADD_FAILURE() << c.name << ": accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << c.name << ": " << error.what();
    }
  }
}

TEST(Vocabulary, TheCountMustBeTheEmbeddingsRows) {
  EXPECT_NO_THROW(check_vocabulary(small_vocabulary(), 268));
  EXPECT_THROW(check_vocabulary(small_vocabulary(), 269), Error);
}

TEST(Vocabulary, AllThreeNamesOfThePreTokenizerAreKnown) {
  for (const char* name : {"joyai-llm", "deepseek-v3", "deepseek-v4"}) {
    Vocabulary vocabulary = small_vocabulary();
    vocabulary.pre = name;
    EXPECT_NO_THROW(check_vocabulary(vocabulary)) << name;
  }
}

constexpr const char* kBadFiles[] = {
    "",
    "[]",
    "{}",
    "{\"model\": 1}",
    R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {}})",
    R"({"normalizer": {"type": "NFC"}})",
    R"({"pre_tokenizer": {"type": 3}})",
    R"({"pre_tokenizer": null})",
};

TEST(Vocabulary, WhatIsNoTokenizerJsonIsRefused) {
  for (const char* text : kBadFiles) EXPECT_THROW(vocabulary_from_tokenizer_json(text, "x.json"), Error) << text;
}

}  // namespace
}  // namespace lockstep
