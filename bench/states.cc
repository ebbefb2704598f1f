// How fast a large state comes back from the disk, against a plain read of the same files. The geometry is the real
// model's; the bytes are made up, for nothing computes with them.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/disk_cache.h"
#include "engine/synth.h"
#include "ops/ops.h"

namespace {

using namespace lockstep;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<std::filesystem::path> files_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  return files;
}

/// Has the system forget what it holds of the files, so that the next read comes from the disk.
void forget(const std::filesystem::path& directory) {
  for (const auto& file : files_of(directory)) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    ::fsync(descriptor);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }
}

double plain_read(const std::filesystem::path& directory, double& bytes) {
  std::vector<char> buffer(std::size_t{8} << 20);
  bytes = 0;
  const double began = now();
  for (const auto& file : files_of(directory)) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (ssize_t n; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;) bytes += static_cast<double>(n);
    ::close(descriptor);
  }
  return now() - began;
}

int run(int argc, char** argv) {
  CLI::App app("Restoring a large state from the disk");
  std::filesystem::path directory;
  int length = 100'000;
  app.add_option("DIRECTORY", directory, "a new one; its files are removed at the end")->required();
  app.add_option("--tokens", length);
  CLI11_PARSE(app, argc, argv);
  SynthOptions synth;
  synth.preset = "flash";
  const Config config = plan_synth(synth).config;
  const auto ops = make_reference_ops();
  std::mt19937_64 random(1);
  const auto noise = [&](std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random() & 0xff);
    return out;
  };
  std::vector<Token> tokens(static_cast<std::size_t>(length));
  for (Token& token : tokens) token = static_cast<Token>(random() % 100'000);
  SequenceCache state(config, Mode::official, *ops);
  for (Position at = 0; at < length;) {
    const Position to = std::min<Position>(length, at + 2048);
    state.restore_rows(to, noise(SequenceCache::rows_bytes(config, Mode::official, at, to)));
    at = to;
  }
  state.restore_rings(length - kSlack,
                      noise(SequenceCache::rings_bytes(config, Mode::official, length - kSlack, length)));
  DiskCacheOptions options;
  options.directory = directory;
  options.budget_bytes = std::uint64_t{1} << 40;
  options.note = [](const std::string& note) { std::fprintf(stderr, "%s\n", note.c_str()); };
  const double began = now();
  {
    DiskCache cache(options);
    while (!cache.put(tokens, state, {})) cache.flush();
  }
  const double written = now() - began;
  tokens.push_back(1);
  double bytes = 0;
  for (const bool is_cold : {true, false}) {
    double plain = 1e300, restored = 1e300;
    for (int k = 0; k < 3; ++k) {
      if (is_cold) forget(directory);
      plain = std::min(plain, plain_read(directory, bytes));
      if (is_cold) forget(directory);
      DiskCache cache(options);
      if (is_cold) forget(directory);
      const double start = now();
      const auto found = cache.restore(tokens, 0, [&] { return SequenceCache(config, Mode::official, *ops); });
      restored = std::min(restored, now() - start);
      if (!found || found->reused != static_cast<std::size_t>(length))
        throw Error(Error::Kind::io, "the state was not restored");
      if (k == 0 && is_cold && found->cache.contents() != state.contents())
        throw Error(Error::Kind::io, "another state was restored");
    }
    if (is_cold)
      std::printf("%d tokens, %.2f GB, written and on the disk in %.2f s (%.2f GB/s)\n", length, bytes / 1e9, written,
                  bytes / 1e9 / written);
    std::printf("%s: restored in %.3f s (%.2f GB/s), a plain read %.3f s (%.2f GB/s)\n",
                is_cold ? "from the disk" : "from the system's memory", restored, bytes / 1e9 / restored, plain,
                bytes / 1e9 / plain);
  }
  for (const auto& file : files_of(directory)) std::filesystem::remove(file);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
