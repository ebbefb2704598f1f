#include "server/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "server/http_error.h"
#include "server/random_id.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostStops = 16;

float number_or(const Fields& body, const char* key, float otherwise, float least, float most, const char* expected) {
  const std::optional<double> value = body.number(key);
  if (!value) return otherwise;
  if (!(*value >= static_cast<double>(least) && *value <= static_cast<double>(most))) body.refuse(key, expected);
  return static_cast<float>(*value);
}

void read_seed(const Fields& body, SamplerParams& sampling) {
  const Json* seed = body.find("seed");
  if (seed != nullptr && seed->is_number_unsigned()) {
    sampling.seed = seed->get<std::uint64_t>();
    return;
  }
  const std::int64_t value = body.integer("seed").value_or(-1);
  sampling.seed = value == -1 ? random_seed() : static_cast<std::uint64_t>(value);
  sampling.is_seed_signed = value < -1;
}

Token biased_token(const std::string& name, const Json& id, int vocabulary) {
  std::int64_t token = -1;
  if (id.is_number_integer()) {
    token = id.get<std::int64_t>();
  } else if (id.is_string()) {
    const std::string& text = id.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc() || end != text.data() + text.size()) token = -1;
  }
  if (token < 0 || token >= vocabulary)
    refuse_field(name, id, "the id of a token, 0 to " + std::to_string(vocabulary - 1));
  return static_cast<Token>(token);
}

float bias_of(const std::string& name, const Json& value) {
  if (value.is_boolean() && !value.get<bool>()) return -100;  // llama-server's word for never
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 100)) refuse_field(name, value, "-100 to 100");
  return value.get<float>();
}

std::vector<LogitBias> read_bias(const Fields& body, int vocabulary) {
  std::vector<LogitBias> out;
  const Json* bias = body.find("logit_bias");
  if (bias == nullptr) return out;
  const std::string name = body.name_of("logit_bias");
  if (bias->is_object()) {
    for (const auto& [key, value] : bias->items())
      out.push_back({biased_token(name, Json(key), vocabulary), bias_of(name, value)});
    return out;
  }
  if (!bias->is_array()) body.refuse("logit_bias", "an object of token ids and biases");
  for (const Json& pair : *bias) {
    if (!pair.is_array() || pair.size() != 2) refuse_field(name, pair, "pairs of a token id and a bias");
    out.push_back({biased_token(name, pair[0], vocabulary), bias_of(name, pair[1])});
  }
  return out;
}

void read_stops(const Fields& body, const char* key, std::vector<std::string>& stops) {
  const Json* value = body.find(key);
  if (value == nullptr) return;
  const auto add = [&](const Json& stop) {
    if (!stop.get_ref<const std::string&>().empty()) stops.push_back(stop.get<std::string>());
  };
  if (value->is_array()) {
    for (std::size_t i = 0; i < value->size(); ++i) {
      if (!(*value)[i].is_string()) refuse_field(indexed_name(body.name_of(key), i), (*value)[i], "a string");
      add((*value)[i]);
    }
  } else {
    if (!value->is_string()) body.refuse(key, "a string or an array of strings");
    add(*value);
  }
  if (stops.size() > kMostStops)
    throw ApiError(400, body.name_of(key) + ": " + std::to_string(stops.size()) + " strings, expected at most 16",
                   body.name_of(key));
}

/// The last one named counts.
std::int64_t limit_of(const Fields& body, std::int64_t otherwise, bool allows_zero) {
  std::int64_t limit = otherwise;
  for (const auto& [key, value] : body.json().items()) {
    const bool is_limit =
        key == "max_tokens" || key == "max_completion_tokens" || key == "max_output_tokens" || key == "n_predict";
    if (!is_limit || value.is_null()) continue;
    limit = body.integer(key.c_str()).value_or(-1);
    const bool may_be_zero = allows_zero || key == "n_predict";  // which then only fills the cache
    if (limit < -1 || (limit == 0 && !may_be_zero)) body.refuse(key.c_str(), "at least 1 token, or -1 for no limit");
  }
  return limit;
}

}  // namespace

GenerationFields read_generation(const Fields& body, const ServerSettings& settings, int vocabulary, bool allows_zero) {
  GenerationFields out;
  SamplerParams& sampling = out.sampling;
  sampling.temperature = number_or(body, "temperature", settings.temperature, 0, 100, "0 to 100");
  sampling.top_p = number_or(body, "top_p", settings.top_p, 0, 1, "0 to 1");
  if (body.has("top_p") && sampling.top_p == 0) {  // nothing but the likeliest
    sampling.top_p = 1;
    sampling.temperature = 0;
  }
  sampling.min_p = number_or(body, "min_p", settings.min_p, 0, 1, "0 to 1");
  const std::int64_t top_k = body.integer("top_k").value_or(settings.top_k);
  if (top_k < -1) body.refuse("top_k", "a number of tokens, or 0 or -1 for all");
  sampling.top_k = static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(top_k, 0), vocabulary));
  sampling.presence_penalty = number_or(body, "presence_penalty", 0, -2, 2, "-2 to 2");
  sampling.frequency_penalty = number_or(body, "frequency_penalty", 0, -2, 2, "-2 to 2");
  for (const char* key : {"repeat_penalty", "repetition_penalty"}) {
    sampling.repetition_penalty = number_or(body, key, sampling.repetition_penalty, 0, 100, "more than 0, up to 100");
    if (sampling.repetition_penalty == 0) body.refuse(key, "more than 0, up to 100");
  }
  const std::int64_t last_n = body.integer("repeat_last_n").value_or(-1);
  if (last_n < -1) body.refuse("repeat_last_n", "a number of tokens, or -1 for all");
  if (last_n == 0) sampling.repetition_penalty = 1;
  if (last_n > 0 && sampling.repetition_penalty != 1) out.penalty_last_n = static_cast<std::size_t>(last_n);
  // Penalties for repeating count the prompt, as where they come from; those for presence and frequency do not.
  out.penalise_prompt =
      sampling.repetition_penalty != 1 && sampling.presence_penalty == 0 && sampling.frequency_penalty == 0;
  sampling.logit_bias = read_bias(body, vocabulary);
  read_seed(body, sampling);
  read_stops(body, "stop", out.stops);
  read_stops(body, "stop_sequences", out.stops);
  out.limit = limit_of(body, settings.max_tokens, allows_zero);
  out.use_cache = body.flag("cache_prompt", true);
  const std::string tier = body.text("service_tier");
  out.priority = (tier == "priority") - (tier == "flex");
  return out;
}

Json short_number(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double out = 0;
  std::from_chars(text, written.ptr, out);
  return out;
}

Json seed_told(const SamplerParams& sampling) {
  const auto value = static_cast<std::int64_t>(sampling.seed);
  return sampling.is_seed_signed && value < -1 ? Json(value) : Json(sampling.seed);
}

Json sampling_told(const SamplerParams& sampling, std::size_t penalty_last_n) {
  return {{"temperature", short_number(sampling.temperature)},
          {"top_k", sampling.top_k},
          {"top_p", short_number(sampling.top_p)},
          {"min_p", short_number(sampling.min_p)},
          {"repeat_penalty", short_number(sampling.repetition_penalty)},
          {"repeat_last_n", penalty_last_n > 0 ? Json(penalty_last_n) : Json(-1)},
          {"frequency_penalty", short_number(sampling.frequency_penalty)},
          {"presence_penalty", short_number(sampling.presence_penalty)}};
}

}  // namespace lockstep
