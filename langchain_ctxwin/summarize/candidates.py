"""Which statements of a conversation may stand in its extracted summary, and how important is each?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from langchain_core.messages import AnyMessage

from langchain_ctxwin.summarize.salience import salience
from langchain_ctxwin.summarize.sentences import edges, fragments, statements, whole
from langchain_ctxwin.summarize.transcript import (
    ASSISTANT,
    CALL,
    SPEAKERS,
    TOOL_ERROR,
    TOOL_RESULT,
    USER,
    Entry,
    entries,
)

TOTAL_CHARS = 1_000_000
"""Characters looked at in one conversation, shared by its messages: keeps a summary well under a second."""

MAX_EDGE_CHARS = 8_000
"""Characters looked at on each side of one message, however few there are: some 100 sentences."""

MIN_EDGE_CHARS = 1_000
"""Characters looked at on each side of one message, however many there are: rules are rarely longer."""

RESULT_LINES = 4
"""First lines taken from a tool result: what was found, before its details."""

RESULT_LAST_LINES = 1
"""Last lines taken from a tool result: totals and errors often stand there."""

_LABEL = re.compile(rf"({'|'.join(SPEAKERS)})(?: \([^)\n]*\))?: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One statement that competes for a place in the summary."""

    position: int
    """Order in the conversation; negative for lines of the previous summary."""
    line: str
    """The statement with its label, as it is printed."""
    text: str
    """The statement alone, verbatim."""
    points: float
    """Salience: higher is kept first."""


def candidates(messages: Sequence[AnyMessage], *, previous: str) -> list[Candidate]:
    """Return every statement of the previous summary and of the messages once, in order.

    Each line of the previous summary is a candidate like any other, as it stands; of messages only head and tail are
    looked at where they are very long, and of tool results only the first and last informative lines.
    """
    has_previous = bool(previous.strip())
    return _unique([*_from_summary(previous), *_from_messages(messages, has_previous=has_previous)])


def _from_summary(previous: str) -> Iterator[Candidate]:
    """One item per line of the previous summary; unlabelled lines after a labelled one continue its statement."""
    lines: list[str] = []
    for line in previous.split("\n"):
        continues = lines and not _LABEL.match(line) and _LABEL.match(lines[-1])
        if continues:
            lines[-1] += f"\n{line}"
        elif line.strip():
            lines.append(line)
    lines = [line.strip() for line in lines]
    goal = next((number for number, line in enumerate(lines) if line.startswith(USER)), None)
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        text = line[label.end() :] if label else line
        points = salience(
            text,
            label[1] if label else USER,
            recency=number / len(lines) - 1,
            goal=float(number == goal),
        )
        yield Candidate(position=number - len(lines), line=line, text=text, points=points)


def _from_messages(messages: Sequence[AnyMessage], *, has_previous: bool) -> Iterator[Candidate]:
    shown = entries(messages)
    edge_chars = min(MAX_EDGE_CHARS, max(MIN_EDGE_CHARS, TOTAL_CHARS // (2 * len(shown) or 1)))
    goal = None if has_previous else next((n for n, entry in enumerate(shown) if entry.speaker == USER), None)
    position = 0
    for number, entry in enumerate(shown):
        is_answer = _is_answer(entry, shown[number + 1] if number + 1 < len(shown) else None)
        for rank, (speaker, label, text) in enumerate(_statements(entry, edge_chars), 1):
            aim = 1 / rank if number == goal else 0.0  # a request stands at its beginning, background follows
            points = salience(text, speaker, recency=(number + 1) / len(shown), goal=aim, is_answer=is_answer)
            yield Candidate(position=position, line=f"{label}: {text}", text=text, points=points)
            position += 1


def _is_answer(entry: Entry, following: Entry | None) -> bool:
    return entry.speaker == ASSISTANT and not entry.calls and (following is None or following.speaker == USER)


def _statements(entry: Entry, edge_chars: int) -> Iterator[tuple[str, str, str]]:
    """Speaker, label and text of every statement of one message that may be kept."""
    split = fragments if entry.speaker in (TOOL_RESULT, TOOL_ERROR) else statements
    texts = whole([split(edge) for edge in edges(entry.text, edge_chars)])
    if split is fragments and len(texts) > RESULT_LINES + RESULT_LAST_LINES:
        texts = [*texts[:RESULT_LINES], *texts[-RESULT_LAST_LINES:]]
    for text in chain.from_iterable(map(_unlabelled, texts)):
        yield entry.speaker, entry.label, text
    for call in entry.calls:
        for text in fragments(call[:MAX_EDGE_CHARS])[:1]:
            yield CALL, CALL, text


def _unlabelled(text: str) -> list[str]:
    """The statement itself, or its lines when one of them would read as another speaker's in the next summary."""
    lines = text.split("\n")
    return [line for line in lines if line.strip()] if any(map(_LABEL.match, lines[1:])) else [text]


def _unique(items: Iterable[Candidate]) -> list[Candidate]:
    """The items without repeated lines: the first place of a line, with the points of its most important one."""
    best: dict[str, Candidate] = {}
    for item in items:
        known = best.get(item.line)
        if known is None or known.points < item.points:
            best[item.line] = item
    return list(best.values())
