#include "server/grammar_cache.h"

#include <algorithm>

namespace lockstep {

std::shared_ptr<Grammar> GrammarCache::get(const std::string& key,
                                           const std::function<std::shared_ptr<Grammar>()>& make) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(grammars_.begin(), grammars_.end(), [&](const auto& g) { return g.first == key; });
    if (found != grammars_.end()) {
      if (!found->second->is_large()) {
        grammars_.splice(grammars_.begin(), grammars_, found);
        return found->second;
      }
      grammars_.erase(found);
    }
  }
  // Without the lock: a large schema takes its time, and others need not wait for it.
  std::shared_ptr<Grammar> grammar = make();
  const std::lock_guard lock(mutex_);
  grammars_.emplace_front(key, grammar);
  if (grammars_.size() > capacity_) grammars_.pop_back();
  return grammar;
}

}  // namespace lockstep
