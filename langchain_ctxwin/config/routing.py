"""What decides between models that can take a request?"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from langchain_ctxwin.config.settings import Settings
from langchain_ctxwin.config.times import Seconds

ROUTING_HEADROOM = 1.2
"""20 % over the count of a plain callable, which says nothing about how far off it may be."""

EXPECTED_OUTPUT_TOKENS = 400
"""A few paragraphs, or two tool calls: what an agent's answers have on average; only prices depend on it."""

REST_SECONDS = 30.0
"""Most rate limits and restarts are over by then; a shorter rest would pay for the same failure again and again."""

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Importance of one goal; only the relation between the weights counts."""


class RoutingConfig(Settings):
    """How a `ModelRouter` weighs its candidates; whatever does not fit is never chosen, whatever the weights say.

    The score of a candidate is `quality * chance - cost * share - latency * share`, where a share is its cost (or its
    usual time) divided by the largest among the candidates that fit.

    Environment variables: `CTXWIN_ROUTING_<FIELD>`, e.g. `CTXWIN_ROUTING_COST=0.5`.

    Example:
        >>> RoutingConfig(quality=1, cost=0, latency=0).cost
        0.0
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_ROUTING_")

    quality: Weight = 1.0
    """Weight of the chance of a good answer."""

    cost: Weight = 0.3
    """Weight of the estimated cost: the dearest candidate has to be better by this chance than a free one."""

    latency: Weight = 0.0
    """Weight of the usual time of an answer, as measured so far."""

    least_chance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Chance of a good answer below which a candidate is chosen only when no other reaches it."""

    required: tuple[str, ...] = ()
    """Capabilities that every request needs, e.g. `structured_output`."""

    headroom: Annotated[float, Field(ge=1, allow_inf_nan=False)] = ROUTING_HEADROOM
    """Factor on counts of a plain callable; counters that state an upper bound, or are exact, need none."""

    output_reserve: Annotated[int, Field(ge=0)] | None = None
    """Tokens reserved for the answer; by default what is requested, else a bounded share of each window."""

    expected_output_tokens: Annotated[int, Field(ge=0)] = EXPECTED_OUTPUT_TOKENS
    """Length of a usual answer, for the estimated cost."""

    sticky: bool = True
    """Stay with one model within a conversation, so that the provider's prompt cache is read, not written anew."""

    rest_seconds: Seconds = REST_SECONDS
    """How long a candidate that failed is passed over while others can answer."""

    @model_validator(mode="after")
    def _require_a_goal(self) -> Self:
        if not (self.quality or self.cost or self.latency):
            raise ValueError("quality, cost and latency are all 0: give at least one of them a weight above 0")
        return self
