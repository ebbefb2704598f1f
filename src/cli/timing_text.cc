#include "cli/timing_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace lockstep {

std::string timing_text(const TimedOps::Times& times) {
  const double all = times.seconds();
  if (times.steps == 0 || all <= 0) return "time: no step was timed";
  std::vector<StepPhase> order;
  for (int p = 0; p < kPhases; ++p)
    if (times.phases[static_cast<std::size_t>(p)].calls > 0) order.push_back(static_cast<StepPhase>(p));
  std::stable_sort(order.begin(), order.end(),
                   [&](StepPhase a, StepPhase b) { return times.of(a).seconds > times.of(b).seconds; });
  std::string text = fmt::format("time: {:.3f} ms a step:", 1e3 * all / static_cast<double>(times.steps));
  for (const StepPhase phase : order)
    text += fmt::format("{} {} {:.1f} %", phase == order.front() ? "" : ",", name_of(phase),
                        100 * times.of(phase).seconds / all);
  text += fmt::format("; {} steps", times.steps);
  if (times.untimed_steps > 0) text += fmt::format(", {} more not timed", times.untimed_steps);
  return text;
}

}  // namespace lockstep
