// A job that runs, as the scheduler's own parts see it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/scheduler.h"

namespace lockstep {

/// Its sequence holds `tokens[0, done)`; tokens from the prompt's end on are the answer's.
struct Scheduler::Active {
  Waiting from;
  SequenceCache cache;
  std::shared_ptr<std::vector<Token>> tokens;
  std::size_t done = 0;
  std::size_t prompt = 0;
  std::int64_t context = 0;
  std::set<std::size_t> forks;  // where other prompts leave this one: a state is kept there
  Sampler sampler;
  JobStats stats;
  double started = 0;        // prefill, then decode
  double prefill_began = 0;  // of this job's own run
  bool has_ended = false;
  std::vector<float> logits;  // of the prompt's last token, if they came from the cache
  Token stop_token = 0;
  Work counted = {};  // what of it is in the status

  Job& job() { return from.job; }
  bool is_prefilling() const { return done < prompt; }
  std::span<const Token> pending() const { return std::span<const Token>(*tokens).subspan(done); }
};

}  // namespace lockstep
