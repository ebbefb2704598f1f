#include "text/output_parser.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

FinishReason reason_of(GenerationEnd end) {
  return end == GenerationEnd::length ? FinishReason::length : FinishReason::stop;
}

// Every unfinished block in a thought is read to the end of the text before it is given up. A model that repeats itself
// leaves thousands, and no call.
constexpr int kMaxRejected = 16;

bool is_think_marker(char c) { return c == kSymbolThinkBegin || c == kSymbolThinkEnd; }

/// `bytes` more of the event's text came from this piece.
void add_piece(ParserEvent& event, std::int64_t piece, std::size_t bytes) {
  if (event.pieces.empty() || event.pieces.back() != piece) {
    event.pieces.push_back(piece);
    event.piece_bytes.push_back(0);
  }
  event.piece_bytes.back() += bytes;
}

}  // namespace

OutputParser::OutputParser(ParserOptions options)
    : options_(std::move(options)),
      schemas_(options_.tools),
      finds_calls_(options_.parses_calls && !schemas_.empty()),
      stop_(options_.stops),
      phase_(options_.opening) {}

// Input.

OutputParser::Events OutputParser::feed(std::string_view bytes) {
  is_spelled_ = true;
  if (!is_done_) take(spelled_.push(utf8_.push(bytes)));
  return std::exchange(out_, {});
}

OutputParser::Events OutputParser::feed_token(std::string_view bytes, bool is_added) {
  if (is_done_) return {};
  text_ += spelled_.finish();
  if (is_added) text_ += utf8_.finish();  // of the token before, whose character nothing completes
  piece_begins_.push_back(text_.size());
  take(is_added ? symbol_of(bytes) : utf8_.push(bytes));
  return std::exchange(out_, {});
}

OutputParser::Events OutputParser::finish(GenerationEnd why) {
  if (!is_done_) end(why);
  return std::exchange(out_, {});
}

void OutputParser::take(std::string_view symbols) {
  const std::size_t turn_end = symbols.find(kSymbolTurnEnd);
  text_ += symbols.substr(0, turn_end);
  if (turn_end != std::string_view::npos) {
    utf8_ = {};  // what they hold came later
    spelled_ = {};
    end(GenerationEnd::stop);
  } else {
    advance();
  }
}

FinishReason OutputParser::finish_reason() const {
  LOCKSTEP_CHECK(reason_.has_value());
  return *reason_;
}

std::optional<std::string> OutputParser::matched_stop() const {
  return stop_.is_stopped() ? std::optional(stop_.matched()) : std::nullopt;
}

bool OutputParser::can_close_thought() const {
  return !is_done_ && phase_ == Phase::reasoning && block_ == nullptr && utf8_.held().empty();
}

std::optional<SampledTurn> OutputParser::sampled_turn() const {
  LOCKSTEP_CHECK(reason_.has_value());
  if (!is_faithful_ || stop_.is_stopped()) return std::nullopt;
  const std::string_view all = std::string_view(text_).substr(0, at_);
  const std::size_t cut = phase_ == Phase::reasoning ? all.size() : answer_begin_;
  return SampledTurn{options_.opening, to_prompt(all), to_prompt(all.substr(0, cut)).text().size()};
}

// The machine. text_[at_, ...) is what was not decided yet; every step decides some of it, or needs more.

void OutputParser::advance() {
  while (!is_done_ && at_ < text_.size()) {
    const bool has_moved = block_ == nullptr ? scan() : is_trial_ ? advance_trial() : advance_block();
    if (!has_moved) return;
  }
}

/// Reasoning or content, up to the next marker. What may be the beginning of one is held back, with the newlines that
/// would belong to it.
bool OutputParser::scan() {
  std::size_t i = at_, fenced = at_;
  Fence fence = fence_;  // runs ahead of what is shown
  while (i < text_.size()) {
    const char c = text_[i];
    if (is_think_marker(c)) {
      show(at_, i);
      at_ = i;
      if (!is_done_) meet_think(c == kSymbolThinkBegin ? ThinkMarker::begin : ThinkMarker::end);
      return true;
    }
    if (!finds_calls_ || (c != '\n' && c != '<')) {
      ++i;
      continue;
    }
    std::size_t open = i;
    while (open < text_.size() && text_[open] == '\n') ++open;
    if (open < text_.size() && text_[open] != '<') {
      i = open;
      continue;
    }
    const std::size_t begin = open - std::min<std::size_t>(2, open - i);
    Opening opening{.found = Found::maybe};
    if (open < text_.size()) {
      fence.push(std::string_view(text_).substr(fenced, open - fenced));
      fenced = open;
      const std::size_t shown = phase_ == Phase::reasoning ? reasoning_bytes_ : content_bytes_;
      OpeningRules rules;
      rules.is_line_start = open == 0 || text_[open - 1] == '\n' || (shown == 0 && is_think_marker(text_[open - 1]));
      rules.is_in_fence = fence.is_inside();
      rules.only_blocks = phase_ == Phase::reasoning;
      rules.quote = quote_;
      opening = find_opening(std::string_view(text_).substr(open), rules, schemas_);
    }
    if (opening.found == Found::no) {
      i = open + 1;
      continue;
    }
    show(at_, begin);
    at_ = begin;
    if (is_done_ || opening.found == Found::maybe) return is_done_;
    open_marker(begin, open, opening);
    return true;
  }
  show(at_, i);
  at_ = i;
  return false;
}

void OutputParser::open_marker(std::size_t begin, std::size_t open, const Opening& opening) {
  using Kind = Opening::Kind;
  if (opening.kind == Kind::quote_begin || opening.kind == Kind::quote_end) {
    quote_ = opening.kind == Kind::quote_begin ? Quote::function_calls : Quote::none;
    show(begin, open + opening.size);
    at_ = open + opening.size;
    return;
  }
  const bool is_orphan = opening.kind == Kind::invoke;
  is_trial_ = phase_ == Phase::reasoning;
  quote_ = Quote::none;
  block_ =
      std::make_unique<CallBlock>(schemas_, CallBlock::Settings{.marker = opening.marker,
                                                                .is_orphan = is_orphan,
                                                                .is_strict = is_trial_,
                                                                .parallel_tool_calls = options_.parallel_tool_calls});
  block_begin_ = begin;
  opening_end_ = is_orphan ? open : open + opening.size;
  block_is_orphan_ = is_orphan;
  is_before_shown_ = false;
  at_ = opening_end_;
}

void OutputParser::meet_think(ThinkMarker marker) {
  const bool is_first = (phase_ == Phase::reasoning ? reasoning_bytes_ : content_bytes_) == 0;
  switch (effect_of(marker, phase_, is_first)) {
    case ThinkEffect::turns:
      phase_ = phase_ == Phase::reasoning ? Phase::content : Phase::reasoning;
      if (phase_ == Phase::content) answer_begin_ = at_ + 1;
      reasoning_bytes_ = 0;
      fence_ = {};
      quote_ = Quote::none;
      break;
    case ThinkEffect::is_swallowed:
      break;
    case ThinkEffect::is_text:
      show(at_, at_ + 1);
      break;
  }
  ++at_;
}

/// A block in the answer: its calls count as they come.
bool OutputParser::advance_block() {
  Events events;
  at_ += block_->push(std::string_view(text_).substr(at_), events);
  forward(events);
  if (is_done_) return true;
  switch (block_->state()) {
    case CallBlock::State::open:
      return false;
    case CallBlock::State::closed: {
      if (block_->calls() > 0) {
        finish_as(FinishReason::tool_calls);
        return true;
      }
      const bool is_text = block_->text_before_calls().end > 0;
      block_.reset();
      is_faithful_ = is_faithful_ && is_text;
      if (is_text) show(block_begin_, at_);
      return true;
    }
    case CallBlock::State::reopened: {
      std::size_t begin = at_;
      for (int i = 0; i < 2 && begin > opening_end_ && text_[begin - 1] == '\n'; ++i) --begin;
      block_.reset();
      show(block_begin_, begin);
      at_ = begin;
      return true;
    }
    case CallBlock::State::failed:
      break;
  }
  if (block_->is_announced() || block_->calls() > 0) {
    break_off(GenerationEnd::stop);
    finish_as(FinishReason::stop);
    return true;
  }
  block_.reset();
  quote_ = block_is_orphan_ ? Quote::none : Quote::tool_calls;
  show(block_begin_, at_);
  return true;
}

/// A block in reasoning: a call only if the generation ends right after it. Any other text, and it was only text.
/// Without parallel calls the first complete one ends the generation, as in the answer.
bool OutputParser::advance_trial() {
  const std::size_t think_end = text_.find(kSymbolThinkEnd, at_);
  if (!options_.parallel_tool_calls) {
    at_ += block_->push(std::string_view(text_).substr(0, think_end).substr(at_), trial_);
    if (block_->state() == CallBlock::State::closed && block_->calls() > 0 && block_->all_known()) {
      accept_trial();
      return true;
    }
  }
  if (think_end != std::string::npos) {  // no other block before it can be a call either
    drop_trial();
    show(block_begin_, think_end);
    at_ = think_end;
    return true;
  }
  at_ += block_->push(std::string_view(text_).substr(at_), trial_);
  const bool is_closed = block_->state() == CallBlock::State::closed;
  while (is_closed && at_ < text_.size() && is_space(text_[at_])) ++at_;
  const bool is_call = is_closed && at_ == text_.size() && block_->calls() > 0 && block_->all_known();
  if (is_call || block_->state() == CallBlock::State::open) return false;
  reject_trial();
  return true;
}

void OutputParser::drop_trial() {
  block_.reset();
  trial_.clear();
  is_trial_ = false;
}

/// Its opening tag is text; another block may begin inside it.
void OutputParser::reject_trial() {
  drop_trial();
  show(block_begin_, opening_end_);
  at_ = opening_end_;
}

// The end.

void OutputParser::end(GenerationEnd why) {
  text_ += spelled_.push(utf8_.finish());
  text_ += spelled_.finish();
  advance();
  settle_held(why);
  int rejected = 0;
  while (block_ != nullptr && !is_done_) {
    if (!is_trial_) {
      end_block(why);
    } else if (why == GenerationEnd::stop && block_->state() == CallBlock::State::closed) {
      accept_trial();
    } else if (why == GenerationEnd::stop && ++rejected <= kMaxRejected) {
      reject_trial();
      advance();
    } else {
      drop_trial();
      at_ = block_begin_;
    }
  }
  if (is_done_) return;
  show(at_, text_.size());
  at_ = text_.size();
  finish_as(reason_of(why));
}

/// Nothing completes the tag that was waited for: it is text, and another may begin in it. The limit in the middle of
/// an opening tag makes as little an answer as a call that it cuts off.
void OutputParser::settle_held(GenerationEnd why) {
  while (block_ == nullptr && !is_done_) {
    const std::size_t open = text_.find_first_not_of('\n', at_);
    if (open == std::string::npos) return;
    const bool is_answer = phase_ == Phase::content;
    if (why == GenerationEnd::length && is_answer && is_begun_tag(std::string_view(text_).substr(open))) {
      at_ = text_.size();
      is_faithful_ = false;
      return;
    }
    show(at_, open + 1);
    at_ = open + 1;
    advance();
  }
}

void OutputParser::accept_trial() {
  Events events = std::exchange(trial_, {});
  phase_ = Phase::content;
  answer_begin_ = block_begin_;
  is_trial_ = false;
  forward(events);
  finish_as(FinishReason::tool_calls);
}

void OutputParser::end_block(GenerationEnd why) {
  Events events;
  const CallBlock::Ending ending = block_->finish(std::string_view(text_).substr(at_), why, events);
  at_ = text_.size();
  forward(events);
  if (is_done_) return;
  switch (ending) {
    case CallBlock::Ending::calls:
      finish_as(why == GenerationEnd::length ? FinishReason::length : FinishReason::tool_calls);
      return;
    case CallBlock::Ending::cut:
    case CallBlock::Ending::broken:
      break_off(why);
      break;
    case CallBlock::Ending::text:
      block_.reset();
      at_ = block_begin_;  // end() shows what lies behind
      return;
    case CallBlock::Ending::prose:
      show_before_calls();
      break;
    case CallBlock::Ending::nothing:
      is_faithful_ = false;
      break;
  }
  finish_as(reason_of(why));
}

/// What came after the last complete call is left out of the answer, or, if there is no complete call and the model
/// stopped by itself, is its content.
void OutputParser::break_off(GenerationEnd why) {
  is_faithful_ = false;
  if (!block_->is_announced()) return;
  const bool is_stopped = why == GenerationEnd::stop;
  std::string markup;
  if (is_stopped && block_->calls() == 0) {
    markup = spell(std::string_view(text_).substr(block_begin_, at_ - block_begin_), Place::content);
    if (ContentGuard guard; is_spelled_) {
      markup = guard.push(markup);
      markup += guard.finish();
    }
  }
  Events events;
  block_->break_off(is_stopped, std::move(markup), events);
  forward(events);
}

void OutputParser::finish_as(FinishReason reason) {
  flush_content();
  if (is_done_) return;  // by a stop string in what was held
  reason_ = reason;
  is_done_ = true;
}

// Output.

/// Hands on the events of a block. The first ones settle that it is one.
void OutputParser::forward(Events& events) {
  if (events.empty()) return;
  show_before_calls();
  if (!is_done_) flush_content();
  for (ParserEvent& event : events)
    if (!is_done_) emit(std::move(event));
}

/// What is in a block before its first call is content, once, without the tags and the whitespace around it.
void OutputParser::show_before_calls() {
  const CallBlock::Span text = block_->text_before_calls();
  if (text.end == 0 || is_before_shown_) return;
  std::size_t newlines = block_begin_;
  while (newlines < opening_end_ && text_[newlines] == '\n') ++newlines;
  std::size_t end = opening_end_ + text.end;
  while (is_space(text_[end - 1])) --end;
  is_before_shown_ = true;
  is_faithful_ = false;
  show(block_begin_, newlines);
  show(opening_end_ + text.begin, end);
}

void OutputParser::show(std::size_t begin, std::size_t end) {
  if (begin == end || is_done_) return;
  const std::string_view symbols = std::string_view(text_).substr(begin, end - begin);
  fence_.push(symbols);
  if (phase_ == Phase::content) {
    show_content(begin, end);
    return;
  }
  std::string text = spell(symbols, Place::reasoning);
  reasoning_bytes_ += text.size();
  if (!text.empty()) emit({.kind = ParserEvent::Kind::reasoning, .text = std::move(text)});
}

/// Notes whose text it is, piece by piece, since what is held back comes out later.
void OutputParser::show_content(std::size_t begin, std::size_t end) {
  const std::string_view all = text_;
  if (is_spelled_ || piece_begins_.empty()) {
    emit_content(spell(all.substr(begin, end - begin), Place::content));
    return;
  }
  auto piece = std::lower_bound(piece_begins_.begin(), piece_begins_.end(), begin);
  if (piece == piece_begins_.end() || *piece > begin) --piece;
  std::string text;
  for (; piece != piece_begins_.end() && *piece < end; ++piece) {
    const std::size_t piece_end = piece + 1 == piece_begins_.end() ? all.size() : *(piece + 1);
    const std::size_t from = std::max(begin, *piece), to = std::min(end, piece_end);
    const std::string part = spell(all.substr(from, to - from), Place::content);
    // A piece of no text holds the first bytes of a character that the next one completes.
    if (part.empty() && from < to) continue;
    shares_.push_back({piece - piece_begins_.begin(), part.size()});
    text += part;
  }
  emit_content(std::move(text));
}

void OutputParser::emit_content(std::string text) {
  content_bytes_ += text.size();
  let_go(stop_.push(is_spelled_ ? guard_.push(text) : text));
}

/// Content ends here, or a call interrupts it: nothing more can complete what was held.
void OutputParser::flush_content() {
  let_go(stop_.push(guard_.finish()));
  if (!is_done_) let_go(stop_.finish());
}

void OutputParser::let_go(std::string text) {
  if (!text.empty()) {
    ParserEvent event{.kind = ParserEvent::Kind::content};
    pop_pieces(text.size(), event);
    event.text = std::move(text);
    emit(std::move(event));
  }
  if (!stop_.is_stopped() || is_done_) return;
  reason_ = FinishReason::stop;
  is_done_ = true;
}

void OutputParser::pop_pieces(std::size_t bytes, ParserEvent& event) {
  while (bytes > 0 && !shares_.empty()) {
    Share& share = shares_.front();
    const std::size_t taken = std::min(bytes, share.bytes);
    add_piece(event, share.piece, taken);
    bytes -= taken;
    share.bytes -= taken;
    if (share.bytes > 0) break;
    shares_.pop_front();
  }
}

void OutputParser::emit(ParserEvent event) {
  using Kind = ParserEvent::Kind;
  const bool is_text = event.kind == Kind::reasoning || event.kind == Kind::content || event.kind == Kind::arguments;
  if (!is_text || out_.empty() || out_.back().kind != event.kind || out_.back().call != event.call) {
    out_.push_back(std::move(event));
    return;
  }
  out_.back().text += event.text;
  for (std::size_t i = 0; i < event.pieces.size(); ++i) add_piece(out_.back(), event.pieces[i], event.piece_bytes[i]);
}

ParsedOutput parse_output(std::string_view text, ParserOptions options, GenerationEnd end) {
  OutputParser parser(std::move(options));
  ParsedOutput output;
  for (const ParserEvent& event : parser.feed(text)) append(output, event);
  for (const ParserEvent& event : parser.finish(end)) append(output, event);
  output.finish_reason = parser.finish_reason();
  return output;
}

}  // namespace lockstep
