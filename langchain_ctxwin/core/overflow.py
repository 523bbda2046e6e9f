"""Did a provider refuse this request because it is too large, and what did it say about the limit?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from langchain_ctxwin.core import overflow_patterns as patterns
from langchain_ctxwin.core.overflow_evidence import Evidence, evidence_of
from langchain_ctxwin.errors import ContextWindowError

Kind = Literal["input", "input_plus_output"]


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """A request that was refused as too large; sizes are None where the provider does not state them."""

    limit: int | None = None
    """Tokens that the model takes."""

    actual: int | None = None
    """Size in tokens as the provider states it: the input alone, or with the requested output for some providers."""

    kind: Kind = "input"
    """`input_plus_output` when the requested output counts too, so that asking for less of it helps."""

    requested_output: int | None = None
    """Tokens that were requested for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """A decision about one exception; None as overflow means another failure."""

    overflow: ContextOverflow | None


_OTHER_FAILURE = _Verdict(overflow=None)


def classify_overflow(exc_or_text: object) -> ContextOverflow | None:
    """Recognise a context overflow in an exception, an error text (str or bytes) or a decoded error body.

    Looks at class names, HTTP status, `code` and `type`, body and text, then at the causes behind an exception; the
    nearest one that is decisive counts. Returns None for everything else: rate limits and quotas (also where a client
    names the class after an overflow), limits of the `max_tokens` parameter, cache sizes, payloads in bytes, malformed
    requests, and this package's own errors. Never raises.

    Example:
        >>> classify_overflow("prompt is too long: 208656 tokens > 200000 maximum")
        ContextOverflow(limit=200000, actual=208656, kind='input', requested_output=None)
        >>> classify_overflow("429: too many tokens per minute") is None
        True
    """
    if isinstance(exc_or_text, ContextWindowError):
        return None
    verdicts = map(_judge, evidence_of(exc_or_text))
    return next((verdict.overflow for verdict in verdicts if verdict is not None), None)


def _judge(evidence: Evidence) -> _Verdict | None:
    """Decide from one exception, or return None when it says neither; the surest signs come first."""
    if evidence.status in patterns.OTHER_STATUSES or _names(evidence, patterns.OTHER_CLASSES):
        return _OTHER_FAILURE
    if evidence.codes & patterns.OVERFLOW_CODES:
        return _Verdict(overflow=_stated(evidence.text) or _sizes(evidence.text))
    if _first(patterns.OTHER_TEXTS, evidence.text):
        return _OTHER_FAILURE
    overflow = _stated(evidence.text) or _unlisted(evidence)
    return None if overflow is None else _Verdict(overflow=overflow)


def _unlisted(evidence: Evidence) -> ContextOverflow | None:
    """An overflow in a wording that states no sizes, or states them in a way that is not listed."""
    text = evidence.text.lower()
    if _first(patterns.BARE_OVERFLOWS, text) or any(code in text for code in patterns.OVERFLOW_CODES):
        return _sizes(text)
    if _first(patterns.PARAMETER_TEXTS, text):
        return None
    named = _names(evidence, patterns.OVERFLOW_CLASSES) or any(
        name.lower() in text for name in patterns.OVERFLOW_CLASSES
    )
    return _sizes(text) if named else _generic(text)


def _names(evidence: Evidence, parts: Iterable[str]) -> bool:
    return any(part in name for part in parts for name in evidence.class_names)


def _stated(text: str) -> ContextOverflow | None:
    match = _first(patterns.STATED_OVERFLOWS, text)
    if match is None:
        return None
    groups = match.groupdict()
    limit, actual, output = (_tokens(groups.get(name)) for name in ("limit", "actual", "output"))
    return ContextOverflow(limit, actual, "input_plus_output" if output else "input", output)


def _sizes(text: str) -> ContextOverflow:
    """What a text that is surely about an overflow states, if anything."""
    generic = _generic(text)
    if generic is not None and generic.limit is not None:
        return generic
    match = _first(patterns.STATED_LIMITS, text)
    return ContextOverflow(_tokens(match["limit"])) if match else ContextOverflow()


def _generic(text: str) -> ContextOverflow | None:
    """Of two sizes in one clause the smaller is the limit; a single one is not trusted to be either."""
    for match in _matches(patterns.GENERIC_OVERFLOWS, text):
        stated = (_tokens(number) or 0 for number in patterns.ANY_NUMBER.findall(match[0]))
        sizes = {size for size in stated if size >= patterns.MIN_SIZE_TOKENS}
        if sizes and patterns.TOKEN_WORD.search(match[0]):
            return ContextOverflow(min(sizes), max(sizes)) if len(sizes) > 1 else ContextOverflow()
    return None


def _tokens(number: str | None) -> int | None:
    """The number without separators; 0 states nothing."""
    return int(number.replace(",", "").replace("_", "")) or None if number else None


def _first(candidates: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next(iter(_matches(candidates, text)), None)


def _matches(candidates: Iterable[re.Pattern[str]], text: str) -> Iterable[re.Match[str]]:
    return (match for pattern in candidates if (match := pattern.search(text)))
