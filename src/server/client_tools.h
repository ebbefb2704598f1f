// The tools of a request, as each protocol writes them, and how they may be used.
//
// The model sees functions by one name each. What the client calls them otherwise (a namespace, a free-form tool) is
// kept beside it, so that calls go back in the client's words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace lockstep {

struct ClientTool {
  std::string name;          // as the model sees it
  Json function;             // {"name", "description"?, "parameters"?, ...}: what the model is shown
  bool is_deferred = false;  // not shown until the client refers to it in a result
  bool is_referred = false;  // and now it has
  bool is_strict = false;    // a keyword of its schema that cannot be kept to is an error
  bool is_custom = false;    // its one parameter "input" is the client's free-form text
  std::string client_name;   // as the client knows it, inside its namespace
  std::string name_space;    // empty: none

  /// The model has been shown it.
  bool is_callable() const { return !is_deferred || is_referred; }
};

enum class Protocol { chat, anthropic, responses };

const ClientTool* find_tool(const std::vector<ClientTool>& tools, std::string_view name);
/// By the client's names.
const ClientTool* find_client_tool(const std::vector<ClientTool>& tools, std::string_view name,
                                   std::string_view name_space);

/// Chat completions: `tools`, or the older `functions`.
std::vector<ClientTool> read_chat_tools(const Fields& body);
/// Anthropic's; tools without a schema, which a server would have to run, are left out.
std::vector<ClientTool> read_anthropic_tools(const Fields& body);
/// Responses; adds to `tools`. Kinds that are not functions are left out.
void read_response_tools(const Json& list, const std::string& name, std::vector<ClientTool>& tools);

struct ToolUse {
  bool parses = true;        // false: markup is text
  bool is_required = false;  // the answer is a call
  std::string only;          // the one tool that may be called; empty: any
  /// Of allowed_tools: the only ones that may be called, as the model sees them, though it is shown all.
  std::optional<std::vector<std::string>> allowed = {};
  bool is_parallel = true;

  /// The model has been shown it, and the choice does not leave it out.
  bool may_call(const ClientTool& tool) const;
};

/// `tool_choice` and `parallel_tool_calls`, of all protocols. Throws ApiError 400, also for a tool that is not there,
/// and for a call that is required where there is none that the model could make.
ToolUse read_tool_use(const Fields& body, const std::vector<ClientTool>& tools, Protocol protocol);

}  // namespace lockstep
