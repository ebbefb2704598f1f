// Traces of requests, for finding out what a model was really asked and really said: a JSON file a request, with the
// rendered prompt, the tokens, and the parser's events. Never a header or a key. Off unless a folder is named.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "text/python_json.h"

namespace lockstep {

/// Makes the folder, for its owner only if it is new. Throws Error::io if there can be none, or no file in it.
void make_trace_folder(const std::filesystem::path& path);

class Trace {
 public:
  /// Makes the folder; files in it are for their owner only. `warn` is told of files that could not be written. Throws
  /// Error::io if there can be no folder.
  Trace(std::filesystem::path folder, std::function<void(const std::string&)> warn);
  /// Writes what is left.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Queues NAME.json: nobody waits for the disk.
  void add(const std::string& name, Json record);

 private:
  void run();

  const std::filesystem::path folder_;
  std::function<void(const std::string&)> warn_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, Json>> queue_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace lockstep
