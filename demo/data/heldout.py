"""Held-out cases of every skill, and suites of cases as files.

    python3 -m demo.data.heldout        writes demo/prompts/heldout.jsonl and heldout_long.jsonl

A case has exactly one right answer; its items (pairs of numbers, wordings, texts) never occur in training, which
is_held_out in corpus.py decides. The format of a line is that of `lockstep eval`: {"name", "skill", "messages",
"tools"?, "thinking"?, "expect": {"content"?, "reasoning"?, "tool_calls"?}}.
"""

import argparse
import itertools
import json
import pathlib

from demo.data import chat, recall, style
from demo.data import words as w
from demo.data.corpus import Conversation, Corpus
from demo.data.encode import Encoder

_DEMO = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = _DEMO / "tokenizer.json"

# Skill -> number of cases in the shipped suites; the long ones go into a file of their own.
COUNTS = {"sum": 60, "thinking_sum": 40, "copy": 60, "fact": 60, "unknown": 40, "style_upper": 30, "style_ending": 30,
          "one_call": 40, "two_calls": 30, "tool_result": 40, "recall_150": 40, "multi_turn": 30}
LONG_COUNTS = {"recall_1000": 30, "recall_4000": 20}
SKILLS = [*COUNTS, *LONG_COUNTS]
_ENDLESS = 100_000


class HeldOut:
    """Draws conversations whose last assistant message is the case's answer."""

    def __init__(self, seed, encoder):
        self._corpus = Corpus(f"held out {seed}", encoder, held_out=True)
        self._encoder = encoder

    def conversation(self, skill):
        if skill in ("sum", "copy", "fact", "unknown"):
            return self._single(skill, False)
        if skill == "thinking_sum":
            return self._single("sum", True)
        if skill.startswith("style_"):
            return self._styled(style.UPPER if skill == "style_upper" else style.ENDING)
        if skill in ("one_call", "two_calls", "tool_result"):
            return self._with_tools(skill)
        if skill == "multi_turn":
            return self._multi_turn()
        if skill.startswith("recall_"):
            return self._recalled(int(skill.removeprefix("recall_")))
        raise ValueError(f"skill {skill}: expected one of {', '.join(SKILLS)}")

    def _new(self, thinking=False, system="", offers=None):
        return Conversation(self._encoder, _ENDLESS, thinking, system, offers)

    def _single(self, skill, thinking):
        conversation = self._new(thinking)
        conversation.add(*self._corpus.turn(skill))
        return conversation

    def _styled(self, kind):
        _, word, text = self._corpus.rule(kind)
        while True:
            user, reasoning, answer = self._corpus.turn(self._corpus.rng.choice(("fact", "fact", "sum")))
            if kind == style.ENDING or answer.upper() != answer:  # a number in upper case would test nothing
                break
        conversation = self._new(system=text)
        conversation.add(user, reasoning, style.apply(kind, word, answer))
        return conversation

    def _with_tools(self, skill):
        two = skill == "two_calls" or (skill == "tool_result" and self._corpus.rng.random() < 0.2)
        turn = None
        while turn is None:
            offers = self._corpus.offers(512)
            turn = self._corpus.call_turn(offers, two)
        text, reasoning, calls, used = turn
        conversation = self._new(self._corpus.rng.random() < 0.25, offers=offers)
        conversation.add(text, reasoning, "", calls)
        if skill == "tool_result":
            conversation.add(*self._corpus.result_turn(used))
        return conversation

    def _multi_turn(self):
        conversation = self._new()
        for _ in range(self._corpus.rng.randint(4, 8)):
            conversation.add(*self._corpus.turn())
        return conversation

    def _recalled(self, distance):
        """A statement, then `distance` tokens with three other statements in them, then the question."""
        rng = self._corpus.rng
        asked, *others = recall.draw_many(rng, 4)
        conversation = self._new()
        after, tokens = [], 0
        places = sorted(rng.uniform(0, distance - 30) for _ in others)
        while tokens < distance - 30:
            if places and tokens >= places[0]:
                places.pop(0)
                after.append(others.pop().statement)
            else:
                after.append(w.sentence(rng))
            tokens += conversation.count(" " + after[-1])
        text = f"{w.filler(rng, rng.randint(5, 30))} {asked.statement} {' '.join(after)}"
        conversation.add(recall.reading(rng, text), "I read the text.", recall.READ)
        conversation.add(*recall.ask(rng, asked))
        return conversation


def case(conversation, skill, name):
    """A conversation as a line of a suite."""
    *messages, answer = conversation.messages
    messages = [{key: value for key, value in message.items() if key != "given"
                 and (key != "reasoning_content" or conversation.thinking)} for message in messages]
    out = {"name": name, "skill": skill, "messages": messages}
    if conversation.tools:
        out["tools"] = [{"type": "function", "function": schema} for schema in conversation.tools]
    if conversation.thinking:
        out["thinking"] = True
    expect = {}
    if answer["content"] or not answer.get("tool_calls"):
        expect["content"] = answer["content"]
    if conversation.thinking:
        expect["reasoning"] = answer["reasoning_content"]
    if answer.get("tool_calls"):
        expect["tool_calls"] = [call["function"] for call in answer["tool_calls"]]
    out["expect"] = expect
    return out


def _orders(tools, call):
    """The arguments of an expected call in the orders that count as the same call: as given and as in the schema."""
    arguments = chat.arguments_of(call)
    known = {}
    for tool in tools or []:
        function = chat.function_of(tool)
        if function["name"] == call["name"]:
            known = function.get("parameters", {}).get("properties", {})
    by_schema = {name: arguments[name] for name in [*known, *arguments] if name in arguments}
    orders = [arguments] if list(arguments) == list(by_schema) else [by_schema, arguments]
    return [{"function": {"name": call["name"], "arguments": order}} for order in orders]


def encode_case(line, encoder):
    """(prompt ids, accepted answers as ids with EOS) of a line; no answers when the line does not fix all of one."""
    thinking = line.get("thinking", False)
    prompt, _ = chat.render(line["messages"], line.get("tools"), thinking).encode(encoder)
    expect = line["expect"]
    if (thinking and "reasoning" not in expect) or not ("content" in expect or "tool_calls" in expect):
        return prompt, []
    contents = expect.get("content", "")
    answers = []
    for content in [contents] if isinstance(contents, str) else contents:
        for calls in itertools.product(*(_orders(line.get("tools"), call) for call in expect.get("tool_calls", []))):
            answer = chat.Prompt()
            if thinking:
                answer.plain(expect["reasoning"], chat.ANSWER)
                answer.template(chat.END_THINK, chat.ANSWER)
            answer.plain(content, chat.ANSWER)
            if calls:
                chat.write_calls(answer, calls, chat.ANSWER)
            answer.template(chat.EOS, chat.ANSWER)
            answers.append(answer.encode(encoder)[0])
    return prompt, answers


def lines(skill, count, seed, encoder):
    """Cases of a skill as lines of a suite, the same for the same seed."""
    source = HeldOut(f"{skill} {seed}", encoder)
    return [case(source.conversation(skill), skill, f"{skill}_{i + 1}") for i in range(count)]


def cases(skill, count, seed, encoder=None):
    """[(prompt ids, answer ids with EOS)]"""
    encoder = encoder or Encoder(TOKENIZER)
    out = []
    for line in lines(skill, count, seed, encoder):
        prompt, answers = encode_case(line, encoder)
        out.append((prompt, answers[0]))
    return out


def suite(path, encoder):
    """[(skill, name, prompt ids, accepted answers as ids with EOS)] of a suite file, without the cases that do not fix
    a whole answer."""
    out = []
    with open(path, encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            prompt, answers = encode_case(line, encoder)
            if answers:
                out.append((line["skill"], line["name"], prompt, answers))
    return out


def main():
    parser = argparse.ArgumentParser(description="Write the held-out suites.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=str(_DEMO / "prompts"))
    arguments = parser.parse_args()
    encoder = Encoder(TOKENIZER)
    for name, counts in (("heldout.jsonl", COUNTS), ("heldout_long.jsonl", LONG_COUNTS)):
        with open(pathlib.Path(arguments.out) / name, "w", encoding="utf-8") as file:
            for skill, count in counts.items():
                for line in lines(skill, count, arguments.seed, encoder):
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
