"""What is kept of one request, so that the quality of many can be judged later?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.reported import answered_by
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.exact import is_count

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

_DETAIL = re.compile(r"[(:;,]")
"""Begins what a reason says about one request alone; without that, requests have reasons in common."""

REFUSED_AS_TOO_LONG = ": had too small a window"
"""Ends what a route says about a candidate whose provider refused the request for its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Sizes, route and price of one request; None means unknown, never zero.

    A request that got no answer at all has no message to be made from: state it with `succeeded=False`.

    Raises:
        ConfigError: a count is not a whole number of at least 0 (a limit: 1), or a cost is not a `Decimal` of at
            least 0.

    Example:
        >>> RequestRecord(model="small", input_limit=8_192, input_tokens=1_024).reason
        ''
    """

    model: str

    input_limit: int | None
    """Largest input of the model that answered; the output reserve is already taken off."""

    input_tokens: int | None
    """Size of the prompt, tool definitions included: as the provider reported it, else as it was counted."""

    output_tokens: int | None = None
    tool_tokens: int | None = 0
    """Part of the input that defines tools."""

    reserved_tokens: int | None = None
    """Kept free for the answer."""

    reason: str = ""
    """Kind of reason why this model was chosen, without the figures of the request; empty when no router says."""

    fallbacks: int | None = 0
    """Candidates that failed before the last one was asked."""

    overflows: int = 0
    """Times a provider refused the request as too long. `of` counts what a route lists; 0 where nothing says so."""

    succeeded: bool = True
    """Whether an answer came in the end."""

    optimal: bool | None = None
    """Whether no other candidate would have been the better choice, where somebody judged that."""

    cost: Decimal | None = None
    """USD."""

    largest_cost: Decimal | None = None
    """USD that the same tokens cost at the candidate with the largest window."""

    def __post_init__(self) -> None:
        require_tokens("input_limit", self.input_limit, minimum=1, optional=True)
        for name in ("input_tokens", "output_tokens", "tool_tokens", "reserved_tokens", "fallbacks"):
            require_tokens(name, getattr(self, name), optional=True)
        require_tokens("overflows", self.overflows)
        for name in ("cost", "largest_cost"):
            _require_cost(name, getattr(self, name))

    @classmethod
    def of(
        cls,
        message: AIMessage,
        *,
        report: Mapping[str, Any] | None = None,
        info: ModelInfo | None = None,
        largest: ModelInfo | None = None,
    ) -> RequestRecord:
        """Make a record of an answer; what its metadata do not state, or state in a form that cannot be, is unknown.

        Refusals are known from the route alone. An answer does not tell that a request without a router was refused,
        made smaller and sent again: add those where they are seen, `replace(record, overflows=1)`.

        Args:
            message: the answer, with the usage and the route that came with it.
            report: the `context_report` of its request.
            info: the model that answered, for the cost of the reported usage. With neither model, the cost is the
                one that the router estimated.
            largest: the candidate with the largest window, for the cost of the same usage there.
        """
        usage: Mapping[str, Any] = message.usage_metadata or {}
        stated = message.response_metadata.get("route")
        route: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
        sizes = report or {}
        return cls(
            model=_text(route.get("model")) or answered_by(message),
            input_limit=_count(sizes.get("input_limit")) or None,
            input_tokens=_count(usage.get("input_tokens")) or _count(sizes.get("total_tokens")) or None,
            output_tokens=_count(usage.get("output_tokens")),
            tool_tokens=_count(sizes.get("tool_tokens")),
            reserved_tokens=_count(sizes.get("reserved_tokens")),
            reason=_DETAIL.split(_text(route.get("reason")), maxsplit=1)[0].strip(),
            fallbacks=_length(route.get("fallbacks")),
            overflows=_refusals(route.get("fallbacks")),
            cost=_cost(usage, info) if info or largest else _amount(route.get("estimated_cost")),
            largest_cost=_cost(usage, largest),
        )


def _require_cost(name: str, value: object) -> None:
    if value is None or (isinstance(value, Decimal) and value.is_finite() and value >= 0):
        return
    raise ConfigError(f"{name}={value!r}: give USD as a Decimal of at least 0 made from text, or None when unknown")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    """A whole number of at least 0; sizes that no window has are not believed."""
    return value if is_count(value) else 0 if type(value) is int and value == 0 else None


def _length(value: object) -> int | None:
    """How many there are: a number, or the things themselves."""
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else _count(value)


def _refusals(value: object) -> int:
    """How many of the listed candidates refused the request as too long."""
    listed = value if isinstance(value, list | tuple) else ()
    return sum(_text(entry).endswith(REFUSED_AS_TOO_LONG) for entry in listed)


def _amount(value: object) -> Decimal | None:
    try:
        amount = Decimal(_text(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _cost(usage: Mapping[str, Any], info: ModelInfo | None) -> Decimal | None:
    """Price of the usage; what one model read from its cache counts as cached at every other one too."""
    sizes = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if info is None or info.input_price is None or info.output_price is None or None in sizes:
        return None
    read, written = (size or 0 for size in sizes)
    cached = min(read, _cached(usage))
    cache_price = info.input_price if info.cache_read_price is None else info.cache_read_price
    priced = (read - cached) * info.input_price + cached * cache_price + written * info.output_price
    return priced / PRICED_TOKENS


def _cached(usage: Mapping[str, Any]) -> int:
    details = usage.get("input_token_details")
    return _count(details.get("cache_read")) or 0 if isinstance(details, Mapping) else 0
