#include "cli/text_passages.h"

#include <algorithm>

#include "base/error.h"
#include "cli/input_file.h"
#include "text/utf8.h"

namespace lockstep {

CLI::Option* add_text_options(CLI::App& command, TextOptions& options) {
  CLI::Option* text = command.add_option("--text", options.file, "a text whose perplexity is measured");
  command
      .add_option("--context", options.context,
                  "tokens of a window of the text; without it, 2048 or the model's own context")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40))
      ->needs(text);
  command
      .add_option("--stride", options.stride,
                  "tokens from one window to the next, which scores only what the one before did not reach; without "
                  "it, half of the context")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->needs(text);
  return text;
}

std::string read_text_file(const std::string& path, const std::string& option) {
  std::string text = read_input(path, option, "a text file");
  if (!is_valid_utf8(text))
    throw Error(Error::Kind::bad_argument, option + ": " + path + " is not UTF-8, expected text");
  return text;
}

std::int64_t passage_context(Engine& engine, std::int64_t asked) {
  constexpr std::int64_t kUsual = 2048;
  const std::int64_t most = engine.config().context_length;
  if (asked > most)
    throw Error(Error::Kind::bad_argument, "--context: " + std::to_string(asked) + " tokens, expected at most " +
                                               std::to_string(most) + ", which the model was made for");
  return asked > 0 ? asked : std::min(kUsual, most);
}

std::vector<Passage> text_passages(Engine& engine, const TextOptions& options) {
  const std::int64_t context = passage_context(engine, options.context);
  const std::int64_t stride = options.stride > 0 ? options.stride : std::max<std::int64_t>(context / 2, 1);
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::vector<Token> text = tokenizer.encode(read_text_file(options.file, "--text"), Trust::untrusted);
  if (text.size() < (tokenizer.bos() ? 1u : 2u))
    throw Error(Error::Kind::bad_argument, "--text: " + options.file + " has " +
                                               (text.empty() ? "no token" : "one token") +
                                               ", nothing to score in it; expected at least two");
  return cut_text(text, tokenizer.bos(), context, stride);
}

}  // namespace lockstep
