// The endpoints that say how the server is and what it serves: /health, /props, /slots, /metrics, /models, /tokenize,
// /detokenize; and those that stand in for everything while the model is being loaded.
//
// None of them waits for the model: they read what the scheduler publishes. Shapes are llama-server's where it has the
// endpoint, because its front ends and dashboards read them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/scheduler.h"
#include "server/api.h"
#include "server/http.h"
#include "server/http_server.h"
#include "server/settings.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace lockstep {

/// What they read. References and callees outlive the router.
struct OperationsSources {
  const ServerSettings& settings;
  const Tokenizer& tokenizer;
  std::int64_t trained_context = 0;  // tokens
  int vocabulary = 0;
  std::uint64_t parameters = 0;    // of the file's tensors
  std::uint64_t model_bytes = 0;   // of the file
  std::uint64_t memory_bytes = 0;  // that this process may use
  double stuck_seconds = 300;      // a step that runs longer has hung
  std::function<SchedulerStatus()> status;
  std::function<HttpCounters()> counters;
  std::function<ApiKept()> kept = {};    // none: not told
  Json start_settings = Json::object();  // for /props: what only the start of the server knows
};

/// Adds all of them. The health of a server whose last kFailuresToRed answers failed, none having succeeded between
/// them, is red: a device that has failed goes on failing.
inline constexpr std::uint64_t kFailuresToRed = 3;
void add_operations(Router& router, const OperationsSources& sources);

/// Health and 503 for everything else, but for the page. `progress` is told in the health's body: "reading the file".
std::shared_ptr<const Router> make_loading_router(std::function<std::string()> progress);

/// The health of a server: nothing, or what is wrong with it. Remembers what it saw of failures from call to call; any
/// thread.
class HealthWatch {
 public:
  explicit HealthWatch(double stuck_seconds) : stuck_seconds_(stuck_seconds) {}
  std::string problem(const SchedulerStatus& status);

 private:
  double stuck_seconds_;
  std::mutex mutex_;
  std::uint64_t done_ = 0, failed_ = 0;  // when an answer was last seen to succeed
};

/// The text of /metrics, in Prometheus's format (version 0.0.4).
std::string metrics_text(const SchedulerStatus& status, const HttpCounters& http, const OperationsSources& sources);

}  // namespace lockstep
