#include "server/operations.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "server/fields.h"
#include "server/generation_fields.h"
#include "server/page.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

using Shared = std::shared_ptr<Exchange>;

void answer(const Shared& exchange, const Json& body, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = json_text(body);
  exchange->respond(std::move(response));
}

/// The body as a JSON object. Throws ApiError 400.
Json object_of(const HttpRequest& request) {
  Json body = parse_json(request.body.empty() ? std::string_view("{}") : request.body, "body");
  if (!body.is_object()) throw ApiError(400, std::string("body: a JSON ") + body.type_name() + ", expected an object");
  return body;
}

// --- /health

Json unavailable(const std::string& message) {
  return {{"error", {{"code", 503}, {"message", message}, {"type", "unavailable_error"}}}};
}

void add_health(Router& router, const Handler& handler) {
  router.add(
      {.method = "GET", .path = "/health", .handler = handler, .is_open = true, .where = HttpRoute::Where::inline_});
  // What agents ask to see whether anybody is there.
  router.add({.method = "GET",
              .path = "/api/hello",
              .handler =
                  [](const Shared& exchange) {
                    answer(exchange, {{"message", "hello"}});
                  },
              .is_open = true,
              .where = HttpRoute::Where::inline_});
}

// --- /props and /slots

Json sampling_of(const ServerSettings& settings) {
  SamplerParams sampling;
  sampling.temperature = settings.temperature;
  sampling.top_k = settings.top_k;
  sampling.top_p = settings.top_p;
  sampling.min_p = settings.min_p;
  Json told = sampling_told(sampling, 0);
  told["n_predict"] = settings.max_tokens;
  told["max_tokens"] = settings.max_tokens;
  return told;
}

/// What the answer in a slot was asked for, without any of its text.
Json params_of(const SchedulerStatus::Slot& slot) {
  Json told = {{"seed", seed_told(slot.sampling)}};
  told.update(sampling_told(slot.sampling, slot.penalty_last_n));
  told.update({{"n_predict", slot.wanted},
               {"max_tokens", slot.wanted},
               {"n_probs", std::max(slot.logprobs, 0)},
               {"logit_bias_count", slot.sampling.logit_bias.size()},
               {"stop_count", slot.stops}});
  return told;
}

/// Everything in effect, by the names of the options that set it.
Json settings_of(const ServerSettings& s) {
  const SchedulerOptions& scheduler = s.scheduler;
  return {{"model", s.model_path},
          {"model_name", s.model_name},
          {"aliases", s.aliases},
          {"strict_model", s.is_strict_model},
          {"back_end", s.back_end},
          {"mode", s.mode},
          {"context", s.context},
          {"profile", s.profile},
          {"default_system", s.default_system},
          {"thinking", s.thinking},
          {"effort", s.effort},
          {"thinking_budget", s.thinking_budget},
          {"max_tokens", s.max_tokens},
          {"temperature", short_number(s.temperature)},
          {"top_p", short_number(s.top_p)},
          {"top_k", s.top_k},
          {"min_p", short_number(s.min_p)},
          {"keep_alive_seconds", s.keep_alive_seconds},
          {"slots", scheduler.slots},
          {"queue", scheduler.queue},
          {"cache_ram_bytes", scheduler.cache_bytes},
          {"cache_dir", scheduler.cache_dir.string()},
          {"cache_disk_bytes", scheduler.cache_disk_bytes},
          {"session_ram_bytes", scheduler.session_bytes},
          {"snapshot_every", scheduler.snapshot_every},
          {"prefill_share", scheduler.prefill_share},
          {"step_seconds", scheduler.step_seconds},
          {"api_keys", s.has_keys},
          {"metrics", s.has_metrics},
          {"slots_endpoint", s.has_slots},
          {"trace", !s.trace.empty()}};
}

std::string token_text(const Tokenizer& tokenizer, std::optional<Token> token) {
  return token ? to_valid_utf8(tokenizer.bytes_of(*token)) : std::string();
}

Json props_of(const OperationsSources& from) {
  const ServerSettings& settings = from.settings;
  Json all = settings_of(settings);
  all.update(from.start_settings);
  return {{"default_generation_settings", {{"n_ctx", settings.context}, {"params", sampling_of(settings)}}},
          {"total_slots", settings.scheduler.slots},
          {"model_alias", settings.model_name},
          {"model_path", settings.model_path},
          {"chat_template", "DeepSeek V4, rendered by the server; see POST /apply-template"},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"endpoint_slots", settings.has_slots},
          {"endpoint_props", false},  // they cannot be set
          {"endpoint_metrics", settings.has_metrics},
          {"bos_token", token_text(from.tokenizer, from.tokenizer.bos())},
          {"eos_token", token_text(from.tokenizer, from.tokenizer.eos())},
          {"build_info", std::string("lockstep ") + LOCKSTEP_VERSION},
          {"lockstep", std::move(all)}};
}

Json slots_of(const SchedulerStatus& status, const ServerSettings& settings) {
  Json slots = Json::array();
  for (std::size_t i = 0; i < status.slots.size(); ++i) {
    const SchedulerStatus::Slot& slot = status.slots[i];
    slots.push_back(
        {{"id", i},
         {"id_task", slot.is_busy ? Json(slot.job) : Json(-1)},
         {"n_ctx", settings.context},
         {"is_processing", slot.is_busy},
         {"params", slot.is_busy ? params_of(slot) : sampling_of(settings)},
         {"next_token",
          {{"has_next_token", slot.is_busy},
           {"n_decoded", slot.stats.generated},
           {"n_remain", slot.is_busy ? Json(slot.limit - slot.stats.prompt - slot.stats.generated) : Json(-1)}}},
         {"lockstep",
          {{"is_prefilling", slot.is_prefilling},
           {"prompt_tokens", slot.stats.prompt},
           {"cached_tokens", slot.stats.reused},
           {"restored_tokens", slot.stats.restored},
           {"tokens", slot.done},
           {"limit", slot.limit}}}});
  }
  return slots;
}

// --- /models

std::string rfc3339(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

Json model_of(const std::string& name, const OperationsSources& from, bool is_anthropic) {
  const ServerSettings& settings = from.settings;
  if (is_anthropic)
    return {{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", rfc3339(settings.created)}};
  return {{"id", name},
          {"object", "model"},
          {"created", settings.created},
          {"owned_by", "lockstep"},
          {"context_length", settings.context},
          {"max_model_len", settings.context},
          {"meta",
           {{"n_ctx_train", from.trained_context},
            {"n_ctx", settings.context},
            {"n_vocab", from.vocabulary},
            {"n_params", from.parameters},
            {"size", from.model_bytes}}}};
}

std::vector<std::string> names_of(const ServerSettings& settings) {
  std::vector<std::string> names = {settings.model_name};
  names.insert(names.end(), settings.aliases.begin(), settings.aliases.end());
  return names;
}

void answer_models(const Shared& exchange, const OperationsSources& from) {
  const bool is_anthropic = exchange->request().family == Family::anthropic;
  const std::vector<std::string> names = names_of(from.settings);
  Json data = Json::array();
  for (const std::string& name : names) data.push_back(model_of(name, from, is_anthropic));
  if (is_anthropic)
    return answer(exchange,
                  {{"data", data}, {"has_more", false}, {"first_id", names.front()}, {"last_id", names.back()}});
  answer(exchange, {{"object", "list"}, {"data", data}});
}

void answer_model(const Shared& exchange, const OperationsSources& from) {
  const HttpRequest& request = exchange->request();
  const std::vector<std::string> names = names_of(from.settings);
  if (std::find(names.begin(), names.end(), request.rest) == names.end())
    throw ApiError(404, "model " + request.rest + ": not served here, expected " + names.front(), "model",
                   "model_not_found");
  answer(exchange, model_of(request.rest, from, request.family == Family::anthropic));
}

// --- /tokenize and /detokenize

void answer_tokenize(const Shared& exchange, const Tokenizer& tokenizer) {
  const Json body = object_of(exchange->request());
  const Fields fields(body);
  if (!fields.has("content")) fields.refuse("content", "a string");
  const std::string content = fields.text("content");
  const bool adds_bos = fields.flag("add_special", false);
  const Trust trust = fields.flag("parse_special", true) ? Trust::trusted : Trust::untrusted;
  const bool has_pieces = fields.flag("with_pieces", false);
  std::vector<Token> tokens;
  if (adds_bos && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
  const std::vector<Token> encoded = tokenizer.encode(content, trust);
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  if (!has_pieces) return answer(exchange, {{"tokens", tokens}});
  Json pieces = Json::array();
  for (const Token token : tokens) {
    const std::string_view bytes = tokenizer.bytes_of(token);
    Json piece = std::string(bytes);
    if (!is_valid_utf8(bytes)) {
      piece = Json::array();
      for (const char byte : bytes) piece.push_back(static_cast<unsigned char>(byte));
    }
    pieces.push_back({{"id", token}, {"piece", std::move(piece)}});
  }
  answer(exchange, {{"tokens", std::move(pieces)}});
}

void answer_detokenize(const Shared& exchange, const Tokenizer& tokenizer) {
  const Json body = object_of(exchange->request());
  const Fields fields(body);
  const Json* list = fields.find("tokens");
  if (list == nullptr || !list->is_array()) fields.refuse("tokens", "an array of token ids");
  std::vector<Token> tokens;
  tokens.reserve(list->size());
  for (const Json& item : *list) {
    const bool is_token = item.is_number_integer() && item >= 0 && item < tokenizer.size();
    if (!is_token)
      refuse_field(indexed_name("tokens", tokens.size()), item,
                   "an id from 0 to " + std::to_string(tokenizer.size() - 1));
    tokens.push_back(item.get<Token>());
  }
  answer(exchange, {{"content", to_valid_utf8(tokenizer.decode(tokens))}});
}

/// What this server does not do, refused by name: clients show the words once and go on.
void add_unsupported(Router& router) {
  for (const char* path : {"/embeddings", "/embedding", "/rerank", "/reranking", "/audio/{rest}", "/images/{rest}"})
    router.add({.method = "POST",
                .path = path,
                .handler =
                    [](const Shared& exchange) {
                      const HttpRequest& request = exchange->request();
                      throw ApiError(501, (request.is_v1 ? "/v1" : "") + request.path +
                                              ": this model makes text, and the server has no such endpoint");
                    },
                .where = HttpRoute::Where::inline_});
}

}  // namespace

std::string HealthWatch::problem(const SchedulerStatus& status) {
  const std::lock_guard lock(mutex_);
  if (status.jobs_done != done_) {
    done_ = status.jobs_done;
    failed_ = status.jobs_failed;
  }
  if (!status.device_failure.empty()) return "The device failed: " + status.device_failure;
  if (status.is_stopping) return "Shutting down";
  if (status.seconds_in_step > stuck_seconds_)
    return "The model has been in one step for " + std::to_string(std::lround(status.seconds_in_step)) + " s";
  if (status.jobs_failed - failed_ >= kFailuresToRed)
    return "The last " + std::to_string(status.jobs_failed - failed_) + " answers failed";
  return {};
}

void add_operations(Router& router, const OperationsSources& sources) {
  const auto from = std::make_shared<const OperationsSources>(sources);
  const auto watch = std::make_shared<HealthWatch>(sources.stuck_seconds);
  const auto add = [&router](const char* method, const char* path, HttpRoute::Where where, Handler handler) {
    router.add({.method = method, .path = path, .handler = std::move(handler), .where = where});
  };
  constexpr auto kInline = HttpRoute::Where::inline_;
  constexpr auto kWorker = HttpRoute::Where::worker;
  add_health(router, [from, watch](const Shared& exchange) {
    const std::string problem = watch->problem(from->status());
    if (problem.empty()) return answer(exchange, {{"status", "ok"}});
    answer(exchange, unavailable(problem), 503);
  });
  add("GET", "/props", kInline, [from](const Shared& exchange) { answer(exchange, props_of(*from)); });
  add("GET", "/slots", kInline, [from](const Shared& exchange) {
    if (!from->settings.has_slots) throw ApiError(501, "/slots: turned off by --no-slots");
    const SchedulerStatus status = from->status();
    const bool is_full =
        std::all_of(status.slots.begin(), status.slots.end(), [](const auto& slot) { return slot.is_busy; });
    if (is_full && exchange->request().parameter("fail_on_no_slot") == "1")
      return answer(exchange, unavailable("no slot available"), 503);
    answer(exchange, slots_of(status, from->settings));
  });
  add("POST", "/slots/{rest}", kInline, [](const Shared& exchange) {
    throw ApiError(501, exchange->request().path +
                            ": slots cannot be saved, restored or erased; prefixes are kept and "
                            "found by themselves");
  });
  add("GET", "/metrics", kInline, [from](const Shared& exchange) {
    if (!from->settings.has_metrics) throw ApiError(501, "/metrics: turned off by --no-metrics");
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics_text(from->status(), from->counters(), *from);
    exchange->respond(std::move(response));
  });
  add("GET", "/models", kInline, [from](const Shared& exchange) { answer_models(exchange, *from); });
  add("GET", "/models/{rest}", kInline, [from](const Shared& exchange) { answer_model(exchange, *from); });
  add("POST", "/tokenize", kWorker, [from](const Shared& exchange) { answer_tokenize(exchange, from->tokenizer); });
  add("POST", "/detokenize", kWorker, [from](const Shared& exchange) { answer_detokenize(exchange, from->tokenizer); });
  add_unsupported(router);
  add_page(router);
}

std::shared_ptr<const Router> make_loading_router(std::function<std::string()> progress) {
  auto router = std::make_shared<Router>();
  add_health(*router, [progress = std::move(progress)](const Shared& exchange) {
    Json body = unavailable("Loading model");
    if (const std::string now = progress ? progress() : std::string(); !now.empty()) body["progress"] = now;
    answer(exchange, body, 503);
  });
  add_page(*router);
  router->set_fallback([](const Shared&) { throw ApiError(503, "Loading model", {}, "loading"); },
                       HttpRoute::Where::inline_);
  return router;
}

}  // namespace lockstep
