#include "server/client_tools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/http_error.h"

namespace lockstep {
namespace {

/// The name of a function, which must be there.
std::string required_name(const Fields& tool) {
  const std::string name = tool.text("name");
  if (name.empty()) tool.refuse("name", "the name of a function");
  return name;
}

/// Names are given once: a second one of the same name would make calls of it ambiguous. The first counts.
void add(std::vector<ClientTool>& tools, ClientTool tool) {
  if (find_tool(tools, tool.name) == nullptr) tools.push_back(std::move(tool));
}

ClientTool function_tool(Json function, std::string name) {
  ClientTool tool;
  tool.function = std::move(function);
  tool.client_name = name;
  tool.name = std::move(name);
  return tool;
}

/// A free-form tool as a function of one text.
ClientTool custom_tool(const Fields& tool) {
  const std::string name = required_name(tool);
  std::string description = "The text itself.";
  if (const std::optional<Fields> format = tool.object("format"))
    if (const std::string definition = format->text("definition"); !definition.empty())
      description = "Text of this " + format->text("syntax", "lark") + " grammar:\n" + definition;
  Json function = {{"name", name}};
  if (const Json* text = tool.find("description")) function["description"] = *text;
  function["parameters"] = {{"type", "object"},
                            {"properties", {{"input", {{"type", "string"}, {"description", description}}}}},
                            {"required", Json::array({"input"})}};
  ClientTool out = function_tool(std::move(function), name);
  out.is_custom = true;
  return out;
}

ClientTool shell_tool() {
  Json function = {{"name", "local_shell"},
                   {"description", "Runs a command on the user's machine."},
                   {"parameters",
                    {{"type", "object"},
                     {"properties", {{"command", {{"type", "array"}, {"items", {{"type", "string"}}}}}}},
                     {"required", Json::array({"command"})}}}};
  return function_tool(std::move(function), "local_shell");
}

/// What the client sent but for the tool's type.
Json without_type(const Json& tool) {
  Json function = Json::object();
  for (const auto& [key, value] : tool.items())
    if (key != "type") function[key] = value;
  return function;
}

void add_response_tool(const Json& json, const std::string& name, const std::string& name_space,
                       std::vector<ClientTool>& tools) {
  const Fields tool(json, name);
  const std::string type = tool.text("type");
  if (type == "namespace") {
    const Json* inner = tool.array("tools");
    for (std::size_t i = 0; inner != nullptr && i < inner->size(); ++i)
      add_response_tool((*inner)[i], indexed_name(tool.name_of("tools"), i), tool.text("name"), tools);
    return;
  }
  ClientTool out;
  if (type == "function") {
    const std::string function_name = required_name(tool);
    out = function_tool(without_type(json), function_name);
  } else if (type == "custom") {
    out = custom_tool(tool);
  } else if (type == "local_shell") {
    out = shell_tool();
  } else {
    return;  // it would have to run on the server
  }
  out.name_space = name_space;
  if (find_tool(tools, out.name) != nullptr && !name_space.empty()) {
    out.name = name_space + "__" + out.client_name;
    out.function["name"] = out.name;
  }
  add(tools, std::move(out));
}

void name_one(ToolUse& use, const std::vector<ClientTool>& tools, const std::string& name,
              const std::string& name_space = {}) {
  const ClientTool* tool = find_client_tool(tools, name, name_space);
  if (tool == nullptr)
    throw ApiError(400, "tool_choice: '" + name + "', expected the name of one of the request's tools", "tool_choice");
  use.is_required = true;
  use.only = tool->name;
}

/// The choice as a word. True if it was one.
bool choose(ToolUse& use, const std::string& word) {
  if (word == "none") use.parses = false;
  if (word == "required" || word == "any") use.is_required = true;
  return word == "none" || word == "required" || word == "any" || word == "auto";
}

}  // namespace

const ClientTool* find_tool(const std::vector<ClientTool>& tools, std::string_view name) {
  const auto found =
      std::find_if(tools.begin(), tools.end(), [&](const ClientTool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

const ClientTool* find_client_tool(const std::vector<ClientTool>& tools, std::string_view name,
                                   std::string_view name_space) {
  for (const ClientTool& tool : tools)
    if (tool.client_name == name && (name_space.empty() || tool.name_space == name_space)) return &tool;
  return nullptr;
}

std::vector<ClientTool> read_chat_tools(const Fields& body) {
  std::vector<ClientTool> tools;
  if (const Json* list = body.array("tools")) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Fields tool((*list)[i], indexed_name(body.name_of("tools"), i));
      if (const std::string type = tool.text("type", "function"); type != "function") tool.refuse("type", "function");
      const std::optional<Fields> function = tool.object("function");
      if (!function) tool.refuse("function", "an object");
      add(tools, function_tool(function->json(), required_name(*function)));
    }
  }
  if (const Json* list = body.array("functions"); list != nullptr && tools.empty()) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Fields function((*list)[i], indexed_name(body.name_of("functions"), i));
      add(tools, function_tool(function.json(), required_name(function)));
    }
  }
  return tools;
}

std::vector<ClientTool> read_anthropic_tools(const Fields& body) {
  std::vector<ClientTool> tools;
  const Json* list = body.array("tools");
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const Fields tool((*list)[i], indexed_name(body.name_of("tools"), i));
    const Json* schema = tool.find("input_schema");
    if (schema == nullptr && tool.text("type", "custom") != "custom") continue;
    const std::string name = required_name(tool);
    Json function = {{"name", name}};
    if (const Json* description = tool.find("description")) function["description"] = *description;
    if (schema != nullptr) function["parameters"] = *schema;
    ClientTool out = function_tool(std::move(function), name);
    out.is_deferred = tool.flag("defer_loading", false);
    add(tools, std::move(out));
  }
  return tools;
}

void read_response_tools(const Json& list, const std::string& name, std::vector<ClientTool>& tools) {
  if (!list.is_array()) refuse_field(name, list, "an array");
  for (std::size_t i = 0; i < list.size(); ++i) add_response_tool(list[i], indexed_name(name, i), {}, tools);
}

ToolUse read_tool_use(const Fields& body, const std::vector<ClientTool>& tools) {
  ToolUse use;
  use.is_parallel = body.flag("parallel_tool_calls", true);
  const char* key = body.has("tool_choice") ? "tool_choice" : "function_call";
  if (const Json* choice = body.find(key)) {
    constexpr const char* kExpected = "auto, none, required, or an object that names a tool";
    if (choice->is_string()) {
      if (!choose(use, choice->get<std::string>())) body.refuse(key, kExpected);
    } else {
      const std::optional<Fields> object = body.object(key);
      const std::string type = object->text("type", "function");
      if (const std::optional<bool> is_single = object->flag("disable_parallel_tool_use"); is_single == true)
        use.is_parallel = false;
      if (type == "function" || type == "tool" || type == "custom") {
        const std::optional<Fields> inner = object->object(type == "custom" ? "custom" : "function");
        const std::string name = inner ? inner->text("name") : object->text("name");
        if (name.empty()) body.refuse(key, kExpected);
        name_one(use, tools, name, object->text("namespace"));
      } else if (type == "allowed_tools") {
        const std::optional<Fields> inner = object->object("allowed_tools");
        choose(use, (inner ? *inner : *object).text("mode", "auto"));
      } else {
        choose(use, type);  // a tool of the server's own, which there is none of: as the model likes
      }
    }
  }
  if (use.is_required && tools.empty())
    throw ApiError(400, std::string(key) + ": a call is required, expected tools that can be called", key);
  return use;
}

}  // namespace lockstep
