// One block of tool calls, from its opening tag to its end, as a stream: text in, events out.
//
// A call is announced at its end tag, or earlier once kStreamedBytes of one of its string values are in: a short call
// that breaks off can then still be taken for what it is, and a long one need not be waited for. Before the block
// announces anything, all of it may still turn out to be ordinary text; the parser around it keeps that text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/dsml.h"
#include "text/parser_event.h"
#include "text/tool_schemas.h"

namespace lockstep {

inline constexpr std::size_t kStreamedBytes = 64;

class CallBlock {
 public:
  struct Settings {
    Marker marker = Marker::native;
    bool is_orphan = false;           // invokes without a block around them; the text begins at the first one
    bool is_strict = false;           // text between the tags makes it no block
    bool parallel_tool_calls = true;  // false: closed after the first complete call
  };
  enum class State {
    open,
    closed,    // by its end tag, or for lack of interest in what follows
    failed,    // this is not how calls are written
    reopened,  // no call, and then another opening tag, after text or of native markup: the block begins there
  };

  /// Borrows the schemas, which must outlive it.
  CallBlock(const ToolSchemas& schemas, const Settings& settings);

  /// Takes what can be decided from the front of `text` and returns its size; the rest must come again, with more.
  std::size_t push(std::string_view text, std::vector<ParserEvent>& out);

  /// No more text comes. `rest` is what push() did not take. Returns how the block ends:
  enum class Ending {
    calls,    // with its calls, all complete
    cut,      // with its complete calls, and a last one or a tag was left out
    broken,   // after something was announced: as far as it goes, and it cannot be taken back
    text,     // it is no block: all of it is ordinary text
    prose,    // the limit came before a call, after text that may have led to one: text_before_calls()
    nothing,  // it was empty
  };
  Ending finish(std::string_view rest, GenerationEnd why, std::vector<ParserEvent>& out);

  /// Ends a call that was announced and will not be completed. `markup` as in ParserEvent.
  void break_off(bool closes, std::string markup, std::vector<ParserEvent>& out);

  State state() const { return state_; }
  int calls() const { return calls_; }
  bool is_announced() const { return is_announced_; }
  bool is_in_value() const { return place_ == InBlock::value; }
  bool all_known() const { return all_known_; }
  struct Span {
    std::size_t begin = 0, end = 0;
  };
  /// From the first text after the opening tags, which may be doubled, to the first invoke; from the beginning of what
  /// was pushed. Empty if there is only whitespace.
  Span text_before_calls() const { return has_text_ ? Span{text_begin_, text_end_} : Span{}; }

 private:
  enum class InBlock { between, invoke, value };
  using Events = std::vector<ParserEvent>;

  std::size_t step_between(std::string_view text);
  std::size_t step_invoke(std::string_view text, Events& out);
  std::size_t step_value(std::string_view text, Events& out);
  void begin_invoke(const Tag& tag);
  void begin_parameter(const Tag& tag, Events& out);
  void take_value(std::string_view text, Events& out);
  void end_parameter(Events& out);
  void end_invoke(Events& out);
  void announce_if_due(Events& out);
  void hold_member(std::string value);
  std::string arguments() const;
  void emit_arguments(std::string text, Events& out);

  const ToolSchemas& schemas_;
  Settings settings_;
  std::string block_open_, block_end_, invoke_open_, invoke_end_, parameter_open_, parameter_end_;  // tags

  State state_ = State::open;
  InBlock place_ = InBlock::between;
  int calls_ = 0;
  bool all_known_ = true;
  bool has_text_ = false;
  std::size_t text_begin_ = 0, text_end_ = 0;

  // The current call.
  std::string name_;
  int parameters_ = 0;
  bool is_announced_ = false;
  bool is_due_ = false;                                       // a string value is long enough to be streamed
  bool may_be_wrapped_ = false;                               // its only parameter so far may hold all the arguments
  int emitted_ = 0;                                           // members in the announced text
  std::vector<std::pair<std::string, std::string>> members_;  // not announced yet: key, JSON value

  // The current parameter.
  std::string key_;
  bool is_string_ = true;
  std::string value_;  // the part that is not announced yet
};

}  // namespace lockstep
