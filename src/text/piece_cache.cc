#include "text/piece_cache.h"

#include <functional>

namespace lockstep {

PieceCache::PieceCache(std::size_t capacity) : shard_capacity_((capacity + kShards - 1) / kShards) {}

PieceCache::Shard& PieceCache::shard_of(std::string_view piece) {
  // The index of a shard uses the low bits of the same hash.
  return shards_[(std::hash<std::string_view>{}(piece) >> 40) % kShards];
}

bool PieceCache::find(std::string_view piece, std::vector<Token>& out) {
  if (piece.size() > kMaxPiece || shard_capacity_ == 0) return false;
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.index.find(piece);
  if (found == shard.index.end()) return false;
  shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
  const std::vector<Token>& tokens = found->second->tokens;
  out.insert(out.end(), tokens.begin(), tokens.end());
  return true;
}

void PieceCache::insert(std::string_view piece, const Token* tokens, std::size_t count) {
  if (piece.size() > kMaxPiece || shard_capacity_ == 0) return;
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  if (shard.index.contains(piece)) return;  // another thread was first
  if (shard.entries.size() >= shard_capacity_) {
    shard.index.erase(shard.entries.back().piece);
    shard.entries.pop_back();
  }
  shard.entries.push_front({std::string(piece), std::vector<Token>(tokens, tokens + count)});
  shard.index.emplace(shard.entries.front().piece, shard.entries.begin());
}

std::size_t PieceCache::size() {
  std::size_t total = 0;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    total += shard.entries.size();
  }
  return total;
}

}  // namespace lockstep
