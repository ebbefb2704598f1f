#include "server/plan.h"

#include <algorithm>
#include <utility>

#include "server/http_error.h"

namespace lockstep {
namespace {

/// The grammar of a schema; nothing if it has none that we know and need not be kept to.
std::shared_ptr<Grammar> format_grammar(ApiState& api, const AnswerFormat& format) {
  if (format.kind == AnswerFormat::Kind::text) return nullptr;
  const auto any_object = [&] { return api.grammars.get("object", [] { return Grammar::json_object(); }); };
  if (format.kind == AnswerFormat::Kind::object) return any_object();
  try {
    return api.grammars.get((format.is_strict ? "strict " : "schema ") + dump_python(format.schema),
                            [&] { return Grammar::json_schema(format.schema, format.is_strict); });
  } catch (const Error& error) {
    if (format.is_strict) throw ApiError(400, std::string("response_format: ") + error.what(), "response_format");
    api.warn(std::string("response_format: ") + error.what() + "; any object is let through");
    const bool may_be_object = !format.schema.is_object() || format.schema.value("type", Json("object")) == "object";
    return may_be_object ? any_object() : nullptr;
  }
}

std::shared_ptr<Grammar> make_tool_grammar(const std::vector<Json>& functions, ToolChoice choice, const ToolUse& use) {
  return Grammar::tool_calls(functions, choice, use.only, use.is_parallel);
}

/// The grammar of calls. A tool whose schema is too much for it may be called with anything.
std::shared_ptr<Grammar> tool_grammar(ApiState& api, const Ask& ask, ToolChoice choice) {
  std::vector<Json> functions;
  std::string key = choice == ToolChoice::required ? "required " : "tools ";
  key += ask.tool_use.is_parallel ? "" : "single ";
  key += ask.tool_use.only + "\n";
  for (const ClientTool& tool : ask.tools) {
    functions.push_back(tool.function);
    key += dump_python(tool.function) + "\n";
  }
  return api.grammars.get(key, [&] {
    try {
      return make_tool_grammar(functions, choice, ask.tool_use);
    } catch (const std::exception& error) {
      api.warn(std::string("tools: ") + error.what() + "; only their names are held to");
    }
    for (Json& function : functions) function = {{"name", function["name"]}};
    return make_tool_grammar(functions, choice, ask.tool_use);
  });
}

std::vector<std::shared_ptr<Grammar>> grammars_of(ApiState& api, const Ask& ask) {
  std::vector<std::shared_ptr<Grammar>> out;
  const std::shared_ptr<Grammar> format = format_grammar(api, ask.format);
  const bool has_calls = ask.tool_use.parses && !ask.tools.empty();
  if (format && !ask.tool_use.is_required) out.push_back(format);
  if (!has_calls) return out;
  // Beside a format, the answer is either of that form or a call; otherwise any text that may end in calls.
  const bool is_free = ask.format.kind == AnswerFormat::Kind::text && !ask.tool_use.is_required;
  if (ask.format.kind != AnswerFormat::Kind::text && out.empty() && !ask.tool_use.is_required) return out;
  out.push_back(tool_grammar(api, ask, is_free ? ToolChoice::automatic : ToolChoice::required));
  return out;
}

}  // namespace

Prompt render_ask(const Ask& ask) { return render_chat(ask.chat); }

std::vector<Token> count_ask(const ApiState& api, const Ask& ask) { return api.tokenizer().encode(render_ask(ask)); }

ApiError overflow_error(Family family, std::int64_t tokens, std::int64_t context) {
  const std::string n = std::to_string(tokens), most = std::to_string(context);
  if (family == Family::anthropic) return ApiError(400, "prompt is too long: " + n + " tokens > " + most + " maximum");
  return ApiError(400,
                  "This model's maximum context length is " + most + " tokens. However, your messages resulted in " +
                      n + " tokens. Your input exceeds the context window of this model.",
                  "messages", "context_length_exceeded")
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
  return job;
}

Plan plan_ask(ApiState& api, const Ask& ask, Family family) {
  Plan plan;
  plan.prompt = render_ask(ask);
  plan.tokens = api.tokenizer().encode(plan.prompt);
  const auto size = static_cast<std::int64_t>(plan.tokens.size());
  if (size >= api.context) throw overflow_error(family, size, api.context);  // at least one token must have room
  plan.job = job_of(api, ask.generation);
  plan.job.logprobs = ask.logprobs;
  // The system text and the tools are what chats begin alike with, and what stays when the first message is edited.
  if (const std::optional<Token> user = api.tokenizer().find_added(kUserText)) {
    const auto first = std::find(plan.tokens.begin(), plan.tokens.end(), *user);
    if (first != plan.tokens.end()) plan.job.marks.push_back(static_cast<std::size_t>(first - plan.tokens.begin()));
  }
  AnswerSpec& answer = plan.answer;
  answer.parser.opening = phase_after(plan.prompt);
  for (const ClientTool& tool : ask.tools) answer.parser.tools.push_back(dump_python(tool.function));
  answer.parser.parses_calls = ask.tool_use.parses;
  answer.parser.parallel_tool_calls = ask.tool_use.is_parallel;
  answer.parser.stops = ask.generation.stops;
  answer.grammars = grammars_of(api, ask);
  answer.is_bound =
      ask.tool_use.is_required || (ask.format.kind != AnswerFormat::Kind::text && !answer.grammars.empty());
  answer.trie = api.trie;
  if (ask.chat.final_assistant == FinalAssistant::is_continued) answer.continued = ask.chat.messages.back().content;
  answer.thinking_budget = ask.thinking_budget;
  answer.stop_tokens = api.stop_tokens;
  answer.has_logprobs = ask.logprobs >= 0;
  return plan;
}

}  // namespace lockstep
