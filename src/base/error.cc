#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "lockstep: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace lockstep
