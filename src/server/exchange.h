// The transport's own exchange: what a handler holds. Only for the server's own files.
#pragma once

#include <memory>

#include "server/http.h"

namespace lockstep {

class Connection;
struct ExchangeState;
struct Transport;

/// An exchange that hands its calls over to the connection's thread. When the last reference goes without an answer,
/// the connection gives one.
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Transport> transport, std::weak_ptr<Connection> connection,
                                        std::shared_ptr<ExchangeState> state);

}  // namespace lockstep
