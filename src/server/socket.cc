#include "server/socket.h"

#include <linux/sockios.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
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

class TlsSocket : public Socket {
 public:
  TlsSocket(Tcp tcp, boost::asio::ssl::context& context) : stream_(std::make_shared<Stream>(std::move(tcp), context)) {}

  void handshake(std::function<void(Code)> done) override {
    stream_->async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
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
  const auto refuse = [](const std::string& name, const Socket::Code& code) {
    throw Error(Error::Kind::bad_argument, name + ": " + code.message() + ", expected a PEM file that fits the other");
  };
  Socket::Code code;
  made->use_certificate_chain_file(certificate, code);
  if (code) refuse("TLS certificate " + certificate, code);
  made->use_private_key_file(key, context::pem, code);
  if (code) refuse("TLS key " + key, code);
  if (SSL_CTX_check_private_key(made->native_handle()) != 1)
    throw Error(Error::Kind::bad_argument, "TLS key " + key + ": does not belong to the certificate " + certificate);
  return made;
}

}  // namespace lockstep
