#include "text/utf8.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace lockstep {

Utf8Step utf8_step(std::string_view text) {
  using State = Utf8Step::State;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, State::complete};
  if (lead < 0xc2 || lead > 0xf4) return {1, State::broken};
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Only the second byte has narrower bounds: they exclude overlong forms, surrogates and what lies past U+10FFFF.
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= text.size()) return {i, State::cut};
    if (const unsigned next = byte(static_cast<std::size_t>(i)); next < low || next > high) return {i, State::broken};
    low = 0x80;
    high = 0xbf;
  }
  return {length, State::complete};
}

namespace {

/// Bytes at the front that are whole characters.
std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {  // eight ASCII bytes at a time: most text is mostly that
      std::uint64_t word;
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.state != Utf8Step::State::complete) break;
    at += static_cast<std::size_t>(step.length);
  }
  return at;
}

}  // namespace

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(static_cast<std::size_t>(utf8_step(text).length));
  }
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  LOCKSTEP_CHECK(code_point < 0x110000 && !(code_point >= 0xd800 && code_point < 0xe000));
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3f));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

}  // namespace lockstep
