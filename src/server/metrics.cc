// The text of /metrics. Names beginning with llamacpp: are llama-server's, so that its dashboards work; ours begin with
// lockstep_.
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "ops/phase.h"
#include "server/operations.h"

namespace lockstep {
namespace {

class Text {
 public:
  /// The lines of one metric. `labels`: {end="done"}, or nothing.
  void counter(std::string_view name, std::string_view help, double value) { add(name, help, "counter", value); }
  void gauge(std::string_view name, std::string_view help, double value) { add(name, help, "gauge", value); }
  void more(std::string_view name, std::string_view labels, double value) {
    text_ += fmt::format("{}{} {:.17g}\n", name, labels, value);
  }
  void begin(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view name, std::string_view help, std::string_view type, double value) {
    begin(name, help, type);
    more(name, "", value);
  }
  std::string text_;
};

/// Bytes of memory that the process has in RAM; 0 if the system does not say. The mapped model counts as far as it has
/// been read.
double resident_bytes() {
  std::ifstream in("/proc/self/statm");
  double all = 0, resident = 0;
  if (!(in >> all >> resident)) return 0;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// Bytes that the program has asked for and not given back; 0 if the allocator does not say. It goes up with what is
/// kept, where resident_bytes() also goes up with the holes between.
double allocated_bytes() {
#if defined(__GLIBC__)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
#else
  return 0;
#endif
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

void add_llama(Text& text, const SchedulerStatus& s) {
  std::size_t busy = 0;
  for (const auto& slot : s.slots) busy += slot.is_busy;
  const auto read = static_cast<double>(s.prompt_tokens - s.reused_tokens);
  const auto predicted = static_cast<double>(s.generated_tokens);
  text.counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.", read);
  text.counter("llamacpp:prompt_seconds_total", "Prompt process time, the sum over requests.", s.prefill_seconds);
  text.counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed.", predicted);
  text.counter("llamacpp:tokens_predicted_seconds_total", "Predict process time, the sum over requests.",
               s.decode_seconds);
  text.counter("llamacpp:n_decode_total", "Total number of steps of the model.", static_cast<double>(s.steps));
  text.gauge("llamacpp:n_busy_slots_per_decode", "Average number of answers that a step of the model goes on with.",
             ratio(static_cast<double>(s.answers_in_steps), static_cast<double>(s.steps)));
  text.gauge("llamacpp:prompt_tokens_seconds", "Average prompt throughput of a request in tokens/s.",
             ratio(read, s.prefill_seconds));
  text.gauge("llamacpp:predicted_tokens_seconds", "Average generation throughput of a request in tokens/s.",
             ratio(predicted, s.decode_seconds));
  text.gauge("llamacpp:requests_processing", "Number of requests processing.", static_cast<double>(busy));
  text.gauge("llamacpp:requests_deferred", "Number of requests deferred.", static_cast<double>(s.queued));
}

void add_engine(Text& text, const SchedulerStatus& s, const OperationsSources& from) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  text.gauge("lockstep_slots", "Answers that can be made at once.", number(s.slots.size()));
  text.gauge("lockstep_queue_limit", "Requests that may wait.", number(from.settings.scheduler.queue));
  text.begin("lockstep_answers_total", "Answers by how they ended.", "counter");
  text.more("lockstep_answers_total", "{end=\"done\"}", number(s.jobs_done));
  text.more("lockstep_answers_total", "{end=\"failed\"}", number(s.jobs_failed));
  text.more("lockstep_answers_total", "{end=\"cancelled\"}", number(s.jobs_cancelled));
  text.counter("lockstep_prompt_tokens_total", "Tokens of prompts, those from the cache too.", number(s.prompt_tokens));
  text.counter("lockstep_reused_tokens_total", "Tokens of prompts that came from the cache.", number(s.reused_tokens));
  text.counter("lockstep_generated_tokens_total", "Tokens sampled.", number(s.generated_tokens));
  text.counter("lockstep_steps_total", "Steps of the model.", number(s.steps));
  text.counter("lockstep_rows_total", "Tokens that went through the model.", number(s.rows));
  text.counter("lockstep_step_seconds_total", "Time spent in steps.", s.step_seconds);
  text.counter("lockstep_steps_given_up_total", "Steps of a prompt that made way for a shorter one, and ran again.",
               number(s.given_up));
  if (std::any_of(s.phases.begin(), s.phases.end(), [](double seconds) { return seconds > 0; })) {
    text.begin("lockstep_phase_seconds_total", "Time spent in steps, by what was done.", "counter");
    for (int phase = 0; phase < kPhases; ++phase)
      text.more("lockstep_phase_seconds_total", fmt::format("{{phase=\"{}\"}}", name_of(static_cast<StepPhase>(phase))),
                s.phases[static_cast<std::size_t>(phase)]);
  }
  text.gauge("lockstep_seconds_in_step",
             "Since the running step, or the reading of a kept state, began; 0 if neither runs.", s.seconds_in_step);
  text.gauge("lockstep_cache_entries", "States in the prefix cache.", number(s.cache.entries));
  text.gauge("lockstep_cache_pieces", "Pieces of memory that they are in.", number(s.cache.pieces));
  text.gauge("lockstep_cache_bytes", "Memory of the prefix cache.", number(s.cache.bytes));
  text.gauge("lockstep_cache_limit_bytes", "Memory that the prefix cache may take.",
             number(from.settings.scheduler.cache_bytes));
  text.counter("lockstep_cache_lookups_total", "Prompts looked up.", number(s.cache.lookups));
  text.counter("lockstep_cache_hits_total", "Prompts of which something was there.", number(s.cache.hits));
  text.counter("lockstep_cache_evictions_total", "States that had to make room.", number(s.cache.evictions));
  text.gauge("lockstep_resident_bytes", "Memory of the process that is in RAM, the model's as far as it was read.",
             resident_bytes());
  text.gauge("lockstep_allocated_bytes", "Memory that is in use; the mapped model is not in it.", allocated_bytes());
  text.gauge("lockstep_model_bytes", "Size of the model's files.", number(from.model_bytes));
  text.gauge("lockstep_memory_limit_bytes", "Memory that the process may use.", number(from.memory_bytes));
}

/// Of the cache directory; nothing where there is none.
void add_disk(Text& text, const DiskCache::Stats& disk, const OperationsSources& from) {
  if (from.settings.scheduler.cache_dir.empty()) return;
  const auto number = [](auto value) { return static_cast<double>(value); };
  text.gauge("lockstep_disk_states", "States of this model and mode on disk.", number(disk.states));
  text.gauge("lockstep_disk_bytes", "Size of all states in the directory.", number(disk.bytes));
  text.gauge("lockstep_disk_limit_bytes", "Size that they may have.", number(from.settings.scheduler.cache_disk_bytes));
  text.counter("lockstep_disk_hits_total", "Prompts of which something was read from the disk.", number(disk.hits));
  text.counter("lockstep_disk_restored_tokens_total", "Tokens of prompts that were read from the disk.",
               number(disk.tokens_restored));
  text.counter("lockstep_disk_restored_bytes_total", "Bytes read for that.", number(disk.bytes_restored));
  text.counter("lockstep_disk_restore_seconds_total", "Time that took.", disk.restore_seconds);
  text.counter("lockstep_disk_written_bytes_total", "Bytes written.", number(disk.bytes_written));
  text.counter("lockstep_disk_wait_seconds_total", "Time that steps waited for states to be written.",
               disk.wait_seconds);
  text.counter("lockstep_disk_skipped_total", "States not written because too many waited.", number(disk.skipped));
  text.counter("lockstep_disk_failures_total", "States that could not be written.", number(disk.failed));
  text.counter("lockstep_disk_damaged_total", "Files that were damaged and removed.", number(disk.damaged));
  text.counter("lockstep_disk_evictions_total", "Files that had to make room.", number(disk.evicted));
  text.gauge("lockstep_disk_read_only", "1 if nothing can be written to the directory.", disk.is_read_only ? 1 : 0);
}

void add_kept(Text& text, const ApiKept& kept) {
  const auto number = [](std::size_t value) { return static_cast<double>(value); };
  text.gauge("lockstep_turns", "Turns kept as they were sampled, for the next request of their conversation.",
             number(kept.turns));
  text.gauge("lockstep_turn_bytes", "Size of their texts.", number(kept.turn_bytes));
  text.gauge("lockstep_turn_limit_bytes", "Size that it may have.", number(kept.turn_limit_bytes));
  text.gauge("lockstep_responses", "Responses kept to be continued.", number(kept.responses));
  text.gauge("lockstep_responses_limit", "Responses that are kept at most.", number(kept.responses_limit));
  text.gauge("lockstep_response_bytes", "Size of their texts.", number(kept.response_bytes));
  text.gauge("lockstep_response_limit_bytes", "Size that it may have.", number(kept.response_limit_bytes));
}

void add_http(Text& text, const HttpCounters& http) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  text.gauge("lockstep_http_connections", "Open connections.", number(http.connections));
  text.counter("lockstep_http_connections_total", "Connections accepted.", number(http.connections_total));
  text.gauge("lockstep_http_active", "Requests that are being answered.", number(http.active));
  text.counter("lockstep_http_requests_total", "Requests.", number(http.requests_total));
  text.begin("lockstep_http_answers_total", "Answers by status.", "counter");
  text.more("lockstep_http_answers_total", "{status=\"2xx\"}", number(http.answers_2xx));
  text.more("lockstep_http_answers_total", "{status=\"4xx\"}", number(http.answers_4xx));
  text.more("lockstep_http_answers_total", "{status=\"5xx\"}", number(http.answers_5xx));
  text.counter("lockstep_http_clients_left_total", "Clients that did not wait for the end of their answer.",
               number(http.clients_left));
  text.gauge("lockstep_http_body_bytes", "Bodies of requests, held now.", number(http.body_bytes));
  text.counter("lockstep_http_received_bytes_total", "Bytes of bodies.", number(http.bytes_in));
  text.counter("lockstep_http_sent_bytes_total", "Bytes of answers.", number(http.bytes_out));
}

}  // namespace

std::string metrics_text(const SchedulerStatus& status, const HttpCounters& http, const OperationsSources& sources) {
  Text text;
  add_llama(text, status);
  add_engine(text, status, sources);
  add_disk(text, status.disk, sources);
  if (sources.kept) add_kept(text, sources.kept());
  add_http(text, http);
  return text.take();
}

}  // namespace lockstep
