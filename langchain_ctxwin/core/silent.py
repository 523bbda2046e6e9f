"""Did a provider cut a request or an answer at its window without saying so?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.overflow import ContextOverflow

STOP_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Where the integrations keep why an answer ended (OpenAI, Mistral, Google; Anthropic; Ollama; Bedrock)."""

LENGTH_STOPS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
"""The answer ended because something was full: the requested output, or the window."""

WINDOW_STOP = "model_context_window_exceeded"
"""The one reason that names the window."""

CUT_SHARE = 0.95
"""An answer shorter than this part of what was requested did not end at the request's own limit: servers that count a
stop token or a template differ by a few tokens, not by 5 %."""

EDGE_SHARE = 0.01
"""Reported sizes this close to a known limit count as having reached it; servers keep a few tokens for themselves."""

WINDOW_STEP_TOKENS = 1_024
"""Windows of local servers are multiples of this, none is smaller; other counts are so once in a thousand times."""

STOP_TOKENS = 2
"""Servers count the token at which they stopped, or not. A wider margin would be met by chance too often."""

OUTPUT_STEPS_TOKENS = (256, 500)
"""Servers set their own output limits to multiples of one of these (4,096; 8,000); a window leaves any number."""

SAME_TOKENS = 8
"""Reports that differ by no more are the same: servers cut a prompt at its text's tokens and count their template."""

GROWTH_SHARE, GROWTH_TOKENS = 0.05, 64
"""A request that grew by less than either may be counted as large as before: templates drop old reasoning blocks."""

CERTAIN_SHARE = 0.8
"""A report below this part of our own lower bound is no counting error; that bound alone is wrong by less than 20 %."""


def silent_overflow(
    reply: AIMessage,
    *,
    input_limit: int,
    context_window: int | None,
    requested_output_tokens: int | None,
    least_input_tokens: int,
    previous: tuple[int, int] | None = None,
) -> ContextOverflow | None:
    """Recognise in a reply an overflow that the server did not report as an error.

    Either the window ended the answer (llama.cpp, vLLM), or the server dropped a part of the prompt to make it fit
    (Ollama). A false alarm throws a good answer away and teaches a wrong window, so a size counts only where a window
    can be: at a known limit or at a multiple of `WINDOW_STEP_TOKENS`. Without usable sizes in the reply only a stop
    reason that names the window counts, and no limit is stated. Never raises.

    Args:
        reply: The message that came back; its `usage_metadata` counts cached tokens as input, too.
        input_limit: Tokens that the input may have, as far as known.
        context_window: Tokens that input and output may have together, where known.
        requested_output_tokens: Tokens that were requested for the answer, where known.
        least_input_tokens: Lower bound of our own count of the request.
        previous: Tokens reported for an earlier request that this one extends, and the least that was added since.
    """
    sizes, reasons = _reported(reply), _stop_reasons(reply)
    is_short = sizes is not None and sizes[0] < least_input_tokens * CERTAIN_SHARE
    named, limits = WINDOW_STOP in reasons, (input_limit, context_window or 0)
    if sizes is None or (named and is_short):
        return ContextOverflow(None, None, "input_plus_output", requested_output_tokens) if named else None
    ended = bool(reasons & LENGTH_STOPS) and _window_ended(sizes, context_window or 0, requested_output_tokens)
    if named or (ended and not is_short):
        return ContextOverflow(sum(sizes), sizes[0], "input_plus_output", requested_output_tokens)
    if previous is None:
        return ContextOverflow(sizes[0], None, "input") if is_short and _at_window(sizes[0], limits, 0) else None
    stands = sizes[0] < least_input_tokens and _did_not_grow(sizes[0], previous)
    is_pinned = stands and _at_window(sizes[0], limits, SAME_TOKENS)
    return ContextOverflow(max(sizes[0], previous[0]), None, "input") if is_pinned else None


def _window_ended(sizes: tuple[int, int], window: int, requested: int | None) -> bool:
    if requested is not None and sizes[1] >= requested * CUT_SHARE:
        return False
    if _reached(sum(sizes), window):
        return True
    is_capped = any(_near_multiple(sizes[1], step, SAME_TOKENS) for step in OUTPUT_STEPS_TOKENS)
    return requested is not None and not is_capped and _near_multiple(sum(sizes), WINDOW_STEP_TOKENS, STOP_TOKENS)


def _did_not_grow(input_tokens: int, previous: tuple[int, int]) -> bool:
    before, added = previous
    clearly_more = added >= GROWTH_TOKENS and added >= before * GROWTH_SHARE
    return clearly_more and abs(input_tokens - before) <= SAME_TOKENS


def _at_window(input_tokens: int, limits: tuple[int, ...], slack_tokens: int) -> bool:
    if input_tokens + slack_tokens < WINDOW_STEP_TOKENS:
        return False
    at_limit = any(_reached(input_tokens, limit) for limit in limits)
    return at_limit or _near_multiple(input_tokens, WINDOW_STEP_TOKENS, slack_tokens)


def _reached(tokens: int, limit: int) -> bool:
    return limit > 0 and abs(tokens - limit) <= limit * EDGE_SHARE


def _near_multiple(tokens: int, step_tokens: int, slack_tokens: int) -> bool:
    nearest = (tokens + step_tokens // 2) // step_tokens * step_tokens
    return nearest > 0 and abs(tokens - nearest) <= slack_tokens


def _reported(reply: AIMessage) -> tuple[int, int] | None:
    """Input and output tokens, or None when the reply does not state both, or leaves cached input out."""
    usage: object = reply.usage_metadata
    if not isinstance(usage, Mapping):
        return None
    input_tokens, output_tokens = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if not input_tokens or output_tokens is None or _cached(usage) > input_tokens:
        return None
    return input_tokens, output_tokens


def _cached(usage: Mapping[str, Any]) -> int:
    details: object = usage.get("input_token_details")
    if not isinstance(details, Mapping):
        return 0
    return sum(_count(details, key) or 0 for key in ("cache_read", "cache_creation"))


def _count(usage: Mapping[str, Any], key: str) -> int | None:
    tokens = usage.get(key)
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 else None


def _stop_reasons(reply: AIMessage) -> set[str]:
    metadata: object = reply.response_metadata
    if not isinstance(metadata, Mapping):
        return set()
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    reasons = [metadata.get(key) for key in STOP_KEYS]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return {reason.rpartition(".")[2].lower() for reason in reasons if isinstance(reason, str)}
