// `lockstep parse`: its options.
#include <cstddef>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/parse.h"

namespace lockstep {
namespace {

struct ParseOptions {
  std::string path;
  std::size_t chunk = 0;
};

int run(const ParseOptions& options) {
  if (options.path.empty() || options.path == "-") return run_parse(std::cin, std::cout, std::cerr, options.chunk);
  std::ifstream in = open_input(options.path, "", "a file of JSON lines");
  return run_parse(in, std::cout, std::cerr, options.chunk);
}

}  // namespace

void add_parse(CLI::App& app, Run& chosen) {
  auto options = std::make_shared<ParseOptions>();
  CLI::App* command =
      app.add_subcommand("parse", "Sampled text in, one a JSON line, reasoning, content and tool calls out");
  command->add_option("JSONL", options->path, "file of lines; without it, stdin");
  command->add_option("--chunk", options->chunk, "feed the text this many bytes at a time; without it, whole")
      ->check(CLI::Range(1, 1 << 30));
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace lockstep
