// How many rows of prefill a step takes, learnt from how long steps took.
//
// While nobody decodes, a step is as long as `step_seconds`, and never so short that most of it is what every step
// costs whatever its rows (reading the weights): then prefill would crawl. While others decode, prefill gets its share
// of the time and no more: what it may spend is saved up, so a step that has too little for a chunk worth running has
// none. It knows no clock and no model: it is told times, and tells rows.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class StepPace {
 public:
  static constexpr int kLeastRows = 16;   // beside decoders; below, reading the weights is all that a chunk does
  static constexpr int kFirstRows = 128;  // while nothing is known

  /// share: of the time, while others decode; above 0 and below 1. max_rows: of a step.
  StepPace(double step_seconds, double share, int max_rows);

  /// Rows of prefill for a step with `decoders` single tokens beside; 0: none this time. With no decoders at least 1.
  int rows(int decoders) const;
  /// Rows of prefill that take as long as what every step costs, at least kLeastRows: fewer make a step hardly shorter.
  int even_rows() const;

  /// A step is over: `rows` of prefill and `decoders` single tokens took so long.
  void measured(int rows, int decoders, double seconds);

  /// What a step of `rows` of prefill alone is expected to take; 0 while nothing is known.
  double seconds_of(int rows) const;
  /// What a step of `decoders` single tokens takes; 0 while nothing is known.
  double decode_seconds(int decoders) const;

 private:
  /// Seconds of a step by its rows, as a line through what was measured lately.
  struct Line {
    double weight = 0, rows = 0, seconds = 0, rows_rows = 0, rows_seconds = 0;
    void add(double r, double s);
    double per_row() const;  // above 0 once something was added
    double fixed() const;    // at least 0
  };

  /// A row of a chunk beside decoders; 0 while nothing is known.
  double beside_row_seconds() const;

  double step_seconds_;
  double earned_;  // seconds of prefill that a second of decoding allows
  int max_rows_;
  Line alone_;
  double beside_rows_ = 0, beside_seconds_ = 0;  // of chunks beside decoders, fading
  std::vector<double> decode_;                   // seconds by decoders, 0: not measured; smoothed
  double credit_ = 0;                            // seconds that prefill may take beside decoders
};

}  // namespace lockstep
