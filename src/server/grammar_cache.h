// Grammars of recent requests. A conversation sends the same tools every time, and a grammar that has been used knows
// the masks of the states that it has seen.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/grammar.h"

namespace lockstep {

class GrammarCache {
 public:
  explicit GrammarCache(std::size_t capacity = 16) : capacity_(capacity) {}

  /// The grammar of `key`, made if there is none or if the one there has become large. What `make` throws comes out.
  std::shared_ptr<Grammar> get(const std::string& key, const std::function<std::shared_ptr<Grammar>()>& make);

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> grammars_;  // the one used last in front
};

}  // namespace lockstep
