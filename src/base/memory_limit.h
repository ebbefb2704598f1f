// How much memory this process may use: what the machine has, or less where a control group says so (containers,
// service managers). A container's process sees the whole machine in every other place, and is killed when it believes
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string source;  // "this machine has", "the control group allows"
};

/// The least of the machine's memory and the limits of the process's control groups (version 1 or 2) and of the groups
/// around them. Groups that cannot be read limit nothing. `root` is where /proc and /sys are found. Throws Error::io if
/// the machine's own memory cannot be read.
MemoryLimit memory_limit(const std::filesystem::path& root = "/");

}  // namespace lockstep
