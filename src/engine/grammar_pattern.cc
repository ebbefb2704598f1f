// Regular expressions of JSON Schema's `pattern`, as parts of a grammar.
#include <algorithm>
#include <memory>
#include <optional>

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
    if (at_ < text_.size()) fail(at_, "an unmatched )");
    ends = ends_here_;
    // ^a|b$ ties one way each: too rare to be worth another machine.
    if ((begins || ends) && all.kind == Expression::Kind::alternatives)
      fail(0, "^ or $ beside a | that is in no group");
    return all;
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw Error(Error::Kind::bad_argument,
                "pattern \"" + std::string(text_) + "\": " + what + " at character " + std::to_string(at) +
                    " is not understood, expected characters, classes, groups, |, * + ? {m,n}, ^ at the beginning and "
                    "$ at the end");
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
      if (!take('}') || (most >= 0 && most < least)) fail(at, "a { that counts nothing");
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
      if (!take(')')) fail(at, "an unmatched (");
      return inside;
    }
    if (take('[')) return characters(parse_class(at));
    if (take('.')) return characters(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (text_[at_] == '\\') return characters(parse_escape());
    if (std::string_view("*+?{^").find(text_[at_]) != std::string_view::npos) fail(at_, std::string(1, text_[at_]));
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
    if (at_ >= text_.size()) fail(at, "a \\ at the end");
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
      if (at_ >= text_.size()) fail(at, "an unmatched [");
      if (!is_first && is_at("[:")) fail(at_, "[:");
      CodePoints one = parse_member();
      if (one.size() == 1 && one[0].first == one[0].second && is_at("-") && !is_at("-]")) {
        ++at_;
        if (at_ >= text_.size()) fail(at, "an unmatched [");
        const CodePoints end = parse_member();
        if (end.size() != 1 || end[0].first != end[0].second || end[0].first < one[0].first)
          fail(at, "a range that does not ascend");
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

}  // namespace

Node build_pattern(GrammarBuilder& builder, std::string_view pattern, bool in_json, Node next) {
  bool begins = false, ends = false;
  const Expression expression = PatternParser(pattern).parse(begins, ends);
  const Expression anything{
      Expression::Kind::repetition, {}, {{Expression::Kind::characters, all_code_points(), {}, 0, 0}}, 0, -1};
  if (!ends) next = build(builder, anything, in_json, next);
  next = build(builder, expression, in_json, next);
  return begins ? next : build(builder, anything, in_json, next);
}

}  // namespace lockstep
