#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/sampled_tokens.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

const Vocabulary& checked(const Vocabulary& vocabulary) {
  check_vocabulary(vocabulary);
  return vocabulary;
}

constexpr std::size_t kBlockBytes = 64 << 10;

/// Whether pieces (pre_tokenizer.h) always end between two characters: behind a word, where a number begins or ends,
/// and before a word at the beginning of a line. What follows such a place has no influence on what is before it.
bool is_between_pieces(char before, char after) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (is_letter(before) && after == ' ') return true;
  if (before == '\n' && is_letter(after)) return true;
  return is_ascii(before) && is_ascii(after) && is_digit(before) != is_digit(after);
}

/// The end of a block that can be cut into pieces by itself: of about kBlockBytes, or of all if there is no such place.
std::size_t block_end(std::string_view text) {
  for (std::size_t at = kBlockBytes; at < text.size(); ++at)
    if (is_between_pieces(text[at - 1], text[at])) return at;
  return text.size();
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
    longest_ = std::max(longest_, bytes_.size() - offsets_.back());
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
  return encode(spans, std::numeric_limits<std::size_t>::max()).tokens;
}

Tokenizer::Bounded Tokenizer::encode(const Prompt& prompt, std::size_t most) const {
  for (const std::string& control : prompt.controls) require_added(control);
  return encode(std::span<const Span>(prompt.spans), most);
}

Tokenizer::Bounded Tokenizer::encode(std::span<const Span> spans, std::size_t most) const {
  // Each span is made valid on its own: a message that ends in half a character cannot eat the template's first byte.
  std::string text;
  struct Range {
    std::size_t begin, end;
    const std::vector<Token>* tokens;  // that it is made of; nothing: it is trusted text
  };
  std::vector<Range> ranges;                          // a gap between any two of trusted text
  std::size_t sampled_tokens = 0, sampled_bytes = 0;  // of all that have tokens and are still to come
  for (const Span& span : spans) {
    const std::size_t begin = text.size();
    if (is_valid_utf8(span.text)) {
      text += span.text;
    } else {
      text += to_valid_utf8(span.text);
    }
    if (text.size() == begin) continue;
    if (span.trust == Trust::untrusted) {
      if (span.tokens.empty() || !is_text_of(span.tokens, span.text, *this)) continue;
      ranges.push_back({begin, text.size(), &span.tokens});
      sampled_tokens += span.tokens.size();
      sampled_bytes += text.size() - begin;
    } else if (!ranges.empty() && ranges.back().end == begin && ranges.back().tokens == nullptr) {
      ranges.back().end = text.size();
    } else {
      ranges.push_back({begin, text.size(), nullptr});
    }
  }

  const std::string_view all = text;
  const auto fewest_of = [&](std::size_t bytes) { return bytes / longest_ + (bytes % longest_ != 0); };
  const auto fewest_from = [&](std::size_t at) { return sampled_tokens + fewest_of(all.size() - at - sampled_bytes); };
  if (fewest_from(0) > most) return {.is_whole = false, .at_least = fewest_from(0)};
  std::vector<Token> out;
  out.reserve(std::min(all.size() / 3, most) + 8);
  std::vector<std::string_view> pieces;
  std::size_t done = 0;
  const auto encode_to = [&](std::size_t end) {
    const std::string_view left = encode_ordinary(all.substr(done, end - done), pieces, most, out);
    done = end - left.size();
    return left.empty() && out.size() <= most;
  };
  const auto given_up = [&] { return Bounded{.is_whole = false, .at_least = out.size() + fewest_from(done)}; };
  for (const Range& range : ranges) {
    if (range.tokens != nullptr) {
      if (!encode_to(range.begin)) return given_up();
      out.insert(out.end(), range.tokens->begin(), range.tokens->end());
      done = range.end;
      sampled_tokens -= range.tokens->size();
      sampled_bytes -= range.end - range.begin;
      continue;
    }
    for (std::size_t at = range.begin; at < range.end;) {
      const auto first = static_cast<unsigned char>(all[at]);
      const bool may_begin = first_byte_[first] != first_byte_[first + std::size_t{1}];
      const Added* added = may_begin ? longest_added(all.substr(at, range.end - at)) : nullptr;
      if (added == nullptr) {
        ++at;
        continue;
      }
      if (!encode_to(at)) return given_up();
      out.push_back(added->token);
      at += added->text.size();
      done = at;
    }
  }
  if (!encode_to(all.size())) return given_up();
  const std::size_t count = out.size();
  return {.tokens = std::move(out), .at_least = count};
}

/// Appends the tokens, block by block until there are more than `most`. Returns what was not read.
std::string_view Tokenizer::encode_ordinary(std::string_view text, std::vector<std::string_view>& pieces,
                                            std::size_t most, std::vector<Token>& out) const {
  while (!text.empty() && out.size() <= most) {
    const std::size_t end = block_end(text);
    pieces.clear();
    pre_tokenizer_.split(text.substr(0, end), pieces);
    for (const std::string_view piece : pieces) {
      if (cache_->find(piece, out)) continue;
      const std::size_t before = out.size();
      bpe_.encode(piece, out);
      cache_->insert(piece, out.data() + before, out.size() - before);
    }
    text.remove_prefix(end);
  }
  return text;
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
