"""Makes demo/tokenizer.json: a byte-level BPE of 4,096 entries with the pre-tokenizer of V4, trained on our own texts.

    python3 -m demo.data.train_tokenizer [--out demo/tokenizer.json] [--recount]

Merges are learned from demo/data/tokenizer_pieces.txt.gz: how often each piece occurred in generated conversations when
the tokenizer was made, so that the generator may change without changing every id. --recount counts them anew.

Two things differ from plain BPE training, both so that a small model copies well. Digits never merge. And no merge
joins
a leading space (or a leading punctuation mark) with a part of a word: words are learned without it, and at the end
space + whole word is merged for the frequent ones. So a word is cut in the same way wherever it stands, and copying it
never asks for another spelling.
"""

import argparse
import collections
import gzip
import json
import pathlib
import re

from demo.data import words as w
from demo.data.corpus import Corpus
from demo.data.encode import PreTokenizer, byte_characters

SIZE = 4096
_PIECES = pathlib.Path(__file__).resolve().parent / "tokenizer_pieces.txt.gz"
_SPACED = 1420  # entries that are a space and a word; of the rest, parts and words without a space
_LONGEST = 24
_CONVERSATIONS = 6000
_CONTROL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
# Every added token of V4 that is not one of its numbered placeholders; ids follow the merges.
_ADDED = """<｜fim▁hole｜> <｜fim▁begin｜> <｜fim▁end｜> <｜User｜> <｜Assistant｜> <|EOT|> <｜tool▁calls▁begin｜>
<｜tool▁calls▁end｜>
<｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜>
<｜tool▁output▁end｜>
<｜tool▁sep｜> <｜begin▁of▁repo▁name｜> <｜end▁of▁repo▁name｜> <｜begin▁of▁file▁name｜> <｜end▁of▁file▁name｜> <｜begin▁of▁file｜>
<｜end▁of▁file｜> <think> </think> <｜place▁holder▁for▁copy｜> <｜place▁holder▁for▁pointer▁replace｜> ｜DSML｜ <｜begin▁sys｜>
<｜end▁sys｜>
<｜latest_reminder｜> <｜action｜> <｜query｜> <｜authority｜> <｜domain｜> <｜task｜> <｜political｜> <｜entity｜> <｜title｜> <｜safety｜>
<｜answer｜> <｜search｜> <dsml: </dsml: <｜search▁begin｜> <｜search▁end｜> <｜extracted_url｜> <｜read_url｜> <｜end_of_query｜>
<｜rl_image_pad｜> <｜rl_image_start｜> <｜image2｜> <｜/table>｜ <｜table｜> <｜/td｜> <｜td｜> <｜/tr｜> <｜tr｜> <｜/polygon｜>
<｜polygon｜>
<｜/point｜> <｜point｜> <｜/box｜> <｜box｜> <｜/ref｜> <｜ref｜> <｜image｜>""".split()
# Special in the sense of tokenizer.json: a detokenizer that skips special tokens skips these.
_SPECIAL = {*_CONTROL, "<|EOT|>", "<｜end_of_query｜>", "<｜rl_image_pad｜>", "<｜rl_image_start｜>", "<｜/polygon｜>",
            "<｜polygon｜>", "<｜/point｜>",
            "<｜point｜>", "<｜/box｜>", "<｜box｜>", "<｜/ref｜>", "<｜ref｜>", "<｜image｜>"}
_SPLITS = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
           r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^N\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[N]*"""
           r"""|\s*[N]+|\s+(?!\S)|\s+""".replace("N", "\r\n")]
_WORD = re.compile(r"[!-/:-@\[-`{-~]?([A-Za-z]+)")


class _Bytes:
    """A stand-in for the encoder while there is none: one token a character, as far as lengths go."""
    added = {}
    vocabulary = {chr(code): code for code in range(33, 127)}

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def encode_plain(self, text):
        return text[:len(text) * 3 // 10]

    def encode(self, text):
        return self.encode_plain(text)


class _BytesWithControl(_Bytes):
    added = collections.defaultdict(int)


def texts():
    """The plain parts of generated conversations, without control tokens."""
    corpus = Corpus("tokenizer", _BytesWithControl())
    for i in range(_CONVERSATIONS):
        for text, is_control, _ in corpus.conversation((128, 512, 512, 2048)[i % 4]).render().parts:
            if not is_control:
                yield text


def recount():
    """Counts the pieces of generated conversations into the file of pieces."""
    pre_tokenizer = PreTokenizer()
    pieces = collections.Counter()
    for text in texts():
        pieces.update(pre_tokenizer.pieces(text))
    lines = "".join(f"{count}\t{json.dumps(piece)}\n" for piece, count in pieces.items())
    _PIECES.write_bytes(gzip.compress(lines.encode(), mtime=0))


def count_units():
    """(units, spaced): how often each piece occurs without its leading space or mark, and how often after a space."""
    units, spaced = collections.Counter(), collections.Counter()
    pieces = {}
    for line in gzip.decompress(_PIECES.read_bytes()).decode().splitlines():
        count, piece = line.split("\t", 1)
        pieces[json.loads(piece)] = int(count)
    for piece, count in pieces.items():
        if not piece.isascii() or piece[0].isdigit():
            continue
        word = _WORD.fullmatch(piece)
        unit = word.group(1) if word else piece[1:] if piece[0] == " " and piece.strip() else piece
        # Many of the same copied or invented piece must not outweigh the words that stand everywhere.
        units[unit] += min(count, 20_000)
        if piece[0] == " " and piece.strip():
            spaced[unit] += min(count, 20_000)
    for word in w.EVERY_WORD:
        units[word] += 600
        spaced[word] += 600
        if word.islower() and len(word) > 1:
            units[w.capital(word)] += 12
            spaced[w.capital(word)] += 12
            units[word.upper()] += 2
    return units, spaced


def learn_merges(units, count):
    """The `count` most frequent merges inside units, by rank; ties go to the pair that comes first in the alphabet."""
    characters = byte_characters()
    symbols = [[characters[byte] for byte in unit.encode()] for unit in units]
    weights = list(units.values())
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, parts in enumerate(symbols):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += weights[i]
            where[pair].add(i)
    merges = []
    while len(merges) < count:
        pair = max((p for p in pairs if len(p[0]) + len(p[1]) <= _LONGEST), key=lambda p: (pairs[p], p[::-1]))
        merges.append(pair)
        for i in where.pop(pair):
            parts = symbols[i]
            for old in zip(parts, parts[1:]):
                pairs[old] -= weights[i]
            merged, at = [], 0
            while at < len(parts):
                if at + 1 < len(parts) and (parts[at], parts[at + 1]) == pair:
                    merged.append(parts[at] + parts[at + 1])
                    at += 2
                else:
                    merged.append(parts[at])
                    at += 1
            symbols[i] = merged
            for new in zip(merged, merged[1:]):
                pairs[new] += weights[i]
                where[new].add(i)
        del pairs[pair]
    single = {unit for unit, parts in zip(units, symbols) if len(parts) == 1}
    return merges, single


def build():
    """The tokenizer.json as an object."""
    characters = byte_characters()
    units, spaced = count_units()
    room = SIZE - len(_CONTROL) - len(_ADDED) - len(characters)
    merges, single = learn_merges(units, room - _SPACED)
    whole = sorted((unit for unit in spaced if unit in single), key=lambda unit: (-spaced[unit], unit))
    space = characters[ord(" ")]
    for unit in whole[:_SPACED]:
        merges.append((space, "".join(characters[byte] for byte in unit.encode())))
    if len(merges) != room:
        raise ValueError(f"{len(merges)} merges, expected {room}: too few whole words")
    entries = [*_CONTROL, *characters, *(left + right for left, right in merges)]
    added = _CONTROL + _ADDED
    ids = {text: i for i, text in enumerate(entries + _ADDED)}
    if len(ids) != SIZE:
        raise ValueError(f"{len(ids)} different entries, expected {SIZE}")
    split = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
             for regex in _SPLITS]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": ids[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": text in _SPECIAL} for text in added],
        "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {text: i for text, i in ids.items() if text not in _ADDED},
                  "merges": [f"{left} {right}" for left, right in merges]},
    }


def main():
    parser = argparse.ArgumentParser(description="Train the demo model's tokenizer.")
    parser.add_argument("--out", default="demo/tokenizer.json")
    parser.add_argument("--recount", action="store_true", help="count pieces of the generator as it is now")
    arguments = parser.parse_args()
    if arguments.recount:
        recount()
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(build(), file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
