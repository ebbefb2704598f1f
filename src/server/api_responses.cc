// POST /responses, and GET /responses/{id} for those that are kept.
#include <optional>
#include <utility>
#include <vector>

#include "server/ask.h"
#include "server/http_error.h"
#include "server/logprobs.h"
#include "server/normalise.h"
#include "server/random_id.h"
#include "server/reply.h"

namespace lockstep {
namespace {

/// What a response does with the request besides answering it.
struct ResponseOptions {
  Json request;  // the body
  Json input;    // items that this request added
  std::size_t body_bytes = 0;
  std::string previous;
  bool is_stored = true;
  bool encrypts_reasoning = false;  // it asked for encrypted_content
};

/// References as what they refer to. One that is not kept is left, for the reader to refuse by name.
void follow_references(const ApiState& api, Json& items) {
  for (Json& item : items) {
    if (!is_item_reference(item)) continue;
    const auto id = item.find("id");
    if (id == item.end() || !id->is_string()) continue;
    if (std::optional<Json> found = api.responses.item(id->get<std::string>())) item = std::move(*found);
  }
}

class ResponseReply : public Reply {
 public:
  ResponseReply(ApiShared api, std::shared_ptr<Exchange> exchange, Ask ask, ResponseOptions options)
      : Reply(std::move(api), std::move(exchange), ask.model, ask.is_stream),
        ask_(std::move(ask)),
        options_(std::move(options)),
        id_(random_id("resp_")),
        reasoning_id_(random_id("rs_")),
        message_id_(random_id("msg_")),
        replay_key_(random_id("", 43)) {}

 protected:
  void stream_begin() override {
    const Json begun = response("in_progress", Json::array(), nullptr);
    event("response.created", {{"response", begun}});
    event("response.in_progress", {{"response", begun}});
  }

  void stream_piece(int i, const AnswerPiece& piece) override {
    using Kind = ParserEvent::Kind;
    const ParserEvent& event = piece.event;
    switch (event.kind) {
      case Kind::reasoning:
        open(Part::reasoning);
        text_ += event.text;
        part_event("response.reasoning_summary_text.delta", {{"summary_index", 0}, {"delta", event.text}});
        break;
      case Kind::content: {
        open(Part::message);
        text_ += event.text;
        for (const AnswerToken& token : piece.tokens) tokens_.push_back(token);
        part_event("response.output_text.delta", {{"content_index", 0},
                                                  {"delta", event.text},
                                                  {"logprobs", chat_logprobs(piece.tokens, api().tokenizer())}});
        break;
      }
      case Kind::call_begin:
        close();
        call_ = find_tool(ask_.tools, event.name);
        call_name_ = event.name;
        call_id_ = choice(i).call_ids.back();
        open(Part::call);
        break;
      case Kind::arguments:
        text_ += event.text;
        if (!is_custom()) part_event("response.function_call_arguments.delta", {{"delta", event.text}});
        break;
      case Kind::call_end:
        // Agents act on an item that is done. One that broke off is never done, and not in the response.
        if (event.is_complete) {
          close();
        } else {
          part_ = Part::none;
          text_.clear();
          ++index_;
        }
        break;
    }
  }

  /// After an answer without a word there is one item that says so.
  void stream_end() override {
    close();
    const bool is_cut = choice(0).output.finish_reason == FinishReason::length;
    const Json done = response(is_cut ? "incomplete" : "completed", output_, usage_object());
    event(is_cut ? "response.incomplete" : "response.completed", {{"response", done}});
  }

  void settle() override {
    Choice& one = choice(0);
    if (is_stream()) {
      close();
    } else {
      output_ = whole_output(one);
    }
    remember(one, {one.output.reasoning.empty() ? "" : reasoning_id_,
                   options_.encrypts_reasoning && !one.output.reasoning.empty() ? replay_key_ : "",
                   one.output.content.empty() ? "" : message_id_});
    if (!options_.is_stored) return;
    const bool is_cut = one.output.finish_reason == FinishReason::length;
    Json done = response(is_cut ? "incomplete" : "completed", output_, usage_object());
    // The request's text stands in the input, and its tools in the response.
    const std::size_t bytes = 2 * (options_.body_bytes + one.output.reasoning.size() + one.output.content.size());
    api().responses.add(id_, options_.previous, std::move(options_.input), output_, std::move(done), bytes);
  }

  void stream_silence(double) override {
    // A comment does not count for every client; this event says nothing new, and does.
    event("response.in_progress", {{"response", response("in_progress", Json::array(), nullptr)}});
  }

  void stream_error(const ApiError& error) override {
    Json failed = response("failed", output_, nullptr);
    failed["error"] = {{"code", error.code().empty() ? "server_error" : error.code()}, {"message", error.what()}};
    event("response.failed", {{"response", std::move(failed)}});
  }

  Json whole() override {
    const bool is_cut = choice(0).output.finish_reason == FinishReason::length;
    return response(is_cut ? "incomplete" : "completed", output_, usage_object());
  }

 private:
  enum class Part { none, reasoning, message, call };

  static constexpr const char* kInProgress = "in_progress";

  /// Of an item that ends here, where nothing comes after it if it `is_last`: then the limit may have cut it.
  static const char* status_of(const Choice& one, bool is_last) {
    return is_last && one.has_ended && one.output.finish_reason == FinishReason::length ? "incomplete" : "completed";
  }

  Json reasoning_item(const std::string& text, const char* status) const {
    Json summary = Json::array();
    if (!text.empty()) summary.push_back({{"type", "summary_text"}, {"text", text}});
    return {{"type", "reasoning"},
            {"id", reasoning_id_},
            {"status", status},
            {"summary", std::move(summary)},
            {"content", Json::array()},
            {"encrypted_content", options_.encrypts_reasoning ? Json(replay_key_) : Json(nullptr)}};
  }

  Json message_item(const std::string& text, const std::vector<AnswerToken>& tokens, const char* status) const {
    Json content = Json::array();
    if (status != kInProgress) content.push_back(text_part(text, tokens));
    return {{"type", "message"},
            {"id", message_id_},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json text_part(const std::string& text, const std::vector<AnswerToken>& tokens) const {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", chat_logprobs(tokens, api().tokenizer())}};
  }

  static Json call_item(const ClientTool* tool, const std::string& name, const std::string& call_id,
                        const std::string& arguments, bool is_done) {
    const bool is_custom = tool != nullptr && tool->is_custom;
    Json item = {{"type", is_custom ? "custom_tool_call" : "function_call"},
                 {"id", (is_custom ? "ctc_" : "fc_") + call_id.substr(call_id.find('_') + 1)},
                 {"call_id", call_id},
                 {"name", tool == nullptr ? name : tool->client_name}};
    if (tool != nullptr && !tool->name_space.empty()) item["namespace"] = tool->name_space;
    if (is_custom) {
      item["input"] = is_done ? custom_input(arguments) : std::string();
    } else {
      item["arguments"] = arguments;
    }
    item["status"] = is_done ? "completed" : "in_progress";
    return item;
  }

  /// The free-form text; whatever the model wrote instead, if it did not keep to the one parameter.
  static std::string custom_input(const std::string& arguments) {
    const Json object = parse_json(arguments, "arguments");
    const auto input = object.find("input");
    return input != object.end() && input->is_string() ? input->get<std::string>() : arguments;
  }

  Json whole_output(const Choice& one) const {
    Json out = Json::array();
    const bool has_text = !one.output.content.empty();
    if (!one.output.reasoning.empty())
      out.push_back(reasoning_item(one.output.reasoning, status_of(one, !has_text && !one.has_called)));
    if (has_text) out.push_back(message_item(one.output.content, one.tokens, status_of(one, !one.has_called)));
    for (std::size_t k = 0; k < one.output.tool_calls.size(); ++k) {
      const ParsedCall& call = one.output.tool_calls[k];
      out.push_back(call_item(find_tool(ask_.tools, call.name), call.name, one.call_ids[k], call.arguments, true));
    }
    return out;
  }

  Json response(const char* status, Json output, Json usage) const {
    const Fields request(options_.request);
    const auto said = [&](const char* key, Json otherwise) {
      const Json* value = request.find(key);
      return value == nullptr ? otherwise : plain_numbers(*value);
    };
    const bool is_cut = std::string_view(status) == "incomplete";
    Json out = {{"id", id_},
                {"object", "response"},
                {"created_at", created()},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", is_cut ? Json{{"reason", "max_output_tokens"}} : Json(nullptr)},
                {"instructions", said("instructions", nullptr)},
                {"model", model()},
                {"output", std::move(output)},
                {"parallel_tool_calls", ask_.tool_use.is_parallel},
                {"tool_choice", said("tool_choice", "auto")},
                {"tools", said("tools", Json::array())},
                {"temperature", short_number(ask_.generation.sampling.temperature)},
                {"top_p", short_number(ask_.generation.sampling.top_p)},
                {"max_output_tokens", said("max_output_tokens", nullptr)},
                {"previous_response_id", said("previous_response_id", nullptr)},
                {"reasoning", said("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
                {"store", options_.is_stored},
                {"text", said("text", {{"format", {{"type", "text"}}}})},
                {"truncation", said("truncation", "disabled")},
                {"metadata", said("metadata", Json::object())},
                {"usage", std::move(usage)}};
    if (std::string_view(status) != "in_progress") {
      out["system_fingerprint"] = api().sources.fingerprint;
      out["lockstep"] = lockstep_object();
    }
    return out;
  }

  Json usage_object() const {
    const Usage u = usage();
    return {{"input_tokens", u.prompt},
            {"input_tokens_details", {{"cached_tokens", u.cached}}},
            {"output_tokens", u.completion},
            {"output_tokens_details", {{"reasoning_tokens", u.reasoning}}},
            {"total_tokens", u.prompt + u.completion}};
  }

  bool is_custom() const { return call_ != nullptr && call_->is_custom; }

  void event(const char* type, Json fields) {
    Json data = {{"type", type}, {"sequence_number", sequence_++}};
    data.update(fields);
    send_event(type, data);
  }

  /// An event of the open item.
  void part_event(const char* type, Json fields) {
    Json all = {{"item_id", item_id_}, {"output_index", index_}};
    all.update(fields);
    event(type, std::move(all));
  }

  void open(Part part) {
    if (part_ == part) return;
    close();
    part_ = part;
    const Json item = part == Part::reasoning ? reasoning_item({}, kInProgress)
                      : part == Part::message ? message_item({}, {}, kInProgress)
                                              : call_item(call_, call_name_, call_id_, {}, false);
    item_id_ = item["id"].get<std::string>();
    event("response.output_item.added", {{"output_index", index_}, {"item", item}});
    if (part == Part::reasoning)
      part_event("response.reasoning_summary_part.added",
                 {{"summary_index", 0}, {"part", {{"type", "summary_text"}, {"text", ""}}}});
    if (part == Part::message)
      part_event("response.content_part.added", {{"content_index", 0}, {"part", text_part({}, {})}});
  }

  void close() {
    if (part_ == Part::none) return;
    const char* status = status_of(choice(0), true);  // before the end of the answer: completed
    Json item;
    switch (part_) {
      case Part::none:
        break;
      case Part::reasoning:
        item = reasoning_item(text_, status);
        part_event("response.reasoning_summary_text.done", {{"summary_index", 0}, {"text", text_}});
        part_event("response.reasoning_summary_part.done", {{"summary_index", 0}, {"part", item["summary"][0]}});
        break;
      case Part::message:
        item = message_item(text_, tokens_, status);
        part_event("response.output_text.done",
                   {{"content_index", 0}, {"text", text_}, {"logprobs", item["content"][0]["logprobs"]}});
        part_event("response.content_part.done", {{"content_index", 0}, {"part", item["content"][0]}});
        break;
      case Part::call:
        item = call_item(call_, call_name_, call_id_, text_, true);
        if (is_custom()) {
          part_event("response.custom_tool_call_input.delta", {{"delta", item["input"]}});
          part_event("response.custom_tool_call_input.done", {{"input", item["input"]}});
        } else {
          part_event("response.function_call_arguments.done", {{"name", item["name"]}, {"arguments", text_}});
        }
        break;
    }
    event("response.output_item.done", {{"output_index", index_}, {"item", item}});
    output_.push_back(std::move(item));
    ++index_;
    part_ = Part::none;
    text_.clear();
    tokens_.clear();
  }

  Ask ask_;
  ResponseOptions options_;
  std::string id_, reasoning_id_, message_id_, replay_key_;
  Json output_ = Json::array();

  // Of the stream.
  Part part_ = Part::none;
  int sequence_ = 0, index_ = 0;
  std::string item_id_, text_;
  std::vector<AnswerToken> tokens_;
  const ClientTool* call_ = nullptr;
  std::string call_name_, call_id_;
};

void answer_response(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const Json body = read_body(exchange->request());
  const Fields fields(body);
  if (fields.flag("background", false)) fields.refuse("background", "false: answers are made while the client waits");
  // A text of that name is another protocol's, and like any field that is not known.
  if (const Json* prompt = fields.find("prompt"); prompt != nullptr && prompt->is_object())
    fields.refuse("prompt", "it to be absent: no prompts are kept here, send the text itself");
  ResponseOptions options;
  options.input = response_input(fields);
  follow_references(*api, options.input);
  options.is_stored = fields.flag("store", true);
  if (const Json* include = fields.array("include"))
    for (std::size_t i = 0; i < include->size(); ++i) {
      const Json& what = (*include)[i];
      if (!what.is_string()) refuse_field(indexed_name("include", i), what, "a string");
      if (what == "reasoning.encrypted_content") options.encrypts_reasoning = true;
    }
  Json items = options.input;
  if (const Json* conversation = fields.find("conversation"); conversation != nullptr)
    throw ApiError(400, "conversation: none is kept here, expected the full input", "conversation",
                   "conversation_not_found");
  options.previous = fields.text("previous_response_id");
  if (fields.has("previous_response_id")) {
    std::optional<Json> before = api->responses.conversation(options.previous);
    if (!before)
      throw ApiError(400,
                     "previous_response_id: '" + options.previous +
                         "' is not kept here (any more), expected the full input instead",
                     "previous_response_id", "previous_response_not_found");
    for (const Json& item : items) before->push_back(item);
    items = std::move(*before);
  }
  Ask ask = read_response_ask(body, items, api->sources, *api->replay);
  ask.request_id = exchange->request().id;
  const std::int64_t alternatives = fields.integer("top_logprobs").value_or(0);
  if (alternatives < 0 || alternatives > 20) fields.refuse("top_logprobs", "0 to 20");
  if (alternatives > 0) ask.logprobs = static_cast<int>(alternatives);
  const Plan plan = plan_ask(*api, ask, Family::openai, "input");
  options.request = body;
  options.body_bytes = exchange->request().body.size();
  std::make_shared<ResponseReply>(api, exchange, std::move(ask), std::move(options))->start(plan);
}

void answer_stored(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const std::string& id = exchange->request().rest;
  if (id.find('/') != std::string::npos)
    throw ApiError(404, "no such path: GET /v1/responses/" + id + ", expected /v1/responses/ID", {}, "not_found");
  const std::optional<Json> found = api->responses.response(id);
  if (!found) throw ApiError(404, "response '" + id + "' is not kept here", "response_id", "response_not_found");
  respond(*exchange, *found);
}

}  // namespace

void add_responses_api(Router& router, const ApiShared& api) {
  const auto add = [&](const char* method, const char* path,
                       void (*answer)(const ApiShared&, const std::shared_ptr<Exchange>&)) {
    router.add({.method = method, .path = path, .handler = [api, answer](std::shared_ptr<Exchange> exchange) {
                  answer(api, exchange);
                }});
  };
  add("POST", "/responses", answer_response);
  add("GET", "/responses/{rest}", answer_stored);
}

}  // namespace lockstep
