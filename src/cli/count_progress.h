// How far work is that is counted in cases or tokens, on stderr: one line that is written over, with rate and time
// left; on anything but a terminal, a line every ten seconds. Nothing for work of less than a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

class CountProgress {
 public:
  /// `what` is what is counted, in the plural.
  explicit CountProgress(std::string what);
  ~CountProgress() { clear(); }
  CountProgress(const CountProgress&) = delete;
  CountProgress& operator=(const CountProgress&) = delete;

  void show(std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  std::string what_;
  bool is_terminal_;
  bool is_shown_ = false;
  Clock::time_point start_, next_;
};

}  // namespace lockstep
