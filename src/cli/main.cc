// The program: finds the command, runs it, and is the one place where its errors become a message and an exit code.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/command.h"

namespace {

int exit_code(lockstep::Error::Kind kind) {
  using Kind = lockstep::Error::Kind;
  return kind == Kind::bad_argument || kind == Kind::bad_file || kind == Kind::unsupported ? 2 : 1;
}

/// An empty path is a shell variable that was not set, and never means a file or a folder: refused before a command
/// takes it for "none given".
void refuse_empty_paths(CLI::App& app) {
  constexpr std::string_view kPaths[] = {
      "MODEL",       "IN",          "OUT",     "CHECKPOINT",     "DIR",        "FILE",      "FILES",    "JSONL",
      "--out",       "--suite",     "--text",  "--compare",      "--imatrix",  "--prompts", "--tokens", "--prompt-file",
      "--cache-dir", "--tokenizer", "--trace", "--api-key-file", "--tls-cert", "--tls-key", "--config"};
  const CLI::Validator is_named(
      [](std::string& path) { return path.empty() ? std::string("is empty, expected a name") : std::string(); }, "");
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options())
      if (std::find(std::begin(kPaths), std::end(kPaths), option->get_name()) != std::end(kPaths))
        option->check(is_named);
    refuse_empty_paths(*command);
  }
}

/// What was printed may still be in a buffer, and the disk full.
int flushed(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::cout.good()) return code;
  fmt::print(stderr, "lockstep: stdout: cannot write all of the output\n");
  return code == 0 ? 1 : code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Lockstep runs DeepSeek V4 Flash. The same weights and tokens give the same bytes on every path.",
               "lockstep");
  app.require_subcommand(1);
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  lockstep::Run run;
  lockstep::add_complete(app, run);
  lockstep::add_chat(app, run);
  lockstep::add_serve(app, run);
  lockstep::add_inspect(app, run);
  lockstep::add_logits(app, run);
  lockstep::add_check(app, run);
  lockstep::add_bench(app, run);
  lockstep::add_eval(app, run);
  lockstep::add_perplexity(app, run);
  lockstep::add_text(app, run);
  lockstep::add_parse(app, run);
  lockstep::add_dequantize(app, run);
  lockstep::add_synth(app, run);
  lockstep::add_quantize(app, run);
  lockstep::add_imatrix(app, run);
  lockstep::add_convert(app, run);
  lockstep::add_cache(app, run);
  lockstep::add_doctor(app, run);
  refuse_empty_paths(app);
  const auto is_named = [&](CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
    fmt::print(stderr, "lockstep: no command \"{}\"; lockstep --help lists them\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
    return flushed(run());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? flushed(0) : 2;  // 0: help, or the version
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "lockstep: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return 1;
  }
}
