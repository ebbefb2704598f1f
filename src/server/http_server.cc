#include "server/http_server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/connection.h"
#include "server/transport.h"

namespace lockstep {
namespace {

using Tcp = boost::asio::ip::tcp;

std::vector<Tcp::endpoint> addresses_of(boost::asio::io_context& io, const std::string& host, int port) {
  Socket::Code code;
  Tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), Tcp::resolver::numeric_service, code);
  if (code || found.empty())
    throw Error(Error::Kind::bad_argument, "host " + host + ": " + code.message() + ", expected an address or a name");
  std::vector<Tcp::endpoint> out;
  for (const auto& entry : found)
    if (std::find(out.begin(), out.end(), entry.endpoint()) == out.end()) out.push_back(entry.endpoint());
  return out;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, std::shared_ptr<const Router> router)
      : transport_(std::make_shared<Transport>(options)), work_(transport_->io.get_executor()) {
    transport_->router = std::move(router);
    if (!options.tls_certificate.empty()) transport_->tls = make_tls_context(options.tls_certificate, options.tls_key);
    listen();
    for (auto& listener : listeners_) accept(*listener);
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    transport_->post([this] {
      stop_listening();
      while (!transport_->connections.empty()) {
        const auto connection = *transport_->connections.begin();
        connection->abort("the server stopped");
      }
    });
    transport_->close_for_posts();
    work_.reset();
    thread_.join();
    transport_->workers.join();
  }

  int port() const { return port_; }

  std::string url() const {
    const HttpOptions& options = transport_->options;
    const bool is_v6 = options.host.find(':') != std::string::npos;
    return (transport_->tls ? "https://" : "http://") + (is_v6 ? "[" + options.host + "]" : options.host) + ":" +
           std::to_string(port_);
  }

  void set_router(std::shared_ptr<const Router> router) {
    wait_for([this, &router] { transport_->router = std::move(router); });
  }

  void begin_shutdown() {
    wait_for([this] {
      transport_->is_shutting_down = true;
      stop_listening();
      const std::vector<std::shared_ptr<Connection>> open(transport_->connections.begin(),
                                                          transport_->connections.end());
      for (const auto& connection : open) connection->close_if_idle();
    });
  }

  bool drain(double seconds) { return transport_->wait_until_none_active(seconds); }

  HttpCounters counters() const {
    const Transport& from = *transport_;
    HttpCounters out;
    out.connections = from.connections_open;
    out.connections_total = from.connections_total;
    out.requests_total = from.requests_total;
    out.active = from.active();
    out.answers_2xx = from.answers_2xx;
    out.answers_4xx = from.answers_4xx;
    out.answers_5xx = from.answers_5xx;
    out.clients_left = from.clients_left;
    out.bytes_in = from.bytes_in;
    out.bytes_out = from.bytes_out;
    out.body_bytes = from.body_bytes;
    return out;
  }

 private:
  struct Listener {
    explicit Listener(boost::asio::io_context& io) : acceptor(io), pause(io) {}
    Tcp::acceptor acceptor;
    boost::asio::steady_timer pause;
  };

  void listen() {
    const HttpOptions& options = transport_->options;
    port_ = options.port;
    bool is_reachable = false;
    for (Tcp::endpoint address : addresses_of(transport_->io, options.host, port_)) {
      address.port(static_cast<unsigned short>(port_));  // the first one's, if any was free to choose
      auto listener = std::make_unique<Listener>(transport_->io);
      Socket::Code code;
      listener->acceptor.open(address.protocol(), code);
      if (!code && address.address().is_v6())
        listener->acceptor.set_option(boost::asio::ip::v6_only(!address.address().is_unspecified()), code);
      if (!code) listener->acceptor.set_option(Tcp::acceptor::reuse_address(true), code);
      if (!code) listener->acceptor.bind(address, code);
      if (!code) listener->acceptor.listen(Tcp::acceptor::max_listen_connections, code);
      if (code) {
        // A name may have an address of a kind that this machine does not do, beside one that it does.
        if (!listeners_.empty() && code != boost::asio::error::address_in_use) continue;
        throw Error(Error::Kind::io,
                    "cannot listen on " + options.host + " port " + std::to_string(port_) + ": " + code.message());
      }
      port_ = listener->acceptor.local_endpoint().port();
      is_reachable = is_reachable || !address.address().is_loopback();
      listeners_.push_back(std::move(listener));
    }
    transport_->checks_origin = !is_reachable && options.keys.is_empty();
  }

  void accept(Listener& listener) {
    listener.acceptor.async_accept([this, &listener](const Socket::Code& code, Tcp::socket socket) {
      if (!listener.acceptor.is_open()) return;
      if (!code) {
        if (transport_->connections.size() >= transport_->options.connections) close_longest_idle();
        auto made = transport_->tls ? make_tls_socket(std::move(socket), *transport_->tls)
                                    : make_plain_socket(std::move(socket));
        std::make_shared<Connection>(transport_, std::move(made))->start();
      }
      if (!code || code == boost::asio::error::connection_aborted) return accept(listener);
      // Out of descriptors or memory: an idle connection makes room, and there is no use in asking at once.
      close_longest_idle();
      listener.pause.expires_after(std::chrono::milliseconds(100));
      listener.pause.async_wait([this, &listener](const Socket::Code& cancelled) {
        if (!cancelled && listener.acceptor.is_open()) accept(listener);
      });
    });
  }

  void close_longest_idle() {
    std::shared_ptr<Connection> longest;
    for (const auto& connection : transport_->connections)
      if (connection->is_idle() && (!longest || connection->since() < longest->since())) longest = connection;
    if (longest) longest->close_if_idle();
  }

  void stop_listening() {
    for (auto& listener : listeners_) {
      Socket::Code ignored;
      listener->acceptor.close(ignored);
      listener->pause.cancel();
    }
  }

  void run() {
    for (;;) {
      try {
        transport_->io.run();
        return;
      } catch (const std::exception&) {
        // Memory ran out in the middle of a connection's affairs. Its deadline ends it; the others go on.
      }
    }
  }

  /// Runs `call` on the transport's thread, and returns when it has been done.
  template <class Call>
  void wait_for(Call call) {
    const auto done = std::make_shared<std::promise<void>>();  // shared: the waiting side may be gone before it returns
    std::future<void> future = done->get_future();
    transport_->post([&call, done] {
      call();
      done->set_value();
    });
    future.wait();
  }

  std::shared_ptr<Transport> transport_;  // shared with connections and exchanges, which may outlive the server
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  int port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpOptions& options, std::shared_ptr<const Router> router)
    : impl_(std::make_unique<Impl>(options, std::move(router))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
std::string HttpServer::url() const { return impl_->url(); }
void HttpServer::set_router(std::shared_ptr<const Router> router) { impl_->set_router(std::move(router)); }
void HttpServer::begin_shutdown() { impl_->begin_shutdown(); }
bool HttpServer::drain(double seconds) { return impl_->drain(seconds); }
HttpCounters HttpServer::counters() const { return impl_->counters(); }

}  // namespace lockstep
