"""The V4 chat format as training sees it: messages to text with roles, byte for byte what `lockstep render` writes.

A conversation is a list of messages as an OpenAI client sends them: {"role", "content", "reasoning_content"?,
"tool_calls"?: [{"id"?, "function": {"name", "arguments"}}], "tool_call_id"?}, where arguments may be an object or its
JSON text. One member of our own: "given": true on an assistant message means that the model reads it but does not learn
to write it. Only what the demo needs is here: one leading system message, no response format, no effort preamble.
"""

import json
import re

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"

PADDING, PROMPT, ANSWER = 0, 1, 2

_CONTROL = re.compile("(" + "|".join(map(re.escape, (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML))) + ")")

_TOOLS_BEFORE = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<{DSML}tool_calls>" block like the following:

<{DSML}tool_calls>
<{DSML}invoke name="$TOOL_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$TOOL_NAME2">
...
</{DSML}invoke>
</{DSML}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside \
{THINK}...{END_THINK} BEFORE any tool calls or final response.

Otherwise, output directly after {END_THINK} with tool calls or final response.

### Available Tool Schemas

"""
_TOOLS_AFTER = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"


class Prompt:
    """Rendered text as parts: (text, is it a control token, kind). Neighbouring plain parts of a kind are joined, so
    that tokens never depend on where a template ends and a message begins."""

    def __init__(self):
        self.parts = []

    def plain(self, text, kind=PROMPT):
        if not text:
            return
        if self.parts and not self.parts[-1][1] and self.parts[-1][2] == kind:
            self.parts[-1] = (self.parts[-1][0] + text, False, kind)
        else:
            self.parts.append((text, False, kind))

    def template(self, text, kind=PROMPT):
        """Text of ours, in which control tokens are control tokens."""
        for part in _CONTROL.split(text):
            if _CONTROL.fullmatch(part):
                self.parts.append((part, True, kind))
            else:
                self.plain(part, kind)

    def text(self):
        return "".join(part[0] for part in self.parts)

    def encode(self, encoder):
        """(ids, kinds), two lists of the same length."""
        ids, kinds = [], []
        for text, is_control, kind in self.parts:
            tokens = [encoder.added[text]] if is_control else encoder.encode_plain(text)
            ids += tokens
            kinds += [kind] * len(tokens)
        return ids, kinds


def function_of(tool):
    """The function object of a tool in the OpenAI form, or the tool itself when it is bare."""
    return tool["function"] if "function" in tool else tool


def arguments_of(function):
    arguments = function["arguments"]
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def write_tools(prompt, tools):
    prompt.template(_TOOLS_BEFORE)
    prompt.plain("\n".join(json.dumps(function_of(tool), ensure_ascii=False) for tool in tools))
    prompt.template(_TOOLS_AFTER)


def write_calls(prompt, calls, kind):
    prompt.template(f"\n\n<{DSML}tool_calls>\n", kind)
    for i, call in enumerate(calls):
        function = call["function"]
        prompt.template(f"<{DSML}invoke name=\"", kind)
        prompt.plain(function["name"] + "\">\n", kind)
        arguments = arguments_of(function)
        for j, (name, value) in enumerate(arguments.items()):
            is_string = isinstance(value, str)
            prompt.template(f"<{DSML}parameter name=\"", kind)
            prompt.plain(f"{name}\" string=\"{'true' if is_string else 'false'}\">", kind)
            prompt.plain(value if is_string else json.dumps(value, ensure_ascii=False), kind)
            prompt.template(f"</{DSML}parameter>" + ("\n" if j + 1 < len(arguments) else ""), kind)
        prompt.template(f"\n</{DSML}invoke>" + ("\n" if i + 1 < len(calls) else ""), kind)
    prompt.template(f"\n</{DSML}tool_calls>", kind)


def _user_turns(messages):
    """Messages with every run of user and tool messages merged into one user message, results in the order of calls."""
    out, run, calls = [], [], []
    for message in [*messages, None]:
        if message is not None and message["role"] in ("user", "tool"):
            run.append(message)
            continue
        if run:
            order = {call.get("id"): i for i, call in enumerate(calls)}
            results = iter(sorted((m for m in run if m["role"] == "tool"),
                                  key=lambda m: order.get(m.get("tool_call_id"), 0)))
            parts = [m["content"] if m["role"] == "user" else f"<tool_result>{next(results)['content']}</tool_result>"
                     for m in run]
            out.append({"role": "user", "content": "\n\n".join(parts)})
            run = []
        if message is not None:
            calls = message.get("tool_calls") or []
            out.append(message)
    return out


def render(messages, tools=None, thinking=False, drop_thinking=True):
    """The Prompt of a conversation. If it ends with a user turn, the assistant's turn is opened."""
    prompt = Prompt()
    prompt.template(BOS)
    messages = list(messages)
    system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else ""
    prompt.plain(system)
    if tools:
        prompt.plain("\n\n")
        write_tools(prompt, tools)
    turns = _user_turns(messages)
    last_user = max((i for i, turn in enumerate(turns) if turn["role"] == "user"), default=-1)
    keeps_all = bool(tools) or not drop_thinking
    for i, turn in enumerate(turns):
        if turn["role"] == "user":
            prompt.template(USER)
            prompt.plain(turn["content"])
            answered = i + 1 < len(turns)
            shows = thinking and (keeps_all or not answered or i + 1 > last_user)
            prompt.template(ASSISTANT + (THINK if shows else END_THINK))
        elif turn["role"] == "assistant":
            if i == 0 or turns[i - 1]["role"] != "user":
                raise ValueError("an assistant message must follow a user message")
            kind = PROMPT if turn.get("given") else ANSWER
            if thinking and (keeps_all or i > last_user):
                prompt.plain(turn.get("reasoning_content") or "", kind)
                prompt.template(END_THINK, kind)
            prompt.plain(turn.get("content") or "", kind)
            if turn.get("tool_calls"):
                write_calls(prompt, turn["tool_calls"], kind)
            prompt.template(EOS, kind)
        else:
            raise ValueError(f"role {turn['role']}: expected user, assistant or tool after a leading system message")
    return prompt
