#include "server/logprobs.h"

#include <cmath>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace lockstep {
namespace {

/// JSON has no infinity; this is what OpenAI says for tokens that cannot come.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

Json one(std::string_view bytes, float logprob) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"token", to_valid_utf8(bytes)}, {"logprob", finite(logprob)}, {"bytes", std::move(list)}};
}

}  // namespace

Json chat_logprobs(const std::vector<AnswerToken>& tokens, const Tokenizer& tokenizer) {
  Json out = Json::array();
  for (const AnswerToken& token : tokens) {
    const Sampled& sampled = token.sampled;
    Json entry = one(token.bytes, sampled.logprob.value_or(0));
    entry["top_logprobs"] = Json::array();
    for (const ScoredToken& other : sampled.alternatives)
      entry["top_logprobs"].push_back(one(tokenizer.bytes_of(other.token), other.logprob));
    out.push_back(std::move(entry));
  }
  return out;
}

Json text_logprobs(const std::vector<AnswerToken>& tokens, const Tokenizer& tokenizer, int alternatives) {
  const auto text = [&](Token token) { return to_valid_utf8(tokenizer.bytes_of(token)); };
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const AnswerToken& token : tokens) {
    const Sampled& sampled = token.sampled;
    out["tokens"].push_back(to_valid_utf8(token.bytes));
    out["token_logprobs"].push_back(sampled.logprob ? Json(finite(*sampled.logprob)) : Json(nullptr));
    Json top = nullptr;
    if (sampled.logprob && alternatives > 0) {
      top = Json::object();
      for (const ScoredToken& other : sampled.alternatives) {
        Json& place = top[text(other.token)];
        // Several tokens may be shown as one U+FFFD: the likeliest of them counts.
        if (place.is_null()) place = finite(other.logprob);
      }
    }
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(token.offset);
  }
  return out;
}

}  // namespace lockstep
