// The pre-tokenizer: cuts a text into the pieces that byte-pair encoding then works on one by one.
//
// Three regular expressions in order, each applied to every piece that the one before left, matches and gaps alike. A
// piece is a subject of its own, so that a look-ahead never sees past its end: that is why "  5" keeps both spaces
// together and "  x" does not.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

class PreTokenizer {
 public:
  PreTokenizer();
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  /// Appends the pieces of `text` in order; they are views into it, none is empty, and together they are all of it.
  /// `text` must be valid UTF-8. Linear in the length. May be called from several threads at once.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Regex;
  struct Search;
  void isolate(std::size_t level, std::string_view text, Search& search, std::vector<std::string_view>& pieces) const;

  std::array<std::unique_ptr<Regex>, 3> regexes_;
};

}  // namespace lockstep
