"""Request to be routed: its conversation, what it needs of a model, and its size under each tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables.config import ensure_config

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.edits import MEDIA_TYPES, compact_json
from langchain_ctxwin.core.recovery import CALL_ARGUMENTS
from langchain_ctxwin.core.tokens import TokenEstimator, tool_definition
from langchain_ctxwin.protocols import RequestCounter, TokenCounter, takes_tools
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, PerMessage, once

THREAD = "thread:"
"""Begins the key of a conversation that is a thread."""

KEY_BYTES = 12
"""Length of a digest: by chance, two of ten thousand conversations share one in 10**21 cases."""

MEDIA_CAPABILITIES = {"image": "images", "audio": "audio", "video": "video"}
"""What a model has to be able to take for each kind of media; files are sent as text by some integrations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The input tokens of a request under one tokenizer."""

    tokens: int
    upper: int
    """What the request has at most, so that a limit of as much is safe."""

    lower: int
    """What the request has at least: with a smaller limit it is surely refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to be routed."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Any] = ()
    conversation: str = ""
    """Key of the conversation that stays with its model; empty when the request stands alone."""

    requires: tuple[str, ...] = ()
    """Capabilities beside those that tools and media show."""

    exclude: Mapping[str, str] = field(default_factory=dict)
    """Candidates that may not be chosen, and why."""

    estimated_tokens: int | None = None
    """Size as it was measured elsewhere, an upper bound."""

    sizes: Mapping[str, Size] = field(default_factory=dict)
    """RequestSizes by tokenizer family as they were measured elsewhere; a family that is missing is counted."""

    output_tokens: int | None = None
    """What the call asks for; None leaves it to the model's own setting."""

    reserve: int | None = None
    """Tokens that the caller keeps for the answer, whatever else says so."""

    above_tokens: int = 0
    """An input limit that refused this very request."""

    prefer: str = ""
    """Candidate that the caller asks for: it is taken if it can do what the request needs, whatever its size."""

    prefer_reason: str = ""
    """Why the caller asks for it, when another decision stands behind it."""

    kept: str = ""
    """Candidate that the conversation had so far, when the caller keeps count of that."""

    cached_tokens: int | None = None
    """What of the request the kept candidate has seen, when the caller knows; None takes the router's own memory."""

    config: RoutingConfig | None = None
    """Settings of this request alone; None takes the router's."""

    renew: bool = False
    """True when the prefix changed, so that there is no prompt cache to stay for."""

    @property
    def text(self) -> str:
        """What the user asks: the text of the last user message."""
        return next((message.text for message in reversed(self.messages) if isinstance(message, HumanMessage)), "")


def needed_capabilities(request: Request, required: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what a model has to be able to do: take tools and media that the request has, and what is required."""
    media = (MEDIA_CAPABILITIES[kind] for kind in _media(request.messages))
    return tuple(dict.fromkeys([*(["tools"] if request.tools else []), *media, *required, *request.requires]))


def output_tokens_of(arguments: Mapping[str, Any]) -> int | None:
    """Return the output that the arguments of a call ask for; None when they do not say."""
    asked = (arguments.get(name) for name in CALL_ARGUMENTS)
    return next((tokens for tokens in asked if isinstance(tokens, int) and tokens > 0), None)


def conversation_key(messages: Sequence[AnyMessage], config: Mapping[str, Any] | None = None) -> str:
    """Return the thread id of a run, else a fingerprint of the conversation's first message.

    Args:
        messages: the request; system messages do not tell conversations apart, so the first other one counts.
        config: the run's config; None takes that of the surrounding run, if there is one.
    """
    thread = thread_key(config)
    if thread:
        return thread
    first = next((m for m in messages if not isinstance(m, SystemMessage)), messages[0] if messages else None)
    if first is None:
        return ""
    text = f"{first.type}\0{compact_json(first.content)}".encode("utf-8", "surrogatepass")
    return f"first:{hashlib.blake2b(text, digest_size=KEY_BYTES).hexdigest()}"


def thread_key(config: Mapping[str, Any] | None = None) -> str:
    """Return the key of a run's thread, else an empty string; `config` as for `conversation_key`."""
    configurable = ensure_config(config).get("configurable") or {}  # type: ignore[arg-type]  # a config is a mapping
    thread = configurable.get("thread_id")
    return "" if thread is None or thread == "" else f"{THREAD}{thread}"


def _media(messages: Sequence[AnyMessage]) -> Iterator[str]:
    """The kinds of media in the request, by type or by the media type that a file states (`image/png`)."""
    blocks = (b for message in messages if isinstance(message.content, list) for b in message.content)
    for block in blocks:
        if isinstance(block, dict):
            kind = MEDIA_TYPES.get(str(block.get("type")), "")
            kind = str(block.get("mime_type") or "").partition("/")[0] if kind == "file" else kind
            if kind in MEDIA_CAPABILITIES:
                yield kind


class RequestSizes:
    """Counts requests with one counter, or with the estimator of each tokenizer family."""

    def __init__(self, counter: TokenCounter | RequestCounter | None, *, headroom: Callable[[], float]) -> None:
        given = counter.estimator if isinstance(counter, RequestCounter) else counter
        self._given = None if given is None else _Counted(given, headroom)
        self._by_family: dict[str, _Counted] = {}

    def of(self, request: Request, families: Iterable[str]) -> Mapping[str, Size]:
        """Return the size of the request for each family: as measured elsewhere, else counted once per tokenizer."""
        missing = set(families) - request.sizes.keys()
        measured = request.estimated_tokens
        if not missing:
            return request.sizes
        if measured is not None:
            counted = dict.fromkeys(missing, Size(tokens=measured, upper=measured, lower=measured))
        elif self._given is not None:
            counted = dict.fromkeys(missing, self._given.whole(request.messages, request.tools))
        else:
            counted = {family: self._family(family).summed(request.messages, request.tools) for family in missing}
        return {**counted, **request.sizes}

    def _family(self, family: str) -> _Counted:
        known = self._by_family.get(family)
        return known or self._by_family.setdefault(family, _Counted(TokenEstimator(family), lambda: 1.0))


class _Counted:
    """One counter with its bounds; each message is priced once while it is unchanged."""

    def __init__(self, counter: TokenCounter, headroom: Callable[[], float]) -> None:
        self._counter = counter
        exact = bool(getattr(counter, "exact", False))
        self._upper: Callable[[int], int] = getattr(counter, "upper", None) or (
            int if exact else lambda tokens: ceil(tokens * headroom())
        )
        self._lower: Callable[[int], int] = getattr(counter, "lower", None) or (
            int if exact else lambda tokens: int(tokens / headroom())
        )
        self._base: int | None = None
        self._price = PerMessage(lambda message: self._net([message]))
        self._tools: Lru[tuple[tuple[Any, ...], int]] = Lru(MAX_TEXTS)

    def whole(self, messages: Sequence[AnyMessage], tools: Sequence[Any]) -> Size:
        """Ask the counter about the whole request: one that we do not know need not be additive."""
        if takes_tools(self._counter):
            return self._size(int(self._counter(list(messages), tools=list(tools) or None)))
        shown = [SystemMessage(compact_json(tool_definition(tool))) for tool in tools]
        return self._size(int(self._counter([*shown, *messages])))

    def summed(self, messages: Sequence[AnyMessage], tools: Sequence[Any]) -> Size:
        """Add up the prices of the messages and of the tool definitions."""
        return self._size(self._of_nothing() + sum(map(self._price, messages)) + self._tool_tokens(tools))

    def _tool_tokens(self, tools: Sequence[Any]) -> int:
        if not tools:
            return 0
        # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
        kept = tuple(tools)
        return once(self._tools, tuple(map(id, kept)), lambda: (kept, self._net([], list(kept))))[1]

    def _net(self, messages: list[AnyMessage], tools: list[Any] | None = None) -> int:
        return max(0, self._counter(messages, tools=tools) - self._of_nothing())

    def _of_nothing(self) -> int:
        if self._base is None:
            self._base = int(self._counter([]))
        return self._base

    def _size(self, tokens: int) -> Size:
        return Size(tokens=tokens, upper=max(tokens, self._upper(tokens)), lower=min(tokens, self._lower(tokens)))
