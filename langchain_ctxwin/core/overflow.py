"""Context overflows: provider errors that say a request is too large, and the limit and size they state."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeVar
from unicodedata import normalize

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core import overflow_patterns as patterns
from langchain_ctxwin.core.tokens import tool_definition
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
    """Whose words state the sizes: the provider's own, or only a quote of the request; empty when nobody compared."""


def classify_overflow(exc_or_text: object, *, request: Iterable[str] = ()) -> ContextOverflow | None:
    """Recognise a context overflow in an exception, an error text (str or bytes) or a decoded error body.

    Looks at class names, HTTP status, `code` and `type`, body and text, then at the causes behind an exception; the
    nearest one that is decisive counts. Returns None for everything else: rate limits and quotas (also where a client
    names the class after an overflow), limits of the `max_tokens` parameter, cache sizes, payloads in bytes, malformed
    requests, and this package's own errors. Never raises.

    Args:
        exc_or_text: what the provider said.
        request: the texts of the refused request. Numbers that the error quotes of them state nothing: an overflow
            whose limit is only quoted has no sizes.

    Examples:
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
    quotes = Quotes(texts)
    own = _classified(evidence_of(exc_or_text, quotes.masked))
    if own is None or (own.limit is None and (overflow.limit or quotes.are_in(evidence_of(exc_or_text)))):
        return ContextOverflow(said_by="request")
    return replace(own, said_by="provider")


def request_texts(messages: Iterable[BaseMessage], tools: Iterable[Any] = ()) -> Iterator[str]:
    """Yield every text that a request carries, in order: contents, calls, names, and the definitions of its tools."""
    for message in messages:
        yield from _texts_within(message.content)
        if isinstance(message, AIMessage):
            yield from _texts_within([message.tool_calls, message.invalid_tool_calls])
        yield from _texts_within(message.additional_kwargs)
        names = (message.name, message.tool_call_id if isinstance(message, ToolMessage) else None)
        yield from (name for name in names if name)
    for tool in tools:
        yield from _texts_within(tool_definition(tool))


def _texts_within(value: object) -> Iterator[str]:
    """The keys and values of nested JSON, as they follow each other where it is printed."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [part for key, content in reversed([*item.items()]) for part in (content, key)]
        elif isinstance(item, list | tuple):
            waiting += reversed(item)
        elif isinstance(item, int | float):
            yield str(item)


def has_number(texts: Iterable[str], tokens: int) -> bool:
    """True when a text states this number, or begins with its digits, in any usual spelling."""
    digits = r"[,._' ]?".join(str(tokens))
    thousands = rf"|(?<![\d.,]){tokens // 1000} ?k\b" if tokens % 1000 == 0 else ""
    pattern = re.compile(rf"(?<!\d)(?<!\d[,._']){digits}{thousands}", re.IGNORECASE)
    return any(pattern.search(normalize("NFKC", text)) for text in texts)


# ---- quotes: what the request says, too ----------------------------------------------------------------------------

# Letters before a number, or half as many behind it, that make it a quote where the request has them at the same
# number: they stand in two texts by chance only where both speak of the same limit.
QUOTED_LETTERS = 8
# The same without a number: four to five words. Shorter runs (`context length`, `of the messages`) are everybody's.
QUOTED_WORDS_LETTERS = 24
QUOTE_CHARS = 64  # how far beside a number its letters are looked for, signs and escapes between them

_WHOLE_NUMBER = re.compile(r"\d+(?:[,._' \u00a0\u202f]\d{3}(?!\d))*")
_ESCAPES = re.compile(
    r"(?<!\\)\\++(?:u[0-9a-f]{4}(?:[0-9a-f]{4})?|x[0-9a-f]{2}|[nrtbfv])|&(?:amp;)*+#?\w{1,8};", re.IGNORECASE
)
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class Quotes:
    """The texts of a refused request, to be found again in what the provider says about it."""

    def __init__(self, texts: Iterable[str]) -> None:
        parts = [_letters(text) for text in texts]
        self._all = "".join(parts)
        self._short = tuple(part for part in parts if 0 < len(part) <= QUOTED_LETTERS and not part.isdigit())

    def masked(self, text: str) -> str:
        """Return an error text without the numbers that the request has beside the same words."""
        return _WHOLE_NUMBER.sub(self._masked, normalize("NFKC", text))

    def _masked(self, number: re.Match[str]) -> str:
        (start, end), digits = number.span(), len(_letters(number[0]))
        before = _letters(number.string[max(0, start - QUOTE_CHARS) : end])[-digits - QUOTED_LETTERS :]
        after = _letters(number.string[start : end + QUOTE_CHARS])[: digits + QUOTED_LETTERS // 2]
        is_quoted = before in self._all or (len(after) > digits + 1 and after in self._all)
        return " ; " if is_quoted or before.endswith(self._short) else number[0]

    def are_in(self, said: Iterable[Evidence]) -> bool:
        """True when an error repeats several words of the request in a row."""
        letters, size = _letters(" ".join(evidence.text for evidence in said)), QUOTED_WORDS_LETTERS
        runs = {letters[i : i + size] for i in range(len(letters) - size + 1)}
        return any(self._all[i : i + size] in runs for i in range(len(self._all) - size + 1))


def _letters(text: str) -> str:
    """The letters and digits of a text, however it is printed."""
    plain = text if text.isascii() else normalize("NFKC", text)
    return _NO_LETTERS.sub("", _ESCAPES.sub("", plain).lower())


# ---- evidence: what an exception says, wherever its client keeps it -------------------------------------------------

T = TypeVar("T", str, bytes)
# Exceptions looked at in a chain of causes and groups, and of each so many different texts and notes: real ones have
# two to five, the server's words in two or three places, and one or two notes.
MAX_EXCEPTIONS, MAX_SOURCES, MAX_NOTES = 32, 4, 8
# Text looked at per source, and values per body: some servers echo the whole request into the error. A value that is
# longer than the last of these is such an echo and is read after the others.
MAX_TEXT_CHARS, MAX_BODY_NODES, LONG_VALUE_CHARS = 4_096, 200, 2_048
# Where clients keep the HTTP status, the most reliable name first.
STATUS_ATTRIBUTES = ("status_code", "http_status", "status", "code")
# Where clients keep the decoded body (OpenAI and Anthropic, Google, botocore, Ollama).
BODY_ATTRIBUTES = ("body", "details", "response", "error")
CODE_KEYS = ("code", "type")  # attributes and body keys that hold a provider's own error code

_NOISE = re.compile(r"https?://\S{1,200}|[\\\"'`\u2018\u2019]+")
_SPACE = re.compile(r"\\{1,8}[nrt](?![a-z]{2})|\s+")
_STATUS = re.compile(r"[45][0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one exception (or one text) says."""

    class_names: tuple[str, ...] = ()
    status: int | None = None  # the HTTP error status
    codes: frozenset[str] = frozenset()  # provider error codes and types, in lower case
    text: str = ""  # message and body without quotes and backslashes, whitespace collapsed, bounded in length


def evidence_of(source: object, own: Callable[[str], str] = str) -> Iterator[Evidence]:
    """Yield what `source` says; for an exception also what its causes and the members of a group say, nearest first.

    Never raises, whatever the exceptions' own attributes and `__str__` do, and ends on cyclic chains. The source may
    be an exception, a text or a decoded body, and `own` says what of a text counts.
    """
    if not isinstance(source, BaseException):
        yield Evidence(codes=_codes(source), text=_joined([source], own))
        return
    for error in _chain(source):
        response, notes = _attribute(error, "response"), _attribute(error, "__notes__")
        bodies = [_attribute(error, name) for name in BODY_ATTRIBUTES]
        if _attribute(response, "is_closed") is True:  # one that was read; others might read from the socket here
            bodies.append(_attribute(response, "text"))
        bodies = [body for body in bodies if isinstance(body, str | bytes | bytearray | Mapping | list | tuple)]
        notes = [note for note in notes[:MAX_NOTES] if isinstance(note, str)] if isinstance(notes, list) else []
        stated = (_attribute(place, name) for place in (error, response) for name in STATUS_ATTRIBUTES)
        statuses = (str(value) for value in stated if isinstance(value, str | int))  # LiteLLM keeps it as text at times
        yield Evidence(
            class_names=tuple(cls.__name__ for cls in type(error).__mro__),
            status=next((int(text) for text in statuses if _STATUS.fullmatch(text)), None),
            codes=_codes([{key: _attribute(error, key) for key in CODE_KEYS}, *bodies]),
            text=_joined([error, *notes, *bodies], own),
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    queue, seen = deque([error]), set[int]()
    while queue and len(seen) < MAX_EXCEPTIONS:
        current = queue.popleft()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        context = None if _attribute(current, "__suppress_context__") else _attribute(current, "__context__")
        behind = (*members[:MAX_EXCEPTIONS], _attribute(current, "__cause__"), context)
        queue.extend(cause for cause in behind if isinstance(cause, BaseException))


def _attribute(source: object, name: str) -> Any:
    with suppress(Exception):  # a foreign property may raise anything; then it says nothing
        return getattr(source, name, None)
    return None


def _codes(body: object) -> frozenset[str]:
    named = (value for key, value in _leaves(body) if key.lower() in CODE_KEYS)
    return frozenset(value.lower() for value in named if isinstance(value, str))


def _joined(sources: Iterable[object], own: Callable[[str], str]) -> str:
    texts = dict.fromkeys(_NOISE.sub("", _SPACE.sub(" ", own(_text(source)))) for source in sources)
    return " ; ".join(text for text in islice(texts, MAX_SOURCES) if text)


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray):
        return _bounded(bytes(source)).decode("utf-8", "replace")
    if isinstance(source, Mapping | list | tuple):
        leaves = [f"{key}: {_bounded(str(value))}" for key, value in _leaves(source)]
        return _bounded(", ".join(sorted(leaves, key=lambda leaf: len(leaf) > LONG_VALUE_CHARS)))
    with suppress(Exception):  # a foreign `__str__` may raise anything
        return _bounded(str(source))
    return ""


def _bounded(text: T) -> T:
    """Head and tail of a long text: the message stands before or after what is echoed."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else text[:half] + text[-half:]


def _leaves(body: object) -> list[tuple[str, Any]]:
    """Scalar values of a nested body with their keys, breadth first, bounded (a body may even contain itself)."""
    queue: deque[tuple[str, Any]] = deque([("", body)])
    leaves: list[tuple[str, Any]] = []
    for _ in range(MAX_BODY_NODES):
        if not queue:
            break
        key, value = queue.popleft()
        if isinstance(value, Mapping):
            with suppress(Exception):  # a foreign mapping, too
                queue.extend([(str(name), part) for name, part in islice(value.items(), MAX_BODY_NODES)])
        elif isinstance(value, list | tuple):
            queue.extend((key, item) for item in value[:MAX_BODY_NODES])
        elif isinstance(value, str | int | float):
            leaves.append((key, value))
    return leaves


# ---- judgement: which evidence is an overflow, and which numbers in it are sizes -----------------------------------

# Text looked at on either side of a word about tokens: about two sentences of a usual error message.
CHARS_BEFORE, CHARS_AFTER = 120, 280
MAX_SIZES = 12  # numbers read in one passage; a statement about a limit has at most eight

_SEPARATORS = re.compile(r"[,_. ]")
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,._]*")


def _classified(said: Iterable[Evidence]) -> ContextOverflow | None:
    return next((verdict or None for verdict in map(_judge, said) if verdict is not None), None)


def _judge(evidence: Evidence) -> ContextOverflow | Literal[False] | None:
    """Decide from one exception: an overflow, False for another failure, None for neither; the surest signs first."""
    text, names = evidence.text, evidence.class_names
    if evidence.status in patterns.OTHER_STATUSES or any(map(patterns.OTHER_CLASS.search, names)):
        return False
    has_code = any(map(patterns.OVERFLOW_CODE.search, evidence.codes))
    if not has_code and _first(patterns.OTHER_TEXTS, text):
        return False
    if match := _first(patterns.STATED_OVERFLOWS, text):
        return _overflow(*(_tokens(match[name]) for name in ("limit", "actual", "output")))
    if has_code or _first(patterns.BARE_OVERFLOWS, text) or patterns.OVERFLOW_CODE.search(text):
        return _sizes(text)
    if _first(patterns.PARAMETER_TEXTS, text):
        return None
    is_sure = any(map(patterns.OVERFLOW_CLASS.search, (*names, text))) or _first(patterns.LOOSE_OVERFLOWS, text)
    return _sizes(text) if is_sure else _general(text)


def _first(candidates: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((match for pattern in candidates if (match := pattern.search(text))), None)


def _tokens(number: str | None) -> int | None:
    """The number without separators; 0 states nothing."""
    return int(_SEPARATORS.sub("", number)) or None if number else None


def _overflow(limit: int | None, actual: int | None, output: int | None) -> ContextOverflow:
    """Leave out a size that would fit: it was read from something else."""
    fits = limit is not None and actual is not None and actual + (output or 0) < limit
    return ContextOverflow(limit, None if fits else actual, "input_plus_output" if output else "input", output)


def _sizes(text: str) -> ContextOverflow:
    """What a text that is surely about an overflow states, if anything."""
    found = [overflow for overflow, _ in map(_read, _passages(text)) if overflow.limit]
    overflow = max(found, key=lambda overflow: overflow.actual is not None, default=ContextOverflow())
    joint = overflow.kind == "input_plus_output" or patterns.JOINT.search(text) is not None
    return replace(overflow, kind="input_plus_output") if joint else overflow


def _general(text: str) -> ContextOverflow | None:
    """Two sizes that do not fit, or one in a clause that says that something is too large."""
    for passage in _passages(text):
        overflow, told_apart = _read(passage)
        excess = (overflow.limit or overflow.actual) and patterns.EXCESS.search(passage)
        parameter_alone = overflow.requested_output is not None and overflow.actual is None
        if patterns.SUBJECT.search(passage) and (told_apart or excess) and not parameter_alone:
            return _sizes(text) if overflow.limit else overflow
    return None


def _passages(text: str) -> Iterator[str]:
    """Pieces of text around words that are about tokens; they overlap, so that a statement is whole in one."""
    end = 0
    while anchor := patterns.ANCHOR.search(text, end):
        yield text[max(0, anchor.start() - CHARS_BEFORE) : anchor.start() + CHARS_AFTER]
        end = max(anchor.end(), anchor.start() + CHARS_AFTER // 2)


def _read(passage: str) -> tuple[ContextOverflow, bool]:
    """Tell limit, size and requested output apart by the words beside each number, not only by their order, if True."""
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
    return overflow, bool(sizes["limit"]) and overflow.actual is not None and worded


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
