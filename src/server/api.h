// The protocols that clients speak: chat completions, completions, responses, Anthropic messages and their token count,
// and the rendered prompt. docs/api.md says what is served, ignored and refused.
//
// Every request goes the same way: its body is read into an Ask (ask.h), the Ask is rendered, counted and planned
// (plan.h), a Reply (reply.h) submits jobs whose guides are Answers (answer.h), and the answers' events become the
// protocol's words. Streamed and whole answers are made of the same events.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/settings.h"
#include "server/token_source.h"
#include "text/replay.h"
#include "text/tokenizer.h"

namespace lockstep {

/// What the protocols need. References and callees outlive the router and every answer.
struct ApiSources {
  const ServerSettings& settings;
  const Tokenizer& tokenizer;
  TokenSource& source;
  std::string fingerprint = {};            // fingerprint.h; told as system_fingerprint
  std::shared_ptr<ReplayMap> replay = {};  // none: one of replay_bytes is made
  std::size_t replay_bytes = std::size_t{64} << 20;
  std::size_t responses = 256;  // that /responses remembers, at most
  std::size_t response_bytes = std::size_t{64} << 20;
  bool replaces_unsupported = false;   // images and the like become "[Unsupported TYPE]" instead of a 400
  bool caps_by_budget_tokens = false;  // thinking.budget_tokens ends a thought, instead of being only a wish
  std::function<void(const std::string&)> warn = {};  // told what is worth a line in the log; may be empty
};

/// What is kept for later requests, and so grows after the start until a limit is met. Bytes are of texts; as objects
/// they take a few times as much.
struct ApiKept {
  std::size_t turns = 0, turn_bytes = 0, turn_limit_bytes = 0;  // as they were sampled (text/replay.h)
  std::size_t responses = 0, responses_limit = 0, response_bytes = 0, response_limit_bytes = 0;
};

/// Adds the routes. Throws Error::unsupported if the vocabulary cannot carry a chat. What it returns may be called from
/// any thread, also after the router is gone.
std::function<ApiKept()> add_api(Router& router, const ApiSources& sources);

}  // namespace lockstep
