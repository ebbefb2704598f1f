// A bounded memory of already encoded pieces: most pieces of a prompt are common words that were met before.
//
// A value is a function of its key alone, so what is cached changes the speed and never the tokens. Sharded, each shard
// with its own lock, because several threads tokenise with one Tokenizer.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep {

class PieceCache {
 public:
  static constexpr std::size_t kMaxPiece = 64;  // bytes; longer pieces seldom come again

  /// Keeps about `capacity` pieces, the least recently used goes first. 0 keeps none.
  explicit PieceCache(std::size_t capacity);

  /// Appends the tokens of `piece` and returns true if it is known.
  bool find(std::string_view piece, std::vector<Token>& out);

  void insert(std::string_view piece, const Token* tokens, std::size_t count);

  /// Pieces held now.
  std::size_t size();

 private:
  static constexpr std::size_t kShards = 16;
  struct Entry {
    std::string piece;
    std::vector<Token> tokens;
  };
  struct Shard {
    std::mutex mutex;
    std::list<Entry> entries;                                                // the most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator> index;  // views into entries
  };
  Shard& shard_of(std::string_view piece);

  std::size_t shard_capacity_;
  std::array<Shard, kShards> shards_;
};

}  // namespace lockstep
