"""Recovery from a refused or cut request: what it teaches, how small the next attempt is, or how much less output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from langchain_ctxwin.core.limits import (
    lowered,
    models_behind,
    reserve_within,
    stated_limit,
    unrefuted,
)
from langchain_ctxwin.core.media import (
    NO_LIMITS,
    MediaLimits,
    MediaSize,
    learned_limits,
)
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.updates import MAX_MODELS, bounded, from_refusal
from langchain_ctxwin.core.usage import is_count, sent_tokens

BLIND_STEP = 0.75
"""Part of a refused size that a retry aims for when nothing says why it was refused: two tries halve a request."""


def retry_target(window: Window, overflow: ContextOverflow) -> int:
    """Upper bound that a refused request must come down to, measured again with all that the refusal taught.

    That is the input limit, when the request is now known to be over it. One that seems to fit was refused for reasons
    that we cannot count, and has to become much smaller: as small as the limit that was stated, if the request can,
    also where that is not believed.
    """
    if window.over_by:
        return window.budget.input_limit
    blind = int(BLIND_STEP * window.upper_tokens)
    stated = stated_limit(
        overflow, window.limits, kept_tokens=window.budget.input_limit
    )
    limits = lowered(window.limits, stated)
    limit = limits.input_limit(
        reserve_within(limits, window.budget.reserved_tokens, learned=bool(stated))
    )
    return min(blind, limit) if limit > window.least_fixed_tokens else blind


def refused(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return `context_counts` after a refusal: the smallest limit, and what the stated size says about our counts.

    A refusal that states no limit teaches one between what was refused and what was taken before; without it, the same
    unstated limit would be met again and again.
    """
    if media := media_after(window, overflow):
        return {**window.session.counts, "media": media}
    counts = from_refusal(window, stated_input(overflow))
    learned = learned_limit(window, overflow)
    if not learned and not window.over_by:
        refused_tokens, taken = (
            window.total_tokens,
            window.last_report.tokens if window.last_report else 0,
        )
        limit = max(int(BLIND_STEP * refused_tokens), (refused_tokens + taken) // 2)
        learned = unrefuted({"max_input_tokens": limit}, accepted_tokens(window))
    before = remembered_limit(window.session, window.parts.model)
    if not learned or min([*before.values(), *learned.values()]) < min(
        learned.values()
    ):
        return counts
    return {
        **counts,
        "limits": bounded(
            counts.get("limits"), window.parts.model, learned, MAX_MODELS
        ),
    }


def learned_limit(window: Window, overflow: ContextOverflow) -> dict[str, int]:
    """Return the limit that the refusal of a request states; empty when the model took more before."""
    kept, taken = window.budget.input_limit, accepted_tokens(window)
    return stated_limit(
        overflow, window.limits, kept_tokens=kept, accepted_tokens=taken
    )


def accepted_tokens(window: Window) -> int:
    """Return the largest input that the model of a request is known to have taken; 0 when none is."""
    anchor = window.session.counts.get("anchor") or {}
    own = anchor["tokens"] if anchor.get("model") == window.answering_model else 0
    return max(own, window.last_report.tokens if window.last_report else 0)


def media_after(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return what is known of pictures and bytes, by model, after a refusal because of them; empty after another."""
    sent = MediaSize.of_all(window.assembled())
    learned = learned_limits(overflow, sent).smallest(
        learned_media(window.session, window.parts.model)
    )
    if overflow.unit == "tokens" or learned == NO_LIMITS:
        return {}
    return bounded(
        window.session.counts.get("media"),
        window.parts.model,
        learned.to_json(),
        MAX_MODELS,
    )


def learned_media(session: Session, model: str) -> MediaLimits:
    """Return what a conversation learned of the pictures and bytes that a model takes."""
    known: Mapping[str, int] = (session.counts.get("media") or {}).get(model) or {}
    return MediaLimits(
        max_bytes=known.get("max_bytes"), max_images=known.get("max_images")
    )


def remembered_limit(session: Session, model: str) -> dict[str, int]:
    """Return the limit that a conversation learned of a model, unless it took more since."""
    anchor = session.counts.get("anchor") or {}
    is_same = anchor.get("model") == session.answering_model(model)
    return unrefuted(session.learned_limit(model), anchor["tokens"] if is_same else 0)


def stated_input(overflow: ContextOverflow) -> int | None:
    """Return the input that the provider counted; a stated sum has the requested output taken off."""
    if (
        overflow.actual is None
        or overflow.kind == "input"
        or overflow.requested_output is None
    ):
        return overflow.actual
    inside_sum = overflow.limit is not None and overflow.actual > overflow.limit
    return (
        overflow.actual - overflow.requested_output if inside_sum else overflow.actual
    )


# Names that integrations take for one call, too; `num_predict` of local servers is for construction only.
CALL_ARGUMENTS = ("max_tokens", "max_output_tokens", "max_completion_tokens")
LEAST_OUTPUT_TOKENS = 256  # shortest answer worth asking for: about a long paragraph, or a tool call with its arguments
LEAST_OUTPUT_SHARE = 0.25  # part of the requested output that has to remain: a shorter answer is likely cut off
EDGE_TOKENS = 16  # room between input and output: servers count a stop token or the start of the answer beside both


def output_tokens_of(arguments: Mapping[str, Any]) -> int | None:
    """Return the output that the arguments of a call ask for; None when they do not say."""
    asked = (arguments.get(name) for name in CALL_ARGUMENTS)
    return next(
        (tokens for tokens in asked if isinstance(tokens, int) and tokens > 0), None
    )


def smaller_output(call: object, overflow: ContextOverflow) -> dict[str, int]:
    """Return the argument that asks `call` for as much output as is left; empty when too little is, or it has none."""
    actual, name = stated_input(overflow), output_argument(call)
    if (
        not name
        or overflow.kind != "input_plus_output"
        or overflow.limit is None
        or actual is None
    ):
        return {}
    room = overflow.limit - actual - EDGE_TOKENS
    least = max(
        least_output(call), LEAST_OUTPUT_SHARE * (overflow.requested_output or 0)
    )
    return {name: room} if room >= least else {}


def fitting_output(
    call: object, *, requested_tokens: int, room_tokens: int
) -> dict[str, int]:
    """Return the argument that asks `call` for no more output than there is room for; empty when it need not."""
    name = (
        output_argument(call)
        if least_output(call) <= room_tokens < requested_tokens
        else ""
    )
    return {name: room_tokens} if name else {}


def output_argument(call: object) -> str:
    """Name of the argument by which a model, or a binding around one, was set to request its output; else empty."""
    model, bound = only_model(call) or (None, {})
    return next(
        (
            name
            for name in CALL_ARGUMENTS
            if bound.get(name) or getattr(model, name, None)
        ),
        "",
    )


def least_output(call: object) -> int:
    """Tokens that an answer needs at least: the thinking that the model was set to do counts as output, too."""
    model, bound = only_model(call) or (None, {})
    thinking = bound.get("thinking") or getattr(model, "thinking", None)
    budget = (
        thinking.get("budget_tokens")
        if isinstance(thinking, Mapping)
        else getattr(model, "thinking_budget", None)
    )
    return LEAST_OUTPUT_TOKENS + (
        budget if isinstance(budget, int) and budget > 0 else 0
    )


def only_model(call: object) -> tuple[Any, dict[str, Any]] | None:
    """Return the one model that every call goes to and what is bound to it; None when a run may choose another."""
    runnable = call
    while isinstance(runnable, RunnableBindingBase):
        runnable = runnable.bound
    models = [] if isinstance(runnable, DynamicRunnable) else list(models_behind(call))
    return models[0] if len(models) == 1 else None


# Where the integrations keep why an answer ended (OpenAI, Mistral, Google; Anthropic; Ollama; Bedrock).
STOP_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
# The answer ended because something was full: the requested output, or the window.
LENGTH_STOPS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
WINDOW_STOP = "model_context_window_exceeded"  # the one reason that names the window
# An answer shorter than this part of what was requested did not end at the request's own limit, and a size this close
# to a known limit has reached it: servers that count a stop token or a template differ by a few tokens, not by 5 %.
CUT_SHARE, EDGE_SHARE = 0.95, 0.01
# Windows of local servers are multiples of this, none is smaller; other counts are so once in a thousand times.
WINDOW_STEP_TOKENS = 1_024
# Servers set their own output limits to multiples of one of these (4,096; 8,000); a window leaves any number.
OUTPUT_STEPS_TOKENS = (256, 500)
# Servers count the token at which they stopped, or not, and the tokens of their template beside a prompt that they
# cut. A wider margin would be met by chance too often.
STOP_TOKENS, SAME_TOKENS = 2, 8
# A request that grew by less may be counted as large as before: templates drop old reasoning blocks.
GROWTH_TOKENS = 64
# A report below this part of our own lower bound is no counting error; that bound alone is wrong by less than 20 %.
CERTAIN_SHARE = 0.8
# Servers that leave cached tokens out report what was added since the last request, and up to a block of their cache:
# OpenAI's and Gemini's begin at 1,024 tokens. Our estimate of what was added may be this far off, and its lower bound.
CACHE_BLOCK_TOKENS, ADDED_DOUBT, LEAST_ADDED_DOUBT = 1_024, 1.25, 1.5
# of a prompt that does not fit, some servers keep half their window
KEPT_STEP_TOKENS = WINDOW_STEP_TOKENS // 2


def silent_overflow(
    reply: AIMessage,
    *,
    input_limit: int,
    context_window: int | None,
    requested_output_tokens: int | None,
    least_input_tokens: int,
    previous: tuple[int, int] | None = None,
    small: tuple[int, int, int] | None = None,
) -> ContextOverflow | None:
    """Recognise in a reply an overflow that the server did not report as an error.

    Either the window ended the answer (llama.cpp, vLLM), or the server dropped a part of the prompt to make it fit
    (Ollama). A false alarm throws a good answer away and teaches a wrong window, so a size counts only where a window
    can be: at a known limit or at a multiple of `WINDOW_STEP_TOKENS`. Without usable sizes in the reply only a stop
    reason that names the window counts, and no limit is stated. Never raises.

    `least_input_tokens` is the lower bound of our own count; `previous` are the tokens reported for an earlier request
    that this one extends, and the least that was added since. `small` are the tokens reported for the last request
    when those were too few, our count of it, and what was added since: the same few tokens again are what the server
    keeps of a prompt that exceeds its window.
    """
    sizes, reasons = _reported(reply), _stop_reasons(reply)
    is_short = sizes is not None and sizes[0] < least_input_tokens * CERTAIN_SHARE
    named, limits = WINDOW_STOP in reasons, (input_limit, context_window or 0)
    if sizes is None or (named and is_short):
        return (
            ContextOverflow(None, None, "input_plus_output", requested_output_tokens)
            if named
            else None
        )
    ended = bool(reasons & LENGTH_STOPS) and _window_ended(
        sizes, context_window or 0, requested_output_tokens
    )
    if named or (ended and not is_short):
        return ContextOverflow(
            sum(sizes), sizes[0], "input_plus_output", requested_output_tokens
        )
    if small is not None:
        is_kept = is_short and _is_kept_again(sizes[0], small)
        limit = _cut_limit(sizes[0], small[1], previous[0] if previous else 0)
        return ContextOverflow(limit, None, "input") if is_kept else None
    if previous is None:
        return (
            ContextOverflow(sizes[0], None, "input")
            if is_short and _at_window(sizes[0], limits, 0)
            else None
        )
    before, added = previous
    is_pinned = sizes[0] < least_input_tokens and _is_same(
        sizes[0], before, added, LEAST_ADDED_DOUBT
    )
    is_pinned = is_pinned and _at_window(sizes[0], limits, SAME_TOKENS)
    return ContextOverflow(max(sizes[0], before), None, "input") if is_pinned else None


def _is_kept_again(input_tokens: int, small: tuple[int, int, int]) -> bool:
    """True for the same few tokens again: half of a window, or more than a cache explains that holds whole blocks."""
    before, _, added = small
    if not _is_same(input_tokens, before, added):
        return False
    is_half = input_tokens >= KEPT_STEP_TOKENS and _near_multiple(
        input_tokens, KEPT_STEP_TOKENS, SAME_TOKENS
    )
    return (
        is_half
        or not added / ADDED_DOUBT
        <= input_tokens
        <= added * ADDED_DOUBT + CACHE_BLOCK_TOKENS
    )


def _is_same(
    input_tokens: int, before: int, added: int, doubt: float = ADDED_DOUBT
) -> bool:
    """True for the same size again although the request grew.

    That is what a server keeps, whatever it is sent; what was added is what others report that leave out their cache.
    """
    is_added = (
        added / doubt - SAME_TOKENS <= input_tokens <= added * doubt + SAME_TOKENS
    )
    return (
        added >= GROWTH_TOKENS
        and abs(input_tokens - before) <= SAME_TOKENS
        and not is_added
    )


def _cut_limit(kept_tokens: int, cut_tokens: int, taken_tokens: int) -> int:
    """Return the limit of a server that kept so much of a request of `cut_tokens`, and took one of `taken_tokens`.

    It is between the two; where that can be, it is twice what was kept.
    """
    twice = 2 * KEPT_STEP_TOKENS * round(kept_tokens / KEPT_STEP_TOKENS)
    is_half = (
        _near_multiple(kept_tokens, KEPT_STEP_TOKENS, SAME_TOKENS)
        and taken_tokens <= twice < cut_tokens
    )
    return twice if is_half else max(kept_tokens, taken_tokens)


def _window_ended(sizes: tuple[int, int], window: int, requested: int | None) -> bool:
    if requested is not None and sizes[1] >= requested * CUT_SHARE:
        return False
    if _reached(sum(sizes), window):
        return True
    is_capped = any(
        _near_multiple(sizes[1], step, SAME_TOKENS) for step in OUTPUT_STEPS_TOKENS
    )
    return (
        requested is not None
        and not is_capped
        and _near_multiple(sum(sizes), WINDOW_STEP_TOKENS, STOP_TOKENS)
    )


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
    """Input and output tokens; None when the reply leaves some of them out, or the provider compacted the request."""
    usage: object = reply.usage_metadata
    if not isinstance(usage, Mapping):
        return None
    details = usage.get("input_token_details")
    parts = (
        [details.get(key) for key in ("cache_read", "cache_creation")]
        if isinstance(details, Mapping)
        else []
    )
    cached = sum(tokens for tokens in parts if is_count(tokens))
    input_tokens, output_tokens = sent_tokens(reply), usage.get("output_tokens")
    if (
        is_count(input_tokens)
        and is_count(output_tokens)
        and max(1, cached) <= input_tokens
    ):
        return input_tokens, output_tokens
    return None


def _stop_reasons(reply: AIMessage) -> set[str]:
    metadata: object = reply.response_metadata
    if not isinstance(metadata, Mapping):
        return set()
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    reasons = [metadata.get(key) for key in STOP_KEYS]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return {
        reason.rpartition(".")[2].lower()
        for reason in reasons
        if isinstance(reason, str)
    }
