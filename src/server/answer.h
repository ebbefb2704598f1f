// The guides of jobs: tokens of the scheduler become pieces of an answer.
//
// Answer follows a chat turn: it feeds the output parser, keeps to the grammars, closes a thought that has become too
// long, and knows which token a piece of content came from. TextAnswer is a plain continuation. Both hand their pieces
// to a sink, whichever way they are then shown; the sink is called from the scheduler's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar.h"
#include "engine/scheduler.h"
#include "server/token_texts.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace lockstep {

struct AnswerPiece {
  ParserEvent event;
  std::vector<AnswerToken> tokens;  // of its content, if the job asks for log probabilities: then all of it is theirs
};

struct AnswerEnd {
  JobResult result;
  FinishReason reason = FinishReason::stop;
  std::optional<std::string> stop;  // the stop string that ended it
  std::int64_t reasoning_tokens = 0;
  std::optional<SampledTurn> turn;  // what to repeat when the client sends it back
};

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// Asked at every layer and token; must take no lock.
  virtual bool is_cancelled() const = 0;
  virtual void on_prefill(int choice, const PrefillProgress& progress) = 0;
  virtual void on_piece(int choice, AnswerPiece piece) = 0;
  /// A token was sampled, whether or not it gave a piece; `is_first` of its answer.
  virtual void on_token(int choice, Token token, bool is_first) = 0;
  virtual void on_end(int choice, AnswerEnd end) = 0;
};

/// What the prompt already holds of an answer: of a message that is continued.
struct BegunAnswer {
  std::string reasoning, content;
  SampledTurn turn;
};

/// What the answers of one request have in common.
struct AnswerSpec {
  ParserOptions parser;
  std::vector<std::shared_ptr<Grammar>> grammars;  // any of which the answer may follow; empty: it is free
  std::shared_ptr<const TokenTrie> trie;
  BegunAnswer begun;
  std::optional<std::int64_t> thinking_budget;
  std::vector<Token> stop_tokens;
  bool has_logprobs = false;
  bool is_bound = false;  // to the grammars: the turn may not end within a thought, before it has followed one
};

class Answer : public Guide {
 public:
  /// Borrows the tokenizer. Throws ApiError 400 if what has begun does not fit the grammar.
  Answer(const AnswerSpec& spec, int choice, const Tokenizer& tokenizer, std::shared_ptr<AnswerSink> sink);

  bool is_cancelled() const override { return sink_->is_cancelled(); }
  void on_prefill(const PrefillProgress& progress) override { sink_->on_prefill(choice_, progress); }
  std::optional<Token> forced() override;
  void mask(std::span<float> logits) override;
  bool masks() const override;
  bool on_token(const Sampled& sampled) override;
  void on_end(const JobResult& result) override;

 private:
  void follow(std::string_view bytes, bool is_added);
  void hand_on(std::vector<ParserEvent> events);
  void hand_on_content(ParserEvent event);
  void hand_on_settled(TokenText settled);
  void end_content();

  const Tokenizer& tokenizer_;
  std::shared_ptr<AnswerSink> sink_;
  int choice_;
  OutputParser parser_;
  std::vector<GrammarState> states_;  // those that the answer still fits
  std::vector<Token> stop_tokens_;
  ThoughtBudget budget_;
  std::optional<Token> thought_end_;
  bool has_logprobs_, is_bound_;
  std::vector<Token> sampled_;
  // If log probabilities are asked for: all tokens, the next of them that has been in no content, and texts of those
  // that have.
  std::vector<Sampled> fed_;
  std::int64_t next_told_ = 0;
  TokenTexts texts_;
  bool is_first_ = true;
  std::vector<float> scratch_;  // of mask()
};

class TextAnswer : public Guide {
 public:
  struct Settings {
    std::vector<std::string> stops;
    std::string echo;                // text that stands before the answer's
    std::vector<Token> echo_tokens;  // the prompt's, to be scored; empty: no scores
    bool has_logprobs = false;
  };

  TextAnswer(Settings settings, int choice, const Tokenizer& tokenizer, std::shared_ptr<AnswerSink> sink);

  bool is_cancelled() const override { return sink_->is_cancelled(); }
  void on_prefill(const PrefillProgress& progress) override { sink_->on_prefill(choice_, progress); }
  void on_prompt_token(const Sampled& sampled) override;
  bool masks() const override { return false; }
  bool on_token(const Sampled& sampled) override;
  void on_end(const JobResult& result) override;

 private:
  void tell_echo();
  void tell(std::string text, bool is_last);

  const Tokenizer& tokenizer_;
  std::shared_ptr<AnswerSink> sink_;
  int choice_;
  Settings settings_;
  Utf8Stream utf8_;
  StopFilter stop_;
  struct Waiting {
    AnswerToken token;
    std::size_t bytes = 0;  // of its text, that are held back
    bool is_begun = false;  // a part of its text is not
  };
  std::vector<Sampled> scores_;  // of the prompt's tokens
  std::deque<Waiting> waiting_;  // if log probabilities are asked for
  TokenTexts texts_;
  std::size_t decoded_ = 0;  // code points
  bool has_echoed_ = false, is_first_ = true;
};

}  // namespace lockstep
