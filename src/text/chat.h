// Messages to a prompt: the chat encoding of DeepSeek V4 Flash, byte for byte as the model was trained on it.
//
// This is the strict encoder. It takes clean messages and knows nothing of HTTP or of what clients send; the server
// normalises first. The result is spans (prompt.h): the template's own text is trusted, everything that came in a
// message, a schema or a call is not.
//
// The whole shape, with no newline between the parts and no marker before the system text:
//   BOS [preamble] system-text User user-text Assistant <think> reasoning </think> answer EOS User ...
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt.h"
#include "text/thought.h"

namespace lockstep {

class Tokenizer;

// The control tokens of a chat, by their text in the vocabulary.
inline constexpr std::string_view kUserText = "<｜User｜>";
inline constexpr std::string_view kAssistantText = "<｜Assistant｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";

/// V4 Flash has two public releases; they differ only in what the reasoning effort writes.
enum class Profile { preview, release_0731 };
enum class Effort { unset, low, high, max };
enum class Role { system, developer, user, assistant, tool, latest_reminder };
/// Quick instructions: a token that asks for one short answer about the conversation.
enum class Task { action, query, authority, domain, title, read_url };

struct ToolCall {
  std::string id;  // only to put results in order; never rendered
  std::string name;
  std::string arguments;  // JSON text; what is not a JSON object is rendered as one raw parameter
};

struct Message {
  Role role = Role::user;
  std::string content;
  std::string reasoning;             // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  std::string tool_call_id;          // tool
  std::optional<Task> task;
  bool without_eos = false;  // assistant: leave out its end-of-sentence token
  /// Assistant: the bytes that the model sampled for this very message, to be repeated (text/replay.h). Then
  /// `reasoning`, `content` and `tool_calls` are not rendered, but say which results belong to the turn.
  std::optional<SampledTurn> sampled = {};
};

/// What to do when the last message is the assistant's.
enum class FinalAssistant {
  as_it_is,      // the official encoder: its EOS, and no generation prompt
  is_continued,  // no EOS: the model goes on where it ends
  opens_a_turn,  // its EOS, then the opening of another assistant turn
};

struct ChatRequest {
  Profile profile = Profile::preview;
  bool thinking = true;
  Effort effort = Effort::unset;
  bool drop_thinking = true;         // forget the reasoning of earlier turns (never when there are tools)
  bool developer_as_system = false;  // the official encoder makes `developer` a user turn of its own
  FinalAssistant final_assistant = FinalAssistant::as_it_is;
  std::vector<Message> messages;
  std::vector<std::string> tools;              // each the client's `function` object, as dump_python writes it
  std::optional<std::string> response_format;  // the JSON to attach, as dump_python writes it
};

/// Renders a request. Errors: Error::bad_argument if there is no message.
Prompt render_chat(const ChatRequest& request);

/// Which release a model file is, from its chat template (never executed) and its name.
Profile detect_profile(std::string_view chat_template, std::string_view model_name);

/// Throws Error::unsupported if the vocabulary lacks a control token that every chat needs, or is that of V4.1, whose
/// encoding is another one.
void check_chat_vocabulary(const Tokenizer& tokenizer);

}  // namespace lockstep
