// POST /chat/completions and /apply-template.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "server/ask.h"
#include "server/http_error.h"
#include "server/logprobs.h"
#include "server/random_id.h"
#include "server/reply.h"

namespace lockstep {
namespace {

constexpr double kProgressSeconds = 0.5;  // between two chunks of progress

struct ChatOptions {
  bool includes_usage = false;
  bool returns_progress = false;
  bool has_logprobs = false;
  bool inlines_thoughts = false;  // <think>...</think> in the content
};

class ChatReply : public Reply {
 public:
  ChatReply(ApiShared api, std::shared_ptr<Exchange> exchange, const Ask& ask, const ChatOptions& options)
      : Reply(std::move(api), std::move(exchange), ask.model, ask.is_stream),
        options_(options),
        id_(random_id("chatcmpl-")),
        stages_(static_cast<std::size_t>(ask.count)) {}

 protected:
  void stream_prefill(const PrefillProgress& progress) override {
    if (!options_.returns_progress) return;
    const auto now = std::chrono::steady_clock::now();
    if (began_ == std::chrono::steady_clock::time_point()) began_ = now;
    const std::chrono::duration<double> since = now - last_progress_, total = now - began_;
    if (since.count() < kProgressSeconds && progress.done < progress.total) return;
    last_progress_ = now;
    Json chunk = this->chunk(0, Json::object(), nullptr);
    chunk["prompt_progress"] = {{"total", progress.total},
                                {"cache", cached()},
                                {"processed", progress.done},
                                {"time_ms", static_cast<std::int64_t>(total.count() * 1000)}};
    send_data(chunk);
  }

  void stream_first_token(int i) override { begin(i); }

  void stream_piece(int i, const AnswerPiece& piece) override {
    using Kind = ParserEvent::Kind;
    const ParserEvent& event = piece.event;
    Stage& stage = this->stage(i);
    if (event.kind == Kind::reasoning) {
      if (!options_.inlines_thoughts) return send_data(chunk(i, {{"reasoning_content", event.text}}, nullptr));
      const bool is_first = !std::exchange(stage.is_in_thought, true);
      return send_data(chunk(i, {{"content", (is_first ? "<think>" : "") + event.text}}, nullptr));
    }
    close_thought(i);
    switch (event.kind) {
      case Kind::reasoning:
        break;
      case Kind::content: {
        Json chunk = this->chunk(i, {{"content", event.text}}, nullptr);
        if (options_.has_logprobs) chunk["choices"][0]["logprobs"] = logprobs(piece.tokens);
        send_data(chunk);
        break;
      }
      case Kind::call_begin:
        send_call(i, {{"index", event.call},
                      {"id", choice(i).call_ids.back()},
                      {"type", "function"},
                      {"function", {{"name", event.name}, {"arguments", ""}}}});
        break;
      case Kind::arguments:
        send_arguments(i, event.call, event.text);
        break;
      case Kind::call_end:
        if (!event.closing.empty()) send_arguments(i, event.call, event.closing);
        break;
    }
  }

  void stream_choice_end(int i) override {
    begin(i);
    close_thought(i);
    Json last = chunk(i, Json::object(), name_of(choice(i).output.finish_reason));
    stage(i).has_ended = true;
    if (std::all_of(stages_.begin(), stages_.end(), [](const Stage& s) { return s.has_ended; })) {
      last["timings"] = timings();
      last["lockstep"] = lockstep_object();
    }
    send_data(last);
  }

  void stream_end() override {
    if (options_.includes_usage) {
      Json last = head("chat.completion.chunk");
      last["choices"] = Json::array();
      last["usage"] = usage_object();
      send_data(last);
    }
    send("data: [DONE]\n\n");
  }

  void stream_silence(double since_event) override {
    if (since_event < kChunkSeconds) return send_comment();
    begin(0);
    send_data(chunk(0, Json::object(), nullptr));
  }

  void stream_error(const ApiError& error) override { send_data({{"error", error_object(Family::openai, error)}}); }

  Json whole() override {
    Json out = head("chat.completion");
    out["choices"] = Json::array();
    for (int i = 0; i < choices(); ++i) {
      const Choice& one = choice(i);
      Json message = {{"role", "assistant"}};
      std::string content = one.output.content;
      if (options_.inlines_thoughts && !one.output.reasoning.empty())
        content = "<think>" + one.output.reasoning + "</think>" + content;
      message["content"] = content.empty() && !one.output.tool_calls.empty() ? Json(nullptr) : Json(content);
      if (!one.output.reasoning.empty() && !options_.inlines_thoughts)
        message["reasoning_content"] = one.output.reasoning;
      for (std::size_t k = 0; k < one.output.tool_calls.size(); ++k) {
        const ParsedCall& call = one.output.tool_calls[k];
        message["tool_calls"].push_back({{"id", one.call_ids[k]},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      out["choices"].push_back({{"index", i},
                                {"message", std::move(message)},
                                {"logprobs", options_.has_logprobs ? logprobs(one.tokens) : Json(nullptr)},
                                {"finish_reason", name_of(one.output.finish_reason)}});
    }
    out["usage"] = usage_object();
    out["timings"] = timings();
    out["lockstep"] = lockstep_object();
    return out;
  }

  void settle() override {
    for (int i = 0; i < choices(); ++i) remember(choice(i), {});
  }

 private:
  struct Stage {
    bool has_begun = false, is_in_thought = false, has_ended = false;
  };
  Stage& stage(int i) { return stages_[static_cast<std::size_t>(i)]; }

  Json head(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created()},
            {"model", model()},
            {"system_fingerprint", api().sources.fingerprint}};
  }

  Json chunk(int i, Json delta, Json finish_reason) const {
    Json out = head("chat.completion.chunk");
    out["choices"] =
        Json::array({{{"index", i}, {"delta", std::move(delta)}, {"finish_reason", std::move(finish_reason)}}});
    return out;
  }

  void begin(int i) {
    if (std::exchange(stage(i).has_begun, true)) return;
    send_data(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr));
  }

  void close_thought(int i) {
    if (std::exchange(stage(i).is_in_thought, false)) send_data(chunk(i, {{"content", "</think>"}}, nullptr));
  }

  void send_call(int i, Json call) { send_data(chunk(i, {{"tool_calls", Json::array({std::move(call)})}}, nullptr)); }
  void send_arguments(int i, int call, const std::string& text) {
    send_call(i, {{"index", call}, {"function", {{"arguments", text}}}});
  }

  Json logprobs(const std::vector<AnswerToken>& tokens) const {
    return {{"content", chat_logprobs(tokens, api().tokenizer())}, {"refusal", nullptr}};
  }

  Json usage_object() const {
    const Usage u = usage();
    return {{"prompt_tokens", u.prompt},
            {"completion_tokens", u.completion},
            {"total_tokens", u.prompt + u.completion},
            {"prompt_tokens_details", {{"cached_tokens", u.cached}}},
            {"completion_tokens_details", {{"reasoning_tokens", u.reasoning}}},
            {"prompt_cache_hit_tokens", u.cached},
            {"prompt_cache_miss_tokens", u.prompt - u.cached}};
  }

  ChatOptions options_;
  std::string id_;
  std::vector<Stage> stages_;
  std::chrono::steady_clock::time_point began_, last_progress_;
};

void answer_chat(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const Json body = read_body(exchange->request());
  Ask ask = read_chat_ask(body, api->sources, *api->replay);
  ask.request_id = exchange->request().id;
  const Fields fields(body);
  ChatOptions options;
  if (const auto stream = fields.object("stream_options"))
    options.includes_usage = stream->flag("include_usage", false);
  options.returns_progress = fields.flag("return_progress", false);
  options.has_logprobs = ask.logprobs >= 0;
  const std::string format = fields.text("reasoning_format", "auto");
  if (format != "auto" && format != "none" && format != "deepseek" && format != "deepseek-legacy")
    fields.refuse("reasoning_format", "auto, deepseek or none");
  options.inlines_thoughts = format == "none";
  const Plan plan = plan_ask(*api, ask, Family::openai);
  std::make_shared<ChatReply>(api, exchange, ask, options)->start(plan, ask.count);
}

void answer_template(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const Json body = read_body(exchange->request());
  const Ask ask = read_chat_ask(body, api->sources, *api->replay);
  respond(*exchange, {{"prompt", render_ask(ask).text()}});
}

}  // namespace

void add_chat_api(Router& router, const ApiShared& api) {
  const auto add = [&](const char* path, void (*answer)(const ApiShared&, const std::shared_ptr<Exchange>&)) {
    router.add({.method = "POST", .path = path, .handler = [api, answer](std::shared_ptr<Exchange> exchange) {
                  answer(api, exchange);
                }});
  };
  add("/chat/completions", answer_chat);
  add("/apply-template", answer_template);
}

}  // namespace lockstep
