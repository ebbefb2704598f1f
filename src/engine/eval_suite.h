// Suites of prompts with their right answers: how a case is written, and when an answer passes.
//
// A suite is JSON Lines, a case a line (docs/eval.md). This file knows nothing of models: it reads cases and judges
// parsed answers. An unknown field is an error, because a misspelt expectation would let everything pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"
#include "text/python_json.h"

namespace lockstep {

struct ExpectedCall {
  std::string name;
  Json arguments;  // an object
};

struct EvalCase {
  std::string name, skill;
  ChatRequest chat;  // thinking, messages and tools; the profile is the model's
  std::int64_t limit = 256;
  // What is expected. At least one of them is there.
  std::vector<std::string> contents;            // any of them; empty: content is not looked at
  std::optional<std::string> reasoning;         // exactly, if there
  std::vector<std::string> reasoning_contains;  // all of them
  std::vector<ExpectedCall> calls;              // exactly these, in order; empty: there must be none
};

/// What a model answered, parsed.
struct EvalAnswer {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  bool has_stopped = false;  // by its end-of-sentence token
};

/// Reads a suite. `name` is for messages. Throws Error::bad_argument naming the line, the field, what it holds and what
/// was expected, also for a name that comes twice and for a suite without cases.
std::vector<EvalCase> parse_suite(std::string_view text, std::string_view name);

/// Why an answer does not pass; empty if it does. It passes if it stopped by itself, its content (without surrounding
/// white space) is one of the accepted ones, byte for byte, its reasoning holds what it must, and its calls have the
/// expected names in the expected order with arguments that are equal as JSON.
std::string why_wrong(const EvalCase& expected, const EvalAnswer& answer);

/// Equal as JSON values: objects without regard to the order of keys, 1 and 1.0 alike.
bool same_json(const Json& a, const Json& b);

/// The case as a conversation that has its answer: the first accepted content, the expected reasoning and calls.
/// Nothing if the case does not say the whole answer (a thought of which only a part is known, or no content and no
/// calls).
std::optional<ChatRequest> answered(const EvalCase& c);

/// One line: a short form of the expected answer, for reports.
std::string expected_text(const EvalCase& c);
/// The same of an answer.
std::string answer_text(const EvalAnswer& answer);

}  // namespace lockstep
