"""Request to be routed: its conversation, what it needs of a model, and its size under each tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables.config import ensure_config

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.edits import MEDIA_TYPES, compact_json
from langchain_ctxwin.core.tokens import TokenEstimator, tool_definition
from langchain_ctxwin.protocols import RequestCounter, TokenCounter, takes_tools
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, PerMessage, once

THREAD = "thread:"  # begins the key of a conversation that is a thread
KEY_BYTES = 12  # by chance, two of ten thousand conversations share a digest in 1 of 10**21 cases

MEDIA_CAPABILITIES = {"image": "images", "audio": "audio", "video": "video"}
"""What a model has to be able to take for each kind of media; files are sent as text by some integrations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The input tokens of a request under one tokenizer."""

    tokens: int
    upper: int  # what it has at most, so that a limit of as much is safe
    lower: int  # what it has at least: with a smaller limit it is surely refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to be routed."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Any] = ()
    conversation: str = ""  # key of what stays with its model; empty when the request stands alone
    requires: tuple[str, ...] = ()  # capabilities beside those that tools and media show
    exclude: Mapping[str, str] = field(default_factory=dict)  # candidates that may not be chosen, and why
    estimated_tokens: int | None = None  # size as it was measured elsewhere, an upper bound
    sizes: Mapping[str, Size] = field(default_factory=dict)  # the same by tokenizer family; a missing one is counted
    output_tokens: int | None = None  # what the call asks for; None leaves it to the model's own setting
    reserve: int | None = None  # what the caller keeps for the answer, whatever else says so
    above_tokens: int = 0  # an input limit that refused this very request
    prefer: str = ""  # candidate to take if it can do what the request needs, whatever its size
    prefer_reason: str = ""  # why, when another decision stands behind it
    kept: str = ""  # candidate that the conversation had so far, when the caller keeps count of that
    cached_tokens: int | None = None  # what that one has seen of it; None takes the router's own memory
    config: RoutingConfig | None = None  # settings of this request alone; None takes the router's
    renew: bool = False  # the prefix changed, so that there is no prompt cache to stay for

    @property
    def text(self) -> str:
        """What the user asks: the text of the last user message."""
        return next((message.text for message in reversed(self.messages) if isinstance(message, HumanMessage)), "")


def needed_capabilities(request: Request, required: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what a model has to be able to do: take tools and media that the request has, and what is required."""
    needed = ["tools"] if request.tools else []
    blocks = (b for message in request.messages if isinstance(message.content, list) for b in message.content)
    for block in blocks:
        if isinstance(block, dict):
            kind = MEDIA_TYPES.get(str(block.get("type")), "")
            if kind == "file":  # which states its media type, such as `image/png`
                kind = str(block.get("mime_type") or "").partition("/")[0]
            if kind in MEDIA_CAPABILITIES:
                needed.append(MEDIA_CAPABILITIES[kind])
    return tuple(dict.fromkeys([*needed, *required, *request.requires]))


def conversation_key(messages: Sequence[AnyMessage], config: Mapping[str, Any] | None = None) -> str:
    """Return the thread id of a run, else a fingerprint of the first message that is no system message.

    Without a config, that of the surrounding run counts, if there is one.
    """
    if thread := thread_key(config):
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


class RequestSizes:
    """Counts requests with one counter, or with the estimator of each tokenizer family."""

    def __init__(self, counter: TokenCounter | RequestCounter | None) -> None:
        self._given = counter.estimator if isinstance(counter, RequestCounter) else counter
        self._estimates: dict[str, _Estimates] = {}

    def of(self, request: Request, families: Iterable[str], *, headroom: float) -> Mapping[str, Size]:
        """Return the size for each family: as measured elsewhere, else counted once per tokenizer.

        The headroom is a factor on the counts of a counter that states no bounds of its own.
        """
        missing, measured = set(families) - request.sizes.keys(), request.estimated_tokens
        if not missing:
            return request.sizes
        if measured is not None:
            counted = dict.fromkeys(missing, Size(tokens=measured, upper=measured, lower=measured))
        elif self._given is not None:
            counted = dict.fromkeys(missing, _whole(self._given, request, headroom))
        else:
            known = {family: self._estimates.get(family) or _Estimates(family) for family in missing}
            self._estimates |= known
            counted = {family: estimates.of(request) for family, estimates in known.items()}
        return {**counted, **request.sizes}


def _whole(counter: TokenCounter, request: Request, headroom: float) -> Size:
    """The size by a counter that is asked about the whole request: one that we do not know need not be additive."""
    if takes_tools(counter):
        tokens = int(counter(list(request.messages), tools=list(request.tools) or None))
    else:
        shown = [SystemMessage(compact_json(tool_definition(tool))) for tool in request.tools]
        tokens = int(counter([*shown, *request.messages]))
    factor = 1.0 if getattr(counter, "exact", False) else headroom
    upper, lower = getattr(counter, "upper", None), getattr(counter, "lower", None)
    most = upper(tokens) if upper else ceil(tokens * factor)
    least = lower(tokens) if lower else int(tokens / factor)
    return Size(tokens=tokens, upper=max(tokens, most), lower=min(tokens, least))


class _Estimates:
    """The estimates of one family; a message and a tool set are priced once while they are unchanged."""

    def __init__(self, family: str) -> None:
        self._count = TokenEstimator(family)
        self._base = self._count([])
        self._price = PerMessage(lambda message: max(0, self._count([message]) - self._base))
        self._tools: Lru[tuple[tuple[Any, ...], int]] = Lru(MAX_TEXTS)

    def of(self, request: Request) -> Size:
        tokens = self._base + sum(map(self._price, request.messages))
        if tools := tuple(request.tools):
            # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
            tokens += once(self._tools, tuple(map(id, tools)), lambda: (tools, self._tool_tokens(tools)))[1]
        upper, lower = self._count.upper(tokens), self._count.lower(tokens)
        return Size(tokens=tokens, upper=max(tokens, upper), lower=min(tokens, lower))

    def _tool_tokens(self, tools: tuple[Any, ...]) -> int:
        return max(0, self._count([], tools=list(tools)) - self._base)
