// How likely a model finds a text, and how far two models are apart: statistics over rows of logits.
//
// Everything is f64 with the project's own exp and log, tokens ascending and rows in order, so a number printed here is
// the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

/// A row of logits as the logarithms of probabilities. Borrows the logits.
struct LogitRow {
  /// Throws Error::bad_file if a logit is not finite.
  explicit LogitRow(std::span<const float> row);

  double ln_probability(std::size_t token) const {
    // The differences first: beside large logits log_sum would vanish.
    return (static_cast<double>(logits[token]) - largest) - log_sum;
  }

  std::span<const float> logits;
  double largest;   // logit
  double log_sum;   // ln of the sum of e^(logit - largest)
  Token likeliest;  // of equal logits, the lowest token
};

/// The sum of p * ln(p / q), p the probabilities of `reference` and q those of `model`, in nats. A p below e^-700
/// counts as 0, and what rounding leaves below 0 is 0.
double kl_divergence(const LogitRow& reference, const LogitRow& model);

/// The least value that at least `percent` of 100 of the values do not exceed (nearest rank), 0 < percent <= 100; 0 if
/// there are no values.
double percentile(std::vector<double> values, double percent);

/// Of tokens that really came.
struct Likelihood {
  std::int64_t tokens = 0;
  std::int64_t likeliest = 0;  // of them, those that were the likeliest one
  double surprise = 0;         // sum, in nats

  void add(const LogitRow& row, Token token);
  double mean() const;
  double perplexity() const;  // e^mean; 1 without tokens
};

/// Of a model from a reference, over rows.
struct Divergence {
  std::vector<double> kl;      // nats, a row each
  std::int64_t same_best = 0;  // rows where both have the same likeliest token

  void add(double divergence, bool is_same_best);
  double mean() const;
  double agreement() const;  // part of 1; 1 without rows
};

/// Tokens to run from an empty sequence. Those from first_scored on count for likelihoods; the rows that predict those
/// from first_compared on are compared. Both are at least 1, since nothing predicts the first token.
struct Passage {
  std::vector<Token> tokens;
  std::size_t first_compared = 1;
  std::size_t first_scored = 1;
};

/// A text in overlapping windows of at most `context` tokens, the first of which is `bos`, or without one the token
/// that lies before. A window begins `stride` tokens after the one before and scores what that did not reach, so every
/// token of the text is scored once (without a `bos`, all but the first). Throws Error::bad_argument for a context of
/// less than 2, a stride that is not from 1 to context - 1, and a text that has nothing to score.
std::vector<Passage> cut_text(std::span<const Token> text, std::optional<Token> bos, std::int64_t context,
                              std::int64_t stride);

struct Measurement {
  Likelihood model, reference;  // of the scored tokens
  Divergence compared;          // over all compared rows
  Divergence scored;            // over the rows that predict scored tokens
};

/// Runs the passages through `engine` and, if there is one, through `reference`, a chunk of each in turn, so that no
/// logits are kept. The engines have the same vocabulary. `progress` (may be empty) is told tokens done and in all.
/// Throws Error::bad_argument for a passage longer than a model's context, and what a step throws.
Measurement measure(Engine& engine, Engine* reference, std::span<const Passage> passages,
                    const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

/// Throws Error::bad_argument unless both files have the same tokens, so that their logits can be compared.
void check_same_vocabulary(const Gguf& file, const Gguf& reference);

}  // namespace lockstep
