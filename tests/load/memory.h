// Whether a server's memory stays the same under load: a judgement over what /metrics said from time to time.
//
// Memory that is kept for later requests grows until it meets a limit, so the judging begins when those limits are met:
// the prefix cache drops states, and as many responses are kept as may be. What is still counted by the server as
// growing within a limit (the prefix cache, sampled turns) is taken off. What is left is that of running answers and of
// connections, which goes up and down with what runs, so medians are compared: those of four equal parts of the time.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::load {

class Memory {
 public:
  using Metrics = std::map<std::string, double>;  // of /metrics, by name

  /// `seconds` since the load began; in their order. Throws std::out_of_range if the server does not tell a metric.
  void add(double seconds, const Metrics& metrics);

  /// What is wrong after `seconds` of load, in words; empty if nothing is. Less than kLeastSeconds are not judged.
  std::string problem(double seconds) const;
  /// What was seen, a line for each part of the time.
  std::string text() const;

  static constexpr double kLeastSeconds = 60;
  // A leak of half a kilobyte an answer, at 30 answers a second, is 2 MB in two minutes.
  static constexpr double kUseMayGrow = 2e6;
  static constexpr double kResidentMayGrow = 6e6;  // with holes between what is in use

 private:
  struct Sample {
    double seconds, in_use, resident;  // without `counted`
    double counted;                    // bytes that are kept within limits
    bool is_full;                      // those limits are met that are not counted in bytes
  };
  static constexpr std::size_t kParts = 4;

  /// Where judging begins; samples_.size() if never.
  std::size_t first_full() const;
  struct Part {
    double from, to, in_use, resident, counted, most_in_use, most_resident;  // bytes are medians but for the most
  };
  std::vector<Part> parts(std::size_t first) const;

  std::vector<Sample> samples_;
};

}  // namespace lockstep::load
