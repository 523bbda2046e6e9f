"""Turns any token counter into prices: per message, per tool set, with bounds; everything is counted once."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from math import sqrt
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.calibration import QUANTILE_SD, Doubt
from langchain_ctxwin.core.content import compact_json
from langchain_ctxwin.core.fill import filled
from langchain_ctxwin.core.model_families import family_of
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator, tool_definition
from langchain_ctxwin.guarded import GuardedCounter
from langchain_ctxwin.memo import MAX_TEXTS, Lru, PerMessage, Steps, once
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

    def __init__(self, counter: TokenCounter, *, family: str) -> None:
        self.remote = counter if isinstance(counter, RequestCounter) else None
        """Counts whole requests where the provider does; None for a counter that prices messages by itself."""
        self.counter = counter.estimator if isinstance(counter, RequestCounter) else counter
        """PerMessage messages and tools."""
        self._estimator = TokenEstimator(family)
        is_own = isinstance(self.counter, OWN_COUNTERS)
        self._guard = None if is_own else GuardedCounter(self.counter, self._estimator)
        self.count: TokenCounter = self._guard or self.counter
        """The counter, made safe."""
        self._doubts = (_doubt_of(self.counter), _doubt_of(self._estimator))
        self._base: tuple[int | None] | None = None
        self.price = PerMessage(self._price)
        self.show = Steps(self.price)
        self.fill = Fills()
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._takes_tools = _takes_tools(self.counter)

    @property
    def has_failed(self) -> bool:
        """True once something was estimated because the counter could not count it."""
        return self._guard is not None and self._guard.has_failed

    @property
    def doubt(self) -> Doubt:
        """How far the counts may be off before anything was reported: the estimator's doubt once it stood in."""
        return self._doubts[self.has_failed]

    @property
    def exact(self) -> bool:
        """True when the counter states that its counts are exact, and could count everything so far."""
        return bool(getattr(self.counter, "exact", False)) and not self.has_failed and self._asked_base() is not None

    @property
    def base_tokens(self) -> int:
        """What the counter adds once to every request; 0 when it cannot say."""
        return self._asked_base() or 0

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of the tool definitions."""
        return self._tool_set(tools)[1] if tools else 0

    def tools_digest(self, tools: Sequence[Any]) -> str:
        """Fingerprint of the tool definitions."""
        return self._tool_set(tools)[2] if tools else ""

    def _asked_base(self) -> int | None:
        """Ask the counter at first use: it may be slow. Two threads at once may both ask, and hear the same."""
        if self._base is None:
            self._base = (self._guard.attempt([]) if self._guard else int(self.counter([])),)
        return self._base[0]

    def _price(self, message: AnyMessage) -> int:
        return self._net([message])

    def _net(self, messages: list[AnyMessage], tools: list[Any] | None = None) -> int:
        """Tokens beyond those of an empty request, by whoever counts: each adds something of its own to every one."""
        if self._guard is None:
            return max(0, int(self.counter(messages, tools=tools)) - self.base_tokens)
        tokens = self._guard.attempt(messages, tools=tools)
        if tokens is None:
            return max(0, self._guard.estimate(messages, tools=tools) - self._estimator([]))
        return max(0, tokens - self.base_tokens)

    def _tool_set(self, tools: Sequence[Any]) -> ToolSet:
        # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
        kept = tuple(tools)
        return once(self._tool_sets, tuple(map(id, kept)), lambda: (kept, self._price_tools(kept), _digest(kept)))

    def _price_tools(self, tools: tuple[Any, ...]) -> int:
        if self._takes_tools:
            return self._net([], list(tools))
        return sum(self._price(SystemMessage(content=_json(tool))) for tool in tools)


class Fills:
    """Makes each message with a line about the fill once, so that it is priced once."""

    def __init__(self) -> None:
        self._known: Lru[tuple[AnyMessage, AnyMessage]] = Lru(MAX_TEXTS)

    def __call__(self, message: AnyMessage, tenths: int) -> AnyMessage:
        """Return what `filled` returns."""
        if not isinstance(message.content, str):  # blocks may change in place
            return filled(message, tenths)
        # The message in the value keeps it alive, so an id in the key cannot come to mean another one.
        key = (id(message), message.content, tenths)
        return once(self._known, key, lambda: (message, filled(message, tenths)))[1]


class Pricings:
    """The prices of one counter, or of the estimator of each tokenizer family that requests go to."""

    def __init__(self, counter: TokenCounter | None, *, family: str) -> None:
        self.default = Pricing(counter or TokenEstimator(family), family=family)
        """For requests that name no model of their own."""
        self._by_family = {family: self.default} if counter is None else None

    def of(self, model: object) -> Pricing:
        """Return the prices for the model of a request; with one counter for all, its."""
        if model is None or self._by_family is None:
            return self.default
        family = family_of(model)
        known = self._by_family.get(family)
        return known or self._by_family.setdefault(family, Pricing(TokenEstimator(family), family=family))


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
    text = "\0".join(map(_json, tools))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _json(tool: Any) -> str:
    return compact_json(tool_definition(tool))
