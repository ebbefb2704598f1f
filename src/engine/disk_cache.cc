#include "engine/disk_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "engine/prefix_cache.h"

namespace lockstep {
namespace {

constexpr int kLongestWindow = 128;  // of a compressor

/// Of the files: a change of the format or of where sequences are cut makes other names, so that old files are not
/// asked for and age.
std::uint64_t whole_fingerprint(std::uint64_t fingerprint, int segment_tokens) {
  const std::uint64_t values[] = {fingerprint, kStateVersion, static_cast<std::uint64_t>(segment_tokens)};
  return hash_bytes(std::as_bytes(std::span(values)));
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  const std::filesystem::path& directory = options_.directory;
  if (options_.segment_tokens < kLongestWindow || options_.segment_tokens % kLongestWindow != 0)
    throw Error(Error::Kind::bad_argument, fmt::format("segments of {} tokens, expected a multiple of {}",
                                                       options_.segment_tokens, kLongestWindow));
  if (options_.budget_bytes == 0)
    throw Error(Error::Kind::bad_argument, "disk cache: a budget of 0 bytes, expected at least 1");
  options_.fingerprint = whole_fingerprint(options_.fingerprint, options_.segment_tokens);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!std::filesystem::is_directory(directory))
    throw Error(Error::Kind::io, fmt::format("{}: {}, expected a directory or a new name", directory.string(),
                                             error ? error.message() : "not a directory"));
  try {
    if (const auto lock = DirectoryLock::take(directory, DirectoryLock::How::alone, 0)) remove_unfinished(directory);
  } catch (const NoRoom&) {
    // There may be room later; until then whoever writes tells it.
  } catch (const Error& failure) {
    stats_.is_read_only = true;
    tell(fmt::format("{}; the cache is read, and nothing is added to it", failure.what()));
  }
  std::size_t others = 0;
  std::uint64_t other_bytes = 0;
  for (const StateFile& file : take_stock()) {
    if (file.name.fingerprint == options_.fingerprint) continue;
    ++others;
    other_bytes += file.bytes;
  }
  has_others_ = others > 0;
  if (has_others_)
    tell(
        fmt::format("{}: {} files, {} bytes, are of another model, mode or version; they are not used, and go as they "
                    "age",
                    directory.string(), others, other_bytes));
  thread_ = std::thread([this] { run(); });
}

DiskCache::~DiskCache() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DiskCache::tell(const std::string& message) const {
  if (options_.note) options_.note("cache: " + message);
}

StateName DiskCache::name_of(StateKind kind, std::uint64_t key, std::uint64_t parent) const {
  return {kind, options_.fingerprint, key, parent};
}

/// Keys of the first `count` segments; before them 0, what the first one follows.
std::vector<std::uint64_t> DiskCache::segment_keys(std::span<const Token> tokens, std::size_t count) const {
  const auto size = static_cast<std::size_t>(options_.segment_tokens);
  std::vector<std::uint64_t> keys(count + 1);
  for (std::size_t i = 0; i < count; ++i)
    keys[i + 1] = state_key(StateKind::segment, keys[i], tokens.subspan(i * size, size));
  return keys;
}

// ---- Finding ----

/// With the mutex held. A tail starts at the segment that holds the least length it rewinds to, so every prompt that it
/// can serve shares all segments before it, and the keys of the prompt's own segments lead to it.
DiskCache::Best DiskCache::best(std::span<const Token> prompt) const {
  const auto size = static_cast<std::size_t>(options_.segment_tokens);
  Best best;
  std::uint64_t key = 0;
  for (std::size_t offset = 0; offset <= prompt.size(); offset += size) {
    if (offset > best.match.common) {
      best.match.common = offset;
      best.match.goes_on = false;
    }
    const auto [first, last] = tails_.equal_range(key);
    for (auto it = first; it != last; ++it) {
      const Tail& tail = it->second;
      if (tail.first != static_cast<Position>(offset)) continue;
      const std::size_t common = offset + common_length(tail.tokens, prompt.subspan(offset));
      const bool goes_on = static_cast<std::size_t>(tail.end) > common;
      if (common > best.match.common) best.match.goes_on = goes_on;
      if (common == best.match.common && goes_on) best.match.goes_on = true;
      best.match.common = std::max(best.match.common, common);
      std::size_t usable = common;
      const bool is_whole = static_cast<std::size_t>(tail.end) == prompt.size();
      if (usable == prompt.size() && !(is_whole && tail.has_logits)) --usable;
      if (static_cast<Position>(usable) < tail.floor || usable < best.match.reused || usable == 0) continue;
      if (usable == best.match.reused && best.tail->end <= tail.end) continue;
      best.match.reused = usable;
      best.tail = &tail;
    }
    // A segment that follows is of a state with more tokens, whichever they are.
    if (best.match.common == offset && !best.match.goes_on)
      best.match.goes_on =
          std::any_of(segments_.begin(), segments_.end(), [&](const auto& known) { return known.second == key; });
    if (prompt.size() - offset < size) break;
    key = state_key(StateKind::segment, key, prompt.subspan(offset, size));
    if (!segments_.contains(key)) break;
  }
  return best;
}

DiskCache::Match DiskCache::match(std::span<const Token> prompt) const {
  const std::lock_guard lock(mutex_);
  return best(prompt).match;
}

std::optional<DiskCache::Restored> DiskCache::restore(std::span<const Token> prompt, std::size_t more_than,
                                                      const std::function<SequenceCache()>& make_empty) {
  for (;;) {
    Tail tail;
    std::size_t reused = 0;
    {
      const std::lock_guard lock(mutex_);
      const Best found = best(prompt);
      if (found.tail == nullptr || found.match.reused <= more_than) return std::nullopt;
      tail = *found.tail;
      reused = found.match.reused;
      reading_ = tail.name;
    }
    const double began = steady_seconds();
    std::optional<Restored> out;
    bool is_loaded = false;
    try {
      out.emplace(Restored{make_empty(), reused, {}});
      is_loaded = load(tail, prompt, reused, out->cache, out->logits);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      reading_.reset();
      throw;
    }
    const std::lock_guard lock(mutex_);
    reading_.reset();
    if (!is_loaded) continue;  // what was missing, bad or other than listed is not in the index any more
    out->cache.rewind(static_cast<Position>(reused));
    if (reused < prompt.size()) out->logits.clear();
    ++stats_.hits;
    stats_.tokens_restored += reused;
    stats_.restore_seconds += steady_seconds() - began;
    return out;
  }
}

/// False if a file of it was not there or bad, or does not serve for `reused` tokens of the prompt.
bool DiskCache::load(const Tail& tail, std::span<const Token> prompt, std::size_t reused, SequenceCache& cache,
                     std::vector<float>& logits) {
  const auto size = static_cast<std::size_t>(options_.segment_tokens);
  const std::size_t count = static_cast<std::size_t>(tail.first) / size;
  const std::vector<std::uint64_t> keys = segment_keys(prompt, count);
  std::vector<StateName> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(name_of(StateKind::segment, keys[i + 1], keys[i]));
  names.push_back(tail.name);
  std::optional<StateReader> reader, next;
  for (std::size_t i = 0; i < names.size(); ++i) {
    try {
      reader = i == 0 ? StateReader::open(options_.directory / file_name(names[i])) : std::exchange(next, std::nullopt);
      if (!reader) {  // somebody else made room
        remove_name(names[i]);
        return false;
      }
      if (i + 1 < names.size()) {
        next = StateReader::open(options_.directory / file_name(names[i + 1]));
        if (next) next->expect();
      }
      const bool is_tail = i == count;
      StateHeader header;
      const StateParts parts = read_file(
          *reader, names[i], is_tail ? std::span<const Token>(tail.tokens) : prompt.subspan(i * size, size), header);
      if (header.first != (is_tail ? tail.first : static_cast<Position>(i * size))) {
        remove_name(names[i]);
        return false;
      }
      // Another process may have put the same state in its place, but one that rewinds otherwise or has no logits. It
      // is listed as what it is, and serves if that is enough.
      const bool has_logits = !parts.logits.empty();
      if (is_tail && (header.floor != tail.floor || has_logits != tail.has_logits)) {
        const std::lock_guard lock(mutex_);
        insert({tail.name, header.first, header.floor, header.end, has_logits, tail.tokens});
        if (header.floor > static_cast<Position>(reused) || (reused == prompt.size() && !has_logits)) return false;
      }
      cache.restore_rows(header.end, parts.rows);
      if (!is_tail) continue;
      cache.restore_rings(header.floor, parts.rings);
      logits.resize(parts.logits.size() / sizeof(float));
      if (!logits.empty()) std::memcpy(logits.data(), parts.logits.data(), parts.logits.size());
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::no_memory || error.kind() == Error::Kind::device) throw;
      if (error.kind() == Error::Kind::bad_file) {
        drop(names[i], error.what());
      } else {
        tell(fmt::format("{}; the state is not used", error.what()));
        remove_name(names[i]);
      }
      return false;
    } catch (const std::bad_alloc&) {
      tell(fmt::format("{}: no memory to read it; the state is not used", file_name(names[i])));
      remove_name(names[i]);
      return false;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    used_.insert(file_name(tail.name));
  }
  changed_.notify_all();
  return true;
}

/// A whole file with all its checksums, into buffer_.
StateParts DiskCache::read_file(const StateReader& reader, const StateName& name, std::span<const Token> expected,
                                StateHeader& header) {
  const std::string path = (options_.directory / file_name(name)).string();
  const std::size_t bytes = reader.bytes();
  // Memory is asked for when the header has said that so much is right.
  std::vector<std::byte> begin(std::min(kStateHeaderBytes, bytes));
  reader.read(begin);
  decode_header(begin, bytes, name, path);
  if (buffer_bytes_ < bytes) {
    buffer_bytes_ = 0;
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffer_bytes_ = bytes;
  }
  const std::span<std::byte> file(buffer_.get(), bytes);
  reader.read(file);
  const StateLayout layout = decode_header(file, bytes, name, path);
  header = layout.header;
  const std::vector<Token> tokens = decode_tokens(file.subspan(kStateHeaderBytes), layout, path);
  if (!std::equal(tokens.begin(), tokens.end(), expected.begin(), expected.end()))
    throw Error(Error::Kind::bad_file, path + ": other tokens under the same key");
  const StateParts parts = decode_parts(file, layout, path);
  const std::lock_guard lock(mutex_);
  stats_.bytes_restored += bytes;
  return parts;
}

// ---- The index ----

/// Throws Error::bad_file, and Error::io.
DiskCache::Tail DiskCache::read_tail(const StateFile& file) const {
  const std::filesystem::path path = options_.directory / file_name(file.name);
  const std::optional<StateReader> reader = StateReader::open(path);
  if (!reader) throw Error(Error::Kind::io, path.string() + ": gone");
  std::vector<std::byte> bytes(std::min<std::uint64_t>(kStateHeaderBytes, reader->bytes()));
  reader->read(bytes);
  const StateLayout layout = decode_header(bytes, reader->bytes(), file.name, path.string());
  bytes.resize(kStateHeaderBytes + layout.tokens);
  reader->read(bytes);
  const StateHeader& header = layout.header;
  if (header.floor < header.first || header.floor > header.end || header.end - header.floor > kSlack ||
      header.segment_tokens != static_cast<std::uint32_t>(options_.segment_tokens))
    throw Error(Error::Kind::bad_file, path.string() + ": its header contradicts itself");
  return {file.name,
          header.first,
          header.floor,
          header.end,
          layout.logits > 0,
          decode_tokens(std::span<const std::byte>(bytes).subspan(kStateHeaderBytes), layout, path.string())};
}

/// With the mutex held; in place of an older one.
void DiskCache::insert(Tail tail) {
  const auto [first, last] = tails_.equal_range(tail.name.parent);
  for (auto it = first; it != last; ++it) {
    if (it->second.name != tail.name) continue;
    it->second = std::move(tail);
    return;
  }
  const std::uint64_t parent = tail.name.parent;
  tails_.emplace(parent, std::move(tail));
}

/// With the mutex not held.
void DiskCache::remove_name(const StateName& name) {
  const std::lock_guard lock(mutex_);
  if (name.kind == StateKind::segment) {
    segments_.erase(name.key);
    return;
  }
  const auto [first, last] = tails_.equal_range(name.parent);
  for (auto it = first; it != last; ++it) {
    if (it->second.name != name) continue;
    tails_.erase(it);
    return;
  }
}

/// A file that is not what it should be. It is told once: the file goes, and its name is not taken up again.
void DiskCache::drop(const StateName& name, const std::string& reason) {
  remove_name(name);
  {
    const std::lock_guard lock(mutex_);
    ++stats_.damaged;
    if (!dropped_.insert(file_name(name)).second) return;
  }
  std::error_code error;
  std::filesystem::remove(options_.directory / file_name(name), error);
  tell(fmt::format("{}; {}", reason, error ? "it cannot be removed: " + error.message() : "it is removed"));
}

/// Brings the index up to what the directory holds, which other processes may have changed.
std::vector<StateFile> DiskCache::take_stock() {
  std::vector<StateFile> files = list_states(options_.directory);
  std::set<std::string> names;
  std::vector<StateName> gone;
  std::vector<const StateFile*> fresh;
  {
    const std::lock_guard lock(mutex_);
    std::set<std::string> known;
    for (const auto& [parent, tail] : tails_) known.insert(file_name(tail.name));
    stats_.bytes = 0;
    for (const StateFile& file : files) {
      stats_.bytes += file.bytes;
      if (file.name.fingerprint != options_.fingerprint) continue;
      std::string name = file_name(file.name);
      if (dropped_.contains(name)) continue;
      if (file.name.kind == StateKind::segment) {
        segments_[file.name.key] = file.name.parent;
      } else if (!known.contains(name)) {
        fresh.push_back(&file);
      }
      names.insert(std::move(name));
    }
    for (const auto& [key, parent] : segments_)
      if (const StateName name = name_of(StateKind::segment, key, parent); !names.contains(file_name(name)))
        gone.push_back(name);
    for (const auto& [parent, tail] : tails_)
      if (!names.contains(file_name(tail.name))) gone.push_back(tail.name);
  }
  for (const StateName& name : gone) remove_name(name);
  for (const StateFile* file : fresh) {
    try {
      Tail tail = read_tail(*file);
      const std::lock_guard lock(mutex_);
      insert(std::move(tail));
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::bad_file) drop(file->name, error.what());
      // Otherwise it is gone, or cannot be read by this user: not ours to use.
    }
  }
  return files;
}

DiskCache::Stats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.states = tails_.size();
  stats.segments = segments_.size();
  return stats;
}

}  // namespace lockstep
