#include "text/sampled_tokens.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "text/symbols.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/utf8_stream.h"

namespace lockstep {
namespace {

bool is_control(Token token, const Tokenizer& tokenizer) {
  return tokenizer.is_added(token) && is_symbol(symbol_of(tokenizer.bytes_of(token)).front());
}

/// How many of the first tokens are trusted text, control tokens each: all of it, or none.
std::size_t control_tokens(std::span<const Token> tokens, std::string_view text, const Tokenizer& tokenizer) {
  std::size_t count = 0;
  while (!text.empty() && count < tokens.size() && is_control(tokens[count], tokenizer)) {
    const std::string next = to_valid_utf8(tokenizer.bytes_of(tokens[count++]));
    if (!text.starts_with(next)) return 0;
    text.remove_prefix(next.size());
  }
  return text.empty() ? count : 0;
}

struct Beginning {
  std::size_t tokens = 0, bytes = 0;
};

/// The most of the first tokens that untrusted text begins with and that end where a character does.
Beginning ordinary_tokens(std::span<const Token> tokens, std::string_view text, const Tokenizer& tokenizer) {
  Beginning whole;
  Utf8Stream utf8;
  std::size_t at = 0;
  const auto follow = [&](std::string_view part) {
    if (!text.substr(at).starts_with(part)) return false;
    at += part.size();
    return true;
  };
  std::size_t i = 0;
  for (; i < tokens.size() && !is_control(tokens[i], tokenizer); ++i) {
    const std::string_view bytes = tokenizer.bytes_of(tokens[i]);
    if (!follow(tokenizer.is_added(tokens[i]) ? utf8.finish() + to_valid_utf8(bytes) : utf8.push(bytes))) return whole;
    if (utf8.held().empty()) whole = {i + 1, at};
  }
  if (follow(utf8.finish())) whole = {i, at};
  return whole;
}

}  // namespace

void keep_tokens(SampledTurn& turn, std::span<const Token> tokens, const Tokenizer& tokenizer) {
  Prompt out;
  out.controls = std::move(turn.whole.controls);
  for (const Span& span : turn.whole.spans) {
    Beginning known;
    if (span.trust == Trust::trusted) {
      known = {control_tokens(tokens, span.text, tokenizer), 0};
      out.append(span.text, Trust::trusted);
      if (known.tokens == 0) tokens = {};
    } else {
      known = ordinary_tokens(tokens, span.text, tokenizer);
      const std::string_view text = span.text;
      const auto first = tokens.first(known.tokens);
      out.append({std::string(text.substr(0, known.bytes)), Trust::untrusted, {first.begin(), first.end()}});
      out.append(text.substr(known.bytes), Trust::untrusted);
      if (known.bytes < text.size()) tokens = {};
    }
    tokens = tokens.subspan(std::min(known.tokens, tokens.size()));
  }
  turn.whole = std::move(out);
}

bool is_text_of(std::span<const Token> tokens, std::string_view text, const Tokenizer& tokenizer) {
  for (const Token token : tokens)
    if (token < 0 || static_cast<std::size_t>(token) >= tokenizer.size() || is_control(token, tokenizer)) return false;
  const Beginning whole = ordinary_tokens(tokens, text, tokenizer);
  return whole.tokens == tokens.size() && whole.bytes == text.size();
}

}  // namespace lockstep
