// The options of a text that is measured, and the windows that it is cut into: shared by `eval` and `perplexity`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/likelihood.h"

namespace lockstep {

struct TextOptions {
  std::string file;
  std::int64_t context = 0;  // 0: 2048, or what the model was made for
  std::int64_t stride = 0;   // 0: half of the context
};

/// --text, --context and --stride. Returns the option --text.
CLI::Option* add_text_options(CLI::App& command, TextOptions& options);

/// A file as text. Throws Error naming `option` if it cannot be read or is not UTF-8.
std::string read_text_file(const std::string& path, const std::string& option);

/// Tokens of a passage: `asked`, or the usual number if that is 0. Throws Error::bad_argument if the model was made for
/// fewer.
std::int64_t passage_context(Engine& engine, std::int64_t asked);

/// The text's windows (cut_text). Control tokens that the text spells are ordinary text. Throws Error::bad_argument.
std::vector<Passage> text_passages(Engine& engine, const TextOptions& options);

}  // namespace lockstep
