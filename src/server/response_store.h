// Responses that a later request may continue, or refer to the items of: the last ones, in memory.
//
// A response keeps only what its own request added; what came before is its parent's, which it holds on to. May be used
// from several threads at once.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/python_json.h"

namespace lockstep {

class ResponseStore {
 public:
  /// Keeps at most `capacity` responses and about `budget_bytes` of their items.
  ResponseStore(std::size_t capacity, std::size_t budget_bytes) : capacity_(capacity), budget_(budget_bytes) {}

  /// `previous`: the response that this one continued, if any. `input` and `output` are arrays of items, `response` is
  /// the whole answer. `bytes` is about what all three take as text; they are not measured here, because the thread
  /// that ends an answer has others to go on with.
  void add(const std::string& id, const std::string& previous, Json input, Json output, Json response,
           std::size_t bytes);

  /// All items of a conversation up to and with the answer of `id`, oldest first; nothing if it is not kept.
  std::optional<Json> conversation(const std::string& id) const;
  /// One item of an answer by its id.
  std::optional<Json> item(const std::string& id) const;
  /// The answer object.
  std::optional<Json> response(const std::string& id) const;

  std::size_t size() const;
  std::size_t bytes() const;  // of all that are kept, by what add() was told

 private:
  struct Kept {
    std::string id;
    std::shared_ptr<const Kept> previous;  // shared: it outlives its own place in the store as long as others go on
    Json input, output, response;
    std::size_t bytes = 0;  // of it and all before it
  };
  using Pointer = std::shared_ptr<const Kept>;

  Pointer find(const std::string& id) const;
  void forget_oldest();

  const std::size_t capacity_, budget_;
  mutable std::mutex mutex_;
  std::list<Pointer> kept_;  // the newest at the end
  std::unordered_map<std::string, std::list<Pointer>::iterator> by_id_;
  std::unordered_map<std::string, std::pair<std::string, Json>> items_;  // by item id: its response's id, the item
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
