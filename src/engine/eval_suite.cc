#include "engine/eval_suite.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "text/chat_request.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& field, const std::string& found, std::string_view expected) {
  throw Error(Error::Kind::bad_argument, field + ": " + found + ", expected " + std::string(expected));
}

std::string shown(const Json& value) {
  const std::string text = dump_python(value);
  return text.size() <= 60 ? text : "something of " + std::to_string(text.size()) + " bytes";
}

void refuse_unknown(const Json& object, std::string_view where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    fail(std::string(where) + quote_python(key), "unknown field", "one of " + names);
  }
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string string_of(const Json& value, const std::string& field) {
  if (!value.is_string()) fail(field, shown(value), "a string");
  return value.get<std::string>();
}

std::string required_string(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (value == nullptr) fail(key, "missing", "a string");
  const std::string text = string_of(*value, key);
  if (text.empty()) fail(key, "empty", "a string");
  return text;
}

/// A string, or an array of at least one.
std::vector<std::string> strings_of(const Json& value, const std::string& field) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.empty()) fail(field, shown(value), "a string or an array of strings");
  std::vector<std::string> texts;
  for (const Json& item : value) texts.push_back(string_of(item, field));
  return texts;
}

ExpectedCall call_of(const Json& json, const std::string& field) {
  if (!json.is_object()) fail(field, shown(json), "an object");
  refuse_unknown(json, field + ".", {"name", "arguments"});
  const Json* name = member(json, "name");
  const Json* arguments = member(json, "arguments");
  if (name == nullptr) fail(field + ".name", "missing", "a string");
  if (arguments == nullptr || !arguments->is_object())
    fail(field + ".arguments", arguments == nullptr ? "missing" : shown(*arguments), "an object");
  return {string_of(*name, field + ".name"), *arguments};
}

void read_expectation(const Json& expect, EvalCase& c) {
  if (!expect.is_object()) fail("expect", shown(expect), "an object");
  refuse_unknown(expect, "expect.", {"content", "reasoning", "reasoning_contains", "tool_calls"});
  if (expect.empty()) fail("expect", "empty", "content or tool_calls");
  if (const Json* content = member(expect, "content")) {
    c.contents = strings_of(*content, "expect.content");
    for (std::string& text : c.contents) text = std::string(trimmed(text));
  }
  if (const Json* reasoning = member(expect, "reasoning")) c.reasoning = string_of(*reasoning, "expect.reasoning");
  if (const Json* parts = member(expect, "reasoning_contains"))
    c.reasoning_contains = strings_of(*parts, "expect.reasoning_contains");
  if ((c.reasoning || !c.reasoning_contains.empty()) && !c.chat.thinking)
    fail("expect", "reasoning of a case that does not think", "\"thinking\": true on the case");
  if (const Json* calls = member(expect, "tool_calls")) {
    if (!calls->is_array()) fail("expect.tool_calls", shown(*calls), "an array");
    for (const Json& call : *calls) {
      std::string field = "expect.tool_calls[";
      field += std::to_string(c.calls.size());
      field += ']';
      c.calls.push_back(call_of(call, field));
    }
  }
  if (!c.calls.empty() && c.chat.tools.empty()) fail("expect.tool_calls", "calls of a case without tools", "tools");
}

EvalCase case_of(const Json& json) {
  refuse_unknown(json, "", {"name", "skill", "messages", "tools", "thinking", "expect", "limit"});
  EvalCase c;
  c.name = required_string(json, "name");
  c.skill = required_string(json, "skill");
  Json request = json;  // its own fields are not the renderer's business
  if (!request.contains("thinking")) request["thinking"] = false;
  c.chat = chat_request_from_json(request);
  if (c.chat.messages.empty()) fail("messages", "empty", "at least one message");
  const Role last = c.chat.messages.back().role;
  if (last != Role::user && last != Role::tool) fail("messages", "the last one asks nothing", "one of user or tool");
  if (const Json* limit = member(json, "limit")) {
    if (!limit->is_number_integer() || limit->get<std::int64_t>() < 1) fail("limit", shown(*limit), "1 or more tokens");
    c.limit = limit->get<std::int64_t>();
  }
  const Json* expect = member(json, "expect");
  if (expect == nullptr) fail("expect", "missing", "an object");
  read_expectation(*expect, c);
  return c;
}

/// What a model wrote as arguments; nothing if it is not JSON.
std::optional<Json> arguments_of(const ToolCall& call) {
  try {
    return parse_json(call.arguments, "arguments");
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Adds NAME(ARGUMENTS), a space before it if something is there.
void add_call(std::string& text, const std::string& name, const std::string& arguments) {
  if (!text.empty()) text += ' ';
  text.append(name).append("(").append(arguments).append(")");
}

}  // namespace

std::vector<EvalCase> parse_suite(std::string_view text, std::string_view name) {
  std::vector<EvalCase> cases;
  std::set<std::string, std::less<>> names;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (trimmed(line).empty()) continue;
    try {
      const Json json = parse_json(line, "JSON");
      if (!json.is_object()) fail("case", shown(json), "a JSON object");
      cases.push_back(case_of(json));
      if (!names.insert(cases.back().name).second)
        fail("name", quote_python(cases.back().name) + " comes twice", "a name of its own for each case");
    } catch (const Error& error) {
      throw Error(error.kind(), std::string(name) + ": line " + std::to_string(number) + ": " + error.what());
    }
  }
  if (cases.empty()) throw Error(Error::Kind::bad_argument, std::string(name) + ": no case in it, expected JSON lines");
  return cases;
}

bool same_json(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.get_ref<const Json::object_t&>()) {
      const auto other = b.find(key);
      if (other == b.end() || !same_json(value, *other)) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array())
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](const Json& x, const Json& y) { return same_json(x, y); });
  return a == b;
}

std::string why_wrong(const EvalCase& expected, const EvalAnswer& answer) {
  if (!answer.has_stopped) return "did not stop by itself";
  const std::string_view content = trimmed(answer.content);
  if (!expected.contents.empty() &&
      std::find(expected.contents.begin(), expected.contents.end(), content) == expected.contents.end())
    return "another content";
  if (expected.reasoning && trimmed(answer.reasoning) != trimmed(*expected.reasoning)) return "another reasoning";
  for (const std::string& part : expected.reasoning_contains)
    if (answer.reasoning.find(part) == std::string::npos) return "reasoning without " + quote_python(part);
  if (answer.calls.size() != expected.calls.size())
    return std::to_string(answer.calls.size()) + " tool calls, expected " + std::to_string(expected.calls.size());
  for (std::size_t i = 0; i < expected.calls.size(); ++i) {
    if (answer.calls[i].name != expected.calls[i].name) return "another tool";
    const std::optional<Json> arguments = arguments_of(answer.calls[i]);
    if (!arguments || !same_json(*arguments, expected.calls[i].arguments)) return "other arguments";
  }
  return {};
}

std::optional<ChatRequest> answered(const EvalCase& c) {
  if (c.contents.empty() && c.calls.empty()) return std::nullopt;
  if (c.chat.thinking && !c.reasoning) return std::nullopt;
  Message message;
  message.role = Role::assistant;
  if (!c.contents.empty()) message.content = c.contents.front();
  message.reasoning = c.reasoning.value_or("");
  for (const ExpectedCall& call : c.calls) message.tool_calls.push_back({"", call.name, dump_python(call.arguments)});
  ChatRequest request = c.chat;
  request.messages.push_back(std::move(message));
  return request;
}

std::string expected_text(const EvalCase& c) {
  std::string text;
  if (!c.contents.empty()) {
    text = quote_python(c.contents.front());
    if (c.contents.size() > 1) text += " or " + std::to_string(c.contents.size() - 1) + " other forms";
  }
  for (const ExpectedCall& call : c.calls) add_call(text, call.name, dump_python(call.arguments));
  for (const std::string& part : c.reasoning_contains) text.append(", thinking of ").append(quote_python(part));
  if (c.reasoning) text.append(", thinking ").append(quote_python(*c.reasoning));
  return text;
}

std::string answer_text(const EvalAnswer& answer) {
  std::string text = answer.content.empty() && !answer.calls.empty() ? std::string() : quote_python(answer.content);
  for (const ToolCall& call : answer.calls) add_call(text, call.name, call.arguments);
  if (!answer.reasoning.empty()) text.append(", thinking ").append(quote_python(answer.reasoning));
  return text;
}

}  // namespace lockstep
