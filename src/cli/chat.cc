// `lockstep chat`: a conversation by lines, from a terminal or a pipe. Answers go to stdout; the prompt sign, thinking
// and everything about the session to stderr.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generation.h"
#include "cli/interrupts.h"
#include "cli/options.h"
#include "text/output_parser.h"
#include "text/sampled_tokens.h"
#include "text/utf8.h"

namespace lockstep {
namespace {

struct ChatOptions {
  ModelOptions model;
  GenerationOptions generation;
  std::string system;
  bool no_think = false;
};

constexpr const char* kHelp =
    "/think on|off  think before answering, or not\n"
    "/system TEXT   replace the system text; none without TEXT\n"
    "/clear         forget the conversation, keep the system text\n"
    "/quit          leave (or Ctrl-D); Ctrl-C stops an answer, and leaves when there is none\n";

/// What the next prompt repeats of an answer; nothing if it ended in its thought or at a stop string.
std::optional<SampledTurn> turn_of(const Generated& answer, Phase opening, const Tokenizer& tokenizer) {
  OutputParser parser({.opening = opening});
  for (const Token token : answer.tokens) parser.feed_token(tokenizer.bytes_of(token), tokenizer.is_added(token));
  parser.finish(GenerationEnd::stop);
  if (answer.finish == Finish::stop_string || parser.phase() == Phase::reasoning) return std::nullopt;
  std::optional<SampledTurn> turn = parser.sampled_turn();
  if (turn) keep_tokens(*turn, answer.tokens, tokenizer);
  return turn;
}

class Conversation {
 public:
  Conversation(const ChatOptions& options, Engine& engine, Interrupts& interrupts)
      : engine_(engine),
        interrupts_(interrupts),
        generation_(options.generation),
        params_(sampler_params_of(options.generation)),
        chat_(chat_request_of(engine, options.generation)),
        system_(options.system),
        generator_(engine),
        is_terminal_(isatty(STDERR_FILENO) == 1) {
    chat_.thinking = !options.no_think;
  }

  /// Does what a line says. Returns false when it says to leave.
  bool take(std::string line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) return true;
    if (line.front() == '/') return command(line);
    answer(is_valid_utf8(line) ? std::move(line) : to_valid_utf8(line));
    return true;
  }

 private:
  bool command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/clear") {
      history_.clear();
      fmt::print(stderr, "The conversation is empty.\n");
    } else if (name == "/system") {
      system_ = is_valid_utf8(rest) ? rest : to_valid_utf8(rest);
      fmt::print(stderr, "{}\n", system_.empty() ? "No system text." : "System text set.");
    } else if (name == "/think" && (rest == "on" || rest == "off")) {
      chat_.thinking = rest == "on";
      fmt::print(stderr, "Thinking is {}.\n", rest);
    } else if (name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else {
      fmt::print(stderr, "\"{}\": no such command, expected one of these:\n{}", line, kHelp);
    }
    return true;
  }

  void answer(std::string text) {
    history_.push_back(message_of(Role::user, std::move(text)));
    chat_.messages = history_;
    if (!system_.empty()) chat_.messages.insert(chat_.messages.begin(), message_of(Role::system, system_));
    const Tokenizer& tokenizer = engine_.tokenizer();
    GenerateRequest request = request_of(generation_, tokenizer);
    request.sampling = params_;
    const Prompt prompt = render_chat(chat_);
    request.prompt = tokenizer.encode(prompt);
    if (chat_.thinking) request.thought_end = tokenizer.require_added(kThinkEnd);

    Generated out;
    try {
      out = generate(request);
    } catch (const Error& error) {  // too long for the context, or for a limit: the conversation goes on without it
      if (error.kind() != Error::Kind::bad_argument) throw;
      fmt::print(stderr, "lockstep: {}; /clear makes room\n", error.what());
      history_.pop_back();
      return;
    }
    write_out("\n");
    fmt::print(stderr, "[{}]\n", stats_text(out, params_, engine_));
    if (out.finish == Finish::cancelled && out.text.empty()) {
      history_.pop_back();  // nothing was said, so nothing was asked
      return;
    }
    history_.push_back(message_of(Role::assistant, std::move(out.text)));
    history_.back().reasoning = std::move(out.thought);
    history_.back().sampled = turn_of(out, phase_after(prompt), tokenizer);
  }

  Generated generate(const GenerateRequest& request) {
    PrefillLine line;
    bool is_dim = false;
    const auto end_thought = [&] {
      if (is_dim) fmt::print(stderr, "{}\n\n", is_terminal_ ? "\033[0m" : "");
      is_dim = false;
    };
    GenerateHooks hooks;
    const Interrupts::Stops stops(interrupts_);
    hooks.cancelled = &stops.flag();
    hooks.progress = [&](const PrefillProgress& progress) { line.show(progress); };
    hooks.piece = [&](const Piece& piece) {
      line.clear();
      if (!piece.is_thought) {
        end_thought();
        write_out(piece.text);
      } else if (!piece.text.empty()) {
        fmt::print(stderr, "{}{}", !is_dim && is_terminal_ ? "\033[2m" : "", piece.text);
        std::fflush(stderr);
        is_dim = true;
      }
    };
    Generated out = generator_.generate(request, hooks);
    end_thought();
    return out;
  }

  Engine& engine_;
  Interrupts& interrupts_;
  GenerationOptions generation_;
  SamplerParams params_;
  ChatRequest chat_;
  std::string system_;
  std::vector<Message> history_;
  Generator generator_;
  bool is_terminal_;
};

int run_chat(const ChatOptions& options) {
  sampler_params_of(options.generation);
  if (!is_valid_utf8(options.system)) throw Error(Error::Kind::bad_argument, "--system: not UTF-8, expected text");
  Interrupts interrupts;
  const auto engine = load_engine(options.model, 0, options.generation.context);
  Conversation conversation(options, *engine, interrupts);
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  if (is_terminal)
    fmt::print(stderr, "{}, {}. /help lists the commands.\n", options.model.model, engine->ops().description());
  for (std::string line;;) {
    if (is_terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || !conversation.take(std::move(line))) break;
    line.clear();
  }
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Run& run) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "A conversation by lines; /help lists its commands");
  add_model_options(*command, options->model);
  add_generation_options(*command, options->generation);
  command->add_option("--system", options->system, "system text in front of the conversation");
  command->add_flag("--no-think", options->no_think, "answer without thinking first");
  command
      ->add_option("--effort", options->generation.effort,
                   "how much to think: low (or minimal), high (or medium, xhigh), max")
      ->check(CLI::IsMember({"minimal", "low", "medium", "high", "xhigh", "max"}));
  command->callback([options, &run] { run = [options] { return run_chat(*options); }; });
}

}  // namespace lockstep
