#include "engine/state_fingerprint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "engine/disk_files.h"
#include "engine/law_check.h"

namespace lockstep {
namespace {

constexpr std::size_t kRemembered = 64;                      // files
constexpr std::uint64_t kLongRead = std::uint64_t{4} << 30;  // bytes that are worth a word
constexpr double kSettledSeconds = 2;  // a file changed since then may change again within one tick of its times
constexpr const char* kList = "known-weights";
constexpr std::uint64_t kListBytes = 1 << 20;  // at most: a line is a path and some numbers
constexpr double kListLockSeconds = 2;         // to wait for somebody who makes room

std::uint64_t hash_text(std::string_view text) { return hash_bytes(std::as_bytes(std::span(text))); }

/// What a file is known by: it does not survive any change of the file.
struct Identity {
  std::string text;
  std::uint64_t bytes = 0;
  bool is_settled = false;
};

Identity identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw Error(Error::Kind::io, fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return {fmt::format("{} {} {} {} {}", status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim),
                      status.st_ino, std::filesystem::absolute(path).string()),
          static_cast<std::uint64_t>(status.st_size),
          now - static_cast<double>(status.st_ctim.tv_sec) > kSettledSeconds};
}

// Lines are "CHECK HASH IDENTITY": CHECK is the hash of the rest, because two processes may write the list at once.
std::string list_line(std::uint64_t hash, const std::string& identity) {
  const std::string rest = fmt::format("{:016x} {}", hash, identity);
  return fmt::format("{:016x} {}", hash_text(rest), rest);
}

bool is_whole(std::string_view line) {
  return line.size() > 34 && fmt::format("{:016x}", hash_text(line.substr(17))) == line.substr(0, 16);
}

/// The list's lines, those that are damaged left out. Whatever is wrong with it is told and is no error.
std::vector<std::string> read_list(const std::filesystem::path& path,
                                   const std::function<void(const std::string&)>& note) {
  std::vector<std::string> lines;
  const auto tell = [&](const std::string& what) {
    if (note) note(fmt::format("cache: {}; what is not known of the model's files is read again", what));
  };
  try {
    const std::optional<StateReader> reader = StateReader::open(path);
    if (!reader) return lines;
    if (reader->bytes() > kListBytes)
      throw Error(Error::Kind::bad_file,
                  fmt::format("{}: {} bytes, expected at most {}", path.string(), reader->bytes(), kListBytes));
    std::string text(reader->bytes(), '\0');
    reader->read(std::as_writable_bytes(std::span(text)));
    std::size_t damaged = 0;
    for (std::size_t from = 0, to; from < text.size(); from = to + 1) {
      to = std::min(text.find('\n', from), text.size());
      const std::string line = text.substr(from, to - from);
      if (is_whole(line))
        lines.push_back(line);
      else
        ++damaged;
    }
    if (damaged > 0) tell(fmt::format("{}: {} damaged lines", path.string(), damaged));
  } catch (const Error& error) {
    tell(error.what());
  }
  return lines;
}

void write_list(const std::filesystem::path& path, std::span<const std::string> lines) {
  const std::filesystem::path directory = path.parent_path();
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  try {
    std::error_code ignored;  // if there can be no directory, there can be no file in it
    std::filesystem::create_directories(directory, ignored);
    // Nobody takes the unfinished file for one that was left behind.
    const auto lock = DirectoryLock::take(directory, DirectoryLock::How::shared, kListLockSeconds);
    if (!lock) return;
    const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(text))};
    write_file(directory, path.filename().string(), pieces);
  } catch (const Error&) {
    // Then the files are read again the next time.
  }
}

/// `lines` is what is known of such files; what is found out is added, and kept in the directory.
std::uint64_t hash_of_file(const std::string& path, const std::filesystem::path& directory,
                           std::vector<std::string>& lines, const std::function<void(const std::string&)>& note) {
  const Identity identity = identity_of(path);
  for (const std::string& line : lines)
    if (std::string_view(line).substr(34) == identity.text) return std::stoull(line.substr(17, 16), nullptr, 16);
  if (note && identity.bytes >= kLongRead)
    note(fmt::format("cache: reading {:.1f} GB of {} once, to know it again", static_cast<double>(identity.bytes) / 1e9,
                     path));
  const std::uint64_t hash = hash_bytes(MappedFile(path).bytes());
  if (!identity.is_settled || identity.text.find('\n') != std::string::npos) return hash;
  lines.push_back(list_line(hash, identity.text));
  if (lines.size() > kRemembered) lines.erase(lines.begin(), lines.end() - std::ptrdiff_t{kRemembered});
  write_list(directory / kList, lines);
  return hash;
}

void add_dtypes(Hasher& hasher, const Weights& weights) {
  const auto add = [&](const Weight& weight) { hasher.add_values(std::span<const DType>(&weight.dtype, 1)); };
  const auto add_experts = [&](const ExpertWeights& experts) {
    for (const Weight* weight : {&experts.gate, &experts.up, &experts.down}) add(*weight);
  };
  add(weights.embedding);
  add(weights.head);
  for (const LayerWeights& layer : weights.layers) {
    for (const Weight* weight : {&layer.query_a, &layer.query_b, &layer.kv, &layer.output_a, &layer.output_b,
                                 &layer.compressor.values, &layer.compressor.gates, &layer.key_compressor.values,
                                 &layer.key_compressor.gates, &layer.index_query, &layer.index_heads, &layer.router})
      add(*weight);
    add_experts(layer.experts);
    add_experts(layer.shared);
  }
}

}  // namespace

std::uint64_t state_fingerprint(const Engine& engine, const std::filesystem::path& directory,
                                const std::function<void(const std::string&)>& note) {
  Hasher hasher;
  for (const LawLine& line : golden_lines()) {
    const std::uint64_t values[] = {hash_text(line.name), line.hash};
    hasher.add_values(std::span<const std::uint64_t>(values));
  }
  const Mode mode = engine.mode();
  hasher.add_values(std::span<const Mode>(&mode, 1));
  add_dtypes(hasher, engine.weights());
  std::vector<std::string> known = read_list(directory / kList, note);
  for (std::size_t part = 0; part < engine.file().part_count(); ++part) {
    const std::uint64_t hash = hash_of_file(engine.file().part_name(part), directory, known, note);
    hasher.add_values(std::span<const std::uint64_t>(&hash, 1));
  }
  return hasher.value();
}

}  // namespace lockstep
