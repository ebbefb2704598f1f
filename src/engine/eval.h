// A model put through suites of prompts: which answers are right, and how likely it finds the right ones.
//
// Answers are greedy and go through the same Generator as every other answer, so what is counted here is what a user
// gets. Reports hold numbers and texts only; the command line shows them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/eval_suite.h"
#include "engine/likelihood.h"

namespace lockstep {

struct SkillScore {
  std::string skill;
  std::int64_t cases = 0;
  std::int64_t passed = 0;
  std::int64_t stopped = 0;  // ended by the end-of-sentence token
};

struct EvalFailure {
  std::string name, skill, why, expected, got;
};

struct EvalReport {
  std::vector<SkillScore> skills;  // in the order in which the suite first names them
  std::vector<EvalFailure> failures;
  SkillScore all;
  std::int64_t generated = 0;  // tokens
};

/// Answers every case. A case whose prompt does not fit the model's context fails and says so; the others go on.
/// `progress` (may be empty) is told cases done. Throws Error::unsupported if the vocabulary cannot carry a chat, and
/// what a step throws.
EvalReport run_suite(Engine& engine, std::span<const EvalCase> cases,
                     const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

/// Every case's prompt with its expected answer, as far as the case says it whole; all tokens are compared, those of
/// the answer, its end-of-sentence token too, are scored. Throws Error::unsupported as run_suite.
std::vector<Passage> suite_passages(Engine& engine, std::span<const EvalCase> cases);

}  // namespace lockstep
