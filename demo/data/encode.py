"""Text to tokens and back, from a tokenizer.json of the V4 family. Pure Python, with a cache of pieces.

The same rules as src/text/tokenizer.h: added tokens as literal text, three splits in order, byte mapping, merges by
rank. Unicode classes come from Python's own table (15 or older), so a character that a later version added may be cut
differently from the engine; the generator writes none.
"""

import json
import re
import sys
import unicodedata

_CACHED_PIECES = 300_000
_CJK = re.compile("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+")
# The three splits as one pattern, for text of printable ASCII, tab, CR and LF only: a group of digits is a piece of its
# own, so "not followed by a non-space of the same piece" means "not followed by a non-space that is no digit".
_PUNCT = r"!-/:-@\[-`{-~"
_ASCII = re.compile(
    rf"[0-9]{{1,3}}|[{_PUNCT}][A-Za-z]+|[ \t]?[A-Za-z]+| ?[{_PUNCT}]+[\r\n]*|[ \t\r\n]*[\r\n]+"
    r"|[ \t\r\n]+(?![^ \t\r\n0-9])|[ \t\r\n]+")
_PLAIN_ASCII = re.compile(r"[ -~\t\r\n]*")


def byte_characters():
    """The printable character that stands for each byte in a vocabulary: a list of 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + i) for i, byte in enumerate(rest)})
    return [table[byte] for byte in range(256)]


def _ranges(first_letters):
    """A character class body of all code points whose general category starts with one of first_letters."""
    out, begin = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] in first_letters
        if inside and begin is None:
            begin = code
        elif not inside and begin is not None:
            out.append(f"\\U{begin:08x}-\\U{code - 1:08x}")
            begin = None
    return "".join(out)


def _isolate(pattern, pieces):
    """Cuts every piece at the matches of pattern, keeping matches and gaps."""
    out = []
    for piece in pieces:
        end = 0
        for match in pattern.finditer(piece):
            if match.start() > end:
                out.append(piece[end:match.start()])
            out.append(match.group())
            end = match.end()
        if end < len(piece):
            out.append(piece[end:])
    return out


class PreTokenizer:
    """Cuts text that holds no added token into the pieces that merges stay within."""

    def __init__(self):
        letter, mark, number = _ranges("L"), _ranges("M"), _ranges("N")
        symbol = _ranges("PS")
        space = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
        self._numbers = re.compile(f"[{number}]{{1,3}}")
        self._words = re.compile(
            f"[{_PUNCT}][A-Za-z]+|[^\r\n{letter}{symbol}]?[{letter}{mark}]+| ?[{symbol}]+[\r\n]*"
            f"|[{space}]*[\r\n]+|[{space}]+(?![^{space}])|[{space}]+")

    def pieces(self, text):
        if _PLAIN_ASCII.fullmatch(text):
            return _ASCII.findall(text)
        return _isolate(self._words, _isolate(_CJK, _isolate(self._numbers, [text])))


class Encoder:
    """encode(text) -> list of token ids. `added` maps the text of every added token to its id."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        model = tokenizer["model"]
        self.added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        self.vocabulary = model["vocab"]
        pairs = (tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"])
        self._rank = {pair: rank for rank, pair in enumerate(pairs)}
        self._characters = byte_characters()
        self._bytes = {character: byte for byte, character in enumerate(self._characters)}
        self._text = {token: text for text, token in self.vocabulary.items()}
        self._text.update({token: text for text, token in self.added.items()})
        # Longest first: at the same start the longest added token wins.
        longest_first = sorted(self.added, key=len, reverse=True)
        self._added_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._pre_tokenizer = PreTokenizer()
        self._cache = {}

    @property
    def size(self):
        return len(self._text)

    def encode(self, text):
        """Token ids of text; added tokens in it are recognised."""
        out = []
        for part in self._added_pattern.split(text):
            if part in self.added:
                out.append(self.added[part])
            elif part:
                out += self.encode_plain(part)
        return out

    def encode_plain(self, text):
        """Token ids of text; added tokens in it are ordinary text."""
        out = []
        cache = self._cache
        for piece in self._pre_tokenizer.pieces(text):
            tokens = cache.get(piece)
            if tokens is None:
                tokens = self._merge(piece)
                if len(cache) >= _CACHED_PIECES:
                    cache.clear()
                cache[piece] = tokens
            out += tokens
        return out

    def decode_bytes(self, tokens):
        out = b""
        for token in tokens:
            text = self._text[token]
            out += text.encode() if text in self.added else bytes(self._bytes[character] for character in text)
        return out

    def decode(self, tokens):
        """Text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", "replace")

    def _merge(self, piece):
        symbols = [self._characters[byte] for byte in piece.encode()]
        never = len(self._rank)
        while len(symbols) > 1:
            rank, i = min((self._rank.get(pair, never), i) for i, pair in enumerate(zip(symbols, symbols[1:])))
            if rank == never:
                break
            symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
        return tuple(self.vocabulary[symbol] for symbol in symbols)
