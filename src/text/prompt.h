// A prompt between the renderer and the tokenizer: text in spans, each one trusted or not.
//
// Added tokens are recognised only where the whole token lies in trusted text: a file that a tool read and that holds
// "<｜User｜>" stays ordinary text, and cannot open a turn. Everything else is tokenised as if the spans were one
// string; only what a model has sampled stays the tokens that it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep {

enum class Trust : bool { untrusted, trusted };

struct Span {
  std::string text;
  Trust trust = Trust::untrusted;
  std::vector<Token> tokens = {};  // of untrusted text: as which it was sampled, if that is known
};

struct Prompt {
  std::vector<Span> spans;            // neighbours differ in trust, or one of them has tokens
  std::vector<std::string> controls;  // added tokens that the template used, each once: the vocabulary must have them

  void append(std::string_view text, Trust trust) {
    if (text.empty()) return;
    if (spans.empty() || spans.back().trust != trust || !spans.back().tokens.empty()) spans.push_back({{}, trust});
    spans.back().text += text;
  }

  void append(const Span& span) {
    if (span.tokens.empty()) return append(span.text, span.trust);
    spans.push_back(span);
  }

  /// The spans from a byte of text() on. One that is cut is only text.
  Prompt from(std::size_t begin) const {
    Prompt rest;
    for (const Span& span : spans) {
      if (begin == 0) {
        rest.append(span);
      } else if (begin < span.text.size()) {
        rest.append(std::string_view(span.text).substr(begin), span.trust);
      }
      begin -= std::min(begin, span.text.size());
    }
    return rest;
  }

  std::string text() const {
    std::string all;
    for (const Span& span : spans) all += span.text;
    return all;
  }
};

}  // namespace lockstep
