// The rules of ops/draw.h as loops over one row in host memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/types.h"

namespace lockstep {

/// Keeps memory for a row and nothing else from call to call. Not for several threads at once.
class RowDraw {
 public:
  /// The token that `choice` draws from `row`, whose number in it is not looked at; -1 if a value is NaN or +infinity,
  /// or none is finite.
  Token draw(std::span<const float> row, const DrawChoice& choice);

 private:
  void keep_top_k(std::span<const float> row, int top_k);
  void keep_top_p(std::span<const float> row, float top_p);
  std::uint64_t total_weight() const;

  std::vector<float> powers_;  // exp_f32, a token each
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace lockstep
