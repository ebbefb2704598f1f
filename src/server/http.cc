#include "server/http.h"

#include <algorithm>

namespace lockstep {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

/// Nothing for a broken escape and for one that hides a NUL.
std::optional<std::string> percent_decoded(std::string_view text, bool is_plus_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += is_plus_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

constexpr std::string_view kRest = "/{rest}";

/// Whether the route's path takes `path`; `rest` is then set.
bool takes(std::string_view route, std::string_view path, std::string& rest) {
  if (!route.ends_with(kRest)) {
    rest.clear();
    return route == path;
  }
  const std::string_view base = route.substr(0, route.size() - kRest.size());
  if (path.size() <= base.size() + 1 || !path.starts_with(base) || path[base.size()] != '/') return false;
  rest = path.substr(base.size() + 1);
  return true;
}

}  // namespace

const std::string* HttpHeaders::find(std::string_view name) const {
  for (const auto& [field, value] : fields_)
    if (same_name(field, name)) return &value;
  return nullptr;
}

std::optional<std::string> HttpRequest::parameter(std::string_view name) const {
  std::string_view left = query;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find('&'), left.size());
    const std::string_view pair = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decoded(pair.substr(0, equals), true) != name) continue;
    return percent_decoded(equals < pair.size() ? pair.substr(equals + 1) : std::string_view(), true);
  }
  return std::nullopt;
}

void Router::add(HttpRoute route) { routes_.push_back(std::move(route)); }

void Router::set_fallback(Handler handler, HttpRoute::Where where) {
  fallback_ = HttpRoute{.method = {}, .path = {}, .handler = std::move(handler), .where = where};
}

Router::Match Router::match(std::string_view method, std::string_view path) const {
  Match match;
  std::string rest;
  // A route without {rest} is the better one: /slots before /slots/{rest}, whatever the order they were added in.
  for (const bool is_open_ended : {false, true}) {
    for (const HttpRoute& route : routes_) {
      if (route.path.ends_with(kRest) != is_open_ended || !takes(route.path, path, rest)) continue;
      // A POST below a path that is only read names something to do, not something that is there.
      if (is_open_ended && method == "POST" && route.method != method) continue;
      if (std::find(match.allowed.begin(), match.allowed.end(), route.method) == match.allowed.end())
        match.allowed.push_back(route.method);
      if (match.route == nullptr && route.method == method) {
        match.route = &route;
        match.rest = rest;
      }
    }
    if (!match.allowed.empty()) return match;
  }
  if (fallback_) match.route = &*fallback_;
  return match;
}

HttpResponse error_response(const HttpRequest& request, const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  if (error.retry_after_seconds() > 0) response.headers.add("Retry-After", std::to_string(error.retry_after_seconds()));
  response.body = json_text(error_body(request.family, error, request.id)) + "\n";
  return response;
}

Family family_of(std::string_view path, const HttpHeaders& headers) {
  const bool is_below = path == "/messages" || path.starts_with("/messages/");
  return is_below || headers.has("anthropic-version") ? Family::anthropic : Family::openai;
}

void split_target(HttpRequest& request) {
  std::string_view target = request.target;
  // The absolute form, which only proxies should get: http://host/path
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const std::size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string_view::npos ? std::string_view("/") : target.substr(path);
    break;
  }
  target = target.substr(0, target.find('#'));
  const std::size_t question = target.find('?');
  request.query = question == std::string_view::npos ? std::string() : std::string(target.substr(question + 1));
  target = target.substr(0, question);
  if (target.empty()) target = "/";
  std::optional<std::string> path = percent_decoded(target, false);
  if (target != "*" && (target[0] != '/' || !path))
    throw ApiError(400, "the request's target is no path, expected one that begins with /");
  request.path = std::move(*path);
  while (request.path.size() > 1 && request.path.back() == '/') request.path.pop_back();
  request.is_v1 = request.path == "/v1" || request.path.starts_with("/v1/");
  if (request.is_v1) request.path = request.path.size() > 3 ? request.path.substr(3) : "/";
}

}  // namespace lockstep
