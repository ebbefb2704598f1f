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
//   3. temperature 0: the greatest l, ties to the lower id, and done. Otherwise the weight of a token is
//        exp_f32((l - greatest) / T) * 2^40, cut to an integer
//   4. top-k: the k first by (greater l, then lower id); the others' weight becomes 0
//   5. top-p: the shortest row of tokens, by (greater l, then lower id), whose weights add up to P / 2^32 of all or
//        more; P = p * 2^32, cut to an integer; at least one token; the others' weight becomes 0
//   6. min-p: tokens whose exp_f32 is at least min_p, that of the greatest being 1; the others' weight becomes 0
//   7. the draw: the first token, by ascending id, at which the running sum of the weights exceeds
//        random_uniform(seed, position) * (the sum of all), cut to an integer
// l is f32. Weights are integers so that their sums have no order: a row can be selected without being sorted, and a
// device may add as it likes. What falls below 2^-40 of the greatest weight is lost; the draw tells 2^-24 apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/types.h"

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

/// The token is the greatest logit's, whatever came before: Ops::argmax finds it where the logits are.
bool chooses_greatest(const SamplerParams& params);

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
  void keep_top_k();
  void keep_top_p();
  std::uint64_t total_weight() const;
  Token draw(Position position) const;

  SamplerParams params_;
  int vocabulary_;
  std::vector<float> values_;  // l, a token each
  std::vector<float> powers_;  // exp_f32, a token each
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> keys_;
  std::vector<int> counts_;  // all 0 between calls
};

}  // namespace lockstep
