// A short look whether a back end gives the golden bytes on this machine, before anything is answered with it.
#pragma once

#include "ops/ops.h"

namespace lockstep {

struct SelfTestResult {
  int hashes = 0;  // compared
  double seconds = 0;
};

/// Products of every format, and small models that take every op, against the golden hashes. What it loads stays in
/// the back end's memory until that goes: some ten megabytes. Throws Error::device naming the first line that differs.
SelfTestResult self_test(Ops& ops);

}  // namespace lockstep
