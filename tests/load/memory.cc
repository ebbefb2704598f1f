#include "load/memory.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::load {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// In words; empty if it is no more than `allowed`.
std::string growth(const char* what, double by, double allowed) {
  if (by <= allowed) return {};
  char text[200];
  std::snprintf(text, sizeof text, "%s grew by %.1f MB, expected at most %.1f; ", what, by / 1e6, allowed / 1e6);
  return text;
}

}  // namespace

void Memory::add(double seconds, const Metrics& metrics) {
  const double counted = metrics.at("lockstep_cache_bytes") + metrics.at("lockstep_turn_bytes");
  const bool is_full = metrics.at("lockstep_cache_evictions_total") > 0 &&
                       metrics.at("lockstep_responses") >= metrics.at("lockstep_responses_limit");
  samples_.push_back({seconds, metrics.at("lockstep_allocated_bytes") - counted,
                      metrics.at("lockstep_resident_bytes") - counted, counted, is_full});
}

std::size_t Memory::first_full() const {
  const auto found = std::find_if(samples_.begin(), samples_.end(), [](const Sample& s) { return s.is_full; });
  return static_cast<std::size_t>(found - samples_.begin());
}

std::vector<Memory::Part> Memory::parts(std::size_t first) const {
  std::vector<Part> out;
  const std::size_t count = samples_.size() - first;
  if (count < kParts) return out;
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::size_t from = first + i * count / kParts, to = first + (i + 1) * count / kParts;
    std::vector<double> in_use, resident, counted;
    for (std::size_t s = from; s < to; ++s) {
      in_use.push_back(samples_[s].in_use);
      resident.push_back(samples_[s].resident);
      counted.push_back(samples_[s].counted);
    }
    out.push_back({samples_[from].seconds, samples_[to - 1].seconds, median(in_use), median(resident), median(counted),
                   *std::max_element(in_use.begin(), in_use.end()),
                   *std::max_element(resident.begin(), resident.end())});
  }
  return out;
}

std::string Memory::problem(double seconds) const {
  if (seconds < kLeastSeconds) return {};
  const std::size_t first = first_full();
  if (first == samples_.size() || samples_[first].seconds > seconds / 4 * 3)
    return "memory cannot be judged: what is kept for later requests did not meet its limits in three quarters of the "
           "time; expected more seconds, or a faster machine";
  const std::vector<Part> all = parts(first);
  if (all.empty()) return "memory cannot be judged: the server was asked too seldom";
  return growth("memory in use", all.back().in_use - all.front().in_use, kUseMayGrow) +
         growth("resident memory", all.back().resident - all.front().resident, kResidentMayGrow);
}

std::string Memory::text() const {
  const bool is_judged = first_full() < samples_.size();
  std::string out = is_judged ? "memory, from when what is kept had met its limits:\n"
                              : "memory, while what is kept had not met its limits:\n";
  for (const Part& part : parts(is_judged ? first_full() : 0)) {
    char line[200];
    std::snprintf(line, sizeof line,
                  "  %3.0f to %3.0f s: in use %.1f MB (at most %.1f), resident %.1f MB (at most %.1f); and %.1f MB of "
                  "what is kept\n",
                  part.from, part.to, part.in_use / 1e6, part.most_in_use / 1e6, part.resident / 1e6,
                  part.most_resident / 1e6, part.counted / 1e6);
    out += line;
  }
  return out;
}

}  // namespace lockstep::load
