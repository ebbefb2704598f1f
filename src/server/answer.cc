#include "server/answer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/http_error.h"
#include "text/chat.h"
#include "text/sampled_tokens.h"
#include "text/symbols.h"

namespace lockstep {
namespace {

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

GenerationEnd generation_end(JobResult::End end) {
  return end == JobResult::End::limit || end == JobResult::End::context ? GenerationEnd::length : GenerationEnd::stop;
}

}  // namespace

Answer::Answer(const AnswerSpec& spec, int choice, const Tokenizer& tokenizer, std::shared_ptr<AnswerSink> sink)
    : tokenizer_(tokenizer),
      sink_(std::move(sink)),
      choice_(choice),
      parser_(spec.parser),
      stop_tokens_(spec.stop_tokens),
      budget_(spec.thinking_budget),
      thought_end_(tokenizer.find_added(kThinkEnd)),
      has_logprobs_(spec.has_logprobs),
      is_bound_(spec.is_bound) {
  for (const std::shared_ptr<Grammar>& grammar : spec.grammars) {
    GrammarState state(grammar, spec.trie);
    if (state.accept_bytes(spec.begun.content)) states_.push_back(std::move(state));
  }
  if (states_.empty() && !spec.grammars.empty())
    throw ApiError(400,
                   "messages: the last one, which is to be continued, does not begin an answer of the form asked for",
                   "messages");
}

std::optional<Token> Answer::forced() {
  const bool is_over = parser_.phase() == Phase::reasoning && budget_.is_spent() && parser_.can_close_thought();
  return is_over ? thought_end_ : std::nullopt;
}

void Answer::mask(std::span<float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (parser_.phase() == Phase::reasoning) {
    if (is_bound_)
      for (const Token token : stop_tokens_) logits[static_cast<std::size_t>(token)] = kNever;
    return;
  }
  if (states_.empty()) return;
  if (states_.size() == 1) return states_[0].mask(logits, stop_tokens_);
  // What any of them allows.
  const std::vector<float> all(logits.begin(), logits.end());
  std::fill(logits.begin(), logits.end(), kNever);
  for (const GrammarState& state : states_) {
    scratch_ = all;
    state.mask(scratch_, stop_tokens_);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::max(logits[i], scratch_[i]);
  }
}

bool Answer::masks() const { return parser_.phase() == Phase::reasoning ? is_bound_ : !states_.empty(); }

/// A token that no grammar has next was forced, or a stop token of the vocabulary that is fed like any other: the rest
/// of the answer is then free.
void Answer::follow(std::string_view bytes, bool is_added) {
  std::erase_if(states_, [&](GrammarState& state) {
    return !(is_added ? state.accept_added(bytes) : state.accept_bytes(bytes));
  });
}

bool Answer::on_token(const Sampled& sampled) {
  const std::string_view bytes = tokenizer_.bytes_of(sampled.token);
  const bool is_added = tokenizer_.is_added(sampled.token);
  const bool was_thinking = parser_.phase() == Phase::reasoning;
  if (was_thinking) budget_.count();
  if (!was_thinking && !states_.empty()) follow(bytes, is_added);
  if (has_logprobs_) fed_.push_back(sampled);
  sampled_.push_back(sampled.token);
  sink_->on_token(choice_, sampled.token, std::exchange(is_first_, false));
  hand_on(parser_.feed_token(bytes, is_added));
  return !parser_.is_done();
}

void Answer::hand_on(std::vector<ParserEvent> events) {
  for (ParserEvent& event : events) {
    if (has_logprobs_ && event.kind == ParserEvent::Kind::content) {
      hand_on_content(std::move(event));
      continue;
    }
    end_content();
    AnswerPiece piece;
    piece.event = std::move(event);
    sink_->on_piece(choice_, std::move(piece));
  }
}

/// Content with its tokens, each of them once.
void Answer::hand_on_content(ParserEvent event) {
  TokenText settled;
  std::size_t at = 0;
  for (std::size_t i = 0; i < event.pieces.size(); ++i) {
    const std::string_view text = std::string_view(event.text).substr(at, event.piece_bytes[i]);
    at += text.size();
    if (event.pieces[i] < next_told_) {
      texts_.add(text, settled);
      continue;
    }
    const Sampled& sampled = fed_.at(static_cast<std::size_t>(event.pieces[i]));
    texts_.add({sampled, 0, std::string(tokenizer_.bytes_of(sampled.token))}, text, settled);
    next_told_ = event.pieces[i] + 1;
  }
  hand_on_settled(std::move(settled));
}

void Answer::hand_on_settled(TokenText settled) {
  if (settled.text.empty()) return;
  AnswerPiece piece;
  piece.event = {.kind = ParserEvent::Kind::content, .text = std::move(settled.text)};
  piece.tokens = std::move(settled.tokens);
  sink_->on_piece(choice_, std::move(piece));
}

/// What the last token has in the content is all that will be.
void Answer::end_content() {
  if (!has_logprobs_) return;
  TokenText settled;
  texts_.end(settled);
  hand_on_settled(std::move(settled));
}

void Answer::on_end(const JobResult& result) {
  const bool is_answer = result.end != JobResult::End::failed && result.end != JobResult::End::cancelled;
  AnswerEnd end;
  if (is_answer) {
    hand_on(parser_.finish(generation_end(result.end)));
    end.reason = parser_.finish_reason();
    end.stop = parser_.matched_stop();
    // The end of a turn, which later prompts have behind it, does not fit into a thought.
    const bool is_in_thought = end.reason == FinishReason::length && parser_.phase() == Phase::reasoning;
    if (!is_in_thought) end.turn = parser_.sampled_turn();
    if (end.turn) keep_tokens(*end.turn, sampled_, tokenizer_);
  }
  end_content();
  end.result = result;
  end.reasoning_tokens = budget_.used();
  sink_->on_end(choice_, std::move(end));
}

TextAnswer::TextAnswer(Settings settings, int choice, const Tokenizer& tokenizer, std::shared_ptr<AnswerSink> sink)
    : tokenizer_(tokenizer),
      sink_(std::move(sink)),
      choice_(choice),
      settings_(std::move(settings)),
      stop_(settings_.stops) {}

void TextAnswer::on_prompt_token(const Sampled& sampled) { scores_.push_back(sampled); }

/// The prompt before the answer. The first of its tokens has no log probability: nothing stands before it.
void TextAnswer::tell_echo() {
  if (std::exchange(has_echoed_, true) || settings_.echo.empty()) return;
  AnswerPiece piece;
  piece.event.text = settings_.echo;
  // A beginning of sentence that the client did not write is scored too, but is none of its tokens.
  const std::size_t listed = settings_.echo_tokens.size();
  const std::size_t hidden = listed > 0 && scores_.size() + 1 > listed ? scores_.size() + 1 - listed : 0;
  Utf8Stream utf8;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < listed; ++i) {
    AnswerToken token;
    if (i + hidden > 0 && i + hidden - 1 < scores_.size()) token.sampled = scores_[i + hidden - 1];
    token.sampled.token = settings_.echo_tokens[i];
    if (i == 0) token.sampled.logprob.reset();
    token.offset = offset;
    token.bytes = tokenizer_.bytes_of(token.sampled.token);
    offset += code_points(utf8.push(token.bytes));
    piece.tokens.push_back(std::move(token));
  }
  decoded_ = code_points(settings_.echo);
  sink_->on_piece(choice_, std::move(piece));
}

bool TextAnswer::on_token(const Sampled& sampled) {
  sink_->on_token(choice_, sampled.token, std::exchange(is_first_, false));
  tell_echo();
  const std::string_view bytes = tokenizer_.bytes_of(sampled.token);
  const std::string text = utf8_.push(bytes);
  if (settings_.has_logprobs) waiting_.push_back({{sampled, decoded_, std::string(bytes)}, text.size()});
  decoded_ += code_points(text);
  tell(stop_.push(text), false);
  return !stop_.is_stopped();
}

/// Text that is let go; `is_last`: and no more comes.
void TextAnswer::tell(std::string text, bool is_last) {
  AnswerPiece piece;
  if (!settings_.has_logprobs) {
    piece.event.text = std::move(text);
  } else {
    TokenText settled;
    std::string_view left = text;
    while (!left.empty() && !waiting_.empty()) {
      Waiting& next = waiting_.front();
      const std::string_view part = left.substr(0, next.bytes);
      left.remove_prefix(part.size());
      if (std::exchange(next.is_begun, true)) {
        texts_.add(part, settled);
      } else {
        texts_.add(std::move(next.token), part, settled);
      }
      next.bytes -= part.size();
      if (next.bytes > 0) break;
      waiting_.pop_front();
    }
    if (is_last) texts_.end(settled);
    piece.event.text = std::move(settled.text);
    piece.tokens = std::move(settled.tokens);
  }
  if (!piece.event.text.empty()) sink_->on_piece(choice_, std::move(piece));
}

void TextAnswer::on_end(const JobResult& result) {
  AnswerEnd end;
  end.result = result;
  if (result.end != JobResult::End::failed && result.end != JobResult::End::cancelled) {
    tell_echo();
    const std::string unfinished = utf8_.finish();  // of the last token
    if (!waiting_.empty()) waiting_.back().bytes += unfinished.size();
    std::string rest = stop_.push(unfinished);
    rest += stop_.finish();
    tell(std::move(rest), true);
    if (stop_.is_stopped()) end.stop = stop_.matched();
    const bool is_cut = !stop_.is_stopped() && generation_end(result.end) == GenerationEnd::length;
    end.reason = is_cut ? FinishReason::length : FinishReason::stop;
  }
  sink_->on_end(choice_, std::move(end));
}

}  // namespace lockstep
