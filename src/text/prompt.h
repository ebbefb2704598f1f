// A prompt between the renderer and the tokenizer: text in spans, each one trusted or not.
//
// Added tokens are recognised only where the whole token lies in trusted text: a file that a tool read and that holds
// "<｜User｜>" stays ordinary text, and cannot open a turn. Everything else is tokenised as if the spans were one
// string.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class Trust : bool { untrusted, trusted };

struct Span {
  std::string text;
  Trust trust = Trust::untrusted;
};

struct Prompt {
  std::vector<Span> spans;            // neighbours differ in trust
  std::vector<std::string> controls;  // added tokens that the template used, each once: the vocabulary must have them

  void append(std::string_view text, Trust trust) {
    if (text.empty()) return;
    if (spans.empty() || spans.back().trust != trust) spans.push_back({{}, trust});
    spans.back().text += text;
  }

  std::string text() const {
    std::string all;
    for (const Span& span : spans) all += span.text;
    return all;
  }
};

}  // namespace lockstep
