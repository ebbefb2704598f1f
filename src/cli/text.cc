// `lockstep tokenize`, `detokenize` and `render`: the text side alone, JSON Lines in and out.
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/render.h"
#include "cli/tokenize.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

struct TokenizeOptions {
  std::vector<std::string> files;  // [MODEL] [JSONL]
  std::string tokenizer;
  bool is_untrusted = false;
};

/// Calls work(stream) with a file or, for "" and "-", stdin.
template <class Work>
int with_input(const std::string& path, Work&& work) {
  if (path.empty() || path == "-") return work(std::cin);
  std::ifstream in = open_input(path, "", "a file of JSON lines");
  return work(in);
}

Tokenizer load_tokenizer(const TokenizeOptions& options) {
  if (options.tokenizer.empty()) return Tokenizer(vocabulary_of(Gguf(options.files.front())));
  const std::string text = read_input(options.tokenizer, "--tokenizer", "a tokenizer.json");
  return Tokenizer(vocabulary_from_tokenizer_json(text, options.tokenizer));
}

int run_with_tokenizer(const TokenizeOptions& options, bool is_backwards) {
  const std::size_t models = options.tokenizer.empty() ? 1 : 0;
  if (options.files.size() < models)
    throw Error(Error::Kind::bad_argument, "MODEL: missing, expected a GGUF file or --tokenizer tokenizer.json");
  if (options.files.size() > models + 1)
    throw Error(Error::Kind::bad_argument, options.files.back() + ": one file too many, expected " +
                                               (models == 1 ? "MODEL [JSONL]" : "--tokenizer FILE [JSONL]"));
  if (models == 0 && !options.files.empty()) {
    char magic[4] = {};
    std::ifstream(options.files.front(), std::ios::binary).read(magic, 4);
    if (std::string_view(magic, 4) == "GGUF")
      throw Error(Error::Kind::bad_argument, options.files.front() +
                                                 ": a model, and --tokenizer is given too, expected "
                                                 "one of them");
  }
  const Tokenizer tokenizer = load_tokenizer(options);
  return with_input(options.files.size() > models ? options.files[models] : "", [&](std::istream& in) {
    if (is_backwards) return run_detokenize(in, std::cout, std::cerr, tokenizer);
    return run_tokenize(in, std::cout, std::cerr, tokenizer, options.is_untrusted ? Trust::untrusted : Trust::trusted);
  });
}

void add_with_tokenizer(CLI::App& app, Run& run, const char* name, const char* what, bool is_backwards) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("FILES", options->files,
                      "MODEL (unless --tokenizer is given), then JSON lines; without them, stdin");
  command->add_option("--tokenizer", options->tokenizer, "a tokenizer.json instead of MODEL");
  if (!is_backwards)
    command->add_flag("--untrusted", options->is_untrusted, "control tokens in a text are ordinary text");
  command->callback([options, is_backwards, &run] {
    run = [options, is_backwards] { return run_with_tokenizer(*options, is_backwards); };
  });
}

}  // namespace

void add_text(CLI::App& app, Run& run) {
  add_with_tokenizer(app, run, "tokenize", "{\"text\"} lines in, {\"ids\"} lines out", false);
  add_with_tokenizer(app, run, "detokenize", "{\"ids\"} lines in, {\"text\"} lines out", true);
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("render", "Chat requests in, one a JSON line, {\"prompt\"} lines out");
  command->add_option("JSONL", *path, "file of requests; without it, stdin");
  command->callback([path, &run] {
    run = [path] { return with_input(*path, [](std::istream& in) { return run_render(in, std::cout, std::cerr); }); };
  });
}

}  // namespace lockstep
