// POST /completions: a text goes on, with no chat around it; and the scoring of texts.
#include <utility>
#include <vector>

#include "server/completion.h"
#include "server/http_error.h"
#include "server/logprobs.h"
#include "server/random_id.h"

namespace lockstep {
namespace {

constexpr std::int64_t kDefaultTokens = 16;  // OpenAI's
constexpr std::int64_t kMostAnswers = 128;   // prompts times answers each
constexpr int kMostAlternatives = 20;

std::vector<CompletionPrompt> prompts_of(const Fields& body, const ApiState& api) {
  const Json* value = body.find("prompt");
  if (value == nullptr) body.refuse("prompt", "a string, an array of token ids, or an array of these");
  std::vector<CompletionPrompt> out;
  if (value->is_array() && !is_token_list(*value)) {
    if (value->empty()) body.refuse("prompt", "at least one prompt");
    for (std::size_t i = 0; i < value->size(); ++i)
      out.push_back(prompt_of((*value)[i], indexed_name("prompt", i), api.tokenizer(), api.context));
  } else {
    out.push_back(prompt_of(*value, "prompt", api.tokenizer(), api.context));
  }
  const std::string suffix = body.text("suffix");
  if (!suffix.empty() && body.flag("echo", false)) body.refuse("suffix", "it to be absent beside echo");
  if (!suffix.empty())
    for (CompletionPrompt& prompt : out) fill_in_the_middle(prompt, suffix, {}, api.tokenizer(), api.context);
  return out;
}

CompletionAsk read_ask(const Json& json, const ApiState& api) {
  const Fields body(json);
  CompletionAsk ask;
  ask.model = read_model(body, api.settings());
  refuse_unsupported_fields(body);
  ask.is_stream = body.flag("stream", false);
  if (const auto options = body.object("stream_options")) ask.includes_usage = options->flag("include_usage", false);
  ask.echoes = body.flag("echo", false);
  ask.generation = read_generation(body, api.settings(), static_cast<int>(api.tokenizer().size()), ask.echoes);
  const bool says_limit = body.has("max_tokens") || body.has("max_completion_tokens") ||
                          body.has("max_output_tokens") || body.has("n_predict");
  if (!says_limit && api.settings().max_tokens < 0) ask.generation.limit = kDefaultTokens;
  const std::int64_t count = body.integer("n").value_or(1);
  if (count < 1 || count > kMostAnswers) body.refuse("n", "1 to 128 answers");
  if (body.integer("best_of").value_or(count) != count) body.refuse("best_of", "it to be absent, or the same as n");
  ask.count = static_cast<int>(count);
  if (const Json* logprobs = body.find("logprobs"); logprobs != nullptr && logprobs->is_boolean()) {
    if (logprobs->get<bool>()) ask.logprobs = 0;
  } else if (const auto alternatives = body.integer("logprobs")) {
    if (*alternatives < 0 || *alternatives > kMostAlternatives) body.refuse("logprobs", "0 to 20");
    ask.logprobs = static_cast<int>(*alternatives);
  }
  ask.prompts = prompts_of(body, api);
  if (static_cast<std::int64_t>(ask.prompts.size()) * count > kMostAnswers)
    throw ApiError(400,
                   "prompt: " + std::to_string(ask.prompts.size()) + " prompts with n of " + std::to_string(count) +
                       ", expected at most 128 answers",
                   "prompt");
  check_prompts(ask, api);
  return ask;
}

class OpenAiCompletionReply : public CompletionReply {
 public:
  OpenAiCompletionReply(ApiShared api, std::shared_ptr<Exchange> exchange, CompletionAsk ask)
      : CompletionReply(std::move(api), std::move(exchange), std::move(ask)), id_(random_id("cmpl-")) {}

 protected:
  void stream_piece(int i, const AnswerPiece& piece) override {
    send_data(chunk(i, piece.event.text, nullptr, piece.tokens));
  }
  void stream_choice_end(int i) override {
    Json last = chunk(i, "", name_of(choice(i).output.finish_reason), {});
    if (++ended_ == choices()) {
      last["timings"] = timings();
      last["lockstep"] = lockstep_object();
    }
    send_data(last);
  }
  void stream_end() override {
    if (ask().includes_usage) {
      Json last = head();
      last["choices"] = Json::array();
      last["usage"] = usage_object();
      send_data(last);
    }
    send("data: [DONE]\n\n");
  }
  void stream_silence(double since_event) override {
    if (since_event < kChunkSeconds) return send_comment();
    send_data(chunk(0, "", nullptr, {}));
  }
  void stream_error(const ApiError& error) override { send_data({{"error", error_object(Family::openai, error)}}); }

  Json whole() override {
    Json out = head();
    out["choices"] = Json::array();
    for (int i = 0; i < choices(); ++i) {
      const Choice& one = choice(i);
      out["choices"].push_back(choice_object(i, one.output.content, name_of(one.output.finish_reason), one.tokens));
    }
    out["usage"] = usage_object();
    out["timings"] = timings();
    out["lockstep"] = lockstep_object();
    return out;
  }

 private:
  Json head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created()},
            {"model", model()},
            {"system_fingerprint", api().sources.fingerprint}};
  }
  Json choice_object(int i, const std::string& text, Json finish, const std::vector<AnswerToken>& tokens) const {
    Json logprobs = nullptr;
    if (ask().logprobs >= 0) logprobs = text_logprobs(tokens, api().tokenizer(), ask().logprobs);
    return {{"text", text}, {"index", i}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}};
  }
  Json chunk(int i, const std::string& text, Json finish, const std::vector<AnswerToken>& tokens) const {
    Json out = head();
    out["choices"] = Json::array({choice_object(i, text, std::move(finish), tokens)});
    return out;
  }
  Json usage_object() const {
    const Usage u = usage();
    return {{"prompt_tokens", u.prompt},
            {"completion_tokens", u.completion},
            {"total_tokens", u.prompt + u.completion},
            {"prompt_tokens_details", {{"cached_tokens", u.cached}}}};
  }

  std::string id_;
  int ended_ = 0;
};

}  // namespace

void add_completions_api(Router& router, const ApiShared& api) {
  router.add({.method = "POST", .path = "/completions", .handler = [api](std::shared_ptr<Exchange> exchange) {
                const Json body = read_body(exchange->request());
                CompletionAsk ask = read_ask(body, *api);
                std::make_shared<OpenAiCompletionReply>(api, exchange, std::move(ask))->run();
              }});
}

}  // namespace lockstep
