// The oracle: a slow, plain evaluation of the model with f64 accumulation, written from docs/architecture.md alone.
//
// It says how accurate the engine is; it shares nothing with the engine's own arithmetic (no ops, no order, no int8
// activations, libm's functions), only the reading of weights and the model's own fp8 and fp4 roundings. Token by
// token, one thread, everything kept.
#pragma once

#include <span>
#include <vector>

#include "model/config.h"
#include "ops/cache_view.h"
#include "tensor/gguf.h"

namespace lockstep {

/// Logits after every token of one sequence, [tokens, vocabulary]. `meaning_of_107` is the variant of tensor type 107.
std::vector<float> oracle_logits(const Gguf& file, const Config& config, Mode mode, std::span<const Token> tokens,
                                 DType meaning_of_107 = DType::rocmfp2);

}  // namespace lockstep
