// What the protocols share while the server runs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/grammar.h"
#include "server/api.h"
#include "server/grammar_cache.h"
#include "server/response_store.h"
#include "server/trace.h"

namespace lockstep {

struct ApiState {
  explicit ApiState(const ApiSources& from);

  ApiSources sources;
  std::int64_t context;  // tokens of a prompt and its answer
  std::shared_ptr<ReplayMap> replay;
  std::shared_ptr<const TokenTrie> trie;
  std::vector<Token> stop_tokens;
  GrammarCache grammars;
  ResponseStore responses;
  std::optional<Trace> trace;

  const ServerSettings& settings() const { return sources.settings; }
  const Tokenizer& tokenizer() const { return sources.tokenizer; }
  void warn(const std::string& message) const {
    if (sources.warn) sources.warn(message);
  }
};

using ApiShared = std::shared_ptr<ApiState>;  // by the routes, and by answers that outlive a change of routes

void add_chat_api(Router& router, const ApiShared& api);
void add_completions_api(Router& router, const ApiShared& api);
void add_llama_api(Router& router, const ApiShared& api);
void add_anthropic_api(Router& router, const ApiShared& api);
void add_responses_api(Router& router, const ApiShared& api);

/// The request's body. Throws ApiError 400 if it is no JSON.
Json read_body(const HttpRequest& request);
void respond(Exchange& exchange, const Json& body);
/// A value that came from parse_json, for the wire: integers past 64 bits as floats.
Json plain_numbers(Json value);

}  // namespace lockstep
