"""Rows of training data: conversations of every skill, rendered as inference will see them, drawn from a seed.

What is kept for the held-out suites (by a hash of each item's key) never appears here. A row holds one conversation,
so no text leaks into another; many short turns fill it without padding.
"""

import random
import zlib

from demo.data import chat, copies, questions, recall, style, sums, talk, tools, unknown
from demo.data import words as w

_UNUSUAL_NAMES = 0.3  # of the tools in training; the held-out suites keep to names as they are usual

_HELD_OUT = {"sum": 16, "copy": 16, "fact": 8, "unknown": 16, "style": 8, "tool": 8}


def is_held_out(skill, key):
    """Whether the item belongs to the held-out suites, the same on every machine."""
    share = _HELD_OUT.get(skill)
    return share is not None and zlib.crc32(f"{skill}:{key}".encode()) % share == 0


class Conversation:
    """Messages that stay within a number of tokens."""

    def __init__(self, encoder, length, thinking=False, system="", offers=None, drop_thinking=True):
        self._encoder = encoder
        self.length = length
        self.thinking = thinking
        self.drop_thinking = drop_thinking
        self.tools = [offer.schema for offer in offers] if offers else None
        self.messages = [{"role": "system", "content": system}] if system else []
        self._drops = thinking and drop_thinking and not self.tools
        self._used = 1 + self.count(system) + (70 if self._drops else 0)
        if self.tools:
            prompt = chat.Prompt()
            chat.write_tools(prompt, self.tools)
            self._used += len(prompt.encode(encoder)[0]) + 2

    def count(self, text):
        return len(self._encoder.encode_plain(text)) if text else 0

    @property
    def left(self):
        return self.length - self._used

    def add(self, user, reasoning, answer, calls=None, given=False):
        """One turn, if it still fits. user is a text or a list of messages."""
        asked = [{"role": "user", "content": user}] if isinstance(user, str) else user
        cost = 4 + self.count(answer) + sum(self.count(message["content"]) + 10 for message in asked) - 10
        if self.thinking and not self._drops:
            cost += self.count(reasoning) + 1
        if calls:
            prompt = chat.Prompt()
            chat.write_calls(prompt, calls, chat.ANSWER)
            cost += len(prompt.encode(self._encoder)[0])
        if cost > self.left:
            return False
        self._used += cost
        message = {"role": "assistant", "content": answer, "reasoning_content": reasoning}
        if calls:
            message["tool_calls"] = calls
        if given:
            message["given"] = True
        self.messages += [*asked, message]
        return True

    def render(self):
        return chat.render(self.messages, self.tools, self.thinking, self.drop_thinking)


class Corpus:
    """row(length) -> (ids uint16[length], kinds uint8[length]); a kind is chat.PADDING, PROMPT or ANSWER. With
    held_out, turns come from the held-out items only."""

    def __init__(self, seed, encoder, held_out=False):
        self.rng = random.Random(f"lockstep demo {seed}")
        self._encoder = encoder
        self._held_out = held_out
        self._copies = copies.Copies(encoder)
        self._skills = {"sum": sums.ask, "copy": self._copies.ask, "unknown": unknown.ask, "talk": talk.ask,
                        "fact": lambda rng: questions.ask(rng, questions.draw_fact(rng))}

    def tokens(self, length):
        """(ids, kinds) of a conversation with at least one answer, lists of at most `length`."""
        ids, kinds = [], []
        while chat.ANSWER not in kinds:  # a conversation whose first turn did not fit has none
            ids, kinds = self.conversation(length).render().encode(self._encoder)
            if len(ids) > length:  # a count was some tokens short: leave out what does not fit
                end = max((i + 1 for i in range(length) if ids[i] == self._encoder.added[chat.EOS]), default=0)
                ids, kinds = ids[:end], kinds[:end]
        return ids, kinds

    def row(self, length):
        """One row; length is the bucket: 128, 512, 2048 or 4096."""
        import numpy  # only training needs it

        ids, kinds = self.tokens(length)
        row = numpy.full(length, self._encoder.added[chat.PAD], dtype=numpy.uint16)
        row_kinds = numpy.zeros(length, dtype=numpy.uint8)
        row[:len(ids)] = ids
        row_kinds[:len(kinds)] = kinds
        return row, row_kinds

    def conversation(self, length):
        draw = self.rng.random()
        if length <= 128:
            return self.plain(length) if draw < 0.72 else self.styled(length) if draw < 0.90 else self.recalled(length)
        if length <= 512:
            if draw < 0.12:
                return self.plain(length)
            if draw < 0.18:
                return self.styled(length)
            if draw < 0.78:
                return self.with_tools(length)
            return self.recalled(length) if draw < 0.93 else self.told(length)
        if draw < 0.30:
            return self.with_tools(length)
        return self.plain(length) if draw < 0.35 else self.long(length)

    def turn(self, skill=None):
        """(user, reasoning, answer) of a skill, or of any single-turn skill."""
        rng = self.rng
        if skill is None:
            skill = rng.choices(("sum", "copy", "fact", "unknown", "talk"), (4, 4.5, 4, 1.9, 0.5))[0]
        while True:
            user, reasoning, answer, key = self._skills[skill](rng)
            if skill == "talk" or is_held_out(skill, key) == self._held_out:
                return user, reasoning, answer

    def _mode(self):
        """(thinking, drop_thinking): without dropping, every turn of a row may be trained to think."""
        return self.rng.random() < 0.3, self.rng.random() < 0.5

    def _system(self, share):
        return style.neutral(self.rng) if self.rng.random() < share else ""

    def plain(self, length):
        thinking, drop = self._mode()
        conversation = Conversation(self._encoder, length, thinking, self._system(0.2), drop_thinking=drop)
        if length <= 128 and self.rng.random() < 0.5:
            while not conversation.add(*self.turn()):
                pass
            return conversation
        self._fill(conversation)
        return conversation

    def _fill(self, conversation, turns=10_000):
        """Turns of any skill until two in a row do not fit."""
        failures = 0
        while turns > 0 and failures < 2:
            user, reasoning, answer = self.turn()
            if self.rng.random() < 0.015:
                kind, word, rule, _ = style.draw(self.rng)
                user, answer = f"{rule} {user}", style.apply(kind, word, answer)
            if conversation.add(user, reasoning, answer):
                turns -= 1
            else:
                failures += 1

    def rule(self, kind=None):
        while True:
            kind_drawn, word, text, key = style.draw(self.rng, kind)
            if is_held_out("style", key) == self._held_out:
                return kind_drawn, word, text

    def styled(self, length):
        thinking, drop = self._mode()
        kind, word, text = self.rule()
        conversation = Conversation(self._encoder, length, thinking, text, drop_thinking=drop)
        only_one = length <= 128 and self.rng.random() < 0.5
        failures = 0
        while failures < 2:
            skill = self.rng.choices(("fact", "sum", "talk", "unknown", "copy"), (4, 2, 0.8, 0.8, 0.7))[0]
            user, reasoning, answer = self.turn(skill)
            if not conversation.add(user, f"{reasoning} {style.reason(kind, word)}", style.apply(kind, word, answer)):
                failures += 1
            elif only_one:
                break
        return conversation

    def offers(self, length):
        """One to four tools whose block leaves room for a few turns."""
        while True:
            drawn = tools.draw_offers(self.rng, self.rng.choice((1, 2, 2, 3, 3, 4)))
            if not self._held_out:
                drawn = tools.rename_some(self.rng, drawn, _UNUSUAL_NAMES)
            empty = Conversation(self._encoder, length, offers=drawn)
            if empty.left > 120:
                return drawn

    def call_turn(self, offers, two):
        """(request, reasoning, calls, pairs of offer and arguments) for one or two calls; None when these offers
        have no such wording."""
        rng = self.rng
        for _ in range(100):
            if two and rng.random() < 0.35:
                made = rng.choice(offers)
                both = tools.twice(rng, made)
                if both is None:
                    continue
                text, arguments, key = both
                pairs = [(made, argument) for argument in arguments]
            else:
                pairs, texts, keys = [], [], []
                for _ in range(2 if two else 1):
                    made = rng.choice(offers)
                    text, argument, key = tools.request(rng, made)
                    pairs.append((made, argument))
                    texts.append(text)
                    keys.append(key)
                if two and pairs[0] == pairs[1]:
                    continue
                text = tools.join(rng, *texts) if two else texts[0]
                key = keys[0]
            if is_held_out("tool", key) == self._held_out:
                break
        else:
            return None
        names = " and ".join(dict.fromkeys(made.name for made, _ in pairs))
        calls = [tools.call(made, argument) for made, argument in pairs]
        for i, call in enumerate(calls):
            call["id"] = f"call_{i}"
        return text, f"I call {names}.", calls, pairs

    def result_turn(self, used):
        """(tool messages, reasoning, answer) for the calls of a turn."""
        results = [tools.result(self.rng, made, arguments) for made, arguments in used]
        messages = [{"role": "tool", "tool_call_id": f"call_{i}", "content": text} for i,
                    (text, _) in enumerate(results)]
        answers = [answer for _, answer in results]
        answer = tools.DONE if set(answers) == {tools.DONE} else " ".join(answers)
        return messages, "The tool gave the result.", answer

    def with_tools(self, length):
        rng = self.rng
        offers = self.offers(min(length, 512))
        conversation = Conversation(self._encoder, length, rng.random() < 0.3, self._system(0.35), offers)
        failures = 0
        while failures < 2:
            draw = rng.random()
            if draw < 0.10:
                failures += not conversation.add(*self._turn_beside(offers))
                continue
            if draw < 0.12:
                failures += not self._misfit(conversation, offers)
                continue
            turn = self.call_turn(offers, two=rng.random() < 0.6)
            if turn is None:
                failures += 1
                continue
            text, reasoning, calls, used = turn
            if not conversation.add(text, reasoning, "", calls):
                failures += 1
            elif rng.random() < 0.6:
                failures += not conversation.add(*self.result_turn(used))
        return conversation

    def _turn_beside(self, offers):
        """A turn that needs no tool; a question that one of the tools might answer is none."""
        busy = tools.words_of(offers)
        while True:
            user, reasoning, answer = self.turn()
            if answer != unknown.ANSWER or not tools.content_words(user) & busy:
                return user, reasoning, answer

    def _misfit(self, conversation, offers):
        """A question for a tool that is not offered: nothing to call."""
        for _ in range(50):
            made = tools.offer(self.rng, self.rng.choice(tools.TOOLS))
            text, _, _ = tools.request(self.rng, made)
            fits = tools.words_of([made]) & tools.words_of(offers)
            # A sum is known without any tool.
            if text.endswith("?") and not fits and made.tool.name not in ("calculate", "add_numbers", "get_date"):
                return conversation.add(text, "No tool fits, and I do not know it.", unknown.ANSWER)
        return True  # these tools leave nothing out

    def _text_of(self, memories, spare):
        """Statements of the memories with sentences between and after them, of about `spare` tokens in all."""
        rng = self.rng
        gaps = [rng.random() ** 2 for _ in range(len(memories) + 1)]
        if rng.random() < 0.5:
            gaps[-1] += len(memories) * 0.7
        total = sum(gaps)
        parts = []
        for gap, memory in zip(gaps, [*memories, None]):
            words = spare * gap / total / 1.35
            if words > 5:
                parts.append(w.filler(rng, words))
            if memory is not None:
                parts.append(memory.statement if rng.random() < 0.8 else recall.state(rng, memory))
        return " ".join(parts)

    def _acknowledge(self, conversation, text, reasoning, answer):
        """A message that only tells something; sometimes the answer in it is another's, read but not learned."""
        if self.rng.random() < 0.15:
            return conversation.add(text, reasoning, self.rng.choice(recall.ACKNOWLEDGEMENTS), given=True)
        return conversation.add(text, reasoning, answer)

    def _ask_all(self, conversation, memories):
        order = list(memories)
        self.rng.shuffle(order)
        for memory in order:
            if self.rng.random() < 0.07:
                conversation.add(*recall.ask_untold(self.rng, memories))
            if not conversation.add(*recall.ask(self.rng, memory)):
                break

    def recalled(self, length):
        """A text with memories in it, then questions."""
        rng = self.rng
        thinking, drop = self._mode()
        memories = recall.draw_many(rng, rng.randint(1, 3) if length <= 128 else rng.randint(1, 12))
        draw = rng.random()
        if draw < 0.08:
            system = " ".join([self._system(0.5), *(memory.statement for memory in memories)]).strip()
            conversation = Conversation(self._encoder, length, thinking, system, drop_thinking=drop)
            self._ask_all(conversation, memories)
            if conversation.messages[-1]["role"] == "assistant":
                return conversation
        conversation = Conversation(self._encoder, length, thinking, self._system(0.15), drop_thinking=drop)
        room = conversation.left - 26 * min(len(memories), 8) - 14 * len(memories) - 30
        text = self._text_of(memories, rng.uniform(0, max(0, room)))
        if draw < 0.35:
            memory = rng.choice(memories)
            question, reasoning, answer = recall.ask(rng, memory)
            conversation.add(recall.reading_with_question(rng, text, question), reasoning, answer)
        else:
            self._acknowledge(conversation, recall.reading(rng, text), "I read the text.", recall.READ)
        self._ask_all(conversation, memories)
        if not conversation.messages or conversation.messages[-1]["role"] != "assistant":
            return self.recalled(length)
        return conversation

    def told(self, length):
        """Memories told one by one with other turns between, then questions."""
        rng = self.rng
        thinking, drop = self._mode()
        conversation = Conversation(self._encoder, length, thinking, self._system(0.15), drop_thinking=drop)
        memories = recall.draw_many(rng, rng.randint(1, 6))
        for memory in memories:
            self._acknowledge(conversation, recall.state(rng, memory), "A fact to remember.", recall.REMEMBERED)
            for _ in range(rng.randint(0, 3)):
                if conversation.left > 30 * len(memories) + 60:
                    conversation.add(*self.turn())
        self._ask_all(conversation, memories)
        return conversation

    def long(self, length):
        """Memories strewn through texts and turns, some asked on the way and all of them at the end."""
        rng = self.rng
        thinking = rng.random() < 0.15
        conversation = Conversation(self._encoder, length, thinking, self._system(0.15),
                                    drop_thinking=rng.random() < 0.3)
        memories = recall.draw_many(rng, rng.randint(6, 30) if length <= 2048 else rng.randint(10, 60))
        told = []
        end = 27 * min(len(memories), length // 70) + 60
        while conversation.left > end:
            draw = rng.random()
            if draw < 0.5:
                parts = [w.filler(rng, rng.choice((8, 22, 45, 90)))]
                if len(told) < len(memories) and rng.random() < min(1.0, len(memories) * 140 / length):
                    memory = memories[len(told)]
                    told.append(memory)
                    parts.insert(rng.randint(0, 1), memory.statement)
                self._acknowledge(conversation, recall.reading(rng, " ".join(parts)), "I read the text.", recall.READ)
            elif draw < 0.56 and len(told) < len(memories):
                memory = memories[len(told)]
                told.append(memory)
                self._acknowledge(conversation, recall.state(rng, memory), "A fact to remember.", recall.REMEMBERED)
            elif draw < 0.66 and told:
                conversation.add(*recall.ask(rng, rng.choice(told)))
            else:
                conversation.add(*self.turn())
        self._ask_all(conversation, told)
        while conversation.left > 60:
            conversation.add(*(recall.ask(rng, rng.choice(told)) if told and rng.random() < 0.7 else self.turn()))
        return conversation
