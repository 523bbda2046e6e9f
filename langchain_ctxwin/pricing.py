"""Prices of messages and tools, and the histories of conversations, each worked out once.

Pricing(counter).of(model):  price(message), tool_set(tools), history(messages)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import ceil, sqrt
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.model_info import UNKNOWN_FAMILY, family_of
from langchain_ctxwin.core.provider_blocks import Messages, compact_json, digest
from langchain_ctxwin.core.sizing import MAX_NUMBER, QUANTILE_SD, Doubt
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.tool_schemas import ToolSet, tool_definition
from langchain_ctxwin.core.turns import MessageHistory, read_history
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

MAX_TEXTS = 512
"""Prices of texts and tool sets kept beside the messages."""

MAX_CONVERSATIONS = 64
"""Conversations whose histories are kept; each holds references only."""

PROBE_TOKENS = 100_000
"""Size at which a counter's bounds are read: large enough that rounding does not matter."""

NOISE_PART = 0.8
MAX_NOISE_SHARE = 0.1
"""Part of a counter's error that differs from text to text, and its most: a wider one doubts the tokenizer itself."""

SOME_CHARS = 100  # of a text that no counter finds empty


class Pricing:
    """The prices of one counter; thread-safe, bounded, shared by all conversations of an engine.

    Without a counter they are those of the estimator of a tokenizer family.
    """

    def __init__(self, counter: TokenCounter | None, *, family: str) -> None:
        self._estimator = TokenEstimator(family)
        self.counter: TokenCounter = counter or self._estimator
        """Counts messages and tools."""
        self._families = {} if counter else {family: self}
        self._faults = set[str]()
        self._price_text = lru_cache(MAX_TEXTS)(
            lambda text: self._net([SystemMessage(text)])
        )
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._histories: Lru[MessageHistory] = Lru(MAX_CONVERSATIONS)

    def count(self, messages: Messages, *, tools: Any = None) -> int:
        """Return the tokens of messages and tools; those of the estimator where the counter raises or returns no count.

        The event `count.failed` says why, once per reason. A counter is asked in the turn, by every thread that counts:
        how long it takes is up to who wrote it.
        """
        try:
            value = self.counter(messages, **({"tools": tools} if tools else {}))
        except Exception as error:  # noqa: BLE001  # a counter may be anybody's code
            fault = type(error).__name__
        else:
            fault = _fault(value, messages)
        if not fault:
            return ceil(value)
        if fault not in self._faults:
            self._faults.add(fault)
            name = getattr(self.counter, "__name__", type(self.counter).__name__)
            log.warning("count.failed", counter=name, reason=fault, instead="estimate")
        return self._estimator(messages, tools=tools)

    def price(self, message: AnyMessage) -> int:
        """Tokens of one message; a prompt, summary or record, which is the same in many requests, is counted once."""
        if isinstance(message, SystemMessage) and isinstance(message.content, str):
            return self._price_text(message.content)
        return self._net([message])

    @property
    def doubt(self) -> Doubt | None:
        """How far the counts may be off before anything was reported: the estimator's doubt once it stood in.

        A counter that states no bounds, or is exact, is taken as it is.
        """
        counter = self._estimator if self._faults else self.counter
        upper, lower = (getattr(counter, name, None) for name in ("upper", "lower"))
        if self.exact or upper is None or lower is None:
            return None
        above = max(0.0, upper(PROBE_TOKENS) / PROBE_TOKENS - 1)
        below = max(0.0, 1 - lower(PROBE_TOKENS) / PROBE_TOKENS)
        sd = above / QUANTILE_SD
        # The bounds are those of single texts: what differs from text to text is noise, the rest doubt about the ratio.
        noise_share = min(NOISE_PART * sd, MAX_NOISE_SHARE)
        return Doubt(
            ratio_sd=sqrt(sd**2 - noise_share**2),
            noise_share=noise_share,
            lower_share=below / above if above else 0.0,
        )

    @property
    def exact(self) -> bool:
        """True when the counter states that its counts are exact, and could count everything so far."""
        return getattr(self.counter, "exact", False) and not self._faults

    @cached_property
    def base_tokens(self) -> int:
        """The tokens that the counter adds once to every request, asked for at first use: it may be slow."""
        return self.count([])

    def tool_set(self, tools: Sequence[Any]) -> ToolSet:
        """Return the size and digest of tool definitions."""
        alive = tuple(tools)
        if not alive:
            return ToolSet()
        return once(self._tool_sets, tuple(map(id, alive)), lambda: self._priced(alive))

    def of(self, model: object) -> Pricing:
        """Return the prices for the model of a request; these where its family is unknown, or a counter was given."""
        family = family_of(model)
        if family == UNKNOWN_FAMILY or not self._families:
            return self
        if family not in self._families:
            self._families[family] = Pricing(None, family=family)
        return self._families[family]

    def history(self, messages: Messages) -> MessageHistory:
        """Return the history of a conversation, of which only what is new is looked at."""
        if not messages:
            return MessageHistory()
        name = messages[0].id or id(messages[0])
        before = self._histories.get(name)
        return self._histories.put(
            name, read_history(messages, before, price=self.price)
        )

    def _net(self, messages: list[AnyMessage], tools: Sequence[Any] = ()) -> int:
        """Tokens beyond those of an empty request: a counter adds something of its own to every one."""
        return max(0, self.count(messages, tools=tools) - self.base_tokens)

    def _priced(self, tools: tuple[Any, ...]) -> ToolSet:
        texts = [compact_json(tool_definition(tool)) for tool in tools]
        return ToolSet(tools, self._net([], list(tools)), digest(*texts))


def _fault(value: object, messages: Messages) -> str:
    """What is wrong with a count; nothing for one to reckon with."""
    if not isinstance(value, int | float) or not 0 <= value < MAX_NUMBER:
        return f"returned no number of tokens, but {type(value).__name__}"
    if not value and any(len(message.text) >= SOME_CHARS for message in messages):
        return "returned 0 for a long text: it takes a list of messages, not a text"
    return ""
