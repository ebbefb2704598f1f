// Ids that nobody can guess and that never come twice: they name responses and calls, and are keys of the replay map.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// `prefix` and `digits` base-62 digits from the system's generator. Throws Error::io if it gives none.
std::string random_id(std::string_view prefix, int digits = 24);

std::uint64_t random_seed();

}  // namespace lockstep
