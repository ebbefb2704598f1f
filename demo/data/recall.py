"""Things said once and asked for later, about people, about the user and about things, in many wordings.

The answer is the value as it was said, with a full stop; without one when the question wants only the value.
"""

import dataclasses

from demo.data import words as w
from demo.data.unknown import ANSWER as UNKNOWN_ANSWER

REMEMBERED, READ = "I will remember that.", "I have read it."
ACKNOWLEDGEMENTS = ["OK.", "Okay.", "Noted.", "Got it.", "Understood.", "Thank you.", "I see.", "Sure.", "All right.",
                    "Thanks!",
                    "Thank you for telling me.", "I have noted it.", "Alright, I will keep it in mind.", "Interesting.",
                    "Nice!"]


@dataclasses.dataclass(frozen=True)
class Memory:
    statement: str
    questions: tuple
    value: str
    key: str  # subject and attribute: two memories of one key would contradict each other


def _digits(low, high):
    return lambda rng: str(rng.randint(low, high))


def _date(rng):
    month = rng.choice("January February March April May June July August September October November December".split())
    return f"{month} {rng.randint(1, 28)}"


def _time(rng):
    return rng.choice([f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}", f"{rng.randint(1, 12)} o'clock",
                       f"{rng.randint(1, 12)} pm"])


def _secret(rng):
    draw = rng.random()
    if draw < 0.5:
        return rng.choice(w.EVERY_WORD)
    if draw < 0.65:
        return w.invented(rng)
    if draw < 0.8:
        return f"{rng.choice(w.ADJECTIVES)} {rng.choice(w.NOUNS)}"
    if rng.random() < 0.6:
        return f"{rng.choice(w.NOUNS)}{rng.randint(0, 99)}"
    return f"{rng.choice(w.EVERY_WORD)}-{rng.choice(w.NOUNS)}"


def _plate(rng):
    return "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3))) + str(rng.randint(1, 9999))


def _address(rng):
    return f"{rng.randint(1, 99)} {rng.choice(w.EVERY_WORD).capitalize()} Street"


def _of(words):
    return lambda rng: rng.choice(words)


_LANGUAGES = "English French German Spanish Italian Russian Chinese Japanese Polish Greek Dutch Arabic Turkish".split()
_HOBBIES = """swimming|reading|chess|painting|dancing|cooking|fishing|gardening|football|tennis|singing|hiking|running|
skiing|knitting|photography|climbing|cycling|baking|sailing|golf|yoga|music|pottery|
basketball""".replace("\n", "").split("|")
_PETS = "dog cat hamster parrot horse rabbit turtle goldfish pony snake kitten puppy".split()
_NAMED = _PETS + ("boat band team company ship robot car village school shop project restaurant street book cousin "
                  "son daughter").split()
_EVENTS = """meeting|party|concert|exam|wedding|flight|appointment|interview|dinner|lunch|game|match|lesson|test|
birthday party|movie|show|race|train|call|dentist appointment|delivery|trip|festival|class|workshop|deadline|
bus""".replace("\n", "").split("|")
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

_ATTRIBUTES = [
    ("code", _digits(100, 9999)), ("code", _secret), ("password", _secret), ("password", _secret),
    ("PIN", _digits(1000, 9999)),
    ("secret word", _secret), ("secret word", _secret), ("code word", _secret), ("secret number", _digits(1, 9999)),
    ("lucky number", _digits(1, 99)), ("favorite number", _digits(1, 99)), ("favorite color", _of(w.COLORS)),
    ("favorite animal", _of(w.ANIMALS)), ("favorite food", _of(w.FOODS)), ("favorite city", _of(w.CITIES)),
    ("favorite word", _secret),
    ("favorite fruit", _of(w.FOODS)), ("favorite season", _of("spring summer autumn winter".split())),
    ("favorite day", _of(_WEEKDAYS)), ("favorite book", _secret),
    ("favorite drink", _of("tea coffee milk water juice wine beer cider cocoa lemonade".split())),
    ("favorite sport", _of(_HOBBIES)), ("hobby", _of(_HOBBIES)), ("home town", _of(w.CITIES)),
    ("birthplace", _of(w.CITIES)),
    ("best friend", _of(w.NAMES)), ("boss", w.person), ("teacher", w.person), ("neighbor", w.person),
    ("doctor", w.person),
    ("sister", _of(w.NAMES)), ("brother", _of(w.NAMES)), ("mother", _of(w.NAMES)), ("father", _of(w.NAMES)),
    ("last name", _of(w.SURNAMES)),
    ("middle name", _of(w.NAMES)), ("nickname", _secret), ("job", _of(w.PEOPLE)), ("age", _digits(2, 99)),
    ("birthday", _date),
    ("phone number", _digits(10000, 9999999)), ("room number", _digits(1, 999)), ("house number", _digits(1, 200)),
    ("locker number", _digits(1, 999)), ("ticket number", _digits(100, 99999)), ("order number", _digits(100, 99999)),
    ("seat", _plate), ("license plate", _plate), ("flight number", _plate),
    ("street", lambda rng: f"{rng.choice(w.EVERY_WORD).capitalize()} Street"),
    ("shoe size", _digits(30, 48)), ("height", lambda rng: f"{rng.randint(140, 205)} cm"), ("car", _of(w.COLORS)),
    ("language", _of(_LANGUAGES)),
    ("native language", _of(_LANGUAGES)), ("goal", _of(w.VERBS)), ("present", _of(w.OBJECTS)),
    ("dream", _of(w.OBJECTS)), ("tool", _of(w.OBJECTS)),
    ("wifi password", _secret), ("account number", _digits(10000, 9999999)),
    ("email", lambda rng: f"{rng.choice(w.NAMES).lower()}@{rng.choice(w.NOUNS)}.com"),
    ("dog", _of(w.NAMES)), ("cat", _of(w.NAMES)),
    ("country", lambda rng: rng.choice("France Italy Japan Peru Kenya Canada Norway India Egypt".split())),
]
_SAY = ["The {k} of {n} is {v}.", "The {k} of {n} is {v}.", "{N}'s {k} is {v}.", "{N}'s {k} is {v}.",
        "{N} has the {k} {v}.",
        "It is known that the {k} of {n} is {v}.", "The {k} of {n}: {v}.", "For {n} the {k} is {v}.",
        "{v} is the {k} of {n}.", "The {k} that belongs to {n} is {v}."]
_ASK = ["What is the {k} of {n}?", "What is the {k} of {n}?", "What is {n}'s {k}?", "What is {n}'s {k}?",
        "What's {n}'s {k}?", "Tell me the {k} of {n}.", "Tell me {n}'s {k}.", "Do you remember the {k} of {n}?",
        "Do you remember {n}'s {k}?",
        "Do you know {n}'s {k}?", "Which {k} does {n} have?", "What {k} does {n} have?", "{N}'s {k}?", "And {n}'s {k}?",
        "The {k} of {n}?", "What was the {k} of {n}?", "What was {n}'s {k}?", "Can you tell me the {k} of {n}?",
        "Please tell me {n}'s {k}.",
        "I forgot the {k} of {n}. What is it?", "What did I say about the {k} of {n}?", "what is the {k} of {n}",
        "what is {n}'s {k}?",
        "Remind me of {n}'s {k}.", "Remind me: what is the {k} of {n}?", "Now, what is {n}'s {k}?",
        "Give me the {k} of {n}.",
        "Name the {k} of {n}.", "According to the text, what is {n}'s {k}?", "So what is the {k} of {n}?"]
_SAY_MINE = ["My {k} is {v}.", "My {k} is {v}.", "{v} is my {k}.", "I have the {k} {v}."]
_ASK_MINE = ["What is my {k}?", "What is my {k}?", "What's my {k}?", "Tell me my {k}.", "Do you remember my {k}?",
             "What was my {k}?", "Do you know my {k}?", "Which is my {k}?", "my {k}?", "What did I say my {k} is?",
             "Can you tell me my {k}?",
             "I forgot my {k}. What is it?", "Remind me of my {k}.", "Please tell me my {k}.", "what is my {k}",
             "So, what is my {k}?"]
_SAY_THE = ["The {k} is {v}.", "The {k} is {v}.", "Our {k} is {v}.", "{v} is the {k}.", "The {k}: {v}.",
            "The {k} for today is {v}."]
_ASK_THE = ["What is the {k}?", "What is the {k}?", "What's the {k}?", "Tell me the {k}.", "Do you remember the {k}?",
            "What was the {k}?",
            "Which {k} did I tell you?", "What {k} did I give you?", "the {k}?", "Can you repeat the {k}?",
            "I forgot the {k}. What is it?",
            "What did I say the {k} was?", "Remind me of the {k}.", "Please tell me the {k}.", "Say the {k}.",
            "what is the {k}",
            "What is the {k} I told you?", "What was the {k} that I mentioned?", "Do you know the {k}?",
            "Now tell me the {k}."]
_ONLY = [" Answer only with it.", " Only the answer.", " Just the answer.", " Answer with only that.", " In one word.",
         " One word.", " Give only the value.", " Answer in one word.", " Reply with just that.", " Nothing else.",
         " Answer with one word."]
_INTRO = ["", "", "", "", "Remember: ", "Remember this: ", "Please remember: ", "Note: ", "Keep in mind: ",
          "By the way: ", "Important: ",
          "For later: ", "Do not forget: ", "A fact: ", "FYI: ", "Please note: ", "Just so you know: ",
          "Here is a fact: "]


def _made(rng, say, ask, value, key, **slots):
    names = {**slots, "v": value}
    names["N"] = w.capital(names.get("n", ""))
    shape = rng.choice(say)
    statement = shape.format(**names)
    if not shape.startswith("{v}"):  # a value keeps its own case: it may be a password
        statement = w.capital(statement)
    return Memory(statement, tuple(question.format(**names) for question in ask), value, key)


def _subject(rng):
    draw = rng.random()
    if draw < 0.7:
        return w.person(rng)
    if draw < 0.88:
        return f"the {rng.choice(w.PEOPLE)}"
    return rng.choice(["my ", "our ", "the new ", "the old "]) + rng.choice(w.PEOPLE)


def _attribute(rng):
    kind, value = rng.choice(_ATTRIBUTES)
    subject = _subject(rng)
    return _made(rng, _SAY, _ASK, value(rng), f"{subject}/{kind}", k=kind, n=subject)


def _mine(rng):
    kind, value = rng.choice(_ATTRIBUTES)
    return _made(rng, _SAY_MINE, _ASK_MINE, value(rng), f"my/{kind}", k=kind)


def _the(rng):
    kind, value = rng.choice(_ATTRIBUTES[:10] + [("answer", _secret), ("key", _secret), ("magic word", _secret),
                                                 ("magic number", _digits(1, 999)),
                                                 ("color of the day", _of(w.COLORS)), ("winner", w.person),
                                                 ("word of the day", _secret), ("gate", _plate), ("address", _address),
                                                 ("password for the door", _secret), ("name of the hotel", _secret),
                                                 ("price", _digits(1, 999))])
    return _made(rng, _SAY_THE, _ASK_THE, value(rng), f"the/{kind}", k=kind)


def _named(rng):
    thing = rng.choice(_NAMED)
    owner = rng.choice(["my", "my", "our", "the", f"{rng.choice(w.NAMES)}'s"])
    value = rng.choice(w.NAMES) if rng.random() < 0.6 else w.capital(_secret(rng))
    subject = f"{owner} {thing}"
    return _made(rng, ["{N} is called {v}.", "{N} is named {v}.", "The name of {n} is {v}.", "{N} has the name {v}."],
                 ["What is {n} called?", "What is the name of {n}?", "How is {n} called?", "What's {n} called?",
                  "What is {n} named?",
                  "Do you remember the name of {n}?", "Tell me the name of {n}.", "What did I say {n} is called?",
                  "what is {n} called",
                  "What's the name of {n}?", "How is {n} named?", "Do you know what {n} is called?"], value,
                  f"name/{subject}", n=subject)


def _event(rng):
    event = rng.choice(_EVENTS)
    subject = rng.choice(["the", "the", "my", "our"]) + " " + event
    if rng.random() < 0.5:
        value = rng.choice(_WEEKDAYS) if rng.random() < 0.6 else _date(rng)
        return _made(rng, ["{N} is on {v}.", "{N} takes place on {v}.", "{N} will be on {v}.", "We moved {n} to {v}."],
                     ["When is {n}?", "On which day is {n}?", "What day is {n}?", "On what day is {n}?",
                      "When does {n} take place?",
                      "Which day is {n} on?", "Do you remember when {n} is?", "Tell me when {n} is."], value,
                      f"when/{subject}", n=subject)
    return _made(rng, ["{N} is at {v}.", "{N} starts at {v}.", "{N} begins at {v}.", "{N} will start at {v}."],
                 ["When is {n}?", "At what time is {n}?", "What time is {n}?", "When does {n} start?",
                  "At what time does {n} start?",
                  "What time does {n} begin?", "Do you remember when {n} starts?", "Tell me when {n} starts."],
                  _time(rng),
                 f"when/{subject}", n=subject)


def _place(rng):
    thing = rng.choice(w.OBJECTS)
    subject = rng.choice(["the", "the", "my", f"{rng.choice(w.NAMES)}'s"]) + " " + thing
    where = rng.choice(["in", "in", "under", "behind", "on", "near", "beside", "above"])
    value = f"{where} the {rng.choice(w.OBJECTS + w.PLACES)}"
    return _made(rng,
                 ["{N} is {v}.", "{N} lies {v}.", "I put {n} {v}.", "I left {n} {v}.", "You can find {n} {v}.",
                  "{N} is hidden {v}."],
                 ["Where is {n}?", "Where is {n}?", "Where did I put {n}?", "Where can I find {n}?",
                  "Do you remember where {n} is?",
                  "Tell me where {n} is.", "where is {n}", "Where's {n}?", "Where did I leave {n}?"], value,
                  f"where/{subject}", n=subject)


def _life(rng):
    me = rng.random() < 0.4
    name = w.person(rng)
    subject, s, do, be, was = ("I", "", "do", "am", "was") if me else (name, "s", "does", "is", "was")
    asked = "I" if me else name
    shapes = [
        (f"{subject} live{s} in {{v}}.",
         [f"Where {do} {asked} live?", f"In which city {do} {asked} live?", f"What city {do} {asked} live in?"],
         rng.choice(w.CITIES), "lives"),
        (f"{subject} {was} born in {{v}}.", [f"Where {was} {asked} born?", f"In which city {was} {asked} born?"],
         rng.choice(w.CITIES), "born"),
        (f"{subject} {was} born in {{v}}.", [f"When {was} {asked} born?", f"In which year {was} {asked} born?"],
         str(rng.randint(1900, 2015)), "born"),
        (f"{subject} {be} {{v}} years old.", [f"How old {be} {asked}?", f"What age {be} {asked}?"],
         str(rng.randint(2, 99)), "age"),
        (f"{subject} work{s} as a {{v}}.",
         [f"What {do} {asked} work as?", f"What is {'my' if me else name + chr(39) + 's'} job?"],
         rng.choice([word for word in w.PEOPLE if word[0] not in "aeiou"]), "job"),
        (f"{subject} like{s} {{v}} best.", [f"What {do} {asked} like best?"],
         rng.choice(w.FOODS + w.ANIMALS + w.COLORS), "likes"),
        (f"{subject} speak{s} {{v}}.", [f"What language {do} {asked} speak?", f"Which language {do} {asked} speak?"],
         rng.choice(_LANGUAGES), "speaks"),
        (f"{subject} will travel to {{v}}.", [f"Where will {asked} travel?", f"Where will {asked} travel to?"],
         rng.choice(w.CITIES), "travel"),
        (f"{subject} bought {{v}}.", [f"What did {asked} buy?"], w.with_article(rng.choice(w.OBJECTS)), "bought"),
        (f"{subject} lost {{v}}.", [f"What did {asked} lose?"], w.with_article(rng.choice(w.OBJECTS)), "lost"),
        (f"{subject} met {{v}} yesterday.", [f"Who did {asked} meet?", f"Who did {asked} meet yesterday?"],
         rng.choice(w.NAMES), "met"),
        (f"{subject} play{s} the {{v}}.",
         [f"What instrument {do} {asked} play?", f"Which instrument {do} {asked} play?"],
         rng.choice("guitar piano violin drum flute harp trumpet".split()), "plays")]
    if me:
        shapes += [("My name is {v}.",
                    ["What is my name?", "What's my name?", "Do you remember my name?", "Who am I?", "Tell me my name.",
                                        "what is my name"], rng.choice(w.NAMES), "name")] * 4
    say, asks, value, verb = rng.choice(shapes)
    return Memory(say.format(v=value), tuple(asks), value, f"{'my' if me else subject}/{verb}")


_SHAPES = [(_attribute, 6), (_mine, 2), (_the, 2), (_named, 2), (_event, 1.5), (_place, 1.5), (_life, 2.5)]


def draw(rng):
    return rng.choices([shape for shape, _ in _SHAPES], [weight for _, weight in _SHAPES])[0](rng)


def draw_many(rng, count):
    """Memories that do not contradict each other."""
    out, keys = [], set()
    while len(out) < count:
        memory = _attribute(rng) if rng.random() < 0.3 else draw(rng)
        if memory.key not in keys:
            keys.add(memory.key)
            out.append(memory)
    return out


def state(rng, memory):
    return rng.choice(_INTRO) + memory.statement


def ask(rng, memory):
    """(question, reasoning, answer)"""
    question = rng.choice(memory.questions)
    if rng.random() < 0.15:
        return question + rng.choice(_ONLY), memory.statement, memory.value
    if rng.random() < 0.1:
        question = rng.choice(["Please: ", "Now: ", "OK. ", "Question: ", "Thanks. "]) + question
    return question, memory.statement, memory.value + "."


def ask_untold(rng, told):
    """(question, reasoning, answer): something that was not said."""
    keys = {memory.key for memory in told}
    while True:
        memory = draw(rng)
        if memory.key not in keys and not any(question in other.questions for other in told
                                              for question in memory.questions):
            question = rng.choice(memory.questions)
            return question, "Nobody told me that.", UNKNOWN_ANSWER


_READ = ["Read this: ", "Read this: ", "Read this text: ", "Please read: ", "Read the following text: ",
         "Here is a text: ", "Read: ", "",
         "Text: ", "Please read this carefully: ", "A story: ", "Listen: ", "Here is some text. ", "Notes: "]


def reading(rng, text):
    return rng.choice(_READ) + text


def reading_with_question(rng, text, question):
    """Text and question in one message."""
    return rng.choice(["{t} {q}", "{t}\n\n{q}", "{t}\n{q}", "Read this: {t} {q}", "Read the text and answer. {t} {q}",
                       "Text: {t}\nQuestion: {q}",
                       "{q}\n\n{t}", "Here is a text: {t}\n\n{q}", "Context: {t} Question: {q}"]).format(t=text,
                                                                                                         q=question)


