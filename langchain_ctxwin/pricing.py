"""Turns any token counter into prices: per message, per tool set, with bounds; everything is counted once."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from math import sqrt
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.calibration import QUANTILE_SD, Doubt
from langchain_ctxwin.memo import MAX_TEXTS, Lru, Prices, Steps, once
from langchain_ctxwin.protocols import TokenCounter

PROBE_TOKENS = 100_000
"""Size at which a counter's bounds are read: large enough that rounding does not matter."""

NOISE_PART = 0.8
MAX_NOISE_SHARE = 0.1
"""Part of a counter's error that differs from text to text, and its most: a wider one doubts the tokenizer itself."""

EXACT_NOISE_SHARE = 0.02
"""What an exact counter of texts leaves open of a message: how the provider frames it."""

ToolSet = tuple[tuple[Any, ...], int, str]


class Pricing:
    """The prices of one counter; thread-safe, bounded, shared by all conversations of an engine."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self.exact = bool(getattr(counter, "exact", False))
        """True when the counter states that its counts are exact."""
        self.doubt = _doubt_of(counter)
        """How far its counts may be off before anything was reported."""
        self.base_tokens = int(counter([]))
        """What the counter adds once to every request."""
        self.price = Prices(self._count)
        self.show = Steps(self.price)
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._takes_tools = _takes_tools(counter)

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


def _doubt_of(counter: TokenCounter) -> Doubt:
    """Read the bounds that a counter states; one that states none is taken as it is."""
    if getattr(counter, "exact", False):
        return Doubt(slope_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)
    upper, lower = getattr(counter, "upper", None), getattr(counter, "lower", None)
    if upper is None or lower is None:
        return Doubt(has_margin=False)
    above = max(0.0, upper(PROBE_TOKENS) / PROBE_TOKENS - 1)
    below = max(0.0, 1 - lower(PROBE_TOKENS) / PROBE_TOKENS)
    sd = above / QUANTILE_SD
    # The bounds are those of single texts: what differs from text to text is noise, the rest is doubt about the slope.
    noise_share = min(NOISE_PART * sd, MAX_NOISE_SHARE)
    slope_sd = sqrt(sd**2 - noise_share**2)
    return Doubt(slope_sd=slope_sd, noise_share=noise_share, lower_share=below / above if above else 0.0)


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
