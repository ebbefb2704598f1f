// A chat request from JSON, in the form of the encoder's own messages: what `lockstep render` reads, a line a request.
//
//   {"profile", "thinking", "effort", "messages": [...], "tools"?, "response_format"?, "drop_thinking"?}
//
// Messages are OpenAI's, with `reasoning_content`, `task` and `wo_eos`. The server's normalisation comes before this,
// not in here.
#pragma once

#include <string_view>

#include "text/chat.h"
#include "text/python_json.h"

namespace lockstep {

/// Throws Error::bad_argument naming the field, what it holds and what was expected. Unknown fields are ignored.
ChatRequest chat_request_from_json(const Json& request);

/// The names that requests use. Each throws Error::bad_argument for an unknown one, naming `field`.
Profile profile_named(std::string_view name, std::string_view field);
Effort effort_named(std::string_view name, std::string_view field);  // minimal, low, medium, high, xhigh, max
Role role_named(std::string_view name, std::string_view field);      // `function` is a tool
Task task_named(std::string_view name, std::string_view field);

}  // namespace lockstep
