// The program of a grammar, and how one is put together: backwards, every part being given what follows it.
//
// A program is a graph of nodes. A rule is a part of it that ends in `ret` and can be called, also by itself; what
// follows a call is on the stack meanwhile. Alphabet: bytes, and symbols for control tokens, which are not their bytes.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {

using ByteSet = std::bitset<256>;

/// What is asked for is well formed, and there is no such value: one way of several may be left out for it.
class NothingMeets : public Error {
 public:
  explicit NothingMeets(const std::string& message) : Error(Kind::bad_argument, message) {}
};

struct GrammarNode {
  enum class Kind : std::uint8_t { bytes, symbol, call, split, ret } kind = Kind::ret;
  std::uint32_t what = 0;  // bytes: its set; symbol: which; call: the rule; split: first of its alternatives
  std::uint32_t next = 0;  // split: how many alternatives
};

struct GrammarProgram {
  std::vector<GrammarNode> nodes;
  std::vector<ByteSet> sets;
  std::vector<std::uint32_t> alternatives;  // nodes
  std::vector<std::uint32_t> rules;         // start nodes
  std::vector<std::string> symbols;         // texts of control tokens
  std::uint32_t start = 0;                  // a node
};

/// Inclusive ranges of code points, ascending and apart.
using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

class GrammarBuilder {
 public:
  using Node = std::uint32_t;
  using Rule = std::uint32_t;
  /// Makes the part that is followed by the given node, and returns its first node.
  using Part = std::function<Node(Node next)>;

  GrammarBuilder();

  // Parts. Throw Error::bad_argument once the program has more than kMostNodes nodes.
  Node bytes(const ByteSet& set, Node next);
  Node range(unsigned char first, unsigned char last, Node next);
  Node literal(std::string_view text, Node next);
  Node symbol(std::string_view text, Node next);
  Node call(Rule rule, Node next);
  Node any_of(std::span<const Node> alternatives);
  Node any_of(std::initializer_list<Node> alternatives) {
    return any_of(std::span(alternatives.begin(), alternatives.size()));
  }
  Node maybe(const Part& part, Node next) { return any_of({part(next), next}); }
  /// From `least` to `most` times; most < 0 = without end.
  Node repeat(const Part& part, int least, int most, Node next);
  /// One character of the set, in UTF-8.
  Node character(const CodePoints& set, Node next);
  /// The same inside a JSON string: what JSON does not allow there is written as an escape.
  Node json_character(const CodePoints& set, Node next);

  /// A rule whose body is given later, so that it can be called meanwhile.
  Rule declare();
  void define(Rule rule, const Part& body);
  bool is_defined(Rule rule) const;
  Rule rule(const Part& body);

  // Rules that every grammar shares.
  Rule space();        // white space between JSON's parts: none, one blank, or a new line and its indentation
  Rule json_string();  // with its quotes
  Rule string_character();
  Rule json_value();
  Rule json_object();
  Rule json_number();
  Rule json_integer();

  /// Some way leads from `from` to `to`; calls count as coming back.
  bool leads_to(Node from, Node to) const;

  Node ret() const { return 0; }
  std::size_t size() const { return program_.nodes.size(); }

  /// The program that begins with `body` and may end where it ends. Ways that can never come to an end are cut off.
  /// Throws Error::bad_argument naming `what` if none is left.
  GrammarProgram finish(const Part& body, std::string_view what);

  static constexpr std::size_t kMostNodes = 300'000;

 private:
  Node add(GrammarNode node);
  void cut_endless(std::string_view what);

  GrammarProgram program_;
  std::unordered_map<ByteSet, std::uint32_t> set_ids_;
  std::vector<bool> is_defined_;
  std::array<Rule, 7> shared_;  // by the order above; kNoRule until asked for
};

/// All code points but surrogates.
CodePoints all_code_points();
CodePoints complement(const CodePoints& set);
/// Sorts and joins ranges.
CodePoints normalised(CodePoints set);

/// A text that the regular expression matches, as the inside of a JSON string or plain. Not anchored unless it says so.
/// Understood: characters, `.`, classes, \d \w \s and their opposites, groups, `|`, `* + ? {m,n}`, `^` at the beginning
/// and `$` at the end. Throws Error::unsupported naming what else there is, and Error::bad_argument for what is no
/// expression. The text has `least` to `most` characters (most < 0: without end); NothingMeets if no such text matches,
/// Error::unsupported if the lengths are too much for the machine.
GrammarBuilder::Node build_pattern(GrammarBuilder& builder, std::string_view pattern, bool in_json,
                                   GrammarBuilder::Node next, int least = 0, int most = -1);

/// Bounds of a number, as decimal text ("-12.5"), or empty for none.
struct NumberBounds {
  std::string least, most;
  bool excludes_least = false, excludes_most = false;
  bool is_integer = false;
  bool is_bounded() const { return !least.empty() || !most.empty(); }
};
/// Throws Error::unsupported if a least or greatest bound cannot be kept to: numbers here have at most 18 digits before
/// the point and after it. A bound that all of these keep to is none.
void check_bound(const std::string& bound, bool is_least);
/// A JSON number within the bounds, without an exponent. Throws as check_bound does, and NothingMeets if there is no
/// such number.
GrammarBuilder::Node build_bounded_number(GrammarBuilder& builder, const NumberBounds& bounds,
                                          GrammarBuilder::Node next);

}  // namespace lockstep
