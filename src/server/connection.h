// One connection of a client: requests in, one after another, and their answers out. Only for the server's own files.
//
//   handshake -> idle -> head -> body -> busy -> idle ...        any -> lingering -> closed
//
// It reads all the time, within a bound: bytes of the next request wait in the buffer while an answer is made, and the
// end of the stream shows that the client has left. Everything runs on the transport's thread.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/socket.h"
#include "server/transport.h"

namespace lockstep {

/// What an exchange and its connection share. The request does not change once a handler has it.
struct ExchangeState {
  HttpRequest request;
  std::atomic<bool> is_gone{false};

  // The transport's thread only.
  std::function<void()> silence;
  double silence_seconds = 0;
  nlohmann::ordered_json notes;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Transport> transport, std::unique_ptr<Socket> socket);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();  // the transport keeps it from here until it is closed
  /// Closes it if there is no request.
  void close_if_idle();
  /// Gives up whatever it is doing.
  void abort(const char* why);
  bool is_idle() const { return state_ == State::idle; }
  std::chrono::steady_clock::time_point since() const { return since_; }

  // An exchange's calls, which are ignored unless it is the one that is being answered.
  void respond(const std::shared_ptr<ExchangeState>& exchange, HttpResponse response);
  void fail(const std::shared_ptr<ExchangeState>& exchange, HttpResponse error);
  void begin_stream(const std::shared_ptr<ExchangeState>& exchange, const HttpHeaders& headers);
  void send(const std::shared_ptr<ExchangeState>& exchange, const std::string& bytes);
  void end(const std::shared_ptr<ExchangeState>& exchange);
  void abandon(const std::shared_ptr<ExchangeState>& exchange);
  void on_silence(const std::shared_ptr<ExchangeState>& exchange, double seconds, std::function<void()> call);
  void note(const std::shared_ptr<ExchangeState>& exchange, const nlohmann::ordered_json& fields);

 private:
  using Clock = std::chrono::steady_clock;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { handshake, idle, head, body, busy, lingering, closed };
  enum class Answer { none, stream, complete };  // what has been queued of it

  void enter(State state);
  void start_read();
  void on_read(const Socket::Code& code, std::size_t n);
  void advance();
  bool begin_request();
  bool read_head();
  bool read_body();
  void check_host();
  void on_head();
  void fill_request();
  void describe_unfinished();
  void refuse_broken(const Socket::Code& code);
  void refuse_for_room();
  void refuse(const ApiError& error, const HttpHeaders& headers = {});
  void answer_options(const std::vector<std::string>& allowed);
  void accept_exchange();
  void dispatch();
  void on_half_closed();
  void break_silence();
  void watch_for_hang_up();
  void check_hang_up();

  std::string head_of(int status, const std::string& content_type, const HttpHeaders& headers,
                      std::optional<std::size_t> length) const;
  void add_cors(std::string& head) const;
  void queue(std::string bytes);
  void pump();
  void write_some();
  void on_written(const Socket::Code& code, std::size_t n);
  void finish();
  void record(const char* end);
  bool reserve_body(std::size_t bytes);
  void release_body();
  void close(const char* why);

  Clock::time_point deadline() const;
  void arm();
  void on_timer();
  bool is_streaming() const { return state_ == State::busy && answer_ == Answer::stream; }

  std::shared_ptr<Transport> transport_;
  std::unique_ptr<Socket> socket_;
  boost::asio::steady_timer timer_;
  Clock::time_point timer_set_for_ = Clock::time_point::max();
  std::string address_;

  State state_ = State::handshake;
  Clock::time_point since_;           // when the state was entered
  std::vector<char> block_;           // is being read into
  boost::beast::flat_buffer buffer_;  // has been read, and not been taken yet
  std::optional<Parser> parser_;
  std::size_t counted_body_ = 0;   // of this request, in Transport::body_bytes
  std::size_t reserved_body_ = 0;  // in Transport::reserved_bytes
  bool is_reading_ = false, is_input_ended_ = false;
  bool is_watching_ = false;  // for a hang-up

  // The request that is being read or answered.
  std::shared_ptr<ExchangeState> exchange_;
  std::shared_ptr<const Router> router_;  // keeps route_ alive
  const HttpRoute* route_ = nullptr;
  bool is_head_ = false;  // HEAD: no body in the answer
  bool is_http10_ = false;
  bool should_close_ = false;
  bool is_active_ = false;  // counted in Transport::active
  Clock::time_point began_;
  int status_ = 0;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
  Answer answer_ = Answer::none;

  std::string pending_, writing_;  // queued; being written from written_ on
  std::size_t written_ = 0;
  bool is_writing_ = false;
  int unread_ = 0;  // Socket::unread() at write_progress_
  Clock::time_point write_progress_, last_queued_;
};

}  // namespace lockstep
