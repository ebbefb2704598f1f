// The options of `lockstep serve`: each a field, from the command line or from a file of settings.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cli/memory_plan.h"
#include "cli/options.h"
#include "server/http_server.h"
#include "server/settings.h"

namespace lockstep {

/// A setting that the file of --config gave.
struct SettingPlace {
  std::string place;  // FILE:LINE
  std::string value;
};

struct ServeOptions {
  ModelOptions model;
  HttpOptions http;
  ServerSettings settings;
  std::string key_file;
  std::string cache_ram = "auto", session_ram = "auto";
  std::string cache_disk;  // empty: not said
  int chunk = 0;           // tokens a step; 0 until they are checked: usual_rows
  bool replaces_unsupported = false, caps_by_budget_tokens = false;
  double stuck_seconds = 300, stop_seconds = 30;
  std::string log_level = "info";
  bool is_log_json = false;
  std::string config;
  std::map<std::string, SettingPlace> places;  // by the option's name, "--host" or "MODEL"
};

/// All of them, and that the file of --config is read when the command line has been.
void add_serve_options(CLI::App& command, ServeOptions& options);

/// Refuses what cannot work together, and reads the key file. Throws Error::bad_argument.
void check_serve_options(ServeOptions& options);

/// The error, behind the file and line of the setting that it is about, if the file of --config gave that one.
Error placed_error(const ServeOptions& options, const Error& error);

/// A server's memory: the model, and what is left for running answers and for the prefix cache in it.
struct ServePlan {
  MemoryPlan model;            // its sequence: one answer of the whole context
  std::uint64_t sessions = 0;  // for the contexts of running answers together
  std::uint64_t cache = 0;     // for the prefix cache
  std::uint64_t writing = 0;   // for states on their way to the disk
  std::uint64_t total() const { return model.weights + model.workspace + sessions + cache + writing; }
};

/// Divides what the limit leaves. Without a size given, running answers may take a whole context each, as far as there
/// is room, and the cache a quarter of the rest, at most 8 GiB. `writing` is what a cache on disk needs. Throws
/// Error::no_memory if not even one answer fits.
ServePlan plan_serve(const MemoryPlan& model, int slots, std::optional<std::uint64_t> sessions,
                     std::optional<std::uint64_t> cache, const MemoryLimit& limit, const std::string& name,
                     std::uint64_t writing = 0);
std::string plan_text(const ServePlan& plan, const MemoryLimit& limit);

/// Whether only this machine can connect to it.
bool is_loopback(std::string_view host);

}  // namespace lockstep
