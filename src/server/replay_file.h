// The replay map (text/replay.h) in a file beside the states of the disk cache, so that after a restart a client's next
// request still begins with the bytes that the states are of.
//
// One line says what follows it, then a turn a line. The file is replaced as a whole, never written to; what others who
// share the directory have saved is kept. Whatever goes wrong is told to `note`, and costs reuse and nothing else: a
// damaged file is told, once, and removed. A file of version 1, whose turns have no tokens, is read where there is none
// of this version, and removed once this one holds what was in it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "text/replay.h"

namespace lockstep {

class ReplayFile {
 public:
  struct Options {
    std::filesystem::path directory;               // there already
    double seconds = 5;                            // between two looks whether there is something new
    std::function<void(const std::string&)> note;  // what a person should know; called from either thread
  };
  /// Adds to the map what is saved there. Its own thread saves the map when it has something new.
  ReplayFile(std::shared_ptr<ReplayMap> map, Options options);
  /// Saves what is new.
  ~ReplayFile();
  ReplayFile(const ReplayFile&) = delete;
  ReplayFile& operator=(const ReplayFile&) = delete;

  static constexpr const char* kName = "replay-2";  // the version is in the name: others leave it alone
  static constexpr const char* kOldName = "replay-1";

 private:
  struct Identity {  // of the file as it was last read or written
    std::uint64_t inode = 0, bytes = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  std::filesystem::path path() const { return options_.directory / kName; }
  Identity identity() const;
  void load(ReplayMap& into);
  bool read(const char* name, int version, ReplayMap& into);
  void save();
  void write(const std::string& turns);
  void run();
  void tell(const std::string& message) const;

  const std::shared_ptr<ReplayMap> map_;
  const Options options_;
  Identity known_;
  bool has_read_old_ = false;
  std::uint64_t saved_ = 0;  // map_->remembered() when it was saved
  bool is_failing_ = false;  // the last attempt to save failed

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
