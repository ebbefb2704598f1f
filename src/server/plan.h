// An Ask as the engine takes it: the prompt and its tokens, the form of the answer, and a job.
#pragma once

#include <string>
#include <vector>

#include "server/answer.h"
#include "server/api_state.h"
#include "server/ask.h"
#include "text/prompt.h"

namespace lockstep {

struct Plan {
  Prompt prompt;
  std::vector<Token> tokens;
  AnswerSpec answer;
  Job job;  // without prompt and guide
};

/// The rendered prompt and its tokens, whatever the context is.
Prompt render_ask(const Ask& ask);
std::vector<Token> count_ask(const ApiState& api, const Ask& ask);

/// Throws ApiError 400: for a prompt that leaves no room in the context, in the words that clients of the family look
/// for; and for a schema that cannot be kept to. `field` is where the request has the conversation.
Plan plan_ask(ApiState& api, const Ask& ask, Family family, const char* field = "messages");

/// What a job takes from a request's fields.
Job job_of(const ApiState& api, const GenerationFields& fields);

/// Tokens that a prompt is counted up to: how much too long it is helps a client that is near the limit; a text that is
/// far from it is not read to its end.
std::size_t counted_tokens(std::int64_t context);

/// The error for a prompt of `tokens`, or of at least so many, that does not fit; `field` is where the request has it.
ApiError overflow_error(Family family, std::int64_t tokens, std::int64_t context, const std::string& field,
                        bool is_exact = true);

}  // namespace lockstep
