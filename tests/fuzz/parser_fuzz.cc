// Any output, by bytes and by tokens, under any settings, keeps the promises of text/output_parser.h and does not
// depend on where it is cut. The first byte of the input is the settings, the second the size of the pieces. Seeds:
// tests/fuzz/corpus/parser.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "parser_promises.h"

namespace {

using lockstep::Parsed;
using lockstep::Piece;

void expect(bool is_kept, const std::string& what) {
  if (is_kept) return;
  std::fprintf(stderr, "broken: %s\n", what.c_str());
  std::abort();
}

/// As tokens: control tokens where they are spelled, ordinary pieces of `size` bytes between them.
std::vector<Piece> pieces_of(std::string_view text, std::size_t size) {
  std::vector<Piece> out;
  const std::string_view added[] = {lockstep::kDsml, lockstep::kThinkBegin, lockstep::kThinkEnd, lockstep::kUserText,
                                    "<｜fim▁hole｜>"};
  std::string ordinary;
  const auto end_ordinary = [&] {
    for (std::size_t at = 0; at < ordinary.size(); at += size) out.push_back({ordinary.substr(at, size), false});
    ordinary.clear();
  };
  while (!text.empty()) {
    std::size_t taken = 0;
    for (const std::string_view token : added)
      if (text.starts_with(token)) taken = token.size();
    if (taken == 0) {
      ordinary += text[0];
      text.remove_prefix(1);
      continue;
    }
    end_ordinary();
    out.push_back({std::string(text.substr(0, taken)), true});
    text.remove_prefix(taken);
  }
  end_ordinary();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const unsigned settings = data[0];
  const std::size_t cut = 1 + data[1] % 40;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  lockstep::ParserOptions options;
  options.opening = (settings & 1) != 0 ? lockstep::Phase::reasoning : lockstep::Phase::content;
  if ((settings & 2) == 0)
    options.tools = {
        R"({"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}})",
        R"({"name": "g"})"};
  options.parses_calls = (settings & 4) == 0;
  options.parallel_tool_calls = (settings & 8) == 0;
  if ((settings & 16) != 0) options.stops = {"STOP", "\n\n"};
  const auto end = (settings & 32) != 0 ? lockstep::GenerationEnd::length : lockstep::GenerationEnd::stop;

  const Parsed whole = parse_bytes({std::string(text)}, options, end);
  expect(broken_promise(whole, text, options, true).empty(), broken_promise(whole, text, options, true));
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size(); at += cut) parts.emplace_back(text.substr(at, cut));
  const Parsed streamed = parse_bytes(parts, options, end);
  expect(broken_promise(streamed, text, options, true).empty(), broken_promise(streamed, text, options, true));
  expect(streamed.output == whole.output, "the text in pieces gives another answer");

  const Parsed tokens = parse_pieces(pieces_of(text, cut), options, end);
  expect(broken_promise(tokens, text, options, false).empty(), broken_promise(tokens, text, options, false));
  const Parsed others = parse_pieces(pieces_of(text, text.size() + 1), options, end);
  expect(tokens.output == others.output, "other ordinary tokens give another answer");

  if (options.tools.empty() || !options.parses_calls) return 0;
  const std::string at_the_limit = broken_at_the_limit(std::string(text), options, data[1], size);
  expect(at_the_limit.empty(), at_the_limit);
  return 0;
}
