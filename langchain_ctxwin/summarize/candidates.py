"""Which statements of a conversation may stand in its extracted summary, and how important is each?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from langchain_core.messages import AnyMessage

from langchain_ctxwin.sentences import edges, fragments, statements, whole
from langchain_ctxwin.summarize.layout import Line, line_of, parsed, splits_labels
from langchain_ctxwin.summarize.salience import Context, is_rule, lead_in, question_words, salience
from langchain_ctxwin.summarize.superseding import superseded
from langchain_ctxwin.summarize.transcript import ASSISTANT, CALL, NOTE, USER, Entry, entries
from langchain_ctxwin.summarize.uses import OUTPUTS, Uses

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

_REST_OF_LINE = re.compile(r"[ \t]+\S")
_BOILERPLATE_TIMES = 3  # what the assistant says this often in the same words ("Noted.") says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One statement that competes for a place in the summary."""

    line: Line
    points: float
    """Salience: higher is kept first."""


def candidates(messages: Sequence[AnyMessage], *, previous: str) -> list[Candidate]:
    """Return every statement of the previous summary and of the messages that still holds, once, in order.

    Each line of the previous summary is a candidate like any other, as it stands; of messages only head and tail are
    looked at where they are very long, and of tool results only the first and last informative lines. A statement
    whose value a later one replaces is left out.
    """
    shown = entries(messages)
    asked = next((entry.text for entry in reversed(shown) if entry.speaker == USER and entry.text), "")
    about = question_words(asked)
    lines = list(parsed(previous))
    uses = Uses.among(lines, shown, MIN_EDGE_CHARS)
    found = [*_from_summary(lines, about, uses), *_from_messages(shown, about, uses, has_previous=bool(lines))]
    items = _unique(found)
    # what a summary tells may be the user's or a page's: the user and the assistant overrule it, it never the user
    gone = superseded((ASSISTANT if item.line.speaker == NOTE else item.line.speaker, item.line.text) for item in items)
    return [item for number, item in enumerate(items) if number not in gone]


def _from_summary(lines: Sequence[Line], asked: frozenset[str], uses: Uses) -> Iterator[Candidate]:
    goal = next((line for line in lines if line.label == USER), None)
    for number, line in enumerate(lines):
        recency = 0.0 if line is goal else number / len(lines) - 1  # the goal does not age
        is_answer = line.speaker == ASSISTANT and (number + 1 == len(lines) or lines[number + 1].speaker == USER)
        use = uses.of_line(line, line.position)
        context = Context(recency=recency, goal=float(line is goal), asked=asked, is_answer=is_answer, use=use)
        yield Candidate(line=line, points=salience(line.text, line.speaker, context, has_topic=bool(line.topic)))


def _from_messages(
    shown: Sequence[Entry], asked: frozenset[str], uses: Uses, *, has_previous: bool
) -> Iterator[Candidate]:
    edge_chars = min(MAX_EDGE_CHARS, max(MIN_EDGE_CHARS, TOTAL_CHARS // (2 * len(shown) or 1)))
    goal = None if has_previous else next((n for n, entry in enumerate(shown) if entry.speaker == USER), None)
    position = 0
    for number, entry in enumerate(shown):
        is_answer = _is_answer(entry, shown[number + 1] if number + 1 < len(shown) else None)
        topic = lead = ""
        for rank, (speaker, label, text) in enumerate(_statements(entry, edge_chars), 1):
            aim = 1 / rank if number == goal else 0.0  # a request stands at its beginning, background follows
            quoted = f"{lead} {text}" if lead and is_rule(text) else text
            lead = lead_in(text) or lead
            line = line_of(quoted, position=position, label=label, topic=topic)
            recency, use = (number + 1) / len(shown), uses.of_line(line, number)
            context = Context(recency=recency, goal=aim, asked=asked, is_answer=is_answer, use=use)
            has_topic = bool(line.topic) and text.startswith(line.topic)
            yield Candidate(line=line, points=salience(line.text, speaker, context, has_topic=has_topic))
            topic = line.topic if line.topic and _goes_on(entry.text, text) else ""
            position += 1


def _goes_on(text: str, statement: str) -> bool:
    """Is the statement followed by another one on its own line?"""
    return _REST_OF_LINE.match(text, text.find(statement) + len(statement)) is not None


def _is_answer(entry: Entry, following: Entry | None) -> bool:
    return entry.speaker == ASSISTANT and not entry.calls and (following is None or following.speaker == USER)


def _statements(entry: Entry, edge_chars: int) -> Iterator[tuple[str, str, str]]:
    """Speaker, label and text of every statement of one message that may be kept."""
    split = fragments if entry.speaker in OUTPUTS else statements
    texts = whole([split(edge) for edge in edges(entry.text, edge_chars)])
    if split is fragments and len(texts) > RESULT_LINES + RESULT_LAST_LINES:
        texts = [*texts[:RESULT_LINES], *texts[-RESULT_LAST_LINES:]]
    for text in chain.from_iterable(map(splits_labels, texts)):
        yield entry.speaker, entry.label, text
    for call in entry.calls:
        for text in fragments(call[:MAX_EDGE_CHARS])[:1]:
            yield CALL, CALL, text


def _unique(items: Iterable[Candidate]) -> list[Candidate]:
    """The items without repeated lines: each line in its most important place."""
    best: dict[tuple[str, str, str], Candidate] = {}
    times: Counter[tuple[str, str, str]] = Counter()
    for item in items:
        key = (item.line.label, item.line.topic, item.line.text)
        times[key] += 1
        known = best.get(key)
        if known is None or known.points < item.points:
            best[key] = item
    return [
        replace(item, points=min(item.points, 0.0))
        if times[key] >= _BOILERPLATE_TIMES and item.line.label == ASSISTANT
        else item
        for key, item in best.items()
    ]
