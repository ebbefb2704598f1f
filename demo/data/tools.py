"""Tool schemas, requests that call for them, and answers from their results.

Besides the tools by hand there are tools put together from a verb, an object and a few parameters, so that the model
reads the schema instead of remembering the tool. Names and parameters of both are varied.
"""

import dataclasses
import json
import re

from demo.data import tool_values
from demo.data import words as w
from demo.data.tool_tables import TOOLS, Tool

DONE = "Done."
_SYNONYMS = {"city": ["location", "place", "town"], "to": ["recipient", "receiver", "person"],
             "text": ["message", "content", "body"],
             "name": ["person", "contact", "who"], "query": ["q", "search", "terms", "keywords"],
             "path": ["file", "filename", "file_path"],
             "time": ["at", "when", "hour"], "date": ["day", "when"], "song": ["title", "track"],
             "product": ["item", "article"],
             "room": ["place", "location", "area"], "from": ["source", "origin", "start"], "amount": ["value", "sum"],
             "minutes": ["duration", "mins"],
             "task": ["title", "todo", "item"], "people": ["guests", "party_size", "seats"],
             "degrees": ["temperature", "value"], "folder": ["directory", "path", "dir"],
             "number": ["id", "code"], "symbol": ["ticker", "stock"], "level": ["volume", "value"],
             "language": ["target_language", "lang", "target"],
             "quantity": ["count", "amount", "number"], "url": ["address", "link", "page"], "word": ["term", "query"],
             "id": ["user_id", "number"]}
_NAME_STARTS = {"get": ["fetch", "lookup", "query", "show", "read"], "send": ["post", "write", "deliver"],
                "set": ["change", "update", "adjust"],
                "find": ["search", "lookup", "get"], "create": ["add", "make", "new"],
                "add": ["create", "insert", "new"], "book": ["reserve", "order"],
                "delete": ["remove", "erase"], "play": ["start", "stream"], "open": ["launch", "start"],
                "check": ["get", "verify"]}
_POLITE = ["Please {x}.", "{X}.", "{X}.", "{X}", "Can you {x}?", "Could you {x}?", "I want you to {x}.",
           "I need you to {x}.", "Could you please {x}?",
           "Would you {x}?", "{X}, please.", "{x}", "I would like you to {x}.", "Now {x}.", "{X} for me.",
           "Can you please {x}?", "Go and {x}."]
_VERBS = """lock open close start stop clean wash move lift scan print check repair paint cancel order rent lend water
feed charge empty fill
 load unload test reset restart pause resume archive publish sell buy deliver inspect measure weigh park wake fetch
call schedule review approve reject
 export import sync backup restore install remove update rename mute record share invite unlock light heat cool dim
turn build sort count track book
 reserve mark hide show mix cook bake grill serve""".split()
_OBJECTS = [word
            for word in w.OBJECTS + w.PLACES + ("order invoice ticket account report task project customer window "
                                                "session server device playlist").split()
            if word[-1] != "s"]
# What may be said about an action: parameter name, kind, wording.
_DETAILS = [("room", "room", "in the {v}"), ("time", "time", "at {v}"), ("date", "date", "on {v}"),
            ("city", "city", "in {v}"), ("person", "person", "for {v}"),
            ("times", "small", "{v} times"), ("minutes", "minutes", "for {v} minutes"), ("color", "color", "in {v}"),
            ("name", "word", "called {v}"),
            ("note", "text", "with the note \"{v}\""), ("price", "decimal", "for {v} dollars"),
            ("level", "level", "at {v} level"), ("file", "file", "from {v}"),
            ("id", "amount", "with the number {v}"), ("owner", "person", "of {v}"),
            ("speed", "percent", "with speed {v}"), ("size", "size", "in {v} size"),
            ("loud", "loud", "{v}"), ("private", "private", "{v}"), ("email", "email", "for {v}"),
            ("tags", "labels", "with the tags {v}"),
            ("reason", "text", "because of \"{v}\""), ("code", "symbol", "with the code {v}"),
            ("hours", "small", "for {v} hours"), ("format", "word", "as {v}"),
            ("language", "language", "in {v}"), ("weight", "decimal", "with weight {v}"), ("urgent", "urgent", "({v})"),
            ("target", "place_name", "to {v}")]


@dataclasses.dataclass(frozen=True)
class Offer:
    """A tool as one conversation sees it."""
    tool: Tool
    name: str
    parameters: dict  # slot -> parameter name
    schema: dict


def _rename(rng, name):
    draw = rng.random()
    words = name.split("_")
    if draw < 0.62:
        return name
    if draw < 0.78 and words[0] in _NAME_STARTS:
        words[0] = rng.choice(_NAME_STARTS[words[0]])
        return "_".join(words)
    if draw < 0.86:
        return words[0] + "".join(map(w.capital, words[1:]))
    if draw < 0.89 and len(words) > 1:
        return "_".join(words[1:])
    if draw < 0.925:
        return rng.choice(["my_", "tool_", "do_", "api_", f"{rng.choice(w.TECH)}_", f"{w.invented(rng)}_"]) + name
    if draw < 0.95:
        return w.invented(rng)
    return name if draw < 0.98 else "-".join(words)


def _described(rng, kind, name):
    """A description of a parameter, short or wordy."""
    words = tool_values.description(kind)
    example = tool_values.said(kind, tool_values.draw(rng, kind))
    return rng.choice([words, words, words + ".", words.lower(), f"{words}, for example {example}",
                       f"{words} (e.g. {example})", f"the {name} to use",
                       w.capital(name.replace("_", " ")), f"{words} that is meant"])


def offer(rng, tool):
    """A tool with its names and its schema in one of many forms."""
    parameters, properties, required = {}, {}, []
    describes = rng.random() < 0.45
    for slot, kind, is_optional in tool.slots:
        name = slot
        if rng.random() < 0.2 and slot in _SYNONYMS:
            name = rng.choice(_SYNONYMS[slot])
        elif rng.random() < 0.03:
            name = w.invented(rng)
        if name in properties:
            name = slot if slot not in properties else f"{slot}_{len(properties)}"
        parameters[slot] = name
        properties[name] = {"type": tool_values.json_type(kind)}
        if properties[name]["type"] == "array":
            properties[name]["items"] = {"type": "string"}
        if tool_values.is_enum(kind):
            properties[name]["enum"] = tool_values.options(kind)
        if describes:
            properties[name]["description"] = _described(rng, kind, name)
            if rng.random() < 0.3:
                properties[name] = dict(reversed(properties[name].items()))
        if not is_optional:
            required.append(name)
    name = _rename(rng, tool.name)
    description = tool.description + rng.choice(["", "", "."])
    if rng.random() < 0.15:
        description = rng.choice(["Use this tool to ", "A tool to ",
                                  "Lets you "]) + description[0].lower() + description[1:]
    schema = {"name": name, "description": description,
              "parameters": {"type": "object", "properties": properties}}
    if required or rng.random() < 0.7:
        schema["parameters"]["required"] = required
    if rng.random() < 0.04:
        schema["parameters"]["additionalProperties"] = False
    return Offer(tool, name, parameters, schema)


def invented_tool(rng):
    """A tool made of a verb, an object and up to three details."""
    verb, noun = rng.choice(_VERBS), rng.choice(_OBJECTS)
    details = rng.sample(_DETAILS, rng.choice((0, 1, 1, 2, 2, 3)))
    if len({name for name, _, _ in details}) < len(details):
        details = details[:1]
    names_object = rng.random() < 0.6
    slots = [] if names_object else [(rng.choice(["item", "object", "thing", "target_name", "what"]), "thing", False)]
    action = f"{verb} the {noun}" if names_object else f"{verb} the {{{slots[0][0]}}}"
    for name, kind, words in details:
        is_optional = rng.random() < 0.3
        slots.append((name, kind, is_optional))
        words = " " + words.format(v=f"{{{name}}}")
        action += f"[{words}]" if is_optional else words
    wordings = tuple(frame.replace("{x}", action).replace("{X}", w.capital(action)) for frame in rng.sample(_POLITE, 5))
    results = () if rng.random() < 0.5 else ((rng.choice(["result", "value", "answer", "code", "id", "name", "output",
                                                          "total"]),
                                              rng.choice(["amount", "text", "word", "person", "time", "city", "decimal",
                                                          "symbol", "yesno"])),)
    name = f"{verb}_{noun}" if names_object else rng.choice([f"{verb}_item", f"{verb}_object", f"{verb}_thing", verb])
    article = rng.choice(["the", "a"])
    described = noun if names_object else rng.choice(["thing", "given object", "named item"])
    description = f"{w.capital(verb)} {article} {described}"
    return Tool(name, description, tuple(slots), wordings, results, "")


def _unusual_name(rng):
    """A name that no verb and no habit tells: it must be copied from the schema."""
    draw = rng.random()
    if draw < 0.25:
        return w.invented(rng)
    words = [rng.choice(_VERBS) if rng.random() < 0.3 else w.any_word(rng).lower() for _ in range(rng.choice((2, 2, 3)))]
    if draw < 0.85:
        return "_".join(words)
    return words[0] + "".join(map(w.capital, words[1:])) if draw < 0.95 else "-".join(words)


def _renamed(made, name, slot, parameter):
    """The offer under another name, with another name of one parameter too unless slot is None."""
    schema = {**made.schema, "name": name}
    parameters = dict(made.parameters)
    if slot is not None and parameter not in parameters.values():
        old = parameters[slot]
        parameters[slot] = parameter
        fields = dict(schema["parameters"])
        fields["properties"] = {parameter if key == old else key: value for key, value in fields["properties"].items()}
        if "required" in fields:
            fields["required"] = [parameter if key == old else key for key in fields["required"]]
        schema["parameters"] = fields
    return dataclasses.replace(made, name=name, parameters=parameters, schema=schema)


def rename_some(rng, offers, share):
    """The offers, that share of them under unusual names, a third of these with an unusual parameter."""
    out = []
    for made in offers:
        if rng.random() < share:
            slot = rng.choice(list(made.parameters)) if made.parameters and rng.random() < 0.33 else None
            made = _renamed(made, _unusual_name(rng), slot, _unusual_name(rng))
        out.append(made)
    return out if len({made.name for made in out}) == len(out) else list(offers)


def draw_offers(rng, count):
    """Tools of different names; distractors are often of a kind with the others."""
    out, names = [], set()
    while len(out) < count:
        made = offer(rng, invented_tool(rng) if rng.random() < 0.4 else rng.choice(TOOLS))
        if made.name not in names and made.tool.description not in {other.tool.description for other in out}:
            names.add(made.name)
            out.append(made)
    return out


_COMMON = frozenset("what when where which does have many much know please answer with word only your that this about from tell "
                    "give need want would could there they them into name used using then also make take next".split())


def content_words(text):
    """The words of a text that tell what it is about."""
    return {word for word in re.findall(r"[a-z]{4,}", text.lower()) if word not in _COMMON}


def words_of(offers):
    """What the tools are about: the words of their names, descriptions and wordings."""
    return set().union(*(content_words(" ".join((made.tool.name.replace("_", " "), made.tool.description,
                                                 *made.tool.wordings))) for made in offers))


_OPTIONAL = re.compile(r"\[([^\]]*)\]")


def request(rng, made):
    """(text, arguments, key): a wording of a request with values for what it names."""
    wording = rng.choice(made.tool.wordings)
    slots = {slot: (kind, is_optional) for slot, kind, is_optional in made.tool.slots}
    wording = _OPTIONAL.sub(lambda match: match.group(1) if rng.random() < 0.5 else "", wording)
    values = {slot: tool_values.draw(rng, kind) for slot, (kind, _) in slots.items() if f"{{{slot}}}" in wording}
    text = wording
    for slot, value in values.items():
        text = text.replace(f"{{{slot}}}", tool_values.said(slots[slot][0], value))
    if rng.random() < 0.12:
        text = rng.choice(["Please ", "Hi, ", "Hello! ", "Hey, ", "OK, ", "Now ", "Next, "]) + text
    arguments = {made.parameters[slot]: values[slot] for slot, _, _ in made.tool.slots if slot in values}
    return text, arguments, f"{made.tool.name}/{wording}"


def join(rng, first, second):
    """Two requests in one message."""
    shape = rng.randrange(8)
    if shape == 0:
        return f"{first} {rng.choice(['Also, ', 'And ', 'Then ', 'Next, ', 'After that, '])}{_lower(second)}"
    if shape == 1:
        return f"{first.rstrip('.?')} and {_lower(second)}"
    if shape == 2:
        return f"{first.rstrip('.?')} and then {_lower(second)}"
    if shape == 3:
        return f"{first}\n{second}"
    if shape == 4:
        return f"{first.rstrip('.?')}, and {_lower(second)}"
    if shape == 5:
        return f"1. {first}\n2. {second}"
    if shape == 6:
        return f"{first.rstrip('.?')}; {_lower(second)}"
    return f"{first} {second}"


def _lower(text):
    return text if text[:2].isupper() or text.startswith(("I ", "I'm")) else text[:1].lower() + text[1:]


def twice(rng, made):
    """(text, two argument objects, key) for one tool asked for two values of its only string, or None."""
    if len(made.tool.slots) != 1:
        return None
    slot, kind, _ = made.tool.slots[0]
    if tool_values.json_type(kind) == "boolean" or tool_values.is_enum(kind):
        return None
    if kind in ("text", "expression", "command", "labels") or made.tool.slots[0][2]:
        return None
    first, second = tool_values.draw(rng, kind), tool_values.draw(rng, kind)
    if first == second:
        return None
    wording = rng.choice(made.tool.wordings)
    both = rng.choice(["{a} and {b}", "{a} and {b}", "{a} and also {b}", "{a}, and {b}", "both {a} and {b}"]).format(
        a=tool_values.said(kind, first), b=tool_values.said(kind, second))
    name = made.parameters[slot]
    return wording.replace(f"{{{slot}}}", both), [{name: first}, {name: second}], f"{made.tool.name}/{wording}/twice"


_SUCCESS = [{"status": "ok"}, {"status": "done"}, {"ok": True}, {"success": True}, {"status": "success"},
            {"result": "ok"}, {"done": True}, "ok", "OK", "done",
            "success", {"status": "sent"}, {"status": "set"}, {"status": "created"}]


def _more_fields(rng, field, value, arguments):
    """The field among others that the question did not ask for: arguments said again, and things of no use."""
    fields = [(field, value)]
    for name, argument in arguments.items():
        if rng.random() < 0.7:
            fields.append((name, argument))
    for _ in range(rng.choice((0, 1, 1, 2))):
        fields.append(rng.choice([("id", rng.randint(1, 9999)), ("source", rng.choice(w.NOUNS)), ("status", "ok"),
                                  ("ok", True), ("cached", False),
                                  ("unit", rng.choice(["celsius", "km", "euro", "items"])),
                                  ("updated", tool_values.draw(rng, "date")), ("page", 1),
                                  ("note", rng.choice(w.EVERY_WORD)), ("version", rng.randint(1, 9)),
                                  ("success", True)]))
    rng.shuffle(fields)
    out = {name: argument for name, argument in fields if name != field}
    at = rng.randint(0, len(out))
    return dict([*list(out.items())[:at], (field, value), *list(out.items())[at:]])


def result(rng, made, arguments):
    """(what the tool gives back for a call with these arguments, the answer)"""
    if rng.random() < 0.04:
        error = rng.choice(["not found", "no connection", "permission denied", "time out", "invalid input",
                            "the service is down"])
        return json.dumps({"error": error}), f"The tool failed: {error}."
    if not made.tool.results:
        success = rng.choice(_SUCCESS)
        if isinstance(success, dict) and rng.random() < 0.15:
            success = success | {"id": rng.randint(1, 9999)}
        return success if isinstance(success, str) else json.dumps(success), DONE
    values = {field: tool_values.draw(rng, kind) for field, kind in made.tool.results}
    if made.tool.answer and len(values) > 1:
        return json.dumps(values, ensure_ascii=False), made.tool.answer.format(**values)
    field, value = next(iter(values.items()))
    answer = tool_values.answered(value) + "."
    if rng.random() < 0.2 and not isinstance(value, (list, bool)):
        return str(value), answer
    if rng.random() < 0.3:
        return json.dumps(_more_fields(rng, field, value, arguments), ensure_ascii=False), answer
    if rng.random() < 0.2:
        field = rng.choice(["result", "value", "answer", "output", "data", w.invented(rng)])
    return json.dumps({field: value}, ensure_ascii=False), answer


def call(made, arguments):
    return {"type": "function", "function": {"name": made.name, "arguments": arguments}}
