"""Which questions does the demo ask about a folder? Long and short ones, chosen from what the folder holds."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import TypeVar

from langchain_ctxwin.demo import phrases
from langchain_ctxwin.demo.folder import FileEntry, Folder
from langchain_ctxwin.demo.tools import LINE_CHARS, MAX_WHOLE_BYTES

T = TypeVar("T")

KINDS = ("locate", "whole", "tour", "compare")
"""The kinds that alternate between the first and the last question."""

WORDS = ("heron", "juniper", "cobalt", "walnut", "meridian", "saffron", "lantern", "quartz")
"""Words that answers may have to end with."""

PAGE_CHARS_PER_TOKEN = 0.7
"""Characters of one page of a tour per token of the window: a page then takes about a fifth of it."""

TOUR_PAGES = 13
"""Pages of one tour: many more than a window holds."""

PAGE_LINES = (10, 70)
"""Smallest and largest page."""

SAMPLED_CHARS = 3_000_000
"""Text that words are counted in; a few megabytes show what is common."""

COMMON_WORDS = 40
COMPARED_FILES = 4

WORD = re.compile(r"[^\W\d_]{4,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One user message and what is asked in it."""

    text: str
    """The message, word by word."""

    kind: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a folder offers to ask about."""

    words: tuple[str, ...]
    """Words of its text, the most common first."""

    long_files: tuple[FileEntry, ...]
    """Files to read whole, the largest first: they are larger than the window where there are such."""

    tours: tuple[tuple[FileEntry, int], ...]
    """Files to read page by page, with the lines of a page; long ones where there are such."""

    line_counts: dict[str, int]
    """Lines of every text file that has any."""

    compared: tuple[str, ...]
    """Files to search in parallel: the longer ones, in which something is found."""


class Interview:
    """The questions of one conversation; the same folder and seed give the same ones."""

    def __init__(self, folder: Folder, *, window_tokens: int, seed: int = 0) -> None:
        self._folder = folder
        self._seed = seed
        self._material = survey(folder, window_tokens)
        self.rule_word = self._pick(WORDS, "rule")

    def opening(self) -> Question:
        """Return the first question, with the rule that holds until the end."""
        text = f"{phrases.RULE.format(word=self.rule_word)} My first question: {phrases.WORDING.ask('survey', {})}"
        return Question(text=text, kind="survey", fields={})

    def questions(self) -> Iterator[Question]:
        """Yield the questions that follow, without end."""
        kinds = [kind for kind in KINDS if self._is_possible(kind)]
        rounds = count()
        for kind in cycle(kinds):
            number = next(rounds)
            fields = getattr(self, f"_{kind}")(number)
            yield Question(text=phrases.WORDING.ask(kind, fields), kind=kind, fields=fields)

    def closing(self) -> Question:
        """Return the last question."""
        return Question(text=phrases.WORDING.ask("recall", {}), kind="recall", fields={})

    def _is_possible(self, kind: str) -> bool:
        needed: dict[str, Sequence[object]] = {"locate": self._material.words, "compare": self._material.words}
        needed |= {"whole": self._material.long_files, "tour": self._material.tours}
        return bool(needed[kind]) and not (kind == "tour" and not self._material.words)

    def _locate(self, number: int) -> dict[str, str]:
        return {"term": self._pick(self._material.words, f"locate {number}")}

    def _whole(self, number: int) -> dict[str, str]:
        file = self._pick(self._material.long_files, f"whole {number}")
        lines = self._folder.lines(file.path)
        middle = len(lines) // 2
        line = next((i for i in range(middle, len(lines)) if lines[i].strip()), middle)
        return {"file": file.path, "line": str(line + 1)}

    def _tour(self, number: int) -> dict[str, str]:
        file, page = self._pick(self._material.tours, f"tour {number}")
        last = min(self._material.line_counts[file.path], TOUR_PAGES * page)
        term = self._pick(self._material.words, f"tour word {number}")
        return {"file": file.path, "last": str(last), "page": str(page), "term": term}

    def _compare(self, number: int) -> dict[str, str]:
        chosen = {self._pick(self._material.compared, f"compare {number} {i}") for i in range(COMPARED_FILES)}
        term = self._pick(self._material.words, f"compare word {number}")
        return {"term": term, "files": phrases.quoted(sorted(chosen))}

    def _pick(self, items: Sequence[T], purpose: str) -> T:
        """Choose evenly, but the same each time."""
        seen = hashlib.sha256(f"{self._seed}:{purpose}".encode()).digest()
        return items[int.from_bytes(seen[:8], "big") % len(items)]


def survey(folder: Folder, window_tokens: int) -> Material:
    """Look through the texts of a folder once."""
    words: Counter[str] = Counter()
    tours: list[tuple[FileEntry, int]] = []
    line_counts: dict[str, int] = {}
    chars = 0
    for file in folder.texts:
        lines = folder.lines(file.path)
        if not any(map(str.strip, lines)):
            continue
        line_counts[file.path] = len(lines)
        page = _page_lines(lines, int(window_tokens * PAGE_CHARS_PER_TOKEN))
        if page:
            tours.append((file, page))
        if chars < SAMPLED_CHARS:
            words.update(word for line in lines for word in set(WORD.findall(line[:LINE_CHARS])))
        chars += file.size_bytes
    readable = [file for file in folder.texts if file.path in line_counts and file.size_bytes <= MAX_WHOLE_BYTES]
    return Material(
        words=tuple(word for word, _ in words.most_common(COMMON_WORDS)),
        long_files=_largest(readable, window_tokens),
        tours=_longest(tours, line_counts),
        line_counts=line_counts,
        compared=tuple(sorted(line_counts, key=lambda path: -line_counts[path])[: len(line_counts) // 3 + 1]),
    )


def _page_lines(lines: Sequence[str], page_chars: int) -> int:
    """Lines of one page; 0 when the file is too short for a tour, or has lines that are shown cut."""
    low, high = PAGE_LINES
    start = lines[: TOUR_PAGES * high]
    if len(lines) < 2 * low or max(map(len, start)) > LINE_CHARS:
        return 0
    return max(low, min(high, page_chars * len(start) // (sum(map(len, start)) + len(start))))


def _longest(tours: Sequence[tuple[FileEntry, int]], line_counts: dict[str, int]) -> tuple[tuple[FileEntry, int], ...]:
    """Files that fill a whole tour; else the one that fills most of it."""
    ordered = sorted(tours, key=lambda tour: -line_counts[tour[0].path] / tour[1])
    full = (tour for tour in ordered if line_counts[tour[0].path] >= TOUR_PAGES * tour[1])
    return tuple(full) or tuple(ordered[:1])


def _largest(files: Sequence[FileEntry], window_tokens: int) -> tuple[FileEntry, ...]:
    """Files that surely exceed the window (four bytes a token is the rule of thumb); else the largest one."""
    ordered = sorted(files, key=lambda file: (-file.size_bytes, file.path))
    return tuple(file for file in ordered if file.size_bytes > 4 * window_tokens) or tuple(ordered[:1])
