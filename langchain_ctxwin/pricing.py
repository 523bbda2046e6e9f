"""Turns any token counter into prices: per message, per tool set, with bounds; everything is counted once."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.memo import MAX_TEXTS, Lru, Prices, Steps, once
from langchain_ctxwin.protocols import TokenCounter

ToolSet = tuple[tuple[Any, ...], int, str]


class Pricing:
    """The prices of one counter; thread-safe, bounded, shared by all conversations of an engine."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self.exact = bool(getattr(counter, "exact", False))
        """True when the counter states that its counts are exact."""
        self._upper: Callable[[int], int] = getattr(counter, "upper", int)
        self._lower: Callable[[int], int] = getattr(counter, "lower", int)
        self.base_tokens = int(counter([]))
        """What the counter adds once to every request."""
        self.price = Prices(self._count)
        self.show = Steps(self.price)
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._takes_tools = _takes_tools(counter)

    def upper(self, tokens: int) -> int:
        """Upper bound of the true count behind an estimate; a plain callable is taken as it is."""
        return self._upper(tokens)

    def lower(self, tokens: int) -> int:
        """Lower bound of the true count behind an estimate."""
        return self._lower(tokens)

    def capacity(self, limit: int) -> int:
        """Largest estimate whose upper bound is within `limit`."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.upper(middle) <= limit else (low, middle - 1)
        return low

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of the tool definitions."""
        return self._tool_set(tools)[1] if tools else 0

    def tools_digest(self, tools: Sequence[Any]) -> str:
        """Fingerprint of the tool definitions."""
        return self._tool_set(tools)[2] if tools else ""

    def _count(self, message: AnyMessage) -> int:
        return max(0, int(self.counter([message])) - self.base_tokens)

    def _tool_set(self, tools: Sequence[Any]) -> ToolSet:
        # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
        kept = tuple(tools)
        return once(self._tool_sets, tuple(map(id, kept)), lambda: (kept, self._price_tools(kept), _digest(kept)))

    def _price_tools(self, tools: tuple[Any, ...]) -> int:
        if self._takes_tools:
            return max(0, int(self.counter([], tools=list(tools))) - self.base_tokens)
        return sum(self._count(SystemMessage(content=_schema_text(tool))) for tool in tools)


def _takes_tools(counter: TokenCounter) -> bool:
    try:
        parameters = inspect.signature(counter).parameters
    except (TypeError, ValueError):
        return False
    return "tools" in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _digest(tools: tuple[Any, ...]) -> str:
    text = "\0".join(map(_schema_text, tools))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _schema_text(tool: Any) -> str:
    """Return a tool definition as compact JSON; one that LangChain cannot convert is taken as it is."""
    try:
        definition: Any = convert_to_openai_tool(tool)
    except (ValueError, TypeError):
        definition = tool
    return json.dumps(definition, ensure_ascii=False, separators=(",", ":"), default=str)
