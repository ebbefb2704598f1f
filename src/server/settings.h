// Everything that can be set about a server, as it is in effect. Filled by `lockstep serve`, shown by /props, read by
// the handlers; const once the server runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/scheduler.h"

namespace lockstep {

struct ServerSettings {
  std::string model_path;
  std::string model_name;            // what answers call the model when the request names none
  std::vector<std::string> aliases;  // further names that /models lists
  bool is_strict_model = false;      // a request for another name is refused
  std::string back_end;              // "cpu (avx512, 8 threads)"
  std::string mode;                  // "official" or "plain"
  std::int64_t created = 0;          // seconds since 1970, when the server began
  std::int64_t context = 0;          // tokens a request may have, prompt and answer

  std::string profile = "auto";       // preview, 0731, or auto: what the file says
  std::string default_system;         // system text for requests that have none; empty: none
  std::string thinking = "auto";      // for requests that do not say: auto (the profile's), on, off
  std::string effort;                 // for requests that do not say; empty: the profile's
  std::int64_t thinking_budget = -1;  // tokens of thought at most, for requests that do not say; -1: no bound
  std::int64_t max_tokens = -1;       // of an answer, for requests that do not say; -1: to the end of the context
  float temperature = 1, top_p = 1, min_p = 0;  // for requests that do not say
  int top_k = 0;

  double keep_alive_seconds = 8;  // of silence in a stream before something is sent
  std::filesystem::path trace;    // a folder for request traces; empty: none
  bool has_metrics = true;
  bool has_slots = true;
  bool has_keys = false;

  SchedulerOptions scheduler;
};

}  // namespace lockstep
