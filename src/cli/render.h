// `lockstep render`: chat requests in, prompts out, JSON Lines both.
#pragma once

#include <iosfwd>

namespace lockstep {

/// A request a line (text/chat_request.h) in, {"prompt": "..."} out, by the strict official encoder. Bad lines as in
/// run_tokenize. Returns 0, or 2 if any line was bad.
int run_render(std::istream& in, std::ostream& out, std::ostream& errors);

}  // namespace lockstep
