#include "server/response_store.h"

#include <iterator>
#include <vector>

namespace lockstep {
namespace {

std::string id_of(const Json& item) {
  if (!item.is_object()) return {};
  const auto id = item.find("id");
  return id == item.end() || !id->is_string() ? std::string() : id->get<std::string>();
}

}  // namespace

void ResponseStore::add(const std::string& id, const std::string& previous, Json input, Json output, Json response,
                        std::size_t bytes) {
  auto kept = std::make_shared<Kept>();
  kept->id = id;
  kept->input = std::move(input);
  kept->output = std::move(output);
  kept->response = std::move(response);
  kept->bytes = bytes;
  const std::lock_guard lock(mutex_);
  kept->previous = previous.empty() ? nullptr : find(previous);
  if (kept->previous) kept->bytes += kept->previous->bytes;
  if (kept->bytes > budget_ || capacity_ == 0) return;
  while (!kept_.empty() && (kept_.size() >= capacity_ || bytes_ + kept->bytes > budget_)) forget_oldest();
  bytes_ += kept->bytes;
  // Only what was answered: its ids cannot be guessed, those of the input are the client's.
  for (const Json& item : kept->output)
    if (const std::string name = id_of(item); !name.empty()) items_[name] = {id, item};
  kept_.push_back(std::move(kept));
  by_id_[id] = std::prev(kept_.end());
}

std::optional<Json> ResponseStore::conversation(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  std::vector<const Kept*> chain;
  const Pointer last = find(id);
  if (!last) return std::nullopt;
  for (const Kept* at = last.get(); at != nullptr; at = at->previous.get()) chain.push_back(at);
  Json items = Json::array();
  for (auto at = chain.rbegin(); at != chain.rend(); ++at)
    for (const Json* list : {&(*at)->input, &(*at)->output})
      for (const Json& item : *list) items.push_back(item);
  return items;
}

std::optional<Json> ResponseStore::item(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(id);
  return found == items_.end() ? std::nullopt : std::optional(found->second.second);
}

std::optional<Json> ResponseStore::response(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const Pointer kept = find(id);
  return kept ? std::optional(kept->response) : std::nullopt;
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

/// The lock is held.
ResponseStore::Pointer ResponseStore::find(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : *found->second;
}

void ResponseStore::forget_oldest() {
  const Pointer oldest = kept_.front();
  bytes_ -= oldest->bytes;
  by_id_.erase(oldest->id);
  std::erase_if(items_, [&](const auto& item) { return item.second.first == oldest->id; });
  kept_.pop_front();
}

}  // namespace lockstep
