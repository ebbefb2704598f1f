// POST /completion and /infill: llama-server's own shapes, which editors' plugins speak.
#include <utility>
#include <vector>

#include "server/completion.h"
#include "server/http_error.h"

namespace lockstep {
namespace {

/// What both have in common. `/completions` gives log probabilities and forms belong to chats.
CompletionAsk read_common(const Fields& body, const ApiState& api) {
  CompletionAsk ask;
  ask.model = read_model(body, api.settings());
  refuse_unsupported_fields(body);
  if (body.has("json_schema")) body.refuse("json_schema", "it to be absent: /v1/chat/completions keeps to forms");
  if (body.integer("n_probs").value_or(0) != 0) body.refuse("n_probs", "0: /v1/completions gives logprobs");
  ask.is_stream = body.flag("stream", false);
  ask.generation = read_generation(body, api.settings(), static_cast<int>(api.tokenizer().size()));
  if (body.flag("return_tokens", false)) ask.logprobs = 0;  // so that pieces come with their tokens
  return ask;
}

/// A string, token ids, or both one after another: ["text", 12, 34, "text"].
CompletionPrompt mixed_prompt(const Fields& body, const ApiState& api) {
  const Json* value = body.find("prompt");
  if (value == nullptr) body.refuse("prompt", "a string, token ids, or an array of both");
  if (!value->is_array() || is_token_list(*value)) return prompt_of(*value, "prompt", api.tokenizer(), api.context);
  Json ids = Json::array();
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& part = (*value)[i];
    if (part.is_string()) {
      const CompletionPrompt read = prompt_of(part, indexed_name("prompt", i), api.tokenizer(), api.context);
      if (read.at_least > 0) return read;
      for (const Token token : read.listed) ids.push_back(token);
    } else if (part.is_number_integer()) {
      ids.push_back(part);
    } else {
      refuse_field(indexed_name("prompt", i), part, "a string or the id of a token: one prompt a request");
    }
  }
  if (ids.empty()) throw ApiError(400, "prompt: empty, expected text or tokens", "prompt");
  return prompt_of(ids, "prompt", api.tokenizer(), api.context);
}

CompletionAsk read_completion(const Json& json, const ApiState& api) {
  const Fields body(json);
  CompletionAsk ask = read_common(body, api);
  ask.prompts = {mixed_prompt(body, api)};
  check_prompts(ask, api);
  return ask;
}

/// The files of input_extra stand before the one with the hole, each under its name.
CompletionAsk read_infill(const Json& json, const ApiState& api) {
  const Fields body(json);
  CompletionAsk ask = read_common(body, api);
  ask.field = "input_prefix";
  CompletionPrompt prompt;
  if (const Json* extra = body.array("input_extra"))
    for (std::size_t i = 0; i < extra->size(); ++i) {
      const Fields file((*extra)[i], indexed_name("input_extra", i));
      if (const std::string name = file.text("filename"); !name.empty()) prompt.text += name + "\n";
      prompt.text += file.text("text") + "\n\n";
    }
  for (const char* key : {"input_prefix", "input_suffix"})
    if (!body.has(key)) body.refuse(key, "a string, which may be empty");
  prompt.text += body.text("input_prefix");
  fill_in_the_middle(prompt, body.text("input_suffix"), body.text("prompt"), api.tokenizer(), api.context);
  ask.prompts = {std::move(prompt)};
  check_prompts(ask, api);
  return ask;
}

class LlamaReply : public CompletionReply {
 public:
  using CompletionReply::CompletionReply;

 protected:
  void stream_piece(int, const AnswerPiece& piece) override {
    send_data({{"index", 0},
               {"content", piece.event.text},
               {"tokens", ids_of(piece.tokens)},
               {"stop", false},
               {"id_slot", -1},
               {"tokens_predicted", choice(0).sampled},
               {"tokens_evaluated", prompt_tokens()}});
  }
  void stream_end() override { send_data(last("", {})); }
  void stream_silence(double) override { send_comment(); }
  void stream_error(const ApiError& error) override { send_data({{"error", error_object(Family::openai, error)}}); }
  Json whole() override { return last(choice(0).output.content, choice(0).tokens); }

 private:
  static Json ids_of(const std::vector<AnswerToken>& tokens) {
    Json out = Json::array();
    for (const AnswerToken& token : tokens) out.push_back(token.sampled.token);
    return out;
  }

  Json last(const std::string& content, const std::vector<AnswerToken>& tokens) {
    const Choice& one = choice(0);
    const Usage u = usage();
    const bool is_cut = one.output.finish_reason == FinishReason::length;
    Json settings = {{"seed", seed_}};
    settings.update(sampling_told(ask().generation.sampling, ask().generation.penalty_last_n));
    settings.update(
        {{"stop", ask().generation.stops}, {"n_predict", ask().generation.limit}, {"stream", ask().is_stream}});
    return {{"index", 0},
            {"content", content},
            {"tokens", ids_of(tokens)},
            {"id_slot", -1},
            {"stop", true},
            {"model", model()},
            {"tokens_predicted", u.completion},
            {"tokens_evaluated", u.prompt},
            {"tokens_cached", u.prompt + u.completion},
            {"generation_settings", std::move(settings)},
            {"prompt", ask().prompts[0].text},
            {"has_new_line", one.output.content.find('\n') != std::string::npos},
            {"truncated", false},  // a prompt that does not fit is an error
            {"stop_type", one.end.stop ? "word"
                          : is_cut     ? "limit"
                                       : "eos"},
            {"stopping_word", one.end.stop.value_or("")},
            {"timings", timings()},
            {"lockstep", lockstep_object()}};
  }
};

}  // namespace

void add_llama_api(Router& router, const ApiShared& api) {
  const auto add = [&](const char* path, CompletionAsk (*read)(const Json&, const ApiState&)) {
    router.add({.method = "POST", .path = path, .handler = [api, read](std::shared_ptr<Exchange> exchange) {
                  const Json body = read_body(exchange->request());
                  std::make_shared<LlamaReply>(api, exchange, read(body, *api))->run();
                }});
  };
  add("/completion", read_completion);
  add("/infill", read_infill);
}

}  // namespace lockstep
