"""What does each tool add to a request, in tokens, and what do tools cost at all?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.tool_schemas import UNREADABLE
from langchain_ctxwin.errors import ConfigError

PROBE = {"type": "function", "function": {"name": "a", "description": "a", "parameters": {"type": "object"}}}
"""A tool whose price twice and once tells what the first tool adds beside its own text."""

Counter = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPrices:
    """The prices of a tool set."""

    base: int
    """Once, when any tool is bound, in tokens."""

    each: tuple[int | None, ...]
    """Per tool, in tokens; None for one that the counter cannot read."""

    all_tokens: int | None
    """The whole set; None when one of them cannot be read."""

    least: int
    """The price of the cheapest tool."""

    @classmethod
    def of(cls, base: int, each: Sequence[int | None]) -> ToolPrices:
        """Add up single prices."""
        known = [price for price in each if price is not None]
        everything = base + sum(known) if known else 0
        all_tokens = everything if len(known) == len(each) else None
        return cls(base=base, each=tuple(each), all_tokens=all_tokens, least=min(known, default=0))

    def total(self, chosen: Collection[int]) -> int:
        """Return the tokens of the tools at these positions."""
        return self.base + sum(self.each[index] or 0 for index in chosen) if chosen else 0


def tool_prices(tools: Sequence[Any], counter: Counter | None) -> ToolPrices:
    """Price every tool once, as what it adds to a request.

    Raises:
        ConfigError: the counter takes no tools.
    """
    count = counter or TokenEstimator()
    try:
        empty, one, two = count([]), count([], tools=[PROBE]), count([], tools=[PROBE, PROBE])
    except TypeError as error:
        raise ConfigError(
            f"counter={counter!r} cannot price tools ({error}): pass a callable `(messages, *, tools=None) -> int`"
        ) from error
    base = max(0, 2 * one - two - empty)
    return ToolPrices.of(base, [_price(tool, count, empty + base) for tool in tools])


def _price(tool: Any, count: Counter, without: int) -> int | None:
    try:
        return max(0, count([], tools=[tool]) - without)
    except UNREADABLE:
        return None
