// The server's log: one line an event on stderr, for people or as JSON. Safe for use by several threads.
//
// Keys, headers, prompts and answers never come here: callers pass named fields, and none of them passes those.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace lockstep {

enum class LogLevel { debug, info, warning, error, off };
/// Throws Error::bad_argument for an unknown name.
LogLevel log_level_named(std::string_view name);

class Log {
 public:
  using Fields = nlohmann::ordered_json;

  /// `write` gets whole lines, without their end; without one they go to stderr.
  explicit Log(LogLevel level = LogLevel::info, bool is_json = false, std::function<void(std::string_view)> write = {});

  void debug(std::string_view message, const Fields& fields = {}) { add(LogLevel::debug, message, fields); }
  void info(std::string_view message, const Fields& fields = {}) { add(LogLevel::info, message, fields); }
  void warning(std::string_view message, const Fields& fields = {}) { add(LogLevel::warning, message, fields); }
  void error(std::string_view message, const Fields& fields = {}) { add(LogLevel::error, message, fields); }

  /// The line of a request: info; debug for the open routes that are polled; warning if it failed on our side.
  void request(const RequestRecord& record);

 private:
  void add(LogLevel level, std::string_view message, const Fields& fields);

  LogLevel level_;
  bool is_json_;
  std::function<void(std::string_view)> write_;
  std::mutex mutex_;
};

}  // namespace lockstep
