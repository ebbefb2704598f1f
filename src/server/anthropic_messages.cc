// Messages of Anthropic's protocol.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/http_error.h"
#include "server/message_parts.h"
#include "server/normalise.h"

namespace lockstep {
namespace {

// Changes from conversation to conversation, stands before everything else, and says nothing to the model.
constexpr std::string_view kBilling = "x-anthropic-billing-header:";

std::string without_billing_line(std::string text) {
  if (!text.starts_with(kBilling)) return text;
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(end + 1);
}

std::string system_text(const Fields& body) {
  const Json* system = body.find("system");
  if (system == nullptr) return {};
  if (system->is_string()) return without_billing_line(system->get<std::string>());
  if (!system->is_array()) body.refuse("system", "a string or an array of text blocks");
  std::string text;
  for (std::size_t i = 0; i < system->size(); ++i) {
    const Fields block((*system)[i], indexed_name(body.name_of("system"), i));
    if (block.text("type", "text") != "text") block.refuse("type", "text");
    const std::string part = text_of(block);
    if (part.empty() || part.starts_with(kBilling)) continue;
    if (!text.empty()) text += "\n\n";
    text += part;
  }
  return text;
}

std::string other_block(const Fields& block, const std::string& type, const ReaderOptions& options) {
  if (type == "image" || type == "document") return unsupported_part(block, type, options);
  return "[Unsupported " + type + "]";
}

std::string tool_result(const Fields& block, std::vector<ClientTool>& tools) {
  const Json* content = block.find("content");
  if (content == nullptr || !content->is_array()) return result_text(block, "content");
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (i > 0) text += "\n\n";
    const Fields part((*content)[i], indexed_name(block.name_of("content"), i));
    const std::string type = part.text("type");
    if (is_text_part(type)) {
      text += text_of(part);
    } else if (type == "tool_reference") {
      const std::string name = part.text("tool_name");
      const auto tool =
          std::find_if(tools.begin(), tools.end(), [&](const ClientTool& one) { return one.name == name; });
      text += tool == tools.end() ? name : dump_python(tool->function);
      if (tool != tools.end()) tool->is_referred = true;
    } else {
      text += "[Unsupported " + type + "]";
    }
  }
  return text;
}

ClientMessage assistant(const Fields& message, const ReaderOptions& options) {
  ClientMessage out;
  out.message.role = Role::assistant;
  const Json* content = message.find("content");
  if (content == nullptr || content->is_string()) {
    out.message.content = message.text("content");
    return out;
  }
  if (!content->is_array()) message.refuse("content", "a string or an array of blocks");
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Fields block((*content)[i], indexed_name(message.name_of("content"), i));
    const std::string type = block.text("type");
    if (type == "text") {
      out.message.content += text_of(block);
    } else if (type == "thinking") {
      out.message.reasoning += block.text("thinking");
      if (std::string signature = block.text("signature"); !signature.empty()) out.replay_key = std::move(signature);
    } else if (type == "tool_use") {
      const Json* input = block.find("input");
      if (input != nullptr && !input->is_object()) block.refuse("input", "an object");
      if (block.text("name").empty()) block.refuse("name", "the name of a tool");
      out.message.tool_calls.push_back(
          {block.text("id"), block.text("name"), input == nullptr ? "{}" : dump_python(*input)});
    } else if (type != "redacted_thinking") {
      out.message.content += other_block(block, type, options);
    }
  }
  return out;
}

/// A user message: texts that stand together are one part of the turn, and every result is one.
void add_user(const Fields& message, Role role, std::vector<ClientTool>& tools, const ReaderOptions& options,
              std::vector<ClientMessage>& out) {
  const Json* content = message.find("content");
  Message text;
  text.role = role;
  if (content == nullptr || content->is_string()) {
    text.content = message.text("content");
    out.push_back({std::move(text)});
    return;
  }
  if (!content->is_array()) message.refuse("content", "a string or an array of blocks");
  bool is_open = content->empty();
  const auto close = [&] {
    if (std::exchange(is_open, false)) out.push_back({text});
    text.content.clear();
  };
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Fields block((*content)[i], indexed_name(message.name_of("content"), i));
    const std::string type = block.text("type");
    if (type == "tool_result") {
      close();
      Message result;
      result.role = Role::tool;
      result.tool_call_id = block.text("tool_use_id");
      if (result.tool_call_id.empty()) block.refuse("tool_use_id", "the id of a call");
      result.content = tool_result(block, tools);
      out.push_back({std::move(result)});
      continue;
    }
    text.content += type == "text" ? text_of(block) : other_block(block, type, options);
    is_open = true;
  }
  close();
}

}  // namespace

std::vector<ClientMessage> read_anthropic_messages(const Fields& body, std::vector<ClientTool>& tools,
                                                   const ReaderOptions& options) {
  const Json* list = body.array("messages");
  if (list == nullptr) body.refuse("messages", "at least one message");
  if (list->empty())
    throw ApiError(400, body.name_of("messages") + ": empty, expected at least one message", body.name_of("messages"));
  std::vector<ClientMessage> out;
  if (std::string text = system_text(body); !text.empty()) {
    out.emplace_back();
    out.back().message.role = Role::system;
    out.back().message.content = std::move(text);
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Fields message((*list)[i], indexed_name(body.name_of("messages"), i));
    const std::string role = message.text("role");
    if (role == "assistant") {
      out.push_back(assistant(message, options));
    } else if (role == "user") {
      add_user(message, Role::user, tools, options, out);
    } else if (role == "system" || role == "developer") {
      add_user(message, Role::system, tools, options, out);
    } else {
      message.refuse("role", "user, assistant or system");
    }
  }
  return out;
}

}  // namespace lockstep
