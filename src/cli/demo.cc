#include "cli/demo.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace lockstep {

namespace fs = std::filesystem;

std::vector<fs::path> demo_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path().parent_path() / "share/lockstep/demo");
  folders.emplace_back(LOCKSTEP_DEMO_FOLDER);
  return folders;
}

fs::path find_demo(std::string_view name, const std::vector<fs::path>& folders, std::string_view what) {
  std::string looked;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / name;
    std::error_code error;
    if (fs::exists(path, error)) return path;
    looked += (looked.empty() ? "" : " and ") + path.string();
  }
  throw Error(Error::Kind::bad_argument, std::string(what) +
                                             ": not given, and there is no demo in its place (looked at " + looked +
                                             "), expected one of them");
}

std::vector<fs::path> demo_suites(const std::vector<fs::path>& folders) {
  const fs::path folder = find_demo(kDemoPrompts, folders, "--suite");
  std::vector<fs::path> suites;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".jsonl") suites.push_back(entry->path());
  if (error) throw Error(Error::Kind::io, folder.string() + ": " + error.message());
  if (suites.empty())
    throw Error(Error::Kind::bad_argument, folder.string() + ": no suite in it, expected .jsonl files");
  std::sort(suites.begin(), suites.end());  // a folder has no order
  return suites;
}

}  // namespace lockstep
