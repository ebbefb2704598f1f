// UTF-8 by hand: well-formedness as in the Unicode standard, table 3-7 (no overlong forms, no surrogates, nothing above
// U+10FFFF). Broken bytes are replaced per maximal subpart, as browsers and Python's "replace" do: a truncated
// character becomes one U+FFFD, and every byte that cannot begin one becomes its own.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

struct Utf8Step {
  int length = 0;  // bytes of the character, or of the maximal broken subpart; at least 1
  enum class State { complete, broken, cut } state = State::complete;  // cut: more bytes could still complete it
};

/// Looks at the first character of `text`, which must not be empty.
Utf8Step utf8_step(std::string_view text);

bool is_valid_utf8(std::string_view text);

/// `text` with each maximal broken subpart replaced by U+FFFD; a cut character at the end counts as broken.
std::string to_valid_utf8(std::string_view text);

/// Appends the UTF-8 form of a code point, which must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace lockstep
