// Helpers of the tests that run whole models: engines on a level, logits and cache bytes by a schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_ops.h"
#include "engine/engine.h"
#include "engine/schedule.h"

namespace lockstep::testing {

inline std::filesystem::path data(const std::string& name) { return std::filesystem::path(LOCKSTEP_TEST_DATA) / name; }

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::unique_ptr<Engine> make_engine(const std::filesystem::path& model, Mode mode, const std::string& level,
                                           int threads, int max_rows = 512) {
  EngineOptions options;
  options.model = model;
  options.mode = mode;
  options.max_rows = max_rows;
  return std::make_unique<Engine>(options, cpu::make_cpu_ops({threads, level}));
}

/// What a run leaves behind: everything that must not depend on how it was run.
struct RunResult {
  std::vector<std::vector<float>> logits;           // by sequence, [tokens, vocabulary]
  std::vector<std::vector<std::byte>> cache_bytes;  // by sequence
};

inline RunResult run(Engine& engine, const std::vector<std::vector<Token>>& sequences, const std::string& schedule) {
  RunResult result;
  const std::size_t vocabulary = static_cast<std::size_t>(engine.config().vocabulary);
  for (const auto& sequence : sequences) result.logits.emplace_back(sequence.size() * vocabulary);
  const std::vector<SequenceCache> caches = run_schedule(
      engine, sequences, parse_schedule(schedule), [&](std::size_t s, Position position, std::span<const float> row) {
        std::copy(row.begin(), row.end(),
                  result.logits[s].begin() + position * static_cast<std::ptrdiff_t>(vocabulary));
      });
  for (const SequenceCache& cache : caches) result.cache_bytes.push_back(cache.contents());
  return result;
}

/// Bits, not values: -0 is not 0 and NaN equals itself.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace lockstep::testing
