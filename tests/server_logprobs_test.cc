// Log probabilities are told of the text that is told: their bytes join to it, wherever it ends.
#include "api_fixture.h"
#include "server/token_texts.h"

namespace lockstep::test {
namespace {

std::string bytes_of(const Json& entries) {
  std::string out;
  for (const Json& entry : entries)
    for (const Json& byte : entry["bytes"]) out += static_cast<char>(byte.get<int>());
  return out;
}

/// A token of two different letters.
std::string two_letters(const Tokenizer& tokenizer) {
  for (Token token = 0; token < static_cast<Token>(tokenizer.size()); ++token) {
    const std::string text(tokenizer.bytes_of(token));
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (text.size() == 2 && is_letter(text[0]) && is_letter(text[1]) && text[0] != text[1]) return text;
  }
  ADD_FAILURE() << "there is none";
  return "??";
}

struct Case {
  std::string name, script, stop, content;
};

std::vector<Case> cases_for(const ApiFixture& api) {
  const std::string word = two_letters(api.tokenizer), first = word.substr(0, 1), second = word.substr(1);
  EXPECT_EQ(api.tokenizer.encode(word).size(), 1u) << word;
  return {
      {"no stop", word + "!", "", word + "!"},
      {"a stop that begins in a token and ends in the next", word + "!" + word, second + "!", first},
      {"one that ends a token", "!" + word + "!", second, "!" + first},
      {"one that begins a token", "!" + word + "?", first, "!"},
      {"one that does not come", word + "?" + word, second + "!", word + "?" + word},
      {"one that is a character of two tokens", "a\xc3\xa9!", "\xc3\xa9", "a"},
      {"one after it", "a\xc3\xa9" + word, second, "a\xc3\xa9" + first},
  };
}

TEST(ServerLogprobs, BytesJoinToTheContentOfAChat) {
  ApiFixture names;
  for (const Case& c : cases_for(names))
    for (const bool is_stream : {false, true}) {
      SCOPED_TRACE(c.name + (is_stream ? ", streamed" : ""));
      ApiFixture api;
      api.source.scripts = {c.script};
      Json body = {{"thinking", false},
                   {"stream", is_stream},
                   {"logprobs", true},
                   {"stop", c.stop},
                   {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
      const auto exchange = api.ask("/chat/completions", body);
      if (!is_stream) {
        const Json choice = exchange->json()["choices"][0];
        EXPECT_EQ(choice["message"]["content"], c.content);
        EXPECT_EQ(bytes_of(choice["logprobs"]["content"]), c.content);
        continue;
      }
      std::string content;
      for (const Event& event : events_of(exchange->stream)) {
        if (!event.data.is_object() || !event.data["choices"][0].contains("logprobs")) continue;
        const Json& choice = event.data["choices"][0];
        EXPECT_EQ(bytes_of(choice["logprobs"]["content"]), choice["delta"]["content"]);
        content += choice["delta"]["content"].get<std::string>();
      }
      EXPECT_EQ(content, c.content);
    }
}

TEST(ServerLogprobs, WhatBelongsToTheMarkOfACallIsNoneOfTheContents) {
  ApiFixture api;
  api.source.scripts = {"Look:" + call_block("get_weather", "")};
  const auto exchange = api.ask("/chat/completions", parse_json(R"({"thinking": false, "logprobs": true,
      "messages": [{"role": "user", "content": "x"}],
      "tools": [{"type": "function", "function": {"name": "get_weather"}}]})",
                                                                "body"));
  const Json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Look:");
  EXPECT_EQ(bytes_of(choice["logprobs"]["content"]), "Look:");
}

TEST(ServerLogprobs, TokensJoinToTheTextOfACompletion) {
  ApiFixture names;
  for (const Case& c : cases_for(names))
    for (const bool is_stream : {false, true}) {
      SCOPED_TRACE(c.name + (is_stream ? ", streamed" : ""));
      ApiFixture api;
      api.source.scripts = {c.script};
      const auto exchange =
          api.ask("/completions",
                  {{"prompt", "x"}, {"max_tokens", 50}, {"stream", is_stream}, {"logprobs", 0}, {"stop", c.stop}});
      std::string text, tokens;
      const auto read = [&](const Json& choice) {
        text += choice["text"].get<std::string>();
        for (const Json& token : choice["logprobs"]["tokens"]) tokens += token.get<std::string>();
      };
      if (is_stream) {
        for (const Event& event : events_of(exchange->stream))
          if (event.data.is_object()) read(event.data["choices"][0]);
      } else {
        read(exchange->json()["choices"][0]);
      }
      EXPECT_EQ(text, c.content);
      if (c.content.find('\xc3') == std::string::npos) {  // halves of a character are shown as U+FFFD
        EXPECT_EQ(tokens, c.content);
      }
    }
}

AnswerToken token_of(std::string bytes) {
  AnswerToken token;
  token.bytes = std::move(bytes);
  return token;
}

/// "text:token|token" of what is settled.
std::string shown(TokenText& settled) {
  std::string out = settled.text + ":";
  for (const AnswerToken& token : settled.tokens) out += (out.back() == ':' ? "" : "|") + token.bytes;
  settled = {};
  return out;
}

TEST(ServerLogprobs, ATokenWaitsUntilAllOfItsTextIsThere) {
  TokenTexts texts;
  TokenText out;
  texts.add(token_of("abc"), "abc", out);
  EXPECT_EQ(shown(out), "abc:abc");
  texts.add(token_of("abc"), "a", out);
  EXPECT_EQ(shown(out), ":");
  texts.add("bc", out);
  EXPECT_EQ(shown(out), "abc:abc");
  texts.add(token_of("abc"), "a", out);
  texts.end(out);
  EXPECT_EQ(shown(out), "a:a");
  texts.end(out);
  EXPECT_EQ(shown(out), ":");
  texts.add(token_of("\xc3"), "", out);
  EXPECT_EQ(shown(out), ":");
  texts.add(token_of("\xa9xy"), "\xc3\xa9x", out);
  EXPECT_EQ(shown(out), ":");
  texts.end(out);
  EXPECT_EQ(shown(out), "\xc3\xa9x:\xc3|\xa9x");
  texts.add(token_of("a\xc3"), "a", out);
  texts.end(out);
  EXPECT_EQ(shown(out), "a:a");
  // Bytes that are no character: all of the token's.
  texts.add(token_of("\xc3"), "\xef\xbf\xbd", out);
  texts.add(token_of("b"), "b", out);
  EXPECT_EQ(shown(out),
            "\xef\xbf\xbd"
            "b:\xc3|b");
}

}  // namespace
}  // namespace lockstep::test
