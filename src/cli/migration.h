// For people who come from lucebox's DS4 path: its environment variables, and what takes their place. Lockstep reads
// none of them; it names those that are set, so that nobody believes they do something. docs/migration.md has the same
// table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Migration {
  std::string_view variable;  // one that ends in * stands for all that begin so
  std::string_view instead;   // the option that replaces it, or why none is needed
};

std::span<const Migration> migration_table();

/// One line a variable that belongs to that program, in the order given; other variables are passed over.
std::vector<std::string> migration_notes(std::span<const std::string> variables);

}  // namespace lockstep
