#include "server/plan.h"

#include <algorithm>
#include <utility>

#include "server/http_error.h"

namespace lockstep {
namespace {

/// A schema with plain numbers where they are bounds and counts. Values that it lists keep all of their digits: an
/// answer is to hold them as they are.
Json schema_numbers(Json schema) {
  if (schema.is_binary()) return plain_numbers(std::move(schema));
  if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      // A "const" may be the name of a property, but then it is an object.
      const bool is_listed = (key == "enum" && value.is_array()) || (key == "const" && !value.is_object());
      if (!is_listed) value = schema_numbers(std::move(value));
    }
  } else if (schema.is_array()) {
    for (Json& element : schema) element = schema_numbers(std::move(element));
  }
  return schema;
}

/// The grammar of the answer's form; nothing if it is free. A schema that is malformed, or that nothing can meet, is
/// the client's error, strict or not.
std::shared_ptr<Grammar> format_grammar(ApiState& api, const Ask& ask) {
  const AnswerFormat& format = ask.format;
  if (format.kind == AnswerFormat::Kind::text) return nullptr;
  if (format.kind == AnswerFormat::Kind::object)
    return api.grammars.get("object", [] { return Grammar::json_object(); });
  try {
    return api.grammars.get((format.is_strict ? "strict " : "schema ") + dump_python(format.schema), [&] {
      std::vector<std::string> left_out;
      const std::shared_ptr<Grammar> grammar =
          Grammar::json_schema(schema_numbers(format.schema), format.is_strict, &left_out);
      for (const std::string& line : left_out)
        api.warn(ask.request_id + ": " + format.field + ": " + line + "; it is left out of account");
      return grammar;
    });
  } catch (const Error& error) {
    throw ApiError(400, format.field + ": " + error.what(), format.field);
  }
}

/// A strict tool's schema must be one that can be kept to whole.
void check_strict_tool(const ClientTool& tool) {
  const auto parameters = tool.function.find("parameters");
  if (!tool.is_strict || parameters == tool.function.end() || parameters->is_null()) return;
  try {
    Grammar::json_schema(schema_numbers(*parameters), true);
  } catch (const Error& error) {
    throw ApiError(400, "tools: '" + tool.client_name + "': " + error.what(), "tools");
  }
}

/// The grammar of calls of `tools`. One whose schema is too much for it may be called with anything.
std::shared_ptr<Grammar> tool_grammar(ApiState& api, const Ask& ask, const std::vector<const ClientTool*>& tools,
                                      ToolChoice choice) {
  const ToolUse& use = ask.tool_use;
  std::string key = choice == ToolChoice::required ? "required " : "tools ";
  key += use.is_parallel ? "" : "single ";
  key += use.only + "\n";
  for (const ClientTool* tool : tools) key += (tool->is_strict ? "strict " : "") + dump_python(tool->function) + "\n";
  return api.grammars.get(key, [&] {
    std::vector<Json> functions;
    for (const ClientTool* tool : tools) {
      check_strict_tool(*tool);
      functions.push_back(schema_numbers(tool->function));
    }
    try {
      return Grammar::tool_calls(functions, choice, use.only, use.is_parallel);
    } catch (const std::exception&) {
      // What went wrong may quote the client's schema, and that is part of a prompt, which no log holds.
      api.warn(ask.request_id + ": tools: their schemas make no grammar; only their names are held to");
    }
    for (Json& function : functions) function = {{"name", function["name"]}};
    return Grammar::tool_calls(functions, choice, use.only, use.is_parallel);
  });
}

/// Those that the model may call: the others it has not been shown, or the request does not allow.
std::vector<const ClientTool*> callable_tools(const Ask& ask) {
  std::vector<const ClientTool*> out;
  for (const ClientTool& tool : ask.tools)
    if (ask.tool_use.may_call(tool)) out.push_back(&tool);
  return out;
}

std::vector<std::shared_ptr<Grammar>> grammars_of(ApiState& api, const Ask& ask,
                                                  const std::vector<const ClientTool*>& tools) {
  std::vector<std::shared_ptr<Grammar>> out;
  const std::shared_ptr<Grammar> format = format_grammar(api, ask);
  if (format && !ask.tool_use.is_required) out.push_back(format);
  if (!ask.tool_use.parses || tools.empty()) return out;
  // Beside a format, the answer is either of that form or a call; otherwise any text that may end in calls.
  const bool is_free = ask.format.kind == AnswerFormat::Kind::text && !ask.tool_use.is_required;
  out.push_back(tool_grammar(api, ask, tools, is_free ? ToolChoice::automatic : ToolChoice::required));
  return out;
}

/// Where states are kept, because edits begin there: the first message, behind the system text and the tools that chats
/// begin alike with; the last one; and those between that are not close together.
std::vector<std::size_t> turn_marks(const ApiState& api, std::span<const Token> tokens) {
  constexpr std::size_t kApart = 1024;  // tokens
  std::vector<std::size_t> marks;
  const std::optional<Token> user = api.tokenizer().find_added(kUserText);
  if (!user) return marks;
  std::size_t last = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != *user) continue;
    last = i;
    if (marks.empty() || i >= marks.back() + kApart) marks.push_back(i);
  }
  if (!marks.empty() && marks.back() != last) marks.push_back(last);
  return marks;
}

}  // namespace

Prompt render_ask(const Ask& ask) { return render_chat(ask.chat); }

std::vector<Token> count_ask(const ApiState& api, const Ask& ask) { return api.tokenizer().encode(render_ask(ask)); }

std::size_t counted_tokens(std::int64_t context) { return static_cast<std::size_t>(context) * 2; }

/// Agents read both numbers out of these words, Anthropic's to the letter; so that a text was not counted to its end is
/// said behind them, or only by the documentation.
ApiError overflow_error(Family family, std::int64_t tokens, std::int64_t context, const std::string& field,
                        bool is_exact) {
  const std::string n = std::to_string(tokens), most = std::to_string(context);
  const std::string rest = is_exact ? "" : " It has at least " + n + ": they were not counted further.";
  if (family == Family::anthropic) return ApiError(400, "prompt is too long: " + n + " tokens > " + most + " maximum");
  return ApiError(400,
                  "This model's maximum context length is " + most + " tokens. However, your messages resulted in " +
                      n + " tokens. Your input exceeds the context window of this model." + rest,
                  field, "context_length_exceeded")
      .with({{"n_prompt_tokens", tokens}, {"n_ctx", context}});
}

Job job_of(const ApiState& api, const GenerationFields& fields) {
  Job job;
  job.sampling = fields.sampling;
  job.limit = fields.limit;
  job.context = api.context;
  job.stop_tokens = api.stop_tokens;
  job.penalty_last_n = fields.penalty_last_n;
  job.penalise_prompt = fields.penalise_prompt;
  job.use_cache = fields.use_cache;
  job.priority = fields.priority;
  job.stops = fields.stops.size();
  return job;
}

Plan plan_ask(ApiState& api, const Ask& ask, Family family, const char* field) {
  Plan plan;
  plan.prompt = render_ask(ask);
  Tokenizer::Bounded encoded = api.tokenizer().encode(plan.prompt, counted_tokens(api.context));
  const auto size = static_cast<std::int64_t>(encoded.at_least);
  if (size >= api.context)  // at least one token must have room
    throw overflow_error(family, size, api.context, field, encoded.is_whole);
  plan.tokens = std::move(encoded.tokens);
  plan.job = job_of(api, ask.generation);
  plan.job.logprobs = ask.logprobs;
  plan.job.marks = turn_marks(api, plan.tokens);
  AnswerSpec& answer = plan.answer;
  answer.parser.opening = phase_after(plan.prompt);
  const std::vector<const ClientTool*> tools = callable_tools(ask);
  for (const ClientTool* tool : tools) answer.parser.tools.push_back(dump_python(tool->function));
  answer.parser.parses_calls = ask.tool_use.parses;
  answer.parser.parallel_tool_calls = ask.tool_use.is_parallel;
  answer.parser.stops = ask.generation.stops;
  answer.grammars = grammars_of(api, ask, tools);
  answer.is_bound =
      ask.tool_use.is_required || (ask.format.kind != AnswerFormat::Kind::text && !answer.grammars.empty());
  answer.trie = api.trie;
  if (ask.chat.final_assistant == FinalAssistant::is_continued) {
    const Message& last = ask.chat.messages.back();
    answer.begun = {last.reasoning, last.content, begun_turn(plan.prompt)};
  }
  answer.thinking_budget = ask.thinking_budget;
  answer.stop_tokens = api.stop_tokens;
  answer.has_logprobs = ask.logprobs >= 0;
  return plan;
}

}  // namespace lockstep
