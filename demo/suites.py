"""The cases that training is evaluated on, as token ids."""
from demo.data import heldout
from demo.data.encode import Encoder
from demo.evaluate import Case

SEED = 20000  # of its own, so that no evaluation of training is the shipped suite


def heldout_cases(tokenizer, count):
    """`count` cases of every skill from items that the corpus never draws."""
    encoder = Encoder(tokenizer)
    return [
        Case(skill, f"{skill}_{index}", prompt, [answer])
        for skill in heldout.SKILLS
        for index, (prompt, answer) in enumerate(heldout.cases(skill, count, SEED, encoder))
    ]


def file_cases(tokenizer, path):
    """The cases of a suite file that fix a whole answer; a case may accept several."""
    return [Case(*fields) for fields in heldout.suite(path, Encoder(tokenizer))]
