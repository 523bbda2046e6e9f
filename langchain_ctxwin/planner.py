"""Plans for a measured request: what leaves the view, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from langchain_core.messages import SystemMessage

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core import planning
from langchain_ctxwin.core.budget import Kept, refusal
from langchain_ctxwin.core.compaction import Compaction, shown_messages
from langchain_ctxwin.core.edits import edit, text_of
from langchain_ctxwin.core.notes import is_asked
from langchain_ctxwin.core.outcome import ready
from langchain_ctxwin.core.planning import Snapshot
from langchain_ctxwin.core.priced_view import PricedView, Request
from langchain_ctxwin.core.session import MAX_INEFFECTIVE
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.core.window import Window, make_report
from langchain_ctxwin.errors import BudgetExceededError

EXCERPT_CHARS = 40
"""Part of a text that says which one is meant: half a line."""


def kept_in(request: Request, priced_view: PricedView) -> tuple[Kept, ...]:
    """Return the explicit pins that the request shows and the constraints, in order."""
    return (*_pins(request, priced_view), *_constraints(request))


def _pins(request: Request, priced_view: PricedView) -> Iterator[Kept]:
    shown = {message.id for step in (*priced_view.pinned, *priced_view.steps) for message in step.messages}
    for index in sorted(request.pins):
        message, key = request.messages[index], message_id(request.messages, index)
        if index < request.first or (message.id and message.id not in shown):
            continue
        clamped = ", clamped" if key in priced_view.view.clamped else ""
        tokens = _tokens(request, request.price(edit(message, key, priced_view.view)))
        yield Kept(name=f"{key} ({message.type}{clamped}) {_excerpt(text_of(message.content))}", tokens=tokens)


def _constraints(request: Request) -> Iterator[Kept]:
    for rule in request.constraints:
        tokens = _tokens(request, request.price(SystemMessage(content=rule)))
        yield Kept(name=f"constraint {_excerpt(rule)}", tokens=tokens)


def _tokens(request: Request, estimate: int) -> int:
    """The estimate of a text as the regions of a report count it."""
    return round(max(0.0, 1 + request.sizing.belief.slope) * estimate)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line[:EXCERPT_CHARS]}..."' if len(line) > EXCERPT_CHARS else f'"{line}"'


WAITING_SHARE = 1.25
"""How far a history may grow past its own bounds while a summary is awaited, as a share of them."""

ASKED = "the agent asked to compact"


def due(window: Window, *, is_local: bool) -> Compaction | None:
    """Return the summary that is due now; where no model writes summaries, what should leave in its place."""
    return shrink(window) if is_local else plan(window)


def plan(window: Window) -> Compaction | None:
    """Return the summary that is due now."""
    if not _may_summarize(window):
        return None
    settings = settings_of(window)
    trigger = _trigger(settings, settings.trigger, settings.trigger_messages)
    return planning.summarize(window.request, window.priced_view, window.goal, trigger)


def shrink(window: Window) -> Compaction | None:
    """Return what should leave now when no model writes summaries: the record tells of it, so nothing is waited for."""
    if not _may_summarize(window):
        return None
    settings, priced_view = settings_of(window), window.priced_view
    trigger = _trigger(settings, settings.trigger, settings.trigger_messages)
    reason = trigger.reason(priced_view, window.goal.room(priced_view))
    compaction = planning.emergency(window.request, priced_view, window.goal, reason=reason) if reason else None
    pays = (
        compaction
        and priced_view.total_tokens - compaction.tokens_after >= planning.MIN_PROGRESS * priced_view.total_tokens
    )
    return compaction if pays or (compaction and trigger.has_too_many(priced_view)) else None


def prepare(window: Window) -> Snapshot | None:
    """Return what a summary in the background should cover; None while one is on its way."""
    if window.session.pending or not _may_summarize(window):
        return None
    settings = settings_of(window)
    share, most = _begin(settings), settings.trigger_messages
    trigger = _trigger(settings, share, None if most is None else int(min(share, 1.0) * most))
    return planning.due_snapshot(window.request, window.priced_view, window.goal, trigger)


def relieve(window: Window) -> Compaction | None:
    """Return what should leave, or be shown, although the request fits."""
    if window.over_by:
        return None
    request, priced_view, pending = window.request, window.priced_view, window.session.pending
    if is_asked(request.messages, window.session.since):
        goal = replace(window.goal, whole_turn_share=0.0)  # a phase of the turn is done
        return planning.emergency(request, priced_view, goal, reason=ASKED, ready=ready(window))
    bound, tells_more = _past_bound(window), pending is not None and planning.shows_more(priced_view, pending)
    if not bound and not tells_more:
        return None
    summary = ready(window)
    if bound and (summary or not _is_coming(window)):
        return planning.emergency(request, priced_view, window.goal, reason=bound, ready=summary)
    if summary is None or not tells_more:
        return None
    after = planning.swapped_in(request, priced_view.view, priced_view, window.goal, summary)
    reason = "the summary of messages that had left is ready"
    return planning.compaction_of(request, priced_view, after, reason=reason) if window.goal.settles(after) else None


def emergency(window: Window, target_tokens: int | None) -> Compaction | None:
    """Return what has to leave so that the request fits, or raise `BudgetExceededError`."""
    limit = window.budget.input_limit if target_tokens is None else target_tokens
    if window.priced_view.upper_tokens <= limit:
        return None
    reason = f"a request of up to {window.priced_view.upper_tokens:,} tokens exceeds {limit:,}"
    goal, summary = replace(window.goal, limit=limit), ready(window)
    compaction = planning.emergency(window.request, window.priced_view, goal, reason=reason, ready=summary)
    view = compaction.view if compaction else window.session.view
    after = window.request.priced_view(view, summary_after(compaction, window))
    # After a refusal by the provider a smaller request is worth a try, whatever we believe of its size.
    if target_tokens is None and window.request.least_tokens(after) > limit:
        raise refusal_of(window, after)
    return compaction


def is_past_bound(window: Window) -> bool:
    """True when the history exceeds a bound of its own, whatever the request's size."""
    return bool(_past_bound(window))


def settings_of(window: Window) -> ContextConfig:
    """Return the settings that held when the request was measured."""
    settings: ContextConfig = window.about.settings
    return settings


def _may_summarize(window: Window) -> bool:
    if settings_of(window).summarize == "off" or window.goal.has_no_room(window.priced_view):
        return False
    return not window.session.has_given_up(window.request.messages)


def _begin(settings: ContextConfig) -> float:
    """Size past which a summary is begun; below what a compaction keeps, one would follow the other for ever."""
    least = max(settings.prepare, settings.keep)
    return least if least <= 1 else settings.prepare


def _is_coming(window: Window) -> bool:
    """True while a summary may be waited for although the history is past a bound of its own."""
    if not _may_summarize(window) or window.session.failed_summaries >= MAX_INEFFECTIVE:
        return False
    settings = settings_of(window)
    if settings.summarize == "background" and window.session.pending is None and prepare(window) is None:
        return False
    tokens, shown = window.priced_view.size.regions.history_tokens, shown_messages(window.priced_view)
    bounds = ((settings.max_history_tokens, tokens), (settings.trigger_messages, shown))
    return all(most is None or size <= WAITING_SHARE * most for most, size in bounds)


def _trigger(settings: ContextConfig, share: float, messages: int | None) -> planning.Trigger:
    tokens = settings.summary_max_tokens
    return planning.Trigger(share=share, messages=messages, summary_max_tokens=tokens)


def _past_bound(window: Window) -> str:
    """Which bound of its own the history exceeds, in words; empty when none."""
    settings = settings_of(window)
    tokens, shown = window.priced_view.size.regions.history_tokens, shown_messages(window.priced_view)
    most_tokens, most = settings.max_history_tokens, settings.trigger_messages
    if most_tokens is not None and tokens > most_tokens:
        return f"history of {tokens:,} tokens is past max_history_tokens={most_tokens:,}"
    return f"{shown:,} messages are past trigger_messages={most:,}" if most is not None and shown > most else ""


def summary_after(compaction: Compaction | None, window: Window) -> str:
    """Return the summary that is shown after a compaction; None is none."""
    new = compaction.summary if compaction else None
    return window.session.summary if new is None else new


def refusal_of(window: Window, after: PricedView) -> BudgetExceededError:
    """Return the error for a request that does not fit even as `after`."""
    window_tokens, guard = int(window.report["context_window"]), window.session.guard
    report = make_report(after, window.budget, context_window=window_tokens, counted_by="estimate", guard=guard)
    return refusal(report, kept=kept_in(window.request, after))
