#include "engine/state_fingerprint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "engine/law_check.h"

namespace lockstep {
namespace {

constexpr std::size_t kRemembered = 64;                      // files
constexpr std::uint64_t kLongRead = std::uint64_t{4} << 30;  // bytes that are worth a word
constexpr double kSettledSeconds = 2;  // a file changed since then may change again within one tick of its times
constexpr const char* kList = "known-weights";

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

std::vector<std::string> read_list(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.size() > 34 && fmt::format("{:016x}", hash_text(std::string_view(line).substr(17))) == line.substr(0, 16))
      lines.push_back(line);
  return lines;
}

void write_list(const std::filesystem::path& path, std::span<const std::string> lines) {
  try {
    std::error_code ignored;  // if there can be no directory, there can be no file in it
    std::filesystem::create_directories(path.parent_path(), ignored);
    OutputFile out(path);
    for (const std::string& line : lines) {
      out.write(std::as_bytes(std::span(line)));
      out.write(std::as_bytes(std::span("\n", 1)));
    }
    out.commit();
  } catch (const Error&) {
    // Then the files are read again the next time.
  }
}

std::uint64_t hash_of_file(const std::string& path, const std::filesystem::path& directory,
                           const std::function<void(const std::string&)>& note) {
  const Identity identity = identity_of(path);
  std::vector<std::string> lines = read_list(directory / kList);
  for (const std::string& line : lines)
    if (std::string_view(line).substr(34) == identity.text) return std::stoull(line.substr(17, 16), nullptr, 16);
  if (note && identity.bytes >= kLongRead)
    note(fmt::format("cache: reading {:.1f} GB of {} once, to know it again", static_cast<double>(identity.bytes) / 1e9,
                     path));
  const std::uint64_t hash = hash_bytes(MappedFile(path).bytes());
  if (!identity.is_settled || identity.text.find('\n') != std::string::npos) return hash;
  lines.push_back(list_line(hash, identity.text));
  const std::size_t kept = std::min(lines.size(), kRemembered);
  write_list(directory / kList, std::span(lines).last(kept));
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
  for (std::size_t part = 0; part < engine.file().part_count(); ++part) {
    const std::uint64_t hash = hash_of_file(engine.file().part_name(part), directory, note);
    hasher.add_values(std::span<const std::uint64_t>(&hash, 1));
  }
  return hasher.value();
}

}  // namespace lockstep
