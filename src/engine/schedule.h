// Ways to run given tokens through the model: token by token, in chunks, or all sequences at once cut at random. They
// must all give the same bytes, which is what `logits`, `check` and the tests are for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

struct Schedule {
  enum class Kind { tokenwise, chunk, mixed } kind = Kind::chunk;
  int chunk = 0;           // tokens a step; 0 = as many as a step takes
  std::uint64_t seed = 0;  // of mixed
};

/// "tokenwise", "chunk:N" or "mixed:SEED". Throws Error::bad_argument.
Schedule parse_schedule(std::string_view text);

/// Told the logits after token `position` of sequence `sequence`, in any order, each once.
using LogitSink = std::function<void(std::size_t sequence, Position position, std::span<const float> logits)>;

/// Runs every sequence from its start. Returns the caches, in order. Chunks longer than a step are cut to it.
std::vector<SequenceCache> run_schedule(Engine& engine, std::span<const std::vector<Token>> sequences,
                                        const Schedule& schedule, const LogitSink& sink);

/// Reads token ids, one sequence a line, ids separated by spaces or commas; empty lines are left out. `name` is for
/// messages. Throws Error::bad_argument naming line and id.
std::vector<std::vector<Token>> parse_token_lines(std::string_view text, std::string_view name, int vocabulary);

}  // namespace lockstep
