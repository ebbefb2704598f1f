// `lockstep parse`: sampled text in, what a server would answer out, JSON Lines both.
#pragma once

#include <cstddef>
#include <iosfwd>

namespace lockstep {

/// A line in: {"text", "thinking"?, "tools"?, "tool_choice"?, "finish"?, "name"?}. `text` is everything generated after
/// the prompt, `thinking` says that the prompt ended in <think> (default false), `finish` is why the generation ended
/// ("stop", the default, or "length"); tools and tool_choice as OpenAI has them. A line out: {"name", "result":
/// {"reasoning", "content", "tool_calls": [{"name", "arguments"}], "finish_reason"}}. With `chunk` the text goes in
/// that many bytes at a time; with 0, whole. Bad lines as in run_tokenize. Returns 0, or 2 if any line was bad.
int run_parse(std::istream& in, std::ostream& out, std::ostream& errors, std::size_t chunk);

}  // namespace lockstep
