// How the disk cache keeps a state: copied out by the thread that asks, written by the cache's own; and how it makes
// room, for its budget and on a disk that is full.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/disk_cache.h"

namespace lockstep {
namespace {

constexpr double kSharedSeconds = 10;       // to wait for somebody who makes room
constexpr double kAloneSeconds = 2;         // to wait for those who write; otherwise room is made the next time
constexpr double kLookSeconds = 0.005;      // between questions whether to wait on
constexpr double kEndLookSeconds = 0.05;    // between looks whether the end has come
constexpr int kTimesToMakeRoom = 2;         // for one entry on a full disk: what others fill is not to cost all states
constexpr std::uint64_t kFileBlock = 4096;  // what files take is a multiple of it, and a directory may need one

}  // namespace

bool DiskCache::put(std::span<const Token> tokens, const SequenceCache& cache, std::span<const float> logits,
                    std::span<const std::span<const Token>> waiting, const GoesOnWaiting& goes_on_waiting) {
  LOCKSTEP_CHECK(cache.length() == static_cast<Position>(tokens.size()));
  if (tokens.empty() || !fits(cache, logits.size())) return false;
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
    const auto waits = [&] {
      const double seconds = steady_seconds() - taken_at_;
      if (!goes_on_waiting) return seconds < options_.patience_seconds;
      lock.unlock();
      const bool answer = goes_on_waiting(seconds);
      lock.lock();
      return answer;
    };
    const auto is_busy = [&] { return queued_ || is_writing_; };
    const double began = steady_seconds();
    while (is_busy() && !is_kept() && waits())
      idle_.wait_for(lock, std::chrono::duration<double>(kLookSeconds), [&] { return !is_busy(); });
    stats_.wait_seconds += steady_seconds() - began;
    if (is_kept()) {
      used_.insert(file_name(tail_name));
      changed_.notify_all();
      return true;
    }
    if (is_busy() || is_paused() || locked_is_over()) {
      ++stats_.skipped;
      return false;
    }
    for (const std::span<const Token> prompt : waiting)
      if (const Best found = best(prompt); found.tail != nullptr) entry.keep.push_back(found.tail->name);
    for (std::size_t i = 0; i < count; ++i) entry.chain.push_back(name_of(StateKind::segment, keys[i + 1], keys[i]));
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
    taken_at_ = steady_seconds();
  }
  changed_.notify_all();
  return is_whole;
}

bool DiskCache::fits(const SequenceCache& cache, std::size_t logits) {
  const auto length = static_cast<std::size_t>(cache.length());
  const std::size_t files = length / static_cast<std::size_t>(options_.segment_tokens) + 1;
  const std::uint64_t bytes =
      cache.saved_bytes() + files * kStateHeaderBytes + length * sizeof(Token) + logits * sizeof(float);
  if (bytes <= options_.budget_bytes) return true;
  if (!std::exchange(is_small_told_, true))
    tell(fmt::format("{}: a state of {} tokens takes {} bytes, and all of them may take {}; such states are not kept",
                     options_.directory.string(), length, bytes, options_.budget_bytes));
  return false;
}

bool DiskCache::put_whole(std::span<const Token> tokens, const SequenceCache& cache, std::span<const float> logits) {
  // Each time one segment more is there, at least.
  const std::size_t most = tokens.size() / static_cast<std::size_t>(options_.segment_tokens) + 1;
  for (std::size_t times = 0; times < most; ++times) {
    flush();
    if (!is_ready()) return false;
    if (put(tokens, cache, logits)) return true;
  }
  return false;
}

bool DiskCache::is_ready() const {
  const std::lock_guard lock(mutex_);
  return !queued_ && !is_writing_ && !is_paused() && !locked_is_over() && !stats_.is_read_only;
}

bool DiskCache::is_writing() const {
  const std::lock_guard lock(mutex_);
  return queued_ || is_writing_;
}

void DiskCache::end_pause() {
  const std::lock_guard lock(mutex_);
  paused_until_ = 0;
}

void DiskCache::flush() {
  std::unique_lock lock(mutex_);
  // The end may come nearer meanwhile.
  while ((queued_ || is_writing_ || !used_.empty() || is_setting_times_) && !locked_is_over())
    idle_.wait_for(lock, std::chrono::duration<double>(kEndLookSeconds));
}

void DiskCache::end_by(double seconds) {
  const std::lock_guard lock(mutex_);
  end_at_ = seconds;
}

bool DiskCache::is_over() const {
  const std::lock_guard lock(mutex_);
  return locked_is_over();
}

/// With the mutex held, which is let go meanwhile.
void DiskCache::set_times(std::unique_lock<std::mutex>& lock) {
  const std::set<std::string> files = std::exchange(used_, {});
  is_setting_times_ = true;
  lock.unlock();
  for (const std::string& file : files)
    if (!is_over()) touch_state(options_.directory / file);
  lock.lock();
  is_setting_times_ = false;
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
    changed_.wait(lock, [&] { return is_stopping_ || queued_ || !used_.empty(); });
    if (!used_.empty()) {  // before room is made by these times
      set_times(lock);
      continue;
    }
    if (!queued_) return;
    Entry entry = std::move(*queued_);
    queued_.reset();
    if (is_paused() && !locked_is_over()) {
      ++stats_.failed;
      continue;
    }
    is_writing_ = true;
    lock.unlock();
    std::string failure;
    bool is_lost = false;
    try {
      write_with_room(entry);
      is_lost = entry.written < entry.pieces.size();
      if (!is_over()) make_room(entry.keep);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (is_lost) tell(options_.directory.string() + ": a state is lost, there was no time to write it");
    lock.lock();
    stats_.skipped += is_lost;
    if (!failure.empty()) {
      ++stats_.failed;
      paused_until_ = steady_seconds() + options_.pause_seconds;
    }
    if (!is_lost && failure.empty() == is_failing_) {
      is_failing_ = !is_failing_;
      lock.unlock();
      tell(failure.empty() ? options_.directory.string() + ": states are kept again"
                           : failure + "; states are not kept until it can be written again");
      lock.lock();
    }
    is_writing_ = false;
  }
}

/// Writes an entry. On a full disk what was used least recently makes room for it, if that can be enough. Throws what
/// write_entry throws.
void DiskCache::write_with_room(Entry& entry) {
  for (int times = 0;; ++times) {
    try {
      return write_entry(entry);
    } catch (const NoRoom&) {
      if (times == kTimesToMakeRoom || !make_room_for(entry, std::uint64_t{1} << times)) throw;
    }
  }
}

/// The pieces that are not there yet. Those that are written stay when a later one throws, or the end has come.
void DiskCache::write_entry(Entry& entry) {
  const double until = steady_seconds() + kSharedSeconds;
  const auto take = [&] {
    return DirectoryLock::take(options_.directory, DirectoryLock::How::shared, kEndLookSeconds);
  };
  std::optional<DirectoryLock> lock = take();
  while (!lock && steady_seconds() < until && !is_over())
    if (auto taken = take()) lock.emplace(std::move(*taken));
  if (!lock && is_over()) return;
  if (!lock)
    throw Error(Error::Kind::io, fmt::format("{}: locked by another process for over {} seconds",
                                             options_.directory.string(), kSharedSeconds));
  for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
    if (is_over()) break;
    Piece& piece = entry.pieces[i];
    const StateName& name = piece.header.name;
    // While the lock was not held somebody else may have made room.
    if (i < entry.written && std::filesystem::exists(options_.directory / file_name(name))) continue;
    const StateParts parts{piece.tokens, piece.rows, piece.rings, std::as_bytes(std::span(piece.logits))};
    const std::vector<std::byte> header = encode_header(piece.header, parts);
    const std::span<const std::byte> pieces[] = {header, std::as_bytes(parts.tokens), parts.rows, parts.rings,
                                                 parts.logits};
    if (options_.before_write) options_.before_write(piece.bytes());
    write_file(options_.directory, file_name(name), pieces);
    entry.written = std::max(entry.written, i + 1);
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

// ---- Making room ----

/// So that the budget holds.
void DiskCache::make_room(std::span<const StateName> keep) {
  take_stock();
  if (stats().bytes > options_.budget_bytes) evict(options_.budget_bytes, keep, false);
}

/// So that what is left of an entry can be written, `times` over. False if what may go is less than that: then it
/// stays.
bool DiskCache::make_room_for(const Entry& entry, std::uint64_t times) {
  std::uint64_t needed = kFileBlock;
  std::vector<StateName> keep = entry.keep;
  keep.insert(keep.end(), entry.chain.begin(), entry.chain.end());
  for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
    if (i < entry.written)
      keep.push_back(entry.pieces[i].header.name);
    else
      needed += (entry.pieces[i].bytes() + kFileBlock - 1) / kFileBlock * kFileBlock;
  }
  take_stock();
  const std::uint64_t held = stats().bytes;
  if (held < needed * times || !evict(held - needed * times, keep, true)) return false;
  if (!std::exchange(is_full_told_, true))
    tell(fmt::format("{}: the disk is full at {} of {} bytes; the states used least recently make room",
                     options_.directory.string(), held, options_.budget_bytes));
  return true;
}

/// Removes files until all take `bytes` or less; never what is being read or is to be kept. With `all_or_nothing`,
/// nothing if that cannot be reached. Returns whether it was.
bool DiskCache::evict(std::uint64_t bytes, std::span<const StateName> keep, bool all_or_nothing) {
  const auto lock = DirectoryLock::take(options_.directory, DirectoryLock::How::alone, kAloneSeconds);
  if (!lock) return false;
  const std::vector<StateFile> files = list_states(options_.directory);
  std::uint64_t left = 0;
  for (const StateFile& file : files) left += file.bytes;
  std::vector<StateFile> victims;
  {
    // What leaves the index here is not begun to be read any more, and what is being read stays.
    const std::lock_guard guard(mutex_);
    victims = choose_victims(files, bytes, [&](const StateName& name) {
      return name == reading_ || std::find(keep.begin(), keep.end(), name) != keep.end();
    });
    for (const StateFile& file : victims) left -= file.bytes;
    if (all_or_nothing && left > bytes) return false;
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
  return left <= bytes;
}

}  // namespace lockstep
