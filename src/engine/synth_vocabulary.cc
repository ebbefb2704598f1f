#include "engine/synth_vocabulary.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int kRealSize = 129280;
constexpr int kRealAdded = 128000;  // the first added token but BOS, EOS and pad
constexpr int kByteTokens = 256;

// Ids 128800 to 128846.
constexpr std::array<std::string_view, 47> kNamed = {"<｜fim▁hole｜>",
                                                     "<｜fim▁begin｜>",
                                                     "<｜fim▁end｜>",
                                                     "<｜User｜>",
                                                     "<｜Assistant｜>",
                                                     "<|EOT|>",
                                                     "<｜tool▁calls▁begin｜>",
                                                     "<｜tool▁calls▁end｜>",
                                                     "<｜tool▁call▁begin｜>",
                                                     "<｜tool▁call▁end｜>",
                                                     "<｜tool▁outputs▁begin｜>",
                                                     "<｜tool▁outputs▁end｜>",
                                                     "<｜tool▁output▁begin｜>",
                                                     "<｜tool▁output▁end｜>",
                                                     "<｜tool▁sep｜>",
                                                     "<｜begin▁of▁repo▁name｜>",
                                                     "<｜end▁of▁repo▁name｜>",
                                                     "<｜begin▁of▁file▁name｜>",
                                                     "<｜end▁of▁file▁name｜>",
                                                     "<｜begin▁of▁file｜>",
                                                     "<｜end▁of▁file｜>",
                                                     "<think>",
                                                     "</think>",
                                                     "<｜place▁holder▁for▁copy｜>",
                                                     "<｜place▁holder▁for▁pointer▁replace｜>",
                                                     "｜DSML｜",
                                                     "<｜begin▁sys｜>",
                                                     "<｜end▁sys｜>",
                                                     "<｜latest_reminder｜>",
                                                     "<｜action｜>",
                                                     "<｜query｜>",
                                                     "<｜authority｜>",
                                                     "<｜domain｜>",
                                                     "<｜task｜>",
                                                     "<｜political｜>",
                                                     "<｜entity｜>",
                                                     "<｜title｜>",
                                                     "<｜safety｜>",
                                                     "<｜answer｜>",
                                                     "<｜search｜>",
                                                     "<dsml:",
                                                     "</dsml:",
                                                     "<｜search▁begin｜>",
                                                     "<｜search▁end｜>",
                                                     "<｜extracted_url｜>",
                                                     "<｜read_url｜>",
                                                     "<｜end_of_query｜>"};

// Ids 129262 to 129279.
constexpr std::array<std::string_view, 18> kImages = {"<｜rl_image_pad｜>", "<｜rl_image_start｜>",
                                                      "<｜image2｜>",       "<｜/table>｜",
                                                      "<｜table｜>",        "<｜/td｜>",
                                                      "<｜td｜>",           "<｜/tr｜>",
                                                      "<｜tr｜>",           "<｜/polygon｜>",
                                                      "<｜polygon｜>",      "<｜/point｜>",
                                                      "<｜point｜>",        "<｜/box｜>",
                                                      "<｜box｜>",          "<｜/ref｜>",
                                                      "<｜ref｜>",          "<｜image｜>"};

std::string utf8_of(int code_point) {  // below U+0800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

class Builder {
 public:
  explicit Builder(int size) : size_(static_cast<std::size_t>(size)) {}

  void add(std::string text, TokenType type) {
    v.tokens.push_back(std::move(text));
    v.types.push_back(static_cast<std::int32_t>(type));
  }
  /// As the usual converter decides: what looks like <｜...｜> is a control token, the others are user-defined.
  void add_special(std::string_view text) {
    const bool control = text.starts_with("<｜") || text.starts_with("<|");
    add(std::string(text), control ? TokenType::control : TokenType::user_defined);
  }
  bool merge(std::size_t limit, std::string_view left, std::string_view right) {
    if (v.tokens.size() >= limit) return false;
    v.merges.push_back(fmt::format("{} {}", left, right));
    add(fmt::format("{}{}", left, right), TokenType::normal);
    return true;
  }

  /// Byte tokens in the order of their mapped characters, as in the real vocabulary ('!' is 3, a zero byte 191).
  void add_bytes() {
    const auto range = [&](int first, int last) {
      for (int c = first; c <= last; ++c) add(utf8_of(c), TokenType::normal);
    };
    range(33, 126);
    range(161, 172);
    range(174, 255);
    range(256, 256 + 67);
  }

  /// One token a merge, up to id `limit`: pairs of a space or letter and a letter, then triples, then pairs of pairs,
  /// the commonest letters first. All texts differ, because they are different strings of letters.
  void add_merges(std::size_t limit) {
    constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";
    std::vector<std::string> pairs;
    for (const std::string_view first : {std::string_view("Ġ"), kLetters}) {
      const std::size_t count = first == kLetters ? kLetters.size() : 1;
      for (std::size_t i = 0; i < count; ++i)
        for (const char letter : kLetters) {
          const std::string_view left = first == kLetters ? kLetters.substr(i, 1) : first;
          if (!merge(limit, left, {&letter, 1})) return;
          pairs.push_back(v.tokens.back());
        }
    }
    for (const std::string& pair : pairs)
      for (const char letter : kLetters)
        if (!merge(limit, pair, {&letter, 1})) return;
    for (const std::string& left : pairs)
      for (std::size_t right = kLetters.size(); right < pairs.size(); ++right)  // those without a space
        if (!merge(limit, left, pairs[right])) return;
    LOCKSTEP_CHECK(v.tokens.size() == limit);
  }

  void add_added_tokens() {
    const bool is_real = size_ >= static_cast<std::size_t>(kRealSize);
    for (int i = 0; is_real && i < 800; ++i) add_special(fmt::format("<｜place▁holder▁no▁{}｜>", i));
    for (const std::string_view text : kNamed) add_special(text);
    for (int i = 21; is_real && i <= 435; ++i) add_special(fmt::format("<|place_holder_mm_span_{:04}|>", i));
    for (std::size_t i = 0; is_real && i < kImages.size(); ++i) add_special(kImages[i]);
    LOCKSTEP_CHECK(v.tokens.size() <= size_);
  }

  Vocabulary v;

 private:
  std::size_t size_;
};

}  // namespace

Vocabulary synth_vocabulary(int size) {
  const int least = 3 + kByteTokens + static_cast<int>(kNamed.size());
  if (size < least || (size > kRealAdded && size != kRealSize))
    throw Error(Error::Kind::bad_argument,
                fmt::format("vocabulary of {} tokens: expected {} to {}, or {}", size, least, kRealAdded, kRealSize));
  Builder builder(size);
  builder.v.pre = "joyai-llm";
  builder.add_special(kBosText);
  builder.add_special(kEosText);
  builder.add_special("<｜▁pad▁｜>");
  builder.add_bytes();
  builder.add_merges(size == kRealSize ? kRealAdded : static_cast<std::size_t>(size) - kNamed.size());
  builder.add_added_tokens();
  LOCKSTEP_CHECK(static_cast<int>(builder.v.tokens.size()) == size);
  builder.v.bos = 0;
  builder.v.eos = 1;
  builder.v.pad = 1;
  return builder.v;
}

}  // namespace lockstep
