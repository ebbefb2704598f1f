"""Texts to write back exactly: up to 48 characters of anything, in many wordings.

Words that were never in this role are copied wrongly, so texts are drawn from every token of the vocabulary as well as
from words, code, numbers and phrases, with every casing and punctuation. A text wholly in quotes is answered without
them, so no text begins and ends with the same quote.
"""

import string

from demo.data import words as w

_LONGEST = 48
_FRAMES = ["Write exactly: ", "Write exactly: ", "Write exactly: ", "Write exactly: ", "Write exactly this: ",
           "Write: ", "Write exactly the following: ", "Write the following exactly: ", "Write this text: ",
           "Write this exactly: ",
           "Repeat exactly: ", "Repeat: ", "Repeat this: ", "Repeat after me: ", "Repeat the text: ",
           "Repeat the following: ",
           "Repeat this exactly: ", "Repeat the following text: ", "Repeat word for word: ", "Please repeat: ",
           "Please repeat after me: ", "Please write exactly: ", "Please write: ", "Please copy: ", "Please say: ",
           "Say: ", "Say exactly: ", "Say this: ", "Say the following: ", "Copy this: ", "Copy: ", "Copy this text: ",
           "Copy exactly: ", "Copy the text: ", "Copy the following: ", "Copy the following text: ", "Copy the line: ",
           "Copy this line exactly: ",
           "Echo: ", "Echo this: ", "Echo back: ", "Echo exactly: ", "Print: ", "Print exactly: ", "Print this: ",
           "Type: ", "Type exactly: ", "Type this: ", "Type the following: ", "Output: ", "Output exactly: ",
           "Output this text: ",
           "Output only this: ", "Output the following text: ", "Answer exactly: ", "Answer with exactly this: ",
           "Answer only with this text: ", "Answer with: ", "Reply exactly: ", "Reply with exactly: ",
           "Reply with this: ",
           "Reply only with: ", "Respond with: ", "Respond exactly: ", "Respond only with this: ", "Give me back: ",
           "Give back this text: ", "Return exactly: ", "Return this text: ", "Return: ", "Write down: ",
           "Write down exactly: ",
           "Send back: ", "Quote: ", "Reproduce: ", "Reproduce exactly: ", "Text to copy: ", "Can you write: ",
           "Can you repeat this: ", "Could you write exactly: ", "Now write: ", "Then write exactly: ", "Now say: ",
           "I want you to write exactly: ", "I want you to say: ", "Your answer must be exactly: ", "Your answer is: ",
           "Write the words: ", "Write the line: ", "Write only: ", "Write only this: ", "Just write: ", "Just say: ",
           "Write exactly this text and nothing else: ", "Write nothing but this: ", "Copy without changes: ",
           "Repeat without changing anything: ", "write exactly: ", "repeat: ", "say: ", "copy: ", "copy this: ",
           "echo: "]
# No colon: only for texts that cannot be mistaken for part of the request.
_OPEN = ["Say {x}", "Say {x}", "Say {x}.", "Write {x}", "Repeat {x}", "Please say {x}", "Echo {x}", "Print {x}",
         "Type {x}",
         "Can you say {x}?", "Write the word {x}", "Say the word {x}", "Repeat the word {x}", "Write exactly {x}",
         "say {x}"]
_QUOTED = ["Write exactly: {x}", "Repeat: {x}", "Repeat {x}", "Repeat {x}.", "Say {x}", "Say {x}.", "Write {x}",
           "Write {x}.",
           "Copy {x}", "Echo {x}", "Print {x}", "Type {x}", "Output {x}", "Copy this text: {x}", "Write this: {x}",
           "Please write {x}.", "Please say {x}.", "Can you say {x}?", "Could you repeat {x}?", "Write the text {x}.",
           "Repeat the sentence {x}.", "Repeat after me: {x}", "Answer with {x}.", "Reply with {x}.",
           "Respond with {x}",
           "Write the words {x} and nothing else.", "Say {x} and nothing else.", "Write {x} exactly.",
           "Repeat {x} exactly.",
           "Copy {x} exactly as it is.", "Your answer must be {x}.", "Just say {x}.", "Write exactly {x}",
           "Say exactly {x}.",
           "Reply with exactly {x}.", "Print the line {x}.", "Write the phrase {x}.", "Repeat the word {x}.",
           "Say the word {x}"]
_QUOTES = ['"{x}"', '"{x}"', '"{x}"', "'{x}'", "\u201c{x}\u201d", "`{x}`"]
_PHRASES = """Hello, World!|Hello, world!|Hello World|hello world|Good morning!|The quick brown fox jumps|
To be or not to be|Once upon a time|I love you.|Happy birthday!|Merry Christmas!|See you later!|How are you?|
What is your name?|It is what it is.|Yes, please.|No, thanks.|Wait... what?|Stop! Thief!|100% sure|50/50|Rock & Roll|
cats & dogs|C'est la vie|Easy as 1-2-3|Don't panic!|It's five o'clock.|I'm not here.|Let's go!|foo bar baz|
Lorem ipsum dolor sit amet|abc ABC 123|one, two, three|ready, set, go!|Mind the gap|Open sesame|Knock, knock.|
Who's there?|Keep calm and carry on|Bon appetit!|Ladies and gentlemen|Attention: wet floor|(not) a test|[ok]|{done}|
a < b > c|x = y + 1;|i++|#hashtag|@home|$9.99|€20|10:30 am|5 > 3|a/b/c|1, 2, 3""".replace(
    "\n", "").split("|")
_ACCENTS = ("café naïve Zürich señor über façade jalapeño São résumé "
            "Škoda piñata Ångström œuvre Ελλάδα привет 日本 中文 ½ 你好 ☀ 🙂 – …").split()
_MIXED = string.ascii_letters + string.digits + string.punctuation
_ENDS = ["", "", "", "", ".", "!", "?", "...", "!!", ";", ":", ","]


class Copies:
    """Draws texts and requests; needs the vocabulary."""

    def __init__(self, encoder):
        words = [encoder.decode([token]) for text, token in encoder.vocabulary.items() if text not in encoder.added]
        self._tokens = [text for text in words if "\ufffd" not in text and "\n" not in text and "\r" not in text
                        and text.isprintable() and text.isascii()]

    def token_text(self, rng, longest=_LONGEST):
        """The texts of tokens drawn from the whole vocabulary, one after another."""
        spaced = rng.random() < 0.5
        out = ""
        for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 10))):
            token = rng.choice(self._tokens)
            if spaced and out and not token.startswith(" "):
                token = " " + token
            if len(out) + len(token) > longest:
                break
            out += token
        return out.strip()

    def _words(self, rng):
        case = rng.choice((str, str, str, str.lower, w.capital, w.capital, str.title, str.upper))
        joiner = rng.choice((" ", " ", " ", " ", " ", " ", ", ", "-", "_", " and ", "/", ". ", "; ", " - ", ""))
        text = joiner.join(case(w.any_word(rng)) for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 7))))
        return (w.capital(text) if rng.random() < 0.2 else text) + rng.choice(_ENDS)

    def _mixed(self, rng):
        parts = []
        for _ in range(rng.randint(1, 5)):
            draw = rng.randrange(9)
            if draw <= 1:
                parts.append(w.any_word(rng))
            elif draw == 2:
                parts.append(str(rng.randint(0, 10 ** rng.randint(1, 7))))
            elif draw == 3:
                parts.append(w.invented(rng))
            elif draw == 4:
                word = list(w.any_word(rng))
                parts.append("".join(rng.choice((letter, letter.upper())) for letter in word))
            elif draw == 5:
                parts.append("".join(rng.choice(_MIXED) for _ in range(rng.randint(1, 5))))
            elif draw == 6:
                parts.append(rng.choice('"\'([{') + w.any_word(rng) + rng.choice('"\')]}'))
            elif draw == 7:
                parts.append(w.any_word(rng) + rng.choice(string.punctuation) + w.any_word(rng))
            else:
                parts.append(w.capital(w.any_word(rng)) + rng.choice(_ENDS))
        return " ".join(parts)

    def _shape(self, rng):
        """Addresses, numbers, code: things that people paste."""
        a, b = w.any_word(rng), w.any_word(rng)
        n = rng.randint
        return rng.choice([
            f"{a}@{b}.com", f"www.{a}.org", f"https://{a}.com/{b}", f"{a}_{b}", f"{a}{w.capital(b)}()",
            f"{a}.{rng.choice(w.TECH)}",
            f"/{a}/{b}", f"{n(1, 31)}.{n(1, 12)}.{n(1900, 2030)}", f"{n(1900, 2030)}-{n(1, 12):02d}-{n(1, 31):02d}",
            f"{n(0, 23)}:{n(0, 59):02d}", f"+{n(1, 99)} {n(100, 999)} {n(1000, 9999999)}",
            f"{n(1, 9999)}.{n(0, 99):02d}",
            f"${n(1, 999)}.{n(0, 99):02d}", f"{n(1, 99)}%", f"{n(1, 999)} {a}s", f"{a} = {n(0, 999)};",
            f"{a}({b}, {n(0, 99)})",
            f"{n(1, 99)} + {n(1, 99)} = {n(1, 99)}", f"<{a}>{b}</{a}>", f"if {a} == {b}:", f"{a}[{n(0, 9)}] = \"{b}\"",
            f"{w.capital(a)}: {b}", f"{a}? {w.capital(b)}!", f"{rng.choice(w.NAMES)}, {n(1, 99)}", f"#{a}{n(0, 99)}",
            f"@{a}_{b}",
            f"v{n(0, 9)}.{n(0, 20)}.{n(0, 9)}", f"{n(100, 999)}-{n(1000, 9999)}", f"{w.capital(a)} & {w.capital(b)}",
            f"{a}... {b}...",
            f"\"{w.capital(a)},\" he said.", f"She said \"{a}\".", f"the '{a}' {b}", f"'{a}' or '{b}'?",
            f"{a} (or {b})", f"*{a}* _{b}_",
            f"{n(0, 255)}.{n(0, 255)}.{n(0, 255)}.{n(0, 255)}", f"#{n(0, 0xffffff):06x}",
            "".join(rng.choice("01") for _ in range(n(3, 16))),
            "".join(rng.choice("0123456789abcdef") for _ in range(n(4, 20))),
            " ".join(rng.choice(string.ascii_uppercase) for _ in range(n(2, 8))),
            "".join(rng.choice(string.digits) for _ in range(n(1, 16))),
            " ".join(str(n(0, 99)) for _ in range(n(2, 8)))])

    def text(self, rng, longest=_LONGEST):
        """A text without surrounding space or quotes, of 1 to `longest` characters."""
        while True:
            draw = rng.random()
            if draw < 0.34:
                text = self.token_text(rng, longest)
            elif draw < 0.58:
                text = self._words(rng)
            elif draw < 0.70:
                text = self._mixed(rng)
            elif draw < 0.82:
                text = self._shape(rng)
            elif draw < 0.86:
                text = rng.choice(_PHRASES)
            elif draw < 0.89:
                text = rng.choice(_ACCENTS) + rng.choice(["", " " + w.any_word(rng), ", " + rng.choice(_ACCENTS)])
            elif draw < 0.92:
                alphabet = rng.choice((string.ascii_letters, string.ascii_letters + string.digits, _MIXED,
                                       string.ascii_lowercase))
                text = "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 20)))
            else:
                text = w.sentence(rng)
                text = text if len(text) <= longest else text[:longest].rsplit(" ", 1)[0]
            text = " ".join(text.split())
            quoted = len(text) > 1 and text[0] in "\"'`\u201c" and text[-1] in "\"'`\u201d"
            if 0 < len(text) <= longest and not quoted:
                return text

    def ask(self, rng):
        """(request, reasoning, answer, key): the key is the text."""
        text = self.text(rng)
        draw = rng.random()
        if draw < 0.25 and not any(quote in text for quote in "\"'`"):
            request = rng.choice(_QUOTED).format(x=rng.choice(_QUOTES).format(x=text))
        elif draw < 0.33 and text.replace(" ", "").isalnum():
            request = rng.choice(_OPEN).format(x=text)
        else:
            request = rng.choice(_FRAMES) + text
            if rng.random() < 0.06:
                request = request.replace(": ", ":\n", 1) if rng.random() < 0.6 else request.replace(": ", ":", 1)
        return request, "I write the text back exactly.", text, text
