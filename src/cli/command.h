// The commands of the program. Each lives in a file of its own and registers itself with one function: it adds a
// subcommand with its options to `app` and sets `run` to what it does when it was chosen. A command returns the exit
// code; it throws Error for what the outside world did wrong, and main turns that into a message and a code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

/// Exit codes: 0 done, 1 a check failed or an operation did, 2 wrong use or input.
using Run = std::function<int()>;

void add_bench(CLI::App& app, Run& run);
void add_cache(CLI::App& app, Run& run);
void add_chat(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_complete(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_dequantize(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_eval(CLI::App& app, Run& run);
void add_imatrix(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_logits(CLI::App& app, Run& run);
void add_parse(CLI::App& app, Run& run);
void add_perplexity(CLI::App& app, Run& run);
void add_quantize(CLI::App& app, Run& run);
void add_serve(CLI::App& app, Run& run);
void add_synth(CLI::App& app, Run& run);
void add_text(CLI::App& app, Run& run);  // tokenize, render

}  // namespace lockstep
