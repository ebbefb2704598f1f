// How far a long piece of work is, on stderr: one line that is written over, with rate and time left; on anything but a
// terminal, a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

class Progress {
 public:
  Progress();
  /// Bytes done, of how many. May be called as often as one likes.
  void show(std::uint64_t done, std::uint64_t total);
  /// The whole run, with the time that the disk took to have it all.
  void finish(std::uint64_t total) const;

 private:
  std::chrono::steady_clock::time_point start_, shown_;
  bool is_terminal_;
};

}  // namespace lockstep
