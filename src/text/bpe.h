// Byte-pair encoding: one piece of text to tokens, and tokens back to bytes.
//
// The lowest-ranked adjacent pair is merged first, the leftmost of equal ones, until no pair is in the merge list.
// There is no short cut through the vocabulary: a piece that is a token by its text becomes it only if merges lead
// there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep {

/// The byte that a code point of a byte-mapped token stands for, or -1: 33..126, 161..172 and 174..255 stand for
/// themselves, the other 68 bytes are U+0100.. in ascending order.
int byte_of_mapped(char32_t code_point);

/// The bytes of a normal token's byte-mapped text. Throws Error::bad_file, naming the token, if a character is not in
/// the map.
std::string unmap_bytes(std::string_view mapped, Token token);

class Bpe {
 public:
  /// Throws Error::bad_file if one of the 256 bytes has no token, two normal tokens have the same text, or a merge's
  /// left, right or joined form is not a token.
  explicit Bpe(const Vocabulary& vocabulary);

  /// Appends the tokens of a piece of any bytes. Takes O(n log n) at most. Cannot fail.
  void encode(std::string_view piece, std::vector<Token>& out) const;

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;  // left << 32 | right, see pair_of
    std::int32_t rank = 0;
    Token joined = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  void encode_short(std::string_view piece, std::vector<Token>& out) const;
  void encode_long(std::string_view piece, std::vector<Token>& out) const;
  const Merge* find(Token left, Token right) const;
  void insert(const Merge& merge);

  std::array<Token, 256> byte_tokens_;
  std::vector<Merge> merges_;  // an open-addressing table, its size a power of two, at most half full
};

}  // namespace lockstep
