#include "text/chat_request.h"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& field, const std::string& found, std::string_view expected) {
  throw Error(Error::Kind::bad_argument, field + ": " + found + ", expected " + std::string(expected));
}

/// What a wrong value is, short enough for a message.
std::string shown(const Json& value) {
  const std::string text = dump_python(value);
  return text.size() <= 60 ? text
                           : std::string("a ") + value.type_name() + " of " + std::to_string(text.size()) + " bytes";
}

/// name[i]. Appended piece by piece: GCC 12 warns of an overlap that is not there when a literal is put before a
/// string.
std::string indexed(std::string name, std::size_t i) {
  name += '[';
  name += std::to_string(i);
  name += ']';
  return name;
}

std::string in_quotes(std::string_view text) {
  std::string out(1, '\'');
  out += text;
  out += '\'';
  return out;
}

/// A member that is there and not null.
const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& array_of(const Json& value, const std::string& field) {
  if (!value.is_array()) fail(field, shown(value), "an array");
  return value;
}

const Json& object_of(const Json& value, const std::string& field) {
  if (!value.is_object()) fail(field, shown(value), "an object");
  return value;
}

const std::string& string_of(const Json& value, const std::string& field) {
  if (!value.is_string()) fail(field, shown(value), "a string");
  return value.get_ref<const std::string&>();
}

/// An optional string; missing and null are empty.
std::string string_member(const Json& object, const char* key, const std::string& path) {
  const Json* value = member(object, key);
  return value == nullptr ? std::string() : string_of(*value, path + key);
}

bool bool_member(const Json& object, const char* key, bool otherwise, const std::string& path) {
  const Json* value = member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(path + key, shown(*value), "true or false");
  return value->get<bool>();
}

template <class Value, std::size_t n>
Value named(const std::array<std::pair<std::string_view, Value>, n>& table, std::string_view name,
            std::string_view field) {
  std::string expected;
  for (const auto& [known, value] : table) {
    if (known == name) return value;
    expected += (expected.empty() ? "" : ", ") + std::string(known);
  }
  fail(std::string(field), in_quotes(name), "one of " + expected);
}

/// Content as text. A tool's parts are joined by empty lines and other kinds of part are named in their place; a
/// message's parts are joined as they are, and there another kind is an error.
std::string content_of(const Json& message, Role role, const std::string& path) {
  const Json* content = member(message, "content");
  if (content == nullptr) return {};
  const std::string field = path + "content";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fail(field, shown(*content), "a string or an array of parts");
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string part_path = indexed(field, i) + ".";
    const Json& part = object_of((*content)[i], indexed(field, i));
    const std::string type = string_member(part, "type", part_path);
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    if (role == Role::tool && i > 0) text += "\n\n";
    if (is_text) {
      text += string_member(part, "text", part_path);
    } else if (role == Role::tool) {
      text += "[Unsupported " + type + "]";
    } else {
      fail(part_path + "type", in_quotes(type), "text");
    }
  }
  return text;
}

ToolCall tool_call_of(const Json& call, const std::string& path) {
  object_of(call, path);
  ToolCall out;
  out.id = string_member(call, "id", path + ".");
  const Json* function = member(call, "function");
  if (function == nullptr) fail(path + ".function", "missing", "an object");
  object_of(*function, path + ".function");
  out.name = string_member(*function, "name", path + ".function.");
  const Json* arguments = member(*function, "arguments");
  if (arguments == nullptr) {
    out.arguments = "{}";
  } else {
    out.arguments = arguments->is_string() ? arguments->get<std::string>() : dump_python(*arguments);
  }
  return out;
}

Message message_of(const Json& json, const std::string& path) {
  object_of(json, path.substr(0, path.size() - 1));
  Message message;
  message.role = role_named(string_member(json, "role", path), path + "role");
  message.content = content_of(json, message.role, path);
  message.reasoning = string_member(json, member(json, "reasoning_content") ? "reasoning_content" : "reasoning", path);
  message.tool_call_id = string_member(json, "tool_call_id", path);
  message.without_eos = bool_member(json, "wo_eos", false, path);
  if (const Json* task = member(json, "task"))
    message.task = task_named(string_of(*task, path + "task"), path + "task");
  for (const char* field : {"tools", "response_format"})
    if (member(json, field) != nullptr) fail(path + field, "on a message", "it on the request");
  if (const Json* calls = member(json, "tool_calls")) {
    array_of(*calls, path + "tool_calls");
    for (std::size_t i = 0; i < calls->size(); ++i)
      message.tool_calls.push_back(tool_call_of((*calls)[i], indexed(path + "tool_calls", i)));
  }
  return message;
}

}  // namespace

ChatRequest chat_request_from_json(const Json& request) {
  object_of(request, "request");
  ChatRequest out;
  if (const Json* profile = member(request, "profile"))
    out.profile = profile_named(string_of(*profile, "profile"), "profile");
  out.thinking = bool_member(request, "thinking", out.thinking, "");
  if (const Json* effort = member(request, "effort")) out.effort = effort_named(string_of(*effort, "effort"), "effort");
  out.drop_thinking = bool_member(request, "drop_thinking", out.drop_thinking, "");
  out.developer_as_system = bool_member(request, "developer_as_system", out.developer_as_system, "");

  const Json* messages = member(request, "messages");
  if (messages == nullptr) fail("messages", "missing", "an array");
  array_of(*messages, "messages");
  for (std::size_t i = 0; i < messages->size(); ++i)
    out.messages.push_back(message_of((*messages)[i], indexed("messages", i) + "."));

  if (const Json* tools = member(request, "tools")) {
    array_of(*tools, "tools");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string path = indexed("tools", i);
      const Json* function = member(object_of((*tools)[i], path), "function");
      if (function == nullptr) fail(path + ".function", "missing", "an object");
      out.tools.push_back(dump_python(object_of(*function, path + ".function")));
    }
  }
  if (const Json* format = member(request, "response_format")) out.response_format = dump_python(*format);
  return out;
}

Profile profile_named(std::string_view name, std::string_view field) {
  constexpr std::array<std::pair<std::string_view, Profile>, 2> kProfiles = {
      {{"preview", Profile::preview}, {"0731", Profile::release_0731}}};
  return named(kProfiles, name, field);
}

Effort effort_named(std::string_view name, std::string_view field) {
  constexpr std::array<std::pair<std::string_view, Effort>, 6> kEfforts = {{{"minimal", Effort::low},
                                                                            {"low", Effort::low},
                                                                            {"medium", Effort::high},
                                                                            {"high", Effort::high},
                                                                            {"xhigh", Effort::high},
                                                                            {"max", Effort::max}}};
  return named(kEfforts, name, field);
}

Role role_named(std::string_view name, std::string_view field) {
  constexpr std::array<std::pair<std::string_view, Role>, 7> kRoles = {{{"system", Role::system},
                                                                        {"developer", Role::developer},
                                                                        {"user", Role::user},
                                                                        {"assistant", Role::assistant},
                                                                        {"tool", Role::tool},
                                                                        {"function", Role::tool},
                                                                        {"latest_reminder", Role::latest_reminder}}};
  return named(kRoles, name, field);
}

Task task_named(std::string_view name, std::string_view field) {
  constexpr std::array<std::pair<std::string_view, Task>, 6> kTasks = {{{"action", Task::action},
                                                                        {"query", Task::query},
                                                                        {"authority", Task::authority},
                                                                        {"domain", Task::domain},
                                                                        {"title", Task::title},
                                                                        {"read_url", Task::read_url}}};
  return named(kTasks, name, field);
}

}  // namespace lockstep
