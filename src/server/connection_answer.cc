// How a connection answers: heads, the queue of bytes to be written, and the end of a request. Reading and time are in
// connection.cc.
#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <utility>

#include "server/connection.h"

namespace lockstep {
namespace {

constexpr std::size_t kKeptBytes = 64 << 10;  // of the memory of what was written

const char* reason_of(int status) {
  if (status == 529) return "Overloaded";
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  return reason.empty() ? "Unknown" : reason.data();
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text, n};
}

/// A header line. Characters that would end it become spaces.
void add_line(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(": ");
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  head += "\r\n";
}

}  // namespace

std::string Connection::head_of(int status, const std::string& content_type, const HttpHeaders& headers,
                                std::optional<std::size_t> length) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  add_line(head, "Date", date_now());
  add_line(head, "Server", "lockstep");
  if (!content_type.empty()) add_line(head, "Content-Type", content_type);
  if (length && status != 204) {
    add_line(head, "Content-Length", std::to_string(*length));
  } else if (!length && !is_http10_) {
    add_line(head, "Transfer-Encoding", "chunked");
  }
  if (!headers.has("cache-control")) add_line(head, "Cache-Control", "no-cache");
  add_line(head, "x-request-id", exchange_->request.id);
  add_line(head, "request-id", exchange_->request.id);
  for (const auto& [name, value] : headers.fields()) add_line(head, name, value);
  add_cors(head);
  if (should_close_) {
    add_line(head, "Connection", "close");
  } else if (is_http10_) {
    add_line(head, "Connection", "keep-alive");
  }
  return head += "\r\n";
}

void Connection::add_cors(std::string& head) const {
  const auto& origins = transport_->options.cors_origins;
  if (origins.empty()) return;
  add_line(head, "Vary", "Origin");
  const std::string* origin = exchange_->request.headers.find("origin");
  if (origin == nullptr) return;
  const bool is_any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  if (!is_any && std::find(origins.begin(), origins.end(), *origin) == origins.end()) return;
  add_line(head, "Access-Control-Allow-Origin", is_any ? "*" : *origin);
  add_line(head, "Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

void Connection::respond(const std::shared_ptr<ExchangeState>& exchange, HttpResponse response) {
  if (exchange != exchange_ || state_ != State::busy || answer_ != Answer::none) return;
  should_close_ = should_close_ || transport_->is_shutting_down;
  status_ = response.status;
  std::string bytes = head_of(response.status, response.content_type, response.headers, response.body.size());
  if (!is_head_ && response.status != 204) bytes += response.body;
  answer_ = Answer::complete;
  queue(std::move(bytes));
}

void Connection::fail(const std::shared_ptr<ExchangeState>& exchange, HttpResponse error) {
  if (exchange != exchange_ || state_ != State::busy) return;
  if (answer_ == Answer::stream) return end(exchange);
  respond(exchange, std::move(error));
}

void Connection::begin_stream(const std::shared_ptr<ExchangeState>& exchange, const HttpHeaders& headers) {
  if (exchange != exchange_ || state_ != State::busy || answer_ != Answer::none) return;
  should_close_ = should_close_ || is_http10_ || transport_->is_shutting_down;
  status_ = 200;
  HttpHeaders all = headers;
  all.add("X-Accel-Buffering", "no");
  answer_ = is_head_ ? Answer::complete : Answer::stream;
  queue(head_of(200, "text/event-stream; charset=utf-8", all, std::nullopt));
}

void Connection::send(const std::shared_ptr<ExchangeState>& exchange, const std::string& bytes) {
  if (exchange != exchange_ || !is_streaming() || bytes.empty()) return;
  if (pending_.size() + bytes.size() > transport_->options.unread_bytes) return close("the client did not read");
  queue(is_http10_ ? bytes : fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n");
}

void Connection::end(const std::shared_ptr<ExchangeState>& exchange) {
  if (exchange != exchange_ || !is_streaming()) return;
  answer_ = Answer::complete;
  exchange->silence = nullptr;
  queue(is_http10_ ? "" : "0\r\n\r\n");
}

/// The last handle of the exchange is gone.
void Connection::abandon(const std::shared_ptr<ExchangeState>& exchange) {
  if (exchange != exchange_ || state_ != State::busy || answer_ == Answer::complete) return;
  if (answer_ == Answer::stream) return close("the answer was given up");  // not an orderly end: clients must see that
  respond(exchange, error_response(exchange->request, ApiError(500, "the request was given up without an answer")));
}

void Connection::on_silence(const std::shared_ptr<ExchangeState>& exchange, double seconds,
                            std::function<void()> call) {
  if (exchange != exchange_ || state_ != State::busy || answer_ == Answer::complete) return;
  exchange->silence_seconds = seconds;
  exchange->silence = std::move(call);
  arm();
}

void Connection::note(const std::shared_ptr<ExchangeState>& exchange, const nlohmann::ordered_json& fields) {
  if (exchange == exchange_ && fields.is_object()) exchange->notes.update(fields);
}

void Connection::queue(std::string bytes) {
  last_queued_ = Clock::now();
  if (pending_.empty()) {
    pending_ = std::move(bytes);
  } else {
    pending_ += bytes;
  }
  pump();
}

void Connection::pump() {
  if (is_writing_ || state_ == State::closed) return;
  if (pending_.empty()) {
    if (state_ == State::busy && answer_ == Answer::complete) finish();
    return arm();
  }
  writing_ = std::move(pending_);
  pending_.clear();
  written_ = 0;
  write_some();
  arm();
}

void Connection::write_some() {
  is_writing_ = true;
  write_progress_ = Clock::now();
  unread_ = socket_->unread();
  socket_->write_some(
      boost::asio::buffer(writing_) + written_,
      [self = shared_from_this()](const Socket::Code& code, std::size_t n) { self->on_written(code, n); });
}

void Connection::on_written(const Socket::Code& code, std::size_t n) {
  is_writing_ = false;
  if (state_ == State::closed) return;
  if (code) return close("the client left");
  written_ += n;
  bytes_out_ += n;
  transport_->bytes_out += n;
  if (written_ < writing_.size()) return write_some();
  writing_.clear();
  if (writing_.capacity() > kKeptBytes) writing_.shrink_to_fit();
  pump();
}

/// The answer is out.
void Connection::finish() {
  record("done");
  exchange_.reset();
  router_.reset();
  parser_.reset();
  if (should_close_) {
    socket_->shut_down_writing();
    enter(State::lingering);
  } else {
    enter(State::idle);
  }
  advance();
}

/// Tells the log, once a request.
void Connection::record(const char* end) {
  release_body();
  if (!exchange_) return;
  exchange_->silence = nullptr;
  if (is_active_) {
    is_active_ = false;
    if (status_ >= 500) {
      ++transport_->answers_5xx;
    } else if (status_ >= 400) {
      ++transport_->answers_4xx;
    } else if (status_ >= 200) {
      ++transport_->answers_2xx;
    }
    transport_->remove_active();
  }
  if (!transport_->options.on_request) return;
  const HttpRequest& request = exchange_->request;
  const auto or_dash = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
  RequestRecord record;
  record.id = request.id;
  record.method = is_head_ ? "HEAD" : or_dash(request.method);
  record.path = or_dash(request.target.substr(0, request.target.find('?')));
  record.address = request.address;
  record.status = status_;
  record.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  record.bytes_in = bytes_in_;
  record.bytes_out = bytes_out_;
  record.end = end;
  record.notes = std::move(exchange_->notes);
  transport_->options.on_request(record);
}

/// Room for `bytes` of this request's body. False, and nothing changed, if there is none.
bool Connection::reserve_body(std::size_t bytes) {
  const HttpOptions& options = transport_->options;
  const auto small_part = [&](std::size_t n) { return n <= options.large_body_bytes ? n : 0; };
  const std::size_t others = transport_->reserved_bytes - reserved_body_;
  const std::size_t small_others = transport_->small_reserved_bytes - small_part(reserved_body_);
  const bool is_small = bytes <= options.large_body_bytes;
  if (others + bytes > options.all_bodies_bytes && !(is_small && small_others + bytes <= options.all_bodies_bytes / 8))
    return false;
  reserved_body_ = bytes;
  transport_->reserved_bytes = others + bytes;
  transport_->small_reserved_bytes = small_others + small_part(bytes);
  return true;
}

void Connection::release_body() {
  transport_->body_bytes -= counted_body_;
  counted_body_ = 0;
  reserve_body(0);
}

void Connection::close(const char* why) {
  if (state_ == State::closed) return;
  const bool is_lost = state_ == State::busy;
  state_ = State::closed;
  if (exchange_) {
    exchange_->is_gone = true;
    if (is_lost) ++transport_->clients_left;
    record(why);
    exchange_.reset();
  }
  router_.reset();
  timer_.cancel();
  socket_->close();
  --transport_->connections_open;
  transport_->connections.erase(shared_from_this());  // whoever called this holds another
}

}  // namespace lockstep
