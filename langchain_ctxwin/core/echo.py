"""Which words of an error are the request's own, quoted back by the provider?

Servers quote what they refuse: cut off, JSON-escaped, as a `repr`, in upper case, with whitespace collapsed, several
messages in a row. What a user wrote must not be read as what the provider says, so both are compared by their letters
and digits alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from unicodedata import normalize

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core.tokens import tool_definition

QUOTED_CHARS = 8
"""Letters and digits in a row, a digit among them, that make a quote: `limit 300` has eight, and a number with so much
around it stands in two texts by chance only where both speak of the same limit."""

QUOTED_WORDS_CHARS = 24
"""The same without a digit: four to five words. Shorter runs (`context length`, `of the messages`) are everybody's, and
so are longer ones around another number: that is how the provider words its own statement."""

MASK = " ; "
"""Stands where a quote was, so that the words before and after it are not read as one."""

MAX_CODE_POINT = 0x10FFFF
"""The last character there is; an escape beyond it is none."""

_NUMBER = re.compile(r"\d+(?:[,._' \u00a0\u202f]\d{3}(?!\d))*")
_ESCAPES = re.compile(
    r"(?<!\\)\\++(?:(?-i:U(?P<eight>[0-9A-Fa-f]{8}))|u(?P<four>[0-9a-f]{4})|x(?P<two>[0-9a-f]{2})|[nrtbfv0])"
    r"|&(?:amp;)*+(?:quot|apos|lt|gt|nbsp|#\d{1,5}|#x[0-9a-f]{1,4});",
    re.IGNORECASE,
)
_JOINTS = " \t\r\n()[]:=<>+,-"  # between the words of a statement and its numbers; a quote ends with a quotation mark
_GOES_ON = re.compile(rf"(?:\\*[\"']:)?[{re.escape(_JOINTS)}]*\d")  # also from a JSON key to its value
_NO_LETTERS = re.compile(r"[\W_]+")


class Quotes:
    """The texts of a refused request, to be found again in what the provider says about it."""

    def __init__(self, texts: Iterable[str]) -> None:
        parts = [_letters(text) for text in texts]
        self._all = "".join(parts)
        self._short = {part for part in parts if len(part) < QUOTED_CHARS and _has_digit(part) and not part.isdigit()}

    def masked(self, text: str) -> str:
        """Return an error text without what the request says too; a number that differs is the provider's own."""
        letters, places = _placed_letters(text)
        quoted = self._quoted(text, letters, places)
        for number in _NUMBER.finditer(text):
            digits = slice(bisect_left(places, number.start()), bisect_left(places, number.end()))
            if not all(quoted[digits]):
                quoted[digits] = bytes(len(quoted[digits]))
        shown, end = list[str](), 0
        for is_quoted, run in groupby(range(len(letters)), key=quoted.__getitem__):
            indices = list(run)
            start, stop = places[indices[0]], places[indices[-1]] + 1
            if is_quoted and _is_quote(text, start, stop):
                shown += text[end:start], MASK
                end = stop
        return "".join([*shown, text[end:]])

    def has(self, word: str) -> bool:
        """True when the request has this word, too."""
        letters = _letters(word)
        return bool(letters) and letters in self._all

    def _quoted(self, text: str, letters: str, places: Sequence[int]) -> bytearray:
        """Say of each letter whether it stands in a run of letters that the request has, too."""
        runs = [letters[i : i + QUOTED_CHARS] for i in range(len(letters) - QUOTED_CHARS + 1)]
        known = self._known(set(runs))
        starts = [(i, QUOTED_CHARS) for i, run in enumerate(runs) if run in known]
        quoted = bytearray(len(letters))
        for start, size in (*starts, *self._short_texts(text, letters, places)):
            quoted[start : start + size] = b"\1" * size
        return quoted

    def _known(self, runs: set[str]) -> set[str]:
        """Those of some short runs of letters that the request has: one pass over it, however long the error is."""
        text = self._all
        return {run for i in range(len(text) - QUOTED_CHARS + 1) if (run := text[i : i + QUOTED_CHARS]) in runs}

    def _short_texts(self, text: str, letters: str, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield where messages of a word and a number are quoted whole: the first letter, and how many they are."""
        for part in self._short:
            start = letters.find(part)
            while start >= 0:
                before = places[start] - 1
                after = places[start + len(part) - 1] + 1
                if not text[max(0, before) : before + 1].isalnum() and not text[after : after + 1].isalnum():
                    yield start, len(part)
                start = letters.find(part, start + 1)


def has_number(texts: Iterable[str], tokens: int) -> bool:
    """True when a text states this number, or begins with its digits, in any usual spelling."""
    digits = r"[,._' ]?".join(str(tokens))
    thousands = rf"|(?<![\d.,]){tokens // 1000} ?k\b" if tokens % 1000 == 0 else ""
    pattern = re.compile(rf"(?<!\d)(?<!\d[,._']){digits}{thousands}", re.IGNORECASE)
    return any(pattern.search(normalize("NFKC", text)) for text in texts)


def request_texts(messages: Iterable[BaseMessage], tools: Iterable[Any] = ()) -> Iterator[str]:
    """Yield every text that a request carries, in order: contents, calls, names, and the definitions of its tools."""
    for message in messages:
        yield from _leaves(message.content)
        if isinstance(message, AIMessage):
            yield from _leaves(message.tool_calls)
            yield from _leaves(message.invalid_tool_calls)
        yield from _leaves(message.additional_kwargs)
        names = (message.name, message.tool_call_id if isinstance(message, ToolMessage) else None)
        yield from (name for name in names if name)
    for tool in tools:
        yield from _leaves(tool_definition(tool))


def _is_quote(text: str, start: int, stop: int) -> bool:
    """True for shared words with a number, or so many that do not go on from or to a number of the provider's own."""
    if _has_digit(text[start:stop]):
        return True
    goes_on = text[:start].rstrip(_JOINTS)[-1:].isdigit() or _GOES_ON.match(text, stop)
    return not goes_on and sum(map(str.isalnum, text[start:stop])) >= QUOTED_WORDS_CHARS


def _leaves(value: object) -> Iterator[str]:
    """The keys and values of nested JSON, as they follow each other where it is printed."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [part for key, content in reversed([*item.items()]) for part in (content, key)]
        elif isinstance(item, list | tuple):
            waiting += reversed(item)
        elif isinstance(item, int | float):
            yield str(item)


def _letters(text: str) -> str:
    """The letters and digits of a text, in one case and one spelling."""
    plain = _ESCAPES.sub(_unescaped, text) if "\\" in text or "&" in text else text
    if plain.isascii():
        return _NO_LETTERS.sub("", plain.lower())
    return _NO_LETTERS.sub("", normalize("NFKD", plain).casefold())


def _placed_letters(text: str) -> tuple[str, list[int]]:
    """The letters and digits of a text, and the position of each."""
    plain = _ESCAPES.sub(lambda escape: _unescaped(escape).ljust(len(escape[0])), text)
    placed = [(letter, i) for i, char in enumerate(plain) for letter in normalize("NFKD", char).casefold()]
    kept = [(letter, i) for letter, i in placed if letter.isalnum()]
    return "".join(letter for letter, _ in kept), [i for _, i in kept]


def _unescaped(escape: re.Match[str]) -> str:
    code = escape["four"] or escape["eight"] or escape["two"]
    return chr(int(code, 16)) if code and int(code, 16) <= MAX_CODE_POINT else ""


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))
