// The HTTP server: sockets, framing, limits, deadlines, keys, CORS and TLS; what a request means is its handler's.
//
// One thread moves bytes, so that nothing of a connection needs a lock; a few more run handlers. A connection without a
// request costs a socket and a few hundred bytes. Nobody waits for a client: what is sent is queued, and a client that
// does not read is given up. It knows no model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api_keys.h"
#include "server/http.h"

namespace lockstep {

/// A request that is over, for the log.
struct RequestRecord {
  std::string id, method, path, address;      // "-" for what could not be read
  int status = 0;                             // 0: nothing was answered
  double seconds = 0;                         // since its first byte
  std::uint64_t bytes_in = 0, bytes_out = 0;  // of the body, and of the whole answer
  std::string end;                            // "done", or what went wrong: "the client left"
  nlohmann::ordered_json notes;               // what handlers noted; null if nothing
};

struct HttpOptions {
  std::string host = "127.0.0.1";         // an address, or a name; every address of it is listened on
  int port = 8000;                        // 0: any that is free
  std::string tls_certificate, tls_key;   // PEM files, both or neither
  std::vector<std::string> cors_origins;  // "https://host:port" or "*"; empty: no CORS
  ApiKeys keys;
  int worker_threads = 4;  // that run handlers
  // A request with a body above this size is a large one: at most half of the threads work on such at once, one at
  // least, so that small ones find a thread.
  std::size_t large_body_bytes = 256 << 10;

  std::size_t body_bytes = std::size_t{64} << 20;  // of a request
  // Of all requests together, by the lengths that they announce. An eighth more is there for those that are not large,
  // so that they come through where large ones have taken everything.
  std::size_t all_bodies_bytes = std::size_t{512} << 20;
  std::size_t header_bytes = 64 << 10;
  std::size_t unread_bytes = 16 << 20;  // of a stream, that the client has not read
  std::size_t connections = 8192;       // beyond that the one that has been idle for the longest is closed

  double handshake_seconds = 10;
  double idle_seconds = 600;   // between requests
  double header_seconds = 20;  // from a request's first byte to the end of its header
  double body_seconds = 60;    // for a body, plus a second for every body_rate bytes that have come
  double body_rate = 128 << 10;
  double write_seconds = 30;  // without progress
  double linger_seconds = 2;  // to let the client close first, after the last answer

  std::function<void(const RequestRecord&)> on_request;  // called on the transport's thread; must be quick
};

struct HttpCounters {
  std::uint64_t connections = 0;  // open now
  std::uint64_t connections_total = 0;
  std::uint64_t requests_total = 0;
  std::uint64_t active = 0;  // requests that are being answered
  std::uint64_t answers_2xx = 0, answers_4xx = 0, answers_5xx = 0;
  std::uint64_t clients_left = 0;  // before their answer was complete
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::uint64_t body_bytes = 0;  // of requests, held now
};

class HttpServer {
 public:
  /// Listens and serves from here on. Throws Error::bad_argument for a host, certificate or key that cannot be used and
  /// Error::io if the address is taken.
  HttpServer(const HttpOptions& options, std::shared_ptr<const Router> router);
  /// Closes every connection at once.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:8000"
  std::string url() const;

  /// From the next request on.
  void set_router(std::shared_ptr<const Router> router);

  /// No more connections and, but for routes that are answered inline, no more requests: they get 503. Connections
  /// without a request are closed, the others after their answer.
  void begin_shutdown();
  /// Waits until every answer is out, at most `seconds`. False if there are some left.
  bool drain(double seconds);

  HttpCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
