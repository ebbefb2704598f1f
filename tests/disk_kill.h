// A process that keeps states is killed while it writes, again and again. What it was told is kept must be there when
// the next one looks, the newest state aside; what is there must be whole; and nothing half written may stay.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "disk_cache_support.h"

namespace lockstep::test {

struct KillCounts {
  int rounds = 0;
  std::uint64_t accepted = 0, restored = 0, lost = 0;
};

/// Tokens of the i-th state of a round: of one segment and more, so that entries of several files are cut as well.
inline std::vector<Token> killed_tokens(int round, unsigned i) {
  return some_tokens(static_cast<unsigned>(round) * 1000 + i, 130 + 7 * (i % 40));
}

/// Empty, or what was wrong. The child says through a pipe which states were taken, before it goes on.
inline std::string kill_while_writing(const std::filesystem::path& directory, int rounds, unsigned seed,
                                      KillCounts& counts) {
  const TinyModel model;
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    int pipe[2];
    if (::pipe(pipe) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      Notes notes;
      DiskCache cache(disk_options(directory, notes));
      for (unsigned i = 0;; ++i) {
        const std::vector<Token> tokens = killed_tokens(round, i);
        if (cache.put(tokens, model.state(tokens), {}) && ::write(pipe[1], &i, sizeof i) != sizeof i) ::_exit(1);
      }
    }
    ::close(pipe[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 120'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    std::vector<unsigned> accepted;
    for (unsigned i = 0; ::read(pipe[0], &i, sizeof i) == sizeof i;) accepted.push_back(i);
    ::close(pipe[0]);
    if (!WIFSIGNALED(status)) return "round " + std::to_string(round) + ": the process ended by itself";
    const std::string where = "round " + std::to_string(round) + ": ";
    Notes notes;
    DiskCache cache(disk_options(directory, notes));
    for (std::size_t k = 0; k < accepted.size(); ++k) {
      std::vector<Token> tokens = killed_tokens(round, accepted[k]);
      const std::vector<std::byte> expected = model.state(tokens).contents();
      tokens.push_back(7);
      const auto found = cache.restore(tokens, 0, [&] { return model.empty(); });
      ++counts.accepted;
      if (!found) {
        ++counts.lost;
        if (k + 1 < accepted.size()) return where + "a state that was not the newest is lost";
        continue;
      }
      ++counts.restored;
      if (found->cache.contents() != expected) return where + "a state is another one";
    }
    if (!notes.all().empty()) return where + notes.text();
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
    for (const auto& file : files) {
      if (file.string().find("unfinished") != std::string::npos) return where + "left behind: " + file.string();
      if (round % 10 == 9 && file.filename() != "lock") std::filesystem::remove(file);
    }
    ++counts.rounds;
  }
  return {};
}

}  // namespace lockstep::test
