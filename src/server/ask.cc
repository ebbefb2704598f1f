#include "server/ask.h"

#include <algorithm>
#include <utility>

#include "server/api.h"
#include "server/http_error.h"
#include "text/chat_request.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostModelName = 1000;

constexpr int kMostAnswers = 16;
constexpr int kMostAlternatives = 20;

Effort effort_of(const std::string& name, const std::string& field) {
  try {
    return effort_named(name, field);
  } catch (const Error&) {
    refuse_field(field, Json(name), "none, minimal, low, medium, high, xhigh or max");
  }
}

/// On, off, or not said, by `thinking` in any of its forms.
std::optional<bool> said_thinking(const Fields& body) {
  if (const Json* thinking = body.find("thinking")) {
    if (thinking->is_boolean()) return thinking->get<bool>();
    if (!thinking->is_object()) body.refuse("thinking", "an object with a type, or true or false");
    const Fields object(*thinking, body.name_of("thinking"));
    const std::string type = object.text("type");
    if (type != "enabled" && type != "adaptive" && type != "auto" && type != "disabled")
      object.refuse("type", "enabled, adaptive or disabled");
    return type != "disabled";
  }
  for (const char* key : {"enable_thinking", "think"})
    if (const std::optional<bool> flag = body.flag(key)) return flag;
  if (const std::optional<Fields> kwargs = body.object("chat_template_kwargs"))
    for (const char* key : {"thinking", "enable_thinking"})
      if (const std::optional<bool> flag = kwargs->flag(key)) return flag;
  return std::nullopt;
}

/// The effort's name and the field that says it.
std::pair<std::string, std::string> said_effort(const Fields& body, Protocol protocol) {
  const auto from = [](const Fields& fields, const char* key) {
    return std::pair(fields.text(key), fields.name_of(key));
  };
  if (body.has("reasoning_effort")) return from(body, "reasoning_effort");
  if (protocol == Protocol::anthropic) {
    if (const auto config = body.object("output_config"); config && config->has("effort"))
      return from(*config, "effort");
  } else if (const std::optional<Fields> reasoning = body.object("reasoning")) {
    if (reasoning->has("effort")) return from(*reasoning, "effort");
  }
  if (const auto kwargs = body.object("chat_template_kwargs"); kwargs && kwargs->has("reasoning_effort"))
    return from(*kwargs, "reasoning_effort");
  return {};
}

/// The first rule that applies decides. Source: docs/api.md, "Thinking".
void read_mode(Ask& ask, const Fields& body, Protocol protocol, const ApiSources& sources) {
  const ServerSettings& settings = sources.settings;
  ChatRequest& chat = ask.chat;
  chat.profile = settings.profile == "auto" ? detect_profile(sources.tokenizer.chat_template(),
                                                             settings.model_name + " " + settings.model_path)
                                            : profile_named(settings.profile, "profile");
  const auto [effort, field] = said_effort(body, protocol);
  if (const std::optional<bool> said = said_thinking(body)) {
    chat.thinking = *said;
  } else if (!effort.empty() && protocol != Protocol::anthropic) {
    chat.thinking = effort != "none";
  } else if (ask.model == "deepseek-chat" || ask.model == "deepseek-reasoner") {
    chat.thinking = ask.model == "deepseek-reasoner";
  } else if (protocol == Protocol::anthropic) {
    chat.thinking = false;
  } else {
    chat.thinking = settings.thinking != "off";
  }
  if (!effort.empty() && effort != "none") {
    chat.effort = effort_of(effort, field);
  } else if (effort.empty() && !settings.effort.empty()) {
    chat.effort = effort_named(settings.effort, "effort");
  }
  chat.drop_thinking = body.flag("drop_thinking", true);
  if (const auto kwargs = body.object("chat_template_kwargs"); kwargs && !body.has("drop_thinking"))
    chat.drop_thinking = kwargs->flag("drop_thinking", true);

  if (settings.thinking_budget >= 0) ask.thinking_budget = settings.thinking_budget;
  const Json* thinking = body.find("thinking");
  if (thinking != nullptr && thinking->is_object()) {
    const Fields fields(*thinking, body.name_of("thinking"));
    if (const auto budget = fields.integer("budget_tokens")) {
      if (*budget < 0) fields.refuse("budget_tokens", "a number of tokens");
      if (sources.caps_by_budget_tokens) ask.thinking_budget = *budget;
    }
  }
  if (const auto budget = body.integer("thinking_budget")) {
    if (*budget < -1) body.refuse("thinking_budget", "a number of tokens, or -1 for no bound");
    ask.thinking_budget = *budget == -1 ? std::nullopt : budget;
  }
}

/// A schema as the form of the answer; `field` is what holds it in the request.
void hold_to_schema(Ask& ask, const Json& schema, const std::string& field, bool is_strict) {
  ask.format.kind = AnswerFormat::Kind::schema;
  ask.format.schema = schema;
  ask.format.field = field;
  ask.format.is_strict = is_strict;
  ask.chat.response_format = dump_python(schema);
}

/// {"type": "json_schema", "schema", "strict"?} and its kin, whatever it is called.
void read_format(Ask& ask, const Fields& format, bool may_be_strict) {
  const std::string type = format.text("type", "text");
  if (type == "text") return;
  if (type == "json_object") {
    ask.format.kind = AnswerFormat::Kind::object;
    ask.chat.response_format = R"({"type": "object"})";
    return;
  }
  if (type != "json_schema") format.refuse("type", "text, json_object or json_schema");
  const std::optional<Fields> inner = format.object("json_schema");
  const Fields& holder = inner ? *inner : format;
  const Json* schema = holder.find("schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) holder.refuse("schema", "a JSON schema");
  const bool is_strict = holder.flag("strict", false);
  hold_to_schema(ask, *schema, format.name(), may_be_strict && is_strict);
}

Ask begin(const Fields& body, Protocol protocol, const ApiSources& sources) {
  Ask ask;
  ask.model = read_model(body, sources.settings);
  ask.is_stream = body.flag("stream", false);
  refuse_unsupported_fields(body);
  read_mode(ask, body, protocol, sources);
  ask.generation = read_generation(body, sources.settings, static_cast<int>(sources.tokenizer.size()));
  return ask;
}

void finish(Ask& ask, const Fields& body, std::vector<ClientMessage> messages, const ApiSources& sources,
            Protocol protocol, ReplayMap& replay) {
  ask.tool_use = read_tool_use(body, ask.tools, protocol);
  for (const ClientTool& tool : ask.tools)
    if (!tool.is_deferred) ask.chat.tools.push_back(dump_python(tool.function));
  ask.chat.developer_as_system = true;
  ask.chat.messages = normalise(std::move(messages), sources.settings.default_system, replay);
}

bool ends_with_words(const Ask& ask) {
  const Message& last = ask.chat.messages.back();
  return last.role == Role::assistant && last.tool_calls.empty();
}

}  // namespace

std::string read_model(const Fields& body, const ServerSettings& settings) {
  std::string model = body.text("model");
  if (model.empty()) return settings.model_name;
  if (model.size() > kMostModelName)  // it is repeated in every event of the answer
    body.refuse("model", "a name of at most " + std::to_string(kMostModelName) + " bytes");
  const bool is_known = model == settings.model_name ||
                        std::find(settings.aliases.begin(), settings.aliases.end(), model) != settings.aliases.end();
  if (!settings.is_strict_model || is_known) return model;
  std::string names = "'" + settings.model_name + "'";
  for (std::size_t i = 0; i < settings.aliases.size(); ++i)
    names += (i + 1 == settings.aliases.size() ? " or '" : ", '") + settings.aliases[i] + "'";
  throw ApiError(404, "model: '" + model + "' is not served here, expected " + names, "model", "model_not_found");
}

void refuse_unsupported_fields(const Fields& body) {
  if (const Json* modalities = body.array("modalities"))
    for (const Json& modality : *modalities)
      if (modality != "text") body.refuse("modalities", "text alone");
  for (const char* key : {"audio", "web_search_options"})
    if (body.has(key)) body.refuse(key, "it to be absent: this server makes text from text");
  if (const Json* grammar = body.find("grammar"); grammar != nullptr && *grammar != "")
    throw ApiError(400, "grammar: GBNF is not understood, expected response_format with a JSON schema", "grammar");
}

Ask read_chat_ask(const Json& json, const ApiSources& sources, ReplayMap& replay) {
  const Fields body(json);
  Ask ask = begin(body, Protocol::chat, sources);
  ask.tools = read_chat_tools(body);
  if (const auto format = body.object("response_format")) {
    read_format(ask, *format, true);
  } else if (const Json* schema = body.find("json_schema")) {
    if (!schema->is_object() && !schema->is_boolean()) body.refuse("json_schema", "a JSON schema");
    hold_to_schema(ask, *schema, body.name_of("json_schema"), false);
  }
  const std::int64_t count = body.integer("n").value_or(1);
  if (count < 1 || count > kMostAnswers) body.refuse("n", "1 to 16 answers");
  ask.count = static_cast<int>(count);
  const std::int64_t alternatives = body.integer("top_logprobs").value_or(0);
  if (alternatives < 0 || alternatives > kMostAlternatives) body.refuse("top_logprobs", "0 to 20");
  if (body.flag("logprobs", false)) {
    ask.logprobs = static_cast<int>(alternatives);
  } else if (alternatives > 0) {
    throw ApiError(400, "top_logprobs: " + std::to_string(alternatives) + ", expected logprobs: true beside it",
                   "top_logprobs");
  }
  finish(ask, body, read_chat_messages(body, {sources.replaces_unsupported}), sources, Protocol::chat, replay);
  const Fields last(body.array("messages")->back(), "messages");
  const bool is_continued = body.flag("continue_final_message", false) || last.flag("prefix", false);
  ask.chat.final_assistant =
      is_continued && ends_with_words(ask) ? FinalAssistant::is_continued : FinalAssistant::opens_a_turn;
  return ask;
}

Ask read_anthropic_ask(const Json& json, const ApiSources& sources, ReplayMap& replay) {
  const Fields body(json);
  Ask ask = begin(body, Protocol::anthropic, sources);
  if (body.object("thread"))  // its SDK sends the whole history once it is told
    throw ApiError(400, "thread: conversations are not kept here, expected all messages in every request", "thread")
        .with({{"details", {{"error_code", "thread_unsupported_request"}, {"unsupported", Json::array({"thread"})}}}});
  ask.tools = read_anthropic_tools(body);
  if (const auto config = body.object("output_config")) {
    if (const auto format = config->object("format")) read_format(ask, *format, false);
  } else if (const auto format = body.object("output_format")) {
    read_format(ask, *format, false);
  }
  std::vector<ClientMessage> messages = read_anthropic_messages(body, ask.tools, {sources.replaces_unsupported});
  finish(ask, body, std::move(messages), sources, Protocol::anthropic, replay);
  ask.chat.final_assistant = ends_with_words(ask) ? FinalAssistant::is_continued : FinalAssistant::opens_a_turn;
  return ask;
}

Ask read_response_ask(const Json& json, const Json& items, const ApiSources& sources, ReplayMap& replay) {
  const Fields body(json);
  Ask ask = begin(body, Protocol::responses, sources);
  if (const Json* tools = body.find("tools")) read_response_tools(*tools, "tools", ask.tools);
  if (const auto text = body.object("text"))
    if (const auto format = text->object("format")) read_format(ask, *format, true);
  std::vector<ClientMessage> messages = read_response_items(body, items, ask.tools, {sources.replaces_unsupported});
  finish(ask, body, std::move(messages), sources, Protocol::responses, replay);
  ask.chat.final_assistant = FinalAssistant::opens_a_turn;
  return ask;
}

}  // namespace lockstep
