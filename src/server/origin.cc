#include "server/origin.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::size_t kShownBytes = 100;

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

/// "[::1]:8000" and "::1" are "::1", "localhost.:8000" is "localhost".
std::string name_of_host(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, std::min(host.find(']'), host.size()) - 1);
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  return in_lower_case(host);
}

bool is_of_this_machine(const std::string& name) {
  if (name == "localhost" || name.ends_with(".localhost")) return true;  // no name server is asked for these
  boost::system::error_code code;
  const auto address = boost::asio::ip::make_address(name, code);
  return !code && address.is_loopback();
}

[[noreturn]] void refuse_sender(const char* header, const std::string& value, const std::string& expected) {
  throw ApiError(403, std::string(header) + ": " + value.substr(0, kShownBytes) + ", expected " + expected +
                          ", or a server that asks for keys (--api-key-file)");
}

}  // namespace

void check_origin(const HttpRequest& request, const HttpOptions& options) {
  const std::string* host = request.headers.find("host");
  if (host != nullptr) {
    const std::string name = name_of_host(*host);
    if (!is_of_this_machine(name) && name != name_of_host(options.host))
      refuse_sender("Host", *host, "localhost, a loopback address or what --host says");
  }
  const std::string* origin = request.headers.find("origin");
  // What a page may do is asked for by OPTIONS, and the answer says it.
  if (origin == nullptr || request.method == "OPTIONS") return;
  const auto& allowed = options.cors_origins;
  const auto is_named = [&](const std::string& text) {
    return std::find(allowed.begin(), allowed.end(), text) != allowed.end();
  };
  if (is_named("*") || is_named(*origin)) return;
  const std::size_t at = origin->find("://");
  const bool is_own = host != nullptr && at != std::string::npos &&
                      in_lower_case(std::string_view(*origin).substr(at + 3)) == in_lower_case(*host);
  if (!is_own) refuse_sender("Origin", *origin, "the server's own page, or an origin that --cors names");
}

}  // namespace lockstep
