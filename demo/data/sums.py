"""Sums of two numbers of up to three digits, in many wordings; with the written addition as reasoning."""

from demo.data.facts import NUMBERS
from demo.data.words import FOODS, NAMES, OBJECTS, capital

_BARE = ["{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=", "{a} + {b} = ?", "{a}+{b}=?", "{a} + {b}?", "{a}+{b}?",
         "{a} plus {b}", "{a} plus {b}?", "{a} plus {b} is", "{a} and {b}, added", "{a} +{b}", "{a}+ {b}",
         "sum {a} {b}",
         "{a} plus {b} =", "{a} plus {b} equals", "{a} + {b} equals", "Sum: {a} + {b}", "({a} + {b})", "{a} + {b}."]
# What is a request or a question as it stands; {m} is a question mark, mostly.
_FULL = ["What is {e}{m}", "What is {e}{m}", "What is {e}{m}", "what is {e}{m}", "What's {e}{m}", "whats {e}{m}",
         "How much is {e}{m}", "how much is {e}{m}", "How much does {e} make{m}", "What does {e} equal{m}",
         "What does {e} make{m}", "What do you get when you add {a} and {b}{m}",
         "What do you get if you add {b} to {a}{m}",
         "What do you get for {e}{m}", "What is the sum of {a} and {b}{m}", "The sum of {a} and {b} is what{m}",
         "what is the sum of {a} and {b}{m}", "What would {e} be{m}", "What will {e} be{m}",
         "What are {a} and {b} together{m}",
         "How much are {a} and {b} together{m}", "What is {a} added to {b}{m}", "What is {b} more than {a}{m}",
         "What number is {e}{m}", "What is the result of {e}{m}", "What is the total of {a} and {b}{m}",
         "What is the value of {e}{m}",
         "What's the sum of {a} and {b}{m}", "What's the total of {a} and {b}{m}", "Which number is {e}{m}",
         "Can you add {a} and {b}{m}", "Could you add {a} and {b}{m}", "Can you tell me what {e} is{m}",
         "Do you know what {e} is{m}", "Could you tell me the sum of {a} and {b}{m}",
         "If I add {a} and {b}, what do I get{m}",
         "If you add {a} to {b}, what do you get{m}", "How many are {e}{m}", "{a} and {b} makes what{m}",
         "{e} is what{m}",
         "{e} makes how much{m}", "{e} gives what{m}", "Quick: what is {e}{m}", "Can you work out {e}{m}",
         "Can you do {e}{m}",
         "What happens when I add {a} to {b}{m}", "What is {a} increased by {b}{m}", "what do i get for {e}{m}",
         "Calculate {e}.", "Calculate {e}", "calculate {e}", "Compute {e}.", "Compute {e}", "Add {a} and {b}.",
         "add {a} and {b}", "Add {a} to {b}.", "Add {b} to {a}.", "Add up {a} and {b}.", "Add the numbers {a} and {b}.",
         "Add together {a} and {b}.",
         "Add these two numbers: {a} and {b}.", "Add these numbers: {a}, {b}", "Sum {a} and {b}.",
         "Sum up {a} and {b}.",
         "Work out {e}.", "Figure out {e}.", "Find {e}.", "Find the sum of {a} and {b}.", "Evaluate {e}.", "Solve {e}.",
         "Solve: {e}", "Solve this: {e}", "Calculate: {e}", "Compute: {e}", "Compute the sum of {a} and {b}.",
         "Evaluate: {e}", "Calculate the sum of {a} and {b}.", "Give me the sum of {a} and {b}.",
         "Please give me the sum of {a} and {b}.",
         "Please add {a} and {b}.", "Please calculate {e}.", "Please compute {e}.", "Please work out {e}.",
         "Tell me {e}.", "Tell me the sum of {a} and {b}.", "Tell me what {e} is.", "Take {a} and add {b}.",
         "Take {a} and add {b} to it.",
         "Take the sum of {a} and {b}.", "Do the sum {e}.", "Do this addition: {e}", "I need the sum of {a} and {b}.",
         "I need to add {a} and {b}.", "I want to know {e}.", "Let us add {a} and {b}.", "Start with {a} and add {b}.",
         "Put {a} and {b} together.", "Total of {a} and {b}?", "the sum of {a} and {b}", "Sum of {a} and {b}?",
         "sum of {a} and {b}",
         "Math question: {e}", "A sum: {e}", "Addition: {e}", "Next: {e}", "Now {e}.", "And {e}?", "And what is {e}?",
         "OK, {e}?"]
_BEFORE = ["Answer only with the number: ", "Answer only with the number: ", "Only the number: ", "Just the number: ",
           "Answer with the number only: ", "Answer with a number: ", "Give only the number: ", "Number only: ",
           "Reply only with the number: ", "Reply with just the number: ", "Answer with just the number: ", "Please: ",
           "Give me only the result: ", "Only the result: ", "Just the result, please: ", "Hi! ", "Hello. ",
           "Please tell me: ",
           "Question: ", "Quick question: ", "I have a question. ", "Answer in digits: ", "In digits: ",
           "Respond only with the number: ",
           "One number: ", "In one number: ", "Answer briefly: ", "Help me with this: ", "Homework: ", "Math: ",
           "Thanks. ", "Ok. "]
_AFTER = [" Answer only with the number.", " Just the number.", " Only the number, please.", " Give only the number.",
          " Answer with a number.", " Number only.", " Reply only with the number.", " Please.",
          " Give just the result.", " Thanks!", " Answer in digits.", " Nothing but the number.", " One number only.",
          " Respond with the number only."]
_SENTENCE = ["Answer in a sentence: {e}", "{e}? Answer in a full sentence.", "What is {e}? Answer in a sentence.",
             "In a full sentence: what is {e}?", "What is {e}? Use a full sentence.", "In a sentence, what is {e}?"]
_STORIES = ["{n} has {a} {t}s and buys {b} more. How many {t}s does {n} have?",
            "I have {a} {t}s and get {b} more. How many {t}s do I have?",
            "There are {a} {t}s in one box and {b} {t}s in another. How many {t}s are there in total?",
            "{n} has {a} {t}s, and {o} has {b}. How many {t}s do they have together?",
            "If you have {a} {t}s and find {b} more, how many {t}s do you have?",
            "I sold {a} {t}s today and {b} yesterday. How many in all?",
            "{n} walked {a} steps and then {b} more. How many steps is that?",
            "A {t} costs {a} dollars and a bag costs {b} dollars. How "
            "much do both cost?", "{a} {t}s plus {b} {t}s: how many {t}s is that?"]


def working(a, b):
    """The written addition, units first: what the model thinks before it answers."""
    steps, carry = [], 0
    width = max(len(str(a)), len(str(b)))
    for x, y in zip(reversed(str(a).zfill(width)), reversed(str(b).zfill(width))):
        total = int(x) + int(y) + carry
        steps.append(f"{x} + {y}{' + 1' if carry else ''} = {total}")
        carry = total // 10
    return "; ".join(steps) + f". The sum is {a + b}."


def _number(rng):
    return rng.randint(0, 10 ** rng.choice((1, 2, 2, 3, 3, 3, 3)) - 1)


def ask(rng):
    """(question, reasoning, answer, key): the key names the pair of numbers."""
    a, b = _number(rng), _number(rng)
    draw = rng.random()
    if draw < 0.03:
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        words = NUMBERS[a], NUMBERS[b]
        expression = f"{words[0]} {rng.choice(['plus', 'plus', 'and', '+'])} {words[1]}"
        text = rng.choice(["What is {e}?", "what is {e}", "How much is {e}?", "{E}?", "{e}", "Calculate {e}.",
                           "What's {e}?", "Add {e}." if " and " in expression else "{E} is what?"])
        text = text.format(e=expression, E=capital(expression))
    elif draw < 0.08:
        text = rng.choice(_STORIES).format(a=a, b=b, t=rng.choice(OBJECTS + FOODS), n=rng.choice(NAMES),
                                           o=rng.choice(NAMES))
    elif draw < 0.11:
        text = rng.choice(_SENTENCE).format(e=rng.choice(_BARE[:2] + ["{a} plus {b}"]).format(a=a, b=b))
        return text, working(a, b), f"The sum is {a + b}.", f"{a}+{b}"
    else:
        expression = rng.choice(_BARE).format(a=a, b=b)
        inner = rng.choice(["{a} + {b}", "{a} + {b}", "{a} + {b}", "{a}+{b}", "{a} plus {b}", "{a} plus {b}",
                            "{a} and {b}"])
        if rng.random() < 0.25:
            text = expression
        else:
            mark = "?" if rng.random() < 0.85 else rng.choice(["", " ?", ".", "??"])
            frame = rng.choice(_FULL)
            text = frame.format(a=a, b=b, m=mark, e=(inner if " and " not in inner else "{a} + {b}").format(a=a, b=b))
        if rng.random() < 0.35:
            text = rng.choice(_BEFORE) + text
        elif rng.random() < 0.2:
            text += ("" if text[-1] in ".?" else ".") + rng.choice(_AFTER)
        if rng.random() < 0.04:
            text = text.lower()
    return text, working(a, b), str(a + b), f"{a}+{b}"
