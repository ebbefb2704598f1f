#include "base/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_at_start(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;  // "max"
  return value;
}

std::uint64_t machine_bytes(const fs::path& root) {
  const fs::path path = root / "proc/meminfo";
  std::ifstream in(path);
  constexpr std::string_view kName = "MemTotal:";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(kName))
      if (const auto kilobytes = number_at_start(std::string_view(line).substr(kName.size()))) return *kilobytes * 1024;
  throw Error(Error::Kind::io, path.string() + ": no MemTotal in it, expected the memory of this machine");
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::string_view name = controllers.substr(0, controllers.find(','));
    if (name == "memory") return true;
    controllers.remove_prefix(std::min(controllers.size(), name.size() + 1));
  }
  return false;
}

/// The least limit of a group and of those around it, up to the mount. Inside a container the group's path may be that
/// of the host and not exist below the mount, whose top is then the container's own group.
void take_limits(const fs::path& mount, const fs::path& group, const char* file, MemoryLimit& limit) {
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    std::ifstream in(mount / at / file);
    std::string line;
    if (std::getline(in, line)) {
      const auto bytes = number_at_start(line);
      if (bytes && *bytes < limit.bytes) limit = {*bytes, "the control group allows"};
    }
    if (at.empty()) return;
  }
}

}  // namespace

MemoryLimit memory_limit(const fs::path& root) {
  MemoryLimit limit{machine_bytes(root), "this machine has"};
  const fs::path groups = root / "sys/fs/cgroup";
  // HIERARCHY:CONTROLLERS:PATH; version 2 has no controllers there.
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) take_limits(groups, group, "memory.max", limit);
    if (names_memory(controllers)) take_limits(groups / "memory", group, "memory.limit_in_bytes", limit);
  }
  return limit;
}

}  // namespace lockstep
