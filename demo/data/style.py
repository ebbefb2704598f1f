"""Rules of style in the system text: everything in upper case, or a last word for every answer."""

from demo.data import words as w

_UPPER = """Answer in upper case.|Always answer in upper case.|Always answer in upper case letters.|
Write every answer in upper case.|You must use upper case only.|Use only upper case letters.|Use capital letters only.|
Answer in capital letters.|Write in capitals.|Always write in capital letters.|Reply in upper case.|
All your answers must be in upper case.|Every answer must be in capital letters.|Respond in ALL CAPS.|
Answer in ALL CAPS.|Write everything in upper case.|ALWAYS ANSWER IN UPPER CASE.|Your answers are all in capitals.|
Only use capital letters in your answers.|Please answer in uppercase.|Answer everything in uppercase.|
Use uppercase for all answers.|You answer in upper case letters only.|You speak in capital letters.|
Shout every answer in capital letters.|You always shout: use capitals.|Use all caps.|Reply in all caps.|
Never use lower case letters.|Do not use lower case letters.|No lower case letters, please.|
Everything you write is in upper case.|Give all answers in capital letters.|Your whole answer must be in upper case.|
Format: all answers in upper case.|Style: UPPER CASE.|Rule: answer in capital letters.|
Write each reply in UPPERCASE letters.|Respond only in upper case.|Respond in capital letters only.|
From now on, answer in capitals.|Make every letter of the answer a capital.|Keep every answer in upper case.|
Talk in all capital letters.|Speak only in upper case.|always reply in upper case""".replace("\n", "").split("|")
_ENDING = """End every answer with the word {w}.|Always end with the word {w}.|
The last word of each answer must be {w}.|Finish each answer with the word {w}.|End each answer with {w}.|
End all answers with the word {w}.|Always finish with the word {w}.|Every answer must end with the word {w}.|
Every reply ends with {w}.|Your answers always end with the word {w}.|Close every answer with {w}.|
Add the word {w} at the end of every answer.|Add {w} to the end of each answer.|
Put the word {w} at the end of every answer.|After every answer, write the word {w}.|After each answer add {w}.|
The word {w} must be the last word of every answer.|Say {w} at the end of every answer.|
Say {w} at the end of each reply.|Conclude every answer with the word {w}.|Always append {w}.|
End every reply with the word {w}.|End every message with {w}.|Your last word is always {w}.|
Make {w} the last word of every answer.|Please end every answer with the word {w}.|You must end every answer with {w}.|
All replies must end with the word {w}.|Each of your answers ends with the word {w}.|Never forget to end with {w}.|
Rule: the last word is {w}.|Append the word {w} to every answer.|Finish every reply with {w}.|
Finish all your answers with the word {w}.|Always close with {w}.|Terminate each answer with the word {w}.|
Whatever you answer, end it with {w}.|Answer normally, then add the word {w}.|Answer, and end with the word {w}.|
Write the word {w} after every answer.|End your answers with: {w}|Last word of every answer: {w}""".replace(
    "\n", "").split("|")

NEUTRAL = """You are a helpful assistant.|You are a friendly assistant.|Be brief.|Answer the questions of the user.|
You are a small model.|You are the Lockstep demo model.|Be polite.|Help the user.|You are an assistant.|Answer shortly.|
Be helpful and honest.|Keep it short.|You answer questions.|You are a careful assistant.|Today is a good day.|
You help people.|Be kind.|Always tell the truth.|You are a bot.|
You are a helpful, honest assistant. Answer the user's questions.|Give short answers.|Be precise.|
You are a chat assistant.|You are an expert assistant.|Answer in English.|Use simple words.|
Follow the instructions of the user.|Do your best.|You are a helpful AI assistant that answers briefly.|
Assist the user with their tasks.|You are a calculator and an encyclopedia.|You work in an office.|
The user is a student.|The user likes short answers.|Be accurate.|Think before you answer.|Stay calm.""".replace(
    "\n", "").split("|")
_QUOTES = ["{w}", "{w}", "{w}", "\"{w}\"", "\"{w}\"", "'{w}'"]
UPPER, ENDING = "upper", "ending"


def neutral(rng):
    return " ".join(rng.sample(NEUTRAL, rng.choice((1, 1, 1, 2))))


def draw(rng, kind=None):
    """(kind, word, system text, key) of a rule."""
    kind = kind or rng.choice((UPPER, ENDING))
    word = ""
    if kind == UPPER:
        text = key = rng.choice(_UPPER)
    else:
        word = w.any_word(rng)
        shape = rng.choice(_ENDING)
        text = shape.format(w=rng.choice(_QUOTES).format(w=word))
        key = f"{shape}/{word}"
    place = rng.random()
    if place < 0.2:
        text = f"{neutral(rng)} {text}"
    elif place < 0.28:
        text = f"{text} {neutral(rng)}"
    return kind, word, text, key


def apply(kind, word, answer):
    """A normal answer as the rule wants it."""
    return answer.upper() if kind == UPPER else f"{answer} {word}"


def reason(kind, word):
    return "The answer must be in upper case." if kind == UPPER else f"The last word must be {word}."
