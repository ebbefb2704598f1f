#include "engine/sampler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "numerics/primitives.h"

namespace lockstep {
namespace {

void check_range(const char* name, float value, float least, float most, bool least_is_in = true) {
  if (value <= most && (least_is_in ? value >= least : value > least)) return;  // false for NaN
  const auto text = [](float x) {
    std::string digits = std::to_string(x);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits;
  };
  throw Error(Error::Kind::bad_argument, std::string(name) + ": " + text(value) + ", expected " +
                                             (least_is_in ? "" : "more than ") + text(least) + " to " + text(most));
}

}  // namespace

void check_sampler_params(const SamplerParams& params, int vocabulary) {
  check_range("temperature", params.temperature, 0, 100);
  if (params.top_k < 0)
    throw Error(Error::Kind::bad_argument,
                "top_k: " + std::to_string(params.top_k) + ", expected 0 (all tokens) or more");
  check_range("top_p", params.top_p, 0, 1);
  check_range("min_p", params.min_p, 0, 1);
  check_range("repetition_penalty", params.repetition_penalty, 0, 100, false);
  check_range("frequency_penalty", params.frequency_penalty, -2, 2);
  check_range("presence_penalty", params.presence_penalty, -2, 2);
  for (const LogitBias& entry : params.logit_bias) {
    if (entry.token < 0 || entry.token >= vocabulary)
      throw Error(Error::Kind::bad_argument, "logit_bias: token " + std::to_string(entry.token) + ", expected 0 to " +
                                                 std::to_string(vocabulary - 1));
    check_range("logit_bias", entry.bias, -100, 100);
  }
}

bool is_plain_draw(const SamplerParams& params) {
  return params.repetition_penalty == 1 && params.frequency_penalty == 0 && params.presence_penalty == 0 &&
         params.logit_bias.empty();
}

DrawChoice draw_choice(const SamplerParams& params, Position position) {
  DrawChoice choice;
  choice.seed = params.seed;
  choice.position = position;
  choice.top_k = params.top_k;
  choice.temperature = params.temperature;
  choice.top_p = params.top_p;
  choice.min_p = params.min_p;
  return choice;
}

Sampler::Sampler(SamplerParams params, int vocabulary) : params_(std::move(params)), vocabulary_(vocabulary) {
  check_sampler_params(params_, vocabulary_);
  const auto n = static_cast<std::size_t>(vocabulary_);
  values_.resize(n);
  counts_.resize(n, 0);
}

Token Sampler::sample(std::span<const float> logits, std::span<const Token> history, Position position) {
  LOCKSTEP_CHECK(logits.size() == values_.size() && position >= 0);
  std::copy(logits.begin(), logits.end(), values_.begin());
  penalise(history);
  for (const LogitBias& entry : params_.logit_bias) {
    float& value = values_[static_cast<std::size_t>(entry.token)];
    value = value + entry.bias;
  }
  const Token token = draw_.draw(values_, draw_choice(params_, position));
  if (token >= 0) return token;
  for (std::size_t i = 0; i < values_.size(); ++i)  // penalties and bias make no number of what is none
    if (!(values_[i] < f32_of(kInfinity)))
      throw Error(Error::Kind::bad_file, "logits: token " + std::to_string(i) + " is " +
                                             (values_[i] != values_[i] ? "NaN" : "infinite") + " at position " +
                                             std::to_string(position) +
                                             ", expected finite numbers; the model's weights may be damaged");
  throw Error(Error::Kind::bad_file, "logits: every token is excluded at position " + std::to_string(position) +
                                         ", expected at least one finite number");
}

void Sampler::penalise(std::span<const Token> history) {
  const bool repeats = params_.repetition_penalty != 1;
  if (!repeats && params_.frequency_penalty == 0 && params_.presence_penalty == 0) return;
  for (const Token token : history) {
    LOCKSTEP_CHECK(token >= 0 && token < vocabulary_);
    ++counts_[static_cast<std::size_t>(token)];
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const int count = std::exchange(counts_[i], 0);
    if (count == 0) continue;
    float value = values_[i];
    if (repeats) value = value > 0 ? value / params_.repetition_penalty : value * params_.repetition_penalty;
    const float frequency = static_cast<float>(count) * params_.frequency_penalty;
    values_[i] = (value - frequency) - params_.presence_penalty;
  }
}

}  // namespace lockstep
