// How much memory there is: the machine's, or what a control group leaves of it, from files written by hand.
#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "gguf_build.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct SystemFile {
  const char* path;
  const char* text;
};

void write_system(const fs::path& root, const std::vector<SystemFile>& files) {
  for (const SystemFile& file : files) {
    fs::create_directories((root / file.path).parent_path());
    std::ofstream(root / file.path) << file.text;
  }
}

const SystemFile kMachine = {"proc/meminfo", "MemFree: 1 kB\nMemTotal:       1000 kB\nMemAvailable: 2 kB\n"};

TEST(MemoryLimit, IsTheLeastOfTheMachineAndItsGroups) {
  const struct {
    const char* name;
    std::vector<SystemFile> files;
    std::uint64_t bytes;
    const char* source;
  } cases[] = {
      {"no groups", {kMachine}, 1024000, "this machine has"},
      {"no limit in version 2",
       {kMachine, {"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/memory.max", "max\n"}},
       1024000,
       "this machine has"},
      {"version 2",
       {kMachine, {"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/memory.max", "5000\n"}},
       5000,
       "the control group allows"},
      {"the group around it is smaller",
       {kMachine,
        {"proc/self/cgroup", "0::/a/b\n"},
        {"sys/fs/cgroup/a/b/memory.max", "5000\n"},
        {"sys/fs/cgroup/a/memory.max", "4000\n"}},
       4000,
       "the control group allows"},
      {"in a container the mount's top is the group",
       {kMachine, {"proc/self/cgroup", "0::/host/only\n"}, {"sys/fs/cgroup/memory.max", "3000\n"}},
       3000,
       "the control group allows"},
      {"more than the machine has",
       {kMachine, {"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/memory.max", "9999999999\n"}},
       1024000,
       "this machine has"},
      {"version 1",
       {kMachine,
        {"proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/a\n0::/\n"},
        {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000\n"}},
       2000,
       "the control group allows"},
      {"version 1, no limit",
       {kMachine,
        {"proc/self/cgroup", "4:memory:/a\n"},
        {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"}},
       1024000,
       "this machine has"},
      {"another controller's limit is none of memory's",
       {kMachine, {"proc/self/cgroup", "4:notmemory:/a\n"}, {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000\n"}},
       1024000,
       "this machine has"},
      {"lines that are no groups", {kMachine, {"proc/self/cgroup", "nonsense\n:\n"}}, 1024000, "this machine has"},
  };
  for (const auto& c : cases) {
    const test::TempFolder folder;
    write_system(folder.path(), c.files);
    const MemoryLimit limit = memory_limit(folder.path());
    EXPECT_EQ(limit.bytes, c.bytes) << c.name;
    EXPECT_EQ(limit.source, c.source) << c.name;
  }
}

TEST(MemoryLimit, AMachineThatDoesNotSayIsAnError) {
  const test::TempFolder folder;
  EXPECT_THROW(memory_limit(folder.path()), Error);
  write_system(folder.path(), {{"proc/meminfo", "MemTotal: much\n"}});
  EXPECT_THROW(memory_limit(folder.path()), Error);
}

TEST(MemoryLimit, ThisMachineHasSome) { EXPECT_GT(memory_limit().bytes, std::uint64_t{64} << 20); }

}  // namespace
}  // namespace lockstep
