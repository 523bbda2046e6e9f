"""Usage that an answer reports: the size of its request, and the model that answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.calibration import PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS
from langchain_ctxwin.core.native import compaction_in

# Share of our count below which a reported size is not that of this request: a server has cut it, or it is that of
# something else. The rules of thumb count at most twice too much.
MIN_REPORTED_SHARE = 0.5
# Multiple of our count, and hidden prompt beside it, above which a reported size is not that of this request.
MAX_REPORTED_RATIO = 10.0
UNSEEN_TOKENS = 50_000
# Reports in a row that contradict our count, but not each other, after which they are believed: the third time it is
# our count that is wrong (definitions that the provider defers, a medium it counts otherwise).
AGREEING_REPORTS = 3
MAX_REPORTED_TOKENS = 100_000_000  # above this no request has ever been: no row of reports makes it believed
# What may follow the name of a model without making it another one.
_VERSION = re.compile(r"|[-@:_](?:\d{3,}+|\d\d-\d\d|v?\d++$|latest|preview|exp|beta).*")


def reported_tokens(reply: AIMessage, expected: Sequence[int]) -> tuple[int | None, str]:
    """Return the prompt size that came with an answer, or None and what is wrong with it (nothing, if none came).

    The size has to be near one of our own counts of the request, `expected`.
    """
    if not reply.usage_metadata or compaction_in(reply):  # the size of what the provider made of the request
        return None, ""
    tokens = sent_tokens(reply)
    fault = fault_of(tokens, expected)
    return (None, fault) if fault else (tokens, "")


def sent_tokens(reply: AIMessage) -> Any:
    """Return the size of the request behind an answer as its provider states it, in tokens; None when it does not."""
    usage: Mapping[str, Any] = reply.usage_metadata or {}
    tokens = usage.get("input_tokens")
    return tokens + cleared_tokens(reply) if isinstance(tokens, int) else tokens


def cleared_tokens(reply: AIMessage) -> int:
    """Return what the provider left out of the prompt by its own edits, Anthropic's `context_management`, in tokens.

    It was sent all the same, and counts again in the next request.
    """
    managed = reply.response_metadata.get("context_management")
    edits = managed.get("applied_edits") if isinstance(managed, Mapping) else None
    listed = edits if isinstance(edits, list) else []
    found = [edit.get("cleared_input_tokens") for edit in listed if isinstance(edit, Mapping)]
    return sum(size for size in found if isinstance(size, int) and size > 0)


def fault_of(tokens: object, expected: Sequence[int]) -> str:
    """Return what is wrong with a reported size; empty when it can be that of a request that we count like this."""
    if not is_count(tokens) or not tokens:
        return f"the provider reported {tokens!r} input tokens, our count is {_either(expected)}"
    if any(MIN_REPORTED_SHARE * count <= tokens and not is_absurd(tokens, count) for count in expected):
        return ""
    return f"the provider reported {tokens:,} input tokens, far from our count of {_either(expected)}"


def _either(counts: Sequence[int]) -> str:
    return " or ".join(f"{count:,}" for count in dict.fromkeys(counts))


def agreeing(before: Mapping[str, Any] | None, model: str, tokens: object, estimate: int) -> dict[str, Any] | None:
    """Return the stored row of reports that contradict our counts, with one more; None when this can be no size.

    Reports follow a conversation when they grow by what it grew by, within the bounds of `is_plausible`. Those of a
    server that cuts requests, or leaves cached tokens out, stay where they are while the conversation grows.
    The row begins anew when a report does not follow its first one, or that of another model.
    """
    if not is_count(tokens) or not 0 < tokens <= MAX_REPORTED_TOKENS:
        return None
    if before and before["model"] == model:
        grown, added = tokens - before["tokens"], estimate - before["estimate"]
        least, most = sorted((added / PLAUSIBLE_RATIO, added * PLAUSIBLE_RATIO))
        if least - PLAUSIBLE_TOKENS <= grown <= most + PLAUSIBLE_TOKENS:
            return {**before, "reports": before["reports"] + 1}
    return {"model": model, "tokens": tokens, "estimate": estimate, "reports": 1}


def is_absurd(tokens: int, count: int) -> bool:
    """True for a size that no hidden prompt explains."""
    return tokens > MAX_REPORTED_RATIO * count + UNSEEN_TOKENS


def is_count(tokens: object) -> TypeGuard[int]:
    """True for a whole number that is not negative."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    for key in ("model_name", "model"):
        name = reply.response_metadata.get(key)
        if isinstance(name, str) and name:
            return name
    return ""


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted((name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len)
    return not one or (other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :])))
