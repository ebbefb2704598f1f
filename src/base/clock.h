// Time that only goes on.
#pragma once

#include <chrono>

namespace lockstep {

/// Seconds of the steady clock, from a beginning that is the process's own.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
