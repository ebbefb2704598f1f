// The CPU back end: every op on one of the instruction-set levels, divided over threads by output element.
#pragma once

#include <memory>
#include <string>

#include "ops/ops.h"

namespace lockstep::cpu {

struct CpuOptions {
  int threads = 0;             // 0: one for each CPU that the process may use
  std::string level = "auto";  // the best that this machine runs, or a name
};

/// Throws Error::bad_argument if the level is unknown or this machine cannot run it.
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

}  // namespace lockstep::cpu
