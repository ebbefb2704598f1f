// POST /messages and /messages/count_tokens.
#include <optional>
#include <utility>
#include <vector>

#include "server/ask.h"
#include "server/http_error.h"
#include "server/random_id.h"
#include "server/reply.h"

namespace lockstep {
namespace {

Json input_of(const std::string& arguments) {
  return plain_numbers(parse_json(arguments, "arguments"));  // the parser promises an object
}

class MessageReply : public Reply {
 public:
  MessageReply(ApiShared api, std::shared_ptr<Exchange> exchange, const Ask& ask)
      : Reply(std::move(api), std::move(exchange), ask.model, ask.is_stream),
        id_(random_id("msg_")),
        signature_(random_id("", 43)) {}

 protected:
  std::string call_id_prefix() const override { return "toolu_"; }

  void stream_prefill(const PrefillProgress&) override { begin(); }

  void stream_piece(int i, const AnswerPiece& piece) override {
    begin();
    using Kind = ParserEvent::Kind;
    const ParserEvent& event = piece.event;
    switch (event.kind) {
      case Kind::reasoning:
        open(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        delta({{"type", "thinking_delta"}, {"thinking", event.text}});
        break;
      case Kind::content:
        open(Block::text, {{"type", "text"}, {"text", ""}});
        delta({{"type", "text_delta"}, {"text", event.text}});
        break;
      case Kind::call_begin:
        close();
        open(
            Block::call,
            {{"type", "tool_use"}, {"id", choice(i).call_ids.back()}, {"name", event.name}, {"input", Json::object()}});
        break;
      case Kind::arguments:
        delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
        break;
      case Kind::call_end:
        if (!event.closing.empty()) delta({{"type", "input_json_delta"}, {"partial_json", event.closing}});
        close();
        break;
    }
  }

  void stream_end() override {
    begin();
    close();
    if (!has_answer_) {
      open(Block::text, {{"type", "text"}, {"text", ""}});
      close();
    }
    const Choice& one = choice(0);
    send_event("message_delta", {{"type", "message_delta"},
                                 {"delta", {{"stop_reason", stop_reason(one)}, {"stop_sequence", stop_sequence(one)}}},
                                 {"usage", usage_object(usage())},
                                 {"lockstep", lockstep_object()}});
    send_event("message_stop", {{"type", "message_stop"}});
  }

  void stream_silence(double) override {
    if (!begin()) send_event("ping", {{"type", "ping"}});
  }

  void stream_error(const ApiError& error) override {
    send_event("error", {{"type", "error"}, {"error", error_object(Family::anthropic, error)}});
  }

  Json whole() override {
    const Choice& one = choice(0);
    Json content = Json::array();
    if (!one.output.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", one.output.reasoning}, {"signature", signature_}});
    if (!one.output.content.empty() || one.output.tool_calls.empty())
      content.push_back({{"type", "text"}, {"text", one.output.content}});
    for (std::size_t k = 0; k < one.output.tool_calls.size(); ++k) {
      const ParsedCall& call = one.output.tool_calls[k];
      content.push_back(
          {{"type", "tool_use"}, {"id", one.call_ids[k]}, {"name", call.name}, {"input", input_of(call.arguments)}});
    }
    Json out = message(std::move(content), stop_reason(one), stop_sequence(one), usage_object(usage()));
    out["lockstep"] = lockstep_object();
    return out;
  }

  void settle() override { remember(choice(0), {choice(0).output.reasoning.empty() ? "" : signature_}); }

 private:
  enum class Block { none, thinking, text, call };

  Json message(Json content, Json stop_reason, Json stop_sequence, Json usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model()},
            {"content", std::move(content)},
            {"stop_reason", std::move(stop_reason)},
            {"stop_sequence", std::move(stop_sequence)},
            {"usage", std::move(usage)}};
  }

  static Json usage_object(const Usage& u) {
    // Here the prompt is the sum of three, not one number that holds the others.
    return {{"input_tokens", u.prompt - u.cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", u.cached},
            {"output_tokens", u.completion}};
  }

  static Json stop_reason(const Choice& one) {
    if (one.end.stop) return "stop_sequence";
    switch (one.output.finish_reason) {
      case FinishReason::tool_calls:
        return "tool_use";
      case FinishReason::length:
        return "max_tokens";
      case FinishReason::stop:
        break;
    }
    return "end_turn";
  }

  static Json stop_sequence(const Choice& one) { return one.end.stop ? Json(*one.end.stop) : Json(nullptr); }

  /// False if the stream had begun already.
  bool begin() {
    if (std::exchange(has_begun_, true)) return false;
    const Usage known{prompt_tokens(), cached(), 0, 0};
    send_event("message_start",
               {{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr, usage_object(known))}});
    send_event("ping", {{"type", "ping"}});
    return true;
  }

  void open(Block kind, Json block) {
    if (open_ == kind) return;
    close();
    open_ = kind;
    has_answer_ = has_answer_ || kind != Block::thinking;
    send_event("content_block_start",
               {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }

  void delta(Json delta) {
    send_event("content_block_delta",
               {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  void close() {
    if (open_ == Block::none) return;
    if (open_ == Block::thinking) delta({{"type", "signature_delta"}, {"signature", signature_}});
    open_ = Block::none;
    send_event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }

  std::string id_, signature_;
  bool has_begun_ = false, has_answer_ = false;
  Block open_ = Block::none;
  int index_ = 0;
};

void answer_message(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const Json body = read_body(exchange->request());
  Ask ask = read_anthropic_ask(body, api->sources, *api->replay);
  ask.request_id = exchange->request().id;
  const Plan plan = plan_ask(*api, ask, Family::anthropic);
  std::make_shared<MessageReply>(api, exchange, ask)->start(plan);
}

/// Without a word to the scheduler: clients ask for dozens of counts at once.
void answer_count(const ApiShared& api, const std::shared_ptr<Exchange>& exchange) {
  const Json body = read_body(exchange->request());
  const Ask ask = read_anthropic_ask(body, api->sources, *api->replay);
  respond(*exchange, {{"input_tokens", count_ask(*api, ask).size()}});
}

}  // namespace

void add_anthropic_api(Router& router, const ApiShared& api) {
  const auto add = [&](const char* path, void (*answer)(const ApiShared&, const std::shared_ptr<Exchange>&)) {
    router.add({.method = "POST", .path = path, .handler = [api, answer](std::shared_ptr<Exchange> exchange) {
                  answer(api, exchange);
                }});
  };
  add("/messages", answer_message);
  add("/messages/count_tokens", answer_count);
}

}  // namespace lockstep
