#include "server/socket.h"

#include <linux/sockios.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

class PlainSocket : public Socket {
 public:
  explicit PlainSocket(Tcp tcp) : tcp_(std::move(tcp)) {}

  void handshake(std::function<void(Code)> done) override {
    boost::asio::post(tcp_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(boost::asio::mutable_buffer buffer, Done done) override {
    tcp_.async_read_some(buffer, std::move(done));
  }
  void write_some(boost::asio::const_buffer buffer, Done done) override {
    tcp_.async_write_some(buffer, std::move(done));
  }
  void shut_down_writing() override {
    Code ignored;
    tcp_.shutdown(Tcp::shutdown_send, ignored);
  }
  bool can_be_half_closed() const override { return true; }
  Tcp& tcp() override { return tcp_; }

 private:
  Tcp tcp_;
};

/// Whether HTTP without TLS is spoken: then it is told so, as far as a first packet can. A handshake begins with 0x16.
bool refuse_plain_http(int socket) {
  constexpr std::string_view kAnswer =
      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
      "Content-Length: 51\r\n\r\nThis server speaks https here, and that was http.\r\n";
  char first = 0;
  if (::recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1 || first < 'A' || first > 'Z') return false;
  char ignored[8192];  // what has come is taken, so that closing resets nothing
  for (int i = 0; i < 32 && ::recv(socket, ignored, sizeof ignored, MSG_DONTWAIT) == sizeof ignored;) ++i;
  const bool is_sent = ::send(socket, kAnswer.data(), kAnswer.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
  return is_sent && ::shutdown(socket, SHUT_WR) == 0;
}

class TlsSocket : public Socket {
 public:
  TlsSocket(Tcp tcp, boost::asio::ssl::context& context) : stream_(std::make_shared<Stream>(std::move(tcp), context)) {}

  void handshake(std::function<void(Code)> done) override {
    // A first look, because OpenSSL would close a connection on which HTTP comes without a word.
    tcp().async_wait(Tcp::wait_read, [stream = stream_, done = std::move(done)](const Code& code) mutable {
      if (!code && refuse_plain_http(stream->next_layer().native_handle()))
        return done(boost::asio::error::operation_aborted);
      stream->async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
    });
  }
  void read_some(boost::asio::mutable_buffer buffer, Done done) override {
    stream_->async_read_some(buffer, std::move(done));
  }
  void write_some(boost::asio::const_buffer buffer, Done done) override {
    stream_->async_write_some(buffer, std::move(done));
  }
  void shut_down_writing() override {
    // The notice goes out; the client's own ends the connection, or its deadline does. The stream may not end before.
    stream_->async_shutdown([stream = stream_](Code) {
      Code ignored;
      stream->next_layer().shutdown(Tcp::shutdown_send, ignored);
    });
  }
  bool can_be_half_closed() const override { return false; }
  Tcp& tcp() override { return stream_->next_layer(); }

 private:
  using Stream = boost::asio::ssl::stream<Tcp>;
  std::shared_ptr<Stream> stream_;  // shared with a shutdown that is under way
};

}  // namespace

int Socket::unread() {
  int bytes = 0;
  return ::ioctl(tcp().native_handle(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

void Socket::close() {
  Code ignored;
  tcp().close(ignored);
}

std::unique_ptr<Socket> make_plain_socket(Socket::Tcp tcp) { return std::make_unique<PlainSocket>(std::move(tcp)); }

std::unique_ptr<Socket> make_tls_socket(Socket::Tcp tcp, boost::asio::ssl::context& context) {
  return std::make_unique<TlsSocket>(std::move(tcp), context);
}

std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate, const std::string& key) {
  using boost::asio::ssl::context;
  auto made = std::make_unique<context>(context::tls_server);
  made->set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 | context::no_tlsv1 |
                    context::no_tlsv1_1 | context::single_dh_use);
  // Idle connections give their buffers back.
  SSL_CTX_set_mode(made->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  // Without this a password would be asked for on the terminal, if there is one.
  made->set_password_callback([](std::size_t, context::password_purpose) { return std::string(); });
  const auto check = [](const std::string& what, const std::string& path, const Socket::Code& code,
                        const std::string& expected) {
    if (!code) return;
    // Of a file that is not there OpenSSL says nothing that helps.
    const std::string words = std::ifstream(path) ? code.message() : "cannot be opened";
    throw Error(Error::Kind::bad_argument, what + path + ": " + words + ", expected a PEM file with " + expected);
  };
  Socket::Code code;
  made->use_certificate_chain_file(certificate, code);
  check("TLS certificate ", certificate, code, "a certificate and those that vouch for it");
  made->use_private_key_file(key, context::pem, code);
  check("TLS key ", key, code, "the key of the certificate " + certificate + ", without a password");
  if (SSL_CTX_check_private_key(made->native_handle()) != 1)
    throw Error(Error::Kind::bad_argument, "TLS key " + key + ": does not belong to the certificate " + certificate);
  return made;
}

}  // namespace lockstep
