#include "server/http_error.h"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kMostMessage = 3000;  // bytes

struct Names {
  int status;
  const char *openai, *code, *anthropic;  // code: the usual one; nullptr: null
};

// Source: the table of errors in docs/api.md.
constexpr Names kNames[] = {
    {400, "invalid_request_error", nullptr, "invalid_request_error"},
    {401, "authentication_error", "invalid_api_key", "authentication_error"},
    {403, "permission_error", nullptr, "permission_error"},
    {404, "not_found_error", nullptr, "not_found_error"},
    {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"},
    {408, "invalid_request_error", "request_timeout", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large", "request_too_large"},
    {415, "invalid_request_error", "unsupported_encoding", "invalid_request_error"},
    {417, "invalid_request_error", nullptr, "invalid_request_error"},
    {429, "rate_limit_error", nullptr, "rate_limit_error"},
    {431, "invalid_request_error", "headers_too_large", "invalid_request_error"},
    {500, "server_error", nullptr, "api_error"},
    {501, "not_supported_error", nullptr, "api_error"},
    {503, "server_error", nullptr, "overloaded_error"},
};

const Names& names_of(int status) {
  for (const Names& names : kNames)
    if (names.status == status) return names;
  return names_of(status < 500 ? 400 : 500);
}

Error::Kind kind_of(int status) {
  if (status == 501) return Error::Kind::unsupported;
  return status < 500 ? Error::Kind::bad_argument : Error::Kind::io;
}

}  // namespace

ApiError::ApiError(int status, const std::string& message, std::string param, std::string code)
    : Error(kind_of(status), message), status_(status), param_(std::move(param)), code_(std::move(code)) {
  if (code_.empty() && names_of(status).code != nullptr) code_ = names_of(status).code;
  if (status == 429) retry_after_ = 2;
  if (status == 503) retry_after_ = 5;
}

ApiError&& ApiError::retry_after(int seconds) && {
  retry_after_ = seconds;
  return std::move(*this);
}

ApiError&& ApiError::with(nlohmann::ordered_json extra) && {
  extra_ = std::move(extra);
  return std::move(*this);
}

ApiError as_api_error(const std::exception& exception) {
  if (const auto* api = dynamic_cast<const ApiError*>(&exception)) return *api;
  if (const auto* error = dynamic_cast<const Error*>(&exception)) {
    const bool is_clients = error->kind() == Error::Kind::bad_argument || error->kind() == Error::Kind::unsupported;
    return ApiError(is_clients ? 400 : 500, error->what());
  }
  return ApiError(500, exception.what());
}

nlohmann::ordered_json error_object(Family family, const ApiError& error) {
  const Names& names = names_of(error.status());
  // What was wrong may be quoted in it, and that may be as long as a request.
  std::string message = error.what();
  if (message.size() > kMostMessage)
    message = message.substr(0, kMostMessage / 2) + " ... " + message.substr(message.size() - kMostMessage / 2);
  nlohmann::ordered_json object;
  if (family == Family::anthropic) {
    object["type"] = names.anthropic;
    object["message"] = std::move(message);
  } else {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
    };
    object["message"] = std::move(message);
    object["type"] = names.openai;
    object["param"] = or_null(error.param());
    object["code"] = or_null(error.code());
  }
  for (const auto& [key, value] : error.extra().items()) object[key] = value;
  return object;
}

nlohmann::ordered_json error_body(Family family, const ApiError& error, std::string_view request_id) {
  nlohmann::ordered_json body;
  if (family == Family::anthropic) body["type"] = "error";
  body["error"] = error_object(family, error);
  if (family == Family::anthropic) body["request_id"] = request_id;
  return body;
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep
