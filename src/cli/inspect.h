// `lockstep inspect MODEL`: what is in a model file, without loading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>

#include "tensor/dtype.h"

namespace lockstep {

class Gguf;

/// Memory in bytes that the model needs for one sequence of `context` tokens.
struct InspectPlan {
  std::int64_t context = 0;
  std::uint64_t weights = 0, sequence = 0, workspace = 0;
};

struct InspectOptions {
  std::filesystem::path path;
  bool json = false;
  std::uint64_t array_items = 6;  // shown of each array; the rest is counted
  std::optional<DType> meaning_of_108;
  /// Makes the plan, if one is wanted. What it throws as Error::bad_file or Error::unsupported is shown in its place: a
  /// file that is no model has metadata all the same.
  std::function<InspectPlan(const Gguf&)> plan;
};

/// Writes the metadata, the tensors, the totals by type and what they tell about the file: text for people, or one JSON
/// object. Returns the exit code, 0. Throws Error if the file cannot be opened.
int run_inspect(const InspectOptions& options, std::ostream& out);

}  // namespace lockstep
