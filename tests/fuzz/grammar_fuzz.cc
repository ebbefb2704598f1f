// Any JSON as a schema, or as the parameters of a tool, becomes a grammar or is refused with an error of ours; and an
// answer made under a grammar never comes to a place where nothing may follow. The first byte of the input says which.
// Seeds: tests/fuzz/corpus/grammar.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/grammar.h"
#include "engine/synth_vocabulary.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace {

using namespace lockstep;

constexpr int kTokens = 24;  // of an answer

struct World {
  Tokenizer tokenizer{synth_vocabulary(1024)};
  std::shared_ptr<const TokenTrie> trie = std::make_shared<const TokenTrie>(tokenizer);
  std::vector<Token> ends = {tokenizer.eos().value()};
};

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

/// Follows a token that the mask lets through, chosen by `choice`; false if the answer has ended.
bool follow(const World& world, GrammarState& state, std::uint32_t choice) {
  std::vector<float> logits(world.trie->vocabulary(), 0.0f);
  state.mask(logits, world.ends);
  std::vector<Token> allowed;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isinf(logits[i])) allowed.push_back(static_cast<Token>(i));
  if (allowed.empty()) broken("nothing may follow");
  const Token token = allowed[choice % allowed.size()];
  if (token == world.ends[0]) {
    if (!state.is_complete()) broken("an answer may end that is not complete");
    return false;
  }
  const std::string_view bytes = world.tokenizer.bytes_of(token);
  if (!(world.tokenizer.is_added(token) ? state.accept_added(bytes) : state.accept_bytes(bytes)))
    broken("the mask lets through what cannot follow");
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;  // a fuzzer has no main of its own to own it
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const Json schema = parse_json(text, "schema");
    std::shared_ptr<Grammar> grammar;
    if ((data[0] & 2) == 0) {
      grammar = Grammar::json_schema(schema, (data[0] & 1) != 0);
    } else {
      const Json tool = {{"name", "f"}, {"parameters", schema}};
      grammar = Grammar::tool_calls(std::vector<Json>{tool}, ToolChoice::required, {}, (data[0] & 1) != 0);
    }
    GrammarState state(grammar, world.trie);
    std::uint32_t choice = static_cast<std::uint32_t>(size);
    for (int i = 0; i < kTokens && !grammar->is_large(); ++i) {
      choice = choice * 1664525u + 1013904223u + data[static_cast<std::size_t>(i) % size];
      if (!follow(world, state, choice >> 8)) break;
    }
  } catch (const Error&) {
  }
  return 0;
}
