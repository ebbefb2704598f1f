// `lockstep complete`: one prompt in, its answer on stdout and nothing else there.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generation.h"
#include "cli/input_file.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "cli/timing_text.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

struct CompleteOptions {
  ModelOptions model;
  GenerationOptions generation;
  std::string prompt, prompt_file, system;
  std::vector<std::string> stops;
  int chunk = 0;
  bool is_chat = false;
  bool no_think = false;
  bool has_timing = false;
};

void check_utf8(const std::string& text, const std::string& name) {
  if (is_valid_utf8(text)) return;
  std::size_t at = 0;
  for (;;) {
    const Utf8Step step = utf8_step(std::string_view(text).substr(at));
    if (step.state != Utf8Step::State::complete) break;
    at += static_cast<std::size_t>(step.length);
  }
  throw Error(Error::Kind::bad_argument, name + ": not UTF-8 at byte " + std::to_string(at) + ", expected text");
}

std::string prompt_of(const CompleteOptions& options, bool has_text) {
  const bool has_file = !options.prompt_file.empty();
  if (has_text == has_file)
    throw Error(Error::Kind::bad_argument, std::string("prompt: ") + (has_text ? "given twice" : "missing") +
                                               ", expected -p TEXT or --prompt-file FILE");
  std::string text = options.prompt;
  std::string name = "-p";
  if (has_file) {
    name = options.prompt_file;
    text = name == "-" ? read_all(std::cin, "stdin") : read_input(name, "--prompt-file", "a text file");
  }
  if (text.empty()) throw Error(Error::Kind::bad_argument, name + ": the prompt is empty, expected text");
  check_utf8(text, name);
  return text;
}

int run_complete(CompleteOptions options, bool has_text) {
  const std::string text = prompt_of(options, has_text);
  check_utf8(options.system, "--system");
  const SamplerParams params = sampler_params_of(options.generation);
  Interrupts interrupts;
  if (options.has_timing) options.model.timing = Timing::phases;
  const auto engine = load_engine(options.model, 0, options.generation.context);
  const Tokenizer& tokenizer = engine->tokenizer();

  GenerateRequest request = request_of(options.generation, tokenizer);
  request.sampling = params;
  request.stop_strings = options.stops;
  if (options.is_chat) {
    ChatRequest chat = chat_request_of(*engine, options.generation);
    chat.thinking = !options.no_think;
    if (!options.system.empty()) chat.messages.push_back(message_of(Role::system, options.system));
    chat.messages.push_back(message_of(Role::user, text));
    request.prompt = tokenizer.encode(render_chat(chat));
    if (chat.thinking) request.thought_end = tokenizer.require_added(kThinkEnd);
  } else {
    request.prompt = completion_prompt(tokenizer, text);
  }

  Generator generator(*engine, options.chunk);
  PrefillLine line;
  bool is_thinking = false;  // something of a thought is on stderr
  GenerateHooks hooks;
  const Interrupts::Stops stops(interrupts);
  hooks.cancelled = &stops.flag();
  hooks.progress = [&](const PrefillProgress& progress) { line.show(progress); };
  hooks.piece = [&](const Piece& piece) {
    line.clear();
    if (piece.is_thought) {
      fmt::print(stderr, "{}", piece.text);
      std::fflush(stderr);
      is_thinking = is_thinking || !piece.text.empty();
      return;
    }
    if (is_thinking) fmt::print(stderr, "\n");
    is_thinking = false;
    write_out(piece.text);
  };
  const Generated answer = generator.generate(request, hooks);
  line.clear();
  if (is_thinking) fmt::print(stderr, "\n");
  if (isatty(STDOUT_FILENO) == 1) write_out("\n");
  fmt::print(stderr, "{}\n", stats_text(answer, params, *engine));
  if (options.has_timing) fmt::print(stderr, "{}\n", timing_text(engine->timer()->times()));
  return answer.finish == Finish::cancelled ? 1 : 0;
}

}  // namespace

void add_complete(CLI::App& app, Run& run) {
  auto options = std::make_shared<CompleteOptions>();
  options->generation.sampling.temperature = 0;
  CLI::App* command = app.add_subcommand("complete", "The answer to one prompt, alone on stdout");
  add_model_options(*command, options->model);
  const CLI::Option* text = command->add_option("-p,--prompt", options->prompt, "the prompt");
  command->add_option("--prompt-file", options->prompt_file, "file that holds the prompt; - is stdin");
  add_generation_options(*command, options->generation);
  command->add_option("--stop", options->stops, "text that ends the answer and is left out of it; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--chunk", options->chunk, "tokens of the prompt a step; 0 = as many as a step takes")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  CLI::Option* chat =
      command->add_flag("--chat", options->is_chat, "the prompt is a message; the model's thinking goes to stderr");
  command->add_flag("--no-think", options->no_think, "answer without thinking first")->needs(chat);
  command->add_option("--system", options->system, "system text in front of the message")->needs(chat);
  command->add_option("--effort", options->generation.effort, "how much to think: low, high, max")->needs(chat);
  command->add_flag("--timing", options->has_timing, "say on stderr where the time of the steps went, by phase");
  command->callback([options, text, &run] {
    run = [options, has_text = text->count() > 0] { return run_complete(*options, has_text); };
  });
}

}  // namespace lockstep
