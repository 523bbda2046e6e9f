"""How large may one part be, and what does a text cost at most?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.limits import Known, ModelLimits, stated_limit
from langchain_ctxwin.core.model_families import family_of
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import lowered, reserve_within, smaller_of
from langchain_ctxwin.core.tokens import TokenEstimator, text_price
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.measurer import Pricing
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.util.memo import Lru

PLAIN_MARGIN = 1.2
"""Headroom over the counts of a counter that states no bounds: the usual error of an estimate."""

LEAST_ROOM_TOKENS = 256
"""Less than this is no room for a part: two paragraphs, or two short answers to combine."""

MAX_RUNS_HEARD = 1_000
"""Runs whose provider stated a smaller limit that are remembered; a forgotten one hears it again."""


class Sizes:
    """The sizes that one model allows, in tokens; counts are upper bounds.

    Raises:
        UnknownModelError: neither the model nor `limits` states a window.
        ConfigError: the output reserve is no number of tokens, or leaves no input.
    """

    def __init__(self, model: Any, *, limits: Any, counter: TokenCounter | None, output_reserve: int | None) -> None:
        self._stated = model if limits is None else limits
        self._output_reserve = output_reserve
        family = family_of(model)
        self._pricing = Pricing(counter or TokenEstimator(family), family=family)
        self._plain_price = text_price(self._pricing.count)
        self._heard: Lru[Mapping[str, int]] = Lru(MAX_RUNS_HEARD)

    @property
    def input_limit(self) -> int:
        """Largest request, the output reserve taken off; asked each time, because routed models learn theirs."""
        limits = ModelLimits.of(self._stated)
        return limits.input_limit(limits.output_reserve(self._output_reserve))

    def hear(self, run: str, overflow: ContextOverflow) -> None:
        """Remember the limit that a refusal states, for all parts of its run; one that we keep to teaches nothing."""
        stated = stated_limit(overflow, Known(limits=ModelLimits.of(self._stated)))
        if any(limit < self.input_limit for limit in stated.values()):
            self._heard.put(run, smaller_of(self._heard.get(run) or {}, stated))

    def heard_room(self, frame: Sequence[AnyMessage], run: str) -> int | None:
        """Return the room for chunks under the limit that this run was told; None without one that can be believed."""
        limit = self._heard_limit(run)
        room = 0 if limit is None else limit - self._request(frame)
        return room if room >= LEAST_ROOM_TOKENS else None

    def price(self, text: str) -> int:
        """Return the most that a text costs."""
        return self._upper(self._plain_price(text))

    def over_by(self, request: Sequence[AnyMessage], run: str = "") -> int:
        """Return by how much a whole request exceeds the limit, also the one that this run was told; 0 when it fits."""
        return max(0, self._request(request) - (self._heard_limit(run) or self.input_limit))

    def room(self, frame: Sequence[AnyMessage]) -> int:
        """Return what a request without any chunk leaves for chunks.

        Raises:
            BudgetExceededError: that is less than `LEAST_ROOM_TOKENS`.
        """
        input_limit, frame_tokens = self.input_limit, self._request(frame)
        room = input_limit - frame_tokens
        if room >= LEAST_ROOM_TOKENS:
            return room
        limits = ModelLimits.of(self._stated)
        reserved = limits.output_reserve(self._output_reserve)
        raise BudgetExceededError(
            f"instructions and question need {frame_tokens:,} tokens of an input limit of {input_limit:,} (output "
            f"reserve {reserved:,}), which leaves {max(0, room):,} for the documents (at least {LEAST_ROOM_TOKENS} are "
            "needed): shorten the question or the prompts, lower output_reserve or use a larger window",
            report={"input_limit": input_limit, "total_tokens": frame_tokens, "reserved_tokens": reserved},
        )

    def _heard_limit(self, run: str) -> int | None:
        heard = self._heard.get(run)
        if heard is None:
            return None
        limits = lowered(ModelLimits.of(self._stated), heard)
        return limits.input_limit(reserve_within(limits, self._output_reserve, learned=True))

    def _request(self, request: Sequence[AnyMessage]) -> int:
        return self._upper(self._pricing.count(request))

    def _upper(self, tokens: int) -> int:
        if self._pricing.exact:
            return tokens
        upper = getattr(self._pricing.count, "upper", None)
        return ceil(upper(tokens) if upper else tokens * PLAIN_MARGIN)
