// From tokens to text that may be sent: whole characters only, and never a part of a stop string.
//
// Both streams give the same text however their input is cut: what they emit is a function of all the bytes so far.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep {

class Tokenizer;

/// Emits the longest prefix that is complete UTF-8 and holds back at most 3 bytes, the beginning of a character that
/// may still be completed. Bytes that cannot be part of one become U+FFFD, per maximal subpart, so that the output is
/// always valid.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);

  /// The text for what is held back: nothing, or one U+FFFD. The stream is then empty and may be used again.
  std::string finish();

  std::string_view held() const { return held_; }

 private:
  std::string held_;
};

/// Cuts a text before the first stop string. The match that is complete first counts; of those that end together, the
/// longest. The longest suffix that is a proper prefix of a stop string is held back.
class StopFilter {
 public:
  /// Throws Error::bad_argument for an empty stop string.
  explicit StopFilter(std::vector<std::string> stops);

  /// `text` is whole characters. After a match everything is swallowed.
  std::string push(std::string_view text);

  /// What was held back and turned out to be no stop string.
  std::string finish();

  bool is_stopped() const { return matched_ >= 0; }
  /// Which stop string matched; only after is_stopped().
  const std::string& matched() const;
  std::string_view held() const { return held_; }

 private:
  std::size_t held_size() const;

  std::vector<std::string> stops_;
  std::string held_;
  int matched_ = -1;
};

/// Tokens in, text out: the bytes of each token through Utf8Stream and StopFilter. Added tokens give their literal
/// text; which of them are to be shown is for the caller to decide before it pushes them.
class Detokenizer {
 public:
  /// Borrows the tokenizer, which must outlive it.
  explicit Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops = {});

  std::string push(Token token);
  std::string push(std::span<const Token> tokens);
  std::string finish();
  bool is_stopped() const { return stop_.is_stopped(); }
  const std::string& matched() const { return stop_.matched(); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Stream utf8_;
  StopFilter stop_;
};

}  // namespace lockstep
