#include "server/client_tools.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "server/http_error.h"
#include "text/chat.h"

namespace lockstep {
namespace {

/// The name of a function, which must be there.
std::string required_name(const Fields& tool) {
  const std::string name = tool.text("name");
  if (name.empty()) tool.refuse("name", "the name of a function");
  return name;
}

/// Names stand as they are in the tags of calls, name="...", so that not every text can be read back from there.
/// Nothing if this one can, otherwise what is expected.
const char* expected_name(std::string_view name) {
  constexpr std::size_t kMostNameBytes = 1024;  // with a good deal of room to what a tag may have
  const auto ends_tag = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"' || c == '<' || c == '>';
  };
  if (name.empty()) return "one of at least one character";
  if (name.size() > kMostNameBytes) return "one of at most 1024 bytes";
  if (std::any_of(name.begin(), name.end(), ends_tag) || name.find(kDsml) != name.npos)
    return "one without quotes, < or >, control characters and the model's own marks, which a call cannot carry";
  return nullptr;
}

/// Visits the names of a tool's parameters, also behind references and in parts that are put together.
void each_parameter(const Json& parameters, const std::function<void(const std::string& name)>& visit) {
  std::set<const Json*> seen;
  std::vector<const Json*> open = {&parameters};
  while (!open.empty()) {
    const Json& schema = *open.back();
    open.pop_back();
    if (!schema.is_object() || !seen.insert(&schema).second) continue;
    if (const auto properties = schema.find("properties"); properties != schema.end() && properties->is_object())
      for (const auto& [name, property] : properties->items()) visit(name);
    for (const char* keyword : {"allOf", "anyOf", "oneOf"})
      if (const auto parts = schema.find(keyword); parts != schema.end() && parts->is_array())
        for (const Json& part : *parts) open.push_back(&part);
    const auto reference = schema.find("$ref");
    if (reference == schema.end() || !reference->is_string()) continue;
    try {
      const std::string text = reference->get<std::string>();
      if (text.starts_with('#')) open.push_back(&parameters.at(Json::json_pointer(text.substr(1))));
    } catch (const Json::exception&) {  // it leads nowhere, which is not for us to say
    }
  }
}

/// Names are given once: a second one of the same name would make calls of it ambiguous. The first counts. `field` is
/// where the client wrote it.
void add(std::vector<ClientTool>& tools, ClientTool tool, const std::string& field) {
  const std::string quoted = json_text(tool.name);
  if (const char* expected = expected_name(tool.name))
    throw ApiError(400, field + ": the tool's name " + quoted + ", expected " + expected, field);
  if (const auto parameters = tool.function.find("parameters"); parameters != tool.function.end())
    each_parameter(*parameters, [&](const std::string& name) {
      if (const char* expected = expected_name(name))
        throw ApiError(400,
                       field + ": the tool " + quoted + ": its parameter " + json_text(name) + ", expected " + expected,
                       field);
    });
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
  add(tools, std::move(out), name);
}

/// By the client's names; `field` is what names it. Throws if there is none.
const ClientTool& named_tool(const std::vector<ClientTool>& tools, const std::string& field, const std::string& name,
                             const std::string& name_space) {
  const ClientTool* tool = find_client_tool(tools, name, name_space);
  if (tool == nullptr)
    throw ApiError(400, field + ": '" + name + "', expected the name of one of the request's tools", field);
  return *tool;
}

void name_one(ToolUse& use, const char* key, const std::vector<ClientTool>& tools, const std::string& name,
              const std::string& name_space = {}) {
  const ClientTool* tool = &named_tool(tools, key, name, name_space);
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

/// {"mode", "tools"}: of the request's tools, those that may be called. Tools that a server would run are passed over,
/// as they are in the request's own list.
void allow_some(ToolUse& use, const Fields& allowed, const std::vector<ClientTool>& tools) {
  const std::string mode = allowed.text("mode", "auto");
  if (mode != "auto" && mode != "required") allowed.refuse("mode", "auto or required");
  use.is_required = mode == "required";
  const Json* list = allowed.array("tools");
  if (list == nullptr) allowed.refuse("tools", "an array of at least one tool");
  if (list->empty()) {
    const std::string field = allowed.name_of("tools");
    throw ApiError(400, field + ": empty, expected at least one tool", field);
  }
  use.allowed.emplace();
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Fields entry((*list)[i], indexed_name(allowed.name_of("tools"), i));
    const std::string type = entry.text("type", "function");
    if (type == "function" || type == "custom") {
      const std::optional<Fields> inner = entry.object(type.c_str());
      const Fields& named = inner ? *inner : entry;
      const std::string name = required_name(named);
      use.allowed->push_back(named_tool(tools, named.name_of("name"), name, named.text("namespace")).name);
    } else if (type == "local_shell" && find_tool(tools, type) != nullptr) {
      use.allowed->push_back(type);
    } else if (!is_hosted(type)) {
      entry.refuse("type", "function or custom");
    }
  }
}

/// The choice as a word. True if it was one.
bool choose(ToolUse& use, const std::string& word) {
  if (word == "none") use.parses = false;
  if (word == "required" || word == "any") use.is_required = true;
  return word == "none" || word == "required" || word == "any" || word == "auto";
}

}  // namespace

bool ToolUse::may_call(const ClientTool& tool) const {
  return tool.is_callable() && (!allowed || std::find(allowed->begin(), allowed->end(), tool.name) != allowed->end());
}

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
      add(tools, std::move(out), indexed_name(body.name_of("tools"), i));
    }
  }
  if (const Json* list = body.array("functions"); list != nullptr && tools.empty()) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Fields function((*list)[i], indexed_name(body.name_of("functions"), i));
      ClientTool out = function_tool(function.json(), required_name(function));
      check_function(function, "parameters", out);
      add(tools, std::move(out), indexed_name(body.name_of("functions"), i));
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
    add(tools, std::move(out), indexed_name(body.name_of("tools"), i));
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
      } else if (type == "allowed_tools" && !is_anthropic) {
        const std::optional<Fields> inner = object->object("allowed_tools");
        allow_some(use, inner ? *inner : *object, tools);
      } else if (!choose(use, type) && !(protocol == Protocol::responses && is_hosted(type))) {
        object->refuse("type", is_anthropic ? "auto, any, tool or none" : "function, custom or allowed_tools");
      }
    }
  }
  const bool is_any_callable =
      std::any_of(tools.begin(), tools.end(), [&](const ClientTool& tool) { return use.may_call(tool); });
  if (use.is_required && !is_any_callable) {
    const char* const why = tools.empty() ? ""
                            : use.allowed ? ": a server would have to run those that are allowed"
                                          : ": all have defer_loading, and no tool_reference names one";
    throw ApiError(400, std::string(key) + ": a call is required, expected tools that can be called" + why, key);
  }
  return use;
}

}  // namespace lockstep
