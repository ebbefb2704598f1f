// What an answer may look like, enforced while it is sampled: a grammar over bytes and control tokens, and the mask of
// tokens that keep to it.
//
// A grammar is a pushdown automaton (grammar_builder.h) made from a JSON schema, from "any JSON object", or from a
// request's tools. It runs as a deterministic one that is built as it is needed: a state is a set of stacks, states are
// interned, and their transitions and masks are kept. So a token costs one mask lookup once its state has been seen.
// docs/structured-output.md says what of JSON Schema is understood.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar_builder.h"
#include "text/vocabulary.h"

namespace lockstep {

class Tokenizer;

/// The ordinary tokens of a vocabulary as a prefix tree over their bytes, and its added tokens by their text.
class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);

  // In depth-first order: the children of a node follow it, and `skip` is the first node behind its subtree.
  struct Node {
    std::uint32_t skip = 0;
    std::uint32_t first_token = 0;  // in tokens()
    std::uint16_t token_count = 0;
    std::uint16_t depth = 0;  // bytes up to and with this one
    unsigned char byte = 0;
  };
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Token> tokens() const { return tokens_; }
  std::size_t vocabulary() const { return vocabulary_; }
  const std::vector<std::pair<std::string, Token>>& added() const { return added_; }

 private:
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::vector<std::pair<std::string, Token>> added_;
  std::size_t vocabulary_ = 0;
};

using OrderedJson = nlohmann::ordered_json;

enum class ToolChoice { automatic, required };

class Grammar {
 public:
  /// Any JSON object.
  static std::shared_ptr<Grammar> json_object();

  /// JSON that meets `schema`. `strict`: a keyword that is not supported throws Error::bad_argument naming it and its
  /// place; otherwise it alone is left out of account, and `left_out`, if not null, gets a line that says so. Either
  /// way a schema that is malformed, that nothing can meet, that refers to nothing or to itself alone, or that is too
  /// large throws.
  static std::shared_ptr<Grammar> json_schema(const OrderedJson& schema, bool strict,
                                              std::vector<std::string>* left_out = nullptr);

  /// An answer that may call `tools` (each the client's function object: name, parameters) in the model's own tags,
  /// with values of the types that the tools' schemas ask for. With `required` it is a tool block and nothing else;
  /// otherwise any text, which may end in one. `only`: the one tool that may be called, if not empty. Keywords that are
  /// not understood are left out of account.
  static std::shared_ptr<Grammar> tool_calls(std::span<const OrderedJson> tools, ToolChoice choice,
                                             std::string_view only, bool parallel);

  explicit Grammar(GrammarProgram program);

  /// Memory of the states that have been seen has become so large that a fresh copy would be better.
  bool is_large() const;

 private:
  friend class GrammarState;

  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int32_t kUnknown = -1, kDead = -2;

  struct Frame {  // a place in the program, and what follows when its rule ends
    std::uint32_t node, parent;
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    std::size_t operator()(const Frame& f) const {
      return (std::uint64_t{f.node} << 32 | f.parent) * 0x9e3779b97f4a7c15u;
    }
  };
  struct StateHash {
    std::size_t operator()(const std::vector<std::uint32_t>& frames) const;
  };
  struct State {
    std::vector<std::uint32_t> frames;     // ascending; each at a node that consumes something
    bool is_complete = false;              // the answer may end here
    std::unique_ptr<std::int32_t[]> next;  // by byte: a state, kUnknown or kDead
    std::vector<std::uint64_t> mask;       // ordinary tokens that may come, a bit each; empty until asked for
  };

  std::uint32_t frame(std::uint32_t node, std::uint32_t parent);
  void close(std::uint32_t node, std::uint32_t parent, std::vector<std::uint32_t>& frames, bool& is_complete);
  std::int32_t intern(std::vector<std::uint32_t> frames, bool is_complete);
  std::int32_t step(std::int32_t state, unsigned char byte);
  std::int32_t step_symbol(std::int32_t state, std::uint32_t symbol);
  const std::vector<std::uint64_t>& mask_of(std::int32_t state, const TokenTrie& trie);

  GrammarProgram program_;
  mutable std::mutex mutex_;  // of all below: answers of one request share a grammar
  std::vector<Frame> frames_;
  std::unordered_map<Frame, std::uint32_t, FrameHash> frame_ids_;
  std::vector<State> states_;
  std::unordered_map<std::vector<std::uint32_t>, std::int32_t, StateHash> state_ids_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> visited_;  // scratch of close()
  std::size_t bytes_ = 0;
  std::int32_t start_ = kDead;
};

/// One answer's place in a grammar. May be copied. Used with one vocabulary.
class GrammarState {
 public:
  GrammarState(std::shared_ptr<Grammar> grammar, std::shared_ptr<const TokenTrie> trie);

  /// Sets the logits of all tokens that cannot come next to -infinity. `ends` are the tokens that end an answer: they
  /// may come where the answer is complete.
  void mask(std::span<float> logits, std::span<const Token> ends) const;

  /// Follows a token: an added one by its text, another by its bytes. False if it could not come; then nothing changes.
  bool accept_bytes(std::string_view bytes);
  bool accept_added(std::string_view text);

  bool is_complete() const;
  /// Nothing but an end may come.
  bool is_finished() const;

 private:
  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::int32_t state_;
};

}  // namespace lockstep
