#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

bool stands_for_itself(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

char32_t decode_one(std::string_view text, int length) {
  const auto byte = [&](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[static_cast<std::size_t>(i)]));
  };
  if (length == 1) return byte(0);
  char32_t value = byte(0) & (0xffu >> (length + 1));
  for (int i = 1; i < length; ++i) value = value << 6 | (byte(i) & 0x3f);
  return value;
}

/// Finds tokens by text while the merges are read: some 400,000 look-ups, so a flat table that keeps each hash.
class TextIndex {
 public:
  explicit TextIndex(const std::vector<std::string>& texts)
      : texts_(texts), slots_(std::bit_ceil(2 * texts.size() + 2)) {}

  /// The token with this text, or -1.
  Token find(std::string_view text) const { return slots_[place_of(text, hash_of(text))].token; }

  /// Adds a token. Returns another one with the same text if there is one, else -1.
  Token insert(Token token) {
    const std::string_view text = texts_[static_cast<std::size_t>(token)];
    const std::size_t hash = hash_of(text);
    Slot& slot = slots_[place_of(text, hash)];
    if (slot.token >= 0) return slot.token;
    slot = {hash, token};
    return -1;
  }

 private:
  struct Slot {
    std::size_t hash = 0;
    Token token = -1;
  };
  static std::size_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

  std::size_t place_of(std::string_view text, std::size_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].token >= 0 &&
           (slots_[at].hash != hash || texts_[static_cast<std::size_t>(slots_[at].token)] != text))
      at = (at + 1) & mask;
    return at;
  }

  const std::vector<std::string>& texts_;
  std::vector<Slot> slots_;
};

std::uint64_t pair_of(Token left, Token right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

struct Symbol {
  Token token;  // -1: merged into its left neighbour
  std::int32_t before, after;
};

constexpr std::size_t kShortPiece = 64;  // bytes; up to here looking at every pair again beats any queue

}  // namespace

int byte_of_mapped(char32_t code_point) {
  if (code_point < 256) return stands_for_itself(static_cast<int>(code_point)) ? static_cast<int>(code_point) : -1;
  // U+0100 + n is the n-th byte that does not stand for itself: 0..32, 127..160, 173.
  const auto n = static_cast<int>(code_point - 256);
  if (code_point >= 256 + 68) return -1;
  return n <= 32 ? n : n <= 66 ? n - 33 + 127 : 173;
}

std::string unmap_bytes(std::string_view mapped, Token token) {
  std::string bytes;
  for (std::string_view rest = mapped; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const int byte = step.state == Utf8Step::State::complete ? byte_of_mapped(decode_one(rest, step.length)) : -1;
    if (byte < 0)
      throw Error(Error::Kind::bad_file, "token " + std::to_string(token) + ": '" + to_valid_utf8(mapped) +
                                             "' is marked normal but is not byte-mapped; expected another token_type");
    bytes += static_cast<char>(static_cast<unsigned char>(byte));
    rest.remove_prefix(static_cast<std::size_t>(step.length));
  }
  return bytes;
}

Bpe::Bpe(const Vocabulary& vocabulary) {
  TextIndex index(vocabulary.tokens);
  byte_tokens_.fill(-1);
  for (Token token = 0; token < static_cast<Token>(vocabulary.tokens.size()); ++token) {
    if (vocabulary.type_of(token) != TokenType::normal) continue;
    const std::string& text = vocabulary.tokens[static_cast<std::size_t>(token)];
    if (const Token other = index.insert(token); other >= 0)
      throw Error(Error::Kind::bad_file, "tokenizer.ggml.tokens: tokens " + std::to_string(other) + " and " +
                                             std::to_string(token) + " are both '" + text +
                                             "', expected different texts");
    if (text.empty() || text.size() > 2) continue;
    if (const Utf8Step step = utf8_step(text); static_cast<std::size_t>(step.length) == text.size()) {
      const int byte = byte_of_mapped(decode_one(text, step.length));
      if (byte >= 0) byte_tokens_[static_cast<std::size_t>(byte)] = token;
    }
  }
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte)
    if (byte_tokens_[byte] < 0)
      throw Error(Error::Kind::bad_file, "tokenizer.ggml.tokens: no token for byte " + std::to_string(byte) +
                                             ", expected one for each of the 256 bytes");

  merges_.resize(std::bit_ceil(std::max<std::size_t>(2 * vocabulary.merges.size(), 2)));
  std::string joined;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const std::size_t space = merge.find(' ');
    const auto find_part = [&](std::string_view text) {
      const Token token = space == std::string_view::npos ? -1 : index.find(text);
      if (token < 0)
        throw Error(Error::Kind::bad_file, "tokenizer.ggml.merges: merge " + std::to_string(rank) + " '" +
                                               std::string(merge) + "': '" + std::string(text) +
                                               "' is not a token; expected 'left right', both and their join tokens");
      return token;
    };
    const std::string_view left_text = merge.substr(0, space);
    const std::string_view right_text = space == std::string_view::npos ? std::string_view() : merge.substr(space + 1);
    const Token left = find_part(left_text);
    const Token right = find_part(right_text);
    joined.assign(left_text).append(right_text);
    insert({pair_of(left, right), static_cast<std::int32_t>(rank), find_part(joined)});
  }
}

void Bpe::encode(std::string_view piece, std::vector<Token>& out) const {
  if (piece.size() <= kShortPiece) {
    encode_short(piece, out);
  } else {
    encode_long(piece, out);
  }
}

/// The definition, nearly literally: the best pair is looked for again after each merge. Allocates nothing.
void Bpe::encode_short(std::string_view piece, std::vector<Token>& out) const {
  std::array<Token, kShortPiece> tokens;
  std::array<const Merge*, kShortPiece> merges;  // of the pair that begins here
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) tokens[i] = byte_tokens_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i)
      if (merges[i] != nullptr && (best == count || merges[i]->rank < merges[best]->rank)) best = i;
    if (best == count) break;
    tokens[best] = merges[best]->joined;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i] = merges[i + 1];  // the last one is never looked at
    }
    if (best > 0) merges[best - 1] = find(tokens[best - 1], tokens[best]);
    if (best + 1 < count) merges[best] = find(tokens[best], tokens[best + 1]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

/// The same for pieces of any length: a linked list, and for each rank the places where it may apply.
///
/// A place is stale if its symbols have changed since it was noted. All places of a rank are known before the first is
/// taken: a merge only makes pairs that hold its own result or something longer, never the pair itself. So each list is
/// sorted once, although a lower rank may turn up and go first half-way through. (A heap of single places was tried:
/// several times slower on 2 MB of spaces.)
void Bpe::encode_long(std::string_view piece, std::vector<Token>& out) const {
  LOCKSTEP_CHECK(piece.size() < std::size_t{1} << 31);
  const auto count = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbol(i) = {byte_tokens_[byte], i - 1, i + 1 < count ? i + 1 : -1};
  }

  struct Places {
    Token joined;
    std::vector<std::int32_t> at;  // of the left symbol
    std::size_t taken = 0;
    std::uint64_t pair;
  };
  std::map<std::int32_t, Places> by_rank;
  const auto note = [&](std::int32_t at) {
    const std::int32_t after = symbol(at).after;
    const Merge* merge = after < 0 ? nullptr : find(symbol(at).token, symbol(after).token);
    if (merge == nullptr) return;
    Places& places = by_rank.try_emplace(merge->rank, Places{merge->joined, {}, 0, merge->pair}).first->second;
    LOCKSTEP_CHECK(places.taken == 0);
    places.at.push_back(at);
  };
  for (std::int32_t i = 0; i < count; ++i) note(i);

  while (!by_rank.empty()) {
    const auto first = by_rank.begin();
    Places& places = first->second;
    if (places.taken == 0 && !std::is_sorted(places.at.begin(), places.at.end()))
      std::sort(places.at.begin(), places.at.end());
    while (places.taken < places.at.size() && by_rank.begin() == first) {
      const std::int32_t at = places.at[places.taken++];
      Symbol& left = symbol(at);
      if (left.token < 0 || left.after < 0 || pair_of(left.token, symbol(left.after).token) != places.pair) continue;
      Symbol& right = symbol(left.after);
      left.token = places.joined;
      left.after = right.after;
      right.token = -1;
      if (left.after >= 0) symbol(left.after).before = at;
      if (left.before >= 0) note(left.before);
      note(at);
    }
    if (places.taken == places.at.size()) by_rank.erase(first);
  }
  for (std::int32_t i = 0; i >= 0; i = symbol(i).after) out.push_back(symbol(i).token);
}

namespace {

// The finalizer of a common 64-bit mixer: neighbouring ids spread over the whole table.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

}  // namespace

const Bpe::Merge* Bpe::find(Token left, Token right) const {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t at = mix(pair) & mask;; at = (at + 1) & mask) {
    if (merges_[at].pair == pair) return &merges_[at];
    if (merges_[at].pair == kNoPair) return nullptr;
  }
}

void Bpe::insert(const Merge& merge) {
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t at = mix(merge.pair) & mask;; at = (at + 1) & mask) {
    if (merges_[at].pair == merge.pair) return;  // listed twice: the first, lower rank counts
    if (merges_[at].pair == kNoPair) {
      merges_[at] = merge;
      return;
    }
  }
}

}  // namespace lockstep
