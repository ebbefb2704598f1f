#include "engine/grammar_builder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

using Node = GrammarBuilder::Node;

constexpr std::uint32_t kNoRule = 0xffffffffu;
constexpr int kIndentation = 40;  // blanks after a new line
constexpr int kDigits = 18;       // of an integer, at most: more would go on for ever

/// UTF-8 of a code point.
std::string utf8_of(char32_t c) {
  std::string out;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
  return out;
}

/// Tells `visit` the byte ranges of sequences that together are [first, last]; both have UTF-8 of the same length.
void split_utf8(char32_t first, char32_t last, const std::function<void(std::string_view, std::string_view)>& visit) {
  const std::string a = utf8_of(first), b = utf8_of(last);
  for (std::size_t i = 1; i < a.size(); ++i) {
    const char32_t low = (char32_t{1} << 6 * i) - 1;  // the last i bytes
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      split_utf8(first, first | low, visit);
      return split_utf8((first | low) + 1, last, visit);
    }
    if ((last & low) != low) {
      split_utf8(first, (last & ~low) - 1, visit);
      return split_utf8(last & ~low, last, visit);
    }
  }
  visit(a, b);
}

ByteSet set_of(unsigned char first, unsigned char last) {
  ByteSet set;
  for (unsigned b = first; b <= last; ++b) set.set(b);
  return set;
}

}  // namespace

CodePoints normalised(CodePoints set) {
  std::sort(set.begin(), set.end());
  CodePoints out;
  for (const auto& [first, last] : set) {
    if (!out.empty() && first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, last);
    } else {
      out.emplace_back(first, last);
    }
  }
  return out;
}

CodePoints complement(const CodePoints& set) {
  CodePoints out;
  char32_t from = 0;
  const auto add = [&](char32_t first, char32_t end) {  // [first, end) without surrogates
    if (first < 0xd800 && first < end) out.emplace_back(first, std::min<char32_t>(end, 0xd800) - 1);
    const char32_t high = std::max<char32_t>(first, 0xe000);
    if (high < end) out.emplace_back(high, end - 1);
  };
  for (const auto& [first, last] : normalised(set)) {
    add(from, first);
    from = last + 1;
  }
  add(from, 0x110000);
  return out;
}

CodePoints all_code_points() { return complement({}); }

GrammarBuilder::GrammarBuilder() {
  program_.nodes.push_back({GrammarNode::Kind::ret, 0, 0});  // node 0: what ret() returns
  shared_.fill(kNoRule);
}

Node GrammarBuilder::add(GrammarNode node) {
  if (program_.nodes.size() >= kMostNodes)
    throw Error(Error::Kind::bad_argument, "schema: too large, expected one of at most " + std::to_string(kMostNodes) +
                                               " steps; lengths and counts in it may be smaller");
  program_.nodes.push_back(node);
  return static_cast<Node>(program_.nodes.size() - 1);
}

Node GrammarBuilder::bytes(const ByteSet& set, Node next) {
  const auto [found, is_new] = set_ids_.emplace(set, static_cast<std::uint32_t>(program_.sets.size()));
  if (is_new) program_.sets.push_back(set);
  return add({GrammarNode::Kind::bytes, found->second, next});
}

Node GrammarBuilder::range(unsigned char first, unsigned char last, Node next) {
  return bytes(set_of(first, last), next);
}

Node GrammarBuilder::literal(std::string_view text, Node next) {
  for (std::size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(text[i]);
    next = range(byte, byte, next);
  }
  return next;
}

Node GrammarBuilder::symbol(std::string_view text, Node next) {
  auto found = std::find(program_.symbols.begin(), program_.symbols.end(), text);
  if (found == program_.symbols.end()) found = program_.symbols.insert(found, std::string(text));
  return add({GrammarNode::Kind::symbol, static_cast<std::uint32_t>(found - program_.symbols.begin()), next});
}

Node GrammarBuilder::call(Rule rule, Node next) { return add({GrammarNode::Kind::call, rule, next}); }

Node GrammarBuilder::any_of(std::span<const Node> alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  const auto first = static_cast<std::uint32_t>(program_.alternatives.size());
  program_.alternatives.insert(program_.alternatives.end(), alternatives.begin(), alternatives.end());
  return add({GrammarNode::Kind::split, first, static_cast<std::uint32_t>(alternatives.size())});
}

Node GrammarBuilder::repeat(const Part& part, int least, int most, Node next) {
  Node node = next;
  if (most < 0) {
    const Node loop = any_of({next, next});  // its second way is set once it is known
    const Node body = part(loop);
    program_.alternatives[program_.nodes[loop].what + 1] = body;
    node = loop;
  } else {
    for (int i = least; i < most; ++i) node = any_of({part(node), next});
  }
  for (int i = 0; i < least; ++i) node = part(node);
  return node;
}

Node GrammarBuilder::character(const CodePoints& set, Node next) {
  std::vector<Node> ways;
  ByteSet ascii;
  for (auto [first, last] : set) {
    for (; first <= last && first < 0x80; ++first) ascii.set(first);
    // Apart by the length of their UTF-8.
    for (const char32_t end : {char32_t{0x7ff}, char32_t{0xffff}, char32_t{0x10ffff}}) {
      if (first > last || first > end) continue;
      split_utf8(first, std::min(last, end), [&](std::string_view a, std::string_view b) {
        Node node = next;
        for (std::size_t i = a.size(); i-- > 0;)
          node = range(static_cast<unsigned char>(a[i]), static_cast<unsigned char>(b[i]), node);
        ways.push_back(node);
      });
      first = end + 1;
    }
  }
  if (ascii.any()) ways.push_back(bytes(ascii, next));
  return any_of(ways);
}

Node GrammarBuilder::json_character(const CodePoints& set, Node next) {
  CodePoints plain;
  std::vector<Node> ways;
  const auto escape = [&](char32_t c) {
    static constexpr std::string_view kNames = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const std::size_t named = c < 0x80 ? kNames.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos) {
      ways.push_back(literal(std::string("\\") + kLetters[named], next));
    } else {
      static constexpr char kHex[] = "0123456789abcdef";
      ways.push_back(literal(std::string("\\u00") + kHex[c >> 4 & 15] + kHex[c & 15], next));
    }
  };
  for (const auto& [first, last] : set) {
    char32_t from = first;
    for (char32_t c = first; c <= last && c <= '\\'; ++c) {
      if (c >= 0x20 && c != '"' && c != '\\') continue;
      if (from < c) plain.emplace_back(from, c - 1);
      escape(c);
      from = c + 1;
    }
    if (from <= last) plain.emplace_back(from, last);
  }
  if (!plain.empty()) ways.push_back(character(plain, next));
  return any_of(ways);
}

GrammarBuilder::Rule GrammarBuilder::declare() {
  program_.rules.push_back(0);
  is_defined_.push_back(false);
  return static_cast<Rule>(program_.rules.size() - 1);
}

void GrammarBuilder::define(Rule rule, const Part& body) {
  is_defined_[rule] = true;
  program_.rules[rule] = body(ret());
}

bool GrammarBuilder::is_defined(Rule rule) const { return is_defined_[rule]; }

GrammarBuilder::Rule GrammarBuilder::rule(const Part& body) {
  const Rule rule = declare();
  define(rule, body);
  return rule;
}

GrammarBuilder::Rule GrammarBuilder::space() {
  if (shared_[0] != kNoRule) return shared_[0];
  return shared_[0] = rule([&](Node next) {
           const Node blanks = repeat([&](Node n) { return range(' ', ' ', n); }, 0, kIndentation, next);
           const Node tabs = repeat([&](Node n) { return range('\t', '\t', n); }, 0, kIndentation / 4, next);
           return any_of({next, range(' ', ' ', next), literal("\n", any_of({blanks, tabs}))});
         });
}

GrammarBuilder::Rule GrammarBuilder::string_character() {
  if (shared_[1] != kNoRule) return shared_[1];
  return shared_[1] = rule([&](Node next) {
           ByteSet letters;
           for (const char c : std::string_view("\"\\/bfnrt")) letters.set(static_cast<unsigned char>(c));
           const auto hex = [&](Node n) {
             ByteSet digits = set_of('0', '9') | set_of('a', 'f') | set_of('A', 'F');
             return bytes(digits, n);
           };
           // No surrogates: half of one is no character.
           ByteSet not_d = set_of('0', '9') | set_of('a', 'c') | set_of('e', 'f') | set_of('A', 'C') | set_of('E', 'F');
           ByteSet d;
           d.set('d').set('D');
           const Node code = any_of({bytes(not_d, hex(hex(hex(next)))), bytes(d, range('0', '7', hex(hex(next))))});
           const Node escape = range('\\', '\\', any_of({bytes(letters, next), range('u', 'u', code)}));
           CodePoints plain = complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
           return any_of({character(plain, next), escape});
         });
}

GrammarBuilder::Rule GrammarBuilder::json_string() {
  if (shared_[2] != kNoRule) return shared_[2];
  const Rule character = string_character();
  return shared_[2] = rule([&](Node next) {
           return literal("\"", repeat([&](Node n) { return call(character, n); }, 0, -1, literal("\"", next)));
         });
}

GrammarBuilder::Rule GrammarBuilder::json_integer() {
  if (shared_[3] != kNoRule) return shared_[3];
  return shared_[3] = rule([&](Node next) {
           const auto digit = [&](Node n) { return range('0', '9', n); };
           const Node magnitude = any_of({range('1', '9', repeat(digit, 0, kDigits - 1, next)), range('0', '0', next)});
           return maybe([&](Node n) { return range('-', '-', n); }, magnitude);
         });
}

GrammarBuilder::Rule GrammarBuilder::json_number() {
  if (shared_[4] != kNoRule) return shared_[4];
  const Rule integer = json_integer();
  return shared_[4] = rule([&](Node next) {
           const auto digit = [&](Node n) { return range('0', '9', n); };
           ByteSet e, sign;
           e.set('e').set('E');
           sign.set('+').set('-');
           const Node exponent =
               any_of({next, bytes(e, maybe([&](Node n) { return bytes(sign, n); }, repeat(digit, 1, 3, next)))});
           return call(integer, any_of({exponent, range('.', '.', repeat(digit, 1, kDigits, exponent))}));
         });
}

GrammarBuilder::Rule GrammarBuilder::json_object() {
  if (shared_[5] != kNoRule) return shared_[5];
  const Rule object = shared_[5] = declare();
  const Rule value = json_value(), string = json_string(), blank = space();
  define(object, [&](Node next) {
    const Node close = literal("}", next);
    const auto member = [&](Node n) { return call(string, literal(":", call(blank, call(value, call(blank, n))))); };
    const Node more = repeat([&](Node n) { return literal(",", call(blank, member(n))); }, 0, -1, close);
    return literal("{", call(blank, any_of({close, member(more)})));
  });
  return object;
}

GrammarBuilder::Rule GrammarBuilder::json_value() {
  if (shared_[6] != kNoRule) return shared_[6];
  const Rule value = shared_[6] = declare();
  const Rule object = json_object(), string = json_string(), number = json_number(), blank = space();
  define(value, [&](Node next) {
    const Node close = literal("]", next);
    const auto item = [&](Node n) { return call(value, call(blank, n)); };
    const Node more = repeat([&](Node n) { return literal(",", call(blank, item(n))); }, 0, -1, close);
    const Node array = literal("[", call(blank, any_of({close, item(more)})));
    return any_of({call(object, next), array, call(string, next), call(number, next), literal("true", next),
                   literal("false", next), literal("null", next)});
  });
  return value;
}

bool GrammarBuilder::leads_to(Node from, Node to) const {
  std::vector<bool> is_seen(program_.nodes.size(), false);
  std::vector<Node> open = {from};
  while (!open.empty()) {
    const Node at = open.back();
    open.pop_back();
    if (at == to) return true;
    if (is_seen[at]) continue;
    is_seen[at] = true;
    const GrammarNode& node = program_.nodes[at];
    if (node.kind == GrammarNode::Kind::ret) continue;
    if (node.kind != GrammarNode::Kind::split) {
      open.push_back(node.next);
    } else {
      for (std::uint32_t a = 0; a < node.next; ++a) open.push_back(program_.alternatives[node.what + a]);
    }
  }
  return false;
}

GrammarProgram GrammarBuilder::finish(const Part& body, std::string_view what) {
  program_.start = body(ret());
  cut_endless(what);
  return std::move(program_);
}

/// Finds the nodes from which an end can be reached, to a fixed point, and takes the others out of the alternatives.
void GrammarBuilder::cut_endless(std::string_view what) {
  const std::vector<GrammarNode>& nodes = program_.nodes;
  std::vector<bool> ends(nodes.size(), false);
  const auto can_end = [&](std::size_t i) -> bool {
    const GrammarNode& node = nodes[i];
    switch (node.kind) {
      case GrammarNode::Kind::ret:
        return true;
      case GrammarNode::Kind::bytes:
      case GrammarNode::Kind::symbol:
        return ends[node.next];
      case GrammarNode::Kind::call:
        return ends[program_.rules[node.what]] && ends[node.next];
      case GrammarNode::Kind::split:
        for (std::uint32_t a = 0; a < node.next; ++a)
          if (ends[program_.alternatives[node.what + a]]) return true;
        return false;
    }
    return false;
  };
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (ends[i] || !can_end(i)) continue;
      ends[i] = true;
      has_changed = true;
    }
  }
  if (!ends[program_.start])
    throw NothingMeets(std::string(what) +
                       ": nothing can meet it: what it asks for holds itself again and again, without an end");
  for (const GrammarNode& node : nodes) {
    if (node.kind != GrammarNode::Kind::split) continue;
    std::uint32_t* const first = program_.alternatives.data() + node.what;
    std::uint32_t* const live = std::find_if(first, first + node.next, [&](std::uint32_t a) { return ends[a]; });
    if (live == first + node.next) continue;  // nobody gets here
    for (std::uint32_t a = 0; a < node.next; ++a)
      if (!ends[first[a]]) first[a] = *live;
  }
}

}  // namespace lockstep
