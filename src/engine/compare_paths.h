// Two ways through the same tokens, laid side by side: the first op that gives other bytes, and where in them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "engine/trace_ops.h"

namespace lockstep {

/// A back end and how many tokens a step takes.
struct TracedPath {
  std::string name;
  std::function<std::unique_ptr<Ops>()> make_ops;
  int chunk = 1;
};

/// The first place, in the order of the model's ops, where any token's row differs, and the first such token. What
/// comes before is the same for all tokens, so that op is where it began.
struct PathDifference {
  TraceOps::Place place;
  Position position = 0;
  std::size_t element = 0;   // the first that differs
  std::size_t elements = 0;  // of the row
  std::size_t differing = 0;
  std::string a, b;        // the element's values
  std::size_t tokens = 0;  // whose row at this place differs
};

struct PathComparison {
  std::uint64_t rows = 0;  // that both paths wrote
  std::optional<PathDifference> first;
};

/// `model` says what is loaded; its max_rows is set here. Runs each path once, and again where they differ, to see the
/// values. Throws what Engine and a step throw.
PathComparison compare_paths(EngineOptions model, const TracedPath& a, const TracedPath& b,
                             std::span<const Token> tokens);

}  // namespace lockstep
