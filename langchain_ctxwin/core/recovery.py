"""Recovery from a refused or cut request: what it teaches, how small the next attempt is, or how much less output."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.limits import (
    is_possible,
    models_behind,
    stated_limit,
)
from langchain_ctxwin.core.measuring import (
    from_refusal,
    remembered_limit,
)
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.provider_blocks import MediaSize, learned_limits
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.sizing import is_count, sent_tokens
from langchain_ctxwin.core.usage import stop_reasons

BLIND_STEP = 0.75
"""Part of a refused size that a retry aims for when nothing says why it was refused: two tries halve a request."""


def retry_target(window: Window) -> int:
    """Upper bound that a refused request must come down to, measured again with all that the refusal taught.

    That is the input limit, when the request is now known to be over it. One that seems to fit was refused for reasons
    that we cannot count, and has to become much smaller.
    """
    limit = window.budget.input_limit
    return limit if window.over_by else int(BLIND_STEP * window.upper_tokens)


def refused(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return `context_counts` after a refusal: the smallest limit, and what the stated size says about our counts.

    A refusal that states no limit teaches one between what was refused and what was taken before; without it, the same
    unstated limit would be met again and again.
    """
    counts, model = window.session.counts, window.parts.model
    if media := learned_limits(overflow, MediaSize.of_all(window.assembled())):
        before = counts.get("media") or {}
        own = {**before.get(model, {}), **media}
        return {**counts, "media": {**before, model: own}}
    counts = from_refusal(window, stated_input(overflow))
    taken = accepted_tokens(window)
    limit = stated_limit(overflow, taken, window.parts.declared)
    if limit is None and not window.over_by:
        refused_tokens = window.total_tokens
        least = max(int(BLIND_STEP * refused_tokens), (refused_tokens + taken) // 2)
        is_shared = not window.limits.max_input_tokens
        # the reserve of a learned window is at most a quarter of it
        beside = min(window.reserved_tokens, least // 3) if is_shared else 0
        limit = least + beside if is_possible(least, taken) else None
    if limit is None or limit > (remembered_limit(window.session, model) or inf):
        return counts
    return {**counts, "limits": {**(counts.get("limits") or {}), model: limit}}


def accepted_tokens(window: Window) -> int:
    """Return the largest input that the model of a request is known to have taken; 0 when none is."""
    anchor = window.session.counts.get("anchor") or {}
    own = anchor["tokens"] if anchor.get("model") == window.parts.model else 0
    return max(own, window.last_report.tokens if window.last_report else 0)


def stated_input(overflow: ContextOverflow) -> int | None:
    """Return the input that the provider counted; a stated sum has the requested output taken off."""
    actual, output = overflow.actual, overflow.requested_output
    if actual is None or output is None or overflow.kind == "input":
        return actual
    is_sum = overflow.limit is not None and actual > overflow.limit
    return actual - output if is_sum else actual


# Names that integrations take for one call, too; `num_predict` of local servers is for construction only.
CALL_ARGUMENTS = ("max_tokens", "max_output_tokens", "max_completion_tokens")
LEAST_OUTPUT_TOKENS = 256  # shortest answer worth asking for: about a long paragraph, or a tool call with its arguments
LEAST_OUTPUT_SHARE = 0.25  # part of the requested output that has to remain: a shorter answer is likely cut off
EDGE_TOKENS = 16  # room between input and output: servers count a stop token or the start of the answer beside both


def output_tokens_of(arguments: Mapping[str, Any]) -> int | None:
    """Return the output that the arguments of a call ask for; None when they do not say."""
    requested = (arguments.get(name) for name in CALL_ARGUMENTS)
    return next(
        (tokens for tokens in requested if isinstance(tokens, int) and tokens > 0), None
    )


def smaller_output(call: object, overflow: ContextOverflow) -> dict[str, int]:
    """Return the argument that asks `call` for as much output as is left; empty when too little is, or it has none."""
    actual, limit = stated_input(overflow), overflow.limit
    if overflow.kind == "input" or limit is None or actual is None:
        return {}
    room = limit - actual - EDGE_TOKENS
    requested = overflow.requested_output or limit
    is_enough = room >= LEAST_OUTPUT_SHARE * (overflow.requested_output or 0)
    if not is_enough:
        return {}
    return fitting_output(call, requested_tokens=requested, room_tokens=room)


def fitting_output(
    call: object, *, requested_tokens: int, room_tokens: int
) -> dict[str, int]:
    """Return the argument that asks `call` for no more output than there is room for; empty when it need not.

    It is the one by which the model, or a binding around it, was set. The thinking that a model was set to do counts as
    output, too.
    """
    model, bound = only_model(call) or (None, {})
    set_names = (n for n in CALL_ARGUMENTS if bound.get(n) or getattr(model, n, None))
    name = next(set_names, None)
    thinking = bound.get("thinking") or getattr(model, "thinking", None)
    budget = getattr(model, "thinking_budget", None)
    if isinstance(thinking, Mapping):
        budget = thinking.get("budget_tokens")
    least = LEAST_OUTPUT_TOKENS + max(0, budget or 0)
    return (
        {name: room_tokens} if name and least <= room_tokens < requested_tokens else {}
    )


def only_model(call: object) -> tuple[Any, dict[str, Any]] | None:
    """Return the one model that every call goes to and what is bound to it; None when a run may choose another."""
    models = list(models_behind(call))
    return models[0] if len(models) == 1 else None


# The answer ended because something was full: the requested output, or the window.
LENGTH_STOPS = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "model_length",
        "model_context_window_exceeded",
    }
)
# An answer shorter than this part of what was requested did not end at the request's own limit, and a size this close
# to the window has reached it: servers that count a stop token or a template differ by a few tokens, not by 5 %.
CUT_SHARE, EDGE_SHARE = 0.95, 0.01
# Servers count the tokens of their template beside a prompt that they cut, or not.
SAME_TOKENS = 8
# A request that grew by less may be counted as large as before: templates drop old reasoning blocks.
GROWTH_TOKENS = 64
# A report below this part of our own lower bound is no counting error; that bound alone is wrong by less than 20 %.
CERTAIN_SHARE = 0.8
# Servers that leave cached tokens out report what was added since the last request, and up to a block of their cache:
# OpenAI's and Gemini's begin at 1,024 tokens. Our estimate of what was added may be this far off.
CACHE_BLOCK_TOKENS, ADDED_DOUBT = 1_024, 1.25


def silent_overflow(
    reply: AIMessage,
    *,
    context_window: int | None,
    requested_output_tokens: int | None,
    least_input_tokens: int,
    previous: tuple[int, int] | None = None,
    accepted_tokens: int = 0,
) -> ContextOverflow | None:
    """Recognise in a reply an overflow that the server did not report as an error.

    Either the window ended the answer (llama.cpp, vLLM), or the server dropped a part of the prompt to make it fit
    (Ollama): then it reports the same size again although the request grew. Never raises.

    Args:
        reply: the answer, with its usage and the reason why it ended.
        context_window: of the model, where it is known.
        requested_output_tokens: the longest answer that was asked for.
        least_input_tokens: the lower bound of our own count.
        previous: the input that was reported before, and how much was added since.
        accepted_tokens: the largest input that the server is known to have read whole.
    """
    sizes = _reported(reply)
    if sizes is None:
        return None
    input_tokens, output_tokens = sizes
    reasons = {reason.rpartition(".")[2].lower() for reason in stop_reasons(reply)}
    total, window = sum(sizes), context_window or 0
    is_short = input_tokens < CERTAIN_SHARE * least_input_tokens
    is_at_edge = abs(total - window) <= EDGE_SHARE * window and not is_short
    is_cut_early = output_tokens < CUT_SHARE * (requested_output_tokens or inf)
    if is_at_edge and is_cut_early and reasons & LENGTH_STOPS:
        return ContextOverflow(
            total, input_tokens, "input_plus_output", requested_output_tokens
        )
    if input_tokens >= least_input_tokens or not _is_cut(input_tokens, previous):
        return None
    # Some servers keep half their window of a prompt that exceeds it.
    is_half = accepted_tokens <= 2 * input_tokens < least_input_tokens
    limit = 2 * input_tokens if is_half else max(input_tokens, accepted_tokens)
    return ContextOverflow(limit, None, "input")


def _is_cut(input_tokens: int, previous: tuple[int, int] | None) -> bool:
    """True for the same size again although the request grew, where that is not what a cache did not hold."""
    if previous is None:
        return False
    before, added = previous
    is_same = abs(input_tokens - before) <= SAME_TOKENS
    least, most = added / ADDED_DOUBT, added * ADDED_DOUBT + CACHE_BLOCK_TOKENS
    return is_same and added >= GROWTH_TOKENS and not least <= input_tokens <= most


def _reported(reply: AIMessage) -> tuple[int, int] | None:
    """Input and output tokens; None when the reply leaves some of them out, or the provider compacted the request."""
    usage: Mapping[str, Any] = reply.usage_metadata or {}
    parts = usage.get("input_token_details") or {}
    cached = sum(parts.get(key) or 0 for key in ("cache_read", "cache_creation"))
    tokens, output_tokens = sent_tokens(reply), usage.get("output_tokens")
    if is_count(tokens) and is_count(output_tokens) and tokens >= max(1, cached):
        return tokens, output_tokens
    return None
