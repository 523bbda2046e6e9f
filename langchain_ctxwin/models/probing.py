"""A probe finds a model's real input limit: requests of rising size, each counted, until one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import ceil, log2
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from langchain_ctxwin.core.limits import CALL_ARGUMENTS
from langchain_ctxwin.core.model_info import ModelInfo, Usage, family_of
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.util.log import reason_of

LOW_TOKENS = 1_000  # of the first request: below every window in use
OUTPUT_TOKENS = 16  # that are asked for: the least that OpenAI's newer models take
WORD = " table"  # one token in the vocabularies in use, so that sizes can be aimed at

# Share by which the largest request that was taken may fall short of the limit: less than any margin that is kept.
ACCURACY = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a probe found."""

    limit: int | None
    """Largest input, as a refusal stated it, else the largest that was taken before one was refused, by the provider's
    count; None when the probe ended before that was sure."""

    calls: int
    input_tokens: int
    """Of all calls together."""

    stopped_by: str = ""
    """Why it ended early: an error that is no refusal of the size, such as a rate limit."""


def most_of_a_probe(info: ModelInfo | None, *, high: int) -> tuple[int, Decimal | None]:
    """Return the calls that a probe up to a size makes at most, and what they cost in USD, None without prices.

    Providers charge nothing for what they refuse, so that it costs about half of this.
    """
    doubled = ceil(log2(high / LOW_TOKENS)) + 1
    halved = ceil(log2(1 / ACCURACY))
    calls, tokens = doubled + halved, (2 + halved) * high
    usage = Usage(input_tokens=tokens, output_tokens=calls * OUTPUT_TOKENS)
    return calls, usage.cost(info)


def probe_limit(model: Any, *, high: int) -> Probe:
    """Find the largest input that a model takes, by requests of rising size.

    The sizes double until one is refused. Where the refusal states no limit, the next ones close in on it, to 2 %. Any
    other error ends the probe with what it has found so far.

    Args:
        model: a chat model, without tools bound.
        high: largest size that is tried, in tokens; it bounds what the probe costs, see `most_of_a_probe`.

    Raises:
        ConfigError: `high` is not above the thousand tokens of the first request, or the model is no Runnable.

    Examples:
        ```python
        probe = probe_limit(model, high=200_000)
        registry.learn(model, {"max_input_tokens": probe.limit})
        ```
    """
    if not isinstance(model, Runnable):
        raise ConfigError(
            f"model={brief(model)} cannot be asked: pass a chat model, such as init_chat_model(...)"
        )
    if high <= LOW_TOKENS:
        raise ConfigError(
            f"high={high:,}: a probe needs sizes to try, pass more than {LOW_TOKENS:,}"
        )
    shortest = next((name for name in CALL_ARGUMENTS if hasattr(model, name)), "")
    short_model = model.bind(**{shortest: OUTPUT_TOKENS}) if shortest else model
    counter = TokenEstimator(family_of(model))
    accepted = refused = reported = sent = calls = 0
    stated, stopped = None, ""
    while not stated and (size := _next_size(high, accepted, refused)):
        request = [HumanMessage(WORD * size)]
        calls, sent = calls + 1, sent + size
        try:
            answer = short_model.invoke(request)
        except Exception as error:  # noqa: BLE001  # providers have no common error: what is no overflow ends it
            overflow = classify_overflow(error)
            if overflow is None:
                stopped = reason_of(error)
                break
            refused, stated = size, overflow.limit
        else:
            accepted = size
            usage = Usage.of_answer(answer)
            reported = usage.input_tokens or counter(request)
    found = stated or reported if refused and not stopped else 0
    return Probe(
        limit=found or None,
        calls=calls,
        input_tokens=sent,
        stopped_by=stopped,
    )


def _next_size(high: int, accepted: int, refused: int) -> int:
    """The size to try next; 0 when the limit is known well enough."""
    if not refused:
        return min(high, 2 * accepted or LOW_TOKENS) if accepted < high else 0
    is_open = refused - accepted > max(1, ACCURACY * refused)
    return (accepted + refused) // 2 if is_open else 0
