// How an answer is sampled and where it ends, as the fields of a request say: the same names in every protocol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "server/fields.h"
#include "server/settings.h"

namespace lockstep {

struct GenerationFields {
  SamplerParams sampling;   // with the seed that will be used, given or not
  std::int64_t limit = -1;  // new tokens; -1: to the end of the context
  std::vector<std::string> stops;
  std::size_t penalty_last_n = 0;
  bool penalise_prompt = false;
  bool use_cache = true;
  int priority = 0;  // greater first
};

/// Reads temperature, top_p, top_k, min_p, seed, penalties, logit_bias, stop, stop_sequences, the limit by any of its
/// names, cache_prompt and service_tier. What the request leaves open comes from the settings. `allows_zero`:
/// max_tokens may be 0. Throws ApiError 400 naming the field.
GenerationFields read_generation(const Fields& body, const ServerSettings& settings, int vocabulary,
                                 bool allows_zero = false);

/// The shortest decimal that reads back as the same float: 1.7, which is 1.7000000476837158 as a double.
Json short_number(float value);
/// The seed as it was given. Of the answers after the first, whose seeds count on, -1 is told by its 64 bits: as a
/// request's field it would be random.
Json seed_told(const SamplerParams& sampling);
/// What a request or the server's settings say of sampling, but for the seed and the biases; by the fields' names.
Json sampling_told(const SamplerParams& sampling, std::size_t penalty_last_n);

}  // namespace lockstep
