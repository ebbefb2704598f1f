// Whitespace of ASCII texts: of markup, settings and lists.
#pragma once

#include <string_view>

namespace lockstep {

/// What some editors put before a text in UTF-8.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Without whitespace at both ends.
inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace lockstep
