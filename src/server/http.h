// What lies between the transport and the handlers of the API: a request that has been read whole, and an exchange to
// answer it through, now or later and from any thread.
//
// Handlers see no sockets. The transport (http_server.h) has already dealt with framing, limits, keys, HEAD, OPTIONS
// and CORS, and answers what no route takes. An exchange that is let go without an answer is answered by the transport,
// so that no client waits for ever.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http_error.h"

namespace lockstep {

/// In the order they came; names compare without regard to case.
class HttpHeaders {
 public:
  HttpHeaders() = default;
  HttpHeaders(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  /// The first of that name; nullptr if there is none.
  const std::string* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct HttpRequest {
  std::string method;  // HEAD is told as GET
  std::string target;  // as it was sent
  std::string path;    // decoded; no query, no trailing slash, no leading /v1: "/chat/completions"; the root is "/"
  bool is_v1 = false;  // there was a leading /v1
  std::string rest;    // what the {rest} of the route stood for: the model's name in /models/{rest}
  std::string query;   // as it was sent, without the question mark
  HttpHeaders headers;
  std::string body;
  std::string id;                  // "req_..."; the client gets it as x-request-id and request-id
  std::string address;             // of the client, "127.0.0.1:4711"
  Family family = Family::openai;  // the shape of errors: family_of(path, headers)

  /// A parameter of the query, decoded; nothing if it is not there.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json; charset=utf-8";
  HttpHeaders headers = {};  // besides those that every answer has
};

/// One request and its answer. Every method may be called from any thread and returns at once; calls of one thread take
/// effect in their order. Either respond() once, or begin_stream(), send() any number of times, end(). What comes after
/// that is ignored.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;

  virtual void respond(HttpResponse response) = 0;
  /// The error in the shape of the request's family. During a stream it only ends the stream: how an error looks there
  /// is the protocol's to say.
  virtual void fail(const ApiError& error) = 0;

  /// Sends status 200 and the headers of an event stream.
  virtual void begin_stream(HttpHeaders headers = {}) = 0;
  /// Queues bytes. False if nobody will read them, or if the client has left so much unread that it was given up.
  virtual bool send(std::string bytes) = 0;
  virtual void end() = 0;

  /// The client has left or was given up. Cheap: it may be asked at every layer and token.
  virtual bool is_gone() const = 0;

  /// `call` is called on the transport's thread whenever the stream has been silent for `seconds`, until it ends. It
  /// should send() something that the protocol allows between two events, under the lock that the protocol's other
  /// events are made under. It must be quick. It is dropped when the stream ends or the client leaves.
  virtual void on_silence(double seconds, std::function<void()> call) = 0;

  /// Adds members of an object to the request's line in the log: what ran, rates, the job. Never text of the prompt or
  /// the answer, never a header's value.
  virtual void note(const nlohmann::ordered_json& fields) = 0;
};

/// Takes the exchange and answers it now or later. May throw: ApiError and Error become an answer in the family's
/// shape.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpRoute {
  enum class Where {
    worker,  // a thread of the handlers' pool: may take its time over a request, but must not wait for the model
    inline_  // the transport's own thread: must be done in microseconds
  };
  std::string method;  // GET or POST; HEAD is answered by GET
  std::string path;    // "/models", or "/models/{rest}" for one or more segments
  Handler handler;
  bool is_open = false;  // needs no key
  Where where = Where::worker;
};

/// The routes of a server. Made once, then only read.
class Router {
 public:
  void add(HttpRoute route);
  /// Takes what no path takes, instead of a 404.
  void set_fallback(Handler handler, HttpRoute::Where where);

  struct Match {
    const HttpRoute* route = nullptr;  // none: not found, or another method is needed
    std::string rest;
    std::vector<std::string> allowed;  // methods that the path has; empty: it is not there
  };
  /// Borrows from the router.
  Match match(std::string_view method, std::string_view path) const;

 private:
  std::vector<HttpRoute> routes_;
  std::optional<HttpRoute> fallback_;
};

/// The answer that an error is, in the shape of the request's family.
HttpResponse error_response(const HttpRequest& request, const ApiError& error);

/// Whose shape an error has: Anthropic's below /messages, and for clients that sent anthropic-version.
Family family_of(std::string_view path, const HttpHeaders& headers);

/// Takes a request's target apart: path, is_v1 and query of `request` are set from its target. Throws ApiError 400 for
/// a target that is no path.
void split_target(HttpRequest& request);

}  // namespace lockstep
