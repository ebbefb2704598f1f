#include "text/dsml.h"

#include <algorithm>
#include <array>

#include "text/symbols.h"

namespace lockstep {
namespace {

// No name or attribute is as long; without a bound a lone "<invoke" would hold the rest of the text back.
constexpr std::size_t kMaxTagBytes = 4096;
constexpr std::array kMarkers = {Marker::native, Marker::without_first_bar, Marker::ascii_bars, Marker::plain};

std::string_view text_of(Marker marker) {
  switch (marker) {
    case Marker::native:
      return {&kSymbolDsml, 1};
    case Marker::without_first_bar:
      return "DSML｜";
    case Marker::ascii_bars:
      return "|DSML|";
    case Marker::plain:
      return "";
  }
  return "";
}

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

std::string tag_text(std::string_view open, Marker marker, std::string_view name) {
  std::string out(open);
  out += text_of(marker);
  out += name;
  return out;
}

Found begins_with(std::string_view text, std::string_view wanted) {
  if (text.starts_with(wanted)) return Found::yes;
  return wanted.starts_with(text) ? Found::maybe : Found::no;
}

bool is_begun_tag(std::string_view text) {
  return std::any_of(kMarkers.begin(), kMarkers.end(), [&](Marker marker) {
    return marker != Marker::plain && text.starts_with(tag_text("<", marker, ""));
  });
}

Tag parse_tag(std::string_view text, std::string_view open) {
  text = text.substr(0, kMaxTagBytes);
  Tag tag;
  const Found more = text.size() == kMaxTagBytes ? Found::no : Found::maybe;
  if (const Found found = begins_with(text, open); found != Found::yes) return {found, 0, {}, {}};
  std::size_t at = open.size();
  const auto skip_space = [&] {
    while (at < text.size() && is_space(text[at])) ++at;
  };
  if (at < text.size() && !is_space(text[at])) return tag;  // it has no name, or is another tag
  while (true) {
    skip_space();
    if (at == text.size()) return {more, 0, {}, {}};
    if (text[at] == '>') break;
    const std::size_t key_begin = at;
    while (at < text.size() && is_key_character(text[at])) ++at;
    const std::string_view key = text.substr(key_begin, at - key_begin);
    skip_space();
    if (at == text.size()) return {more, 0, {}, {}};
    if (key.empty() || text[at] != '=') return tag;
    ++at;
    skip_space();
    if (at == text.size()) return {more, 0, {}, {}};
    const char quote = text[at] == '"' || text[at] == '\'' ? text[at++] : '\0';
    const std::size_t value_begin = at;
    const auto ends_here = [&](std::size_t i) { return is_space(text[i]) || text[i] == '>'; };
    if (quote != '\0') {
      while (at + 1 < text.size() && !(text[at] == quote && ends_here(at + 1))) ++at;
      if (at + 1 >= text.size()) return {more, 0, {}, {}};
    } else {
      while (at < text.size() && !ends_here(at)) ++at;
      if (at == text.size()) return {more, 0, {}, {}};
    }
    const std::string value = spell(text.substr(value_begin, at - value_begin), Place::value);
    if (quote != '\0') ++at;
    if (key == "name") tag.name = value;
    if (key == "string" && (value == "true" || value == "false")) tag.is_string = value == "true";
  }
  tag.size = at + 1;
  tag.found = tag.name.empty() ? Found::no : Found::yes;
  return tag;
}

Opening find_opening(std::string_view text, const OpeningRules& rules, const ToolSchemas& tools) {
  using Kind = Opening::Kind;
  Opening out;
  const auto look = [&](Kind kind, Marker marker, std::string_view open, std::string_view name) {
    if (out.found == Found::yes) return;
    const std::string wanted = tag_text(open, marker, name);
    const Found found = begins_with(text, wanted);
    if (found != Found::no) out = {found, kind, marker, wanted.size()};
  };
  for (const Marker marker : kMarkers) {
    const bool is_native = marker == Marker::native;
    if (rules.quote != Quote::none) {
      if (is_native) look(Kind::block, marker, "<", "tool_calls>");
      look(Kind::quote_end, marker, "</", rules.quote == Quote::tool_calls ? "tool_calls>" : "function_calls>");
      continue;
    }
    // A variant is most often an example that is being shown.
    if (!is_native && rules.is_in_fence) continue;
    if (marker == Marker::plain && !rules.is_line_start) continue;
    look(Kind::block, marker, "<", "tool_calls>");
    if (rules.only_blocks) continue;
    look(Kind::quote_begin, marker, "<", "function_calls>");
    if (!rules.is_line_start || out.found == Found::yes) continue;
    const Tag tag = parse_tag(text, tag_text("<", marker, "invoke"));
    if (tag.found == Found::maybe) out = {Found::maybe, Kind::invoke, marker, 0};
    if (tag.found == Found::yes && tools.knows(tag.name)) out = {Found::yes, Kind::invoke, marker, tag.size};
  }
  return out;
}

void Fence::push(std::string_view text) {
  for (const char c : text) {
    if (c == '\n') {
      if (length_ >= 3 && inside_length_ == 0 && !(mark_ == '`' && has_backtick_)) {
        inside_mark_ = mark_;
        inside_length_ = length_;
      } else if (length_ >= 3 && inside_length_ > 0 && mark_ == inside_mark_ && length_ >= inside_length_ &&
                 !has_tail_) {
        inside_length_ = 0;
      }
      part_ = Part::indent;
      indent_ = length_ = 0;
      has_tail_ = has_backtick_ = false;
    } else if (part_ == Part::indent && c == ' ' && indent_ < 3) {
      ++indent_;
    } else if (part_ == Part::indent && (c == '`' || c == '~')) {
      part_ = Part::run;
      mark_ = c;
      length_ = 1;
    } else if (part_ == Part::run && c == mark_) {
      length_ = std::min(length_ + 1, 1 << 20);
    } else if (part_ == Part::indent) {
      part_ = Part::text;
    } else if (part_ != Part::text) {
      part_ = Part::tail;
      has_tail_ = has_tail_ || !is_space(c);
      has_backtick_ = has_backtick_ || c == '`';
    }
  }
}

}  // namespace lockstep
