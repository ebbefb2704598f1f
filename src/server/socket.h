// A TCP connection, plain or under TLS, as one type: bytes in, bytes out. It knows no HTTP.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class Socket {
 public:
  using Code = boost::system::error_code;
  using Tcp = boost::asio::ip::tcp::socket;
  using Done = std::function<void(Code, std::size_t)>;

  virtual ~Socket() = default;

  /// Before anything else. At most one call of each kind may be under way.
  virtual void handshake(std::function<void(Code)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, Done done) = 0;
  /// Says that no more will be written. Reading goes on.
  virtual void shut_down_writing() = 0;
  /// Whether a client that writes no more may still be reading.
  virtual bool can_be_half_closed() const = 0;

  virtual Tcp& tcp() = 0;
  /// Bytes that were written and that the other side has not taken yet.
  int unread();
  void close();
};

std::unique_ptr<Socket> make_plain_socket(Socket::Tcp tcp);
/// Borrows the context.
std::unique_ptr<Socket> make_tls_socket(Socket::Tcp tcp, boost::asio::ssl::context& context);

/// Throws Error::bad_argument naming the file that cannot be used.
std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate, const std::string& key);

}  // namespace lockstep
