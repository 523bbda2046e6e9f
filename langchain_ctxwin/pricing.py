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
from langchain_ctxwin.core.model_families import family_of
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator
from langchain_ctxwin.counting.guarded import GuardedCounter
from langchain_ctxwin.memo import MAX_TEXTS, Lru, Prices, Steps, once
from langchain_ctxwin.protocols import RequestCounter, TokenCounter

OWN_COUNTERS = (TokenEstimator, CharRatioCounter)
"""Counters that cannot fail and take microseconds; others are guarded."""

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
        self.remote = counter if isinstance(counter, RequestCounter) else None
        """Counts whole requests where the provider does; None for a counter that prices messages by itself."""
        self.counter = counter.estimator if isinstance(counter, RequestCounter) else counter
        """Prices messages and tools."""
        self.doubt = _doubt_of(self.counter)
        """How far its counts may be off before anything was reported."""
        self._guard = None if isinstance(self.counter, OWN_COUNTERS) else GuardedCounter(self.counter, TokenEstimator())
        self.count: TokenCounter = self._guard or self.counter
        """The counter, made safe."""
        self.base_tokens = (self._guard.attempt([]) or 0) if self._guard else int(self.counter([]))
        """What the counter adds once to every request; 0 when it cannot say."""
        self.price = Prices(self._count)
        self.show = Steps(self.price)
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._takes_tools = _takes_tools(self.counter)

    @property
    def exact(self) -> bool:
        """True when the counter states that its counts are exact, and could count everything so far."""
        return bool(getattr(self.counter, "exact", False)) and not (self._guard and self._guard.has_failed)

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of the tool definitions."""
        return self._tool_set(tools)[1] if tools else 0

    def tools_digest(self, tools: Sequence[Any]) -> str:
        """Fingerprint of the tool definitions."""
        return self._tool_set(tools)[2] if tools else ""

    def _count(self, message: AnyMessage) -> int:
        return max(0, int(self.count([message])) - self.base_tokens)

    def _tool_set(self, tools: Sequence[Any]) -> ToolSet:
        # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
        kept = tuple(tools)
        return once(self._tool_sets, tuple(map(id, kept)), lambda: (kept, self._price_tools(kept), _digest(kept)))

    def _price_tools(self, tools: tuple[Any, ...]) -> int:
        if self._takes_tools:
            return max(0, int(self.count([], tools=list(tools))) - self.base_tokens)
        return sum(self._count(SystemMessage(content=_schema_text(tool))) for tool in tools)


class Pricings:
    """The prices of one counter, or of the estimator of each tokenizer family that requests go to."""

    def __init__(self, counter: TokenCounter | None, *, family: str) -> None:
        self.default = Pricing(counter or TokenEstimator(family))
        """For requests that name no model of their own."""
        self._by_family = {family: self.default} if counter is None else None

    def of(self, model: object) -> Pricing:
        """Return the prices for the model of a request; with one counter for all, its."""
        if model is None or self._by_family is None:
            return self.default
        family = family_of(model)
        return self._by_family.get(family) or self._by_family.setdefault(family, Pricing(TokenEstimator(family)))


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
