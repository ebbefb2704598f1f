"""Checks of the training data by a second, independent answerer, and of our renderer and encoder against the engine's.

    python3 -m demo.data.test_data [--lockstep BINARY]     (from the repository's root; needs no package)

A generator and its held-out set agree with each other even when both are wrong, so answers are found again here from
the request alone: sums by reading the numbers, arguments by looking for them in the request, facts from a list by hand.
"""

import json
import random
import re
import subprocess
import sys
import unittest

from demo.data import chat, heldout, questions, style, sums, tools, unknown
from demo.data.corpus import Corpus, is_held_out
from demo.data.encode import Encoder
from demo.data.facts import NUMBERS

ENCODER = Encoder(heldout.TOKENIZER)
PROMPTS = heldout.TOKENIZER.parent / "prompts"

BY_HAND = {
    "what is the capital of France": "Paris", "what is the capital of Germany": "Berlin",
    "what is the capital of the UK": "London",
    "what is the capital of India": "New Delhi", "what is the capital of the USA": "Washington",
    "what is the capital of Japan": "Tokyo",
    "what color is the sky on a clear day": "blue", "what color is grass": "green", "what color is snow": "white",
    "what color is blood": "red",
    "what color is a banana": "yellow", "what color is coal": "black", "what color is an orange": "orange",
    "what color is a frog": "green",
    "what is the opposite of hot": "cold", "what is the opposite of up": "down",
    "what is the opposite of light": "dark",
    "what is the opposite of empty": "full", "what is a baby cat called": "kitten",
    "what is a baby dog called": "puppy",
    "what does a cow say": "moo", "what sound does a dog make": "woof", "what sound does a cat make": "meow",
    "how many legs does a spider have": "eight", "how many legs does a dog have": "four",
    "how many legs does an ant have": "six",
    "what comes after Monday": "Tuesday", "what day comes before Monday": "Sunday",
    "what month comes after January": "February",
    "how many days are in a week": "seven", "how many months are in a year": "twelve",
    "how many hours are in a day": "twenty-four",
    "how many minutes are in an hour": "sixty", "what is the plural of mouse": "mice",
    "what is the plural of child": "children",
    "what do bees make": "honey", "who wrote Romeo and Juliet": "Shakespeare", "what is the largest planet": "Jupiter",
    "how many sides does a triangle have": "three", "what is frozen water": "ice", "who bakes bread": "baker",
    "what language do people speak in Brazil": "Portuguese", "on which continent is Egypt": "Africa",
    "in which country is Tokyo": "Japan",
    "how many letters are in the alphabet": "twenty-six", "what do blue and yellow make": "green",
    "which animal barks": "dog",
    "what number comes after seven": "eight", "which letter comes after A": "B", "what is H2O": "water",
}


def numbers_in(text):
    """The two numbers that a request names, in digits or in words."""
    found = [int(digits) for digits in re.findall(r"\d+", text)]
    if len(found) == 2:
        return found
    words = [word for word in re.findall(r"[a-z]+", text.lower()) if word in NUMBERS]
    # "In one number:" and "One number only." name no number of the sum.
    frames = re.findall(r"one number|in one box|number", text.lower())
    return [NUMBERS.index(word) for word in words if not (word == "one" and frames and len(words) > 2)]


class Answers(unittest.TestCase):
    def test_sums_are_right_and_so_is_every_step_of_the_working(self):
        rng = random.Random(1)
        for _ in range(4000):
            text, working, answer, _ = sums.ask(rng)
            found = numbers_in(text)
            self.assertEqual(len(found), 2, text)
            self.assertEqual(re.findall(r"\d+", answer), [str(sum(found))], text)
            for left, total in re.findall(r"([\d+ ]+) = (\d+)", working):
                self.assertEqual(sum(map(int, left.split("+"))), int(total), working)
            self.assertIn(f"The sum is {sum(found)}.", working)

    def test_a_copied_text_stands_in_its_request_and_the_rest_is_short(self):
        corpus = Corpus(2, ENCODER)
        for _ in range(4000):
            request, _, answer = corpus.turn("copy")
            self.assertIn(answer, request)
            self.assertEqual(answer, answer.strip())
            self.assertLessEqual(len(answer), 48)
            self.assertLess(len(request) - len(answer), 60, request)

    def test_facts_by_hand(self):
        known = {question: fact.value for fact in questions.FACTS for question in fact.questions}
        for question, value in BY_HAND.items():
            self.assertEqual(known.get(question), value, question)

    def test_no_question_has_two_answers(self):
        known = {}
        for fact in questions.FACTS:
            for question in (*fact.questions, *fact.phrases, *fact.terse):
                self.assertEqual(known.setdefault(question.lower(), fact.value), fact.value, question)

    def test_no_answer_repeats_its_subject(self):
        for fact in questions.FACTS:
            subject = fact.name.split(":")[1]
            same = subject in ("sheep", "fish", "deer", "gold", "silver", "an orange", "Luxembourg")
            self.assertTrue(same or fact.value.lower() != subject.lower(), fact.name)

    def test_unknown_questions_are_not_among_the_facts(self):
        known = {question.lower() for fact in questions.FACTS for question in (*fact.questions, *fact.terse)}
        rng = random.Random(3)
        for _ in range(10000):
            text, _, answer, key = unknown.ask(rng)
            self.assertEqual(answer, "I do not know that.")
            self.assertNotIn(key.lower().rstrip("?."), known, text)

    def test_styles(self):
        rng = random.Random(4)
        for _ in range(500):
            kind, word, text, _ = style.draw(rng)
            answer = style.apply(kind, word, "Paris is in France.")
            if kind == style.UPPER:
                self.assertEqual(answer, "PARIS IS IN FRANCE.")
            else:
                self.assertIn(word, text)
                self.assertEqual(answer, f"Paris is in France. {word}")


class Tools(unittest.TestCase):
    TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list}

    def test_calls_fit_their_schema_and_say_what_the_request_says(self):
        rng = random.Random(5)
        for _ in range(3000):
            made = tools.draw_offers(rng, 1)[0]
            text, arguments, _ = tools.request(rng, made)
            parameters = made.schema["parameters"]
            self.assertLessEqual(set(parameters.get("required", [])), set(arguments), text)
            for name, value in arguments.items():
                schema = parameters["properties"][name]
                self.assertIsInstance(value, self.TYPES[schema["type"]], text)
                self.assertIn(value, schema.get("enum", [value]))
                for part in value if isinstance(value, list) else [] if isinstance(value, bool) else [value]:
                    self.assertIn(str(part), text)

    def test_an_answer_stands_in_its_result(self):
        rng = random.Random(6)
        for _ in range(2000):
            made = tools.draw_offers(rng, 1)[0]
            _, arguments, _ = tools.request(rng, made)
            text, answer = tools.result(rng, made, arguments)
            words = answer.rstrip(".").removeprefix("The tool failed: ").split(", ")
            if answer == tools.DONE:
                self.assertRegex(text.lower(), "ok|done|success|sent|set|created|true")
            elif answer not in ("Yes.", "No."):
                self.assertTrue(all(word in text for word in words) or answer.startswith("It is "), (text, answer))


class Rows(unittest.TestCase):
    def conversations(self, seed, count):
        corpus = Corpus(seed, ENCODER)
        makers = (corpus.plain, corpus.styled, corpus.with_tools, corpus.recalled, corpus.told)
        out = []
        while len(out) < count:
            made = makers[len(out) % len(makers)](512)
            if made.messages and made.messages[-1]["role"] == "assistant":
                out.append(made)
        return out

    def test_what_is_trained_is_what_inference_sees(self):
        for conversation in self.conversations(7, 60):
            whole = conversation.render().text()
            asked = chat.render(conversation.messages[:-1], conversation.tools, conversation.thinking,
                                conversation.drop_thinking)
            self.assertTrue(whole.startswith(asked.text()))
            self.assertTrue(whole.endswith(chat.EOS))

    def test_answers_are_marked_up_to_their_end_token(self):
        end = ENCODER.added[chat.EOS]
        corpus = Corpus(8, ENCODER)
        for length in [128] * 40 + [512] * 40 + [2048] * 6 + [4096] * 3:
            ids, kinds = corpus.tokens(length)
            self.assertLessEqual(len(ids), length)
            self.assertEqual(len(ids), len(kinds))
            self.assertEqual((ids[0], ids[-1]), (ENCODER.added[chat.BOS], end))
            for at in range(1, len(ids)):
                if kinds[at - 1] == chat.ANSWER and kinds[at] != chat.ANSWER:
                    self.assertEqual(ids[at - 1], end)

    def test_the_same_seed_gives_the_same_conversations(self):
        first, second = ([c.render().text() for c in self.conversations(9, 10)] for _ in range(2))
        self.assertEqual(first, second)

    def test_training_sums_are_not_in_the_held_out_suite(self):
        for line in (PROMPTS / "heldout.jsonl").read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if case["skill"] in ("sum", "thinking_sum"):
                a, b = numbers_in(case["messages"][-1]["content"])
                self.assertTrue(is_held_out("sum", f"{a}+{b}") or is_held_out("sum", f"{b}+{a}"), line)

    def test_the_suites_are_what_their_command_writes(self):
        shipped = (PROMPTS / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
        made = [json.dumps(line, ensure_ascii=False) for skill, count in heldout.COUNTS.items()
                for line in heldout.lines(skill, count, 1, ENCODER)]
        self.assertEqual(made, shipped)


class Tokens(unittest.TestCase):
    def test_the_vocabulary_is_whole(self):
        self.assertEqual(ENCODER.size, 4096)
        self.assertEqual([ENCODER.added[text] for text in (chat.BOS, chat.EOS, chat.PAD)], [0, 1, 2])
        for text in (chat.USER, chat.ASSISTANT, chat.THINK, chat.END_THINK, chat.DSML):
            self.assertEqual(len(ENCODER.encode(text)), 1)

    def test_digits_stay_alone(self):
        self.assertEqual(len(ENCODER.encode("1234567890")), 10)
        self.assertFalse([text for text in ENCODER.vocabulary if re.search(r"\d", text) and len(text) > 1])

    def test_a_word_is_cut_the_same_after_a_space(self):
        space = len(ENCODER.encode(" "))
        for word in ("buropel", "Hello", "quick", "HELLO", "tokenizer", "x9", "Zürich"):
            with_space = ENCODER.decode_bytes(ENCODER.encode(" " + word)[:1])
            inside, alone = ENCODER.encode(" " + word), ENCODER.encode(word)
            self.assertTrue(inside[space:] == alone or (with_space[1:] == ENCODER.decode_bytes(alone[:1])
                                                        and inside[1:] == alone[1:]), word)

    def test_any_text_comes_back(self):
        for text in ("", "a", "  two  spaces ", "\n\n\t x", "Ångström 日本 🙂 ½", "<｜User｜>", "don't", "0" * 50,
                     "=" * 200):
            self.assertEqual(ENCODER.decode(ENCODER.encode(text)), text)
            self.assertEqual(ENCODER.decode(ENCODER.encode_plain(text)), text)


class Engine(unittest.TestCase):
    """Against the engine's own renderer and tokenizer."""
    binary = None

    def run_lines(self, arguments, requests):
        text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
        done = subprocess.run([self.binary, *arguments], input=text, capture_output=True, text=True, encoding="utf-8",
                              check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_both_render_the_same(self):
        made = Rows().conversations(10, 200)
        requests, expected = [], []
        for i, conversation in enumerate(made):
            messages = conversation.messages[:-1] if i % 2 else conversation.messages
            request = {"messages": messages, "thinking": conversation.thinking,
                       "drop_thinking": conversation.drop_thinking}
            if conversation.tools:
                request["tools"] = [{"type": "function", "function": schema} for schema in conversation.tools]
            requests.append(request)
            expected.append(chat.render(messages, conversation.tools, conversation.thinking,
                                        conversation.drop_thinking).text())
        self.assertEqual([line["prompt"] for line in self.run_lines(["render"], requests)], expected)

    def test_both_encode_the_same(self):
        texts = [part[0] for conversation in Rows().conversations(11, 150) for part in conversation.render().parts]
        lines = self.run_lines(["tokenize", "--tokenizer", str(heldout.TOKENIZER)], [{"text": text} for text in texts])
        self.assertEqual([line["ids"] for line in lines], [ENCODER.encode(text) for text in texts])


def main():
    arguments = sys.argv[1:]
    if "--lockstep" in arguments:
        at = arguments.index("--lockstep")
        Engine.binary = arguments[at + 1]
        del arguments[at:at + 2]
    suite = unittest.TestSuite()
    cases = [Answers, Tools, Rows, Tokens] + ([Engine] if Engine.binary else [])
    for case in cases:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
