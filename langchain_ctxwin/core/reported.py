"""What does an answer state about the request behind it: its size, and the model that answered?"""

from __future__ import annotations

from langchain_core.messages import AIMessage

MIN_REPORTED_SHARE = 0.2
"""Share of our count below which a reported size is not that of this request: no estimator is that far off."""

MAX_REPORTED_RATIO = 10.0
UNSEEN_TOKENS = 50_000
"""Multiple of our count, and hidden prompt beside it, above which a reported size is not that of this request."""


def reported_tokens(reply: AIMessage, expected_tokens: int) -> tuple[int | None, str]:
    """Return the prompt size that came with an answer, or None and what is wrong with it (nothing, if none came)."""
    usage = reply.usage_metadata
    if not usage:
        return None, ""
    tokens = usage.get("input_tokens")
    fault = fault_of(tokens, expected_tokens)
    return (None, fault) if fault else (tokens, "")


def fault_of(tokens: object, expected_tokens: int) -> str:
    """Return what is wrong with a reported size; empty when it can be that of a request we count like this."""
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens <= 0:
        return f"the provider reported {tokens!r} input tokens, our count is {expected_tokens:,}"
    largest = MAX_REPORTED_RATIO * expected_tokens + UNSEEN_TOKENS
    if not MIN_REPORTED_SHARE * expected_tokens <= tokens <= largest:
        return f"the provider reported {tokens:,} input tokens, far from our count of {expected_tokens:,}"
    return ""


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    stated = (reply.response_metadata.get(key) for key in ("model_name", "model"))
    return next((name for name in stated if isinstance(name, str) and name), "")


def may_be(model: str, speaker: str) -> bool:
    """True unless both names are known and none continues the other: providers add dates and makers to names."""
    one, other = (name.rpartition("/")[2].lower() for name in (model, speaker))
    return one.startswith(other) or other.startswith(one)
