#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/memory_plan.h"

namespace lockstep {

Progress::Progress()
    : start_(std::chrono::steady_clock::now()), shown_(start_), is_terminal_(isatty(fileno(stderr)) != 0) {}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double wait = is_terminal_ ? 0.25 : 10.0;
  if (std::chrono::duration<double>(now - shown_).count() < wait) return;
  shown_ = now;
  const double rate = static_cast<double>(done) / std::max(elapsed, 1e-3);
  fmt::print(stderr, "{}{} of {}, {}/s, {:.0f} s left  {}", is_terminal_ ? "\r" : "", human_bytes(done),
             human_bytes(total), human_bytes(static_cast<std::uint64_t>(rate)),
             static_cast<double>(total - done) / std::max(rate, 1.0), is_terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::finish(std::uint64_t total) const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = static_cast<double>(total) / std::max(elapsed, 1e-3);
  fmt::print(stderr, "{}{} in {:.1f} s, {}/s          \n", is_terminal_ ? "\r" : "", human_bytes(total), elapsed,
             human_bytes(static_cast<std::uint64_t>(rate)));
}

}  // namespace lockstep
