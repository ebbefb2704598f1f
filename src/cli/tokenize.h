// `lockstep tokenize` and `lockstep detokenize`: JSON Lines in, JSON Lines out.
#pragma once

#include <iosfwd>

#include "text/prompt.h"

namespace lockstep {

class Tokenizer;

/// {"text": "..."} in, {"ids": [...]} out, a line each; no BOS is added. Bytes that are not UTF-8 count as U+FFFD.
/// Blank lines are skipped. A bad line is reported on `errors` with its number and the rest goes on. Returns 0, or 2 if
/// any line was bad. `trust` says whether added tokens in a text are recognised.
int run_tokenize(std::istream& in, std::ostream& out, std::ostream& errors, const Tokenizer& tokenizer,
                 Trust trust = Trust::trusted);

/// {"ids": [...]} in, {"text": "..."} out; bytes that are not UTF-8 are shown as U+FFFD. Otherwise as run_tokenize.
int run_detokenize(std::istream& in, std::ostream& out, std::ostream& errors, const Tokenizer& tokenizer);

}  // namespace lockstep
