#include "cli/serve_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "cli/config_file.h"
#include "cli/demo.h"
#include "engine/sampler.h"
#include "server/log.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kMostCache = std::uint64_t{8} << 30;
constexpr const char* kUsualDisk = "20GB";

/// Of values between commas.
std::string without_blanks(const std::string& text) { return std::string(trimmed(text)); }

void add_http_options(CLI::App& command, ServeOptions& options) {
  HttpOptions& http = options.http;
  const auto group = [](CLI::Option* option) { return option->group("HTTP"); };
  group(command.add_option("--host", http.host, "address or name to listen on; 0.0.0.0 for every address"))
      ->capture_default_str();
  group(command.add_option("--port", http.port, "port; 0 = any that is free"))
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  group(command.add_option("--api-key-file", options.key_file,
                           "file of API keys, one a line; default: none, everybody is let in"));
  group(command.add_option("--tls-cert", http.tls_certificate,
                           "certificate chain for https, a PEM file; default: none, plain http"));
  group(command.add_option("--tls-key", http.tls_key, "its private key, a PEM file; default: none"));
  group(command.add_option(
            "--cors", http.cors_origins,
            "origins whose pages may call this server, as in http://localhost:3000; * for all; default: none"))
      ->delimiter(',')
      ->transform(without_blanks);
  group(command.add_option("--http-threads", http.worker_threads, "threads that read and render requests"))
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  group(command.add_option("--connections", http.connections,
                           "most open connections; beyond, the one that was idle for the longest is closed"))
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  group(command.add_option("--keep-alive", options.settings.keep_alive_seconds,
                           "seconds of silence in a stream after which something is sent"))
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  group(command.add_option("--stop-seconds", options.stop_seconds,
                           "when told to stop, how long running answers may go on"))
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  group(command.add_option("--stuck-seconds", options.stuck_seconds, "a step of the model that takes longer has hung"))
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  group(
      command.add_flag("!--no-metrics", options.settings.has_metrics, "do not serve /metrics; default: it is served"));
  group(command.add_flag("!--no-slots", options.settings.has_slots, "do not serve /slots; default: it is served"));
}

void add_engine_options(CLI::App& command, ServeOptions& options) {
  SchedulerOptions& scheduler = options.settings.scheduler;
  const auto group = [](CLI::Option* option) { return option->group("Engine"); };
  group(command.add_option("--context", options.settings.context,
                           "tokens of a prompt and its answer, at most; 0 = the model's, up to 131072"))
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  group(command.add_option("--slots", scheduler.slots, "answers that are made at once"))
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  group(command.add_option("--queue", scheduler.queue, "requests that wait, at most; more get 429"))
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  group(command.add_option("--cache-ram", options.cache_ram,
                           "memory for prefixes that were read before, as in 4GB; 0 = none; auto"))
      ->capture_default_str();
  group(command.add_option("--cache-dir", scheduler.cache_dir,
                           "folder where prefixes outlive this server; several may share it; default: none"));
  group(command.add_option("--cache-disk", options.cache_disk,
                           fmt::format("most bytes of states in --cache-dir, as in 100GB; default: {}", kUsualDisk)));
  group(command.add_option("--session-ram", options.session_ram,
                           "memory for the contexts of running answers together, as in 4GB; auto"))
      ->capture_default_str();
  group(command.add_option("--snapshot-every", scheduler.snapshot_every,
                           "tokens of a prompt between states that are kept for later prompts"))
      ->check(CLI::Range(std::int64_t{128}, std::int64_t{1} << 30))
      ->capture_default_str();
  group(command.add_option("--chunk", options.chunk, "tokens a step, at most; default: 512, on a GPU 4096"))
      ->check(CLI::Range(1, 1 << 16));
  group(command.add_option("--step-seconds", scheduler.step_seconds,
                           "length of a step that reads a prompt while nobody else waits"))
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  group(command.add_option("--prefill-share", scheduler.prefill_share,
                           "share of the time for reading prompts while others are being answered"))
      ->check(CLI::Range(0.01, 0.99))
      ->capture_default_str();
}

void add_answer_options(CLI::App& command, ServeOptions& options) {
  ServerSettings& settings = options.settings;
  const auto group = [](CLI::Option* option) { return option->group("Answers"); };
  group(command.add_option("--model-name", settings.model_name,
                           "what the model is called in answers and lists; default: the file's name"));
  group(command.add_option("--alias", settings.aliases, "another name for it; may be repeated; default: none"))
      ->delimiter(',')
      ->transform(without_blanks)
      ->allow_extra_args(false);
  group(command.add_flag("--strict-model", settings.is_strict_model,
                         "refuse requests for other names with 404; default: any name is served"));
  group(command.add_option("--profile", settings.profile,
                           "release whose prompts are rendered: preview, 0731; auto = what the file says"))
      ->check(CLI::IsMember({"auto", "preview", "0731"}))
      ->capture_default_str();
  group(command.add_option("--default-system", settings.default_system,
                           "system text for requests that bring none; default: none"));
  group(command.add_option("--thinking", settings.thinking,
                           "whether the model thinks where a request does not say: on, off; auto = on"))
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  group(command.add_option("--effort", settings.effort,
                           "how much, where a request does not say: low, high, max; default: unsaid"))
      ->check(CLI::IsMember({"low", "high", "max"}));
  group(command.add_option("--thinking-budget", settings.thinking_budget,
                           "tokens of thought after which it is closed, where a request does not say; -1 = no bound"))
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 40))
      ->capture_default_str();
  group(command.add_flag("--cap-by-budget", options.caps_by_budget_tokens,
                         "a request's thinking.budget_tokens closes the thought, instead of being a wish"));
  group(command.add_option("--max-tokens", settings.max_tokens,
                           "tokens of an answer where a request does not say; -1 = to the end of the context"))
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 40))
      ->capture_default_str();
  group(command.add_option("--temperature", settings.temperature, "where a request does not say; 0 is greedy"))
      ->capture_default_str();
  group(command.add_option("--top-p", settings.top_p, "where a request does not say"))->capture_default_str();
  group(command.add_option("--top-k", settings.top_k, "where a request does not say; 0 = all"))->capture_default_str();
  group(command.add_option("--min-p", settings.min_p, "where a request does not say"))->capture_default_str();
  group(command.add_flag("--replace-unsupported", options.replaces_unsupported,
                         "images and the like become a line of text, instead of a 400"));
}

void add_log_options(CLI::App& command, ServeOptions& options) {
  const auto group = [](CLI::Option* option) { return option->group("Log"); };
  group(command.add_option("--log-level", options.log_level, "debug, info, warning, error, off"))
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  group(command.add_flag("--log-json", options.is_log_json, "a JSON object a line; default: text"));
  group(command.add_option("--trace", options.settings.trace,
                           "folder for a file a request: its prompt, tokens and parser events; default: none"));
}

/// A flag's value in a file, which may be written in the ways that INI files have for it.
std::string truth_of(const ConfigSetting& setting) {
  if (setting.kind == ConfigSetting::Kind::truth) return setting.values.front();
  if (setting.kind == ConfigSetting::Kind::words)
    for (const auto& [word, truth] : {std::pair("true", "true"),
                                      {"yes", "true"},
                                      {"on", "true"},
                                      {"1", "true"},
                                      {"false", "false"},
                                      {"no", "false"},
                                      {"off", "false"},
                                      {"0", "false"}})
      if (setting.values.front() == word) return truth;
  throw CLI::ConversionError("a switch, expected true or false");
}

/// The words of an INI value that may be several.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t,", at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t,", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void set_option(CLI::Option& option, const ConfigSetting& setting) {
  using Kind = ConfigSetting::Kind;
  if (setting.values.empty()) return;
  const bool takes_several = option.get_items_expected_max() > 1;
  if (option.get_items_expected_min() == 0) {  // a flag, which may mean the opposite of its name
    option.add_result(option.get_flag_value(setting.name, truth_of(setting)));
  } else if (setting.kind == Kind::truth) {
    throw CLI::ConversionError("true or false, but it is no switch; expected a value");
  } else if (setting.kind == Kind::list && !takes_several) {
    throw CLI::ConversionError("an array, expected one value");
  } else if (setting.kind == Kind::words && takes_several) {
    option.add_result(words_of(setting.values.front()));
  } else {
    option.add_result(setting.values);
  }
  option.run_callback();
}

void add_all_options(CLI::App& command, ServeOptions& options) {
  add_model_options(command, options.model);
  command
      .add_option("--config", options.config,
                  "file of settings, TOML, or INI if its name ends in .ini or .conf: name = value, by the names of "
                  "these options without dashes; the "
                  "command line wins; default: none")
      ->check(CLI::ExistingFile);
  add_http_options(command, options);
  add_engine_options(command, options);
  add_answer_options(command, options);
  add_log_options(command, options);
}

/// Sets what the file says and the command line does not. Throws Error::bad_argument, which names file and line.
void read_config(CLI::App& command, ServeOptions& options) {
  const std::string& path = options.config;
  // Takes the values that the command line wins over: they are checked all the same.
  ServeOptions overruled_options;
  CLI::App overruled;
  add_all_options(overruled, overruled_options);
  std::set<std::string> seen;
  for (const ConfigSetting& setting : read_config_file(path)) {
    const auto refuse = [&](const std::string& words) {
      throw Error(Error::Kind::bad_argument, fmt::format("{}:{}: {}", path, setting.line, words));
    };
    const bool is_ours = setting.section.empty() || setting.section == "serve";
    const std::string full_name = is_ours ? setting.name : setting.section + "." + setting.name;
    const std::string option_name = setting.name == "model" ? "MODEL" : "--" + setting.name;
    CLI::Option* option = is_ours ? command.get_option_no_throw(option_name) : nullptr;
    if (option == nullptr || setting.name == "config" || setting.name == "help")
      refuse(full_name + " is no setting, expected the name of an option of serve");
    if (!seen.insert(setting.name).second) refuse(setting.name + " is set twice, expected each setting once");
    const bool is_overruled = option->count() > 0;
    try {
      set_option(is_overruled ? *overruled.get_option(option_name) : *option, setting);
      if (!is_overruled && !setting.values.empty())
        options.places[option_name] = {fmt::format("{}:{}", path, setting.line), setting.values.front()};
    } catch (const CLI::ParseError& error) {
      const std::string words = error.what();
      refuse(words.find(setting.name) == std::string::npos ? setting.name + ": " + words : words);
    }
  }
}

/// Whether the words have the value, as a word of its own.
bool names_value(std::string_view words, std::string_view value) {
  const std::size_t at = value.empty() ? std::string_view::npos : words.find(value);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + value.size();
  return (at == 0 || words[at - 1] == ' ') &&
         (end == words.size() || words[end] == ':' || words[end] == ' ' || words[end] == ',');
}

void check_range(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw Error(Error::Kind::bad_argument, fmt::format("{}: {}, expected at least {}", name, value, least));
}

}  // namespace

void add_serve_options(CLI::App& command, ServeOptions& options) {
  add_all_options(command, options);
  // In place of add_model_options' own: the file may name the model.
  command.parse_complete_callback([&command, &options] {
    if (!options.config.empty()) read_config(command, options);
    if (!options.model.model.empty()) return;
    options.model.model = find_demo(kDemoModel, demo_folders(), "MODEL").string();
    options.model.is_demo = true;
  });
}

void check_serve_options(ServeOptions& options) {
  if (options.http.host.empty())
    throw Error(Error::Kind::bad_argument, "--host: empty, expected an address or a name; 0.0.0.0 for every address");
  const std::string &certificate = options.http.tls_certificate, &key = options.http.tls_key;
  if (certificate.empty() != key.empty())
    throw Error(Error::Kind::bad_argument, key.empty() ? "--tls-cert: " + certificate + " alone, expected --tls-key too"
                                                       : "--tls-key: " + key + " alone, expected --tls-cert too");
  for (const std::string& origin : options.http.cors_origins) {
    const std::size_t host = origin.find("://");
    const bool is_origin = host != std::string::npos && origin.find('/', host + 3) == std::string::npos;
    if (origin != "*" && !is_origin)
      throw Error(Error::Kind::bad_argument,
                  "--cors: " + origin + ", expected an origin as in http://localhost:3000, without a path, or *");
  }
  for (const std::string& alias : options.settings.aliases)
    if (alias.empty()) throw Error(Error::Kind::bad_argument, "--alias: empty, expected a name");
  SchedulerOptions& scheduler = options.settings.scheduler;
  if (scheduler.cache_dir.empty() && !options.cache_disk.empty())
    throw Error(Error::Kind::bad_argument,
                "--cache-disk: " + options.cache_disk + ", expected --cache-dir too, the folder that it is of");
  if (!scheduler.cache_dir.empty()) {
    const std::string size = options.cache_disk.empty() ? kUsualDisk : options.cache_disk;
    scheduler.cache_disk_bytes = bytes_from(size, "--cache-disk");
    if (scheduler.cache_disk_bytes == 0)
      throw Error(Error::Kind::bad_argument,
                  "--cache-disk: " + size + ", expected a size above 0 as in 100GB, or no --cache-dir");
  }
  if (!options.key_file.empty()) options.http.keys = ApiKeys(options.key_file);
  options.settings.has_keys = !options.http.keys.is_empty();
  SamplerParams params;
  params.temperature = options.settings.temperature;
  params.top_p = options.settings.top_p;
  params.top_k = options.settings.top_k;
  params.min_p = options.settings.min_p;
  try {
    check_sampler_params(params, 1 << 30);
  } catch (const Error& error) {  // which has the names that requests have
    std::string words = std::string("--") + error.what();
    std::replace(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(words.find(':')), '_', '-');
    throw Error(Error::Kind::bad_argument, words);
  }
  if (options.settings.max_tokens == 0) check_range("--max-tokens", 0, 1);
  if (options.chunk == 0) options.chunk = usual_rows(options.model.back_end);
  check_range("--chunk", options.chunk, options.settings.scheduler.slots);
}

Error placed_error(const ServeOptions& options, const Error& error) {
  const std::string_view words = error.what();
  for (const auto& [name, setting] : options.places) {
    if (words.starts_with(name + ":") || words.starts_with(name + " "))
      return Error(error.kind(), fmt::format("{}: {}", setting.place, words));
  }
  if (error.kind() == Error::Kind::no_memory) return error;  // it is about the sum of several
  for (const char* name : {"MODEL", "--host", "--api-key-file", "--tls-cert", "--tls-key"}) {
    const auto found = options.places.find(name);
    if (found == options.places.end() || !names_value(words, found->second.value)) continue;
    const std::string shown = found->first == "MODEL" ? "model" : found->first;
    return Error(error.kind(), fmt::format("{}: {}: {}", found->second.place, shown, words));
  }
  return error;
}

ServePlan plan_serve(const MemoryPlan& model, int slots, std::optional<std::uint64_t> sessions,
                     std::optional<std::uint64_t> cache, const MemoryLimit& limit, const std::string& name,
                     std::uint64_t writing) {
  const std::uint64_t fixed = model.weights + model.workspace + writing + cache.value_or(0);
  const std::uint64_t left = limit.bytes > fixed ? limit.bytes - fixed : 0;
  ServePlan plan;
  plan.model = model;
  plan.writing = writing;
  plan.sessions = sessions.value_or(
      std::max(model.sequence, std::min(model.sequence * static_cast<std::uint64_t>(slots), left / 4 * 3)));
  if (plan.sessions < model.sequence)
    throw Error(Error::Kind::no_memory,
                fmt::format("--session-ram: {}, but one answer of {} tokens takes {}; expected that much, or a smaller "
                            "--context",
                            human_bytes(plan.sessions), model.context, human_bytes(model.sequence)));
  const std::uint64_t rest = left > plan.sessions ? left - plan.sessions : 0;
  plan.cache = cache.value_or(std::min(rest / 4, kMostCache));
  if (plan.total() > limit.bytes)
    throw Error(Error::Kind::no_memory, fmt::format("{}: needs {}, {} {}; expected {}", name, human_bytes(plan.total()),
                                                    limit.source, human_bytes(limit.bytes),
                                                    model.weights + model.workspace + writing < limit.bytes
                                                        ? "a smaller --context, --session-ram or --cache-ram"
                                                        : "a smaller file, or more memory"));
  return plan;
}

std::string plan_text(const ServePlan& plan, const MemoryLimit& limit) {
  const double answers = std::floor(static_cast<double>(plan.sessions) / static_cast<double>(plan.model.sequence));
  const std::string writing =
      plan.writing > 0 ? fmt::format(", {} for states on their way to the disk", human_bytes(plan.writing)) : "";
  return fmt::format(
      "memory: {} of weights, {} of workspace, {} for running answers ({} of {} tokens at once), {} for the prefix "
      "cache{}; {} in all, {} {}",
      human_bytes(plan.model.weights), human_bytes(plan.model.workspace), human_bytes(plan.sessions), answers,
      plan.model.context, human_bytes(plan.cache), writing, human_bytes(plan.total()), limit.source,
      human_bytes(limit.bytes));
}

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace lockstep
