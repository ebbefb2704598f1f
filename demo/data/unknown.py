"""Questions whose answer the model does not know, from very many patterns: it must say so instead of guessing.

Half of them look like the known ones (a known relation with another subject, a known subject in another relation), so
that only the pair of both decides; the rest ask about anything.
"""

import re

from demo.data import questions
from demo.data import words as w
from demo.data.facts import CAPITALS, COLORS, LANGUAGES, OPPOSITES, PLURALS

ANSWER = "I do not know that."

_OTHER_COUNTRIES = """Mongolia Bhutan Laos Cambodia Malaysia Burma Bangladesh Kazakhstan Uzbekistan Georgia Armenia
Azerbaijan Moldova Belarus Albania Montenegro Macedonia Kosovo Malta Cyprus Jordan Yemen Oman Kuwait Qatar Bahrain Libya
Sudan Chad Niger Mali Ghana Togo Benin Cameroon Gabon Congo Angola Zambia Zimbabwe Mozambique Malawi Tanzania Uganda
Rwanda Burundi Somalia Djibouti Eritrea Madagascar Mauritius Botswana Namibia Lesotho Eswatini Senegal Gambia Guinea
Liberia Guatemala Honduras Nicaragua Panama Jamaica Haiti Barbados Trinidad Guyana Suriname Bolivia Paraguay Uruguay
 Fiji
Samoa Tonga Vanuatu Tuvalu Kiribati Palau Brunei Maldives Andorra Monaco Liechtenstein Texas California Florida Ohio
Nevada Bavaria Tuscany Catalonia Siberia Alaska Hawaii Utah Atlantis Narnia Wakanda Mordor Oz""".split()
_THING_COLORS = [f"{article} {noun}" for article in ("the", "a", "my", "your", "his", "her") for noun in
                 "car house door shirt dog cat bike hat coat sofa lamp flag book bag wall umbrella cup phone".split()]
_TOPICS = """quantum physics|the theory of relativity|machine learning|photosynthesis|the French Revolution|inflation|
black holes|the stock market|the Roman Empire|evolution|the immune system|blockchain|democracy|climate change|jazz|
the Second World War|philosophy|the Renaissance|plate tectonics|DNA|chess openings|tax law|nuclear fusion|poetry|
the Cold War|cryptography|opera|astrology|the Vikings|samurai|the Industrial Revolution|electric cars|yoga|football
tactics|the United Nations|ancient Greece|the internet|compilers|calculus|probability|statistics|genetics""".replace(
    "\n", " ").split("|")
_TOPICS = [topic.strip() for topic in _TOPICS]
_EVENTS = """the chess open|the world cup|the Olympic Games|the election|the song contest|the marathon|the Nobel Prize|
the final|the championship|the race|the tennis open|the Super Bowl|the Oscars|the tournament|the league|the boat race|
the regatta|the debate|the spelling contest|the science fair|the bike tour|the Grand Prix|the dance contest""".replace(
    "\n", " ").split("|")
_EVENTS = [event.strip() for event in _EVENTS]
_AGENTS = """mayor president king queen captain director author owner founder coach manager leader conductor inventor
designer architect editor winner champion singer drummer goalkeeper principal ambassador treasurer sheriff""".split()
_MEASURES = ["population", "height", "age", "weight", "length", "depth", "area", "price", "speed", "phone number",
             "address", "zip code", "birthday", "salary", "size", "flag", "anthem", "motto", "mayor", "nickname",
             "meaning", "origin", "password", "serial number", "shoe size", "blood type", "favorite song", "king",
             "email address", "middle name", "melting point", "density", "recipe", "plot", "ending", "final score",
             "time zone", "postal code", "national dish", "national bird", "president", "prime minister", "author",
             "release date", "wingspan", "diameter", "latitude", "budget", "exchange rate", "birth rate"]
_FIXED = """Why is the sky blue?|Why is the grass green?|What is the meaning of life?|What is love?|
How are clouds made?|
What happened yesterday?|What did I eat for breakfast?|Where did I put my keys?|What am I thinking about?|
What time is it?|
What is the date today?|What day is it today?|What is today's date?|What is the weather like today?|
Will it rain tomorrow?|
Who am I?|Where am I?|How old am I?|What is my phone number?|When is my birthday?|Where do I live?|
Who is my best friend?|
What is the best movie ever?|What should I cook tonight?|Which phone should I buy?|How do I fix my car?|Who will win the
 next election?|What are tomorrow's lottery numbers?|How much money do I have?|What is the speed of light?|
How far away is
 the moon?|How far is the sun?|How big is the universe?|How old is the universe?|How old is the Earth?|How deep is the
 ocean?|How high is Mount Everest?|How long is the Nile?|How many people live on Earth?|How many stars are there?|
How many
 fish are in the sea?|How many grains of sand are on a beach?|What is dark matter?|What is the largest prime number?|
What
 is the last digit of pi?|Who built the pyramids?|Who invented the wheel?|Who invented fire?|Who discovered fire?|
Who shot
 the president?|Who wrote the Bible?|What is the plot of Hamlet?|How does a computer work?|How does a car engine work?|
How
 do planes fly?|Why do cats purr?|Why do dogs bark?|Why do we dream?|Why do we sleep?|Why is water wet?|
How do I get rich?|
What is the news today?|What is on television tonight?|Who is at the door?|What is in this box?|
What is behind the door?|
Can you see me?|Can you hear me?|What is the wifi password?|Where is the nearest hospital?|Where can I buy bread?|
How do I
 get to the station?|When does the next train leave?|When does the shop open?|How do you say hello in Swahili?|Translate
 the Odyssey.|Write a poem about the sea.|Write me a story.|Write an essay about war.|Sing a song.|Draw a cat.|
Explain the
 rules of chess.|Tell me everything about Rome.|Give me a recipe for bread.|Give me some advice.|Recommend a good book.|
What is the best programming language?|Write a program that sorts numbers.|What is 7 times 8?|What is 12 divided by 4?|
What is the square root of 2?|What is 5 minus 3?|Prove that there are infinitely many primes.|Summarize the news.|
What does my name mean?|Is there life on Mars?|Is there a god?|Are aliens real?|Do ghosts exist?|
What comes after death?|
What was the first movie?|Who is the richest man in the world?|Who is the president of France?|
Who is the king of Spain?|
Who is the prime minister of India?|How tall is the Eiffel Tower?|When was the Eiffel Tower built?|
When did the war end?|
When did Columbus sail?|When was Shakespeare born?|How old was Einstein?|Where was Newton born?|
What is Einstein's middle
 name?|What is a quark?|What is a haiku?|What is an algorithm?|What causes thunder?|What causes earthquakes?|
What makes the
 wind blow?|How are diamonds made?|How is glass made?|What is the tallest building in the world?|
What is the oldest tree?|
Which team won the cup last year?|How many calories are in an apple?|How much does an elephant weigh?|
How much does a car
 cost?|How fast can a horse run?|How long do turtles live?|What is the rarest animal?|What is the most spoken language?|
What was the name of Napoleon's horse?|Who painted the ceiling of the chapel?|
How many bones are in the human body?""".replace(
    "\n", "").split("|")


def _subject(rng):
    """A person, place, thing or word that a question may be about, known or not."""
    draw = rng.randrange(14)
    if draw == 0:
        return w.person(rng)
    if draw == 1:
        return f"{rng.choice(w.NAMES)} {rng.choice(w.SURNAMES)}"
    if draw == 2:
        return rng.choice(w.CITIES)
    if draw == 3:
        return rng.choice(_OTHER_COUNTRIES)
    if draw == 4:
        return w.capital(w.invented(rng))
    if draw == 5:
        return f"the {rng.choice(w.ADJECTIVES)} {rng.choice(w.NOUNS)}"
    if draw == 6:
        return f"my {rng.choice(w.NOUNS)}"
    if draw == 7:
        name = w.capital(w.invented(rng))
        return f"{name} {rng.choice(['University', 'Lake', 'Street', 'Bank', 'Castle', 'Park', 'Inc.'])}"
    if draw == 8:
        return f"the {w.capital(w.invented(rng))} {rng.choice(w.NOUNS)}"
    if draw == 9:
        return rng.choice(CAPITALS).name.split(":")[1]
    if draw == 10:
        return f"the {rng.choice(w.NOUNS)} of {rng.choice(w.NAMES)}"
    if draw == 11:
        return w.with_article(rng.choice(w.NOUNS))
    if draw == 12:
        return f"{rng.choice(w.NAMES)}'s {rng.choice(w.NOUNS)}"
    return f"the {rng.choice(w.NOUNS)}"


def _year(rng):
    return rng.randint(1000, 2099) if rng.random() < 0.4 else rng.randint(1850, 2025)


def _strange_word(rng):
    """Something that has no opposite, plural or color among the facts."""
    known = {fact.name.split(":")[1] for fact in OPPOSITES + PLURALS}
    while True:
        word = w.invented(rng) if rng.random() < 0.4 else rng.choice(w.OBJECTS + w.FOODS + w.NATURE + w.ABSTRACT)
        if word not in known:
            return word


def _near_miss(rng):
    """A question with a known relation and a subject outside its table."""
    draw = rng.randrange(12)
    if draw <= 1:
        place = rng.choice(_OTHER_COUNTRIES) if rng.random() < 0.75 else w.capital(w.invented(rng))
        relation = CAPITALS if rng.random() < 0.7 else LANGUAGES
        return _swap(rng, relation, place)
    if draw <= 3:
        thing = rng.choice(_THING_COLORS) if rng.random() < 0.6 else w.with_article(w.invented(rng))
        return _swap(rng, COLORS, thing)
    if draw == 4:
        return _swap(rng, OPPOSITES, _strange_word(rng))
    if draw == 5:
        return _swap(rng, PLURALS, w.invented(rng))
    if draw == 6:
        return f"what sound does {w.with_article(rng.choice(w.OBJECTS + w.FOODS + [w.invented(rng)]))} make"
    if draw == 7:
        return f"how many {rng.choice(w.NOUNS)}s are in {_subject(rng)}"
    if draw == 8:
        return f"what is a baby {rng.choice(w.OBJECTS + [w.invented(rng)])} called"
    if draw == 9:
        return f"how many legs does {w.with_article(w.invented(rng))} have"
    if draw == 10:
        return f"who {rng.choice(w.PAST_VERBS)} {_subject(rng)}"
    return f"what is the currency of {rng.choice(_OTHER_COUNTRIES)}"


def _swap(rng, relation, subject):
    """A wording of the relation with its subject replaced."""
    fact = rng.choice(relation)
    known = fact.name.split(":")[1]
    fitting = [question for question in fact.questions if known in question]
    return re.sub(rf"\b{re.escape(known)}\b", lambda _: subject, rng.choice(fitting))


def _pattern(rng):
    """A question about anything, lower case and without its mark."""
    s, year = _subject(rng), _year(rng)
    noun, verb = rng.choice(w.NOUNS), rng.choice(w.VERBS)
    person, place = w.person(rng), rng.choice(w.CITIES + _OTHER_COUNTRIES)
    agent, event, measure = rng.choice(_AGENTS), rng.choice(_EVENTS), rng.choice(_MEASURES)
    return rng.choice([
        f"who won {event} in {year}", f"who won {event.replace('the ', f'the {year} ')}", f"who lost {event} in {year}",
        f"where was {event} held in {year}", f"what happened in {place} in {year}",
        f"what happened on {rng.choice(_MONTHS)} "
        f"{rng.randint(1, 30)}, {year}", f"who was the {agent} of {place} in {year}", f"who is the {agent} of {place}",
        f"who is the {agent} of {s}", f"what is the name of the {agent} of {place}", f"when was {person} born",
        f"when was {s} built", f"when was {s} invented", f"when did {person} die", f"where was {person} born",
        f"where does {person} live", f"where is {s}", f"how old is {person}", f"how old is {s}",
        f"how tall is {person}",
        f"how tall is {s}", f"how much does {s} cost", f"how much does {s} weigh", f"how long is {s}",
        f"how far is it from "
        f"{place} to {rng.choice(w.CITIES)}", f"how many people live in {place}",
        f"how many {noun}s does {person} have",
        f"how many {noun}s are there in {place}", f"how many pages does {s} have", f"what is the {measure} of {s}",
        f"what is the {measure} of {place}", f"what is {person}'s {measure}", f"what is my {noun} called",
        f"what is the name of {person}'s {rng.choice(w.ANIMALS)}", f"what did {person} say about {s}",
        f"what did {person} "
        f"{verb} in {year}", f"what does {person} think about {s}", f"what does {w.invented(rng)} mean", f"what is "
        f"{w.with_article(w.invented(rng))}", f"what is the meaning of the word {w.invented(rng)}",
        f"why did {person} {verb} "
        f"the {noun}", f"why does the {noun} {verb}", f"why is {s} so {rng.choice(w.ADJECTIVES)}", f"how does {s} work",
        f"how do i {verb} the {noun}", f"how can i {verb} {s}", f"how do you {verb} {w.with_article(noun)}",
        f"who is {person}",
        f"who is the {rng.choice(w.PEOPLE)} of {person}", f"who wrote {s}", f"who invented {w.with_article(noun)}",
        f"who discovered {s}", f"who painted {s}", f"who directed {s}", f"who sang {s}", f"who owns {s}",
        f"which {noun} does {person} like best", f"which {noun} is the best", f"which team won {event}",
        f"which {noun} is in {place}", f"what is {rng.choice(_TOPICS)}", f"how does {rng.choice(_TOPICS)} work",
        f"why is {rng.choice(_TOPICS)} important",
        f"what do you think about {rng.choice(_TOPICS)}", f"who started {rng.choice(_TOPICS)}",
        f"is {person} {rng.choice(w.ADJECTIVES)}",
        f"is the {noun} of {person} {rng.choice(w.ADJECTIVES)}", f"did {person} {verb} the {noun}",
        f"will {person} {verb} in {year}",
        f"does {person} like {rng.choice(w.FOODS)}", f"can {person} {verb} {w.with_article(noun)}",
        f"when will {s} {verb}",
        f"when does {s} open", f"at what time does {person} {verb}", f"what was the score of {event} in {year}",
        f"what was the weather in {place} in {year}", f"what will the weather be in {place} tomorrow",
        f"what is the price of "
        f"{w.with_article(noun)} in {place}", f"what is {rng.randint(2, 99)} times {rng.randint(2, 99)}",
        f"what is {rng.randint(2, 99)} divided by {rng.randint(2, 9)}",
        f"what is {rng.randint(50, 999)} minus {rng.randint(2, 49)}",
        f"in which year was {s} founded", f"in which year did {person} win {event}", f"what color is {person}'s {noun}",
        f"what color are the eyes of {person}", f"what is the best {noun} in {place}",
        f"what is on page {rng.randint(2, 400)} of {s}", f"what is the {rng.randint(3, 40)}th word of {s}",
        f"who lives at {rng.randint(1, 200)} {w.capital(noun)} Street"])


_MONTHS = "January February March April May June July August September October November December".split()


def _request(rng):
    """Something other than a question that the model cannot do."""
    topic = rng.choice(_TOPICS) if rng.random() < 0.6 else _subject(rng)
    noun = rng.choice(w.NOUNS)
    return rng.choice([
        f"Explain {topic}.", f"Tell me about {topic}.", f"Explain {topic} to me.", f"Describe {topic} in detail.",
        f"Write a poem about {topic}.", f"Write an essay about {topic}.",
        f"Write a story about {w.with_article(noun)}.",
        f"Summarize {topic}.", f"Give me three facts about {topic}.", f"Compare {topic} and {rng.choice(_TOPICS)}.",
        f"What can you tell me about {topic}?", f"Teach me {topic}.",
        f"Give me the recipe for {rng.choice(w.FOODS)} {noun}.",
        f"List the {noun}s of {rng.choice(w.CITIES)}.", f"Name the {rng.choice(_AGENTS)} of {rng.choice(w.CITIES)}.",
        f"Tell me the {rng.choice(_MEASURES)} of {_subject(rng)}.", f"Do you know {w.person(rng)}?",
        f"Tell me who {rng.choice(w.PAST_VERBS)} {_subject(rng)}.", f"Tell me when {_subject(rng)} was built.",
        f"Do you know the {rng.choice(_MEASURES)} of {_subject(rng)}?", f"Define {w.invented(rng)}.",
        f"Please tell me the name of {w.person(rng)}'s {rng.choice(w.ANIMALS)}."])


def ask(rng):
    """(question, reasoning, answer, key)"""
    draw = rng.random()
    if draw < 0.10:
        text = rng.choice(_FIXED)
        key = text
        if rng.random() < 0.5:
            text = questions.any_frame(rng, text[0].lower() + text[1:].rstrip("?.")) if text.endswith("?") else text
    elif draw < 0.38:
        key = _near_miss(rng)
        text = questions.any_frame(rng, key)
    elif draw < 0.88:
        key = _pattern(rng)
        text = questions.any_frame(rng, key)
    else:
        text = key = _request(rng)
        text = text if rng.random() < 0.8 else rng.choice(["Please: ", "Hi. ", "OK. ", "Now: "]) + text
    return text, "That is not among the things that I know.", ANSWER, key
