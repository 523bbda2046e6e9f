"""Which lines that tools returned did somebody use afterwards?"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from langchain_ctxwin.sentences import edges
from langchain_ctxwin.summarize.layout import Line
from langchain_ctxwin.summarize.transcript import CALL, TOOL_ERROR, TOOL_RESULT, Entry

OUTPUTS = (TOOL_RESULT, TOOL_ERROR)
"""The speakers of what tools return."""

_MIN_CHARS = 4  # shorter ones, as times of day, are met everywhere: that they come up again says nothing
_APART = r"\s\"'`(),;{}\[\]<>=|*"
# Starts at the beginning of a word only and never goes back, so that no text takes more than linear time.
_IDENTIFIER = re.compile(rf"(?<![^{_APART}])(?!\d\d?:\d\d)[^{_APART}\d/@_]*+[\d/@_][^{_APART}]*+")
_NEVER = -sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Where each identifier of a conversation was first stated by somebody, or passed to a tool."""

    first: Mapping[str, int]
    """Identifier -> number of the entry; lines of the previous summary have their position, which is below 0."""
    last_called: int
    """Number of the entry that called tools last: what they returned, nobody may have had time to use."""

    @classmethod
    def among(cls, lines: Iterable[Line], entries: Sequence[Entry], edge_chars: int) -> Uses:
        """Read a summary's lines and the entries after it, `edge_chars` at both ends of each."""
        said = [(line.position, line.text) for line in lines if line.speaker not in OUTPUTS]
        called = [line.position for line in lines if line.speaker == CALL]
        for number, entry in enumerate(entries):
            texts = entry.calls if entry.speaker in OUTPUTS else (*entry.calls, entry.text)
            said += [(number, text) for text in texts]
            called += [number] * bool(entry.calls)
        first: dict[str, int] = {}
        for number, text in said:
            for key in chain.from_iterable(map(_identifiers, edges(text, edge_chars))):
                first.setdefault(key, number)
        return cls(first=first, last_called=called[-1] if called else _NEVER)

    def of_line(self, line: Line, number: int) -> int:
        """1 if the tool's line in entry `number` gives an identifier that somebody used later, and nobody before.

        -1 if nobody used it; 0 for what the latest calls returned, and for every line that is no tool's.
        """
        if line.speaker not in OUTPUTS:
            return 0
        if any(self.first.get(key, number) > number for key in _identifiers(line.text)):
            return 1
        return 0 if number > self.last_called else -1


def _identifiers(text: str) -> Iterator[str]:
    for word in _IDENTIFIER.findall(text):
        key = word.rstrip(".:!?")
        if len(key) >= _MIN_CHARS:
            yield key.casefold()
