// Numbers within bounds, digit by digit: what may follow depends on whether the digits so far equal those of a bound.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "engine/grammar_builder.h"

namespace lockstep {
namespace {

using Node = GrammarBuilder::Node;

constexpr std::size_t kMostDigits = 18;  // before and after the point each

/// A magnitude: digits before the point without leading zeros ("0" for none) and after it without trailing zeros.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0", fraction;
  bool is_far = false;  // more digits than numbers here have
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

Decimal parse_decimal(std::string_view text) {
  const auto fail = [said = std::string(text)]() -> Decimal {
    throw Error(Error::Kind::unsupported, "bound " + said + ": expected a number of at most " +
                                              std::to_string(kMostDigits) + " digits before and after the point");
  };
  Decimal out;
  if (text.starts_with('-')) {
    out.is_negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
    text = text.substr(0, e);
  }
  if (exponent > 400) exponent = 400;  // as far as any that a double has
  if (exponent < -100) return fail();
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  auto places = static_cast<std::ptrdiff_t>(digits.size()) + exponent;  // digits before the point
  if (point < text.size()) digits += text.substr(point + 1);
  if (places < 0) {
    digits.insert(0, static_cast<std::size_t>(-places), '0');
    places = 0;
  }
  if (static_cast<std::size_t>(places) > digits.size())
    digits.append(static_cast<std::size_t>(places) - digits.size(), '0');
  out.whole = digits.substr(0, static_cast<std::size_t>(places));
  out.fraction = digits.substr(static_cast<std::size_t>(places));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole.push_back('0');
  out.fraction.resize(out.fraction.find_last_not_of('0') + 1);
  if (out.is_zero()) out.is_negative = false;
  if (out.whole.size() > kMostDigits) {
    out.is_far = true;
    return out;
  }
  if (out.fraction.size() > kMostDigits) return fail();
  return out;
}

/// -1, 0, 1 as a is less, equal or greater; magnitudes only.
int compare(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int c = a.whole.compare(b.whole); c != 0) return c < 0 ? -1 : 1;
  const int c = a.fraction.compare(b.fraction);
  return c < 0 ? -1 : c > 0 ? 1 : 0;
}

struct Limit {
  std::optional<Decimal> value;
  bool is_excluded = false;
};

/// Magnitudes from `least` to `most`, the latter if it has a value.
class MagnitudeBuilder {
 public:
  MagnitudeBuilder(GrammarBuilder& builder, const Limit& least, const Limit& most, bool is_integer, Node next)
      : builder_(builder), least_(least), most_(most), is_integer_(is_integer), next_(next) {}

  Node build() {
    std::vector<Node> ways;
    const std::size_t shortest = least_.value->whole.size();
    const std::size_t longest = most_.value ? most_.value->whole.size() : kMostDigits;
    for (std::size_t length = shortest; length <= longest; ++length)
      ways.push_back(whole(length, 0, length == shortest, most_.value && length == longest));
    return builder_.any_of(ways);
  }

 private:
  Node digits(char first, char last, Node next) {
    return builder_.range(static_cast<unsigned char>(first), static_cast<unsigned char>(last), next);
  }
  Node any_digits(std::size_t least, std::size_t most, Node next) {
    return builder_.repeat([&](Node n) { return digits('0', '9', n); }, static_cast<int>(least), static_cast<int>(most),
                           next);
  }

  /// Digits [at, length) of the whole part; at_least and at_most say that those before equal a bound's.
  Node whole(std::size_t length, std::size_t at, bool at_least, bool at_most) {
    if (at == length) return after_whole(at_least, at_most);
    if (!at_least && !at_most && at > 0) return any_digits(length - at, length - at, after_whole(false, false));
    const char lowest = at == 0 && length > 1 ? '1' : '0';
    const char low = at_least ? std::max(least_.value->whole[at], lowest) : lowest;
    const char high = at_most ? most_.value->whole[at] : '9';
    std::vector<Node> ways;
    if (low > high) return builder_.any_of(ways);  // none
    const bool low_is_bound = at_least && low == least_.value->whole[at];
    if (low == high && low_is_bound && at_most) return digits(low, low, whole(length, at + 1, true, true));
    char from = low, to = high;
    if (low_is_bound) {
      ways.push_back(digits(low, low, whole(length, at + 1, true, at_most && low == high)));
      ++from;
    }
    if (at_most && from <= to) {
      ways.push_back(digits(high, high, whole(length, at + 1, false, true)));
      --to;
    }
    if (from <= to) ways.push_back(digits(from, to, whole(length, at + 1, false, false)));
    return builder_.any_of(ways);
  }

  Node after_whole(bool at_least, bool at_most) {
    const bool may_be_whole = !(at_least && (!least_.value->fraction.empty() || least_.is_excluded)) &&
                              !(at_most && most_.value->fraction.empty() && most_.is_excluded);
    std::vector<Node> ways;
    if (may_be_whole) ways.push_back(next_);
    if (!is_integer_) ways.push_back(builder_.range('.', '.', fraction(0, at_least, at_most)));
    return builder_.any_of(ways);
  }

  /// Digits of the fraction from `at` on, at least one more. Bounds' fractions go on with zeros for ever.
  Node fraction(std::size_t at, bool at_least, bool at_most) {
    if (!at_least && !at_most) return any_digits(1, kMostDigits - at, next_);
    std::vector<Node> ways;
    if (at == kMostDigits) return builder_.any_of(ways);
    const auto digit_of = [&](const Limit& limit) {
      return at < limit.value->fraction.size() ? limit.value->fraction[at] : '0';
    };
    const char low = at_least ? digit_of(least_) : '0', high = at_most ? digit_of(most_) : '9';
    for (char d = low; d <= high; ++d) {
      const bool still_least = at_least && d == low, still_most = at_most && d == high;
      // It may stop here if the zeros that then follow keep to both bounds.
      const bool is_enough = !still_least || (at + 1 >= least_.value->fraction.size() && !least_.is_excluded);
      const bool is_little = !still_most || at + 1 < most_.value->fraction.size() || !most_.is_excluded;
      std::vector<Node> then;
      if (is_enough && is_little) then.push_back(next_);
      if (still_least || still_most) {
        // Past its digits a greatest bound only lets zeros through, which say nothing; a least one can still be left.
        const std::size_t places = still_least ? kMostDigits : most_.value->fraction.size();
        if (at + 1 < places) then.push_back(fraction(at + 1, still_least, still_most));
      } else if (at + 1 < kMostDigits) {
        then.push_back(any_digits(1, kMostDigits - at - 1, next_));
      }
      if (!then.empty()) ways.push_back(digits(d, d, builder_.any_of(then)));
    }
    return builder_.any_of(ways);
  }

  GrammarBuilder& builder_;
  const Limit& least_;
  const Limit& most_;
  bool is_integer_;
  Node next_;
};

}  // namespace

void check_bound(const std::string& bound, bool is_least) {
  const Decimal value = parse_decimal(bound);
  if (value.is_far && value.is_negative != is_least)
    throw Error(Error::Kind::unsupported, (is_least ? "a least bound of " : "a greatest bound of ") + bound +
                                              ": numbers here have at most " + std::to_string(kMostDigits) +
                                              " digits before the point, expected a bound that one of them meets");
}

Node build_bounded_number(GrammarBuilder& builder, const NumberBounds& bounds, Node next) {
  Limit least{{}, bounds.excludes_least}, most{{}, bounds.excludes_most};
  const auto take = [](Limit& limit, const std::string& bound, bool is_least) {
    if (bound.empty()) return;
    check_bound(bound, is_least);
    limit.value = parse_decimal(bound);
    if (limit.value->is_far) limit.value.reset();  // all numbers here keep to it
  };
  take(least, bounds.least, true);
  take(most, bounds.most, false);
  const Limit zero{Decimal{}, false};
  std::vector<Node> ways;
  const auto add = [&](const Limit& from, const Limit& to, Node then, bool is_negative) {
    if (to.value) {
      const int order = compare(*from.value, *to.value);
      if (order > 0 || (order == 0 && (from.is_excluded || to.is_excluded))) return;
    }
    const Node magnitude = MagnitudeBuilder(builder, from, to, bounds.is_integer, then).build();
    ways.push_back(is_negative ? builder.range('-', '-', magnitude) : magnitude);
  };
  const bool least_is_negative = !least.value || least.value->is_negative;
  const bool most_is_negative = most.value && most.value->is_negative;
  if (!most_is_negative) add(least_is_negative ? zero : least, most, next, false);
  if (least_is_negative) {
    // The magnitude runs the other way. Not -0: it is 0, which the other branch has.
    Limit from = most_is_negative ? most : Limit{Decimal{}, true};
    add(from, least, next, true);
  }
  const Node number = builder.any_of(ways);
  if (!builder.leads_to(number, next)) {
    const auto bound = [](const std::string& text, bool is_excluded, const char* open, const char* closed) {
      return (is_excluded ? open : closed) + (text.empty() ? std::string("any") : text);
    };
    throw NothingMeets((bounds.is_integer ? "a whole number " : "a number ") +
                       bound(bounds.least, bounds.excludes_least, "above ", "of at least ") + " and " +
                       bound(bounds.most, bounds.excludes_most, "below ", "at most ") + ": there is none of at most " +
                       std::to_string(kMostDigits) + " digits before the point and after it");
  }
  return number;
}

}  // namespace lockstep
