// The model's output to reasoning, content and tool calls, piece by piece as it is sampled.
//
// One machine serves the streamed and the whole answer: the whole one is the join of the events. What is emitted is a
// function of all the text so far, never of where it was cut. docs/chat.md lists what is done with output that is not
// as the model was trained to write it.
//
// Promises: every text is valid UTF-8. A call's arguments join to a JSON object. No <think>, </think> or role token is
// ever in the content, and no tool markup is, except where docs/chat.md says that the markup was not a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/call_block.h"
#include "text/dsml.h"
#include "text/parser_event.h"
#include "text/prompt.h"
#include "text/symbols.h"
#include "text/thought.h"
#include "text/tool_schemas.h"
#include "text/utf8_stream.h"

namespace lockstep {

struct ParserOptions {
  Phase opening = Phase::content;       // where the prompt ended: phase_after(prompt)
  std::vector<std::string> tools = {};  // the request's functions as JSON, as in ChatRequest::tools
  bool parses_calls = true;             // false for tool_choice "none": markup is then ordinary content
  bool parallel_tool_calls = true;      // false: done after the first complete call
  std::vector<std::string> stops = {};  // matched in content only; the stop text is not emitted
};

class OutputParser {
 public:
  /// Throws Error::bad_argument for a tool that is no JSON object with a name, and for an empty stop string.
  explicit OutputParser(ParserOptions options);

  /// Bytes of which it is not known which are control tokens: markers count where they are spelled. They may end in
  /// the middle of a character or of a marker.
  std::vector<ParserEvent> feed(std::string_view bytes);

  /// One sampled token: its bytes, and whether it is an added token of the vocabulary (Tokenizer::is_added). Markers
  /// count only as added tokens: the same characters spelled by others are text. A role or end token ends the turn.
  std::vector<ParserEvent> feed_token(std::string_view bytes, bool is_added);

  /// The generation is over. Must be called once, also after is_done().
  std::vector<ParserEvent> finish(GenerationEnd end);

  /// Nothing that follows matters: the tool block was closed, a stop string matched, or the turn ended. Stop sampling.
  bool is_done() const { return is_done_; }
  /// Only after finish() or is_done().
  FinishReason finish_reason() const;
  /// The stop string that ended the generation, if one did.
  std::optional<std::string> matched_stop() const;

  Phase phase() const { return phase_; }
  /// Whether a forced </think> would do no harm: in reasoning, not inside a call, not in the middle of a character.
  bool can_close_thought() const;
  /// In the tags of a tool block, where the next tokens are structure and not values.
  bool is_in_structure() const { return block_ && !block_->is_in_value(); }

  /// What was sampled, after finish(). Nothing if a part of it was left out of the answer (a call that was cut off):
  /// repeating it would show the model what the client never saw.
  std::optional<SampledTurn> sampled_turn() const;

 private:
  using Events = std::vector<ParserEvent>;

  void take(std::string_view symbols);
  void advance();
  bool scan();
  bool advance_block();
  bool advance_trial();
  void open_marker(std::size_t begin, std::size_t open, const Opening& opening);
  void drop_trial();
  void reject_trial();
  void accept_trial();
  void end(GenerationEnd why);
  void settle_held(GenerationEnd why);
  void end_block(GenerationEnd why);
  void break_off(GenerationEnd why);
  void finish_as(FinishReason reason);
  void forward(Events& events);
  void show_before_calls();
  void meet_think(ThinkMarker marker);
  void show(std::size_t begin, std::size_t end);
  void show_content(std::size_t begin, std::size_t end);
  void emit_content(std::string text);
  void flush_content();
  void let_go(std::string text);
  void emit(ParserEvent event);
  void pop_pieces(std::size_t bytes, ParserEvent& event);

  ParserOptions options_;
  ToolSchemas schemas_;
  bool finds_calls_;
  Utf8Stream utf8_;
  SpelledControls spelled_;
  ContentGuard guard_;
  StopFilter stop_;

  std::string text_;    // everything so far, as symbols.h writes it
  std::size_t at_ = 0;  // what lies before was decided
  Phase phase_;
  Fence fence_;
  Quote quote_ = Quote::none;
  std::size_t reasoning_bytes_ = 0, content_bytes_ = 0;  // shown
  std::size_t answer_begin_ = 0;                         // in text_: after the last </think> that ended a thought

  std::unique_ptr<CallBlock> block_;
  bool is_trial_ = false;        // a block inside reasoning: its events wait for the end of the generation
  std::size_t block_begin_ = 0;  // in text_: at the newlines that belong to its opening tag
  std::size_t opening_end_ = 0;  // in text_: after its opening tag
  bool block_is_orphan_ = false;
  bool is_before_shown_ = false;  // the text between the opening tag and the first call
  Events trial_;

  bool is_done_ = false, is_faithful_ = true, is_spelled_ = false;
  std::optional<FinishReason> reason_;
  Events out_;

  struct Share {
    std::int64_t piece;
    std::size_t bytes;
  };
  std::vector<std::size_t> piece_begins_;  // in text_, of every feed_token
  std::deque<Share> shares_;               // of the text that stop_ holds or is about to let go
};

/// The whole text at once, as feed() reads it.
ParsedOutput parse_output(std::string_view text, ParserOptions options, GenerationEnd end);

}  // namespace lockstep
