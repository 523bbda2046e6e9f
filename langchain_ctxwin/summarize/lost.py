"""Which rules and facts of the removed turns did a summary lose, and how are they added to it?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from langchain_core.messages import AnyMessage

from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize.candidates import Candidate, candidates
from langchain_ctxwin.summarize.layout import ALSO_STATED, BULLET, HEADING, parsed
from langchain_ctxwin.summarize.pricing import text_tokens
from langchain_ctxwin.summarize.salience import is_code, is_decision, is_order, is_rule
from langchain_ctxwin.summarize.transcript import ASSISTANT, NOTE, USER
from langchain_ctxwin.summarize.values import NAME, NUMBER, values, words

EXTRA_SHARE = 0.2
"""Room for the list beyond the size of a summary that used its budget up, as a share of that budget."""

SNIPPET_CHARS = 240
"""Longest piece taken from one statement: two sentences."""

MAX_CHECKED = 2_000
"""Statements looked at, most important first: many times more than a list can hold."""

_MIN_MENTIONS = 2  # what tools return matters when it comes up again, in a later call or in what somebody says
_SAME_RULE = 0.8  # of a rule's words, in one line of the summary: the rule is there
_NEGATION = re.compile(r"\b(?:not?|never|without|nobody|avoid|forbid\w*|nie|nicht|nunca|jamais)\b|n['\u2019]t\b|[不禁]")
_COMMON_KINDS = frozenset({NAME, NUMBER, "day", "time"})  # too frequent to matter by themselves
_SPACES = re.compile(r"\s+")


def completed(
    summary: str, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int, counter: TokenCounter
) -> str:
    """Return `summary` with a short list of the rules and facts of `messages` and `previous` that it lost.

    The user's rules come first, word for word; then what the user stated (identifiers, numbers, paths, dates); then
    decisions and results that came up again. Values that a later statement replaced are left out. The whole stays
    within `max_tokens`, or `EXTRA_SHARE` of it above the size of a summary that leaves no room. `summary` itself is
    never changed; one that was extracted from the same statements gets a list only where it left room.
    """
    items = candidates(messages, previous=previous)
    ranked = sorted(items, key=lambda item: -item.points)[:MAX_CHECKED]
    extra_tokens, used_tokens = int(max_tokens * EXTRA_SHARE), text_tokens(counter, summary)
    if used_tokens + extra_tokens > max_tokens and _is_extracted(summary, items):
        return summary
    limit_tokens = max(max_tokens, used_tokens + extra_tokens)
    opening = f"{summary}\n" if _ends_in_list(summary) else f"{summary}\n\n{ALSO_STATED}\n"
    room = limit_tokens - text_tokens(counter, opening)
    kept: list[str] = []
    for snippet in _lost(_Known(summary), ranked, Counter(_mentions(items))):
        bullet = f"{BULLET}{snippet}\n"
        tokens = text_tokens(counter, bullet)
        if tokens <= room:
            kept.append(bullet)
            room -= tokens
        if room <= 0:
            break
    return _fitting(summary, opening, kept, limit_tokens, counter)


def _fitting(summary: str, opening: str, kept: list[str], limit_tokens: int, counter: TokenCounter) -> str:
    """The summary with as many of the bullets as fit: a whole may count more than its parts."""
    while kept:
        text = (opening + "".join(kept)).rstrip("\n")
        tokens = text_tokens(counter, text)
        if tokens <= limit_tokens:
            return text
        kept = kept[: -max(1, len(kept) * (tokens - limit_tokens) // tokens)]
    return summary


class _Known:
    """What a summary says, to be asked about rules and values."""

    def __init__(self, summary: str) -> None:
        self._text = ""
        self._lines: list[tuple[frozenset[str], bool]] = []
        for line in summary.split("\n"):
            self.add(line)

    def add(self, line: str) -> None:
        """Take note of one more line."""
        folded = _folded(line)
        self._text += f"\n{folded}"
        self._lines.append((frozenset(words(line)), _NEGATION.search(folded) is not None))

    def has(self, value: str) -> bool:
        """Is the value written here, and not as a part of another one?"""
        at = self._text.find(value)
        while at >= 0:
            end = at + len(value)
            if (
                not (self._text[at - 1 : at] + value[:1]).isalnum()
                and not (value[-1:] + self._text[end : end + 1]).isalnum()
            ):
                return True
            at = self._text.find(value, at + 1)
        return False

    def has_rule(self, text: str) -> bool:
        """Does one line say nearly all of the rule, and forbid where it forbids?"""
        folded = _folded(text)
        if folded in self._text:
            return True
        own, forbids = frozenset(words(text)), _NEGATION.search(folded) is not None
        return any(
            len(own & said) >= _SAME_RULE * len(own) and forbids <= negated for said, negated in self._lines if own
        )


def _lost(known: _Known, ranked: Sequence[Candidate], mentions: Counter[str]) -> Iterator[str]:
    """The snippets to add, most important first; what an earlier snippet says is not lost any more."""
    tiers: tuple[list[Candidate], ...] = ([], [], [])
    for item in ranked:
        tiers[_tier(item)].append(item)
    for item in (item for tier in tiers for item in tier):
        snippet = _snippet(item, known, mentions)
        if snippet:
            known.add(snippet)
            yield snippet


def _tier(item: Candidate) -> int:
    if item.line.speaker != USER:
        return 1 if item.line.speaker == NOTE else 2
    return 0 if is_rule(item.line.text) else 1


def _snippet(item: Candidate, known: _Known, mentions: Counter[str]) -> str:
    """The part of the statement that has to be added, with its speaker unless it is the user; empty if none."""
    line = item.line
    text = _SPACES.sub(" ", line.text.removeprefix(BULLET))
    by_user = line.speaker == USER
    if by_user and is_order(text):
        at = -1 if known.has_rule(text) and all(known.has(value.key) for value in values(text)) else 0
    else:
        matters = line.speaker in (USER, NOTE) and not is_code(text)
        decides = line.speaker == ASSISTANT and is_decision(text)
        at = _first_lost(text, known, mentions, matters=matters, decides=decides)
    if at < 0:
        return ""
    start = max(0, at - SNIPPET_CHARS // 2) if len(text) > SNIPPET_CHARS else 0
    piece = text[start : start + SNIPPET_CHARS]
    piece = piece.partition(" ")[2] if start and " " in piece else piece
    piece = piece.rpartition(" ")[0] if start + SNIPPET_CHARS < len(text) and " " in piece else piece
    topic = f"{line.topic}: " if line.topic and not start else ""
    if by_user:
        return f"{topic}{piece}"
    return f"{NOTE if line.speaker == NOTE else line.label}: {topic}{piece}"


def _first_lost(text: str, known: _Known, mentions: Counter[str], *, matters: bool, decides: bool) -> int:
    """Where the first lost value of a statement starts that is worth keeping, or -1."""
    for value in values(text):
        if value.kind == NUMBER and len(value.key) == 1:
            continue  # "the 3 of us": one digit without a unit counts things, it names none
        is_worth = matters or (value.kind not in _COMMON_KINDS and (decides or mentions[value.key] >= _MIN_MENTIONS))
        if is_worth and not known.has(_folded(value.key)):
            return value.start
    return -1


def _mentions(items: Iterable[Candidate]) -> Iterator[str]:
    for item in items:
        yield from {value.key for value in values(item.line.text)}


def _is_extracted(summary: str, items: Iterable[Candidate]) -> bool:
    """Is every line of the summary a statement of its source? Then it has chosen among them, for the same room."""
    texts = {item.line.text for item in items}
    return all(line.text in texts for line in parsed(summary))


def _ends_in_list(summary: str) -> bool:
    headings = [line.strip() for line in summary.split("\n") if line.startswith(HEADING)]
    return bool(headings) and headings[-1] == ALSO_STATED and not summary.endswith("\n")


def _folded(text: str) -> str:
    return _SPACES.sub(" ", re.sub(r"(?<=\d),(?=\d{3})", "", text.casefold()))
