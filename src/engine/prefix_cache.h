// States of sequences that have been computed, to begin new ones from.
//
// A sequence's state is a pure function of (weights, mode, tokens), so an entry is a memoised value: any entry whose
// tokens begin a prompt may stand for having run them, and whichever is taken changes no byte. Entries share their
// pages; the budget counts every piece of memory once. It knows no model and no scheduler. Not for use by several
// threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/cache.h"
#include "text/vocabulary.h"

namespace lockstep {

/// Why a prompt's tokens had to be run although they may have been run before.
enum class Miss {
  none,          // all that can be reused was
  nothing_kept,  // no entry shares its first token, or there is none
  fingerprint,   // the same, and what the directory on disk holds is of another model, mode or version
  differs,       // the entry that shares most goes on otherwise from there
  no_snapshot,   // an entry shares more, but its state at that place is gone; the next time there will be one
  evicted,       // an entry that shared more had to make room
  disabled,      // the request asked for a cold run, or nothing is ever kept
};
std::string_view name_of(Miss miss);

/// How many tokens two sequences begin with alike.
std::size_t common_length(std::span<const Token> a, std::span<const Token> b);

class PrefixCache {
 public:
  using Tokens = std::shared_ptr<const std::vector<Token>>;

  struct Found {
    std::optional<SequenceCache> cache;  // a copy of `reused` tokens; none if reused is 0
    std::size_t reused = 0;
    std::vector<float> logits;  // after the last token of the prompt, if all of it was reused
    /// Tokens that the prompt shares with some entry, kept or evicted. Where it is more than `reused`, a snapshot
    /// taken there serves the next prompt that branches off at the same place.
    std::size_t common = 0;
    bool goes_on = false;  // such an entry has more tokens, so they differ from the prompt's
    Miss miss = Miss::nothing_kept;
  };

  struct Stats {
    std::size_t entries = 0;
    std::size_t bytes = 0;   // counted when something is put or dropped: status is asked for after every step
    std::size_t pieces = 0;  // of memory that they are in; those that entries share are one
    std::uint64_t lookups = 0, hits = 0, evictions = 0;
    std::uint64_t tokens_reused = 0, tokens_asked = 0;
  };

  /// Keeps at most `budget_bytes` of states; 0 keeps none.
  explicit PrefixCache(std::size_t budget_bytes) : budget_(budget_bytes) {}

  /// The longest state that begins `prompt`. All tokens but the last are reused at most, unless the logits of the whole
  /// are kept. Throws Error::no_memory.
  Found find(std::span<const Token> prompt);

  /// How many tokens of `prompt` find() would reuse, and nothing else.
  std::size_t reusable(std::span<const Token> prompt) const;

  struct State {
    const SequenceCache* cache = nullptr;  // none: it is not kept
    std::span<const float> logits;
  };
  /// What is kept of exactly these tokens. Valid until something is put or dropped.
  State state(std::span<const Token> tokens) const;

  /// Keeps the state after the first `length` of `tokens`, and the logits there if they are given. What is kept already
  /// is only freshened. One that the budget has no room for is not kept and moves no other. Then drops entries of the
  /// least value until the budget holds, but none that begins one of the `waiting` prompts as long as another can go.
  void put(Tokens tokens, std::size_t length, SequenceCache cache, std::vector<float> logits,
           std::span<const std::span<const Token>> waiting);

  /// Drops entries of the least value until `bytes` or less are held.
  void shrink(std::size_t bytes, std::span<const std::span<const Token>> waiting);

  Stats stats() const;

 private:
  struct Entry {
    Tokens tokens;
    std::size_t length = 0;
    std::optional<SequenceCache> cache;  // none: evicted, remembered only to say so
    std::vector<float> logits;
    std::uint64_t used = 0;  // when, in calls
    std::span<const Token> view() const { return {tokens->data(), length}; }
  };
  static constexpr std::size_t kRemembered = 64;    // evicted entries
  static constexpr std::size_t kWorthKeeping = 16;  // tokens; that fewer had no state of their own explains nothing

  /// Tokens of `prompt` that the entry can stand for.
  static std::size_t usable(const Entry& entry, std::size_t common, std::size_t prompt);
  struct Best {
    Entry* entry = nullptr;  // to begin from
    std::size_t reused = 0, common = 0;
    bool was_evicted = false;  // what shares most is not kept any more
    bool goes_on = false;      // what shares most has more tokens, so they differ from the prompt's
  };
  Best best(std::span<const Token> prompt);
  std::size_t count_held();
  std::size_t victim(std::span<const std::span<const Token>> waiting) const;
  void forget_oldest_evicted();

  std::size_t budget_;
  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
  Stats stats_;
};

}  // namespace lockstep
