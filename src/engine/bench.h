// How fast a loaded model runs here, and how near that is to what the memory allows.
//
// Decoding a token reads its share of the weights once, so its ceiling is the machine's read bandwidth; that is
// measured in the same run, over the same file, with the same threads. Repetitions go round all measurements in turn,
// so that a slow spell of the machine falls on all of them and shows in the spread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

struct BenchOptions {
  std::vector<int> prefill = {512};  // prompt lengths, from an empty sequence
  int decode = 32;                   // tokens, one a step, at every depth; 0: none
  std::vector<int> depths = {0};     // tokens in the sequence before decoding
  int repetitions = 3;               // after one that does not count
  int threads = 0;                   // of the bandwidth measurement; 0: one for each CPU
  std::uint64_t seed = 1;            // of the tokens
};

/// Bytes that one decoded token reads.
struct TokenBytes {
  std::uint64_t weights = 0;  // matrices, of the experts those of one token
  std::uint64_t cache = 0;    // window rows, compressed rows and indexer keys
  std::uint64_t total() const { return weights + cache; }
};

/// `depth` tokens lie before the one that is decoded.
TokenBytes token_bytes(const Config& config, const Weights& weights, Mode mode, std::int64_t depth);

struct BenchRow {
  bool is_prefill = false;
  int tokens = 0;
  std::int64_t depth = 0;
  TokenBytes bytes;             // a token, halfway through a decode; 0 for prefill, whose steps share what they read
  std::vector<double> seconds;  // one a repetition

  double mean_rate() const;  // tokens a second, over all repetitions together
  double min_rate() const;
  double max_rate() const;
  double bytes_per_second() const { return mean_rate() * static_cast<double>(bytes.total()); }
};

struct BenchReport {
  std::uint64_t read_bytes = 0;      // that the bandwidth was measured over
  double read_bytes_per_second = 0;  // of the best pass
  std::vector<BenchRow> rows;
};

/// Throws Error::bad_argument for lengths out of range, and what a step throws. `note` (may be empty) is told what is
/// being done.
BenchReport run_bench(Engine& engine, const BenchOptions& options,
                      const std::function<void(const std::string&)>& note = {});

}  // namespace lockstep
