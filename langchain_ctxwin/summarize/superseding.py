"""Which statements no longer hold, because a later one gives the same thing a new value?"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from langchain_ctxwin.summarize.salience import is_code
from langchain_ctxwin.summarize.transcript import ASSISTANT, USER
from langchain_ctxwin.summarize.values import GRAMMAR, NUMBER, Value, stem, values

COMPARED = 12
"""Latest statements with a word in common that a new one is compared with: bounds the work on long conversations."""

MAX_CHARS = 300
"""Longest statement that is about one thing; longer ones are reports with many values."""

_SHARE = 0.5  # of the words of the shorter statement, when two are about the same thing
_MIN_SHARED = 2  # words in common: one alone ("date", "cost") is said of many things
_LEAD_CHARS = 40  # looked at before a value: two or three words

# What is said to be so, not what happened: "the cap is 5", "use 5"; but "sent 5 mails" stays true when 7 more are sent.
_STATE = re.compile(
    r"\b(?:is|are|be|stays?|remains?|belongs?|runs?|lives?|must|never|always|only|use|report|send|keep|"
    r"prefers?|wants?|set|due|need|can|at most|at least|up to|"
    r"call(?:ed|ing)?|ist|sind|muss|soll|est|sont|doit|es|son|debe|está)\b"
    r"|^[\w' -]{2,40}[:=]",
    re.IGNORECASE,
)
# What is added, told of the past, reported or only supposed is true beside anything else.
_ASIDE = re.compile(
    r"\b(?:too|also|both|as well|another|additional(?:ly)?|besides|auch|aussi|también|was|were|used to|ago|earlier|"
    r"previously|formerly|originally|before(?! \.)|says?|said|claim(?:s|ed)?|told|heard|wrote|if|maybe|perhaps|might|"
    r"would|could)\b|[也还]",
    re.IGNORECASE,
)
_PROHIBITION = re.compile(
    r"\b(?:never|not|no(?! longer)|nobody|don['\u2019]t|avoid|nie|nicht|nunca|jamais)\b", re.IGNORECASE
)
_CHANGE = re.compile(
    r"(?<!^)\bnow\b|\b(?:no longer|anymore|from now on|instead|update[sd]?|correction|actually|new|revised|"
    r"chang(?:ed|es)|moved|switched|rotated|renamed|replaced?|raised|lowered|increased|reduced|postponed|rescheduled|"
    r"retired|as of|jetzt|ab sofort|stattdessen|ahora|maintenant)\b|现在|改为|今後",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"^(?:\w+ )?(?:update|correction)\b|\b(?:no longer|(?:moved|changed|switched|renamed|rotated)\b|"
    r"(?:old|previous|former) [\w-]+ is\b|call\w* .{2,60} now\b)",
    re.IGNORECASE,
)
_AMENDS = re.compile(
    r"^(?:(?:oh|no|sorry|wait|actually|correction|rather)[,:]? )*(?:make (?:that|it)|i mean[t]?|better)\b",
    re.IGNORECASE,
)
_EQUATED = re.compile(
    r"(?:\b(?:is|are|be|only|called|named|ist|sind|est|es)|[:=])(?: (?:now|the|at|set to))*\s*$", re.IGNORECASE
)
_BOUNDED = re.compile(r"\b(?:before|after|until|till|by|from|since|than|most|least)\s+$", re.IGNORECASE)
_BEING = re.compile(r"\b(?:is|are|be|due|runs?|remains?|stays?|ist|sind|est|es)\b|[:=]", re.IGNORECASE)
_SCOPED = re.compile(r"\b(?:per|for|in|of)\s+$", re.IGNORECASE)
_NUMBERED = re.compile(r"([^\W\d_]{2,}) $")
_SCOPE = re.compile(r"\b(?:per|for|in|of|each|every)\s+(?:(?:the|my|our|your|this|that|all|any)\s+)*([^\W\d_]+)")
_OWNER = re.compile(r"[^\W\d_]+(?=['\u2019]s\b)|\b(?:his|her|their)\b")
_FROM_NOW_ON = re.compile(r"\bfrom now on\b", re.IGNORECASE)

_LOWER = ("least", "after", "above", "over", "from", "since", "min", "minimum", "more")
_UPPER = ("most", "before", "below", "under", "until", "till", "max", "maximum", "less")
_OPPOSITES = (
    *product(_LOWER, _UPPER),
    *(("in", "out"), ("out", "back"), ("up", "down"), ("on", "off"), ("from", "to"), ("with", "without")),
    *(("old", "new"), ("my", "our"), ("my", "your"), ("our", "your")),
)
_MOMENTS = frozenset({"date", "day", "time"})
_LIMITS = _MOMENTS | {"money", NUMBER}
# Said of every thing elsewhere, but they tell two limits apart: "the user limit", "the team limit".
_GRAMMAR = GRAMMAR - frozenset({"user", "users", "team", "day", "week", "time", "today"})
_SYNONYMS = {
    stem(word): stem(meant)
    for meant, words in (
        ("date", "deadline timing target"),
        ("name", "codename label call"),
        ("budget", "cap limit spend"),
    )
    for word in words.split()
}
"""Words for what kind of value something has: the launch deadline changes when "the launch date moved"."""

_SUBJECT = "subject"
_ANYTHING = ""  # stands for the words that an amendment leaves out
_NEXT_WORD = re.compile(r"[\s-]*([^\W\d_]+)")
_TOKEN = re.compile(r"[^\W\d_]+|[^\s-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    speaker: str
    stated: dict[str, frozenset[str]]
    """Kind -> the values of this kind."""
    equated: frozenset[str]
    """The kinds of what something is said to be or limited to, as opposed to what an order is about."""
    words: frozenset[str]
    """What it is about: its words without the values."""
    before: dict[str, str]
    """Word -> the word right before it: "budget" -> "team" in "the team budget"."""
    scopes: frozenset[str]
    """What it holds for: "day" in "$5 per day"."""
    owners: frozenset[str]
    """Whose thing it is about: "wife" in "my wife's passport"."""
    all_words: frozenset[str]
    """As they are written, with grammar."""
    is_prohibition: bool
    changes: bool
    """It has a word of change: "now", "new"."""
    amends: bool
    """It corrects what was said just before, without a name for it: "make that 7"."""
    announces: bool
    """It says outright that something is no longer what it was."""


def superseded(statements: Iterable[tuple[str, str]]) -> frozenset[int]:
    """Return the positions of the (speaker, text) statements that a later one replaces.

    A later statement replaces an earlier one when both say what something is, are about the same thing, and give it
    one different value of the same kind. Without a word of change, the same thing means the same words. Items that
    differ in their name, owner, scope or bound ("at least", "at most") are two things; what is added, reported or told
    of the past replaces nothing; and the assistant never overrules the user. When unsure, both stay.

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
        gone.update(_replaced(new, {at: seen[at] for at in near}))
        seen[number] = new
        for word in {_ANYTHING, *new.words}:
            about[word].append(number)
    return frozenset(gone)


def _replaced(new: _Statement, near: dict[int, _Statement]) -> Iterable[int]:
    """Which statements are replaced: of an amendment, the latest one; in other words, those with one same value."""
    changed = {at: _changed(new, old) for at, old in near.items()}
    rivals = {at: near[at] for at, value in changed.items() if value}
    if new.amends:
        return list(rivals)[-1:]
    same = [at for at, old in rivals.items() if _in_same_words(new, old, changed[at])]
    if same:
        return same
    alike = [at for at, old in rivals.items() if _in_other_words(new, old)]
    return alike if len({changed[at] for at in alike}) == 1 else []


def _statement(speaker: str, text: str) -> _Statement | None:
    """What `text` is about and states, or None when it can neither replace nor be replaced."""
    if speaker not in (USER, ASSISTANT) or len(text) > MAX_CHARS or text.endswith("?") or is_code(text):
        return None
    amends = _AMENDS.match(text) is not None
    state = _STATE.search(text) or _CHANGE.search(text) or _AMENDS.match(text)
    found = values(text) if state else ()
    if not state or not found:
        return None
    plain = _without_values(text, found)
    if _ASIDE.search(plain):
        return None
    stated: defaultdict[str, set[str]] = defaultdict(set)
    for value in found:
        # what stands before the verb says which item is meant: "INV-7 is paid" and "INV-9 is paid" are both true
        is_subject = value.start < state.start() and not amends
        stated[_SUBJECT if is_subject else _kind(value, text)].add(value.key)
    tokens = [_stem_or_gap(token) for token in _TOKEN.findall(_CHANGE.sub(".", plain).casefold())]
    return _Statement(
        speaker=speaker,
        stated={kind: frozenset(keys) for kind, keys in stated.items()},
        equated=frozenset(_kind(value, text) for value in found if _is_equated(value, text)),
        words=frozenset(filter(None, tokens)),
        before={word: left for left, word in pairwise(tokens) if left and word},
        scopes=frozenset(map(stem, _SCOPE.findall(plain.casefold()))),
        owners=frozenset(_OWNER.findall(plain.casefold())),
        all_words=frozenset(_TOKEN.findall(_FROM_NOW_ON.sub("", plain).casefold())),
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


def _is_equated(value: Value, text: str) -> bool:
    """Is it what something is ("the owner is Ann") or a limit, rather than what an order is about ("keep port 80")?"""
    lead = text[max(0, value.start - _LEAD_CHARS) : value.start]
    if value.kind in _MOMENTS:
        # "no calls before 9:00" sets a limit, "no calls on Monday" leaves other days forbidden
        is_held = _BEING.search(text, 0, value.start) and not _PROHIBITION.search(text) and not _SCOPED.search(lead)
        return bool(_BOUNDED.search(lead) or is_held)
    if _EQUATED.search(lead):
        return True
    noun = _NUMBERED.search(lead)
    is_name = value.kind == NUMBER and noun is not None and noun[1].casefold() not in GRAMMAR
    return value.kind in _LIMITS and not is_name and not _SCOPED.search(lead)


def _without_values(text: str, found: Sequence[Value]) -> str:
    """The text with a full stop wherever a value stands."""
    for value in reversed(found):
        text = f"{text[: value.start]}.{text[value.start + len(value.text) :]}"
    return text


def _stem_or_gap(token: str) -> str:
    if token in _GRAMMAR or not token[:2].isalpha() or token.isdigit():
        return ""
    return _SYNONYMS.get(stem(token), stem(token))


def _changed(new: _Statement, old: _Statement) -> tuple[str, str] | None:
    """Kind and old value of what the new statement states differently, if it is exactly one value that may change."""
    if old.speaker == USER != new.speaker:
        return None
    lost = [(kind, keys - new.stated.get(kind, frozenset())) for kind, keys in old.stated.items()]
    changed = [(kind, key) for kind, keys in lost for key in keys]
    if len(changed) != 1:
        return None
    kind, key = changed[0]
    added = [other for other, keys in new.stated.items() if keys - old.stated.get(other, frozenset())]
    is_narrower = any(other != kind and _base(other) not in _LIMITS for other in added)
    if kind == _SUBJECT or is_narrower or len(new.stated.get(kind, frozenset()) - old.stated[kind]) != 1:
        return None
    return (kind, key) if _may_overrule(new, old, kind) else None


def _may_overrule(new: _Statement, old: _Statement, kind: str) -> bool:
    """Prohibitions add up, but for limits: "never spend more than $5" sets one, "never open a.txt" forbids a thing."""
    if new.announces or new.amends:
        return True
    is_limit = _base(kind) in _LIMITS and kind in new.equated & old.equated
    return new.is_prohibition == old.is_prohibition and (is_limit or not new.is_prohibition)


def _base(kind: str) -> str:
    return kind.partition(" ")[0]


def _in_same_words(new: _Statement, old: _Statement, changed: tuple[str, str] | None) -> bool:
    """Do both say the same but for the value, which says what something is unless the new one speaks of a change?"""
    known = any(keys & new.stated.get(kind, frozenset()) for kind, keys in old.stated.items())
    is_said_of = new.changes or (changed is not None and changed[0] in new.equated & old.equated)
    is_same = new.words == old.words and new.scopes == old.scopes and bool(new.words or known)
    return is_same and is_said_of and not _are_apart(new, old)


def _in_other_words(new: _Statement, old: _Statement) -> bool:
    """Does the new statement, which speaks of a change, name the thing of the old one and nothing else?"""
    shared = new.words & old.words
    if not new.changes or len(shared) < _MIN_SHARED or not new.scopes <= old.scopes or _are_apart(new, old):
        return False
    if any(_is_other_item(new, old, word) for word in shared):
        return False
    is_enough = len(shared) >= _SHARE * min(len(new.words), len(old.words))
    return is_enough if new.announces else new.words <= old.words


def _are_apart(new: _Statement, old: _Statement) -> bool:
    """Do they have different owners, or opposite words, as "at least" and "at most"?"""
    only_new, only_old = new.all_words - old.all_words, old.all_words - new.all_words
    return new.owners != old.owners or any(
        (one in only_new and other in only_old) or (one in only_old and other in only_new) for one, other in _OPPOSITES
    )


def _is_other_item(new: _Statement, old: _Statement, word: str) -> bool:
    """Does a word of its own stand before `word` in the new statement, as in "team budget" after "budget"?"""
    left, right = new.before.get(word), old.before.get(word)
    if left is None or left in old.words:
        return False
    return right is None or right not in new.words
