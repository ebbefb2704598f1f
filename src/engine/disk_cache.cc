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

constexpr double kPauseSeconds = 30;   // after a failure to write
constexpr double kSharedSeconds = 10;  // to wait for somebody who makes room
constexpr double kAloneSeconds = 2;    // to wait for those who write; otherwise room is made the next time
constexpr int kLongestWindow = 128;    // of a compressor

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
    best.match.common = std::max(best.match.common, offset);
    const auto [first, last] = tails_.equal_range(key);
    for (auto it = first; it != last; ++it) {
      const Tail& tail = it->second;
      if (tail.first != static_cast<Position>(offset)) continue;
      const std::size_t common = offset + common_length(tail.tokens, prompt.subspan(offset));
      best.match.common = std::max(best.match.common, common);
      std::size_t usable = common;
      const bool is_whole = static_cast<std::size_t>(tail.end) == prompt.size();
      if (usable == prompt.size() && !(is_whole && tail.has_logits)) --usable;
      if (static_cast<Position>(usable) < tail.floor || usable < best.match.reused || usable == 0) continue;
      if (usable == best.match.reused && best.tail->end <= tail.end) continue;
      best.match.reused = usable;
      best.tail = &tail;
    }
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
    Restored out{make_empty(), reused, {}};
    bool is_loaded = false;
    try {
      is_loaded = load(tail, prompt, out.cache, out.logits);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      reading_.reset();
      throw;
    }
    const std::lock_guard lock(mutex_);
    reading_.reset();
    if (!is_loaded) continue;  // what was missing or bad is not in the index any more
    out.cache.rewind(static_cast<Position>(reused));
    if (reused < prompt.size()) out.logits.clear();
    ++stats_.hits;
    stats_.tokens_restored += reused;
    stats_.restore_seconds += steady_seconds() - began;
    return out;
  }
}

/// False if a file of it was not there or bad.
bool DiskCache::load(const Tail& tail, std::span<const Token> prompt, SequenceCache& cache,
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
      const bool is_as_listed = is_tail ? header.first == tail.first && header.floor == tail.floor
                                        : header.first == static_cast<Position>(i * size);
      if (!is_as_listed) {  // another process put a state that rewinds otherwise in its place; it is listed anew later
        remove_name(names[i]);
        return false;
      }
      cache.restore_rows(header.end, parts.rows);
      if (!is_tail) continue;
      cache.restore_rings(header.floor, parts.rings);
      logits.resize(parts.logits.size() / sizeof(float));
      if (!logits.empty()) std::memcpy(logits.data(), parts.logits.data(), parts.logits.size());
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::no_memory) throw;
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
  touch_state(options_.directory / file_name(tail.name));
  return true;
}

/// A whole file with all its checksums, into buffer_.
StateParts DiskCache::read_file(const StateReader& reader, const StateName& name, std::span<const Token> expected,
                                StateHeader& header) {
  const std::string path = (options_.directory / file_name(name)).string();
  const std::size_t bytes = reader.bytes();
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

// ---- Keeping ----

bool DiskCache::put(std::span<const Token> tokens, const SequenceCache& cache, std::span<const float> logits,
                    std::span<const std::span<const Token>> waiting, bool is_patient) {
  LOCKSTEP_CHECK(cache.length() == static_cast<Position>(tokens.size()));
  if (tokens.empty()) return false;
  const auto size = static_cast<std::size_t>(options_.segment_tokens);
  const std::size_t count = static_cast<std::size_t>(cache.rewind_floor()) / size;
  const std::span<const Token> rest = tokens.subspan(count * size);
  const std::vector<std::uint64_t> keys = segment_keys(tokens, count);
  const StateName tail_name = name_of(StateKind::tail, state_key(StateKind::tail, keys[count], rest), keys[count]);
  std::vector<std::size_t> missing;
  Entry entry;
  {
    std::unique_lock lock(mutex_);
    if (stats_.is_read_only) return false;
    const auto is_kept = [&] {
      missing.clear();
      for (std::size_t i = 0; i < count; ++i)
        if (!segments_.contains(keys[i + 1])) missing.push_back(i);
      const auto [first, last] = tails_.equal_range(tail_name.parent);
      return missing.empty() && std::any_of(first, last, [&](const auto& known) {
               return known.second.name == tail_name && (known.second.has_logits || logits.empty());
             });
    };
    const double began = steady_seconds();
    const bool is_free = idle_.wait_for(lock, std::chrono::duration<double>(is_patient ? options_.patience_seconds : 0),
                                        [&] { return (!queued_ && !is_writing_) || is_kept(); });
    stats_.wait_seconds += steady_seconds() - began;
    if (is_kept()) {
      touch_state(options_.directory / file_name(tail_name));
      return true;
    }
    if (!is_free || steady_seconds() < paused_until_) {
      ++stats_.skipped;
      return false;
    }
    for (const std::span<const Token> prompt : waiting)
      if (const Best found = best(prompt); found.tail != nullptr) entry.keep.push_back(found.tail->name);
  }
  const auto copy = [&](const StateName& name, std::size_t from, std::size_t to) {
    Piece& piece = entry.pieces.emplace_back();
    piece.header = {name, static_cast<Position>(from), static_cast<Position>(to), 0,
                    static_cast<std::uint32_t>(options_.segment_tokens)};
    piece.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(from),
                        tokens.begin() + static_cast<std::ptrdiff_t>(to));
    piece.rows = cache.save_rows(piece.header.first, piece.header.end);
    if (name.kind == StateKind::tail) {
      piece.header.floor = cache.rewind_floor();
      piece.rings = cache.save_rings();
      piece.logits.assign(logits.begin(), logits.end());
    }
    entry.bytes += piece.rows.size() + piece.rings.size() + (piece.tokens.size() + piece.logits.size()) * sizeof(Token);
  };
  bool is_whole = true;
  try {
    for (const std::size_t i : missing) {
      // What does not fit now is copied the next time: the first segments are of use to that already.
      if (entry.bytes >= options_.queue_bytes) {
        is_whole = false;
        break;
      }
      copy(name_of(StateKind::segment, keys[i + 1], keys[i]), i * size, (i + 1) * size);
    }
    if (is_whole) copy(tail_name, count * size, tokens.size());
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    ++stats_.skipped;
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.skipped += !is_whole;
    queued_ = std::move(entry);
  }
  changed_.notify_all();
  return is_whole;
}

void DiskCache::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !queued_ && !is_writing_; });
}

void DiskCache::run() {
  try {
    if (!stats().is_read_only) make_room({});
  } catch (const std::exception& error) {
    tell(error.what());
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    idle_.notify_all();
    changed_.wait(lock, [&] { return is_stopping_ || queued_; });
    if (!queued_) return;
    Entry entry = std::move(*queued_);
    queued_.reset();
    is_writing_ = true;
    const bool is_paused = steady_seconds() < paused_until_;
    lock.unlock();
    std::string failure;
    try {
      if (!is_paused) {
        write_entry(entry);
        make_room(entry.keep);
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    is_writing_ = false;
    if (!is_paused && failure.empty() == is_failing_) {
      is_failing_ = !is_failing_;
      lock.unlock();
      tell(failure.empty() ? options_.directory.string() + ": states are kept again"
                           : failure + "; states are not kept until it can be written again");
      lock.lock();
    }
    if (is_paused || !failure.empty()) ++stats_.failed;
    if (!failure.empty()) paused_until_ = steady_seconds() + kPauseSeconds;
  }
}

void DiskCache::write_entry(Entry& entry) {
  const auto lock = DirectoryLock::take(options_.directory, DirectoryLock::How::shared, kSharedSeconds);
  if (!lock)
    throw Error(Error::Kind::io, fmt::format("{}: locked by another process for over {} seconds",
                                             options_.directory.string(), kSharedSeconds));
  for (Piece& piece : entry.pieces) {
    const StateParts parts{piece.tokens, piece.rows, piece.rings, std::as_bytes(std::span(piece.logits))};
    const std::vector<std::byte> header = encode_header(piece.header, parts);
    const std::span<const std::byte> pieces[] = {header, std::as_bytes(parts.tokens), parts.rows, parts.rings,
                                                 parts.logits};
    const StateName& name = piece.header.name;
    write_file(options_.directory, file_name(name), pieces);
    const std::lock_guard guard(mutex_);
    for (const std::span<const std::byte> bytes : pieces) stats_.bytes_written += bytes.size();
    dropped_.erase(file_name(name));
    if (name.kind == StateKind::segment) {
      segments_[name.key] = name.parent;
    } else {
      insert({name, piece.header.first, piece.header.floor, piece.header.end, !piece.logits.empty(), piece.tokens});
    }
  }
  sync_directory(options_.directory);
}

void DiskCache::make_room(std::span<const StateName> keep) {
  take_stock();
  if (stats().bytes <= options_.budget_bytes) return;
  const auto lock = DirectoryLock::take(options_.directory, DirectoryLock::How::alone, kAloneSeconds);
  if (!lock) return;
  const std::vector<StateFile> files = list_states(options_.directory);
  std::vector<StateFile> victims;
  {
    // What leaves the index here is not begun to be read any more, and what is being read stays.
    const std::lock_guard guard(mutex_);
    victims = choose_victims(files, options_.budget_bytes, [&](const StateName& name) {
      return name == reading_ || std::find(keep.begin(), keep.end(), name) != keep.end();
    });
    for (const StateFile& file : victims) {
      if (file.name.fingerprint != options_.fingerprint) continue;
      if (file.name.kind == StateKind::segment) {
        segments_.erase(file.name.key);
        continue;
      }
      const auto [first, last] = tails_.equal_range(file.name.parent);
      for (auto it = first; it != last; ++it) {
        if (it->second.name != file.name) continue;
        tails_.erase(it);
        break;
      }
    }
  }
  std::uint64_t removed = 0, removed_bytes = 0;
  for (const StateFile& file : victims) {
    std::error_code error;
    if (!std::filesystem::remove(options_.directory / file_name(file.name), error)) continue;
    ++removed;
    removed_bytes += file.bytes;
  }
  const std::lock_guard guard(mutex_);
  stats_.evicted += removed;
  stats_.bytes -= std::min(stats_.bytes, removed_bytes);
}

DiskCache::Stats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.states = tails_.size();
  stats.segments = segments_.size();
  return stats;
}

}  // namespace lockstep
