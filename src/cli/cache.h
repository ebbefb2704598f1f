// `lockstep cache`: what a directory of kept states holds, whether it is sound, and making it smaller. Needs no model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>

namespace lockstep {

/// One line a state, the one used last first, and a line of totals. Returns 0. Throws Error::io.
int run_cache_list(const std::filesystem::path& directory, std::ostream& out);

/// Reads every file and says which are damaged and which states lack a segment. Changes nothing. Returns 1 if any file
/// is damaged. Throws Error::io.
int run_cache_verify(const std::filesystem::path& directory, std::ostream& out);

/// Removes what was left half written and, the least recently used states first, as much as has to go so that the rest
/// takes `bytes` at most. May be used while servers have the directory open. Returns 0. Throws Error::io.
int run_cache_prune(const std::filesystem::path& directory, std::uint64_t bytes, std::ostream& out);

}  // namespace lockstep
