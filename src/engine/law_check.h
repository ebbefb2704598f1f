// The law, checked on this machine: hashes of results that must be the same everywhere.
//
// Three kinds of lines: `function NAME` (numerics/guard.h), `dot FORMAT` (products of random rows of every format, of
// many widths), and `model NAME MODE` (logits and cache bytes of small synthetic models). tests/law/golden.txt holds
// the expected hashes; they were made on a CPU and are met by every level, thread count, schedule and back end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/schedule.h"

namespace lockstep {

struct LawLine {
  std::string name;
  std::uint64_t hash = 0;
};

/// Hash of every function and primitive of numerics/ on the host.
std::vector<LawLine> function_lines();

/// Hash of the products of every format that has dots, by the back end.
std::vector<LawLine> dot_lines(Ops& ops);

/// Hash of logits and cache bytes of given tokens by one schedule.
std::uint64_t model_hash(Engine& engine, std::span<const std::vector<Token>> sequences, const Schedule& schedule);

/// The small models that the golden file covers: "nano-q2" and so on, by type set.
std::vector<std::string> law_models();
/// One of them, to be made in memory (EngineOptions::synth).
std::shared_ptr<const SynthPlan> law_model_plan(const std::string& name);
/// Writes one of them. Throws what write_synth throws.
void write_law_model(const std::string& name, const std::filesystem::path& path);
inline constexpr int kLawTokens = 133;  // of the longer of the two sequences
/// The tokens that their lines are about.
std::vector<std::vector<Token>> law_tokens(int vocabulary);

/// The golden hashes as compiled in. Throws Error::bad_file if a line cannot be read.
std::vector<LawLine> golden_lines();
std::optional<std::uint64_t> find_line(std::span<const LawLine> lines, std::string_view name);

}  // namespace lockstep
