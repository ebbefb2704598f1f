#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

const Vocabulary& checked(const Vocabulary& vocabulary) {
  check_vocabulary(vocabulary);
  return vocabulary;
}

}  // namespace

Tokenizer::Tokenizer(const Vocabulary& vocabulary, std::size_t cached_pieces)
    : bpe_(checked(vocabulary)),
      cache_(std::make_unique<PieceCache>(cached_pieces)),
      bos_(vocabulary.bos),
      eos_(vocabulary.eos),
      chat_template_(vocabulary.chat_template) {
  const std::size_t count = vocabulary.tokens.size();
  offsets_.reserve(count + 1);
  offsets_.push_back(0);
  is_added_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& text = vocabulary.tokens[i];
    const auto token = static_cast<Token>(i);
    is_added_[i] = vocabulary.is_added(token);
    bytes_ += vocabulary.type_of(token) == TokenType::normal ? unmap_bytes(text, token) : text;
    offsets_.push_back(bytes_.size());
    if (is_added_[i] && text.empty())
      throw Error(Error::Kind::bad_file, "token " + std::to_string(i) + ": an added token has no text");
    if (is_added_[i]) added_.push_back({text, token});
  }
  std::sort(added_.begin(), added_.end(),
            [](const Added& a, const Added& b) { return a.text != b.text ? a.text < b.text : a.token < b.token; });
  const auto is_same = [](const Added& a, const Added& b) { return a.text == b.text; };
  added_.erase(std::unique(added_.begin(), added_.end(), is_same), added_.end());
  std::size_t at = 0;
  for (std::size_t byte = 0; byte < first_byte_.size(); ++byte) {
    while (at < added_.size() && static_cast<unsigned char>(added_[at].text[0]) < byte) ++at;
    first_byte_[byte] = at;
  }
}

/// The longest added token that `text` begins with. Narrows the sorted list byte by byte.
const Tokenizer::Added* Tokenizer::longest_added(std::string_view text) const {
  const auto first = static_cast<unsigned char>(text[0]);
  std::size_t begin = first_byte_[first];
  std::size_t end = first_byte_[first + std::size_t{1}];
  const Added* longest = nullptr;
  for (std::size_t depth = 1; begin < end; ++depth) {
    if (added_[begin].text.size() == depth) longest = &added_[begin++];  // a text stands before its continuations
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto byte_at = [depth](const Added& added) { return static_cast<unsigned char>(added.text[depth]); };
    const auto from = added_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = added_.begin() + static_cast<std::ptrdiff_t>(end);
    const auto low = std::partition_point(from, to, [&](const Added& added) { return byte_at(added) < byte; });
    const auto high = std::partition_point(low, to, [&](const Added& added) { return byte_at(added) == byte; });
    begin = static_cast<std::size_t>(low - added_.begin());
    end = static_cast<std::size_t>(high - added_.begin());
  }
  return longest;
}

std::vector<Token> Tokenizer::encode(std::string_view text, Trust trust) const {
  const Span span{std::string(text), trust};
  return encode(std::span<const Span>(&span, 1));
}

std::vector<Token> Tokenizer::encode(const Prompt& prompt) const {
  for (const std::string& control : prompt.controls) require_added(control);
  return encode(std::span<const Span>(prompt.spans));
}

std::vector<Token> Tokenizer::encode(std::span<const Span> spans) const {
  // Each span is made valid on its own: a message that ends in half a character cannot eat the template's first byte.
  std::string text;
  struct Range {
    std::size_t begin, end;
  };
  std::vector<Range> trusted;  // with a gap between any two
  for (const Span& span : spans) {
    const std::size_t begin = text.size();
    if (is_valid_utf8(span.text)) {
      text += span.text;
    } else {
      text += to_valid_utf8(span.text);
    }
    if (span.trust == Trust::untrusted || text.size() == begin) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }

  const std::string_view all = text;
  std::vector<Token> out;
  out.reserve(all.size() / 3 + 8);
  std::vector<std::string_view> pieces;
  std::size_t done = 0;
  for (const Range range : trusted) {
    for (std::size_t at = range.begin; at < range.end;) {
      const auto first = static_cast<unsigned char>(all[at]);
      const bool may_begin = first_byte_[first] != first_byte_[first + std::size_t{1}];
      const Added* added = may_begin ? longest_added(all.substr(at, range.end - at)) : nullptr;
      if (added == nullptr) {
        ++at;
        continue;
      }
      encode_ordinary(all.substr(done, at - done), pieces, out);
      out.push_back(added->token);
      at += added->text.size();
      done = at;
    }
  }
  encode_ordinary(all.substr(done), pieces, out);
  return out;
}

void Tokenizer::encode_ordinary(std::string_view text, std::vector<std::string_view>& pieces,
                                std::vector<Token>& out) const {
  if (text.empty()) return;
  pieces.clear();
  pre_tokenizer_.split(text, pieces);
  for (const std::string_view piece : pieces) {
    if (cache_->find(piece, out)) continue;
    const std::size_t before = out.size();
    bpe_.encode(piece, out);
    cache_->insert(piece, out.data() + before, out.size() - before);
  }
}

std::string Tokenizer::decode(std::span<const Token> tokens) const {
  std::string bytes;
  for (const Token token : tokens) bytes += bytes_of(token);
  return bytes;
}

std::string_view Tokenizer::bytes_of(Token token) const {
  if (token < 0 || static_cast<std::size_t>(token) >= size())
    throw Error(Error::Kind::bad_argument, "token " + std::to_string(token) +
                                               ": not in the vocabulary, expected 0 to " + std::to_string(size() - 1));
  const auto i = static_cast<std::size_t>(token);
  return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

bool Tokenizer::is_added(Token token) const {
  return token >= 0 && static_cast<std::size_t>(token) < size() && is_added_[static_cast<std::size_t>(token)];
}

std::optional<Token> Tokenizer::find_added(std::string_view text) const {
  const auto found = std::lower_bound(added_.begin(), added_.end(), text,
                                      [](const Added& added, std::string_view wanted) { return added.text < wanted; });
  if (found == added_.end() || found->text != text) return std::nullopt;
  return found->token;
}

Token Tokenizer::require_added(std::string_view text) const {
  if (const auto token = find_added(text)) return *token;
  throw Error(Error::Kind::unsupported,
              "vocabulary: no control token '" + std::string(text) + "', expected one in a DeepSeek V4 chat model");
}

}  // namespace lockstep
