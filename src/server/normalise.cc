#include "server/normalise.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

bool is_system(const Message& message) { return message.role == Role::system || message.role == Role::developer; }

Message user_message(std::string content) {
  Message message;
  message.role = Role::user;
  message.content = std::move(content);
  return message;
}

/// A text that came late stays where it is, as part of the user's turn: in front it would change the first bytes of the
/// prompt, and raw it would take away the model's turn.
Message reminder(const std::string& text) {
  return user_message("<system-reminder>\n" + text + "\n</system-reminder>");
}

/// The leading system texts as one.
Message take_system(std::vector<ClientMessage>& messages, const std::string& default_system) {
  const auto end = std::find_if(messages.begin(), messages.end(),
                                [](const ClientMessage& client) { return !is_system(client.message); });
  Message system;
  system.role = Role::system;
  for (auto at = messages.begin(); at != end; ++at) {
    if (at->message.content.empty()) continue;
    if (!system.content.empty()) system.content += "\n\n";
    system.content += at->message.content;
  }
  if (system.content.empty()) system.content = default_system;
  messages.erase(messages.begin(), end);
  return system;
}

/// Puts a turn that came in pieces together: the first piece said nothing yet.
void merge_assistants(std::vector<ClientMessage>& messages) {
  std::vector<ClientMessage> out;
  for (ClientMessage& client : messages) {
    const bool joins = client.message.role == Role::assistant && !out.empty() &&
                       out.back().message.role == Role::assistant && out.back().message.content.empty();
    if (!joins) {
      out.push_back(std::move(client));
      continue;
    }
    Message& turn = out.back().message;
    turn.reasoning += client.message.reasoning;
    turn.content = std::move(client.message.content);
    for (ToolCall& call : client.message.tool_calls) turn.tool_calls.push_back(std::move(call));
    if (!client.replay_key.empty()) out.back().replay_key = std::move(client.replay_key);
  }
  messages = std::move(out);
}

}  // namespace

std::vector<Message> normalise(std::vector<ClientMessage> messages, const std::string& default_system,
                               ReplayMap& replay) {
  Message system = take_system(messages, default_system);
  for (ClientMessage& client : messages)
    if (is_system(client.message)) client.message = reminder(client.message.content);
  // After the last of these the encoder opens no turn for the model.
  if (!messages.empty() && messages.back().message.role == Role::latest_reminder)
    messages.back().message = reminder(messages.back().message.content);
  merge_assistants(messages);
  for (ClientMessage& client : messages) replay.restore(client.message, client.replay_key);
  std::vector<Message> out;
  if (!system.content.empty()) out.push_back(std::move(system));
  if (messages.empty()) out.push_back(user_message({}));  // there must be a turn to answer
  for (ClientMessage& client : messages) out.push_back(std::move(client.message));
  return out;
}

}  // namespace lockstep
