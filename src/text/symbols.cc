#include "text/symbols.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "text/chat.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace lockstep {
namespace {

struct Control {
  std::string_view text;
  char symbol;
};
constexpr std::array<Control, 7> kControls = {{{kDsml, kSymbolDsml},
                                               {kThinkBegin, kSymbolThinkBegin},
                                               {kThinkEnd, kSymbolThinkEnd},
                                               {kBosText, kSymbolTurnEnd},
                                               {kEosText, kSymbolTurnEnd},
                                               {kUserText, kSymbolTurnEnd},
                                               {kAssistantText, kSymbolTurnEnd}}};

}  // namespace

std::string symbol_of(std::string_view token) {
  for (const Control& control : kControls)
    if (token == control.text) return std::string(1, control.symbol);
  const std::string text = to_valid_utf8(token);
  if (!text.starts_with("<｜") && !text.starts_with("<|")) return text;
  return std::string(1, kSymbolOtherBegin) + text + kSymbolOtherEnd;
}

std::string spell(std::string_view symbols, Place place) {
  std::string out;
  out.reserve(symbols.size());
  bool is_left_out = false;
  for (const char c : symbols) {
    switch (c) {
      case kSymbolDsml:
        out += kDsml;
        break;
      case kSymbolThinkBegin:
        if (place != Place::content) out += kThinkBegin;
        break;
      case kSymbolThinkEnd:
        if (place != Place::content) out += kThinkEnd;
        break;
      case kSymbolOtherBegin:
        is_left_out = place != Place::value;
        break;
      case kSymbolOtherEnd:
        is_left_out = false;
        break;
      default:
        if (!is_left_out) out += c;
    }
  }
  return out;
}

Prompt to_prompt(std::string_view symbols) {
  Prompt out;
  while (!symbols.empty()) {
    const auto next =
        static_cast<std::size_t>(std::find_if(symbols.begin(), symbols.end(), is_symbol) - symbols.begin());
    out.append(symbols.substr(0, next), Trust::untrusted);
    symbols.remove_prefix(next);
    if (symbols.empty()) break;
    std::size_t size = 1;
    if (symbols[0] == kSymbolOtherBegin) {
      size = std::min(symbols.find(kSymbolOtherEnd), symbols.size() - 1) + 1;
      out.append(symbols.substr(1, size - 2), Trust::trusted);
    } else {
      out.append(spell(symbols.substr(0, 1), Place::value), Trust::trusted);
    }
    symbols.remove_prefix(size);
  }
  return out;
}

std::string SpelledControls::push(std::string_view text) {
  held_ += text;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    // Every control token begins with '<' or with the first byte of U+FF5C.
    const std::size_t next = std::min(rest.find_first_of("<\xef"), rest.size());
    out += rest.substr(0, next);
    rest.remove_prefix(next);
    if (rest.empty()) break;
    bool may_follow = false;
    const Control* found = nullptr;
    for (const Control& control : kControls) {
      if (rest.starts_with(control.text)) found = &control;
      may_follow = may_follow || control.text.starts_with(rest);
    }
    if (found != nullptr) {
      out += found->symbol;
      rest.remove_prefix(found->text.size());
    } else if (may_follow) {
      break;
    } else {
      const auto size = static_cast<std::size_t>(utf8_step(rest).length);
      out += rest.substr(0, size);
      rest.remove_prefix(size);
    }
  }
  held_ = std::string(rest);
  return out;
}

std::string SpelledControls::finish() { return std::exchange(held_, {}); }

std::string ContentGuard::push(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (held_.empty()) {
      const std::size_t next = std::min(text.find('<'), text.size());
      out += text.substr(0, next);
      text.remove_prefix(next);
      if (text.empty()) break;
    }
    held_ += text[0];
    text.remove_prefix(1);
    std::size_t keep = 0;
    for (const Control& control : kControls) {
      if (control.symbol == kSymbolDsml) continue;
      if (held_.ends_with(control.text)) held_.erase(held_.size() - control.text.size());
    }
    // The longest suffix that may still become a marker; what was taken out may have left one behind.
    for (const Control& control : kControls) {
      if (control.symbol == kSymbolDsml) continue;
      for (std::size_t n = std::min(control.text.size() - 1, held_.size()); n > keep; --n) {
        if (!held_.ends_with(control.text.substr(0, n))) continue;
        keep = n;
        break;
      }
    }
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return out;
}

std::string ContentGuard::finish() { return std::exchange(held_, {}); }

}  // namespace lockstep
