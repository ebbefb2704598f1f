// The same text in other tokens than the tokenizer chooses: a model may sample those.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::test {

class TokenSplitter {
 public:
  TokenSplitter(const Tokenizer& tokenizer, std::uint32_t seed) : tokenizer_(tokenizer), random_(seed) {
    for (std::size_t i = 0; i < tokenizer.size(); ++i)
      if (const auto token = static_cast<Token>(i); !tokenizer.is_added(token))
        by_bytes_.emplace(tokenizer.bytes_of(token), token);
  }

  /// Cuts about every other token that can be cut in two.
  std::vector<Token> split(std::span<const Token> tokens) {
    std::vector<Token> out;
    for (const Token token : tokens) {
      const std::string_view bytes = tokenizer_.bytes_of(token);
      const std::size_t cut = bytes.size() < 2 ? 0 : random_() % bytes.size();
      const auto left = by_bytes_.find(bytes.substr(0, cut)), right = by_bytes_.find(bytes.substr(cut));
      if (tokenizer_.is_added(token) || cut == 0 || left == by_bytes_.end() || right == by_bytes_.end()) {
        out.push_back(token);
      } else {
        out.insert(out.end(), {left->second, right->second});
      }
    }
    return out;
  }

 private:
  const Tokenizer& tokenizer_;
  std::map<std::string_view, Token> by_bytes_;
  std::mt19937 random_;
};

}  // namespace lockstep::test
