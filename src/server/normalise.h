// What clients send, made into the clean messages that the encoder (text/chat.h) takes.
//
// The readers take a protocol's own shapes apart; normalise() then does what is the same for all: one system text, late
// system texts as reminders, assistant turns that were sent in pieces, and turns that are repeated as they were
// sampled. All of it keeps the first bytes of a conversation the same from request to request, so that a prefix cache
// finds them. Rules: docs/api.md, "Messages".
#pragma once

#include <string>
#include <vector>

#include "server/client_tools.h"
#include "server/fields.h"
#include "text/chat.h"
#include "text/replay.h"

namespace lockstep {

struct ClientMessage {
  Message message;
  std::string replay_key = {};  // an opaque key of ours that came back beside it
};

struct ReaderOptions {
  bool replaces_unsupported = false;  // what we do not read becomes "[Unsupported TYPE]", else a 400
};

/// `messages` of chat completions.
std::vector<ClientMessage> read_chat_messages(const Fields& body, const ReaderOptions& options);

/// `system` and `messages` of Anthropic's. Deferred tools are written where a result refers to them, and marked.
std::vector<ClientMessage> read_anthropic_messages(const Fields& body, std::vector<ClientTool>& tools,
                                                   const ReaderOptions& options);

/// `input` of responses as an array of items: a text is a user's message.
Json response_input(const Fields& body);

/// Whether an item of `input` stands for another one: its type says so, or it has an id and neither type nor role.
bool is_item_reference(const Json& item);

/// `instructions` and items of responses; `items` are response_input's after references were followed. Tools that come
/// as items are added to `tools`, so the request's own must be in it before.
std::vector<ClientMessage> read_response_items(const Fields& body, const Json& items, std::vector<ClientTool>& tools,
                                               const ReaderOptions& options);

/// Clean messages, not empty and not only system text. `default_system` stands in if there is no system text.
std::vector<Message> normalise(std::vector<ClientMessage> messages, const std::string& default_system,
                               ReplayMap& replay);

}  // namespace lockstep
