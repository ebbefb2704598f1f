// Which bytes of each token are in a text that may end in the middle of one: where a stop string begins, or markup that
// is not shown.
//
// Texts come as they are let go, token by token. A token's text is kept until all of it is there, or until it is clear
// that no more comes: so a piece of an answer and the tokens beside it always have the same bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"

namespace lockstep {

/// A token with what is told of it in the answer.
struct AnswerToken {
  Sampled sampled;
  std::size_t offset = 0;  // in a plain continuation: where its text begins, in code points
  std::string bytes = {};  // of it that are in the text
};

/// Text and the tokens that it came from.
struct TokenText {
  std::string text;
  std::vector<AnswerToken> tokens;
};

class TokenTexts {
 public:
  /// The next token, of which `token.bytes` are all bytes, and the text that is let go of it. A token that has only the
  /// first bytes of a character has no text; the character is the text of the token that completes it. Adds to `out`
  /// what is settled.
  void add(AnswerToken token, std::string_view text, TokenText& out);
  /// More text of the token that came last.
  void add(std::string_view text, TokenText& out);
  /// No more text comes of what came so far.
  void end(TokenText& out);

 private:
  void release(TokenText& out, bool is_cut);

  // Tokens that share characters, or one alone.
  std::vector<AnswerToken> tokens_;
  std::string bytes_, text_;
};

}  // namespace lockstep
