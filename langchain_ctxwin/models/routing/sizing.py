"""How large is a request for each candidate? Counted once per tokenizer family, not once per candidate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.tokens import TokenEstimator, tool_definition
from langchain_ctxwin.memo import MAX_TEXTS, Lru, PerMessage, once
from langchain_ctxwin.protocols import RequestCounter, TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The input tokens of a request under one tokenizer."""

    tokens: int
    upper: int
    """What the request has at most, so that a limit of as much is safe."""

    lower: int
    """What the request has at least: with a smaller limit it is surely refused."""


class Sizes:
    """Counts requests with one counter, or with the estimator of each tokenizer family."""

    def __init__(self, counter: TokenCounter | RequestCounter | None, *, headroom: float) -> None:
        given = counter.estimator if isinstance(counter, RequestCounter) else counter
        self._given = None if given is None else _Counted(given, headroom)
        self._by_family: dict[str, _Counted] = {}

    def of(self, messages: Sequence[AnyMessage], tools: Sequence[Any], families: Iterable[str]) -> Mapping[str, Size]:
        """Return the size of the request for each family."""
        if self._given is not None:
            return dict.fromkeys(families, self._given.whole(messages, tools))
        return {family: self._family(family).summed(messages, tools) for family in dict.fromkeys(families)}

    def _family(self, family: str) -> _Counted:
        known = self._by_family.get(family)
        return known or self._by_family.setdefault(family, _Counted(TokenEstimator(family), 1.0))


class _Counted:
    """One counter with its bounds; each message is priced once while it is unchanged."""

    def __init__(self, counter: TokenCounter, headroom: float) -> None:
        self._counter = counter
        self._takes_tools = _takes_tools(counter)
        exact = bool(getattr(counter, "exact", False))
        self._upper: Callable[[int], int] = getattr(counter, "upper", None) or (
            int if exact else lambda tokens: ceil(tokens * headroom)
        )
        self._lower: Callable[[int], int] = getattr(counter, "lower", None) or (
            int if exact else lambda tokens: int(tokens / headroom)
        )
        self._base: int | None = None
        self._price = PerMessage(lambda message: self._net([message]))
        self._tools: Lru[tuple[tuple[Any, ...], int]] = Lru(MAX_TEXTS)

    def whole(self, messages: Sequence[AnyMessage], tools: Sequence[Any]) -> Size:
        """Ask the counter about the whole request: one that we do not know need not be additive."""
        if self._takes_tools:
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


def _takes_tools(counter: TokenCounter) -> bool:
    try:
        parameters = inspect.signature(counter).parameters
    except (TypeError, ValueError):
        return False
    return "tools" in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
