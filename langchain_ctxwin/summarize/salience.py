"""How much does the rest of a conversation depend on this statement?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from langchain_ctxwin.summarize.transcript import ASSISTANT, CALL, NOTE, TOOL_ERROR, USER
from langchain_ctxwin.summarize.uses import OUTPUTS
from langchain_ctxwin.summarize.values import GRAMMAR, values

# Points are relative: a rule of the user outranks everything else together, then what the user states; details and age
# order the rest. However old, a fact of the user outranks what a tool returned and nobody used, however new.
RULE_POINTS = 12.0
HINT_POINTS = 6.0
GOAL_POINTS = 6.0
TOPIC_POINTS = 6.0
DECISION_POINTS = 4.0
STATED_POINTS = 4.0
ASKED_POINTS = 4.0
ANSWER_POINTS = 2.0
REPORTED_POINTS = 2.0
DETAIL_POINTS = 0.7
RECENCY_POINTS = 2.0
SPEAKER_POINTS = {USER: 2.0, ASSISTANT: 1.0, TOOL_ERROR: 1.0, CALL: 0.5}
DEPENDENT_POINTS = -8.0
LONG_POINTS = -4.0
UNUSED_POINTS = -3.0
EMPTY_POINTS = -5.0

LONG_CHARS = 600
"""A statement longer than this takes the room of several others."""

_SCANNED_CHARS = 1_000  # cues stand near the beginning; bounds the work on one endless line
_MAX_DETAILS = 4  # a table row full of numbers is no more important than one address
_MIN_WORDS = 2  # fewer say nothing by themselves: "ok", "thanks", the number of a list item
_ANSWER_CHARS = 25  # less is said to be polite: "Sounds lovely!", "Noted and recorded."
_WORDS_OF_FACT = 0.5  # of what stands between spaces: a line of data or code has hardly any
_MIN_ASKED = 2  # words in common with the latest question: one alone is chance

_RULE = re.compile(
    r"\b(?:must|never|always|do not|don['\u2019]t|not allowed|should not|shouldn['\u2019]t|instead|rather than|"
    r"avoid|require[sd]?|make sure|ensure|remember|at most|at least|no longer|correction|wrong|forbidden|important|"
    r"from now on|under no|let['\u2019]s not|none of|allerg\w+|stay (?:below|under|above|within)|nie|niemals|immer|nur|"
    r"nicht|muss|nunca|siempre|solo|debe|jamais|toujours|seulement|doit)\b"
    r"|^(?:only|no|use|keep|please)\b|必须|不要|不能|只能|禁止|总是|必ず|しないで|のみ",
    re.IGNORECASE,
)
_HINT = re.compile(r"\b(?:only|prefer\w*|without|except|actually|cap(?:ped)?|limit|deadline|wants?)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"\b(?:decid|chose|choose|agreed|approved|will use|switch(?:ed)? to|because|therefore|root cause|caused by|fixed|"
    r"resolved|conclu|turned out|found that|confirmed|rejected|works now|result is|next step|still open|open question)",
    re.IGNORECASE,
)
# "Use it there.", "Fix them first.": says little without the statement before it
_DEPENDENT = re.compile(
    r"^(?:(?!if|when)\w+ )?(?:(?:it|its|them|he|she|they)\b"
    r"|(?:this|that|these|those)(?= (?:is|was|are|were|will|should|means|in|on|at|to|for|before|after)\b|[.,;!?]|$))",
    re.IGNORECASE,
)
_DETAIL = re.compile(r"\d+|[/\\]\w|\w_\w|[a-z][A-Z]|`|@\w|\w\.[a-z]{2,4}\b")
_LETTERS = re.compile(r"[^\W\d_]{4,}")
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")  # scripts that write words without spaces
_PLAIN_WORD = re.compile(r"(?<!\S)[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[.,;:!?]?(?!\S)")


_OWN_HABIT = re.compile(
    r"\b(?:I|we|he|she|they)(?:['\u2019]\w+)? (?:\w+ )?(?:never|always|must|don['\u2019]t|do not|remember)\b",
    re.IGNORECASE,
)


_SOURCE = r"\b(?:e-?mail|mail|page|docs?|document|site|article|message|letter|post|readme|manual)\b"
_TOLD = re.compile(
    rf"{_SOURCE}[^.:\n]{{0,40}}\b(?:says?|said|reads|states?|wrote|writes)\b"
    rf"|\b(?:here|this is|look at|below)\b[^.:\n]{{0,40}}{_SOURCE}[^.:\n]{{0,40}}:"
    r"|\b(?:received|pasted|forwarded)\b[^.:\n]{0,60}:",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"(?<!\w)(?:\"[^\"]{12,}\"|'.{12,300}?'(?!\w)|[\u201c\u2018\u00ab][^\u201d\u00bb]{12,}[\u201d\u2019\u00bb])|^>.*",
    re.MULTILINE,
)
_LEAD_CHARS = 120  # of a statement's end: one clause
_CONTENT = re.compile(r"[^\W\d_]{2,}|\d+")
_FILLERS = GRAMMAR | {
    "ok",
    "okay",
    "oh",
    "yes",
    "well",
    "haha",
    "thanks",
    "thank",
    "hi",
    "hey",
    "sorry",
    "don",
    "ll",
    "re",
}
_MIN_RULE_WORDS = 3  # with the word that makes it a rule: "never call Ann", but not "never mind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a statement stands in its conversation."""

    recency: float
    """From -1 (oldest line of the previous summary) over 0 to 1 (newest message)."""
    goal: float = 0.0
    """1 for what the user said first, falling towards 0 for what followed in that message."""
    asked: frozenset[str] = frozenset()
    """The words of the user's latest question."""
    is_answer: bool = False
    """The assistant's last word of a turn."""
    use: int = 0
    """Of a line that a tool returned: 1 if somebody used a value of it, -1 if nobody did, 0 if nobody could yet."""


def salience(text: str, speaker: str, context: Context, *, has_topic: bool = False) -> float:
    """Return a score to order statements by; higher is more important.

    Rules count only from the user: "always ..." in a tool's result or a web page is not an order. Nor do the numbers
    in a result, until somebody uses one. `has_topic` says that someone labelled the statement ("DEADLINE: ..."), as
    people do with what is to be kept.
    """
    seen = text[:_SCANNED_CHARS]
    detail_points = DETAIL_POINTS * sum(1 for _ in islice(_DETAIL.finditer(seen), _MAX_DETAILS))
    points = SPEAKER_POINTS.get(speaker, 0.0) + RECENCY_POINTS * context.recency
    points += _used_points(detail_points, context.use) if speaker in OUTPUTS else detail_points
    if speaker == USER:
        points += _stated_points(seen)
    if speaker == NOTE:
        points += STATED_POINTS * is_fact(seen)
    if speaker in (USER, ASSISTANT, NOTE):
        points += (DECISION_POINTS if is_decision(seen) else 0.0) + TOPIC_POINTS * has_topic
    if context.is_answer and len(text) >= _ANSWER_CHARS:
        points += ANSWER_POINTS + REPORTED_POINTS * is_fact(seen)
    points += GOAL_POINTS * context.goal
    points += ASKED_POINTS * _asked_share(seen, context.asked)
    points += DEPENDENT_POINTS if context.goal < 1 and _DEPENDENT.match(text) else 0.0
    points += LONG_POINTS if len(text) > LONG_CHARS else 0.0
    words_seen = sum(1 for _ in islice(_WORD.finditer(seen), _MIN_WORDS))
    return points + (0.0 if words_seen == _MIN_WORDS or _WIDE.search(seen) else EMPTY_POINTS)


def _used_points(detail_points: float, use: int) -> float:
    """What a tool's line is worth for its details: all of them once one was used, and half while nobody could."""
    return UNUSED_POINTS if use < 0 else detail_points * (1 + use) / 2


def _stated_points(seen: str) -> float:
    """What a statement of the user is worth for what it says: a rule, a wish, a fact, or none of them."""
    if is_rule(seen):
        return RULE_POINTS
    if _HINT.search(seen):
        return HINT_POINTS
    return STATED_POINTS if is_fact(seen) else 0.0


_CODE = re.compile(r"^\s*(?:\d+\s?[:|]|#|//|/\*|<|>>>|import |from \w+ import|def |class )|[;{}]\s*$")


def is_code(text: str) -> bool:
    """Is a statement a line of code, markup or a listing, which people paste into what they say?"""
    return _CODE.search(text[:_SCANNED_CHARS]) is not None


def is_rule(text: str) -> bool:
    """Does a statement of the user say how things have to be, rather than ask, quote or tell of a habit?"""
    seen = text[:_SCANNED_CHARS]
    told = _TOLD.search(seen)
    own = _QUOTED.sub(" ", seen[: told.start()] if told else seen)
    return is_order(text) and _RULE.search(own) is not None


def is_order(text: str) -> bool:
    """Does a statement say how things have to be, be it in the words of others?"""
    seen = text[:_SCANNED_CHARS]
    return _orders(seen) and not (
        text.rstrip(" \"'\u201d\u2019)").endswith("?") or _OWN_HABIT.search(seen) or is_code(seen)
    )


def lead_in(text: str) -> str:
    """The end of a statement that announces the words of others ("Here is a mail I got:"), or an empty string."""
    told = _TOLD.search(text[-_LEAD_CHARS:]) if text.endswith(":") else None
    return text[-_LEAD_CHARS:][told.start() :] if told else ""


def _orders(seen: str) -> bool:
    if not _RULE.search(seen):
        return False
    content = (word for word in _CONTENT.findall(seen.casefold()) if word not in _FILLERS)
    return bool(_WIDE.search(seen)) or sum(1 for _ in islice(content, _MIN_RULE_WORDS - 1)) == _MIN_RULE_WORDS - 1


def is_fact(text: str) -> bool:
    """Does a sentence give a name, number, date or identifier, rather than ask for one or paste code and data?"""
    seen = text[:_SCANNED_CHARS]
    if seen.endswith("?") or is_code(seen):
        return False
    in_words = len(_PLAIN_WORD.findall(seen)) >= _WORDS_OF_FACT * len(seen.split()) or _WIDE.search(seen)
    return bool(in_words and (_DETAIL.search(seen) or values(seen)))


def is_decision(text: str) -> bool:
    """Does a statement tell what was decided, found out or settled?"""
    return _DECISION.search(text[:_SCANNED_CHARS]) is not None


def _asked_share(seen: str, asked: frozenset[str]) -> float:
    """Share of the words of the latest question that the statement has, if it says more than the question itself."""
    shared = len(asked.intersection(_LETTERS.findall(seen.casefold()))) if asked else 0
    return shared / len(asked) if shared >= _MIN_ASKED and question_words(seen) - asked else 0.0


def question_words(text: str) -> frozenset[str]:
    """Return the words that say what a question is about, as they are written."""
    return frozenset(_LETTERS.findall(text[:_SCANNED_CHARS].casefold())) - GRAMMAR
