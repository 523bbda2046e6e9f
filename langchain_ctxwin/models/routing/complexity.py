"""How demanding does a request look? Named parts, counted in the text, and one score made of them.

The parts are counts of plain markers (English words and signs of code and mathematics), so that anyone can see why a
request scored as it did. How much each part says about failing was calibrated from data: `weights.PART_WEIGHTS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from langchain_ctxwin.models.routing.weights import PART_WEIGHTS

READ_CHARS = 2048
"""Of a longer text this much of its beginning and of its end is searched: what is asked stands there, what lies between
is material. The time of a score is bounded by it."""

HALF = {"length": 2000.0, "constraints": 4.0, "code": 6.0, "math": 12.0, "steps": 4.0, "tools": 2.0, "languages": 20.0}
"""Where a part reaches a half: characters for the length, markers for the others."""

_MARKERS = {
    "constraints": re.compile(
        r"\b(?:must|only|exactly|at (?:most|least)|no (?:more|less|fewer) than|without|except|unless|not|never"
        r"|neither|nor|always|every|each|all|between|if|should|require[sd]?|ensure|both|either|whichever"
        r"|respectively)\b"
    ),
    "code": re.compile(
        r"```|^[ \t]*(?:def|class|import|from|return|public|private|static|void|func|fn|const|let|var|#include)\b"
        r"|[{};][ \t]*$"
        r"|[=!<>]=|=>|->|::|\w\(\w*\)|\b(?:function|algorithm|python|javascript|java|sql|regex|json|compile|traceback"
        r"|bug|stack trace|unit tests?|api)\b",
        re.MULTILINE,
    ),
    "math": re.compile(
        r"\d+(?:[.,]\d+)*|[=+*/^<>≤≥≠∑∫√∞∈∀∃]|\\[a-z]+|\b(?:prove|proof|theorem|equations?|integral|derivative"
        r"|matrix|vector|probability|percent|ratio|average|sum|product|total|how (?:many|much)|half|twice|double|times"
        r"|per"
        r"|solve|calculate|compute)\b"
    ),
    "steps": re.compile(
        r"^[ \t]*(?:\d+[.)]|[-*•]|step \d+)\s|\b(?:first|second|third|then|next|after(?:wards)?|before|finally|later"
        r"|once|step by step|followed by|statement [12i]+)\b|\?",
        re.MULTILINE,
    ),
    "tools": re.compile(
        r"https?://|\b(?:search|look up|browse|fetch|download|upload|send|book|schedule|run|execute|open the|delete"
        r"|update|latest|today|tomorrow|current (?:weather|price|time)|file|database|tool)\b"
    ),
    "languages": re.compile(
        r"[^\W\d_a-zA-Z]{2,}|\b(?:translat\w+|in (?:french|german|spanish|chinese|arabic|japanese))\b"
    ),
}  # fmt: skip

PARTS = ("length", *_MARKERS)
"""Names of the parts, in a fixed order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complexity:
    """How demanding a request looks."""

    score: float
    """From 0 to 1; a part more never lowers it."""

    parts: Mapping[str, float]
    """Each part from 0 (none of it) towards 1."""


def complexity(text: str, *, needs_tools: bool = False) -> Complexity:
    """Return the score of a request and what it is made of; pure, never fails.

    Any text is scored as if it were English: markers of other languages are counted only under `languages`.

    Example:
        >>> easy, hard = complexity("Hi there"), complexity("First prove x^2 >= 0, then solve x^2 = 4 without a root.")
        >>> easy.score < hard.score
        True
    """
    counts = marker_counts(text)
    parts = {name: counts[name] / (counts[name] + HALF[name]) for name in PARTS}
    if needs_tools:
        parts["tools"] = 1.0
    spared = math.prod(1.0 - PART_WEIGHTS[name] * part for name, part in parts.items())
    return Complexity(score=1.0 - spared, parts=parts)


def marker_counts(text: str) -> dict[str, int]:
    """Return how many characters the text has and how many markers of every other part."""
    read = read_part(text).lower()
    return {"length": len(text), **{name: _count(marker, read) for name, marker in _MARKERS.items()}}


def read_part(text: str) -> str:
    """Return what is searched of a text: all, or the beginning and the end of a long one."""
    return text if len(text) <= 2 * READ_CHARS else f"{text[:READ_CHARS]}\n{text[-READ_CHARS:]}"


def _count(marker: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in marker.finditer(text))
