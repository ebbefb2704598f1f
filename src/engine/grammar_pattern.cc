// Regular expressions of JSON Schema's `pattern`, as parts of a grammar.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/grammar_builder.h"

namespace lockstep {
namespace {

using Node = GrammarBuilder::Node;

constexpr int kMostGroups = 64;  // of groups in groups
constexpr int kMostCount = 1000;

/// A parsed expression: a character class, a sequence, alternatives, or a repetition of its one child.
struct Expression {
  enum class Kind { characters, sequence, alternatives, repetition } kind = Kind::sequence;
  CodePoints set;
  std::vector<Expression> children;
  int least = 0, most = 0;  // most < 0: without end
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : text_(pattern) {}

  /// The whole expression and whether it is tied to the beginning and to the end.
  Expression parse(bool& begins, bool& ends) {
    begins = take('^');
    ends = false;
    Expression all = parse_alternatives(0);
    if (at_ < text_.size()) refuse(at_, "an unmatched )");
    ends = ends_here_;
    // ^a|b$ ties one way each: too rare to be worth another machine.
    if ((begins || ends) && all.kind == Expression::Kind::alternatives)
      fail(0, "^ or $ beside a | that is in no group");
    return all;
  }

 private:
  /// What other engines may well understand.
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw Error(Error::Kind::unsupported,
                "pattern \"" + std::string(text_) + "\": " + what + " at character " + std::to_string(at) +
                    " is not understood, expected characters, classes, groups, |, * + ? {m,n}, ^ at the beginning and "
                    "$ at the end");
  }
  /// What no engine takes for an expression.
  [[noreturn]] void refuse(std::size_t at, const std::string& what) const {
    throw Error(Error::Kind::bad_argument, "pattern \"" + std::string(text_) + "\": " + what + " at character " +
                                               std::to_string(at) + ", expected a regular expression");
  }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool is_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  Expression parse_alternatives(int depth) {
    if (depth > kMostGroups) fail(at_, "groups nested that deep");
    Expression out{Expression::Kind::alternatives, {}, {parse_sequence(depth)}, 0, 0};
    while (take('|')) out.children.push_back(parse_sequence(depth));
    return out.children.size() == 1 ? std::move(out.children[0]) : out;
  }

  Expression parse_sequence(int depth) {
    Expression out;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      if (text_[at_] == '$') {
        if (depth > 0 || at_ + 1 != text_.size()) fail(at_, "a $ that is not at the end");
        ++at_;
        ends_here_ = true;
        break;
      }
      out.children.push_back(parse_repetition(depth));
    }
    return out;
  }

  Expression parse_repetition(int depth) {
    Expression one = parse_atom(depth);
    int least = 1, most = 1;
    const std::size_t at = at_;
    if (take('*')) {
      least = 0, most = -1;
    } else if (take('+')) {
      most = -1;
    } else if (take('?')) {
      least = 0;
    } else if (take('{')) {
      least = parse_count(at);
      most = least;
      if (take(',')) most = is_at("}") ? -1 : parse_count(at);
      if (!take('}')) fail(at, "a { that counts nothing");
      if (most >= 0 && most < least) refuse(at, "a { that counts nothing");
    } else {
      return one;
    }
    take('?');  // lazy: the same texts match
    if (at_ < text_.size() && (text_[at_] == '*' || text_[at_] == '+')) fail(at_, "a second count");
    return {Expression::Kind::repetition, {}, {std::move(one)}, least, most};
  }

  int parse_count(std::size_t at) {
    int count = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && count <= kMostCount)
      count = 10 * count + (text_[at_++] - '0');
    if (at_ == begin || count > kMostCount) fail(at, "a count that is no number up to " + std::to_string(kMostCount));
    return count;
  }

  Expression parse_atom(int depth) {
    const std::size_t at = at_;
    if (take('(')) {
      if (take('?')) {
        if (!take(':')) fail(at, "a group (?");
      }
      Expression inside = parse_alternatives(depth + 1);
      if (!take(')')) refuse(at, "an unmatched (");
      return inside;
    }
    if (take('[')) return characters(parse_class(at));
    if (take('.')) return characters(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (text_[at_] == '\\') return characters(parse_escape());
    if (std::string_view("*+?").find(text_[at_]) != std::string_view::npos)
      refuse(at_, std::string(1, text_[at_]) + " behind nothing");
    if (std::string_view("{^").find(text_[at_]) != std::string_view::npos) fail(at_, std::string(1, text_[at_]));
    const char32_t c = parse_character();
    return characters({{c, c}});
  }

  static Expression characters(CodePoints set) {
    return {Expression::Kind::characters, normalised(std::move(set)), {}, 0, 0};
  }

  char32_t parse_character() {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text_[i]); };
    const unsigned first = byte(at_);
    const int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (at_ + static_cast<std::size_t>(more) >= text_.size()) fail(at_, "half a character");
    char32_t c = more == 0 ? first : first & (0x3fu >> more);
    for (int i = 0; i < more; ++i) c = c << 6 | (byte(at_ + 1 + static_cast<std::size_t>(i)) & 0x3fu);
    at_ += 1 + static_cast<std::size_t>(more);
    return c;
  }

  CodePoints parse_escape() {
    const std::size_t at = at_++;
    if (at_ >= text_.size()) refuse(at, "a \\ at the end");
    const char letter = text_[at_++];
    const CodePoints digits = {{'0', '9'}};
    const CodePoints word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const CodePoints blank = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                              {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const auto hex = [&](int count) -> CodePoints {
      char32_t c = 0;
      for (int i = 0; i < count; ++i, ++at_) {
        const char h = at_ < text_.size() ? text_[at_] : '\0';
        const int value = h >= '0' && h <= '9'   ? h - '0'
                          : h >= 'a' && h <= 'f' ? h - 'a' + 10
                          : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                                 : -1;
        if (value < 0) fail(at, "a code without its digits");
        c = c << 4 | static_cast<char32_t>(value);
      }
      if (c >= 0xd800 && c < 0xe000) fail(at, "a surrogate");
      return {{c, c}};
    };
    switch (letter) {
      case 'd':
        return digits;
      case 'D':
        return complement(digits);
      case 'w':
        return word;
      case 'W':
        return complement(word);
      case 's':
        return blank;
      case 'S':
        return complement(blank);
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      default:
        break;
    }
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
      fail(at, std::string("\\") + letter);
    --at_;
    const char32_t c = parse_character();
    return {{c, c}};
  }

  CodePoints parse_class(std::size_t at) {
    const bool is_negated = take('^');
    CodePoints set;
    for (bool is_first = true; !take(']'); is_first = false) {
      if (at_ >= text_.size()) refuse(at, "an unmatched [");
      if (!is_first && is_at("[:")) fail(at_, "[:");
      CodePoints one = parse_member();
      if (one.size() == 1 && one[0].first == one[0].second && is_at("-") && !is_at("-]")) {
        ++at_;
        if (at_ >= text_.size()) refuse(at, "an unmatched [");
        const CodePoints end = parse_member();
        if (end.size() != 1 || end[0].first != end[0].second || end[0].first < one[0].first)
          refuse(at, "a range that does not ascend");
        one[0].second = end[0].second;
      }
      set.insert(set.end(), one.begin(), one.end());
    }
    return is_negated ? complement(set) : normalised(std::move(set));
  }
  CodePoints parse_member() {
    if (text_[at_] == '\\') return parse_escape();
    const char32_t c = parse_character();
    return {{c, c}};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool ends_here_ = false;
};

Node build(GrammarBuilder& builder, const Expression& expression, bool in_json, Node next) {
  switch (expression.kind) {
    case Expression::Kind::characters:
      return in_json ? builder.json_character(expression.set, next) : builder.character(expression.set, next);
    case Expression::Kind::sequence: {
      for (std::size_t i = expression.children.size(); i-- > 0;)
        next = build(builder, expression.children[i], in_json, next);
      return next;
    }
    case Expression::Kind::alternatives: {
      std::vector<Node> ways;
      for (const Expression& child : expression.children) ways.push_back(build(builder, child, in_json, next));
      return builder.any_of(ways);
    }
    case Expression::Kind::repetition: {
      const Expression& child = expression.children[0];
      return builder.repeat([&](Node n) { return build(builder, child, in_json, n); }, expression.least,
                            expression.most, next);
    }
  }
  return next;
}

/// An expression beside a count of its characters.
///
/// Its characters are numbered by their places in it, and every place knows which may come after it (Glushkov's
/// automaton). A state is a place and how many characters there have been; states that cannot be left any more within
/// the lengths are not made, so nothing leads into a dead end.
class CountedPattern {
 public:
  CountedPattern(GrammarBuilder& builder, bool in_json, int least, int most)
      : builder_(builder), in_json_(in_json), least_(least), most_(most) {}

  Node build(const Expression& expression, Node next) {
    Part all = place(expression);
    for (const std::size_t p : all.last) places_[p].is_last = true;
    // Without a greatest length, all counts from the least one on are alike.
    const int top = most_ < 0 ? least_ : most_;
    const std::size_t counts = static_cast<std::size_t>(top) + 1;
    if (places_.size() * counts > kMostStates || edges_ * counts > kMostEdges)
      throw Error(Error::Kind::unsupported, "a pattern with lengths that make it too large is not supported");
    Part start = all;
    const GrammarBuilder::Rule rule = builder_.rule([&](Node end) {
      std::vector<std::optional<Node>> above =
          most_ < 0 ? endless(end) : std::vector<std::optional<Node>>(places_.size());
      if (most_ >= 0) above = level(above, top, end);
      for (int count = top - 1; count > 0; --count) above = level(above, count, end);
      std::vector<Node> ways;
      if (top > 0 || most_ < 0) ways = entries(start.first, above);
      if (start.may_be_empty && least_ == 0) ways.push_back(end);
      if (ways.empty()) throw NothingMeets("no text of these lengths matches the pattern");
      return builder_.any_of(ways);
    });
    return builder_.call(rule, next);
  }

 private:
  static constexpr std::size_t kMostStates = 50'000, kMostEdges = 1'000'000;

  struct Place {
    GrammarBuilder::Rule character;
    std::vector<std::size_t> after;
    bool is_last = false;
  };
  struct Part {
    std::vector<std::size_t> first, last;
    bool may_be_empty = false;
  };

  void connect(const std::vector<std::size_t>& from, const std::vector<std::size_t>& to) {
    edges_ += from.size() * to.size();
    if (edges_ > kMostEdges)
      throw Error(Error::Kind::unsupported, "a pattern of so many ways is not supported beside lengths");
    for (const std::size_t p : from) places_[p].after.insert(places_[p].after.end(), to.begin(), to.end());
  }

  Part joined(Part a, Part b) {
    connect(a.last, b.first);
    if (a.may_be_empty) a.first.insert(a.first.end(), b.first.begin(), b.first.end());
    if (b.may_be_empty) b.last.insert(b.last.end(), a.last.begin(), a.last.end());
    return {std::move(a.first), std::move(b.last), a.may_be_empty && b.may_be_empty};
  }

  Part place(const Expression& expression) {
    Part out;
    switch (expression.kind) {
      case Expression::Kind::characters: {
        if (expression.set.empty()) return out;  // nothing matches
        if (places_.size() >= kMostStates)
          throw Error(Error::Kind::unsupported, "a pattern of so many characters is not supported beside lengths");
        out.first = out.last = {places_.size()};
        places_.push_back({character(expression.set), {}});
        return out;
      }
      case Expression::Kind::sequence:
        out.may_be_empty = true;
        for (const Expression& child : expression.children) out = joined(std::move(out), place(child));
        return out;
      case Expression::Kind::alternatives:
        for (const Expression& child : expression.children) {
          const Part one = place(child);
          out.first.insert(out.first.end(), one.first.begin(), one.first.end());
          out.last.insert(out.last.end(), one.last.begin(), one.last.end());
          out.may_be_empty = out.may_be_empty || one.may_be_empty;
        }
        return out;
      case Expression::Kind::repetition:
        break;
    }
    // The copies that may be left out stand each inside the one before, so that each has one way on.
    const Expression& child = expression.children[0];
    out.may_be_empty = true;
    if (expression.most < 0) {
      out = place(child);
      connect(out.last, out.first);
      out.may_be_empty = out.may_be_empty || expression.least == 0;
    }
    for (int i = expression.least; i < expression.most; ++i) {
      out = joined(place(child), std::move(out));
      out.may_be_empty = true;
    }
    for (int i = expression.most < 0 ? 1 : 0; i < expression.least; ++i) out = joined(place(child), std::move(out));
    return out;
  }

  GrammarBuilder::Rule character(const CodePoints& set) {
    if (const auto found = characters_.find(set); found != characters_.end()) return found->second;
    return characters_[set] = builder_.rule(
               [&](Node n) { return in_json_ ? builder_.json_character(set, n) : builder_.character(set, n); });
  }

  std::vector<Node> entries(std::vector<std::size_t> to, const std::vector<std::optional<Node>>& states) {
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    std::vector<Node> ways;
    for (const std::size_t p : to)
      if (states[p]) ways.push_back(*states[p]);
    return ways;
  }

  /// By place, the node that takes its character as the `count`-th; `above` are those of one more character.
  std::vector<std::optional<Node>> level(const std::vector<std::optional<Node>>& above, int count, Node end) {
    std::vector<std::optional<Node>> out(places_.size());
    for (std::size_t p = 0; p < places_.size(); ++p) {
      std::vector<Node> ways = entries(places_[p].after, above);
      if (places_[p].is_last && count >= least_) ways.push_back(end);
      if (!ways.empty()) out[p] = builder_.call(places_[p].character, builder_.any_of(ways));
    }
    return out;
  }

  /// The same for the least count and all that are greater, whose states lead to each other.
  std::vector<std::optional<Node>> endless(Node end) {
    std::vector<bool> can_end(places_.size());
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (std::size_t p = 0; p < places_.size(); ++p) {
        const std::vector<std::size_t>& after = places_[p].after;
        if (can_end[p] || !(places_[p].is_last ||
                            std::any_of(after.begin(), after.end(), [&](std::size_t q) { return bool{can_end[q]}; })))
          continue;
        can_end[p] = has_changed = true;
      }
    }
    std::vector<GrammarBuilder::Rule> rules(places_.size());
    for (std::size_t p = 0; p < places_.size(); ++p)
      if (can_end[p]) rules[p] = builder_.declare();
    const auto states = [&](Node n) {
      std::vector<std::optional<Node>> out(places_.size());
      for (std::size_t p = 0; p < places_.size(); ++p)
        if (can_end[p]) out[p] = builder_.call(places_[p].character, builder_.call(rules[p], n));
      return out;
    };
    const std::vector<std::optional<Node>> inner = states(builder_.ret());
    for (std::size_t p = 0; p < places_.size(); ++p) {
      if (!can_end[p]) continue;
      builder_.define(rules[p], [&](Node n) {
        std::vector<Node> ways = entries(places_[p].after, inner);
        if (places_[p].is_last) ways.push_back(n);
        return builder_.any_of(ways);
      });
    }
    return states(end);
  }

  GrammarBuilder& builder_;
  bool in_json_;
  int least_, most_;
  std::vector<Place> places_;
  std::size_t edges_ = 0;
  std::map<CodePoints, GrammarBuilder::Rule> characters_;
};

}  // namespace

Node build_pattern(GrammarBuilder& builder, std::string_view pattern, bool in_json, Node next, int least, int most) {
  bool begins = false, ends = false;
  Expression expression = PatternParser(pattern).parse(begins, ends);
  const Expression anything{
      Expression::Kind::repetition, {}, {{Expression::Kind::characters, all_code_points(), {}, 0, 0}}, 0, -1};
  Expression whole;
  if (!begins) whole.children.push_back(anything);
  whole.children.push_back(std::move(expression));
  if (!ends) whole.children.push_back(anything);
  const bool is_counted = least > 0 || most >= 0;
  const Node text = is_counted ? CountedPattern(builder, in_json, least, most).build(whole, next)
                               : build(builder, whole, in_json, next);
  if (!builder.leads_to(text, next)) throw NothingMeets("pattern \"" + std::string(pattern) + "\": no text matches it");
  return text;
}

}  // namespace lockstep
