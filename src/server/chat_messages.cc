// Messages of chat completions.
#include <optional>
#include <utility>

#include "server/http_error.h"
#include "server/message_parts.h"
#include "server/normalise.h"
#include "text/chat_request.h"

namespace lockstep {
namespace {

ToolCall call_of(const Fields& function, std::string id) {
  ToolCall call;
  call.id = std::move(id);
  call.name = function.text("name");
  const Json* arguments = function.find("arguments");
  call.arguments = arguments == nullptr     ? "{}"
                   : arguments->is_string() ? arguments->get<std::string>()
                                            : dump_python(*arguments);
  return call;
}

Role role_of(const Fields& message) {
  const std::string role = message.text("role");
  try {
    return role_named(role, message.name_of("role"));
  } catch (const Error& error) {
    throw ApiError(400, error.what(), message.name_of("role"));
  }
}

std::string reasoning_of(const Fields& message) {
  if (message.has("reasoning_content")) return message.text("reasoning_content");
  const Json* reasoning = message.find("reasoning");  // an object in other servers' words
  return reasoning != nullptr && reasoning->is_string() ? reasoning->get<std::string>() : std::string();
}

}  // namespace

std::vector<ClientMessage> read_chat_messages(const Fields& body, const ReaderOptions& options) {
  const Json* list = body.array("messages");
  if (list == nullptr) body.refuse("messages", "at least one message");
  if (list->empty())
    throw ApiError(400, body.name_of("messages") + ": empty, expected at least one message", body.name_of("messages"));
  std::vector<ClientMessage> out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Fields fields((*list)[i], indexed_name(body.name_of("messages"), i));
    Message message;
    message.role = role_of(fields);
    message.content =
        message.role == Role::tool ? result_text(fields, "content") : content_text(fields, "content", options);
    message.tool_call_id = fields.text("tool_call_id");
    // The older function role knows no ids.
    if (message.role == Role::tool && message.tool_call_id.empty() && fields.text("role") == "tool")
      fields.refuse("tool_call_id", "the id of a call");
    if (message.role == Role::assistant) {
      message.reasoning = reasoning_of(fields);
      if (const Json* calls = fields.array("tool_calls")) {
        for (std::size_t k = 0; k < calls->size(); ++k) {
          const Fields call((*calls)[k], indexed_name(fields.name_of("tool_calls"), k));
          const std::optional<Fields> function = call.object("function");
          if (!function) call.refuse("function", "an object");
          message.tool_calls.push_back(call_of(*function, call.text("id")));
        }
      }
      if (const std::optional<Fields> call = fields.object("function_call"); call && message.tool_calls.empty())
        message.tool_calls.push_back(call_of(*call, {}));
    }
    out.push_back({std::move(message)});
  }
  return out;
}

}  // namespace lockstep
