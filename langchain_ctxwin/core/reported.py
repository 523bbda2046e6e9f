"""Usage that an answer reports: the size of its request, and the model that answered."""

from __future__ import annotations

import re
from collections.abc import Sequence

from langchain_core.messages import AIMessage

MIN_REPORTED_SHARE = 0.5
"""Share of our count below which a reported size is not that of this request: a server has cut it, or it is that of
something else. The rules of thumb count at most twice too much."""

MAX_REPORTED_RATIO = 10.0
UNSEEN_TOKENS = 50_000
"""Multiple of our count, and hidden prompt beside it, above which a reported size is not that of this request."""


def reported_tokens(reply: AIMessage, expected: Sequence[int]) -> tuple[int | None, str]:
    """Return the prompt size that came with an answer, or None and what is wrong with it (nothing, if none came).

    Args:
        reply: the answer.
        expected: our counts of the request, in tokens; the size has to be near one of them.
    """
    usage = reply.usage_metadata
    if not usage:
        return None, ""
    tokens = usage.get("input_tokens")
    fault = fault_of(tokens, expected)
    return (None, fault) if fault else (tokens, "")


def fault_of(tokens: object, expected: Sequence[int]) -> str:
    """Return what is wrong with a reported size; empty when it can be that of a request that we count like this."""
    counts = " or ".join(f"{count:,}" for count in dict.fromkeys(expected))
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens <= 0:
        return f"the provider reported {tokens!r} input tokens, our count is {counts}"
    if not any(_is_near(tokens, count) for count in expected):
        return f"the provider reported {tokens:,} input tokens, far from our count of {counts}"
    return ""


def is_absurd(tokens: int, count: int) -> bool:
    """True for a size that no hidden prompt explains."""
    return tokens > MAX_REPORTED_RATIO * count + UNSEEN_TOKENS


def _is_near(tokens: int, count: int) -> bool:
    return MIN_REPORTED_SHARE * count <= tokens and not is_absurd(tokens, count)


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    stated = (reply.response_metadata.get(key) for key in ("model_name", "model"))
    return next((name for name in stated if isinstance(name, str) and name), "")


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted((name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len)
    return not one or (other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :])))


_VERSION = re.compile(r"|[-@:_](?:\d{3,}+|\d\d-\d\d|v?\d++$|latest|preview|exp|beta).*")
"""What may follow the name of a model without making it another one."""
