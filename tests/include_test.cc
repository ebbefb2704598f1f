// Holds the house rules that a compiler does not: which way includes point, who may read the environment, which
// compiler flags are banned, and how long a file may be. The rules are the table of docs/architecture.md; they are
// tried on made-up files first, so that a rule which no longer finds anything is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

constexpr int kMostLines = 800;

/// Modules that a module may include, besides itself.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"base", {}},
    {"numerics", {"base"}},
    {"tensor", {"base", "numerics"}},
    {"ops", {"base", "numerics", "tensor"}},
    {"cpu", {"base", "numerics", "tensor", "ops"}},
    {"gpu", {"base", "numerics", "tensor", "ops"}},
    {"model", {"base", "numerics", "tensor", "ops"}},
    {"text", {"base"}},
    {"engine", {"base", "numerics", "tensor", "ops", "model", "text", "cpu", "gpu"}},
    {"server", {"base", "numerics", "tensor", "ops", "model", "text", "cpu", "gpu", "engine"}},
    {"cli", {"base", "numerics", "tensor", "ops", "model", "text", "cpu", "gpu", "engine", "server"}},
};

// Each of them lets a compiler add in another order, drop a rounding, or call a vendor's approximation.
const char* const kBannedFlags[] = {"-ffast-math",
                                    "-Ofast",
                                    "-funsafe-math-optimizations",
                                    "-fassociative-math",
                                    "-freciprocal-math",
                                    "-ffp-contract=fast",
                                    "-ffp-contract=on",
                                    "-ffinite-math-only",
                                    "-fno-signed-zeros",
                                    "use_fast_math",
                                    "--fmad=true",
                                    "-ftz=true",
                                    "-prec-div=false",
                                    "-prec-sqrt=false",
                                    "-fgpu-approx-transcendentals",
                                    "-fgpu-flush-denormals-to-zero"};

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

bool is_source(const std::string& path) { return ends_with_any(path, {".cc", ".h", ".cu", ".cuh", ".inl"}); }

std::string module_of(const std::string& path) {
  const std::string below_src = path.substr(4);  // after "src/"
  return below_src.substr(0, below_src.find('/'));
}

/// What is wrong with the includes of one file of src/.
void check_includes(const std::string& path, const std::string& text, Strings& wrong) {
  const std::string module = module_of(path);
  if (!kBelow.contains(module)) {
    wrong.push_back(path + ": " + module + " is not a module of the table");
    return;
  }
  static const std::regex include("^[ \t]*#[ \t]*include[ \t]*\"([^\"]*)\"");
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string included = match[1];
    const std::string place = path + ":" + std::to_string(number) + ": ";
    const std::string target = included.substr(0, included.find('/'));
    if (included.find('/') == std::string::npos || !kBelow.contains(target)) {
      wrong.push_back(place + included + " is not of the form module/file.h");
    } else if (target != module && !kBelow.at(module).contains(target)) {
      wrong.push_back(place + module + " must not include " + included);
    } else if (module == "numerics" && path.ends_with(".h") && target != module) {
      wrong.push_back(place + "a header of numerics must stand alone, for devices, but includes " + included);
    }
  }
}

/// Of the standard library, what clang makes HIP code from without CUDA's wrappers: <algorithm>, for one, it does not.
void check_device_includes(const std::string& path, const std::string& text, Strings& wrong) {
  static const std::set<std::string> known = {"bit", "cstddef", "cstdint", "type_traits"};
  static const std::regex include("(^|\n)[ \t]*#[ \t]*include[ \t]*<([^>]*)>");
  for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at)
    if (!known.contains((*at)[2]))
      wrong.push_back(path + ": device code must not include <" + std::string((*at)[2]) + ">");
}

/// What is wrong with one file of the tree; `path` is relative to its root.
Strings violations(const std::string& path, const std::string& text) {
  Strings wrong;
  const bool source = is_source(path);
  if (source && path.starts_with("src/")) {
    check_includes(path, text, wrong);
    if (path.ends_with(".cu")) check_device_includes(path, text, wrong);
    if (path != "src/cli/options.cc" && std::regex_search(text, std::regex("\\bgetenv[ \t]*\\(")))
      wrong.push_back(path + ": reads the environment, which only src/cli/options.cc may");
  }
  if (source && std::count(text.begin(), text.end(), '\n') > kMostLines)
    wrong.push_back(path + ": longer than " + std::to_string(kMostLines) + " lines");
  if (!source) {
    for (const char* flag : kBannedFlags)
      if (text.find(flag) != std::string::npos) wrong.push_back(path + ": uses the banned flag " + flag);
  }
  return wrong;
}

/// Files of the tree that are read: sources, and whatever sets compiler flags.
Strings tree_files(const fs::path& root) {
  Strings files;
  for (const char* folder : {"src", "tests", "bench", "tools", "cmake"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (entry.is_regular_file() && !path.starts_with("tests/data/") && !path.starts_with("tests/fuzz/corpus/") &&
          (is_source(path) || ends_with_any(path, {"CMakeLists.txt", ".cmake"})))
        files.push_back(path);
    }
  }
  files.push_back("CMakeLists.txt");
  files.push_back("CMakePresets.json");
  std::sort(files.begin(), files.end());
  return files;
}

std::string joined(const Strings& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(House, EachRuleFindsWhatItForbids) {
  const std::string many(kMostLines + 1, '\n');
  const struct {
    const char* name;
    std::string path, text, found;
  } kCases[] = {
      {"a module includes itself", "src/ops/a.cc", "#include \"ops/ops.h\"\n", ""},
      {"a module includes one below", "src/model/a.cc", "#include \"ops/ops.h\"\n", ""},
      {"system headers are not looked at", "src/base/a.cc", "#include <model/x.h>\n", ""},
      {"base includes nothing above", "src/base/a.h", "#include \"numerics/order.h\"\n",
       "src/base/a.h:1: base must not include numerics/order.h"},
      {"model names no back end", "src/model/a.cc", "\n#include \"cpu/level.h\"\n",
       "src/model/a.cc:2: model must not include cpu/level.h"},
      {"nor the GPU", "src/model/a.cc", "#include \"gpu/ops.h\"\n",
       "src/model/a.cc:1: model must not include gpu/ops.h"},
      {"back ends do not know the model", "src/cpu/a.cc", "#include \"model/config.h\"\n",
       "src/cpu/a.cc:1: cpu must not include model/config.h"},
      {"nor each other", "src/gpu/a.cc", "#include \"cpu/level.h\"\n",
       "src/gpu/a.cc:1: gpu must not include cpu/level.h"},
      {"text knows base only", "src/text/a.cc", "#include \"tensor/gguf.h\"\n",
       "src/text/a.cc:1: text must not include tensor/gguf.h"},
      {"an indented include counts", "src/base/a.cc", "  #  include \"text/bpe.h\"\n",
       "src/base/a.cc:1: base must not include text/bpe.h"},
      {"includes are rooted at src", "src/ops/a.cc", "#include \"rows.h\"\n",
       "src/ops/a.cc:1: rows.h is not of the form module/file.h"},
      {"sources of numerics may throw", "src/numerics/a.cc", "#include \"base/error.h\"\n", ""},
      {"its headers stand alone", "src/numerics/a.h", "#include \"base/error.h\"\n",
       "src/numerics/a.h:1: a header of numerics must stand alone, for devices, but includes base/error.h"},
      {"a folder is in the table", "src/misc/a.cc", "", "src/misc/a.cc: misc is not a module of the table"},
      {"device code takes little of the standard library", "src/gpu/a.cu", "#include <bit>\n#include <algorithm>\n",
       "src/gpu/a.cu: device code must not include <algorithm>"},
      {"which host code may take", "src/gpu/a.cc", "#include <algorithm>\n", ""},
      {"the environment is closed", "src/engine/a.cc", "std::getenv(\"X\");\n",
       "src/engine/a.cc: reads the environment, which only src/cli/options.cc may"},
      {"but for the options", "src/cli/options.cc", "std::getenv(\"X\");\n", ""},
      {"fast math is not asked for", "src/cpu/CMakeLists.txt", "-Ofast",
       "src/cpu/CMakeLists.txt: uses the banned flag -Ofast"},
      {"saying no to it is fine", "cmake/a.cmake", "-fno-fast-math -ffp-contract=off", ""},
      {"files end", "tests/a_test.cc", many, "tests/a_test.cc: longer than 800 lines"},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(joined(violations(c.path, c.text)), c.found.empty() ? "" : c.found + "\n") << c.name;
}

TEST(House, TheTreeKeepsTheRules) {
  const fs::path root = LOCKSTEP_SOURCE_DIR;
  const Strings files = tree_files(root);
  ASSERT_GT(files.size(), 50u);
  Strings wrong;
  for (const std::string& file : files) {
    if (file == "tests/include_test.cc") continue;  // it quotes what it looks for
    const Strings found = violations(file, read_text(root / file));
    wrong.insert(wrong.end(), found.begin(), found.end());
  }
  EXPECT_EQ(joined(wrong), "");
}

TEST(House, ModulesLinkOnlyWhatTheyMayInclude) {
  const fs::path root = LOCKSTEP_SOURCE_DIR;
  const std::regex module_call("lockstep_module\\(\\s*(\\w+)([^)]*)\\)");
  for (const auto& [module, below] : kBelow) {
    const fs::path path = root / "src" / module / "CMakeLists.txt";
    if (!fs::exists(path)) continue;
    const std::string text = read_text(path);
    std::smatch call;
    ASSERT_TRUE(std::regex_search(text, call, module_call)) << path;
    EXPECT_EQ(call[1], module) << path;
    std::istringstream words(call[2]);
    bool in_uses = false;
    for (std::string word; words >> word;) {
      if (word == "USES" || word == "SOURCES" || word == "LIBRARIES") {
        in_uses = word == "USES";
      } else if (in_uses) {
        EXPECT_TRUE(below.contains(word)) << path << ": " << module << " must not use " << word;
      }
    }
  }
}

TEST(House, EveryFileOfSrcIsCompiledWithoutContraction) {
  const auto commands = nlohmann::json::parse(read_text(LOCKSTEP_COMPILE_COMMANDS));
  const std::string src = std::string(LOCKSTEP_SOURCE_DIR) + "/src/";
  int seen = 0;
  for (const auto& entry : commands) {
    const std::string file = entry.at("file");
    if (!file.starts_with(src)) continue;
    const std::string command = entry.at("command");
    const bool device = file.ends_with(".cu");
    EXPECT_NE(command.find(device ? "--fmad=false" : "-ffp-contract=off"), std::string::npos) << file;
    for (const char* flag : kBannedFlags) EXPECT_EQ(command.find(flag), std::string::npos) << file << ": " << flag;
    ++seen;
  }
  EXPECT_GT(seen, 20);
}

}  // namespace
}  // namespace lockstep
