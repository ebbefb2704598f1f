// States of sequences that outlive the process, in a directory: docs/cache.md.
//
// It is the disk's part of the prefix cache. What it keeps are memoised values, so whatever it returns changes no byte
// of an answer, and whatever goes wrong with it (a full disk, a damaged file, another process beside it) costs time and
// nothing else: it is told to `note`, once, and the answer is computed. A state is compared token by token with what is
// asked for, and checksums cover every byte; a hash alone is never believed.
//
// One thread asks and puts, the one that owns the back end; a thread of the cache's own writes, makes room, and sets
// the times of files that were used. So of all that a slow directory can delay, only reading is waited for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/disk_files.h"
#include "engine/disk_format.h"
#include "model/cache.h"

namespace lockstep {

struct DiskCacheOptions {
  std::filesystem::path directory;
  std::uint64_t budget_bytes = 0;
  std::uint64_t fingerprint = 0;                     // of all that a state depends on besides its tokens
  int segment_tokens = 2048;                         // a multiple of 128, so that no compressed row is cut
  std::size_t queue_bytes = std::size_t{512} << 20;  // of an entry: copied out of the back end and not yet written
  double patience_seconds = 1;                       // for the entry before, where put() is not told how long to wait
  double pause_seconds = 30;                         // after a failure to write nothing is tried for so long
  std::function<void(const std::string&)> note;      // what a person should know; called from either thread
  std::function<void(std::uint64_t)> before_write;   // told the size of each file; what it throws is a failure to write
};

class DiskCache {
 public:
  /// Opens a directory, which is made if there is none, and lists what it keeps. Throws Error::bad_argument for options
  /// that cannot be, Error::io for a directory that cannot be made or listed. One that cannot be written is read.
  explicit DiskCache(DiskCacheOptions options);
  /// Writes what is queued.
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  struct Match {
    std::size_t reused = 0;  // tokens of the prompt that restore() would give
    std::size_t common = 0;  // that the prompt shares with some state, as far as the directory's index tells
    bool goes_on = false;    // a state that shares so many has more tokens, so they differ from the prompt's
  };
  /// As PrefixCache: all tokens but the last at most, unless the logits of the whole are kept.
  Match match(std::span<const Token> prompt) const;

  struct Restored {
    SequenceCache cache;
    std::size_t reused = 0;
    std::vector<float> logits;  // after the last token of the prompt, if all of it was reused
  };
  /// The longest state that begins `prompt` and has more than `more_than` tokens of it, built on what `make_empty`
  /// returns. Files that turn out to be bad are dropped, and the next longest is taken. Throws Error::no_memory.
  std::optional<Restored> restore(std::span<const Token> prompt, std::size_t more_than,
                                  const std::function<SequenceCache()>& make_empty);

  /// Copies out of the back end what is not kept yet of a state after `tokens`, and has it written. One state is
  /// written at a time and none waits: it is taken when the one before has reached the disk, so that a process that is
  /// killed loses the newest one at most. Does nothing if that takes longer than `goes_on_waiting` allows, or if
  /// nothing can be written. What begins a `waiting` prompt is not removed to make room. Returns whether the state is,
  /// or will be, kept.
  using GoesOnWaiting = std::function<bool(double seconds)>;  // since the entry before was taken; asked all the time
  bool put(std::span<const Token> tokens, const SequenceCache& cache, std::span<const float> logits,
           std::span<const std::span<const Token>> waiting = {}, const GoesOnWaiting& goes_on_waiting = {});

  /// Whether the budget has room for all files of such a state, nothing else being there. Otherwise put() keeps nothing
  /// of it, and has told so, once.
  bool fits(const SequenceCache& cache, std::size_t logits);

  /// Whether the directory held files of another model, mode or version when it was opened.
  bool has_others() const { return has_others_; }

  /// put(), as often and after as long a wait as it takes for a state larger than what is copied at once.
  bool put_whole(std::span<const Token> tokens, const SequenceCache& cache, std::span<const float> logits);

  /// Whether put() would be taken at once: nothing is being written, and no failure is being waited out.
  bool is_ready() const;
  bool is_writing() const;

  /// After a failure: the next put() is tried, however short a time ago that was.
  void end_pause();

  /// Waits until what was put is written or given up, and the times of files are set.
  void flush();

  /// For the end of a process: from this time of the steady clock on no file is begun and what is queued is dropped, so
  /// that flush() and the destructor wait for the file that is being written at most. May be called by any thread.
  void end_by(double seconds);
  bool is_over() const;

  struct Stats {
    std::size_t states = 0, segments = 0;  // of this model and mode
    std::uint64_t bytes = 0;               // of all files in the directory, as last seen
    std::uint64_t hits = 0, tokens_restored = 0, bytes_restored = 0;
    double restore_seconds = 0;
    double wait_seconds = 0;  // of put(), for the entry before
    std::uint64_t bytes_written = 0, skipped = 0, failed = 0, damaged = 0, evicted = 0;
    bool is_read_only = false;
  };
  Stats stats() const;

 private:
  struct Tail {
    StateName name;
    Position first = 0, floor = 0, end = 0;
    bool has_logits = false;
    std::vector<Token> tokens;  // [first, end)
  };
  struct Piece {
    StateHeader header;
    std::vector<Token> tokens;
    std::vector<std::byte> rows, rings;
    std::vector<float> logits;
    std::uint64_t bytes() const {
      return kStateHeaderBytes + tokens.size() * sizeof(Token) + rows.size() + rings.size() +
             logits.size() * sizeof(float);
    }
  };
  struct Entry {
    std::vector<Piece> pieces;  // segments in order, the tail last
    std::size_t bytes = 0;
    std::size_t written = 0;       // of the pieces
    std::vector<StateName> keep;   // what begins waiting prompts
    std::vector<StateName> chain;  // the segments of the state, there already or not
  };
  struct Best {
    const Tail* tail = nullptr;
    Match match;
  };

  StateName name_of(StateKind kind, std::uint64_t key, std::uint64_t parent) const;
  std::vector<std::uint64_t> segment_keys(std::span<const Token> tokens, std::size_t count) const;
  Best best(std::span<const Token> prompt) const;
  bool load(const Tail& tail, std::span<const Token> prompt, std::size_t reused, SequenceCache& cache,
            std::vector<float>& logits);
  StateParts read_file(const StateReader& reader, const StateName& name, std::span<const Token> expected,
                       StateHeader& header);
  Tail read_tail(const StateFile& file) const;
  void insert(Tail tail);
  void remove_name(const StateName& name);
  void drop(const StateName& name, const std::string& reason);
  std::vector<StateFile> take_stock();
  bool is_paused() const { return steady_seconds() < paused_until_; }
  bool locked_is_over() const { return steady_seconds() >= end_at_; }
  void set_times(std::unique_lock<std::mutex>& lock);
  void write_with_room(Entry& entry);
  void write_entry(Entry& entry);
  void make_room(std::span<const StateName> keep);
  bool make_room_for(const Entry& entry, std::uint64_t times);
  bool evict(std::uint64_t bytes, std::span<const StateName> keep, bool all_or_nothing);
  void run();
  void tell(const std::string& message) const;

  DiskCacheOptions options_;
  std::unique_ptr<std::byte[]> buffer_;  // of restore()
  std::size_t buffer_bytes_ = 0;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_, idle_;
  std::unordered_map<std::uint64_t, std::uint64_t> segments_;  // key to parent
  std::unordered_multimap<std::uint64_t, Tail> tails_;         // by parent
  std::optional<StateName> reading_;                           // the tail that restore() reads
  std::optional<Entry> queued_;
  std::set<std::string> used_;  // files whose times are to be set
  bool is_setting_times_ = false;
  double end_at_ = std::numeric_limits<double>::infinity();  // seconds of the steady clock
  double taken_at_ = 0;  // the entry that is queued or written; seconds of the steady clock
  bool is_writing_ = false, is_stopping_ = false;
  std::set<std::string> dropped_;  // files that were bad and may still be there
  bool is_failing_ = false;        // the last attempt to write failed
  double paused_until_ = 0;        // seconds of the steady clock; after a failure
  Stats stats_;
  bool has_others_ = false;     // never changes after the start
  bool is_small_told_ = false;  // the asking thread's own
  bool is_full_told_ = false;   // the writing thread's own
  std::thread thread_;
};

}  // namespace lockstep
