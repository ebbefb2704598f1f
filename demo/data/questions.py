"""Questions about the known facts in very many wordings, and their answers in the form that the wording asks for."""

from demo.data.facts import DIGITS, RELATIONS
from demo.data.single_facts import SINGLE_FACTS
from demo.data.words import capital

FACTS = [fact for relation in RELATIONS for fact in relation] + SINGLE_FACTS
# A relation of 100 subjects would drown a single question: draw a table first, then one of its facts.
_TABLES = [(relation, len(relation) ** 0.6) for relation in RELATIONS] + [(SINGLE_FACTS, len(SINGLE_FACTS) ** 0.75)]
_WEIGHTS = [weight for _, weight in _TABLES]

# {q} is the question without its mark, {Q} the same with a capital, {m} the mark that was drawn.
_PLAIN = ["{Q}{m}", "{Q}{m}", "{Q}{m}", "{Q}{m}", "{Q}?", "{Q}?", "{q}{m}", "{q}", "Question: {q}{m}", "Q: {Q}{m}",
          "Please tell me: {q}{m}", "Tell me, {q}{m}", "Hi! {Q}{m}", "Hello, {q}{m}", "Please answer: {q}{m}",
          "I have a question: {q}{m}", "So, {q}{m}", "Quick question: {q}{m}", "One more question: {q}{m}",
          "Now, {q}{m}", "And {q}{m}", "Well, {q}{m}", "Hey, {q}{m}", "{Q}, please{m}", "{Q}, do you know{m}",
          "Can you answer this? {Q}{m}", "Answer this question: {q}{m}", "Answer this question. {Q}{m}",
          "My son wants to know: {q}{m}", "Let me ask you something: {q}{m}", "OK, {q}{m}", "Excuse me, {q}{m}",
          "Question for you: {q}{m}", "Do you know the answer? {Q}{m}", "Please: {q}{m}", "Riddle me this: {q}{m}"]
_PHRASE = ["Tell me {p}.", "Please tell me {p}.", "Do you know {p}?", "Can you tell me {p}?", "Could you tell me {p}?",
           "I want to know {p}.", "I would like to know {p}.", "Say {p}.", "tell me {p}",
           "Could you please tell me {p}?",
           "do you know {p}", "I forgot {p}.", "Give me {p}.", "I need to know {p}.", "Do you remember {p}?",
           "Can you say {p}?", "Please give me {p}.", "Would you tell me {p}?", "Let me know {p}.", "Any idea {p}?",
           "I wonder {p}.", "Name {p}.", "Help me out: {p}?", "Do you happen to know {p}?", "I am looking for {p}."]
_TERSE = ["{T}?", "{t}?", "{t}", "{T}", "{T}.", "{T}:"]
_SHORT = ["Answer one word: {q}{m}", "Answer one word: {q}{m}", "Answer in one word: {q}{m}", "In one word: {q}{m}",
          "In one word, {q}{m}", "{Q}{m} Answer in one word.", "{Q}{m} Answer with one word.", "{Q}{m} One word only.",
          "One word: {q}{m}", "One word only: {q}{m}", "One-word answer: {q}{m}", "With one word: {q}{m}",
          "Answer with one word: {q}{m}", "Answer with a single word: {q}{m}", "{Q}{m} Answer with a single word.",
          "{Q}{m} Just one word.", "{Q}{m} (one word)", "{Q}{m} Use one word.", "Use one word: {q}{m}",
          "Reply with one word: {q}{m}", "{Q}{m} Reply with one word.", "Answer only with the word: {q}{m}",
          "Answer only with the answer: {q}{m}", "Give only the answer: {q}{m}", "{Q}{m} Only the answer.",
          "Only the answer, please: {q}{m}", "{Q}{m} Just the answer.", "Just the answer: {q}{m}",
          "{Q}{m} Give only the answer.", "{Q}{m} Give a one-word answer.", "Respond with one word: {q}{m}",
          "{Q}{m} Respond with a single word.", "Single word answer: {q}{m}", "{Q}{m} Say only the word.",
          "{Q}{m} Answer in a single word, please.", "Please answer in one word: {q}{m}", "Tell me in one word: {q}{m}",
          "{Q}{m} Answer briefly with one word.", "{Q}{m} Nothing but the answer.", "Short answer: {q}{m}"]
_DIGITS = ["Answer with a number: {q}{m}", "{Q}{m} Answer with a number.", "Answer only with the number: {q}{m}",
           "{Q}{m} Give only the number.", "{Q}{m} Answer in digits.", "Just the number: {q}{m}", "{Q}{m} Number only.",
           "Give the number: {q}{m}", "As a number: {q}{m}", "{Q}{m} Use digits.", "Only the number: {q}{m}"]
_SENTENCE = ["Answer in a full sentence: {q}{m}", "{Q}{m} Answer in a full sentence.", "In a full sentence: {q}{m}",
             "{Q}{m} Use a full sentence.", "Answer with a complete sentence: {q}{m}", "{Q}{m} Answer in a sentence.",
             "{Q}{m} Write a whole sentence.", "Use a sentence: {q}{m}", "In a complete sentence, {q}{m}"]


def _fill(rng, frame, question):
    mark = "?" if rng.random() < 0.85 else rng.choice(["", "", "??", " ?", "."])
    text = frame.format(q=question, Q=capital(question), m=mark)
    return text.lower() if rng.random() < 0.06 else text


def wrap(rng, frames, question):
    """A question or request in a frame; also for questions that are none of these facts."""
    return _fill(rng, rng.choice(frames), question)


def any_frame(rng, question):
    """A question in some frame of any form of answer."""
    draw = rng.random()
    return wrap(rng, _SHORT if draw < 0.25 else _SENTENCE if draw < 0.3 else _PLAIN, question)


def phrase(rng, noun_phrase):
    return rng.choice(_PHRASE).format(p=noun_phrase)


def terse(rng, words):
    return rng.choice(_TERSE).format(t=words, T=capital(words))


def _bare(fact):
    return capital(fact.value.removeprefix("the "))


def draw_fact(rng):
    return rng.choice(rng.choices(_TABLES, _WEIGHTS)[0][0])


def ask(rng, fact):
    """(question, reasoning, answer, key): a question about the fact; key names wording and frame."""
    sentence = capital(fact.sentence) + "."
    question = rng.choice(fact.questions)
    value = capital(fact.value)
    draw = rng.random()
    if draw < 0.30:
        frame = rng.choice(_SHORT)
        return _fill(rng, frame, question), sentence, _bare(fact), f"{fact.name}/{question}/{frame}"
    if draw < 0.36 and fact.value in DIGITS:
        frame = rng.choice(_DIGITS)
        return _fill(rng, frame, question), sentence, DIGITS[fact.value], f"{fact.name}/{question}/{frame}"
    if draw < 0.42:
        frame = rng.choice(_SENTENCE)
        return _fill(rng, frame, question), sentence, sentence, f"{fact.name}/{question}/{frame}"
    if draw < 0.55 and fact.phrases:
        words, frame = rng.choice(fact.phrases), rng.choice(_PHRASE)
        return frame.format(p=words), sentence, value + ".", f"{fact.name}/{words}/{frame}"
    if draw < 0.60 and fact.terse:
        words, frame = rng.choice(fact.terse), rng.choice(_TERSE)
        return frame.format(t=words, T=capital(words)), sentence, value + ".", f"{fact.name}/{words}/{frame}"
    frame = rng.choice(_PLAIN)
    return _fill(rng, frame, question), sentence, value + ".", f"{fact.name}/{question}/{frame}"
