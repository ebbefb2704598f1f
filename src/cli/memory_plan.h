// What a model will need in memory, said before it is loaded, and refused where that cannot fit: a process that runs
// out of memory later is killed, or drags the machine into swapping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/memory_limit.h"
#include "engine/engine.h"

namespace lockstep {

/// "11.24 MB"
std::string human_bytes(std::uint64_t bytes);

/// "512MB", "1.5GiB", "0". Throws Error::bad_argument naming `option`.
std::uint64_t bytes_from(std::string_view text, std::string_view option);
/// Nothing for "auto".
std::optional<std::uint64_t> bytes_or_auto(std::string_view text, std::string_view option);

/// What a back end's models may take: of this machine's memory, or of a device's what is free.
MemoryLimit memory_limit_of(const DeviceState& device);

/// One line: the parts of the plan, their sum, and what there is, if that is known.
std::string plan_text(const MemoryPlan& plan, const std::optional<MemoryLimit>& limit);

/// Throws Error::no_memory, with what would help, if the plan and `others` bytes of models already loaded do not fit.
/// `name` is the model's.
void check_plan(const MemoryPlan& plan, std::uint64_t others, const MemoryLimit& limit, const std::string& name);

}  // namespace lockstep
