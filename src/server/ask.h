// What a client asks for, in the same words for every protocol of chats: the messages for the encoder, the tools, how
// the answer is sampled, and what it may look like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/client_tools.h"
#include "server/fields.h"
#include "server/generation_fields.h"
#include "server/normalise.h"
#include "text/chat.h"

namespace lockstep {

struct ApiSources;

/// The shape that the answer must have.
struct AnswerFormat {
  enum class Kind { text, object, schema } kind = Kind::text;
  Json schema;             // of Kind::schema
  std::string field;       // that asked for it
  bool is_strict = false;  // a keyword that is not understood is an error
};

struct Ask {
  std::string request_id;  // for what is logged about it
  std::string model;       // as the request says, or the server's
  bool is_stream = false;
  int count = 1;  // of answers
  ChatRequest chat;
  std::vector<ClientTool> tools;
  ToolUse tool_use;
  AnswerFormat format;
  GenerationFields generation;
  std::optional<std::int64_t> thinking_budget;  // tokens
  int logprobs = -1;                            // alternatives to each token; -1: none asked for
};

/// A chat completion.
Ask read_chat_ask(const Json& body, const ApiSources& sources, ReplayMap& replay);
/// Anthropic's message.
Ask read_anthropic_ask(const Json& body, const ApiSources& sources, ReplayMap& replay);
/// A response; `items` are response_input's (normalise.h) after references were followed.
Ask read_response_ask(const Json& body, const Json& items, const ApiSources& sources, ReplayMap& replay);

/// The requested model's name, or the server's. Throws ApiError 404 for another one if the server is strict about it.
std::string read_model(const Fields& body, const ServerSettings& settings);

/// Refuses audio, search and the like by name.
void refuse_unsupported_fields(const Fields& body);

}  // namespace lockstep
