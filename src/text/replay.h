// Exact replay: a later prompt repeats an assistant turn as it was sampled, not as the renderer would write it.
//
// What the model wrote may differ from the canonical form in spacing, the order of keys or the text of a number, and
// clients drop reasoning; and the same text may be other tokens than those that were sampled. Rendered anew, the turn
// would end the part of the prompt that a prefix cache knows. So the turn is kept, its text and its tokens, under the
// ids of its calls, and under a key that a client sends back unread (a thinking signature).
//
// It is an optimisation: with an empty map every prompt is the canonical one. Never keyed by content, which another
// conversation may share. May be used from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat.h"
#include "text/parser_event.h"
#include "text/thought.h"

namespace lockstep {

class ReplayMap {
 public:
  /// Holds the turns used last, as many as fit: the size of their texts, tokens and keys, and a fixed amount for each.
  explicit ReplayMap(std::size_t budget_bytes);

  /// Keeps a turn under its keys: the ids of its calls, in their order, and further opaque keys, at least one in all.
  /// Keys must be unguessable and never reused; one that is known already now names this turn. A turn larger than the
  /// budget is not kept.
  void remember(const ParsedOutput& output, SampledTurn turn, std::span<const std::string> call_ids,
                std::span<const std::string> other_keys = {});

  /// Sets message.sampled, and message.reasoning if the client dropped it, when the message is a turn that is kept: it
  /// carries a key of it, its calls have the same ids, names and JSON-equal arguments, and its content is the same but
  /// for whitespace around it, or was dropped beside calls. Reasoning that the client changed is kept as the client's.
  /// Returns whether it did. `key` is what the client sent back beside the message, if anything.
  bool restore(Message& message, std::string_view key = {});

  /// All turns as JSON Lines, the one used last at the end; and back. load() also reads lines of version 1, which have
  /// no tokens. It adds to what is there, and throws Error::bad_file, naming the line, before it has changed anything.
  /// Neither keeps the map locked for long.
  std::string save() const;
  void load(std::string_view saved);

  std::size_t bytes() const;
  std::size_t size() const;
  std::size_t budget() const { return budget_; }
  /// Grows with every remember(): whether there is something new to save.
  std::uint64_t remembered() const;

 private:
  struct Entry {
    std::vector<std::string> call_ids, other_keys;
    ParsedOutput output;
    SampledTurn turn;
    std::size_t bytes = 0;
  };
  using Entries = std::list<std::shared_ptr<const Entry>>;  // shared with save(), which writes them unlocked

  static std::size_t size_of(const Entry& entry);
  void insert(std::shared_ptr<const Entry> entry);
  void erase(Entries::iterator entry);

  const std::size_t budget_;
  mutable std::mutex mutex_;
  Entries entries_;  // the one used last at the end
  std::unordered_map<std::string, Entries::iterator> by_key_;
  std::size_t bytes_ = 0;
  std::uint64_t remembered_ = 0;
};

/// Equal as JSON values: objects whatever the order of their keys, numbers by value.
bool is_json_equal(std::string_view a, std::string_view b);

}  // namespace lockstep
