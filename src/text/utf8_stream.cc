#include "text/utf8_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lockstep {

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.state == Utf8Step::State::cut) break;
    const auto length = static_cast<std::size_t>(step.length);
    out += step.state == Utf8Step::State::complete ? rest.substr(0, length) : kReplacement;
    rest.remove_prefix(length);
  }
  held_ = std::string(rest);
  LOCKSTEP_CHECK(held_.size() <= 3);
  return out;
}

std::string Utf8Stream::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty())
      throw Error(Error::Kind::bad_argument, "stop: a stop string is empty, expected at least one character");
}

std::string StopFilter::push(std::string_view text) {
  if (is_stopped()) return {};
  if (stops_.empty()) return std::string(text);
  std::string out;
  // Byte by byte, so that which stop string matches does not depend on how the text arrived.
  for (const char byte : text) {
    held_ += byte;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      if (!held_.ends_with(stops_[i])) continue;
      if (matched_ < 0 || stops_[i].size() > matched().size()) matched_ = static_cast<int>(i);
    }
    if (is_stopped()) {
      out += held_.substr(0, held_.size() - matched().size());
      held_.clear();
      return out;
    }
    const std::size_t keep = held_size();
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return out;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

const std::string& StopFilter::matched() const {
  LOCKSTEP_CHECK(is_stopped());
  return stops_[static_cast<std::size_t>(matched_)];
}

/// Length of the longest suffix of held_ that is a proper prefix of a stop string.
std::size_t StopFilter::held_size() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (!held_.ends_with(std::string_view(stop).substr(0, n))) continue;
      longest = n;
      break;
    }
  }
  return longest;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stop_(std::move(stops)) {}

std::string Detokenizer::push(Token token) { return stop_.push(utf8_.push(tokenizer_.bytes_of(token))); }

std::string Detokenizer::push(std::span<const Token> tokens) {
  std::string out;
  for (const Token token : tokens) out += push(token);
  return out;
}

std::string Detokenizer::finish() {
  std::string out = stop_.push(utf8_.finish());
  return out + stop_.finish();
}

}  // namespace lockstep
