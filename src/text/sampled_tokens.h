// The tokens of what a model sampled. The same text may be written in many tokens; a model samples some of them, not
// always those that the tokenizer would choose. A later prompt that repeats the text with other tokens is not what the
// model had before it, and no cached prefix reaches into it. So a sampled turn keeps its tokens beside its text.
#pragma once

#include <span>
#include <string_view>

#include "text/thought.h"
#include "text/vocabulary.h"

namespace lockstep {

class Tokenizer;

/// Gives the spans of a turn the tokens of which the output parser made it. If the turn ends in the middle of a token,
/// what it has of that one is a span of text alone; so is all from a place on where the tokens are not the text.
void keep_tokens(SampledTurn& turn, std::span<const Token> tokens, const Tokenizer& tokenizer);

/// Whether untrusted text may stand for these tokens in a prompt: they are in the vocabulary, none is a control token,
/// and they are exactly this text as the output parser reads them, with invalid UTF-8 replaced.
bool is_text_of(std::span<const Token> tokens, std::string_view text, const Tokenizer& tokenizer);

}  // namespace lockstep
