#include "cli/cache.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/memory_plan.h"
#include "engine/disk_files.h"
#include "engine/disk_format.h"

namespace lockstep {
namespace {

constexpr double kLockSeconds = 10;

using Key = std::pair<std::uint64_t, std::uint64_t>;  // fingerprint, key

std::map<Key, StateFile> segments_of(const std::vector<StateFile>& files) {
  std::map<Key, StateFile> segments;
  for (const StateFile& file : files)
    if (file.name.kind == StateKind::segment) segments[{file.name.fingerprint, file.name.key}] = file;
  return segments;
}

/// How many segments a tail follows; nothing if one is missing.
std::optional<std::size_t> chain_length(const StateName& tail, const std::map<Key, StateFile>& segments) {
  std::size_t length = 0;
  for (std::uint64_t parent = tail.parent; parent != 0; ++length) {
    const auto found = segments.find({tail.fingerprint, parent});
    if (found == segments.end() || length > segments.size()) return std::nullopt;
    parent = found->second.name.parent;
  }
  return length;
}

/// The whole of a file with all checksums, or only its header. Nothing if the file is gone.
std::optional<StateLayout> read(const std::filesystem::path& directory, const StateName& name, bool is_whole) {
  const std::filesystem::path path = directory / file_name(name);
  const std::optional<StateReader> reader = StateReader::open(path);
  if (!reader) return std::nullopt;
  std::vector<std::byte> bytes(is_whole ? reader->bytes()
                                        : std::min<std::uint64_t>(reader->bytes(), kStateHeaderBytes));
  reader->read(bytes);
  const StateLayout layout = decode_header(bytes, reader->bytes(), name, path.string());
  if (is_whole) {
    decode_tokens(std::span<const std::byte>(bytes).subspan(kStateHeaderBytes), layout, path.string());
    decode_parts(bytes, layout, path.string());
  }
  return layout;
}

std::uint64_t total_bytes(const std::vector<StateFile>& files) {
  std::uint64_t bytes = 0;
  for (const StateFile& file : files) bytes += file.bytes;
  return bytes;
}

std::string time_text(std::int64_t ns) {
  const std::chrono::sys_time<std::chrono::seconds> time{std::chrono::seconds(ns / 1'000'000'000)};
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

struct CacheCommand {
  std::string directory;
  std::string bytes;
};

}  // namespace

int run_cache_list(const std::filesystem::path& directory, std::ostream& out) {
  std::vector<StateFile> files = list_states(directory);
  const std::map<Key, StateFile> segments = segments_of(files);
  std::stable_sort(files.begin(), files.end(),
                   [](const StateFile& a, const StateFile& b) { return a.used_ns > b.used_ns; });
  fmt::print(out, "{:<16} {:<16} {:>8} {:>8} {:>10}  {:<16}  {}\n", "model", "state", "tokens", "segments", "own bytes",
             "used (UTC)", "");
  std::size_t states = 0;
  for (const StateFile& file : files) {
    if (file.name.kind != StateKind::tail) continue;
    std::string tokens = "?", remark;
    try {
      const std::optional<StateLayout> layout = read(directory, file.name, false);
      if (!layout) continue;
      tokens = std::to_string(layout->header.end);
      if (layout->logits > 0) remark = "with logits";
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::bad_file) throw;
      remark = "damaged";
    }
    const std::optional<std::size_t> chain = chain_length(file.name, segments);
    if (!chain) remark += remark.empty() ? "a segment is missing" : ", a segment is missing";
    fmt::print(out, "{:016x} {:016x} {:>8} {:>8} {:>10}  {:<16}  {}\n", file.name.fingerprint, file.name.key, tokens,
               chain ? std::to_string(*chain) : "?", human_bytes(file.bytes), time_text(file.used_ns), remark);
    ++states;
  }
  fmt::print(out, "{} states, {} segments, {}\n", states, segments.size(), human_bytes(total_bytes(files)));
  return 0;
}

int run_cache_verify(const std::filesystem::path& directory, std::ostream& out) {
  const std::vector<StateFile> files = list_states(directory);
  const std::map<Key, StateFile> segments = segments_of(files);
  std::size_t damaged = 0, incomplete = 0;
  for (const StateFile& file : files) {
    try {
      if (!read(directory, file.name, true)) continue;
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::bad_file) throw;
      ++damaged;
      fmt::print(out, "{}\n", error.what());
      continue;
    }
    if (file.name.kind == StateKind::segment || chain_length(file.name, segments)) continue;
    ++incomplete;
    fmt::print(out, "{}: of no use, a segment is missing\n", (directory / file_name(file.name)).string());
  }
  fmt::print(out, "{} files, {} read; {} damaged, {} of no use\n", files.size(), human_bytes(total_bytes(files)),
             damaged, incomplete);
  return damaged == 0 ? 0 : 1;
}

int run_cache_prune(const std::filesystem::path& directory, std::uint64_t bytes, std::ostream& out) {
  static_cast<void>(list_states(directory));  // before a lock is made in what is no such directory
  const auto lock = DirectoryLock::take(directory, DirectoryLock::How::alone, kLockSeconds);
  if (!lock)
    throw Error(Error::Kind::io,
                fmt::format("{}: others have been writing for {} seconds, expected a pause to make room in",
                            directory.string(), kLockSeconds));
  remove_unfinished(directory);
  const std::vector<StateFile> files = list_states(directory);
  std::uint64_t removed = 0, removed_bytes = 0;
  for (const StateFile& file : choose_victims(files, bytes, [](const StateName&) { return false; })) {
    std::error_code error;
    if (!std::filesystem::remove(directory / file_name(file.name), error) && error)
      throw Error(Error::Kind::io,
                  fmt::format("{}: cannot remove: {}", (directory / file_name(file.name)).string(), error.message()));
    ++removed;
    removed_bytes += file.bytes;
  }
  fmt::print(out, "{} files removed, {}; {} files left, {}\n", removed, human_bytes(removed_bytes),
             files.size() - removed, human_bytes(total_bytes(files) - removed_bytes));
  return 0;
}

void add_cache(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("cache", "States of sequences that servers keep on disk: list, check, make room");
  command->require_subcommand(1);
  const auto options = std::make_shared<CacheCommand>();
  const auto add = [&](const char* name, const char* what) {
    CLI::App* action = command->add_subcommand(name, what);
    action->add_option("DIR", options->directory, "The directory, as given to --cache-dir")->required();
    return action;
  };
  add("ls", "The states that are kept")->callback([&run, options] {
    run = [options] { return run_cache_list(options->directory, std::cout); };
  });
  add("verify", "Read every file and check every checksum")->callback([&run, options] {
    run = [options] { return run_cache_verify(options->directory, std::cout); };
  });
  CLI::App* prune = add("prune", "Remove the least recently used states");
  prune->add_option("--bytes", options->bytes, "What may stay, such as 20GB")->required();
  prune->callback([&run, options] {
    run = [options] { return run_cache_prune(options->directory, bytes_from(options->bytes, "--bytes"), std::cout); };
  });
}

}  // namespace lockstep
