// Any bytes on a connection are answered with whole HTTP answers or with the end of the connection, and never with a
// crash. The input is what a client sends, cut in two at a place that its first byte says. Seeds:
// tests/fuzz/corpus/http.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_server.h"
#include "server_client.h"

namespace {

using namespace lockstep;

struct World {
  World() {
    HttpOptions options;
    options.port = 0;
    options.worker_threads = 1;
    options.body_bytes = 4096;
    options.header_seconds = options.body_seconds = options.linger_seconds = 0.05;
    options.idle_seconds = 0.05;
    auto router = std::make_shared<Router>();
    const auto echo = [](const std::shared_ptr<Exchange>& exchange) {
      exchange->respond({.body = exchange->request().body});
    };
    const auto stream = [](const std::shared_ptr<Exchange>& exchange) {
      exchange->begin_stream();
      exchange->send("data: " + exchange->request().rest + "\n\n");
      exchange->end();
    };
    for (const char* method : {"GET", "POST"}) {
      router->add({.method = method, .path = "/echo", .handler = echo});
      router->add({.method = method, .path = "/stream/{rest}", .handler = stream});
    }
    server = std::make_unique<HttpServer>(options, router);
  }
  std::unique_ptr<HttpServer> server;
};

/// Whether every answer in what the server sent is one.
bool are_answers(std::string_view bytes) { return bytes.empty() || bytes.starts_with("HTTP/1.1 "); }

}  // namespace

// The server runs until the end of the process, and OpenSSL keeps a random generator for each of its threads until
// then.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;  // a fuzzer has no main of its own to own it
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = data[0] * bytes.size() / 256;
  test::Client client(world.server->port());
  client.send(bytes.substr(0, cut));
  client.send(bytes.substr(cut));
  client.shut_down_writing();
  if (!client.is_closed_within(10)) {
    std::fprintf(stderr, "the connection stays open\n");
    std::abort();
  }
  if (!are_answers(client.buffered())) {
    std::fprintf(stderr, "what the server sent is no answer\n");
    std::abort();
  }
  return 0;
}
