// Errors as clients get them: a status, words, and the shape of the API's family.
//
// What a status is called follows from the table in docs/api.md, so that a thrower says only what is special.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

enum class Family { openai, anthropic };

/// An error with a status, to be thrown by handlers or given to Exchange::fail.
class ApiError : public Error {
 public:
  /// `param` names the field; `code` is the OpenAI family's code, the status's usual one if empty.
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {});

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }
  int retry_after_seconds() const { return retry_after_; }  // 0: no such header
  const nlohmann::ordered_json& extra() const { return extra_; }

  /// Another number of seconds than the status's usual one (429: 2, 503: 5, others none).
  ApiError&& retry_after(int seconds) &&;
  /// More members for the error object.
  ApiError&& with(nlohmann::ordered_json extra) &&;

 private:
  int status_;
  std::string param_, code_;
  int retry_after_ = 0;
  nlohmann::ordered_json extra_;
};

/// What an exception of a handler means: an ApiError itself; Error::bad_argument and unsupported 400; everything else
/// 500 with its message.
ApiError as_api_error(const std::exception& exception);

/// The error object alone: {"message", "type", "param", "code", ...} or {"type", "message"}.
nlohmann::ordered_json error_object(Family family, const ApiError& error);
/// The whole body: {"error": ...}, or {"type": "error", "error": ..., "request_id": ...}.
nlohmann::ordered_json error_body(Family family, const ApiError& error, std::string_view request_id);

/// Text of a JSON value for the wire: one line, invalid UTF-8 replaced by U+FFFD instead of thrown about.
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace lockstep
