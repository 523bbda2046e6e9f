"""Updates of the session: after a measure, a compaction, an answer with its reported size, a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.calibration import (
    AGREEING_REPORTS,
    AGREEING_SMALL_REPORTS,
    LEAST_SHARE_AFTER_FALL,
    MAX_MEASURED,
    Correction,
    Measured,
    Regions,
    Sizing,
    Span,
    answered_by,
    contradicts,
    far_off,
    fault_of,
    is_plausible,
    is_roomy,
    may_be,
    outvoted,
    reported_tokens,
    sent_tokens,
    votes,
)
from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import MIN_PROGRESS, Compaction, accepted_tokens
from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.request import LastReport, Parts, Request, Window
from langchain_ctxwin.core.session import Pending, Session, counted, last_position
from langchain_ctxwin.core.view import Position, message_id, with_checksum
from langchain_ctxwin.errors import SummarizationError

REFUSED = "summary refused: "  # begins the stored reason of a summary that came to nothing
MAX_MODELS = 8  # models and tool sets remembered per conversation; of more, the one learned first leaves


def update_after_measure(window: Window) -> dict[str, Any]:
    """Return the state after a measure: mended positions, how many messages were seen, the report."""
    messages = window.parts.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return {**window.session.to_json(), "context_counts": counts, "context_report": window.report}


# ---- after a compaction ---------------------------------------------------------------------------------------------


def update_after_compaction(compaction: Compaction, window: Window, summary: str) -> dict[str, Any]:
    """Return the state after a compaction; the anchor goes, because the request it counted is no longer a prefix."""
    session = window.session
    is_summary = compaction.kind == "summarize" or compaction.summary is not None
    dropped = int(session.guard.get("dropped_turns", 0)) + compaction.dropped_turns
    guard = counted(session, window.parts.messages, reason=compaction.reason, dropped_turns=dropped)
    if is_summary:
        guard |= {"ineffective": 0} if _frees_enough(window, compaction, summary) else _ineffective(window)
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    start = window.parts.start_of(compaction.view)
    if measured := counts.get("measured"):
        counts["measured"] = {
            name: Measured.from_json(value).since(start).to_json() for name, value in measured.items()
        }
    pending = None if is_summary or not _is_current(session.pending, window) else session.pending
    view = with_checksum(compaction.view, window.parts.messages)
    after = replace(session, view=view, summary=summary, guard=guard, counts=counts, pending=pending)
    return after.to_json()


def update_without_reasoning(window: Window) -> dict[str, Any]:
    """Return the state after a refusal of reasoning that is tied to another prefix: all of it so far is left out."""
    session, last = window.session, last_position(window.parts.messages)
    guard = {**session.guard, "unbound": last, "binding_model": window.parts.model}
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    return {"context_guard": guard, "context_counts": counts}


def update_after_summary(compaction: Compaction, window: Window, text: str, cost: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a summary was written: it is paid for, whether it can be used or not."""
    charged = replace(window, session=with_cost(window.session, cost))
    try:
        return update_after_compaction(compaction, charged, _accepted(text, compaction, charged))
    except SummarizationError as error:
        return update_after_failure(charged, str(error))


def update_after_failure(window: Window, reason: str) -> dict[str, Any]:
    """Return the state after a summary that failed."""
    return after_failure(window, reason).to_json()


def after_failure(window: Window, reason: str) -> Session:
    """Return the session after a summary that failed: only the guard changes, so that it is not tried forever."""
    guard = {**window.session.guard, **_ineffective(window), "reason": f"{REFUSED}{reason}"}
    return replace(window.session, guard=guard, pending=None)


def own_words(reason: str) -> str:
    """Return why a summary came to nothing without the words of the summarizer's own error, which may quote messages.

    They follow a colon, and so does the advice.
    """
    return reason.removeprefix(REFUSED).partition(": ")[0]


def with_cost(session: Session, cost: Mapping[str, int]) -> Session:
    """Return the session with one more summary and what it cost added to its guard: model calls and tokens."""
    before: Mapping[str, int] = session.guard.get("summarizer") or {}
    total = {name: before.get(name, 0) + amount for name, amount in {"summaries": 1, **cost}.items()}
    return replace(session, guard={**session.guard, "summarizer": total})


def _is_current(pending: Pending | None, window: Window) -> bool:
    """False for a finished summary whose messages were edited since it was begun."""
    return pending is None or not pending.text or pending.matches(window.parts.messages)


def _accepted(summary: str, compaction: Compaction, window: Window) -> str:
    """The summary, or its first part where it is much longer than was planned, or longer and frees too little."""
    request, before, planned = window.parts, compaction.tokens_before, compaction.summary_max_tokens
    summary = first_part(summary, accepted_tokens(planned), request.price_text)
    wanted = 1 if request.settings.trigger_messages is not None else MIN_PROGRESS * before
    if summary and before - compaction.after.shown_as(compaction.view, summary).total_tokens >= wanted:
        return summary
    first = first_part(summary, planned, request.price_text)
    after = compaction.after.shown_as(compaction.view, first).total_tokens
    if after >= before or not first:
        raise SummarizationError(
            f"with {planned:,} tokens of the summary the request has {after:,} tokens, before it "
            f"had {before:,}: lower summary_max_tokens"
        )
    return first


def _frees_enough(window: Window, compaction: Compaction, summary: str) -> bool:
    """False for a summary that frees too little, which counts like one that failed."""
    before, after = compaction.tokens_before, compaction.after.shown_as(compaction.view, summary).total_tokens
    is_late = after >= before  # it tells of messages that had left before
    is_by_number = (
        window.parts.settings.trigger_messages is not None
    )  # what counts there is how many messages are shown
    return is_late or is_by_number or before - after >= MIN_PROGRESS * before


def _ineffective(window: Window) -> dict[str, Any]:
    return {"ineffective": window.session.failed_summaries + 1, "asked": last_user(window.parts.messages)}


# ---- after an answer, a count or a refusal --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What an answer taught."""

    counts: dict[str, Any]  # the new `context_counts`
    ignored: str = ""  # why a reported size was not used; empty when it was, or when none was reported
    accepted_tokens: int = 0  # the input that the model of the request is known to have taken; 0 when that is not known


def from_answer(window: Window, reply: AIMessage) -> Lesson:
    """Learn from the usage that came with the answer to a request; one without usage changes nothing.

    A size that contradicts our count and the reports before it is not used before others agree with it. A first one is,
    where nothing leaves because of it, until the next one disproves it.
    """
    priced_view, answering_model = window, answered_by(reply) or window.answering_model
    judged = _judged(window, reply, answering_model)
    known, tokens = judged.known, judged.tokens
    if tokens is None:
        return Lesson(counts=known.counts, ignored=judged.fault)
    counts = {key: value for key, value in known.counts.items() if key != "checked"}
    answered = Position(id=reply.id or "", index=priced_view.stop)
    sizing = _refined(known.sizing, known.extends, priced_view, tokens, answered)
    counts["anchor"] = {
        "id": reply.id,
        "tokens": tokens,
        "model": answering_model,
        "digest": window.digest,
        "estimate": priced_view.estimates.total_tokens,
        "index": priced_view.stop,
    }
    # What another model takes that stood in says nothing about the one that was asked, nor does a doubtful size.
    is_own = answering_model == window.answering_model or may_be(answering_model, window.parts.model)
    accepted = tokens if is_own and not judged.fault else 0
    counts = _without_refuted_limits(counts, window.parts.model, accepted)
    return Lesson(counts=_with_sizing(counts, window.parts, answering_model, sizing), accepted_tokens=accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a model's sizes before its report."""

    counts: dict[str, Any]
    sizing: Sizing
    extends: LastReport | None
    planned: tuple[int, int]  # sizes that the report may be near: see `expected`
    doubted: dict[str, Any] | None  # the last report of this model that contradicted the others, with its votes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A reported size, and what was known before it."""

    known: _Known
    tokens: int | None = None  # None when it is not believed
    fault: str = ""  # what is wrong with it


def _judged(window: Window, reply: AIMessage, answering_model: str) -> _Judged:
    """Decide whether a reported size is believed; see `_believed` for those in a history."""
    estimate, limit = window.estimates.total_tokens, window.limits.input_limit(0)
    report = {"model": answering_model, "tokens": sent_tokens(reply), "estimate": estimate}
    known = _known(window, answering_model)
    tokens, fault = reported_tokens(reply, known.planned)
    if tokens is None and not fault:
        return _Judged(known=known)
    known = _without_disproved(known, report)
    planned, doubted = known.planned, known.doubted
    tokens, fault = reported_tokens(reply, planned)
    is_first = not known.sizing.correction.reports and (doubted is None or doubted["reports"] >= 0)
    if tokens is not None and contradicts(tokens, max(planned[0], estimate), limit_tokens=limit, is_first=is_first):
        fault = far_off(tokens, planned)
    least = min(known.extends.tokens, LEAST_SHARE_AFTER_FALL * planned[0]) if known.extends else 0
    if tokens is not None and tokens < least:
        fault = far_off(tokens, planned)
    if not fault:
        return _Judged(known=_with_doubted(known, doubted and outvoted(doubted)), tokens=tokens)
    row = votes(doubted, report, stretch=known.sizing.correction.ratio)
    if row is None:  # no size at all
        return _Judged(known=known, fault=fault)
    if is_first and doubted is None and tokens is not None and is_roomy(tokens, limit):
        return _Judged(known=_with_doubted(known, row), tokens=tokens, fault=fault)
    if row["reports"] < (AGREEING_SMALL_REPORTS if row["tokens"] < min(planned) else AGREEING_REPORTS):
        return _Judged(known=_with_doubted(known, row), fault=fault)
    return _Judged(known=_with_doubted(known, None), tokens=int(row["tokens"]))


def _known(window: Window, answering_model: str) -> _Known:
    counts, priced_view = dict(window.session.counts), window
    sizing, extends, planned = window.sizing, window.last_report, expected(priced_view)
    if answering_model != window.answering_model:
        sizing = sizing_for(window.session, window, answering_model, window.parts.tools_digest)
        extends, size = None, sizing.size(priced_view.estimates, priced_view.steps)
        planned = (size.regions.total_tokens, planned[1])
    row = counts.get("contradicted")
    doubted = row if row and row["model"] == answering_model else None
    return _Known(counts=counts, sizing=sizing, extends=extends, planned=planned, doubted=doubted)


def _without_disproved(known: _Known, report: Mapping[str, Any]) -> _Known:
    """What is known without a doubtful first report that was used, unless this one agrees with it."""
    anchor, doubted = known.counts.get("anchor") or {}, known.doubted
    if doubted is None or doubted["tokens"] != anchor.get("tokens"):
        return known
    doubted = votes(doubted, report, stretch=known.sizing.correction.ratio) or doubted
    if doubted["reports"] >= AGREEING_REPORTS:
        return replace(known, doubted=doubted)
    return _Known(
        counts=without_sizes(known.counts),
        sizing=replace(known.sizing, correction=Correction(), measured=Measured()),
        extends=None,
        planned=(report["estimate"], known.planned[1]),
        doubted=doubted,
    )


def _with_doubted(known: _Known, row: dict[str, Any] | None) -> _Known:
    """What is known with another doubted report of this model; that of another model stays."""
    if row == known.doubted:
        return known
    return replace(known, counts={**known.counts, "contradicted": row}, doubted=row)


def small_report(window: Window, answering_model: str) -> tuple[int, int, int] | None:
    """Return the last report of a model, when it was too small to be believed, our count of it, and what was added."""
    row = window.session.counts.get("contradicted")
    if not row or row["model"] != answering_model or row["tokens"] >= row["estimate"]:
        return None
    return row["tokens"], row["estimate"], max(0, window.estimates.total_tokens - row["estimate"])


def from_count(window: Window, tokens: int) -> dict[str, Any]:
    """Keep what the provider counted for exactly this request."""
    estimate = window.estimates.total_tokens
    return {**window.session.counts, "checked": {"tokens": tokens, "digest": window.digest, "estimate": estimate}}


def from_refusal(window: Window, stated_tokens: int | None) -> dict[str, Any]:
    """Learn from the size that a provider states for a request it refused.

    What can be made smaller is blamed first, however sure its size seemed: only that leads to a request that fits, and
    the next answer tells whether it was right. Sizes that earlier answers brought no longer count for this request.
    """
    counts = {**window.session.counts, "anchor": None}
    counts.pop("checked", None)
    if stated_tokens is None or fault_of(stated_tokens, expected(window)):
        return counts
    sizing = window.sizing
    surplus, text = _surplus(sizing, window, stated_tokens)
    correction = sizing.after_refusal(surplus, text=text)
    return with_correction(counts, correction_key(window.answering_model, window.parts.tools_digest), correction)


def from_history(request: Request) -> tuple[Session, ReportedSize | None]:
    """Learn from the usage in a history whose answers were not handed to us, each report once.

    After a compaction only what was answered since belongs to requests like this one. Returns the newest report, too.
    """
    session, parts = request.session, request.parts
    answering_model = session.answering_model(parts.model)
    sizing = sizing_for(session, request, answering_model, parts.tools_digest)
    learned = sizing.measured.last.index if sizing.measured.last else -1
    compacted = session.since.index + 1 if session.since and session.compactions else 0
    believed = [r for r in _believed(request, parts, answering_model) if r.at >= compacted]
    newest, reports = believed[-1] if believed else None, [r for r in believed if r.at >= learned]
    if not reports or (session.counts.get("corrections") and len(reports) == 1):
        return session, newest
    first = reports[0]
    if first.at != learned:
        surplus, text = first.surplus(request.estimates)
        sizing = replace(sizing, correction=sizing.after_request(surplus, text=text))
    for old, new in pairwise(reports):
        added, tokens = new.before - old.before, new.tokens - old.tokens
        if old.answering_model == new.answering_model and is_plausible(tokens, added):
            last = Position(id=message_id(parts.messages, new.at), index=new.at)
            span = Span(start=old.at, stop=new.at, estimate=added, tokens=tokens)
            correction = sizing.after_text(tokens, text=added, squares=added**2)
            sizing = replace(sizing, correction=correction, measured=sizing.measured.with_span(span, last))
    name = reports[-1].answering_model or answering_model
    return replace(session, counts=_with_sizing(session.counts, parts, name, sizing)), newest


def largest_accepted_tokens(window: Window) -> int:
    """Return the largest input of the shown history that the model of a request was reported to have taken; else 0."""
    anchor, answering_model = window.session.counts.get("anchor") or {}, window.answering_model
    believed = _believed(window, window.parts, answering_model)
    own = [report.tokens for report in believed if answering_model and report.answering_model]
    return max([*own, anchor["tokens"] if anchor and anchor.get("model") == answering_model else 0])


def without_sizes(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return `context_counts` without anything that was learned about sizes, and nothing to learn it from again."""
    kept = {key: value for key, value in counts.items() if key not in {"checked", "corrections", "measured"}}
    return {**kept, "anchor": None}


def sizing_for(session: Session, request: Request, answering_model: str, tools_digest: str) -> Sizing:
    """Return the sizing of requests to a model, by what the conversation knows about it."""
    measured = session.measured(answering_model)
    return replace(
        request.sizing,
        correction=correction_of(session, answering_model, tools_digest),
        measured=measured if measured.holds_for(request.parts.messages) else Measured(),
    )


def correction_of(session: Session, answering_model: str, tools_digest: str) -> Correction:
    """Return what the conversation knows about a model and tool set, else about the model."""
    corrections: Mapping[str, Any] = session.counts.get("corrections") or {}
    known = Correction.from_json(corrections.get(correction_key(answering_model, tools_digest)))
    if known is not None:
        return known
    for key in reversed([*corrections]):
        if key.rpartition("|")[0] == answering_model and (found := Correction.from_json(corrections[key])):
            return found.of_other_tools()
    return Correction()


def correction_key(answering_model: str, tools_digest: str) -> str:
    """Name of a model and tool set in `context_counts`."""
    return f"{answering_model}|{tools_digest}"


def with_correction(counts: Mapping[str, Any], key: str, correction: Correction) -> dict[str, Any]:
    """Return `context_counts` with the correction of one model and tool set."""
    return {**counts, "corrections": bounded(counts.get("corrections"), key, correction.to_json(), MAX_MODELS)}


def bounded(known: Mapping[str, Any] | None, key: str, value: Any, most: int) -> dict[str, Any]:
    """Return a mapping with one more value; of more than so many, the one that was put first leaves."""
    kept = {**(known or {})}
    kept.pop(key, None)
    kept[key] = value
    return dict([*kept.items()][-most:])


def expected(priced_view: Request) -> tuple[int, int]:
    """Sizes that a report may be near: what reports led to, and the plain count; some servers leave tools out of it."""
    return priced_view.total_tokens, priced_view.estimates.total_tokens - priced_view.estimates.tool_tokens


def _without_refuted_limits(counts: dict[str, Any], model: str, accepted: int) -> dict[str, Any]:
    """Return `context_counts` without limits of a model that are below what it took."""
    limits: Mapping[str, Mapping[str, int]] = counts.get("limits") or {}
    left = unrefuted(limits.get(model, {}), accepted)
    if left == limits.get(model, {}):
        return counts
    kept = {name: known for name, known in limits.items() if name != model} | ({model: left} if left else {})
    return {key: value for key, value in counts.items() if key != "limits"} | ({"limits": kept} if kept else {})


def _with_sizing(counts: Mapping[str, Any], about: Parts, answering_model: str, sizing: Sizing) -> dict[str, Any]:
    """Return `context_counts` with who answered for a model, and what is known about its sizes."""
    speakers = bounded(counts.get("speakers"), about.model, answering_model, MAX_MODELS)
    measured = bounded(counts.get("measured"), answering_model, sizing.measured.to_json(), MAX_MEASURED)
    known = {**counts, "speakers": speakers, "measured": measured}
    return with_correction(known, correction_key(answering_model, about.tools_digest), sizing.correction)


def _refined(sizing: Sizing, extends: LastReport | None, priced_view: Request, tokens: int, reply: Position) -> Sizing:
    """The sizing after a whole request, or after what it added to one that was reported before."""
    added, surplus = (sum(extends.added), tokens - extends.tokens) if extends else (0, 0)
    if extends is None or not is_plausible(surplus, added):
        unexplained, text = _surplus(sizing, priced_view, tokens)
        return replace(sizing, correction=sizing.after_request(unexplained, text=text))
    span = Span(start=extends.index, stop=reply.index, estimate=added, tokens=surplus)
    correction = sizing.after_text(surplus, text=added, squares=sum(size**2 for size in extends.added))
    return replace(sizing, correction=correction, measured=sizing.measured.with_span(span, reply))


def _surplus(sizing: Sizing, priced_view: Request, tokens: int) -> tuple[float, float]:
    """What is unexplained of the reported size of this request, and the text in it that no span has; in tokens."""
    estimates = priced_view.estimates
    counted, rest, squares = sizing.measured.price(priced_view.steps)
    text, _ = estimates.texts(rest, squares)
    return tokens - estimates.system_tokens - estimates.tool_tokens - counted - text, text


class ReportedSize(NamedTuple):
    """A reported size in the history, and our estimate of the history before it."""

    at: int
    tokens: int
    before: int
    answering_model: str

    def surplus(self, estimates: Regions) -> tuple[float, float]:
        """Return what is unexplained of it, and the text in it; summary and pins of the request are those of these."""
        text = estimates.summary_tokens + estimates.pinned_tokens + self.before
        return self.tokens - text - estimates.system_tokens - estimates.tool_tokens, text


def _believed(priced_view: Request, about: Parts, answering_model: str) -> list[ReportedSize]:
    """The reports of a model in the shown history, without those that no other one bears out; see `from_answer`."""
    estimates, declared = priced_view.estimates, about.declared
    limit = declared.input_limit(0) if declared is not None and declared.known else None
    doubted: dict[str, Any] | None = None
    believed = list[ReportedSize]()
    for report in _reports(priced_view):
        if not may_be(report.answering_model, answering_model):
            continue
        estimate = estimates.fixed_tokens + report.before
        stored = {"model": report.answering_model, "tokens": report.tokens, "estimate": estimate}
        if doubted and believed and doubted["tokens"] == believed[-1].tokens:  # it was used all the same
            doubted = votes(doubted, stored) or doubted
            believed = believed if doubted["reports"] >= AGREEING_REPORTS else []
        last = believed[-1] if believed else None
        is_first = last is None and (doubted is None or doubted["reports"] >= 0)
        is_odd = contradicts(
            report.tokens,
            estimate if last is None else max(estimate, last.tokens + report.before - last.before),
            limit_tokens=limit,
            is_first=is_first,
        )
        is_used = is_odd and is_first and doubted is None and is_roomy(report.tokens, limit)
        doubted = votes(doubted, stored) if is_odd else doubted
        if is_used or not is_odd or (doubted and doubted["reports"] >= AGREEING_REPORTS):
            believed.append(report)
            doubted = doubted if is_used or not doubted else outvoted(doubted)
    return believed


def _reports(priced_view: Request) -> Iterator[ReportedSize]:
    before = 0
    for step in priced_view.steps:
        caller = step.messages[0] if step.messages else None
        if isinstance(caller, AIMessage) and before:
            tokens, _ = reported_tokens(caller, (priced_view.estimates.fixed_tokens + before,))
            if tokens is not None:
                yield ReportedSize(step.index, tokens, before, answered_by(caller))
        before += step.tokens
