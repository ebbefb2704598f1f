#include "cli/parse.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/json_lines.h"
#include "text/output_parser.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& field, const Json& found, const std::string& expected) {
  std::string shown = dump_python(found);
  if (shown.size() > 60) shown = std::string("a ") + found.type_name();
  throw Error(Error::Kind::bad_argument, field + ": " + shown + ", expected " + expected);
}

/// A member that is there and not null.
const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// Whether calls are looked for.
bool parses_calls(const Json& choice) {
  if (choice.is_object()) return true;  // a function by its name
  if (choice == "none") return false;
  if (choice == "auto" || choice == "required") return true;
  fail("tool_choice", choice, "\"none\", \"auto\", \"required\" or a function");
}

ParserOptions options_of(const Json& line) {
  ParserOptions options;
  if (const Json* thinking = member(line, "thinking"); thinking != nullptr) {
    if (!thinking->is_boolean()) fail("thinking", *thinking, "true or false");
    options.opening = thinking->get<bool>() ? Phase::reasoning : Phase::content;
  }
  if (const Json* tools = member(line, "tools"); tools != nullptr) {
    if (!tools->is_array()) fail("tools", *tools, "an array");
    for (const Json& tool : *tools) {
      if (!tool.is_object()) fail("tools", tool, "objects");
      const Json* function = member(tool, "function");
      options.tools.push_back(dump_python(function != nullptr ? *function : tool));
    }
  }
  if (const Json* choice = member(line, "tool_choice"); choice != nullptr) options.parses_calls = parses_calls(*choice);
  return options;
}

GenerationEnd end_of(const Json& line) {
  const Json* finish = member(line, "finish");
  if (finish == nullptr || *finish == "stop") return GenerationEnd::stop;
  if (*finish == "length") return GenerationEnd::length;
  fail("finish", *finish, "\"stop\" or \"length\"");
}

ParsedOutput parsed(const Json& line, std::size_t chunk) {
  const Json* text = member(line, "text");
  if (text == nullptr || !text->is_string()) fail("text", text == nullptr ? Json() : *text, "a string");
  const GenerationEnd end = end_of(line);
  std::string_view rest = text->get_ref<const std::string&>();
  if (chunk == 0) return parse_output(rest, options_of(line), end);
  OutputParser parser(options_of(line));
  ParsedOutput output;
  for (; !rest.empty(); rest.remove_prefix(std::min(chunk, rest.size())))
    for (const ParserEvent& event : parser.feed(rest.substr(0, chunk))) append(output, event);
  for (const ParserEvent& event : parser.finish(end)) append(output, event);
  output.finish_reason = parser.finish_reason();
  return output;
}

}  // namespace

int run_parse(std::istream& in, std::ostream& out, std::ostream& errors, std::size_t chunk) {
  return for_each_json_line(in, out, errors, [chunk](const Json& line) {
    const ParsedOutput output = parsed(line, chunk);
    const Json* name = member(line, "name");
    std::string calls;
    for (const ParsedCall& call : output.tool_calls) {
      calls += calls.empty() ? "" : ", ";
      calls += "{\"name\": " + quote_python(call.name) + ", \"arguments\": " + quote_python(call.arguments) + "}";
    }
    return "{\"name\": " + dump_python(name == nullptr ? Json() : *name) +
           ", \"result\": {\"reasoning\": " + quote_python(output.reasoning) +
           ", \"content\": " + quote_python(output.content) + ", \"tool_calls\": [" + calls +
           "], \"finish_reason\": " + quote_python(name_of(output.finish_reason)) + "}}";
  });
}

}  // namespace lockstep
