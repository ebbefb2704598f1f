// Log probabilities in the two shapes that clients know: chat completions' (and responses'), and the older one of
// completions.
#pragma once

#include <vector>

#include "server/answer.h"
#include "text/python_json.h"

namespace lockstep {

/// [{"token", "logprob", "bytes", "top_logprobs": [...]}]. A token that is part of a character has U+FFFD as its text.
Json chat_logprobs(const std::vector<AnswerToken>& tokens, const Tokenizer& tokenizer);

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; `alternatives` each, 0 for none.
Json text_logprobs(const std::vector<AnswerToken>& tokens, const Tokenizer& tokenizer, int alternatives);

}  // namespace lockstep
