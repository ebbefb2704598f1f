// What `lockstep eval` prints, for people and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval.h"

namespace lockstep {

/// Which file ran, and how.
struct EvalModel {
  std::string file, mode;
  std::uint64_t bytes = 0;
};

struct SuiteResult {
  std::string file;
  EvalReport report;
};

struct EvalResults {
  EvalModel model;
  std::string back_end;
  std::optional<EvalModel> reference;
  std::vector<SuiteResult> suites;
  std::optional<Measurement> suite;  // of all suites' prompts and expected answers
  std::string text_file;
  std::optional<Measurement> text;
};

/// Tables; the first `failures` failing cases of each suite with what was expected and what came.
std::string eval_text(const EvalResults& results, std::size_t failures);

/// One JSON object, with every failure.
std::string eval_json(const EvalResults& results);

}  // namespace lockstep
