#include "server/connection.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "server/exchange.h"
#include "server/origin.h"
#include "server/random_id.h"

namespace lockstep {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t kBufferBytes = 128 << 10;  // more than a header may take
constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kIdleReadBytes = 4 << 10;  // what a connection without a request holds

std::chrono::steady_clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// GET brings HEAD with it, and every path takes OPTIONS.
std::vector<std::string> with_implied(std::vector<std::string> methods) {
  if (std::find(methods.begin(), methods.end(), "GET") != methods.end()) methods.emplace_back("HEAD");
  methods.emplace_back("OPTIONS");
  return methods;
}

}  // namespace

Connection::Connection(std::shared_ptr<Transport> transport, std::unique_ptr<Socket> socket)
    : transport_(std::move(transport)),
      socket_(std::move(socket)),
      timer_(transport_->io),
      since_(Clock::now()),
      buffer_(kBufferBytes) {
  Socket::Code ignored;
  const auto peer = socket_->tcp().remote_endpoint(ignored);
  address_ = peer.address().to_string() + ":" + std::to_string(peer.port());
  socket_->tcp().set_option(boost::asio::ip::tcp::no_delay(true), ignored);
}

void Connection::start() {
  transport_->connections.insert(shared_from_this());
  ++transport_->connections_open;
  ++transport_->connections_total;
  enter(State::handshake);
  socket_->handshake([self = shared_from_this()](const Socket::Code& code) {
    if (self->state_ != State::handshake) return;
    if (code) return self->close("the handshake failed");
    self->enter(State::idle);
    self->advance();
  });
}

void Connection::enter(State state) {
  state_ = state;
  since_ = Clock::now();
  arm();
}

void Connection::close_if_idle() {
  if (state_ == State::idle || state_ == State::handshake) close("shutting down");
}

void Connection::abort(const char* why) { close(why); }

// --- Reading

void Connection::start_read() {
  if (is_reading_ || is_input_ended_ || state_ == State::closed || buffer_.size() == kBufferBytes) return;
  is_reading_ = true;
  // Not straight into the buffer: requests are taken out of it while the read is under way.
  const std::size_t wanted = state_ == State::body || state_ == State::lingering ? kReadBytes : kIdleReadBytes;
  if (block_.size() != wanted) block_ = std::vector<char>(wanted);
  socket_->read_some(boost::asio::buffer(block_.data(), std::min(wanted, kBufferBytes - buffer_.size())),
                     [self = shared_from_this()](const Socket::Code& code, std::size_t n) { self->on_read(code, n); });
}

void Connection::on_read(const Socket::Code& code, std::size_t n) {
  is_reading_ = false;
  if (state_ == State::closed) return;
  buffer_.commit(boost::asio::buffer_copy(buffer_.prepare(n), boost::asio::buffer(block_.data(), n)));
  if (code == boost::asio::error::eof && socket_->can_be_half_closed()) {
    is_input_ended_ = true;
  } else if (code) {
    return close("the client left");
  }
  advance();
}

/// Does what can be done with the bytes that there are.
void Connection::advance() {
  try {
    for (bool goes_on = true; goes_on;) {
      switch (state_) {
        case State::idle:
          goes_on = begin_request();
          break;
        case State::head:
          goes_on = read_head();
          break;
        case State::body:
          goes_on = read_body();
          break;
        case State::busy:
          if (is_input_ended_) on_half_closed();
          goes_on = false;
          break;
        case State::lingering:
          buffer_.consume(buffer_.size());
          if (is_input_ended_) close("done");
          goes_on = false;
          break;
        case State::handshake:
        case State::closed:
          return;
      }
    }
    start_read();
  } catch (const std::bad_alloc&) {
    close("no memory for the request");
  }
}

/// True if a request has begun.
bool Connection::begin_request() {
  // Some clients end a body with a line that does not belong to it.
  while (buffer_.size() > 0) {
    const char first = *static_cast<const char*>(buffer_.data().data());
    if (first != '\r' && first != '\n') break;
    buffer_.consume(1);
  }
  if (buffer_.size() == 0) {
    if (is_input_ended_ || transport_->is_shutting_down) close("done");
    buffer_.shrink_to_fit();  // an idle connection holds nothing but the block that is read into
    return false;
  }
  exchange_ = std::make_shared<ExchangeState>();
  exchange_->request.id = random_id("req_");
  exchange_->request.address = address_;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(transport_->options.header_bytes));
  parser_->body_limit(transport_->options.body_bytes);
  route_ = nullptr;
  is_head_ = is_http10_ = should_close_ = false;
  began_ = Clock::now();
  status_ = 0;
  bytes_in_ = bytes_out_ = 0;
  answer_ = Answer::none;
  enter(State::head);
  return true;
}

bool Connection::read_head() {
  Socket::Code code;
  const std::size_t n = parser_->put(buffer_.data(), code);
  buffer_.consume(n);
  if (parser_->is_header_done() && (!code || code == http::error::need_more)) {
    on_head();
    return true;
  }
  if (code && code != http::error::need_more) {
    refuse_broken(code);
    return true;
  }
  if (is_input_ended_) {
    close("the client left");
    return false;
  }
  if (buffer_.size() == kBufferBytes) {
    refuse_broken(http::error::header_limit);
    return true;
  }
  return n > 0;
}

bool Connection::read_body() {
  Socket::Code code;
  std::size_t n = 0;
  if (!parser_->is_done() && buffer_.size() > 0) n = parser_->put(buffer_.data(), code);
  buffer_.consume(n);
  const std::size_t size = parser_->get().body().size();
  transport_->body_bytes += size - counted_body_;
  counted_body_ = size;
  if (code && code != http::error::need_more) {
    refuse_broken(code);
    return true;
  }
  if (size > reserved_body_ && !reserve_body(size)) {  // chunks, whose sum nobody knew
    refuse_for_room();
    return true;
  }
  if (parser_->is_done()) {
    accept_exchange();
    dispatch();
    return true;
  }
  if (is_input_ended_) {
    close("the client left");
    return false;
  }
  if (n == 0 && buffer_.size() == kBufferBytes) {  // a chunk's head that has no end
    refuse_broken(http::error::bad_chunk_extension);
    return true;
  }
  return n > 0 && buffer_.size() > 0;
}

/// What is known of the request so far, for handlers, the log and errors.
void Connection::fill_request() {
  const auto& message = parser_->get();
  HttpRequest& request = exchange_->request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) request.headers.add(std::string(field.name_string()), std::string(field.value()));
  is_http10_ = message.version() < 11;
  is_head_ = request.method == "HEAD";
  if (is_head_) request.method = "GET";
}

/// Source: RFC 9112, section 3.2.
void Connection::check_host() {
  const std::size_t hosts = parser_->get().count(http::field::host);
  if (hosts == 1 || (hosts == 0 && is_http10_)) return;
  should_close_ = true;
  if (hosts == 0) throw ApiError(400, "Host: missing, expected the server's name and port");
  throw ApiError(400, "Host: " + std::to_string(hosts) + " of them, expected one");
}

/// The header is whole: everything that can be refused without the body is.
void Connection::on_head() {
  fill_request();
  HttpRequest& request = exchange_->request;
  const bool has_body = !parser_->is_done();
  should_close_ = !parser_->get().keep_alive() || transport_->is_shutting_down || has_body;
  try {
    split_target(request);
    request.family = family_of(request.path, request.headers);
    check_host();
  } catch (const ApiError& error) {
    return refuse(error);
  }
  if (transport_->checks_origin) {
    try {
      check_origin(request, transport_->options);
    } catch (const ApiError& error) {
      return refuse(error);
    }
  }
  router_ = transport_->router;
  const Router::Match match = router_->match(request.method, request.path);
  if (request.method == "OPTIONS")
    return answer_options(match.route != nullptr ? std::vector<std::string>{"GET", "POST"} : match.allowed);
  const bool is_open = match.route != nullptr && match.route->is_open;
  if (!is_open && !transport_->options.keys.admit(request.headers)) {
    const bool has_any = request.headers.has("authorization") || request.headers.has("x-api-key");
    return refuse(ApiError(401, std::string(has_any ? "the API key is not one of this server's" : "no API key") +
                                    ", expected Authorization: Bearer KEY or x-api-key: KEY"),
                  {{"WWW-Authenticate", "Bearer"}});
  }
  if (match.route == nullptr) {
    const std::string path = (request.is_v1 ? "/v1" : "") + request.path;
    if (match.allowed.empty())
      return refuse(ApiError(404, "no such path: " + request.method + " " + path, {}, "not_found"));
    const std::string allowed = joined(with_implied(match.allowed));
    return refuse(ApiError(405, path + ": does not take " + request.method + ", expected " + allowed),
                  {{"Allow", allowed}});
  }
  const std::string* coding = request.headers.find("content-encoding");
  if (coding != nullptr && !coding->empty() && !is_same_word(*coding, "identity"))
    return refuse(ApiError(415, "Content-Encoding: " + *coding + ", expected none, or identity"));
  const std::string* transfer = request.headers.find("transfer-encoding");
  if (transfer != nullptr && !is_same_word(*transfer, "chunked")) {
    should_close_ = true;
    return refuse(ApiError(501, "Transfer-Encoding: " + *transfer + ", expected chunked"));
  }
  const std::string* expect = request.headers.find("expect");
  if (expect != nullptr && !is_same_word(*expect, "100-continue"))
    return refuse(ApiError(417, "Expect: " + *expect + ", expected 100-continue"));
  if (transport_->is_shutting_down && match.route->where == HttpRoute::Where::worker)
    return refuse(ApiError(503, "the server is shutting down", {}, "shutting_down"));
  if (const auto length = parser_->content_length(); length && !reserve_body(static_cast<std::size_t>(*length)))
    return refuse_for_room();
  should_close_ = !parser_->get().keep_alive() || transport_->is_shutting_down;
  route_ = match.route;
  request.rest = match.rest;
  if (expect != nullptr && has_body && buffer_.size() == 0 && !is_http10_) queue("HTTP/1.1 100 Continue\r\n\r\n");
  enter(State::body);
}

/// What is known of a request whose header never became whole.
void Connection::describe_unfinished() {
  should_close_ = true;
  if (state_ != State::head) return;
  fill_request();
  HttpRequest& request = exchange_->request;
  if (request.target.empty()) return;
  try {
    split_target(request);
    request.family = family_of(request.path, request.headers);
  } catch (const ApiError&) {  // there is something worse to tell than that
  }
}

/// The parser could not go on.
void Connection::refuse_broken(const Socket::Code& code) {
  describe_unfinished();
  const auto limit = [](std::size_t bytes) { return std::to_string(bytes) + " bytes"; };
  if (code == http::error::body_limit || code == http::error::buffer_overflow)
    return refuse(ApiError(413, "the body is too large, expected at most " + limit(transport_->options.body_bytes)));
  if (code == http::error::header_limit)
    return refuse(
        ApiError(431, "the header is too large, expected at most " + limit(transport_->options.header_bytes)));
  refuse(ApiError(400, "not HTTP/1.1: " + code.message()));
}

/// Who comes last finds no room; what is under way goes on.
void Connection::refuse_for_room() {
  should_close_ = true;
  refuse(ApiError(503, "the server holds as many requests as it has room for, try again"));
}

/// Answers before the body has been read; the connection does not go on after it, if there is one.
void Connection::refuse(const ApiError& error, const HttpHeaders& headers) {
  accept_exchange();
  HttpResponse response = error_response(exchange_->request, error);
  for (const auto& [name, value] : headers.fields()) response.headers.add(name, value);
  respond(exchange_, std::move(response));
}

void Connection::answer_options(const std::vector<std::string>& allowed) {
  accept_exchange();
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  const std::string methods = joined(with_implied(allowed.empty() ? std::vector<std::string>{"GET", "POST"} : allowed));
  response.headers.add("Allow", methods);
  if (!transport_->options.cors_origins.empty()) {
    response.headers.add("Access-Control-Allow-Methods", methods);
    const std::string* asked = exchange_->request.headers.find("access-control-request-headers");
    response.headers.add("Access-Control-Allow-Headers",
                         asked != nullptr ? *asked : "authorization, content-type, x-api-key, anthropic-version");
    response.headers.add("Access-Control-Max-Age", "600");
  }
  respond(exchange_, std::move(response));
}

/// From here on the request counts as one, and will be answered.
void Connection::accept_exchange() {
  bytes_in_ = parser_->get().body().size();
  transport_->bytes_in += bytes_in_;
  ++transport_->requests_total;
  transport_->add_active();
  is_active_ = true;
  enter(State::busy);
}

void Connection::dispatch() {
  exchange_->request.body = std::move(parser_->get().body());
  parser_.reset();
  auto exchange = make_exchange(transport_, weak_from_this(), exchange_);
  const auto run = [](const Handler& handler, const std::shared_ptr<Exchange>& to) {
    try {
      handler(to);
    } catch (const std::exception& error) {
      to->fail(as_api_error(error));
    }
  };
  if (route_->where == HttpRoute::Where::inline_) return run(route_->handler, exchange);
  const bool is_large = exchange_->request.body.size() > transport_->options.large_body_bytes;
  auto call = [run, router = router_, route = route_, exchange = std::move(exchange), transport = transport_] {
    if (!transport->is_closed() && !exchange->is_gone()) run(route->handler, exchange);
  };
  if (is_large) return transport_->large_requests.post(std::move(call));
  boost::asio::post(transport_->workers, std::move(call));
}

/// The client writes no more. It may have left, or wait for its answer; only writing to it tells which.
void Connection::on_half_closed() {
  if (buffer_.size() == 0) should_close_ = true;  // otherwise there are requests that it wrote before
  if (answer_ == Answer::complete) return;
  if (!is_watching_) watch_for_hang_up();
  if (is_writing_) return;
  if (answer_ == Answer::stream) {
    break_silence();
  } else if (!is_http10_) {
    queue("HTTP/1.1 100 Continue\r\n\r\n");  // an interim answer, which clients pass over
  }
}

void Connection::break_silence() {
  last_queued_ = Clock::now();  // also if the call sends nothing
  if (!exchange_->silence) return;
  try {
    exchange_->silence();
  } catch (const std::exception&) {
    close("the answer failed");
  }
}

void Connection::watch_for_hang_up() {
  is_watching_ = true;
  socket_->tcp().async_wait(Socket::Tcp::wait_error, [self = shared_from_this()](const Socket::Code& code) {
    self->is_watching_ = false;
    if (!code && self->state_ == State::busy) self->check_hang_up();
  });
}

void Connection::check_hang_up() {
  pollfd poll_for{socket_->tcp().native_handle(), 0, 0};
  if (::poll(&poll_for, 1, 0) > 0 && (poll_for.revents & (POLLHUP | POLLERR)) != 0) return close("the client left");
  watch_for_hang_up();
}

// --- Time

/// When something is to be done if nothing happens before.
Connection::Clock::time_point Connection::deadline() const {
  const HttpOptions& options = transport_->options;
  switch (state_) {
    case State::handshake:
      return since_ + seconds_of(options.handshake_seconds);
    case State::idle:
      return since_ + seconds_of(options.idle_seconds);
    case State::head:
      return since_ + seconds_of(options.header_seconds);
    case State::body:
      return since_ + seconds_of(options.body_seconds + static_cast<double>(counted_body_) / options.body_rate);
    case State::busy: {
      if (is_writing_) return write_progress_ + seconds_of(options.write_seconds);
      const bool waits = answer_ == Answer::stream && exchange_->silence;
      return waits ? last_queued_ + seconds_of(exchange_->silence_seconds) : Clock::time_point::max();
    }
    case State::lingering:
      return since_ + seconds_of(options.linger_seconds);
    case State::closed:
      break;
  }
  return Clock::time_point::max();
}

/// A timer that goes off too early is set again then; so most changes cost nothing.
void Connection::arm() {
  const Clock::time_point when = deadline();
  if (when >= timer_set_for_) return;
  timer_set_for_ = when;
  timer_.expires_at(when);
  timer_.async_wait([weak = weak_from_this()](const Socket::Code& code) {
    const auto self = weak.lock();
    if (!code && self) self->on_timer();
  });
}

void Connection::on_timer() {
  timer_set_for_ = Clock::time_point::max();
  if (state_ == State::closed || Clock::now() < deadline()) return arm();
  switch (state_) {
    case State::body:
      describe_unfinished();
      return refuse(ApiError(408, "the body took too long, expected all of it within " +
                                      fmt::format("{:g} s", transport_->options.body_seconds)));
    case State::head:
      describe_unfinished();
      return refuse(ApiError(408, "the header took too long, expected all of it within " +
                                      fmt::format("{:g} s", transport_->options.header_seconds)));
    case State::busy:
      if (is_writing_) {
        // The socket takes more only when much of what it holds has been read: that shows a slow reader too late.
        const int unread = socket_->unread();
        if (unread >= unread_) return close("the client did not read");
        unread_ = unread;
        write_progress_ = Clock::now();
        return arm();
      }
      break_silence();
      return arm();
    default:
      return close("timed out");
  }
}

}  // namespace lockstep
