// A text that goes on, with no chat around it: what the endpoints for that have in common (OpenAI's in
// api_completions.cc, llama-server's in api_llama.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/ask.h"
#include "server/reply.h"

namespace lockstep {

struct CompletionPrompt {
  std::vector<Token> tokens;  // what the model reads
  std::vector<Token> listed;  // what the client sent, as tokens: without a BOS that was put before it
  std::string text;           // as the client sent it
  std::size_t at_least = 0;   // tokens; above 0: there are more than were counted, and `tokens` is empty
};

struct CompletionAsk {
  std::string model;
  bool is_stream = false, includes_usage = false, echoes = false;
  int count = 1;
  int logprobs = -1;
  GenerationFields generation;
  std::vector<CompletionPrompt> prompts;
  std::string field = "prompt";  // where they stand in the request
};

bool is_token_list(const Json& value);
/// A string or an array of token ids. Throws ApiError 400 naming `name`. Of a text that has more tokens than
/// counted_tokens(context) only their least number is told.
CompletionPrompt prompt_of(const Json& value, const std::string& name, const Tokenizer& tokenizer,
                           std::int64_t context);
/// Text before and after a hole, as the model was shown such texts; `begun` is what the hole already holds.
void fill_in_the_middle(CompletionPrompt& prompt, const std::string& suffix, const std::string& begun,
                        const Tokenizer& tokenizer, std::int64_t context);
/// Throws ApiError 400 for prompts that are empty or leave no room for an answer.
void check_prompts(const CompletionAsk& ask, const ApiState& api);

class CompletionReply : public Reply {
 public:
  CompletionReply(ApiShared api, std::shared_ptr<Exchange> exchange, CompletionAsk ask)
      : Reply(std::move(api), std::move(exchange), ask.model, ask.is_stream), ask_(std::move(ask)) {}

  void run();

 protected:
  const CompletionAsk& ask() const { return ask_; }

 private:
  CompletionAsk ask_;
};

}  // namespace lockstep
