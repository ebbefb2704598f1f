// Where the time of steps went, as text.
#pragma once

#include <string>

#include "ops/timed_ops.h"

namespace lockstep {

/// One line: "time: 12.3 ms a step: experts 45 %, attention 30 %, ...; 128 steps", the longest phase first.
std::string timing_text(const TimedOps::Times& times);

}  // namespace lockstep
