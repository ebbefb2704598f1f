// How fast a loaded model runs here, and how near that is to what the memory allows.
//
// Decoding a token reads its share of the weights once, so its ceiling is the machine's read bandwidth; that is
// measured in the same run: over the same file with the same threads, or on a device in its own memory. Repetitions go
// round all measurements in turn, so that a slow spell of the machine falls on all of them and shows in the spread.
// Where the time goes is measured in rounds of their own, after those that count.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

struct BenchOptions {
  std::vector<int> prefill = {512};  // prompt lengths, from an empty sequence; 0: none
  int decode = 32;                   // tokens, one a step, at every depth; 0: none
  std::vector<int> depths = {0};     // tokens in the sequence before decoding
  std::vector<int> batches = {1};    // sequences decoded together, each at every depth
  int repetitions = 3;               // after one that does not count
  int threads = 0;                   // of the bandwidth measurement; 0: one for each CPU
  std::uint64_t seed = 1;            // of the tokens
  bool has_timing = false;           // where the time goes; the engine must have a timer
};

/// Bytes that one decoded token reads.
struct TokenBytes {
  std::uint64_t weights = 0;                    // matrices, of the experts those of one token
  std::uint64_t cache = 0;                      // window rows, compressed rows and indexer keys
  std::array<std::uint64_t, kPhases> phases{};  // both, by the phase that reads them
  std::uint64_t total() const { return weights + cache; }
};

/// `depth` tokens lie before the one that is decoded.
TokenBytes token_bytes(const Config& config, const Weights& weights, Mode mode, std::int64_t depth);

struct BenchRow {
  bool is_prefill = false;
  int tokens = 0;  // of a sequence
  std::int64_t depth = 0;
  int batch = 1;                // sequences
  TokenBytes bytes;             // a token, halfway through a decode; 0 for prefill, whose steps share what they read
  std::vector<double> seconds;  // one a repetition
  // With timing: one more round each, by phase and by op. A device's ops do not overlap in them.
  TimedOps::Times by_phase, by_op;
  double phase_seconds = 0, op_seconds = 0;  // what those rounds took

  double mean_rate() const;  // tokens a second of all sequences, over all repetitions together
  double min_rate() const;
  double max_rate() const;
  /// Of one sequence. Several share what they read.
  double bytes_per_second() const { return mean_rate() * static_cast<double>(bytes.total()); }
};

struct BenchReport {
  std::uint64_t read_bytes = 0;      // that the bandwidth was measured over
  double read_bytes_per_second = 0;  // of the best pass
  bool is_device_read = false;       // in the memory of a device
  // Clocks of a device as seen after every measurement; 0 where there is no telling.
  double least_clock_hz = 0, greatest_clock_hz = 0, most_clock_hz = 0;
  std::vector<BenchRow> rows;

  /// The clock was seen at less than nine tenths of what it was seen at, or may be.
  bool is_clock_sagging() const {
    return least_clock_hz > 0 && least_clock_hz < 0.9 * std::max(greatest_clock_hz, most_clock_hz);
  }
};

/// Throws Error::bad_argument for lengths out of range, and what a step throws. `note` (may be empty) is told what is
/// being done.
BenchReport run_bench(Engine& engine, const BenchOptions& options,
                      const std::function<void(const std::string&)>& note = {});

}  // namespace lockstep
