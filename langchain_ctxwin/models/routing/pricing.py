"""What will a request cost with a candidate, cached input and the usual answer included?"""

from __future__ import annotations

from decimal import Decimal

from langchain_ctxwin.core.model_info import ModelInfo

PRICED_TOKENS = 1_000_000
"""Tokens that prices are stated for."""


def estimated_cost(info: ModelInfo, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal | None:
    """Return USD for one request, or None when a price is unknown.

    Args:
        info: the prices; without one for cached input, that costs what other input costs.
        input_tokens: the whole request.
        cached_tokens: the part of it that the model has seen before, at most the whole.
        output_tokens: the expected answer.
    """
    if info.input_price is None or info.output_price is None:
        return None
    cached = min(cached_tokens, input_tokens)
    cached_price = info.input_price if info.cache_read_price is None else info.cache_read_price
    priced = (input_tokens - cached) * info.input_price + cached * cached_price + output_tokens * info.output_price
    return priced / PRICED_TOKENS


def strengths(infos: list[ModelInfo]) -> list[float]:
    """Return how strong each model presumably is, 0 to 1, by the rank of its price; in the middle when it is unknown.

    Models of one price share a rank. A price says little of one task, but is all that is known before any outcome.
    """
    prices = [_list_price(info) for info in infos]
    ranks = {price: rank for rank, price in enumerate(sorted({price for price in prices if price is not None}))}
    highest = max(1, len(ranks) - 1)
    return [MIDDLE if price is None or len(ranks) == 1 else ranks[price] / highest for price in prices]


MIDDLE = 0.5
"""Presumed strength where prices say nothing."""


def _list_price(info: ModelInfo) -> Decimal | None:
    return info.output_price if info.output_price is not None else info.input_price
