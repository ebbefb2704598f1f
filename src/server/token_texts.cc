#include "server/token_texts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/utf8.h"

namespace lockstep {

void TokenTexts::add(AnswerToken token, std::string_view text, TokenText& out) {
  if (!text.empty() && !text_.empty()) {
    // Bytes that are no whole characters end in the first ones of a character, which this token may complete.
    const bool is_joined = !is_valid_utf8(bytes_) && is_valid_utf8(bytes_ + token.bytes);
    if (!is_joined) release(out, is_valid_utf8(bytes_));
  }
  bytes_ += token.bytes;
  tokens_.push_back(std::move(token));
  add(text, out);
}

void TokenTexts::add(std::string_view text, TokenText& out) {
  text_ += text;
  if (text_.size() >= bytes_.size() && is_valid_utf8(bytes_)) release(out, false);
}

void TokenTexts::end(TokenText& out) { release(out, true); }

void TokenTexts::release(TokenText& out, bool is_cut) {
  if (is_cut && text_.size() < bytes_.size()) {
    const std::size_t begin = bytes_.find(text_);
    if (begin != std::string::npos) {
      // Each token keeps those of its bytes that are in the text.
      std::size_t at = 0;
      for (AnswerToken& token : tokens_) {
        const std::size_t from = std::max(at, begin), to = std::min(at + token.bytes.size(), begin + text_.size());
        at += token.bytes.size();
        token.bytes = from < to ? token.bytes.substr(token.bytes.size() - (at - from), to - from) : std::string();
      }
      std::erase_if(tokens_, [](const AnswerToken& token) { return token.bytes.empty(); });
    }
  }
  out.text += text_;
  std::move(tokens_.begin(), tokens_.end(), std::back_inserter(out.tokens));
  tokens_.clear();
  bytes_.clear();
  text_.clear();
}

}  // namespace lockstep
