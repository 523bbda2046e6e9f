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
"""Reported sizes this close to a limit count as having reached it; servers keep a few tokens for themselves."""

GROWTH_SHARE, GROWTH_TOKENS = 0.05, 64
"""A request that grew by less than both may be counted as large as before: templates drop old reasoning blocks."""

CERTAIN_SHARE = 0.8
"""A report below this part of our own lower bound is no counting error; that bound alone is wrong by less than 20 %."""

WINDOW_STEP_TOKENS = 1_024
"""Windows of local servers are multiples of this; other counts are so by chance once in a thousand requests."""


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

    Either the window ended the answer (llama.cpp, Ollama, vLLM), or the server dropped a part of the prompt to make it
    fit (Ollama). Never raises. Without usable sizes in the reply only a stop reason that names the window counts.

    Args:
        reply: The message that came back; its `usage_metadata` counts cached tokens as input, too.
        input_limit: Tokens that the input may have, as far as known.
        context_window: Tokens that input and output may have together, where known.
        requested_output_tokens: Tokens that were requested for the answer, where known.
        least_input_tokens: Lower bound of our own count of the request.
        previous: Tokens reported for an earlier request that this one extends, and the least that was added since.
    """
    sizes, reasons = _reported(reply), _stop_reasons(reply)
    if sizes is None:
        named = WINDOW_STOP in reasons
        return ContextOverflow(None, None, "input_plus_output", requested_output_tokens) if named else None
    input_tokens, output_tokens = sizes
    if _answer_was_cut(reasons, sizes, context_window, requested_output_tokens):
        total = input_tokens + output_tokens
        return ContextOverflow(total, input_tokens, "input_plus_output", requested_output_tokens)
    limits = (input_limit, context_window or 0)
    pinned = _did_not_grow(input_tokens, previous) if previous else _is_short(input_tokens, least_input_tokens, limits)
    return ContextOverflow(input_tokens, None, "input") if pinned else None


def _answer_was_cut(reasons: set[str], sizes: tuple[int, int], window: int | None, requested: int | None) -> bool:
    if WINDOW_STOP in reasons:
        return True
    if not reasons & LENGTH_STOPS:
        return False
    if requested is not None:
        return sizes[1] < requested * CUT_SHARE
    return bool(window) and sum(sizes) >= (window or 0) * (1 - EDGE_SHARE)


def _did_not_grow(input_tokens: int, previous: tuple[int, int]) -> bool:
    before, added = previous
    clearly_more = added >= GROWTH_TOKENS and added >= before * GROWTH_SHARE
    return before > 0 and clearly_more and input_tokens <= before


def _is_short(input_tokens: int, least_tokens: int, limits: tuple[int, ...]) -> bool:
    if input_tokens >= least_tokens * CERTAIN_SHARE:
        return False
    at_limit = any(abs(input_tokens - limit) <= limit * EDGE_SHARE for limit in limits if limit > 0)
    return at_limit or input_tokens % WINDOW_STEP_TOKENS == 0


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
