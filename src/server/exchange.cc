#include "server/exchange.h"

#include <utility>

#include "server/connection.h"
#include "server/transport.h"

namespace lockstep {
namespace {

class TransportExchange : public Exchange {
 public:
  TransportExchange(std::shared_ptr<Transport> transport, std::weak_ptr<Connection> connection,
                    std::shared_ptr<ExchangeState> state)
      : transport_(std::move(transport)), connection_(std::move(connection)), state_(std::move(state)) {}

  ~TransportExchange() override {
    to_connection([](Connection& connection, const State& state) { connection.abandon(state); });
  }

  const HttpRequest& request() const override { return state_->request; }

  void respond(HttpResponse response) override {
    to_connection([response = std::move(response)](Connection& connection, const State& state) mutable {
      connection.respond(state, std::move(response));
    });
  }

  void fail(const ApiError& error) override {
    to_connection(
        [response = error_response(state_->request, error)](Connection& connection, const State& state) mutable {
          connection.fail(state, std::move(response));
        });
  }

  void begin_stream(HttpHeaders headers) override {
    to_connection([headers = std::move(headers)](Connection& connection, const State& state) {
      connection.begin_stream(state, headers);
    });
  }

  bool send(std::string bytes) override {
    if (state_->is_gone) return false;
    to_connection(
        [bytes = std::move(bytes)](Connection& connection, const State& state) { connection.send(state, bytes); });
    return true;
  }

  void end() override {
    to_connection([](Connection& connection, const State& state) { connection.end(state); });
  }

  bool is_gone() const override { return state_->is_gone; }

  void on_silence(double seconds, std::function<void()> call) override {
    to_connection([seconds, call = std::move(call)](Connection& connection, const State& state) mutable {
      connection.on_silence(state, seconds, std::move(call));
    });
  }

  void note(const nlohmann::ordered_json& fields) override {
    to_connection([fields](Connection& connection, const State& state) { connection.note(state, fields); });
  }

 private:
  using State = std::shared_ptr<ExchangeState>;

  template <class Call>
  void to_connection(Call call) {
    transport_->post([connection = connection_, state = state_, call = std::move(call)]() mutable {
      if (const auto alive = connection.lock()) call(*alive, state);
    });
  }

  std::shared_ptr<Transport> transport_;
  std::weak_ptr<Connection> connection_;
  State state_;
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Transport> transport, std::weak_ptr<Connection> connection,
                                        std::shared_ptr<ExchangeState> state) {
  return std::make_shared<TransportExchange>(std::move(transport), std::move(connection), std::move(state));
}

}  // namespace lockstep
