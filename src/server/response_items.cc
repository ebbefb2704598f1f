// Items of the responses protocol.
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "server/http_error.h"
#include "server/message_parts.h"
#include "server/normalise.h"

namespace lockstep {
namespace {

/// Texts of `summary` or `content`: an array of parts, or a string.
std::string joined(const Fields& item, const char* key) {
  const Json* list = item.find(key);
  if (list == nullptr) return {};
  if (list->is_string()) return list->get<std::string>();
  std::string text;
  if (!list->is_array()) item.refuse(key, "an array of parts");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Fields part((*list)[i], indexed_name(item.name_of(key), i));
    if (!text.empty()) text += "\n\n";
    text += part.text("text");
  }
  return text;
}

class Reader {
 public:
  Reader(std::vector<ClientTool>& tools, const ReaderOptions& options) : tools_(tools), options_(options) {}

  void read(const Fields& item) {
    if (is_item_reference(item.json())) {
      if (item.text("id").empty()) item.refuse("id", "the id of an item");
      throw ApiError(400,
                     item.name_of("id") + ": '" + item.text("id") +
                         "' is no item of a response that is kept here, expected the item itself",
                     item.name_of("id"));
    }
    const std::string type = item.text("type", item.has("role") ? "message" : "");
    if (type.empty()) item.refuse("type", "the type of an item");
    if (type == "message") return message(item);
    if (type == "reasoning") return reasoning(item);
    if (type == "function_call") return call(item, item.find("arguments"));
    if (type == "custom_tool_call") return custom_call(item);
    if (type == "local_shell_call") return shell_call(item);
    if (type == "function_call_output" || type == "custom_tool_call_output" || type == "local_shell_call_output")
      return output(item);
    if (type == "additional_tools") {
      if (const Json* list = item.find("tools")) read_response_tools(*list, item.name_of("tools"), tools_);
      return;
    }
    // Calls of tools that run on a server, compactions, and what is not known yet: nothing the model could read.
  }

  std::vector<ClientMessage> take() { return std::move(out_); }

  void add(Role role, std::string text) {
    out_.emplace_back();
    out_.back().message.role = role;
    out_.back().message.content = std::move(text);
  }

 private:
  /// The assistant turn that adjacent items make together.
  ClientMessage& turn() {
    if (out_.empty() || out_.back().message.role != Role::assistant) add(Role::assistant, {});
    return out_.back();
  }

  void message(const Fields& item) {
    const std::string role = item.text("role", "user");
    const std::string text = content_text(item, "content", options_);
    if (role == "assistant") {
      ClientMessage& client = turn();
      client.message.content += text;
      if (client.replay_key.empty()) client.replay_key = item.text("id");
    } else if (role == "user") {
      add(Role::user, text);
    } else if (role == "system" || role == "developer") {
      add(Role::system, text);
    } else {
      item.refuse("role", "user, assistant, system or developer");
    }
  }

  void reasoning(const Fields& item) {
    ClientMessage& client = turn();
    std::string text = joined(item, "summary");
    if (text.empty()) text = joined(item, "content");
    client.message.reasoning += text;
    client.replay_key = item.text("encrypted_content", item.text("id"));
  }

  void add_call(const Fields& item, std::string name, std::string arguments) {
    ToolCall call;
    call.id = item.text("call_id", item.text("id"));
    call.name = std::move(name);
    call.arguments = std::move(arguments);
    calls_.insert(call.id);
    turn().message.tool_calls.push_back(std::move(call));
  }

  std::string name_of(const Fields& item) const {
    const std::string name = item.text("name");
    const ClientTool* tool = find_client_tool(tools_, name, item.text("namespace"));
    return tool == nullptr ? name : tool->name;
  }

  void call(const Fields& item, const Json* arguments) {
    std::string text = "{}";
    if (arguments != nullptr) text = arguments->is_string() ? arguments->get<std::string>() : dump_python(*arguments);
    add_call(item, name_of(item), std::move(text));
  }

  void custom_call(const Fields& item) {
    add_call(item, name_of(item), dump_python(Json{{"input", item.text("input")}}));
  }

  void shell_call(const Fields& item) {
    const std::optional<Fields> action = item.object("action");
    const Json* command = action ? action->find("command") : nullptr;
    add_call(item, "local_shell", dump_python(Json{{"command", command == nullptr ? Json::array() : *command}}));
  }

  void output(const Fields& item) {
    const std::string id = item.text("call_id", item.text("id"));
    if (!calls_.contains(id))
      throw ApiError(400, item.name_of("call_id") + ": no call '" + id + "' stands before this output, expected one",
                     item.name_of("call_id"));
    if (!item.has("output")) item.refuse("output", "a string or an array of parts");
    add(Role::tool, result_text(item, "output"));
    out_.back().message.tool_call_id = id;
  }

  std::vector<ClientTool>& tools_;
  const ReaderOptions& options_;
  std::vector<ClientMessage> out_;
  std::unordered_set<std::string> calls_;
};

}  // namespace

Json response_input(const Fields& body) {
  const Json* input = body.find("input");
  if (input == nullptr) body.refuse("input", "a string or an array of items");
  const bool is_empty =
      (input->is_string() && input->get_ref<const std::string&>().empty()) || (input->is_array() && input->empty());
  if (is_empty && !body.has("previous_response_id"))
    throw ApiError(400, body.name_of("input") + ": empty, expected a text or at least one item", body.name_of("input"));
  if (input->is_string()) return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  if (!input->is_array()) body.refuse("input", "a string or an array of items");
  return *input;
}

bool is_item_reference(const Json& item) {
  if (!item.is_object()) return false;
  const Fields fields(item);
  const Json* type = fields.find("type");
  return type != nullptr ? *type == "item_reference" : fields.has("id") && !fields.has("role");
}

std::vector<ClientMessage> read_response_items(const Fields& body, const Json& items, std::vector<ClientTool>& tools,
                                               const ReaderOptions& options) {
  LOCKSTEP_CHECK(items.is_array());
  Reader reader(tools, options);
  if (std::string text = content_text(body, "instructions", options); !text.empty())
    reader.add(Role::system, std::move(text));
  for (std::size_t i = 0; i < items.size(); ++i) reader.read(Fields(items[i], indexed_name("input", i)));
  return reader.take();
}

}  // namespace lockstep
