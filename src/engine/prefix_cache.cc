#include "engine/prefix_cache.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

bool begins(std::span<const Token> beginning, std::span<const Token> whole) {
  return beginning.size() <= whole.size() && common_length(beginning, whole) == beginning.size();
}

}  // namespace

std::size_t common_length(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

std::string_view name_of(Miss miss) {
  switch (miss) {
    case Miss::none:
      return "none";
    case Miss::nothing_kept:
      return "nothing kept";
    case Miss::fingerprint:
      return "fingerprint";
    case Miss::differs:
      return "differs";
    case Miss::no_snapshot:
      return "no snapshot there";
    case Miss::evicted:
      return "evicted";
    case Miss::disabled:
      return "disabled";
  }
  return "";
}

std::size_t PrefixCache::usable(const Entry& entry, std::size_t common, std::size_t prompt) {
  if (!entry.cache) return 0;
  if (common == prompt && (entry.length != prompt || entry.logits.empty())) --common;
  return static_cast<Position>(common) >= entry.cache->rewind_floor() ? common : 0;
}

PrefixCache::Best PrefixCache::best(std::span<const Token> prompt) {
  Best best;
  for (Entry& entry : entries_) {
    const std::size_t shared = common_length(entry.view(), prompt);
    const std::size_t length = usable(entry, shared, prompt.size());
    if (length > best.reused) {
      best.reused = length;
      best.entry = &entry;
    }
    const bool goes_on = entry.length > shared;
    if (shared > best.common || (shared == best.common && entry.cache)) best.was_evicted = !entry.cache;
    best.goes_on = shared > best.common ? goes_on : best.goes_on || (shared == best.common && goes_on);
    best.common = std::max(best.common, shared);
  }
  return best;
}

std::size_t PrefixCache::reusable(std::span<const Token> prompt) const {
  std::size_t reused = 0;
  for (const Entry& entry : entries_)
    reused = std::max(reused, usable(entry, common_length(entry.view(), prompt), prompt.size()));
  return reused;
}

PrefixCache::State PrefixCache::state(std::span<const Token> tokens) const {
  for (const Entry& entry : entries_)
    if (entry.cache && entry.length == tokens.size() && begins(entry.view(), tokens))
      return {&*entry.cache, entry.logits};
  return {};
}

PrefixCache::Found PrefixCache::find(std::span<const Token> prompt) {
  const Best known = best(prompt);
  Found found;
  found.reused = known.reused;
  found.common = known.common;
  found.goes_on = known.goes_on;
  ++stats_.lookups;
  stats_.tokens_asked += prompt.size();
  stats_.tokens_reused += found.reused;
  if (known.entry != nullptr) {
    ++stats_.hits;
    known.entry->used = ++clock_;
    found.cache = known.entry->cache->fork();
    found.cache->rewind(static_cast<Position>(found.reused));
    if (found.reused == prompt.size()) found.logits = known.entry->logits;
  }
  if (found.common <= found.reused + 1 && found.reused + 1 >= prompt.size()) {
    found.miss = Miss::none;
  } else if (found.common > found.reused + kWorthKeeping) {
    found.miss = known.was_evicted ? Miss::evicted : Miss::no_snapshot;
  } else if (found.common == 0) {
    found.miss = Miss::nothing_kept;
  } else {
    found.miss = known.goes_on || found.common > found.reused ? Miss::differs : Miss::none;
  }
  return found;
}

void PrefixCache::put(Tokens tokens, std::size_t length, SequenceCache cache, std::vector<float> logits,
                      std::span<const std::span<const Token>> waiting) {
  LOCKSTEP_CHECK(length <= tokens->size() && cache.length() == static_cast<Position>(length));
  if (budget_ == 0) return;
  const std::span<const Token> view{tokens->data(), length};
  std::optional<SequenceCache> kept;
  if (cache.memory_bytes() + logits.size() * sizeof(float) <= budget_)
    kept = std::move(cache);
  else
    logits.clear();
  for (Entry& entry : entries_) {
    if (entry.length != length || !begins(entry.view(), view)) continue;
    entry.used = ++clock_;
    if (!entry.cache) entry.cache = std::move(kept);
    if (entry.cache && entry.logits.empty()) entry.logits = std::move(logits);
    shrink(budget_, waiting);
    return;
  }
  entries_.push_back({std::move(tokens), length, std::move(kept), std::move(logits), ++clock_});
  shrink(budget_, waiting);
}

void PrefixCache::shrink(std::size_t bytes, std::span<const std::span<const Token>> waiting) {
  while (count_held() > bytes) {
    const std::size_t index = victim(waiting);
    if (index == entries_.size()) break;
    entries_[index].cache.reset();
    entries_[index].logits = {};
    ++stats_.evictions;
  }
  forget_oldest_evicted();
}

/// The entry of the least value: few tokens to run again from the entry before it, and long not used. Those that begin
/// a waiting prompt come last.
std::size_t PrefixCache::victim(std::span<const std::span<const Token>> waiting) const {
  std::size_t chosen = entries_.size();
  double least = 0;
  bool chosen_is_pinned = false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.cache) continue;
    std::size_t before = 0;
    for (const Entry& other : entries_)
      if (other.cache && other.length < entry.length && other.length > before && begins(other.view(), entry.view()))
        before = other.length;
    const bool is_pinned = std::any_of(waiting.begin(), waiting.end(),
                                       [&](std::span<const Token> prompt) { return begins(entry.view(), prompt); });
    const double value = static_cast<double>(entry.length - before) / static_cast<double>(1 + clock_ - entry.used);
    const bool is_less =
        chosen == entries_.size() || (chosen_is_pinned != is_pinned ? chosen_is_pinned : value < least);
    if (!is_less) continue;
    chosen = i;
    least = value;
    chosen_is_pinned = is_pinned;
  }
  return chosen;
}

std::size_t PrefixCache::count_held() {
  std::unordered_map<const void*, std::size_t> pieces;
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.logits.size() * sizeof(float);
    if (entry.cache)
      entry.cache->visit_memory([&](const void* identity, std::size_t size) { pieces.emplace(identity, size); });
  }
  for (const auto& [identity, size] : pieces) bytes += size;
  stats_.bytes = bytes;
  stats_.pieces = pieces.size();
  return bytes;
}

void PrefixCache::forget_oldest_evicted() {
  for (;;) {
    std::size_t count = 0, oldest = entries_.size();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].cache) continue;
      ++count;
      if (oldest == entries_.size() || entries_[i].used < entries_[oldest].used) oldest = i;
    }
    if (count <= kRemembered) return;
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(oldest));
  }
}

PrefixCache::Stats PrefixCache::stats() const {
  Stats stats = stats_;
  for (const Entry& entry : entries_) stats.entries += entry.cache.has_value();
  return stats;
}

}  // namespace lockstep
