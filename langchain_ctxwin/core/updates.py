"""Updates of the session: after a measure, a compaction, an answer with its reported size, a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import MIN_PROGRESS, Compaction, accepted_tokens
from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.parts import swaps_prefix, unbound_under
from langchain_ctxwin.core.provider_blocks import has_bound_reasoning
from langchain_ctxwin.core.request import Request, Window
from langchain_ctxwin.core.session import (
    Session,
    guard_after,
    last_position,
    read_session,
)
from langchain_ctxwin.core.sizing import ReportedSize, Sizes, Span, is_plausible
from langchain_ctxwin.core.turns import last_user
from langchain_ctxwin.core.usage import (
    answered_by,
    counted_once,
    far_off,
    fault_of,
    is_believed,
    is_count,
    may_be,
    sent_tokens,
)
from langchain_ctxwin.core.view import (
    Position,
    message_id,
    position_of,
)
from langchain_ctxwin.errors import SummarizationError

REFUSED = (
    "summary refused: "  # begins the stored reason of a summary that came to nothing
)
MAX_MODELS = (
    4  # models remembered per conversation; of more, the one learned first leaves
)


def after_measure(window: Window) -> Session:
    """Return the session after a measure: mended positions, and how many messages were seen."""
    messages = window.parts.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return replace(window.session, counts=counts, faults=())


# ---- after a compaction ---------------------------------------------------------------------------------------------


def after_compaction(
    compaction: Compaction, window: Window, request: Request
) -> Request:
    """Return the `request` that a compaction leads to, with the session that is stored from now on.

    It is priced already. The anchor goes, because the request that it counted is no longer a prefix.
    """
    session = window.session
    messages = window.parts.messages
    dropped = int(session.guard.get("dropped_turns", 0)) + compaction.dropped_turns
    guard = guard_after(
        session, messages, reason=compaction.reason, dropped_turns=dropped
    )
    is_summary = compaction.kind == "summarize" or compaction.summary is not None
    parts, view = request.parts, request.view
    unbound = unbound_under(parts, request.session, view, request.unbound)
    if swaps_prefix(parts, request.session, view):
        guard["unbound"] = asdict(position_of(messages, unbound - 1))
    if is_summary:
        guard |= (
            {"ineffective": 0}
            if _frees_enough(window, compaction, request)
            else _ineffective(window)
        )
    counts = session.unanchored
    if "tied_to" in counts:
        counts["tied_to"] = request.tied_to
    start = window.parts.start_of(request.view)
    if sizes := counts.get("sizes"):
        counts["sizes"] = {
            name: _since(stored, start) for name, stored in sizes.items()
        }
    former = {
        "context_view": session.view.to_json(),
        "context_summary": session.summary,
        "context_record": session.view.record.to_json(),
    }
    view = window.parts.history.with_checksum(request.view)
    after = replace(
        session,
        view=view,
        summary=request.summary,
        guard=guard,
        counts=counts,
        former=former,
        pending=None if is_summary else session.pending,
    )
    sizing = replace(
        request.sizing,
        spans=tuple(span for span in request.sizing.spans if span.stop > start),
    )
    return replace(
        request,
        parts=window.parts,
        session=after,
        sizing=sizing,
        view=view,
        limit=request.input_limit,
        unbound=unbound,
    )


def after_undo(window: Window) -> Session | None:
    """Return the session with the view before the latest compaction; None without one, or when its messages are gone.

    Counts as a compaction, because the prefix changes.
    """
    session = window.session
    messages = window.parts.messages
    if not session.former:
        return None
    before = read_session(session.former, window.parts.history)
    if before.faults:
        return None
    guard = guard_after(
        session, messages, reason="the latest compaction was taken back"
    )
    return replace(before, counts=session.unanchored, guard=guard)


def update_without_reasoning(window: Window) -> dict[str, Any]:
    """Return the state after a refusal of reasoning that is tied to another prefix: all of it so far is left out."""
    session, last = window.session, last_position(window.parts.messages)
    guard = {**session.guard, "unbound": last, "binding_model": window.parts.model}
    return {"context_guard": guard, "context_counts": session.unanchored}


def update_unsealed(window: Window) -> dict[str, Any]:
    """Return the state after a refusal of what the provider itself had signed or encrypted: it is sent no more."""
    session, last = window.session, last_position(window.parts.messages)
    return {
        "context_guard": {**session.guard, "unsealed": last},
        "context_view": replace(session.view, block=None).to_json(),
        "context_counts": session.unanchored,
    }


def after_summary(
    compaction: Compaction,
    window: Window,
    text: str,
    cost: Mapping[str, int],
    *,
    block: Mapping[str, Any] | None = None,
) -> Request:
    """Return the request after a summary was written: it is paid for, whether it can be used or not."""
    charged = replace(window, session=with_cost(window.session, cost))
    try:
        accepted = _accepted(text, block, compaction, charged)
        return after_compaction(compaction, charged, accepted)
    except SummarizationError as error:
        return replace(charged, session=after_failure(charged, str(error)))


def after_failure(window: Window, reason: str) -> Session:
    """Return the session after a summary that failed: only the guard changes, so that it is not tried forever."""
    guard = {
        **window.session.guard,
        **_ineffective(window),
        "reason": f"{REFUSED}{reason}",
    }
    return replace(window.session, guard=guard, pending=None)


def own_words(reason: str) -> str:
    """Return why a summary came to nothing without the words of the summarizer's own error, which may quote messages.

    They follow a colon, and so does the advice.
    """
    return reason.removeprefix(REFUSED).partition(": ")[0]


def with_cost(session: Session, cost: Mapping[str, int]) -> Session:
    """Return the session with one more summary and what it cost added to its guard: model calls and tokens."""
    before: Mapping[str, int] = session.guard.get("summarizer") or {}
    total = {
        name: before.get(name, 0) + amount
        for name, amount in {"summaries": 1, **cost}.items()
    }
    return replace(session, guard={**session.guard, "summarizer": total})


def _accepted(
    summary: str,
    block: Mapping[str, Any] | None,
    compaction: Compaction,
    window: Window,
) -> Request:
    """The request with the summary, or with its first part where that is too long or the request frees too little.

    A provider's own block is taken whole.

    Raises:
        SummarizationError: not a line of the summary fits, or the request is as large as before with it.
    """
    after = compaction.after
    before_tokens = compaction.tokens_before
    if block:
        candidate = after.shown_as(replace(after.view, block=block), summary)
        if candidate.total_tokens >= before_tokens:
            raise SummarizationError(
                f"with the provider's summary the request has {candidate.total_tokens:,} tokens, before it had "
                f"{before_tokens:,}: pass another summarizer"
            )
        return candidate
    planned = compaction.summary_max_tokens
    price = window.parts.price_text
    summary = first_part(summary, accepted_tokens(planned), price)
    wanted = (
        1
        if window.parts.settings.trigger_messages is not None
        else MIN_PROGRESS * before_tokens
    )
    candidate = after.shown_as(after.view, summary)
    if summary and before_tokens - candidate.total_tokens >= wanted:
        return candidate
    first = first_part(summary, planned, price)
    if not first:
        raise SummarizationError(
            f"not a word of it fits in {planned:,} tokens: raise summary_max_tokens"
        )
    candidate = after.shown_as(after.view, first)
    if candidate.total_tokens >= before_tokens:
        raise SummarizationError(
            f"with {planned:,} tokens of the summary the request has {candidate.total_tokens:,} tokens, before it "
            f"had {before_tokens:,}: lower summary_max_tokens"
        )
    return candidate


def _frees_enough(window: Window, compaction: Compaction, request: Request) -> bool:
    """False for a summary that frees too little, which counts like one that failed."""
    freed_tokens = compaction.tokens_before - request.total_tokens
    is_late = freed_tokens <= 0  # it tells of messages that had left before
    # what counts is how many messages are shown
    is_by_number = window.parts.settings.trigger_messages is not None
    return (
        is_late
        or is_by_number
        or freed_tokens >= MIN_PROGRESS * compaction.tokens_before
    )


def _ineffective(window: Window) -> dict[str, Any]:
    return {
        "ineffective": window.session.failed_summaries + 1,
        "asked": last_user(window.parts.messages),
    }


# ---- after an answer, a count or a refusal --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What an answer taught."""

    counts: dict[str, Any]
    """The new `context_counts`."""

    ignored: str = ""
    """Why a reported size was not believed; empty when it was, or when none was reported."""

    accepted_tokens: int = 0
    """The input that the model of the request is known to have taken; 0 when that is not known."""


def from_answer(window: Window, reply: AIMessage) -> Lesson:
    """Learn from the usage that came with the answer to a request; one without usage changes nothing."""
    counts, tokens = dict(window.session.counts), sent_tokens(reply)
    if has_bound_reasoning(reply):
        counts["tied_to"] = window.tied_to
    if tokens is None:
        return Lesson(counts=counts)
    sizes, extends = window.sizing, window.last_report
    model, expected = (
        answered_by(reply) or window.answering_model,
        expected_sizes(window),
    )
    if model != window.answering_model:
        sizes, extends = sizes_for(window, model), None
        size = sizes.size(window.estimates, window.steps)
        expected = (size.regions.total_tokens, *expected[1:])
    if not is_count(tokens) or not tokens:
        return Lesson(counts=counts, ignored=fault_of(tokens, expected))
    if sizes.reports:
        tokens = counted_once(reply, tokens, expected[0])
    report = ReportedSize(tokens, window.estimates.total_tokens)
    if not is_believed(
        report,
        sizes,
        expected,
        limit_tokens=window.limits.input_limit(0),
        extended_tokens=extends.tokens if extends else 0,
    ):
        return Lesson(
            counts=_with_sizes(counts, model, replace(sizes, doubted=report)),
            ignored=far_off(tokens, expected),
        )
    counts.pop("checked", None)
    counts["anchor"] = {
        "id": reply.id,
        "tokens": tokens,
        "model": model,
        "digest": window.digest_until(window.stop),
        "estimate": window.estimates.total_tokens,
        "index": window.stop,
    }
    # What another model takes that stood in says nothing about the one that was asked.
    is_own = model == window.answering_model or may_be(model, window.parts.model)
    accepted = tokens if is_own else 0
    counts = _without_refuted_limits(counts, window.parts.model, accepted)
    counts["speakers"] = bounded(
        counts.get("speakers"), window.parts.model, model, MAX_MODELS
    )
    answer = Position(id=reply.id or "", index=window.stop)
    if extends:
        sizes = _with_growth(
            sizes, extends, tokens - extends.tokens, sum(window.added), answer
        )
    sizes = sizes.with_request(tokens, **_fixed_and_text(sizes, window))
    return Lesson(counts=_with_sizes(counts, model, sizes), accepted_tokens=accepted)


def _with_growth(
    sizes: Sizes, before: ReportedSize, grown: int, added: int, answer: Position
) -> Sizes:
    """The sizes with the span between two reports, where what a request grew by can be the size of what was added."""
    if not is_plausible(grown, added):
        return sizes
    return sizes.with_span(Span(before.at, answer.index, added, grown), answer)


def _fixed_and_text(
    sizes: Sizes, window: Window, *, after: int = 0
) -> dict[str, float]:
    """The counted tokens of a request and the estimates of its other texts, less the last `after` tokens of history."""
    estimates = window.estimates
    counted, rest = sizes.counted(window.steps)
    fixed = estimates.system_tokens + estimates.tool_tokens + counted
    return {
        "fixed": fixed,
        "text": estimates.summary_tokens + estimates.pinned_tokens + rest - after,
    }


def small_report(window: Window, answering_model: str) -> tuple[int, int] | None:
    """Return the last report of a model, when it was too small to be believed, and what was added since."""
    report = stored_sizes(window.session, answering_model).doubted
    if report is None or report.tokens >= report.estimate:
        return None
    return report.tokens, max(0, window.estimates.total_tokens - report.estimate)


def from_count(window: Window, tokens: int) -> dict[str, Any]:
    """Keep what the provider counted for exactly this request."""
    estimate = window.estimates.total_tokens
    return {
        **window.session.counts,
        "checked": {"tokens": tokens, "digest": window.digest, "estimate": estimate},
    }


def from_refusal(window: Window, stated_tokens: int | None) -> dict[str, Any]:
    """Learn from the size that a provider states for a request it refused.

    Sizes that earlier answers brought no longer count for this request.
    """
    counts = {**window.session.counts, "anchor": None}
    counts.pop("checked", None)
    if stated_tokens is None or fault_of(stated_tokens, expected_sizes(window)):
        return counts
    sizes = window.sizing
    sizes = sizes.with_refusal(stated_tokens, **_fixed_and_text(sizes, window))
    return _with_sizes(counts, window.answering_model, sizes)


# ---- what a history tells whose answers were not handed to us -------------------------------------------------------


def from_history(request: Request) -> tuple[Session, ReportedSize | None]:
    """Learn from the usage in a history whose answers were not handed to us, each report once.

    After a compaction only what was answered since belongs to requests like this one. Returns the newest report, too.
    """
    session, parts = request.session, request.parts
    answering_model = session.answering_model(parts.model)
    sizes = sizes_for(request, answering_model)
    compacted = session.since.index + 1 if session.since and session.compactions else 0
    believed = _believed(request, answering_model)
    newest = believed[-1] if believed and believed[-1].at >= compacted else None
    known = max(compacted, sizes.last.index if sizes.last else 0)
    reports = [report for report in believed if report.at >= known]
    if newest is None or not reports or (sizes.reports and len(reports) == 1):
        return session, newest
    for old, new in pairwise(reports):
        if old.model == new.model:
            grown, added = new.tokens - old.tokens, new.estimate - old.estimate
            answer = position_of(parts.messages, new.at)
            sizes = _with_growth(sizes, old, grown, added, answer)
    after = request.steps.between(newest.at, request.stop)
    sizes = sizes.with_request(
        newest.tokens, **_fixed_and_text(sizes, request, after=after)
    )
    name = newest.model or answering_model
    speakers = bounded(session.counts.get("speakers"), parts.model, name, MAX_MODELS)
    counts = _with_sizes({**session.counts, "speakers": speakers}, name, sizes)
    return replace(session, counts=counts), newest


def _believed(request: Request, answering_model: str) -> list[ReportedSize]:
    """The reports of a model in the shown history that are believed, by the same rule as those of answers."""
    declared = request.parts.declared
    limit = declared.input_limit(0) if declared is not None and declared.known else None
    believed, sizes, before = list[ReportedSize](), Sizes(), 0
    if not any(getattr(m, "usage_metadata", None) for m in request.parts.messages):
        return believed
    for step in request.steps:
        answer = step.messages[0] if step.messages else None
        tokens = sent_tokens(answer) if isinstance(answer, AIMessage) and before else 0
        model = answered_by(answer) if tokens and isinstance(answer, AIMessage) else ""
        estimate = request.fixed_estimates.total_tokens + before
        before += step.tokens
        if not tokens or not is_count(tokens) or not may_be(model, answering_model):
            continue
        report, last = ReportedSize(tokens, estimate, step.index, model), believed[-1:]
        planned = last[0].tokens + estimate - last[0].estimate if last else estimate
        if is_believed(
            report,
            sizes,
            (planned, estimate - request.estimates.tool_tokens),
            limit_tokens=limit,
            extended_tokens=last[0].tokens if last else 0,
        ):
            believed.append(report)
            sizes = replace(sizes, doubted=None, reports=len(believed))
        else:
            sizes = replace(sizes, doubted=report)
    return believed


# ---- the stored sizes -----------------------------------------------------------------------------------------------


def stored_sizes(session: Session, answering_model: str) -> Sizes:
    """Return the stored sizes of requests to a model, by the name under which it answers."""
    stored = (session.counts.get("sizes") or {}).get(answering_model)
    return Sizes.from_json(stored) if stored else Sizes()


def sizes_for(request: Request, answering_model: str) -> Sizes:
    """Return the same for a request: its history, tool set and counter."""
    parts = request.parts
    sizes = (
        stored_sizes(request.session, answering_model)
        .in_history(parts.messages)
        .of_tools(parts.tools_digest)
    )
    return replace(sizes, doubt=parts.pricer.doubt)


def without_sizes(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return `context_counts` without anything that was learned about sizes, and nothing to learn it from again."""
    return {
        **{
            key: value
            for key, value in counts.items()
            if key not in {"checked", "sizes"}
        },
        "anchor": None,
    }


def bounded(
    mapping: Mapping[str, Any] | None, key: str, value: Any, most: int
) -> dict[str, Any]:
    """Return a mapping with one more value; beyond `most` values, the one that was put first leaves."""
    values = {**(mapping or {})}
    values.pop(key, None)
    values[key] = value
    return dict([*values.items()][-most:])


def expected_sizes(request: Request) -> tuple[int, int]:
    """Sizes that a report may be near: what reports led to, and the plain count; some servers leave tools out of it."""
    return (
        request.total_tokens,
        request.estimates.total_tokens - request.estimates.tool_tokens,
    )


def _with_sizes(
    counts: Mapping[str, Any], answering_model: str, sizes: Sizes
) -> dict[str, Any]:
    return {
        **counts,
        "sizes": bounded(
            counts.get("sizes"), answering_model, sizes.to_json(), MAX_MODELS
        ),
    }


def _since(stored: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Stored sizes with the spans that are still in a view."""
    return {**stored, "spans": [span for span in stored["spans"] if span[1] > start]}


def _without_refuted_limits(
    counts: dict[str, Any], model: str, accepted: int
) -> dict[str, Any]:
    """Return `context_counts` without a limit of a model that is below what it took."""
    limits: Mapping[str, Mapping[str, int]] = counts.get("limits") or {}
    limit = limits.get(model, {})
    if unrefuted(limit, accepted) == limit:
        return counts
    others = {name: limit for name, limit in limits.items() if name != model}
    return {key: value for key, value in counts.items() if key != "limits"} | (
        {"limits": others} if others else {}
    )
