#include "server/page.h"

#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

// The page runs its own files and talks to its own server, and nothing else may get in.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

const char* content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  LOCKSTEP_CHECK(name.ends_with(".js"));
  return "text/javascript; charset=utf-8";
}

}  // namespace

void add_page(Router& router) {
  for (const PageFile& file : page_files()) {
    const auto handler = [file](const std::shared_ptr<Exchange>& exchange) {
      HttpResponse response;
      response.body = file.bytes;
      response.content_type = content_type_of(file.name);
      response.headers = {{"Content-Security-Policy", kPolicy},
                          {"X-Content-Type-Options", "nosniff"},
                          {"Referrer-Policy", "no-referrer"}};
      exchange->respond(std::move(response));
    };
    std::string path = "/";
    if (file.name != "page.html") path += file.name;
    router.add(
        {.method = "GET", .path = path, .handler = handler, .is_open = true, .where = HttpRoute::Where::inline_});
  }
}

}  // namespace lockstep
