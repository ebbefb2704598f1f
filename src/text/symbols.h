// The output parser's own alphabet: text in valid UTF-8, and control tokens as single bytes that UTF-8 never uses. So a
// control token and the same characters spelled out stay two things, in one string that can be searched.
#pragma once

#include <string>
#include <string_view>

#include "text/prompt.h"

namespace lockstep {

inline constexpr char kSymbolThinkBegin = '\xf8';
inline constexpr char kSymbolThinkEnd = '\xf9';
inline constexpr char kSymbolDsml = '\xfa';
inline constexpr char kSymbolOtherBegin = '\xfb';  // before and after the text of any other control token
inline constexpr char kSymbolOtherEnd = '\xfc';
inline constexpr char kSymbolTurnEnd = '\xfd';  // BOS, EOS, User, Assistant: the turn is over

inline bool is_symbol(char c) { return static_cast<unsigned char>(c) >= 0xf8; }

/// An added token of the vocabulary in this alphabet. Tokens that are no control tokens are their text.
std::string symbol_of(std::string_view token);

/// Text for a reader. Tool markup is always spelled out. Content leaves <think>, </think> and other control tokens out,
/// reasoning only the others; a value holds everything.
enum class Place { reasoning, content, value };
std::string spell(std::string_view symbols, Place place);

/// As spans: control tokens trusted, all else not.
Prompt to_prompt(std::string_view symbols);

/// Finds control tokens in text where they are only spelled. Holds back what may be the beginning of one.
class SpelledControls {
 public:
  std::string push(std::string_view text);  // whole characters
  std::string finish();

 private:
  std::string held_;
};

/// For content that came as plain text: taking one marker out may join what stood around it to another, "<th" and
/// "ink>", and this takes that out too.
class ContentGuard {
 public:
  std::string push(std::string_view text);
  std::string finish();

 private:
  std::string held_;
};

}  // namespace lockstep
