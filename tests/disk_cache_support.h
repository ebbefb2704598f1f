// Helpers of the disk cache's tests: a directory, a state of a tiny model whose bytes are made from its tokens alone,
// so that no forward pass is needed, and a cache that remembers what it said.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "engine/disk_cache.h"
#include "model/cache.h"

namespace lockstep::test {

/// A new directory, removed with everything in it.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "disk-cache-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Widths that no model has: nothing computes with them, and small files can be damaged at every byte.
inline Config tiny_config() {
  Config config;
  config.head_width = 4;
  config.rotary = 2;
  config.index_width = 4;
  config.window = 4;
  config.layers = {{0}, {4}, {128}};
  return config;
}

/// States of the tiny model.
class TinyModel {
 public:
  TinyModel() : config_(tiny_config()), ops_(make_reference_ops()) {}

  SequenceCache empty() const { return SequenceCache(config_, Mode::official, *ops_); }

  /// The state after `tokens`: like a real one it depends on them alone, and its rows on those before them alone.
  SequenceCache state(std::span<const Token> tokens) const {
    SequenceCache cache = empty();
    const auto length = static_cast<Position>(tokens.size());
    for (Position at = 0; at < length;) {
      const Position to = std::min<Position>(length, at + 4);
      const auto seen = tokens.first(static_cast<std::size_t>(to / 4 * 4));
      cache.restore_rows(to, noise(seen, SequenceCache::rows_bytes(config_, Mode::official, at, to)));
      at = to;
    }
    const Position floor = std::max<Position>(0, length - kSlack);
    cache.restore_rings(floor, noise(tokens, SequenceCache::rings_bytes(config_, Mode::official, floor, length)));
    return cache;
  }

 private:
  static std::vector<std::byte> noise(std::span<const Token> tokens, std::size_t bytes) {
    std::mt19937_64 random(hash_bytes(std::as_bytes(tokens)));
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random() & 0xff);
    return out;
  }

  Config config_;
  std::unique_ptr<Ops> ops_;
};

inline std::vector<Token> some_tokens(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 1000);
  return tokens;
}

/// What a cache told.
class Notes {
 public:
  void add(const std::string& note) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  std::string text() const {
    std::string text;
    for (const std::string& note : all()) text += note + "\n";
    return text;
  }
  std::size_t count_with(std::string_view part) const {
    std::size_t count = 0;
    for (const std::string& note : all()) count += note.find(part) != std::string::npos;
    return count;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
};

inline DiskCacheOptions disk_options(const std::filesystem::path& directory, Notes& notes,
                                     std::uint64_t fingerprint = 1) {
  DiskCacheOptions options;
  options.directory = directory;
  options.budget_bytes = 1 << 30;
  options.fingerprint = fingerprint;
  options.segment_tokens = 128;
  options.note = [&notes](const std::string& note) { notes.add(note); };
  return options;
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory, const std::string& end) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().string().ends_with(end)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace lockstep::test
