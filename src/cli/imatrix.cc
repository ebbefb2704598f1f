// `lockstep imatrix`: runs a model over prompts and writes how large the inputs of its matrices were.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/command.h"
#include "cli/count_progress.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/text_passages.h"
#include "engine/collect_importance.h"
#include "text/chat_request.h"
#include "text/python_json.h"

namespace lockstep {
namespace {

struct ImatrixCommand {
  ModelOptions model;
  std::string prompts, out;
  std::int64_t context = 0;
};

std::vector<Token> text_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<Token> tokens = tokenizer.encode(text, Trust::untrusted);
  if (tokenizer.bos()) tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

std::vector<Token> json_tokens(const Tokenizer& tokenizer, const std::string& line) {
  const Json value = parse_json(line, "JSON");
  if (value.is_object() && value.contains("messages"))
    return tokenizer.encode(render_chat(chat_request_from_json(value)));
  if (!value.is_object() || !value.contains("text") || !value["text"].is_string())
    throw Error(Error::Kind::bad_argument, "expected an object with \"text\", a string, or \"messages\"");
  return text_tokens(tokenizer, value["text"].get<std::string>());
}

/// A prompt a line. A file whose first line opens an object is JSON Lines.
std::vector<std::vector<Token>> read_prompts(const Tokenizer& tokenizer, const ImatrixCommand& command,
                                             std::int64_t context) {
  std::istringstream lines(read_text_file(command.prompts, "--prompts"));
  std::vector<std::vector<Token>> prompts;
  std::optional<bool> is_json;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    if (!is_json) is_json = line[first] == '{';
    try {
      const auto pieces = cut_prompt(*is_json ? json_tokens(tokenizer, line) : text_tokens(tokenizer, line), context);
      prompts.insert(prompts.end(), pieces.begin(), pieces.end());
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("--prompts: {}, line {}: {}", command.prompts, number, error.what()));
    }
  }
  if (prompts.empty())
    throw Error(Error::Kind::bad_argument, "--prompts: " + command.prompts + " has no prompt, expected one a line");
  return prompts;
}

int run_imatrix(const ImatrixCommand& command) {
  Interrupts interrupts;  // before the threads start, which inherit it
  const auto engine = load_engine(command.model, 512, command.context);
  const std::int64_t context = passage_context(*engine, command.context);
  const auto prompts = read_prompts(engine->tokenizer(), command, context);
  refuse_input(replaced_file(command.out), engine->file().inputs({command.prompts}));  // not after hours of work
  const Interrupts::Stops stops(interrupts);
  Importance importance;
  {
    CountProgress progress("tokens");
    importance = collect_importance(*engine, prompts,
                                    {[&](std::int64_t done, std::int64_t total) { progress.show(done, total); },
                                     [&] { return stops.flag().load(); }});
  }
  importance.source = std::filesystem::path(command.prompts).filename().string();
  write_importance(importance, command.out);
  std::int64_t unused = 0, planes = 0;
  for (const auto& [name, entry] : importance.entries) {
    if (!name.ends_with("_exps.weight")) continue;
    unused += entry.unused_planes();
    planes += entry.planes();
  }
  fmt::print(stderr, "{}: {} matrices, {} of {} prompts\n", command.out, importance.entries.size(), importance.chunks,
             prompts.size());
  if (unused > 0)
    fmt::print(stderr, "{} of {} expert matrices were never used; quantize gives them the mean of the others\n", unused,
               planes);
  const bool is_whole = importance.chunks == static_cast<std::int64_t>(prompts.size());
  if (!is_whole) fmt::print(stderr, "interrupted: what the prompts up to then gave is in the file\n");
  return is_whole ? 0 : 1;
}

}  // namespace

void add_imatrix(CLI::App& app, Run& run) {
  auto options = std::make_shared<ImatrixCommand>();
  CLI::App* command =
      app.add_subcommand("imatrix", "Run a model over prompts and write how important the columns of its matrices are");
  add_model_options(*command, options->model);
  command
      ->add_option(
          "--prompts", options->prompts,
          "a prompt a line: plain text, or JSON objects with \"text\" or with \"messages\" as render reads them")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--out", options->out, "the file to write, GGUF")->required();
  command
      ->add_option("--context", options->context,
                   "longer prompts are cut into pieces of so many tokens; without it, 2048 or the model's own context")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40));
  command->callback([options, &run] { run = [options] { return run_imatrix(*options); }; });
}

}  // namespace lockstep
