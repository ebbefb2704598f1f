// Importances of a model's matrices, from running it over prompts.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/importance.h"

namespace lockstep {

struct CollectProgress {
  std::function<void(std::int64_t done_tokens, std::int64_t total_tokens)> show;  // may be empty
  std::function<bool()> cancelled;                                                // asked before every step
};

/// Runs every prompt from an empty sequence and records what goes into each matrix that the model multiplies with. The
/// result depends on the prompts and their order, not on threads or back end. If cancelled, returns what there is, with
/// the number of prompts that were finished in `chunks`. Throws what a step throws.
///   prompts: not empty, none longer than the model's context; every token below the vocabulary
Importance collect_importance(Engine& engine, std::span<const std::vector<Token>> prompts,
                              const CollectProgress& progress = {});

/// Cuts a prompt that is longer than `context` tokens into pieces of at most that many, each after the first beginning
/// with the prompt's first token (its BOS).
std::vector<std::vector<Token>> cut_prompt(std::span<const Token> prompt, std::int64_t context);

}  // namespace lockstep
