#include "cli/count_progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace lockstep {

CountProgress::CountProgress(std::string what)
    : what_(std::move(what)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_(start_ + (is_terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(10))) {}

void CountProgress::show(std::int64_t done, std::int64_t total) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? std::chrono::milliseconds(250) : std::chrono::seconds(10));
  const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-3);
  const double rate = static_cast<double>(done) / seconds;
  std::string text = fmt::format("{} of {} {}", done, total, what_);
  if (rate > 0) text += fmt::format(", {:.1f} a second, {:.0f} s left", rate, static_cast<double>(total - done) / rate);
  fmt::print(stderr, "{}{}{}", is_terminal_ ? "\r\033[K" : "", text, is_terminal_ ? "" : "\n");
  std::fflush(stderr);
  is_shown_ = true;
}

void CountProgress::clear() {
  if (is_shown_ && is_terminal_) fmt::print(stderr, "\r\033[K");
  is_shown_ = false;
}

}  // namespace lockstep
