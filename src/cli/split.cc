#include "cli/split.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "cli/memory_plan.h"

namespace lockstep {
namespace {

constexpr double kMostGigabytes = 1e6;

}  // namespace

void add_split_option(CLI::App& command, double& gigabytes) {
  command.add_option("--split", gigabytes, "greatest size of one file, in GB (10^9 bytes); 0: one file")
      ->capture_default_str();
}

std::uint64_t part_bytes_of(double gigabytes, std::string_view name, std::uint64_t largest) {
  if (gigabytes == 0) return 0;
  if (!(gigabytes > 0 && gigabytes <= kMostGigabytes))  // nor is what is not a number
    throw Error(Error::Kind::bad_argument,
                fmt::format("--split {}: expected 0 or a size of at most {:g} GB", gigabytes, kMostGigabytes));
  const double bytes = std::floor(gigabytes * 1e9);
  if (bytes < static_cast<double>(largest))
    throw Error(Error::Kind::bad_argument,
                fmt::format("--split {}: parts of {}, and tensor {} alone has {}; expected at least {:.5f}", gigabytes,
                            human_bytes(static_cast<std::uint64_t>(bytes)), name, human_bytes(largest),
                            std::ceil(static_cast<double>(largest) / 1e4) / 1e5));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace lockstep
