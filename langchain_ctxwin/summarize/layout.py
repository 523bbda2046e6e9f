"""How is an extracted summary laid out, so that it is short and can be read again line by line?"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from langchain_ctxwin.summarize.transcript import NOTE, SPEAKERS, USER

HEADING = "#"
"""Opens a line that is a section's title, in summaries that a model wrote."""

BULLET = "- "
"""Opens an item of a section."""

ALSO_STATED = "## Also stated"
"""Heading of the list of what a summary had lost; the list of a summary is read again like its other lines."""

_USERS_HEADINGS = frozenset({ALSO_STATED.casefold(), "## goal and constraints"})

_LABEL = re.compile(rf"({'|'.join(SPEAKERS)})(?: \([^)\n]*\))?: ")
# A capitalized word alone may be a speaker's name in a pasted chat: the order of such lines matters.
# "The page says" is no topic either: without it, what a page says would read as the user's own words.
_TELLING = "".join(
    f"(?<!{verb})" for verb in ("says", "said", "reads", "states", "wrote", "writes", "received", "pasted")
)
_TOPIC = re.compile(rf"(?:[A-Z]{{3,24}}|[A-Z][A-Za-z]{{1,20}}(?: [A-Za-z]{{2,20}}){{1,2}}){_TELLING}: (?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One statement in its place in a summary."""

    position: int
    """Order in the conversation; negative for lines of the previous summary."""
    label: str
    """Who says it ("Tool result (grep)"), the heading it stands under, or empty."""
    topic: str
    """The statement's own short label ("OPEN QUESTION"), or empty."""
    text: str
    """The statement without either, verbatim but for line breaks."""

    @property
    def speaker(self) -> str:
        """One of the speakers of a transcript; lines that name none are notes, but for lists of what the user said."""
        speaker = self.label.partition(" (")[0]
        if speaker in SPEAKERS:
            return speaker
        return USER if self.label.casefold().rstrip(": ") in _USERS_HEADINGS else NOTE


def line_of(text: str, *, position: int, label: str, topic: str = "") -> Line:
    """Return the line for a statement of the conversation; `topic` is that of the statement that it continues."""
    text = " ".join(filter(None, map(str.strip, text.split("\n"))))
    own = _TOPIC.match(text)
    return Line(
        position=position,
        label=label,
        topic=own[0].removesuffix(": ") if own else topic,
        text=text[own.end() :] if own else text,
    )


def splits_labels(text: str) -> list[str]:
    """The statement itself, or its lines when one of them would read as another speaker's in the next summary."""
    lines = text.split("\n")
    return [line for line in lines if line.strip()] if any(map(_LABEL.match, lines[1:])) else [text]


def parsed(summary: str) -> Iterator[Line]:
    """Yield the statements of a summary that `rendered` wrote, or of any other text, line by line."""
    heading = label = topic = ""
    raws = [raw.strip() for raw in summary.split("\n") if raw.strip()]
    for position, raw in enumerate(raws, -len(raws)):
        if raw.startswith(HEADING):
            heading, label, topic = raw, raw, ""
            continue
        spoken = _LABEL.match(raw.removeprefix(BULLET))
        if spoken:
            label, topic = spoken[0].removesuffix(": "), ""
        elif raw.startswith(BULLET) and label != heading:
            label, topic = heading, ""  # an item says itself who speaks, the one above it does not
        text = spoken.string[spoken.end() :] if spoken else raw
        line = line_of(text, position=position, label=label, topic=topic)
        topic = line.topic
        yield line


def rendered(lines: Sequence[Line]) -> str:
    """Return the lines in order; neighbours with the same label, then with the same topic, share it.

    Example:
        >>> print(rendered([line_of(text, position=0, label="User") for text in ("Hi.", "OPEN: Sort.", "OPEN: Send.")]))
        User: Hi.
        OPEN: Sort.
        Send.
    """
    ordered = sorted(lines, key=lambda line: line.position)
    return "\n".join(
        text for label, run in groupby(ordered, key=lambda line: line.label) for text in _run(label, [*run])
    )


def _run(label: str, lines: Sequence[Line]) -> Iterator[str]:
    """The printed lines of one speaker: first those without a topic, then topic by topic."""
    topics = {line.topic: number for number, line in reversed([*enumerate(lines)])} | {"": -1}
    topic = ""
    if label.startswith(HEADING):
        yield label
    for number, line in enumerate(sorted(lines, key=lambda line: topics[line.topic])):
        is_new = line.topic != topic
        topic = line.topic
        text = f"{topic}: {line.text}" if topic and (is_new or _TOPIC.match(line.text)) else line.text
        is_spoken = label and not label.startswith(HEADING)
        is_mistakable = _LABEL.match(text) or text.startswith((HEADING, BULLET))
        yield f"{label}: {text}" if is_spoken and (number == 0 or is_mistakable) else text


class Draft:
    """Says which labels a line adds to the lines that are kept so far."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str]] = []
        self._topics: set[tuple[str, str]] = set()

    def addition(self, line: Line) -> str:
        """The text that printing `line` too would add."""
        at = bisect_left(self._kept, (line.position, ""))
        left = self._kept[at - 1][1] if at else None
        right = self._kept[at][1] if at < len(self._kept) else None
        topic = f"{line.topic}: " if line.topic and (line.label, line.topic) not in self._topics else ""
        labels = [] if line.label in (left, right) else [line.label]
        labels += [left] if left is not None and left == right != line.label else []
        return "".join(f"{label}: " for label in labels if label) + topic + line.text

    def add(self, line: Line) -> None:
        """Count `line` as kept."""
        insort(self._kept, (line.position, line.label))
        self._topics.add((line.label, line.topic))
