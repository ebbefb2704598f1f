#include "server/api.h"

#include <cstdlib>
#include <utility>

#include "engine/generate.h"
#include "server/api_state.h"
#include "text/chat.h"

namespace lockstep {

ApiState::ApiState(const ApiSources& from)
    : sources(from),
      context(from.settings.context),
      replay(from.replay ? from.replay : std::make_shared<ReplayMap>(from.replay_bytes)),
      trie(std::make_shared<const TokenTrie>(from.tokenizer)),
      stop_tokens(stop_tokens_of(from.tokenizer)),
      responses(from.responses, from.response_bytes) {
  LOCKSTEP_CHECK(context > 0);
  check_chat_vocabulary(from.tokenizer);
  if (!from.settings.trace.empty()) trace.emplace(from.settings.trace, from.warn);
}

Json read_body(const HttpRequest& request) {
  try {
    return parse_json(request.body, "body");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

void respond(Exchange& exchange, const Json& body) {
  HttpResponse response;
  response.body = json_text(body);
  exchange.respond(std::move(response));
}

Json plain_numbers(Json value) {
  if (value.is_binary()) return std::strtod(dump_python(value).c_str(), nullptr);
  if (value.is_structured())
    for (Json& element : value) element = plain_numbers(std::move(element));
  return value;
}

std::function<ApiKept()> add_api(Router& router, const ApiSources& sources) {
  const auto api = std::make_shared<ApiState>(sources);
  add_chat_api(router, api);
  add_completions_api(router, api);
  add_llama_api(router, api);
  add_anthropic_api(router, api);
  add_responses_api(router, api);
  return [api] {
    return ApiKept{.turns = api->replay->size(),
                   .turn_bytes = api->replay->bytes(),
                   .turn_limit_bytes = api->replay->budget(),
                   .responses = api->responses.size(),
                   .responses_limit = api->sources.responses,
                   .response_bytes = api->responses.bytes(),
                   .response_limit_bytes = api->sources.response_bytes};
  };
}

}  // namespace lockstep
