// `--split`: the output in parts, of which each has a greatest size.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// --split, in GB (10^9 bytes); 0: one file.
void add_split_option(CLI::App& command, double& gigabytes);

/// The bytes of a part. A tensor is not cut, so a part must hold the largest one: `name`, of `largest` bytes.
/// Throws Error::bad_argument naming the option and what it would take.
std::uint64_t part_bytes_of(double gigabytes, std::string_view name, std::uint64_t largest);

}  // namespace lockstep
