// Who a request to a server without keys comes from, as far as a browser says it.
//
// A page of anywhere can make a browser send requests to this machine: under the page's own name, if that name is made
// to mean 127.0.0.1 (DNS rebinding), or across origins, without reading the answer. Where no key stands in the way,
// these two checks do. Programs send no Origin, and the address that they were told as Host.
#pragma once

#include "server/http.h"
#include "server/http_server.h"

namespace lockstep {

/// Throws ApiError 403 for a Host that is neither a loopback address, localhost nor options.host, and for an Origin
/// that is neither the Host's own nor one of options.cors_origins.
void check_origin(const HttpRequest& request, const HttpOptions& options);

}  // namespace lockstep
