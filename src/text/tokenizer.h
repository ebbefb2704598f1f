// Text to tokens and back, for the DeepSeek V3 and V4 family.
//
//   text -> added tokens, found as literal text -> pieces (pre_tokenizer.h) -> byte-pair encoding (bpe.h) -> tokens
//
// No normalisation and no BOS: the chat encoder writes BOS as text. A Tokenizer may be used from several threads at
// once.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/piece_cache.h"
#include "text/pre_tokenizer.h"
#include "text/prompt.h"
#include "text/vocabulary.h"

namespace lockstep {

class Tokenizer {
 public:
  /// Throws what check_vocabulary and Bpe throw. A vocabulary without the control tokens of a chat is accepted: asking
  /// for one by require_added, or encoding a prompt that uses it, throws.
  explicit Tokenizer(const Vocabulary& vocabulary, std::size_t cached_pieces = kCachedPieces);

  /// The tokens of one text. Invalid UTF-8 becomes U+FFFD, per maximal broken subpart. With Trust::untrusted, added
  /// tokens in it are ordinary text.
  std::vector<Token> encode(std::string_view text, Trust trust = Trust::trusted) const;

  /// The tokens of a rendered prompt. Throws Error::unsupported naming a control token that the prompt uses and the
  /// vocabulary lacks, since it would silently become ordinary text.
  std::vector<Token> encode(const Prompt& prompt) const;

  /// The tokens of spans, as of one text. A span that was sampled as certain tokens is these, and is joined with
  /// nothing before or behind it; if they are not its text in this vocabulary, it is text like any other.
  std::vector<Token> encode(std::span<const Span> spans) const;

  /// The tokens of a text of which more than `most` are of no use: beyond them the text is not read, and what it has is
  /// only told as a number. A prompt of many megabytes that cannot fit costs no more than one that nearly fits.
  struct Bounded {
    std::vector<Token> tokens = {};  // all of them, if it is whole
    bool is_whole = true;
    std::size_t at_least = 0;  // tokens that the whole text has: exact if it is whole, never too many otherwise
  };
  Bounded encode(const Prompt& prompt, std::size_t most) const;
  Bounded encode(std::span<const Span> spans, std::size_t most) const;

  /// The bytes of tokens, one after another; they may end in the middle of a character (see utf8_stream.h).
  /// Throws Error::bad_argument for an id that is no token.
  std::string decode(std::span<const Token> tokens) const;
  std::string_view bytes_of(Token token) const;

  std::size_t size() const { return offsets_.size() - 1; }
  bool is_added(Token token) const;
  std::optional<Token> find_added(std::string_view text) const;
  /// Throws Error::unsupported, naming the text, if the vocabulary has no such added token.
  Token require_added(std::string_view text) const;
  std::optional<Token> bos() const { return bos_; }
  std::optional<Token> eos() const { return eos_; }
  const std::string& chat_template() const { return chat_template_; }

 private:
  // About 90 bytes each with its tokens: a few megabytes, and more words than a long prompt has.
  static constexpr std::size_t kCachedPieces = 1 << 15;

  struct Added {
    std::string text;
    Token token;
  };
  const Added* longest_added(std::string_view text) const;
  std::string_view encode_ordinary(std::string_view text, std::vector<std::string_view>& pieces, std::size_t most,
                                   std::vector<Token>& out) const;

  Bpe bpe_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<PieceCache> cache_;  // locks inside; behind a pointer because encode is const
  std::string bytes_;                  // of all tokens, one after another
  std::vector<std::size_t> offsets_;   // size() + 1 places in bytes_
  std::size_t longest_ = 1;            // bytes of the longest token
  std::vector<bool> is_added_;
  std::vector<Added> added_;                 // by text, ascending
  std::array<std::size_t, 257> first_byte_;  // added_ with first byte b: [first_byte_[b], first_byte_[b + 1])
  std::optional<Token> bos_, eos_;
  std::string chat_template_;
};

}  // namespace lockstep
