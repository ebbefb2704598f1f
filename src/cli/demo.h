// Where the demo model and what belongs to it lie. It is what runs when no MODEL is named.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view kDemoModel = "lockstep-demo.gguf";
inline constexpr std::string_view kDemoPrompts = "prompts";  // a folder of suites (docs/eval.md)

/// The folders that may hold them, in the order in which they are looked at: share/lockstep/demo of the tree that this
/// program is installed in, then demo/ of the source tree that it was built from.
std::vector<std::filesystem::path> demo_folders();

/// The first of the folders' entries of that name that is there. Throws Error::bad_argument naming `what` ("MODEL") as
/// not given and every path that was looked at.
std::filesystem::path find_demo(std::string_view name, const std::vector<std::filesystem::path>& folders,
                                std::string_view what);

/// Its suites, every .jsonl file of the folder of prompts, by name.
std::vector<std::filesystem::path> demo_suites(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep
