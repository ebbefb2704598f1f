#include "text/chat.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/chat_text.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

std::string_view text_of(Task task) {
  switch (task) {
    case Task::action:
      return "<｜action｜>";
    case Task::query:
      return "<｜query｜>";
    case Task::authority:
      return "<｜authority｜>";
    case Task::domain:
      return "<｜domain｜>";
    case Task::title:
      return "<｜title｜>";
    case Task::read_url:
      return "<｜read_url｜>";
  }
  return {};
}

std::string_view preamble_of(Profile profile, Effort effort) {
  if (profile == Profile::preview) return effort == Effort::max ? kEffortAbsolute : std::string_view();
  if (effort == Effort::high) return kEffortAbsolute;
  return effort == Effort::max ? kEffortBeyond : std::string_view();
}

struct Part {
  bool is_result = false;  // a tool's result, otherwise a user's text
  std::string_view text;
  std::string_view tool_call_id;
};

/// One message, or a run of user and tool messages that make one user turn.
struct Turn {
  Role role = Role::user;
  const Message* message = nullptr;  // of every role but user; nothing for an inserted system turn
  std::vector<Part> parts;           // of a user turn
  std::optional<Task> task;
  bool has_attachments = false;                  // the tools block and the response format follow its text
  const std::vector<ToolCall>* calls = nullptr;  // that a user turn's results answer
};

/// Puts the results of a user turn into the order of the calls, leaving user texts where they are. A result of an
/// unknown call counts as one of the first call.
void sort_results(std::vector<Part>& parts, const std::vector<ToolCall>& calls) {
  std::unordered_map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < calls.size(); ++i) place[calls[i].id] = i;
  const auto place_of = [&](const Part& part) {
    const auto found = place.find(part.tool_call_id);
    return found == place.end() ? std::size_t{0} : found->second;
  };
  std::vector<Part> results;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(results),
               [](const Part& part) { return part.is_result; });
  std::stable_sort(results.begin(), results.end(),
                   [&](const Part& a, const Part& b) { return place_of(a) < place_of(b); });
  auto next = results.begin();
  for (Part& part : parts)
    if (part.is_result) part = *next++;
}

std::vector<Turn> turns_of(const ChatRequest& request) {
  std::vector<Turn> turns;
  const std::vector<ToolCall>* calls = nullptr;  // of the last assistant message that made any
  for (const Message& message : request.messages) {
    const bool is_system = message.role == Role::developer && request.developer_as_system;
    const Role role = is_system ? Role::system : message.role;
    if (role != Role::user && role != Role::tool) {
      turns.push_back({role, &message, {}, message.task, false, nullptr});
      if (!message.tool_calls.empty()) calls = &message.tool_calls;
      continue;
    }
    const bool joins = !turns.empty() && turns.back().role == Role::user && (role == Role::tool || !turns.back().task);
    if (!joins) turns.emplace_back();
    Turn& turn = turns.back();
    turn.calls = calls;
    turn.parts.push_back({role == Role::tool, message.content, message.tool_call_id});
    if (message.task) turn.task = message.task;
  }
  for (Turn& turn : turns)
    if (turn.calls != nullptr) sort_results(turn.parts, *turn.calls);
  if (request.tools.empty() && !request.response_format) return turns;
  const bool has_place = turns[0].role == Role::system || turns[0].role == Role::developer;
  if (!has_place) turns.insert(turns.begin(), {Role::system, nullptr, {}, std::nullopt, false, nullptr});
  turns[0].has_attachments = true;
  return turns;
}

class Renderer {
 public:
  explicit Renderer(const ChatRequest& request) : request_(request), turns_(turns_of(request)) {
    // With tools nothing is dropped: the model needs to see why it made its calls.
    drops_ = request.drop_thinking && request.tools.empty();
    for (std::size_t i = 0; i < turns_.size(); ++i)
      if (turns_[i].role == Role::user || turns_[i].role == Role::developer)
        last_user_ = static_cast<std::ptrdiff_t>(i);
  }

  Prompt render() {
    control(kBosText);
    if (request_.thinking) trusted(preamble_of(request_.profile, request_.effort));
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      write_turn(i);
      const bool is_last = i + 1 == turns_.size();
      const bool is_followed =
          !is_last && (turns_[i + 1].role == Role::assistant || turns_[i + 1].role == Role::latest_reminder);
      if (is_last || is_followed) write_transition(i);
    }
    const Turn& last = turns_.back();
    if (last.role == Role::assistant && !last.task && request_.final_assistant == FinalAssistant::opens_a_turn) {
      control(kAssistantText);
      control(opening_of(request_.thinking ? Phase::reasoning : Phase::content));
    }
    return std::move(out_);
  }

 private:
  void trusted(std::string_view text) { out_.append(text, Trust::trusted); }
  void untrusted(std::string_view text) { out_.append(text, Trust::untrusted); }

  void control(std::string_view text) {
    needs(text);
    trusted(text);
  }

  void needs(std::string_view text) {
    if (std::find(out_.controls.begin(), out_.controls.end(), text) == out_.controls.end())
      out_.controls.emplace_back(text);
  }

  /// Writes <｜DSML｜text, or with its slash </｜DSML｜text.
  void dsml(std::string_view open, std::string_view text) {
    trusted(open);
    control(kDsml);
    trusted(text);
  }

  /// Whether the turn shows its reasoning. Of a user turn: whether the assistant turn that it opens does.
  bool keeps_reasoning(std::size_t i) const {
    if (!request_.thinking) return false;
    const auto place = static_cast<std::ptrdiff_t>(i);
    return !drops_ || (turns_[i].role == Role::assistant ? place > last_user_ : place >= last_user_);
  }

  void write_turn(std::size_t i) {
    const Turn& turn = turns_[i];
    switch (turn.role) {
      case Role::system:
        if (turn.message != nullptr) untrusted(turn.message->content);
        break;
      case Role::developer:
        control(kUserText);
        untrusted(turn.message->content);
        break;
      case Role::latest_reminder:
        control(kLatestReminder);
        untrusted(turn.message->content);
        break;
      case Role::user:
      case Role::tool:
        write_user(turn);
        break;
      case Role::assistant:
        write_assistant(i);
        break;
    }
    if (turn.has_attachments) write_attachments();
  }

  void write_user(const Turn& turn) {
    control(kUserText);
    bool is_first = true;
    for (const Part& part : turn.parts) {
      if (!std::exchange(is_first, false)) trusted("\n\n");
      if (part.is_result) trusted("<tool_result>");
      untrusted(part.text);
      if (part.is_result) trusted("</tool_result>");
    }
  }

  void write_assistant(std::size_t i) {
    const Message& message = *turns_[i].message;
    const bool answers_task = i > 0 && turns_[i - 1].task.has_value();
    const Phase opening = keeps_reasoning(i) && !answers_task ? Phase::reasoning : Phase::content;
    if (message.sampled) {
      write_sampled(*message.sampled, opening);
    } else {
      if (opening == Phase::reasoning) {
        untrusted(message.reasoning);
        control(kThinkEnd);
      }
      untrusted(message.content);
      if (!message.tool_calls.empty()) write_calls(message.tool_calls);
    }
    const bool is_continued = i + 1 == turns_.size() && request_.final_assistant == FinalAssistant::is_continued;
    if (!message.without_eos && !is_continued) control(kEosText);
  }

  /// `opening` is the marker before the turn. If it is the one that the turn was sampled after, all of it is repeated.
  void write_sampled(const SampledTurn& turn, Phase opening) {
    if (turn.opening == opening) return write(turn.whole);
    if (opening == Phase::reasoning) control(kThinkEnd);
    write(turn.whole.from(turn.answer_begin));
  }

  void write(const Prompt& part) {
    for (const Span& span : part.spans) out_.append(span);
  }

  void write_calls(const std::vector<ToolCall>& calls) {
    trusted("\n\n");
    dsml("<", "tool_calls>\n");
    for (const ToolCall& call : calls) {
      dsml("<", "invoke name=\"");
      untrusted(call.name);
      trusted("\">\n");
      write_arguments(call.arguments);
      trusted("\n");
      dsml("</", "invoke>\n");
    }
    dsml("</", "tool_calls>");
  }

  void write_arguments(const std::string& arguments) {
    std::optional<Json> parsed;
    try {
      parsed = parse_json(arguments, "arguments");
    } catch (const Error&) {  // the model wrote them, so they may be anything
    }
    if (!parsed || !parsed->is_object()) {
      write_parameter("arguments", true, arguments);
      return;
    }
    bool is_first = true;
    for (const auto& [name, value] : parsed->get_ref<const Json::object_t&>()) {
      if (!std::exchange(is_first, false)) trusted("\n");
      if (value.is_string()) {
        write_parameter(name, true, value.get_ref<const std::string&>());
      } else {
        write_parameter(name, false, dump_python(value));
      }
    }
  }

  void write_parameter(std::string_view name, bool is_string, std::string_view value) {
    dsml("<", "parameter name=\"");
    untrusted(name);
    trusted(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    untrusted(value);
    dsml("</", "parameter>");
  }

  void write_attachments() {
    if (!request_.tools.empty()) {
      for (const std::string_view needed : {kDsml, kThinkBegin, kThinkEnd}) needs(needed);  // in the fixed text
      trusted("\n\n");
      trusted(kToolsBefore);
      bool is_first = true;
      for (const std::string& tool : request_.tools) {
        if (!std::exchange(is_first, false)) trusted("\n");
        untrusted(tool);
      }
      trusted(kToolsAfter);
    }
    if (request_.response_format) {
      trusted("\n\n");
      trusted(kResponseFormat);
      untrusted(*request_.response_format);
    }
  }

  /// What stands between a turn and the assistant's words.
  void write_transition(std::size_t i) {
    const Turn& turn = turns_[i];
    if (turn.task && *turn.task != Task::action) {
      control(text_of(*turn.task));
      return;
    }
    if (!turn.task && turn.role != Role::user && turn.role != Role::developer) return;
    control(kAssistantText);
    const bool thinks = turn.task ? request_.thinking : keeps_reasoning(i);
    control(opening_of(thinks ? Phase::reasoning : Phase::content));
    if (turn.task) control(text_of(*turn.task));
  }

  const ChatRequest& request_;
  std::vector<Turn> turns_;
  bool drops_ = false;
  std::ptrdiff_t last_user_ = -1;
  Prompt out_;
};

}  // namespace

Prompt render_chat(const ChatRequest& request) {
  if (request.messages.empty())
    throw Error(Error::Kind::bad_argument, "messages: empty, expected at least one message");
  return Renderer(request).render();
}

Profile detect_profile(std::string_view chat_template, std::string_view model_name) {
  const bool is_0731 = chat_template.find("Beyond maximum") != std::string_view::npos ||
                       model_name.find("0731") != std::string_view::npos;
  return is_0731 ? Profile::release_0731 : Profile::preview;
}

void check_chat_vocabulary(const Tokenizer& tokenizer) {
  if (tokenizer.find_added("<｜System｜>"))
    throw Error(
        Error::Kind::unsupported,
        "vocabulary: it has '<｜System｜>', so it is that of DeepSeek V4.1, whose chat encoding is another one; "
        "expected V4 Flash");
  for (const std::string_view text : {kBosText, kEosText, kUserText, kAssistantText, kThinkBegin, kThinkEnd, kDsml})
    tokenizer.require_added(text);
}

}  // namespace lockstep
