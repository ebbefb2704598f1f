// From logits to the next token: a pure function of (logits, history, parameters, position).
//
// Nothing advances from call to call. The draw is random_uniform(seed, position), so a token that is sampled again,
// after a rewind, by another schedule or while a draft is verified, is the same token. A Sampler keeps scratch memory
// and nothing else. It knows no model and no text.
//
// The steps, in this order; each is skipped where its parameter is neutral:
//   1. penalties of every token t that occurs in the history, n times:
//        repetition r:  l > 0 ? l / r : l * r;   then  l = l - n * frequency;   then  l = l - presence
//   2. bias: l = l + bias, in the order given
//   3. the draw, by temperature, top-k, top-p, min-p, seed and position: the rules of ops/draw.h
// l is f32. Where there are no penalties and no bias, only the draw is left, and Ops::draw does it where the logits
// are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/row_draw.h"

namespace lockstep {

struct LogitBias {
  Token token = 0;
  float bias = 0;
};

struct SamplerParams {
  float temperature = 1;              // 0 to 100; 0 is greedy
  int top_k = 0;                      // 0 = all
  float top_p = 1;                    // 0 to 1; 1 = all
  float min_p = 0;                    // 0 to 1; 0 = all
  float repetition_penalty = 1;       // above 0, up to 100; 1 = none
  float frequency_penalty = 0;        // -2 to 2
  float presence_penalty = 0;         // -2 to 2
  std::vector<LogitBias> logit_bias;  // -100 to 100 each
  std::uint64_t seed = 0;
  bool is_seed_signed = false;  // only for telling it: it was given as a negative number
};

/// Throws Error::bad_argument naming the parameter, its value and its range.
void check_sampler_params(const SamplerParams& params, int vocabulary);

/// Whether the token depends on the model's logits, the parameters and the position alone: no penalty, no bias.
bool is_plain_draw(const SamplerParams& params);

/// Step 3 of the token for `position`, out of the first row.
DrawChoice draw_choice(const SamplerParams& params, Position position);

class Sampler {
 public:
  /// Throws what check_sampler_params throws.
  Sampler(SamplerParams params, int vocabulary);

  /// The token for `position`, the absolute place that it will have in its sequence.
  ///   logits   [vocabulary]; -infinity is a token that cannot be
  ///   history  what the penalties count, in any order: prompt and output so far
  /// Throws Error::bad_file naming the token and position if a logit is NaN or +infinity, or if no token can be.
  Token sample(std::span<const float> logits, std::span<const Token> history, Position position);

  const SamplerParams& params() const { return params_; }

 private:
  void penalise(std::span<const Token> history);

  SamplerParams params_;
  int vocabulary_;
  std::vector<float> values_;  // l, a token each
  std::vector<int> counts_;    // all 0 between calls
  RowDraw draw_;
};

}  // namespace lockstep
