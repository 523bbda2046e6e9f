"""Which statements no longer hold, because a later one gives the same thing a new value?"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from langchain_ctxwin.summarize.salience import is_code
from langchain_ctxwin.summarize.transcript import ASSISTANT, USER
from langchain_ctxwin.summarize.values import GRAMMAR, NUMBER, Value, stem, values

COMPARED = 12
"""Latest statements with a word in common that a new one is compared with: bounds the work on long conversations."""

MAX_CHARS = 300
"""Longest statement that is about one thing; longer ones are reports with many values."""

_SHARE = 0.5  # of the words of the shorter statement, when two are about the same thing
_MIN_SHARED = 2  # words in common: one alone ("date", "cost") is said of many things

# What is said to be so, not what happened: "the cap is 5", "use 5"; but "sent 5 mails" stays true when 7 more are sent.
_STATE = re.compile(
    r"\b(?:is|are|was|were|be|stays?|remains?|belongs?|runs?|lives?|must|never|always|only|use|report|send|keep|"
    r"prefers?|wants?|set|due|need|can|at most|at least|up to|"
    r"call(?:ed|ing)?|ist|sind|muss|soll|est|sont|doit|es|son|debe|está)\b"
    r"|^[\w' -]{2,40}[:=]",
    re.IGNORECASE,
)
_PROHIBITION = re.compile(r"\b(?:never|not|no|nobody|don['\u2019]t|avoid|nie|nicht|nunca|jamais)\b", re.IGNORECASE)
_CHANGE = re.compile(
    r"\b(?:now|no longer|anymore|from now on|instead|update[sd]?|correction|actually|new|revised|chang(?:ed|es)|moved|"
    r"switched|rotated|renamed|replaced?|raised|lowered|increased|reduced|postponed|rescheduled|retired|as of|"
    r"jetzt|ab sofort|stattdessen|ahora|maintenant)\b|现在|改为|今後",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"^(?:\w+ )?(?:update|correction)\b|\b(?:from now on|no longer|(?:moved|changed|switched|renamed|rotated)\b|"
    r"call\w* .{2,60} now\b)",
    re.IGNORECASE,
)
_AMENDS = re.compile(
    r"^(?:(?:oh|no|sorry|wait|actually|correction|rather)[,:]? )*(?:make (?:that|it)|i mean[t]?|better)\b",
    re.IGNORECASE,
)
_LIMITS = frozenset({"money", "date", "day", "time", NUMBER})
_SUBJECT = "subject"
_ANYTHING = ""  # stands for the words that an amendment leaves out
_NEXT_WORD = re.compile(r"[\s-]*([^\W\d_]+)")
_TOKEN = re.compile(r"[^\W\d_]+|[^\s-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    speaker: str
    stated: dict[str, frozenset[str]]
    """Kind -> the values of this kind."""
    words: frozenset[str]
    """What it is about: its words without the values."""
    before: dict[str, str]
    """Word -> the word right before it: "budget" -> "team" in "the team budget"."""
    is_prohibition: bool
    changes: bool
    """It has a word of change: "now", "new"."""
    amends: bool
    """It corrects what was said just before, without a name for it: "make that 7"."""
    announces: bool
    """It says outright that something is different from now on."""


def superseded(statements: Iterable[tuple[str, str]]) -> frozenset[int]:
    """Return the positions of the (speaker, text) statements that a later one replaces.

    A later statement replaces an earlier one when both say what something is, are about the same thing, and give it
    one different value of the same kind. Items that differ in a word of their name ("travel budget", "team budget")
    are two things, two prohibitions hold side by side, and the assistant never overrules the user.

    Example:
        >>> superseded([("User", "The cost cap is $5."), ("User", "Find tea."), ("User", "The cost cap is now $7.")])
        frozenset({0})
    """
    gone: set[int] = set()
    seen: dict[int, _Statement] = {}
    about: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=COMPARED))
    for number, (speaker, text) in enumerate(statements):
        new = _statement(speaker, text)
        if new is None:
            continue
        words = {_ANYTHING} if new.amends else new.words
        near = sorted({at for word in words for at in about[word]} - gone)
        gone.update(_replaced(new, {at: seen[at] for at in near if _may_replace(new, seen[at])}))
        seen[number] = new
        for word in {_ANYTHING, *new.words}:
            about[word].append(number)
    return frozenset(gone)


def _replaced(new: _Statement, rivals: dict[int, _Statement]) -> Iterable[int]:
    """Which of the statements that could be replaced are meant: of an amendment, the latest one."""
    if new.amends:
        return list(rivals)[-1:]
    return [at for at, old in rivals.items() if _same_thing(new, old, list(rivals.values()))]


def _statement(speaker: str, text: str) -> _Statement | None:
    """What `text` is about and states, or None when it can neither replace nor be replaced."""
    if speaker not in (USER, ASSISTANT) or len(text) > MAX_CHARS or text.endswith("?") or is_code(text):
        return None
    amends = _AMENDS.match(text) is not None
    state = _STATE.search(text) or _CHANGE.search(text) or _AMENDS.match(text)
    found = values(text) if state else ()
    if not state or not found:
        return None
    stated: defaultdict[str, set[str]] = defaultdict(set)
    for value in found:
        # what stands before the verb says which item is meant: "INV-7 is paid" and "INV-9 is paid" are both true
        is_subject = value.start < state.start() and not amends
        stated[_SUBJECT if is_subject else _kind(value, text)].add(value.key)
    tokens = _tokens(text, found)
    return _Statement(
        speaker=speaker,
        stated={kind: frozenset(keys) for kind, keys in stated.items()},
        words=frozenset(filter(None, tokens)),
        before={word: left for left, word in pairwise(tokens) if left and word},
        is_prohibition=_PROHIBITION.search(text) is not None,
        changes=_CHANGE.search(text) is not None,
        amends=amends,
        announces=_ANNOUNCED.search(text) is not None,
    )


def _kind(value: Value, text: str) -> str:
    """Kind of a value; of a bare number with the word it counts: 3 tests are no later value of 5 modules."""
    if value.kind != NUMBER:
        return value.kind
    unit = _NEXT_WORD.match(text, value.start + len(value.text))
    return f"{NUMBER} {stem(unit[1].casefold())}" if unit else NUMBER


def _tokens(text: str, found: Sequence[Value]) -> list[str]:
    """The stems of `text` in order, with an empty one wherever a value, grammar or punctuation stands between."""
    for value in reversed(found):
        text = f"{text[: value.start]}.{text[value.start + len(value.text) :]}"
    return [_stem_or_gap(token) for token in _TOKEN.findall(text.casefold())]


def _stem_or_gap(token: str) -> str:
    return "" if token in GRAMMAR or not token[:2].isalpha() or token.isdigit() else stem(token)


def _may_replace(new: _Statement, old: _Statement) -> bool:
    """Is exactly one value different, and of a kind that changes?"""
    if old.speaker == USER != new.speaker:
        return False
    lost = [(kind, keys - new.stated.get(kind, frozenset())) for kind, keys in old.stated.items()]
    changed = [(kind, keys) for kind, keys in lost if keys]
    if len(changed) != 1:
        return False
    kind, keys = changed[0]
    forbids = new.is_prohibition and old.is_prohibition and not new.changes
    # "never spend more than $5" sets a limit, "never open a.txt" and "never open b.txt" forbid two things
    is_fixed = kind == _SUBJECT or (forbids and kind.partition(" ")[0] not in _LIMITS)
    return not is_fixed and len(keys) == 1 and len(new.stated.get(kind, frozenset()) - old.stated[kind]) == 1


def _same_thing(new: _Statement, old: _Statement, rivals: Sequence[_Statement]) -> bool:
    shared = new.words & old.words
    if any(_is_other_item(new, old, word) for word in shared):
        return False
    known = sum(len(keys & new.stated.get(kind, frozenset())) for kind, keys in old.stated.items())
    if len(shared) + known >= _MIN_SHARED or new.words == old.words:
        return len(shared) >= _SHARE * min(len(new.words), len(old.words))
    # one word is enough where a change is announced, and the word fits no other statement
    return new.announces and any(sum(word in rival.words for rival in rivals) == 1 for word in shared)


def _is_other_item(new: _Statement, old: _Statement, word: str) -> bool:
    """Does a different word stand before `word` on each side, as in "travel budget" and "team budget"?"""
    left, right = new.before.get(word), old.before.get(word)
    return left is not None and right is not None and left not in old.words and right not in new.words
