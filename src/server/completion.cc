#include "server/completion.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "server/http_error.h"
#include "server/plan.h"
#include "text/utf8.h"

namespace lockstep {

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_number_integer(); });
}

CompletionPrompt prompt_of(const Json& value, const std::string& name, const Tokenizer& tokenizer,
                           std::int64_t context) {
  CompletionPrompt out;
  if (value.is_string()) {
    out.text = value.get<std::string>();
    const Span span{out.text, Trust::trusted};
    Tokenizer::Bounded encoded = tokenizer.encode(std::span<const Span>(&span, 1), counted_tokens(context));
    if (!encoded.is_whole) {
      out.at_least = encoded.at_least;
      return out;
    }
    out.listed = std::move(encoded.tokens);
  } else if (is_token_list(value)) {
    for (const Json& id : value) {
      if (id < 0 || id >= tokenizer.size())
        refuse_field(name, id, "ids from 0 to " + std::to_string(tokenizer.size() - 1));
      out.listed.push_back(id.get<Token>());
    }
    out.text = to_valid_utf8(tokenizer.decode(out.listed));
  } else {
    refuse_field(name, value, "a string, an array of token ids, or an array of these");
  }
  out.tokens = out.listed;
  const std::optional<Token> bos = tokenizer.bos();
  if (bos && (out.tokens.empty() || out.tokens.front() != *bos)) out.tokens.insert(out.tokens.begin(), *bos);
  return out;
}

void fill_in_the_middle(CompletionPrompt& prompt, const std::string& suffix, const std::string& begun,
                        const Tokenizer& tokenizer, std::int64_t context) {
  Prompt spans;
  const auto control = [&](std::string_view text) {
    spans.append(text, Trust::trusted);
    spans.controls.emplace_back(text);
  };
  control(kBosText);
  control("<｜fim▁begin｜>");
  spans.append(prompt.text, Trust::untrusted);
  control("<｜fim▁hole｜>");
  spans.append(suffix, Trust::untrusted);
  control("<｜fim▁end｜>");
  spans.append(begun, Trust::untrusted);
  Tokenizer::Bounded encoded = tokenizer.encode(spans, counted_tokens(context));
  prompt.tokens = std::move(encoded.tokens);
  if (!encoded.is_whole) prompt.at_least = encoded.at_least;
}

void check_prompts(const CompletionAsk& ask, const ApiState& api) {
  for (const CompletionPrompt& prompt : ask.prompts) {
    if (prompt.at_least > 0)
      throw overflow_error(Family::openai, static_cast<std::int64_t>(prompt.at_least), api.context, ask.field, false);
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    const bool needs_room = ask.generation.limit != 0;
    if (size > api.context || (needs_room && size == api.context))
      throw overflow_error(Family::openai, size, api.context, ask.field);
    if (prompt.tokens.empty()) throw ApiError(400, "prompt: empty, expected text or tokens", "prompt");
  }
}

void CompletionReply::run() {
  answers_per_prompt_ = ask_.count;
  seed_ = seed_told(ask_.generation.sampling);
  std::vector<Job> jobs;
  for (const CompletionPrompt& prompt : ask_.prompts) {
    prompt_tokens_ += static_cast<std::int64_t>(prompt.tokens.size());
    for (int k = 0; k < ask_.count; ++k) {
      Job job = job_of(api(), ask_.generation);
      job.sampling.seed += static_cast<std::uint64_t>(k);
      job.prompt = prompt.tokens;
      job.logprobs = ask_.logprobs;
      TextAnswer::Settings settings;
      settings.stops = ask_.generation.stops;
      settings.has_logprobs = ask_.logprobs >= 0;
      if (ask_.echoes) settings.echo = prompt.text;
      if (ask_.echoes && settings.has_logprobs) {
        settings.echo_tokens = prompt.listed;
        job.score_prompt = true;
      }
      job.guide = std::make_shared<TextAnswer>(std::move(settings), static_cast<int>(jobs.size()), api().tokenizer(),
                                               shared_from_this());
      jobs.push_back(std::move(job));
    }
  }
  submit(std::move(jobs));
}

}  // namespace lockstep
