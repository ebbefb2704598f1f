"""Values of tool parameters and results by kind: their JSON type, how they are drawn and how people say them."""

import string

from demo.data import words as w
from demo.data.words import capital

_MONTHS = "January February March April May June July August September October November December".split()
_ENUMS = {
    "temperature_unit": ["celsius", "fahrenheit"], "priority": ["low", "medium", "high"],
    "travel_mode": ["car", "bike", "train", "bus"],
    "direction": ["forward", "backward", "left", "right"], "shape": ["circle", "square", "triangle", "star"],
    "account": ["savings", "checking", "credit"],
    "sky": ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear", "stormy"],
    "level": ["low", "medium", "high"], "size": ["small", "medium", "large"],
}
# Truth values are said in words.
_BOOLEANS = {"onoff": ("off", "on"), "admin": ("without admin rights", "as admin"),
             "flash": ("without flash", "with flash"),
             "urgent": ("not urgent", "urgent"), "loud": ("quietly", "loudly"), "private": ("publicly", "privately"),
             "yesno": ("no", "yes"), "now": ("later", "right now"), "confirm": ("without asking", "after asking me")}
_INTEGERS = {"small": (1, 20), "minutes": (1, 180), "percent": (0, 100), "amount": (1, 999), "warmth": (10, 30),
             "degrees": (-15, 42),
             "sides": (4, 100), "large": (1000, 9999999), "number": (0, 99999), "year": (1900, 2030)}
_DESCRIPTIONS = {"city": "The city", "person": "The name of the person", "text": "The text", "time": "The time",
                 "date": "The date",
                 "file": "The path of the file", "email": "The email address", "room": "The room", "color": "The color",
                 "amount": "The number",
                 "small": "How many", "minutes": "Minutes", "language": "The language", "word": "The word",
                 "thing": "The product",
                 "food": "The food", "percent": "From 0 to 100", "symbol": "The code", "url": "The address"}


def is_enum(kind):
    return kind in _ENUMS


def options(kind):
    return _ENUMS[kind]


def json_type(kind):
    if kind in _BOOLEANS:
        return "boolean"
    if kind in _INTEGERS:
        return "integer"
    if kind == "decimal":
        return "number"
    return "array" if kind in ("labels", "files") else "string"


def description(kind):
    return _DESCRIPTIONS.get(kind, f"The {kind.replace('_', ' ')}")


def _plain_text(rng):
    """What people write to each other."""
    noun, food, name = rng.choice(w.NOUNS), rng.choice(w.FOODS), rng.choice(w.NAMES)
    return rng.choice([
        f"the {noun} is {rng.choice(w.ADJECTIVES)}", f"I will {rng.choice(w.VERBS)} the {noun}", f"we need more {food}",
        f"{name} will come at {_time(rng)}", f"please {rng.choice(w.VERBS)} the {noun}", f"do not forget the {noun}",
        f"I am at the {rng.choice(w.PLACES)}", f"the meeting is at {_time(rng)}", f"I will be {rng.randint(2, 59)} minutes late",
        f"buy {food} and {rng.choice(w.FOODS)}", f"call {name}", f"pick up {name}", f"dinner is at {_time(rng)}",
        f"I found your {noun}", f"see you at the {rng.choice(w.PLACES)}", f"thanks for the {noun}", f"{name} is here",
        f"happy birthday, {name}", f"the {noun} arrives {rng.choice(['today', 'tomorrow', 'on Monday'])}",
        f"I can't come {rng.choice(['today', 'tomorrow', 'tonight'])}", "don't be late", f"bring the {noun}, please"])


def _text(rng):
    draw = rng.random()
    if draw < 0.16:
        return _plain_text(rng)
    if draw < 0.38:
        return " ".join(w.any_word(rng) for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5))))
    if draw < 0.6:
        return f"{rng.choice(w.VERBS)} the {rng.choice(w.NOUNS)}" + rng.choice(["", "", f" {rng.choice(w.ADVERBS)}",
                                                                                f" and {rng.choice(w.VERBS)}"])
    if draw < 0.75:
        return f"{rng.choice(w.ADJECTIVES)} {rng.choice(w.NOUNS)}"
    if draw < 0.85:
        return capital(" ".join(rng.choice(w.EVERY_WORD) for _ in range(rng.choice((1, 2, 3)))))
    if draw < 0.93:
        return rng.choice(["I will be late", "See you soon", "Happy birthday", "Call me back", "I am at home",
                           "Dinner is ready", "hello", "thank you",
                           "good morning", "where are you", "Meeting at noon", "buy milk", "call mom", "feed the cat",
                           "water the plants"])
    return f"{rng.choice(w.NOUNS)} {rng.randint(1, 99)}"


def _time(rng):
    return rng.choice([f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}",
                       f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}",
                       f"{rng.randint(1, 12)} {rng.choice(['am', 'pm'])}",
                       f"{rng.randint(1, 12)}{rng.choice(['am', 'pm'])}"])


def _date(rng):
    return rng.choice([f"{rng.choice(_MONTHS)} {rng.randint(1, 30)}",
                       f"{rng.randint(2023, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
                       rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
                       rng.choice(["today", "tomorrow", "tonight"]),
                       f"next {rng.choice('Monday Tuesday Friday Sunday week'.split())}", f"May {rng.randint(1, 31)}"])


def _file(rng):
    name = f"{rng.choice(w.NOUNS + w.TECH)}.{rng.choice('txt md py json csv log pdf html jpg cfg yaml'.split())}"
    return name if rng.random() < 0.65 else f"{rng.choice(['', '/'])}{rng.choice(w.NOUNS + w.TECH)}/{name}"


def _unit(rng):
    return rng.choice("meters feet miles kilometers inches centimeters grams kilograms pounds ounces liters gallons "
                      "celsius fahrenheit hours minutes seconds days weeks cups km kg cm lbs yards".split())


def _currency(rng):
    return rng.choice("euros dollars pounds yen francs pesos rupees rubles yuan USD EUR GBP JPY CHF CAD INR "
                      "crowns".split())


def _command(rng):
    return rng.choice(["ls", "ls -la", "pwd", "date", "git status", "git log", "make", "make test", "whoami",
                       f"cat {_file(rng)}", f"rm {_file(rng)}",
                       f"cd {rng.choice(w.NOUNS)}", f"mkdir {rng.choice(w.NOUNS)}", f"echo {rng.choice(w.EVERY_WORD)}",
                       f"python {rng.choice(w.NOUNS)}.py",
                       f"grep {rng.choice(w.EVERY_WORD)} {_file(rng)}", f"ping {rng.choice(w.NOUNS)}.com"])


def _place_name(rng):
    return rng.choice([f"the {capital(rng.choice(w.ADJECTIVES))} {capital(rng.choice(w.NOUNS))}",
                       capital(w.invented(rng)), f"{rng.choice(w.NAMES)}'s",
                       f"the {rng.choice(w.PLACES)}", f"Cafe {rng.choice(w.NAMES)}", capital(rng.choice(w.NOUNS))])


_LANGUAGES = ("French German Spanish Italian Polish Greek Swedish Russian Chinese Japanese Dutch Turkish Latin "
              "Arabic").split()
_ROOMS = ["kitchen", "bedroom", "bathroom", "cellar", "attic", "garden", "hall", "office", "garage", "hallway", "nursery",
          "basement", "lobby", "library", "living room", "dining room", "guest room"]
_DOORS = "front back garage kitchen side main cellar garden office balcony".split()
_APPS = "calendar mail browser notes maps camera music settings calculator clock photos terminal editor chat".split()


def _city(rng):
    if rng.random() < 0.85:
        return rng.choice(w.CITIES)
    return rng.choice(["New York", "San Francisco", "Los Angeles", "Hong Kong", "Cape Town", "Las Vegas", "Rio",
                       capital(w.invented(rng))])


def _person(rng):
    if rng.random() < 0.9:
        return w.person(rng)
    return rng.choice(["mom", "dad", "my boss", "Dr. " + rng.choice(w.SURNAMES)])


def _email(rng):
    return f"{rng.choice(w.NAMES).lower()}@{rng.choice(w.NOUNS)}.{rng.choice(['com', 'org', 'net', 'io'])}"


def _expression(rng):
    if rng.random() < 0.8:
        return f"{rng.randint(1, 999)} {rng.choice('-*/')} {rng.randint(1, 999)}"
    return f"({rng.randint(1, 99)} + {rng.randint(1, 99)}) * {rng.randint(2, 9)}"


def _phone(rng):
    if rng.random() < 0.7:
        return str(rng.randint(10000, 9999999))
    return f"{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"


def _thing(rng):
    if rng.random() < 0.7:
        return rng.choice(w.OBJECTS)
    return f"{rng.choice(w.ADJECTIVES)} {rng.choice(w.OBJECTS)}"


def _symbol(rng):
    letters = "".join(rng.choice(string.ascii_uppercase) for _ in range(rng.randint(2, 4)))
    return letters + rng.choice(["", "", str(rng.randint(1, 999))])


def _url(rng):
    start = rng.choice(["", "https://", "www."])
    site = f"{rng.choice(w.EVERY_WORD).lower()}.{rng.choice(['com', 'org', 'net'])}"
    return start + site + rng.choice(["", "", "/" + rng.choice(w.NOUNS)])


_FOODS = [food for food in w.FOODS if food[-1] != "s"]
_STRINGS = {
    "city": _city, "person": _person, "text": _text, "time": _time, "date": _date, "file": _file, "unit": _unit,
    "currency": _currency, "command": _command, "place_name": _place_name, "email": _email, "expression": _expression,
    "phone": _phone, "thing": _thing, "symbol": _symbol, "url": _url, "word": w.any_word,
    "language": lambda rng: rng.choice(_LANGUAGES), "room": lambda rng: rng.choice(_ROOMS),
    "door": lambda rng: rng.choice(_DOORS), "food": lambda rng: rng.choice(_FOODS),
    "color": lambda rng: rng.choice(w.COLORS), "app": lambda rng: rng.choice(_APPS),
    "foreign": lambda rng: " ".join(w.invented(rng) for _ in range(rng.randint(1, 2))),
}


def draw(rng, kind):
    """A value of the kind as JSON has it."""
    if kind in _ENUMS:
        return rng.choice(_ENUMS[kind])
    if kind in _BOOLEANS:
        return rng.random() < 0.5
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return rng.randint(low, min(high, 20)) if rng.random() < 0.2 and low < 20 else rng.randint(low, high)
    if kind == "decimal":
        return rng.choice([round(rng.uniform(1, 999), 2), round(rng.uniform(1, 99), 1), float(rng.randint(1, 999)),
                           rng.randint(1, 999)])
    if kind == "labels":
        return [rng.choice(w.EVERY_WORD) for _ in range(rng.randint(1, 3))]
    if kind == "files":
        return [_file(rng) for _ in range(rng.randint(1, 3))]
    return _STRINGS[kind](rng)


def said(kind, value):
    """The value in a sentence."""
    if kind in _BOOLEANS:
        return _BOOLEANS[kind][value]
    if isinstance(value, list):
        return ", ".join(value[:-1]) + (" and " if len(value) > 1 else "") + value[-1]
    return str(value)


def answered(value):
    """The value of a result as an answer gives it, without the full stop."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
