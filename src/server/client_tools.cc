#include "server/client_tools.h"

#include <algorithm>
#include <array>
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

/// What every protocol's function may say: words, a schema, and whether it is to be kept to the letter.
void check_function(const Fields& function, const char* schema, ClientTool& tool) {
  function.text("description");
  function.object(schema);
  tool.is_strict = function.flag("strict", false);
}

/// A free-form tool as a function of one text.
ClientTool custom_tool(const Fields& tool) {
  const std::string name = required_name(tool);
  std::string description = "The text itself.";
  if (const std::optional<Fields> format = tool.object("format"))
    if (const std::string definition = format->text("definition"); !definition.empty())
      description = "Text of this " + format->text("syntax", "lark") + " grammar:\n" + definition;
  Json function = {{"name", name}};
  if (tool.has("description")) function["description"] = tool.text("description");
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
    check_function(tool, "parameters", out);
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

void name_one(ToolUse& use, const char* key, const std::vector<ClientTool>& tools, const std::string& name,
              const std::string& name_space = {}) {
  const ClientTool* tool = find_client_tool(tools, name, name_space);
  if (tool == nullptr)
    throw ApiError(400, std::string(key) + ": '" + name + "', expected the name of one of the request's tools", key);
  if (!tool->is_callable())
    throw ApiError(400,
                   std::string(key) + ": '" + name +
                       "', expected a tool that the model has been shown: this one has defer_loading, and no "
                       "tool_reference names it",
                   key);
  use.is_required = true;
  use.only = tool->name;
}

/// Tools of the responses protocol that a server would run. There are none here: such a choice leaves it to the model.
bool is_hosted(std::string_view type) {
  constexpr std::array<std::string_view, 14> kHosted = {"file_search",
                                                        "web_search",
                                                        "web_search_preview",
                                                        "web_search_preview_2025_03_11",
                                                        "web_search_2025_08_26",
                                                        "computer",
                                                        "computer_use",
                                                        "computer_use_preview",
                                                        "code_interpreter",
                                                        "image_generation",
                                                        "mcp",
                                                        "shell",
                                                        "local_shell",
                                                        "apply_patch"};
  return std::find(kHosted.begin(), kHosted.end(), type) != kHosted.end();
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
      ClientTool out = function_tool(function->json(), required_name(*function));
      check_function(*function, "parameters", out);
      add(tools, std::move(out));
    }
  }
  if (const Json* list = body.array("functions"); list != nullptr && tools.empty()) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Fields function((*list)[i], indexed_name(body.name_of("functions"), i));
      ClientTool out = function_tool(function.json(), required_name(function));
      check_function(function, "parameters", out);
      add(tools, std::move(out));
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
    check_function(tool, "input_schema", out);
    out.is_deferred = tool.flag("defer_loading", false);
    add(tools, std::move(out));
  }
  return tools;
}

void read_response_tools(const Json& list, const std::string& name, std::vector<ClientTool>& tools) {
  if (!list.is_array()) refuse_field(name, list, "an array");
  for (std::size_t i = 0; i < list.size(); ++i) add_response_tool(list[i], indexed_name(name, i), {}, tools);
}

ToolUse read_tool_use(const Fields& body, const std::vector<ClientTool>& tools, Protocol protocol) {
  ToolUse use;
  use.is_parallel = body.flag("parallel_tool_calls", true);
  const char* key = body.has("tool_choice") ? "tool_choice" : "function_call";
  if (const Json* choice = body.find(key)) {
    const bool is_anthropic = protocol == Protocol::anthropic;
    const char* const expected = is_anthropic ? "an object whose type is auto, any, tool or none"
                                              : "auto, none, required, or an object that names a tool";
    if (choice->is_string()) {
      if (is_anthropic || !choose(use, choice->get<std::string>())) body.refuse(key, expected);
    } else {
      if (!choice->is_object()) body.refuse(key, expected);
      const std::optional<Fields> object = body.object(key);
      const std::string type = object->text("type", is_anthropic ? "" : "function");
      if (const std::optional<bool> is_single = object->flag("disable_parallel_tool_use"); is_single == true)
        use.is_parallel = false;
      if (type == "function" || type == "tool" || type == "custom") {
        const std::optional<Fields> inner = object->object(type == "custom" ? "custom" : "function");
        const std::string name = inner ? inner->text("name") : object->text("name");
        if (name.empty()) body.refuse(key, expected);
        name_one(use, key, tools, name, object->text("namespace"));
      } else if (type == "allowed_tools") {
        const std::optional<Fields> inner = object->object("allowed_tools");
        const Fields& allowed = inner ? *inner : *object;
        if (!choose(use, allowed.text("mode", "auto"))) allowed.refuse("mode", "auto or required");
      } else if (!choose(use, type) && !(protocol == Protocol::responses && is_hosted(type))) {
        object->refuse("type", is_anthropic ? "auto, any, tool or none" : "function, custom or allowed_tools");
      }
    }
  }
  const bool is_any_callable =
      std::any_of(tools.begin(), tools.end(), [](const ClientTool& tool) { return tool.is_callable(); });
  if (use.is_required && !is_any_callable)
    throw ApiError(400,
                   std::string(key) + ": a call is required, expected tools that can be called" +
                       (tools.empty() ? "" : ": all have defer_loading, and no tool_reference names one"),
                   key);
  return use;
}

}  // namespace lockstep
