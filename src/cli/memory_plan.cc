#include "cli/memory_plan.h"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace {

/// Nothing if it is no size.
std::optional<std::uint64_t> read_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  constexpr struct {
    std::string_view name;
    double bytes;
  } kUnits[] = {{"", 1},        {"b", 1},         {"kb", 1e3},          {"mb", 1e6},           {"gb", 1e9},
                {"tb", 1e12},   {"k", 1024},      {"kib", 1024},        {"m", 1 << 20},        {"mib", 1 << 20},
                {"g", 1 << 30}, {"gib", 1 << 30}, {"t", 1099511627776}, {"tib", 1099511627776}};
  for (const auto& known : kUnits)
    if (error == std::errc() && unit == known.name && value >= 0 && value * known.bytes < 1e18)
      return static_cast<std::uint64_t>(value * known.bytes);
  return std::nullopt;
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.2f} {}", value, unit);
}

std::uint64_t bytes_from(std::string_view text, std::string_view option) {
  if (const auto bytes = read_bytes(text)) return *bytes;
  throw Error(Error::Kind::bad_argument, fmt::format("{}: {}, expected a size as in 4GB, 512MiB or 0", option, text));
}

std::optional<std::uint64_t> bytes_or_auto(std::string_view text, std::string_view option) {
  if (text == "auto") return std::nullopt;
  if (const auto bytes = read_bytes(text)) return bytes;
  throw Error(Error::Kind::bad_argument,
              fmt::format("{}: {}, expected a size as in 4GB, 512MiB or 0, or auto", option, text));
}

MemoryLimit memory_limit_of(const DeviceState& device) {
  if (device.total_bytes == 0) return memory_limit();
  return {device.free_bytes, fmt::format("of {} the device has free", human_bytes(device.total_bytes))};
}

std::string plan_text(const MemoryPlan& plan, const std::optional<MemoryLimit>& limit) {
  std::string text =
      fmt::format("memory: {} of weights, {} for {} tokens, {} of workspace; {} in all", human_bytes(plan.weights),
                  human_bytes(plan.sequence), plan.context, human_bytes(plan.workspace), human_bytes(plan.total()));
  if (limit) text += fmt::format(", {} {}", limit->source, human_bytes(limit->bytes));
  return text;
}

void check_plan(const MemoryPlan& plan, std::uint64_t others, const MemoryLimit& limit, const std::string& name) {
  const std::uint64_t needed = plan.total() + others;
  if (needed <= limit.bytes) return;
  std::string message = fmt::format("{}: needs {}", name, human_bytes(needed));
  if (others > 0) message += fmt::format(" with the {} of the model beside it", human_bytes(others));
  message += fmt::format(", {} {}; expected ", limit.source, human_bytes(limit.bytes));
  const std::uint64_t least = plan.weights + plan.workspace + others;
  if (least < limit.bytes) {
    message += fmt::format("a context of fewer than {} tokens", plan.context);
  } else {
    message += "a smaller file, or more memory";
  }
  throw Error(Error::Kind::no_memory, message);
}

}  // namespace lockstep
