// `lockstep serve`: from options to a running server, and to its end.
//
// HTTP is up before the model is loaded, so that whoever watches sees "loading" and not a dead port. The main thread
// only waits for a signal; the model is loaded on another one.
#include <fmt/core.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/serve_options.h"
#include "server/api.h"
#include "server/fingerprint.h"
#include "server/http_server.h"
#include "server/log.h"
#include "server/operations.h"
#include "server/replay_file.h"
#include "server/trace.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kServeContext = 131072;
constexpr double kWatchSeconds = 0.5;                        // between two looks at whether the device still works
constexpr int kLooksToTrim = 20;                             // after which free memory goes back to the system
constexpr double kDrainSeconds = 5;                          // for the last bytes, after the last answer has ended
constexpr std::size_t kReplayBytes = std::size_t{64} << 20;  // of turns that are repeated as they were sampled

/// The file's name without its folder, its ending, and its number among the parts of a split file.
std::string name_from(const std::string& path) {
  const auto split = parse_split_name(path);
  return split ? split->prefix.filename().string() : std::filesystem::path(path).stem().string();
}

/// What `call` throws, as wrong settings: a restart would find the same, so whoever supervises the server is told by
/// the exit code not to try.
template <class Call>
void as_settings(Call call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::io) throw;
    throw Error(Error::Kind::bad_argument, error.what());
  }
}

/// Makes the folder, for its owner only if it is new. Throws Error::bad_argument if there can be none. One in which
/// nothing can be written is read nevertheless.
void make_cache_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();  // "states/"
  std::error_code error;
  const std::filesystem::path parent = folder.parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  const int code = errno;
  if (!std::filesystem::is_directory(folder, error))
    throw Error(Error::Kind::bad_argument,
                fmt::format("--cache-dir: {}: {}, expected a directory or a new name", folder.string(),
                            std::generic_category().message(code == EEXIST ? ENOTDIR : code)));
}

/// Signals that are waited for instead of being handled. Threads made after this inherit that they are blocked.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int number : Interrupts::kEveryEnd) {
      struct sigaction action {};
      // As nohup has it; a signal that is waited for would come all the same.
      if (number == SIGHUP && sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
      sigaddset(&set_, number);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    signal(SIGPIPE, SIG_IGN);  // whoever reads the log may leave
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next signal, or 0 when `seconds` are over.
  int wait(double seconds) const {
    timespec time{static_cast<time_t>(seconds), 0};
    time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
    const int number = sigtimedwait(&set_, nullptr, &time);
    return number > 0 ? number : 0;
  }
  /// From here on a signal ends the program at once.
  void let_through() const {
    for (const int number : Interrupts::kEveryEnd)
      if (sigismember(&set_, number) == 1) signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_{}, before_{};
};

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // if not, there are fewer connections
}

/// The settings that the server's handlers do not need to know, for /props. Where secrets lie is not told.
Json start_settings_of(const ServeOptions& options, int port) {
  const BackEndOptions& back_end = options.model.back_end;
  return {{"backend", back_end.backend},
          {"device", back_end.device},
          {"threads", back_end.threads},
          {"level", back_end.level},
          {"rocmfp2", options.model.rocmfp2},
          {"type_108", options.model.type_108},
          {"host", options.http.host},
          {"port", port},
          {"tls", !options.http.tls_certificate.empty()},
          {"cors", options.http.cors_origins},
          {"http_threads", options.http.worker_threads},
          {"connections", options.http.connections},
          {"stop_seconds", options.stop_seconds},
          {"stuck_seconds", options.stuck_seconds},
          {"chunk", options.chunk},
          {"cap_by_budget", options.caps_by_budget_tokens},
          {"replace_unsupported", options.replaces_unsupported},
          {"log_level", options.log_level},
          {"log_json", options.is_log_json}};
}

/// What the loading thread makes, in the order it depends on each other.
struct Loaded {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<SchedulerSource> source;
  std::shared_ptr<ReplayMap> replay;
  std::unique_ptr<ReplayFile> replay_file;  // none without a cache directory
};

class Serve {
 public:
  explicit Serve(ServeOptions options)
      : options_(std::move(options)), log_(log_level_named(options_.log_level), options_.is_log_json) {}

  int run() {
    for (const std::string& note : environment_notes()) log_.warning(note);
    if (options_.model.is_demo) log_.info("no MODEL given, so the demo model runs", {{"model", options_.model.model}});
    as_settings([this] {
      plan();
      if (!options_.settings.trace.empty()) make_trace_folder(options_.settings.trace);
    });
    if (!options_.settings.scheduler.cache_dir.empty()) make_cache_folder(options_.settings.scheduler.cache_dir);
    const Signals signals;
    raise_file_limit();
    listen();
    std::thread loader([this] { load(); });
    wait_for_end(signals, loader);
    if (loader.joinable()) loader.join();
    if (failure_) {
      server_.reset();
      std::rethrow_exception(failure_);
    }
    stop();
    return device_failure_.empty() ? 0 : 1;
  }

 private:
  /// Fills in what depends on the file and the device, and refuses what cannot fit, before anything is loaded.
  void plan() {
    ops_ = make_ops(options_.model.back_end);
    const DeviceState device = ops_->device_state();
    const Gguf file(options_.model.model, gguf_options_of(options_.model));
    const Config config = read_config(file);
    ServerSettings& settings = options_.settings;
    if (settings.context > config.context_length)
      throw Error(Error::Kind::bad_argument, fmt::format("--context: {}, expected at most the model's {}",
                                                         settings.context, config.context_length));
    if (settings.context == 0) settings.context = std::min(kServeContext, config.context_length);
    trained_context_ = config.context_length;
    model_bytes_ = file.file_bytes();
    for (const GgufTensor& tensor : file.tensors()) {
      std::uint64_t elements = 1;
      for (const auto n : tensor.ne) elements *= static_cast<std::uint64_t>(n);
      parameters_ += elements;
    }
    const MemoryLimit limit = memory_limit_of(device);
    memory_bytes_ = limit.bytes;
    MemoryPlan model = plan_memory(file, config, mode_of(options_.model), settings.context, options_.chunk);
    model.workspace += device.scratch_bytes;
    // What waits to be written is on the host, whose memory is not what a device's plan is about.
    const bool is_on_host = device.total_bytes == 0 && !settings.scheduler.cache_dir.empty();
    const ServePlan memory =
        plan_serve(model, settings.scheduler.slots, bytes_or_auto(options_.session_ram, "--session-ram"),
                   bytes_or_auto(options_.cache_ram, "--cache-ram"), limit, options_.model.model,
                   is_on_host ? DiskCacheOptions().queue_bytes : 0);
    log_.info(plan_text(memory, limit));
    settings.scheduler.context = settings.context;
    settings.scheduler.session_bytes = memory.sessions;
    settings.scheduler.cache_bytes = memory.cache;
    settings.model_path = options_.model.model;
    if (settings.model_name.empty()) settings.model_name = name_from(options_.model.model);
    settings.mode = options_.model.mode;
    settings.created = std::time(nullptr);
  }

  void listen() {
    options_.http.on_request = [this](const RequestRecord& record) { log_.request(record); };
    server_ = std::make_unique<HttpServer>(options_.http, make_loading_router([this] {
                                             const std::lock_guard lock(mutex_);
                                             return progress_;
                                           }));
    log_.info("listening on " + server_->url() + ", loading the model");
    if (!is_loopback(options_.http.host) && !options_.settings.has_keys)
      log_.warning("other machines can reach this server and no key is asked for; --api-key-file sets keys");
  }

  void tell(const std::string& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }

  /// On its own thread.
  void load() {
    try {
      EngineOptions engine;
      engine.model = options_.model.model;
      engine.mode = mode_of(options_.model);
      engine.max_rows = options_.chunk;
      engine.rocmfp2 = rocmfp2_of(options_.model);
      engine.meaning_of_108 = gguf_options_of(options_.model).meaning_of_108;
      tell("reading the model");
      const auto note = [this](const std::string& text) { log_.info(text); };
      // There it costs nothing that can be measured; a device would have to be waited for.
      if (options_.model.back_end.backend == "cpu") engine.timing = Timing::phases;
      engine.progress = [this](std::uint64_t done, std::uint64_t total) {
        tell(fmt::format("reading the model, {} of {}", human_bytes(done), human_bytes(total)));
      };
      loaded_.engine = std::make_unique<Engine>(engine, std::move(ops_), note);
      loaded_.engine->ops().synchronize();
      ServerSettings& settings = options_.settings;
      settings.back_end = loaded_.engine->ops().description();
      tell("building the tokenizer");
      const Tokenizer& tokenizer = loaded_.engine->tokenizer();
      const std::string fingerprint = system_fingerprint(loaded_.engine->file(), loaded_.engine->mode());
      open_scheduler();
      server_->set_router(make_router(tokenizer, fingerprint));
      log_.info("ready", {{"model", settings.model_name},
                          {"back_end", settings.back_end},
                          {"context", settings.context},
                          {"slots", settings.scheduler.slots},
                          {"fingerprint", fingerprint},
                          {"url", server_->url()}});
    } catch (...) {
      failure_ = std::current_exception();
    }
    is_loading_over_ = true;
  }

  void open_scheduler() {
    SchedulerOptions& options = options_.settings.scheduler;
    options.note = [this](const std::string& text) { log_.warning(text); };
    if (!options.cache_dir.empty()) tell("opening the cache directory");
    loaded_.scheduler = std::make_unique<Scheduler>(*loaded_.engine, options);
    loaded_.source = std::make_unique<SchedulerSource>(*loaded_.scheduler);
    loaded_.replay = std::make_shared<ReplayMap>(kReplayBytes);
    if (options.cache_dir.empty()) return;
    loaded_.replay_file = std::make_unique<ReplayFile>(
        loaded_.replay, ReplayFile::Options{.directory = options.cache_dir, .note = options.note});
    const DiskCache::Stats disk = loaded_.scheduler->status().disk;
    log_.info(fmt::format("states on disk: {}, in {} of at most {}", disk.states, human_bytes(disk.bytes),
                          human_bytes(options.cache_disk_bytes)),
              {{"cache_dir", options.cache_dir.string()}, {"sampled_turns", loaded_.replay->size()}});
  }

  std::shared_ptr<const Router> make_router(const Tokenizer& tokenizer, const std::string& fingerprint) {
    auto router = std::make_shared<Router>();
    const auto kept = add_api(*router, {.settings = options_.settings,
                                        .tokenizer = tokenizer,
                                        .source = *loaded_.source,
                                        .fingerprint = fingerprint,
                                        .replay = loaded_.replay,
                                        .replaces_unsupported = options_.replaces_unsupported,
                                        .caps_by_budget_tokens = options_.caps_by_budget_tokens,
                                        .warn = [this](const std::string& text) { log_.warning(text); }});
    add_operations(*router, {.settings = options_.settings,
                             .tokenizer = tokenizer,
                             .trained_context = trained_context_,
                             .vocabulary = loaded_.engine->config().vocabulary,
                             .parameters = parameters_,
                             .model_bytes = model_bytes_,
                             .memory_bytes = memory_bytes_,
                             .stuck_seconds = options_.stuck_seconds,
                             .status = [this] { return loaded_.scheduler->status(); },
                             .counters = [this] { return server_->counters(); },
                             .kept = kept,
                             .start_settings = start_settings_of(options_, server_->port())});
    return router;
  }

  /// Returns when a signal came after the model was loaded, when it could not be, or when the device failed.
  void wait_for_end(const Signals& signals, std::thread& loader) {
    bool is_told = false;
    while (!is_loading_over_ && !is_told) is_told = signals.wait(0.1) != 0;
    if (!is_loading_over_) {  // asked again: a signal may come just after it was over
      // Loading cannot be interrupted, and nothing is lost by ending here.
      log_.info("told to stop while loading");
      std::fflush(stderr);
      std::_Exit(0);
    }
    loader.join();
    if (failure_) return;
    for (int looks = 1; !is_told && device_failure_.empty(); ++looks) {
      is_told = signals.wait(kWatchSeconds) != 0;
#if defined(__GLIBC__)
      // States come and go in all sizes. Without this the holes that they leave stay resident: half as much again as
      // what is in use after two minutes of tests/load.
      if (looks % kLooksToTrim == 0) malloc_trim(0);
#endif
      device_failure_ = loaded_.scheduler->status().device_failure;
    }
    signals.let_through();
  }

  void stop() {
    if (device_failure_.empty()) {
      log_.info(fmt::format("told to stop; running answers have {:g} s, another signal ends them at once",
                            options_.stop_seconds));
    } else {
      // Nothing brings it back but another process, which whoever supervises this one starts.
      log_.error("the device failed, so the server stops: " + device_failure_);
    }
    server_->begin_shutdown();
    loaded_.scheduler->stop(options_.stop_seconds);
    const bool is_whole = server_->drain(kDrainSeconds);
    server_.reset();  // its handlers use what is below
    loaded_.replay_file.reset();
    loaded_.scheduler.reset();
    loaded_.engine.reset();
    log_.info(is_whole ? "stopped" : "stopped; some clients did not read to the end");
  }

  ServeOptions options_;
  Log log_;
  std::int64_t trained_context_ = 0;
  std::uint64_t parameters_ = 0, model_bytes_ = 0, memory_bytes_ = 0;
  std::unique_ptr<Ops> ops_;  // until the engine has them
  Loaded loaded_;
  std::unique_ptr<HttpServer> server_;  // goes before what its handlers use
  std::mutex mutex_;
  std::string progress_;
  std::exception_ptr failure_;
  std::string device_failure_;
  std::atomic<bool> is_loading_over_{false};
};

}  // namespace

void add_serve(CLI::App& app, Run& run) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "An HTTP server with the APIs of OpenAI and Anthropic, and a page at /");
  add_serve_options(*command, *options);
  command->callback([options, &run] {
    run = [options] {
      try {
        check_serve_options(*options);
        return Serve(*options).run();
      } catch (const Error& error) {
        const Error placed = placed_error(*options, error);
        // What does not fit would not fit after a restart either.
        if (placed.kind() == Error::Kind::no_memory) throw Error(Error::Kind::bad_argument, placed.what());
        throw placed;
      }
    };
  });
}

}  // namespace lockstep
