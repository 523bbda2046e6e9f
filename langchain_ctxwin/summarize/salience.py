"""How much does the rest of a conversation depend on this statement?"""

from __future__ import annotations

import re
from itertools import islice

from langchain_ctxwin.summarize.transcript import ASSISTANT, CALL, TOOL_ERROR, USER

# Points are relative: a rule of the user outranks everything else together, details and age order the rest.
RULE_POINTS = 12.0
GOAL_POINTS = 6.0
DECISION_POINTS = 4.0
ANSWER_POINTS = 2.0
DETAIL_POINTS = 0.7
RECENCY_POINTS = 2.0
SPEAKER_POINTS = {USER: 2.0, ASSISTANT: 1.0, TOOL_ERROR: 1.0, CALL: 0.5}
LONG_POINTS = -4.0
EMPTY_POINTS = -5.0

LONG_CHARS = 600
"""A statement longer than this takes the room of several others."""

_SCANNED_CHARS = 1_000  # cues stand near the beginning; bounds the work on one endless line
_MAX_DETAILS = 4  # a table row full of numbers is no more important than one address
_MIN_WORDS = 2  # fewer say nothing by themselves: "ok", "thanks", the number of a list item

_RULE = re.compile(
    r"\b(?:must|never|always|only|do not|don['\u2019]t|not allowed|should not|shouldn['\u2019]t|instead|rather than|"
    r"avoid|prefer|require[sd]?|make sure|ensure|remember|at most|at least|no longer|without|except|actually|"
    r"correction|wrong|forbidden|important|nie|niemals|immer|nur|nicht|muss|nunca|siempre|solo|debe|jamais|toujours|"
    r"seulement|doit)\b|必须|不要|不能|只能|禁止|总是|必ず|しないで|のみ",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decid|chose|choose|agreed|approved|will use|switch(?:ed)? to|because|therefore|root cause|caused by|fixed|"
    r"resolved|conclu|turned out|found that|confirmed|rejected|works now|result is)",
    re.IGNORECASE,
)
_DETAIL = re.compile(r"\d+|[/\\]\w|\w_\w|[a-z][A-Z]|`|@\w|\w\.[a-z]{2,4}\b")
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")  # scripts that write words without spaces


def salience(text: str, speaker: str, *, recency: float, goal: float = 0.0, is_answer: bool = False) -> float:
    """Return a score to order statements by; higher is more important.

    Rules count only from the user: "always ..." in a tool's result or a web page is not an order. `recency` runs from
    -1 (oldest line of the previous summary) over 0 to 1 (newest message). `goal` is 1 for what the user said first and
    falls towards 0 for what followed in that message; `is_answer` marks the assistant's last word of a turn.
    """
    seen = text[:_SCANNED_CHARS]
    by_user = speaker == USER
    details = sum(1 for _ in islice(_DETAIL.finditer(seen), _MAX_DETAILS))
    words = sum(1 for _ in islice(_WORD.finditer(seen), _MIN_WORDS))
    points = SPEAKER_POINTS.get(speaker, 0.0) + DETAIL_POINTS * details + RECENCY_POINTS * recency
    points += RULE_POINTS if by_user and _RULE.search(seen) else 0.0
    points += DECISION_POINTS if speaker in (USER, ASSISTANT) and _DECISION.search(seen) else 0.0
    points += GOAL_POINTS * goal + ANSWER_POINTS * is_answer
    points += LONG_POINTS if len(text) > LONG_CHARS else 0.0
    return points + (0.0 if words == _MIN_WORDS or _WIDE.search(seen) else EMPTY_POINTS)
