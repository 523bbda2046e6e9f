"""Did a provider refuse this request because it is too large, and what did it say about the limit?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from langchain_ctxwin.core import overflow_patterns as patterns
from langchain_ctxwin.core.echo import Quotes
from langchain_ctxwin.core.overflow_evidence import Evidence, evidence_of
from langchain_ctxwin.errors import ContextWindowError

Kind = Literal["input", "input_plus_output"]
SaidBy = Literal["", "provider", "request"]


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

    said_by: SaidBy = field(default="", repr=False, compare=False)
    """Whose words say so: the provider's own, or only a quote of the request; empty when nobody compared them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """A decision about one exception; None as overflow means another failure."""

    overflow: ContextOverflow | None


_OTHER_FAILURE = _Verdict(overflow=None)

CHARS_BEFORE, CHARS_AFTER = 120, 280
"""Text looked at on either side of a word about tokens: about two sentences of a usual error message."""

MAX_SIZES = 12
"""Numbers read in one passage; a statement about a limit has at most eight."""

_SEPARATORS = re.compile(r"[,_. ]")
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,._]*")


def classify_overflow(exc_or_text: object, *, request: Iterable[str] = ()) -> ContextOverflow | None:
    """Recognise a context overflow in an exception, an error text (str or bytes) or a decoded error body.

    Looks at class names, HTTP status, `code` and `type`, body and text, then at the causes behind an exception; the
    nearest one that is decisive counts. Returns None for everything else: rate limits and quotas (also where a client
    names the class after an overflow), limits of the `max_tokens` parameter, cache sizes, payloads in bytes, malformed
    requests, and this package's own errors. Never raises.

    Args:
        exc_or_text: what the provider said.
        request: the texts of the refused request. What the error quotes of them states nothing: an overflow that is
            recognised in quoted words alone has no sizes.

    Example:
        >>> classify_overflow("prompt is too long: 208656 tokens > 200000 maximum")
        ContextOverflow(limit=200000, actual=208656, kind='input', requested_output=None)
        >>> classify_overflow("429: too many tokens per minute") is None
        True
    """
    if isinstance(exc_or_text, ContextWindowError):
        return None
    overflow = _classified(evidence_of(exc_or_text))
    if overflow is None or not (texts := list(request)):
        return overflow
    own = _classified(evidence_of(exc_or_text, Quotes(texts)))
    return ContextOverflow(said_by="request") if own is None else replace(own, said_by="provider")


def _classified(said: Iterable[Evidence]) -> ContextOverflow | None:
    return next((verdict.overflow for verdict in map(_judge, said) if verdict is not None), None)


def _judge(evidence: Evidence) -> _Verdict | None:
    """Decide from one exception, or return None when it says neither; the surest signs come first."""
    if evidence.status in patterns.OTHER_STATUSES or _any(patterns.OTHER_CLASS, evidence.class_names):
        return _OTHER_FAILURE
    if _any(patterns.OVERFLOW_CODE, evidence.codes):
        return _Verdict(overflow=_stated(evidence.text) or _sizes(evidence.text))
    if _first(patterns.OTHER_TEXTS, evidence.text):
        return _OTHER_FAILURE
    overflow = _stated(evidence.text) or _unlisted(evidence)
    return None if overflow is None else _Verdict(overflow=overflow)


def _unlisted(evidence: Evidence) -> ContextOverflow | None:
    """An overflow in a wording that states no sizes, or states them in a way that is not listed."""
    text = evidence.text
    if _first(patterns.BARE_OVERFLOWS, text) or patterns.OVERFLOW_CODE.search(text):
        return _sizes(text)
    if _first(patterns.PARAMETER_TEXTS, text):
        return None
    named = _any(patterns.OVERFLOW_CLASS, (*evidence.class_names, text))
    return _sizes(text) if named or _first(patterns.LOOSE_OVERFLOWS, text) else _general(text)


def _any(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    return any(pattern.search(text) for text in texts)


def _first(candidates: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((match for pattern in candidates if (match := pattern.search(text))), None)


def _stated(text: str) -> ContextOverflow | None:
    match = _first(patterns.STATED_OVERFLOWS, text)
    if match is None:
        return None
    groups = match.groupdict()
    limit, actual, output = (_tokens(groups.get(name)) for name in ("limit", "actual", "output"))
    overflow = _overflow(limit, actual, output)
    read = _sizes(text) if limit and actual is None else overflow  # the pattern may have begun in mid-sentence
    return read if read.limit == limit else overflow


def _tokens(number: str | None) -> int | None:
    """The number without separators; 0 states nothing."""
    return int(_SEPARATORS.sub("", number)) or None if number else None


def _overflow(limit: int | None, actual: int | None, output: int | None) -> ContextOverflow:
    """Leave out a size that would fit: it was read from something else."""
    fits = limit is not None and actual is not None and actual + (output or 0) < limit
    return ContextOverflow(limit, None if fits else actual, "input_plus_output" if output else "input", output)


def _sizes(text: str) -> ContextOverflow:
    """What a text that is surely about an overflow states, if anything."""
    found = [reading.overflow for reading in map(_read, _passages(text)) if reading.overflow.limit]
    overflow = max(found, key=lambda overflow: overflow.actual is not None, default=ContextOverflow())
    joint = overflow.kind == "input_plus_output" or patterns.JOINT.search(text) is not None
    return replace(overflow, kind="input_plus_output") if joint else overflow


def _general(text: str) -> ContextOverflow | None:
    """Two sizes that do not fit, or one in a clause that says that something is too large."""
    for passage in _passages(text):
        reading = _read(passage)
        overflow = reading.overflow
        excess = (overflow.limit or overflow.actual) and patterns.EXCESS.search(passage)
        parameter_alone = overflow.requested_output is not None and overflow.actual is None
        if patterns.SUBJECT.search(passage) and (reading.told_apart or excess) and not parameter_alone:
            return _sizes(text) if overflow.limit else overflow
    return None


def _passages(text: str) -> Iterator[str]:
    """Pieces of text around words that are about tokens; they overlap, so that a statement is whole in one."""
    end = 0
    while anchor := patterns.ANCHOR.search(text, end):
        yield text[max(0, anchor.start() - CHARS_BEFORE) : anchor.start() + CHARS_AFTER]
        end = max(anchor.end(), anchor.start() + CHARS_AFTER // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Sizes in a passage; `told_apart` when words, not only their order, say which one is the limit."""

    overflow: ContextOverflow
    told_apart: bool = False


def _read(passage: str) -> _Reading:
    """Tell limit, size and requested output apart by the words beside each number."""
    sizes: dict[str, list[int]] = {"limit": [], "actual": [], "output": [], "unknown": []}
    for match in islice(patterns.SIZE.finditer(passage), MAX_SIZES):
        role, tokens = _role(passage, match), _tokens(match["number"]) or 0
        if match["unit"]:
            role, tokens = "limit" if role == "limit" else "", tokens * patterns.UNITS[match["unit"].lower()]
        if role in sizes and (tokens >= patterns.MIN_SIZE_TOKENS or role == "output"):
            sizes[role].append(tokens)
    output = max(sizes["output"], default=0) or None
    limits, others = sizes["limit"], sizes["actual"] or sizes["unknown"]
    if not limits:
        both = {*sizes["actual"], *sizes["unknown"]}
        limits, others = ([min(both)], [max(both)]) if len(both) > 1 else ([], sizes["actual"])
    limit = min(limits, default=None)
    larger = [size for size in (*others, *limits) if limit is None or size > limit]
    actual = max(larger, default=None) or (max(others, default=None) if output else None)
    overflow = _overflow(limit, actual, output if limit else None)
    worded = actual in sizes["actual"] or patterns.CONTRAST.search(passage) is not None
    told_apart = bool(sizes["limit"]) and overflow.actual is not None and worded
    return _Reading(overflow=overflow, told_apart=told_apart)


def _role(passage: str, number: re.Match[str]) -> str:
    """The role of a number in its passage, or an empty string when it is no size."""
    start, end = number.span()
    words_before = passage[max(0, start - patterns.MAX_WORDS_CHARS) : start]
    before = _NUMBER.split(words_before)[-1]
    after = passage[end : end + patterns.MAX_WORDS_CHARS]
    if patterns.NO_SIZE_BEFORE.search(before) and not after.startswith(" >"):
        return ""
    joint = patterns.JOINT.search(before) is not None
    if not joint and (patterns.OUTPUT_BEFORE.search(before) or patterns.OUTPUT_AFTER.match(after)):
        return "output"
    if patterns.ACTUAL_AFTER.match(after):
        return "actual"
    if patterns.LIMIT_AFTER.match(after) or patterns.RANGE_BEFORE.search(words_before):
        return "limit"
    words = [match.lastgroup for match in patterns.ROLE_BEFORE.finditer(before)]
    strong = [word for word in words if word != "weak"]
    if words:
        return (strong or ["actual"])[-1] or ""
    bare = patterns.TOKENS_AFTER.match(after) or patterns.COMPARED.search(before)
    return "unknown" if bare else ""
