"""Compaction as data: what leaves the view or is clamped in it, why, what it costs then; and the session after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

from langchain_core.messages import HumanMessage

from langchain_ctxwin.core.model_info import ModelInfo, Usage
from langchain_ctxwin.core.notes import record_lines
from langchain_ctxwin.core.record import (
    FOCUSED,
    REWRITTEN_SHARE,
    USED,
    Record,
    RecordLine,
    extended,
    record_text,
)
from langchain_ctxwin.core.request import Request, Window
from langchain_ctxwin.core.session import Session, guard_after, read_session, uncovered
from langchain_ctxwin.core.settings import portion
from langchain_ctxwin.core.standing import standing_test
from langchain_ctxwin.core.tool_schemas import parameter_names
from langchain_ctxwin.core.turns import final_answer, last_user, runs, starts_turn
from langchain_ctxwin.core.view import View, message_id, position_of

# The largest answer that a pinned question carries along: a share of the room for history, at least two sentences.
ANSWER_SHARE, LEAST_ANSWER_TOKENS = 0.05, 60
LEAST_LINE_TOKENS = 5  # of a line of the record: it has no place for more messages than its room has of these

RECORDED_SHARE = 0.99  # of the limit: where a record ends, because the bound on a count grows with each line
NEWEST_SHARE = 0.5  # of the room that the newest results and the record share: what these results have at least
MIN_PROGRESS = 0.1  # smallest reduction of the request that a summary must promise; less would be repeated at once
FOCUS_CHARS = 4  # of a word of a focus that tells one line from another


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One reduction of the view. `ContextEngine.apply` returns the update of the state that makes it so."""

    kind: Literal["summarize", "force"]
    reason: str
    """Why, in words, with the sizes that decided it."""

    before: Request = field(repr=False)
    after: Request = field(repr=False)
    """The request before and after; where a summary is asked for, without it."""

    snapshot: tuple[int, int] | None = None
    """Positions of the messages to summarize, stop excluded; None when no summary is asked for."""

    summary_max_tokens: int = 0

    @property
    def view(self) -> View:
        """The view afterwards (of a summary: when the summarizer succeeds)."""
        return self.after.view

    @property
    def tokens_before(self) -> int:
        """Input tokens of the request before."""
        return self.before.total_tokens

    @property
    def tokens_after(self) -> int:
        """Input tokens of the request afterwards; of a summary at its largest, because it is not written yet."""
        return self.after.total_tokens + self.summary_max_tokens

    @property
    def fits(self) -> bool:
        """True when the request may be sent once the compaction is carried out."""
        return self.after.upper_tokens + self.summary_max_tokens <= self.after.limit

    @property
    def summary(self) -> str | None:
        """A finished summary that is shown from now on; None leaves the summary as it is."""
        is_same = (self.after.summary, self.view.block) == (
            self.before.summary,
            self.before.view.block,
        )
        return None if self.snapshot or is_same else self.after.summary

    @property
    def dropped(self) -> list[int]:
        """Positions of the messages that leave without a summary."""
        if self.snapshot:
            return []
        covered = uncovered(self.view, self.after.history.first)
        dropped = dropped_positions(self.before, self.after)
        return [index for index in dropped if index >= covered]

    @property
    def dropped_turns(self) -> int:
        """How many turns leave without a summary."""
        messages = self.after.history.messages
        return sum(isinstance(messages[index], HumanMessage) for index in self.dropped)

    def applied(self, window: Window, request: Request | None = None) -> Request:
        """Return the request afterwards, priced already, with the session that is stored from now on.

        `request` is that with a summary which was asked for. The anchor goes, because the request that it counted is no
        longer a prefix.
        """
        request, session, history = (
            request or self.after,
            window.session,
            window.history,
        )
        dropped = session.number("dropped_turns") + self.dropped_turns
        guard = guard_after(
            session, history.messages, reason=self.reason, dropped_turns=dropped
        )
        unbound = request.left_unbound
        if request.swaps_prefix:
            guard["unbound"] = unbound
        is_summary = self.kind == "summarize" or self.summary is not None
        if is_summary:
            is_enough = pays(self.before, request.total_tokens)
            guard |= {"ineffective": 0} if is_enough else _ineffective(window)
        counts = session.unanchored
        if "tied_to" in counts:
            counts["tied_to"] = request.tied_to
        former = {
            "context_view": session.view.to_json(),
            "context_summary": session.summary,
            "context_record": session.view.record.to_json(),
        }
        view = history.with_checksum(request.view)
        after = replace(
            session,
            view=view,
            summary=request.summary,
            guard=guard,
            counts=counts,
            former=former,
            pending=None if is_summary else session.pending,
        )
        return replace(
            request,
            session=after,
            view=view,
            limit=request.input_limit,
            needs_room=False,
            unbound=unbound,
        )


# ---- where to cut ---------------------------------------------------------------------------------------------------


def cuts(request: Request) -> list[int]:
    """Positions where something can leave: the turn starts after the first, then the steps of the current turn."""
    behind = (step for step in request.steps if step.index > request.start)
    turns = [step.index for step in behind if starts_turn(step)]
    return [*turns, *step_cuts(request)]


def step_cuts(request: Request) -> list[int]:
    """Positions inside the current turn where its oldest steps can leave; the newest step always stays."""
    user = last_user(request.history.messages)
    start = request.start
    begin = start if user is None else max(start, user + 1)
    last = request.newest_index
    return [
        step.index
        for step in request.steps
        if begin < step.index <= last and step.messages
    ]


def cut(request: Request, start: int) -> View:
    """Return the view that starts at `start`, with pins frozen.

    Of its record only the number of messages is new: where nothing left before, the frame around it takes room, too.
    """
    view, messages = request.view, request.history.messages
    pinned = tuple(sorted(_pinned_before(request, start)))
    visible = (*pinned, *range(start, len(messages)))
    left = len(messages) - request.history.first - len(visible)
    moved = replace(
        view,
        start=position_of(messages, start),
        pinned=pinned,
        record=replace(view.record, messages=left),
    )
    if not (view.cleared or view.clamped):
        return moved
    visible_ids = {message_id(messages, index) for index in visible}
    clamped = {key: clamp for key, clamp in view.clamped.items() if key in visible_ids}
    return replace(moved, cleared=view.cleared & visible_ids, clamped=clamped)


def _pinned_before(request: Request, start: int) -> set[int]:
    """Positions of the messages that are shown although they lie before `start`: pins by step, and short answers."""
    messages = request.history.messages
    current = last_user(messages)
    wanted = {*request.verbatim}
    if request.settings.pin_first_user:
        before_start = range(request.history.first, start)
        users = (i for i in before_start if isinstance(messages[i], HumanMessage))
        wanted.update(islice(users, 1))
    before = [index for index in wanted if request.history.first <= index < start]
    pinned_indexes = request.history.in_steps(before)
    for index in before:
        answer = None if index == current else final_answer(messages, index, start)
        most = max(LEAST_ANSWER_TOKENS, ANSWER_SHARE * request.room)
        if answer is not None and request.price(messages[answer]) <= most:
            pinned_indexes.add(answer)
    return {index for index in pinned_indexes if index < start}


def with_new_pins(request: Request) -> Session | None:
    """Return the session that shows messages which were pinned after they had left the view or were shortened in it.

    None where there are none. Counts as one compaction, because the prefix changes.
    """
    old, start = request.view, request.start
    pinned = {message_id(request.history.messages, index) for index in request.pins}
    wanted = {
        index for index in request.verbatim if request.history.first <= index < start
    }
    is_shown = wanted.issubset(old.pinned)
    view = old if is_shown else cut(request, start)
    clamped = {
        key: clamp
        for key, clamp in view.clamped.items()
        if clamp.pin or key not in pinned
    }
    view = replace(view, cleared=view.cleared - pinned, clamped=clamped)
    if view == old:
        return None
    return with_view(request, view, "a message that had left is pinned")


def with_view(request: Request, view: View, reason: str, **changes: Any) -> Session:
    """Return the session with another view, whose record tells of what leaves; it counts as one compaction."""
    session = request.session
    guard = guard_after(session, request.history.messages, reason=reason, **changes)
    after = recorded(request.shown_as(view), request).view
    return replace(
        session,
        view=request.history.with_checksum(after),
        counts=session.unanchored,
        guard=guard,
    )


# ---- what left, and what the record says of it ----------------------------------------------------------------------


def dropped_positions(before: Request, after: Request) -> list[int]:
    """Return the positions of the messages that the request before showed and the one after does not."""
    return sorted({*before.visible}.difference(after.visible))


def recorded(
    after: Request,
    before: Request,
    *,
    summary_tokens: int = 0,
    is_first: bool = False,
) -> Request:
    """Return the request with the record of what left since `before`, as much of it as its room holds.

    `summary_tokens` is the size of a summary that is still to be written, and will stand above the record. With
    `is_first`, before anything but pins is clamped, it may take half of what the newest step would fill, but no room of
    old messages that are kept.
    """
    old = before.view
    new = after.view
    messages = after.history.messages
    question = last_user(messages)
    dropped = dropped_positions(before, after)
    # what is shown shorter than before left, too
    edits = new.cleared.union(new.clamped).difference(old.cleared, old.clamped)
    places = range(after.start, len(messages)) if edits else ()
    edited = [index for index in places if message_id(messages, index) in edits]
    # not that of `after`: what left on the way there may be in it already
    left = len(messages) - after.history.first - len(after.visible)
    record = replace(old.record, messages=left)
    if not (dropped or edited) and new.record == record:
        return after
    newest = after.newest if is_first else None
    newest_tokens = round(after.sizing.ratio * newest.tokens) if newest else 0
    room, free = record_room(after, summary_tokens, newest_tokens)
    if not is_first:
        # what a cut left to the rules of the record
        free = max(free, after.text_tokens(new.record.text))
    lines: Iterable[RecordLine] = _lines(after, sorted({*dropped, *edited}), room)
    if after.focus:
        lines = _named([*record.waiting, *record.lines, *lines], after.focus)
        record = replace(record, lines=(), waiting=())
    record = extended(
        record,
        lines,
        room_tokens=min(room, free),
        price=after.text_tokens,
        share=REWRITTEN_SHARE if is_first or room < free else 1.0,
        kept_tokens=room,
        keeps_all=question is not None
        and message_id(messages, question) in new.clamped,
    )
    return after.shown_as(replace(new, record=record))


def record_room(
    request: Request, summary_tokens: int, newest_tokens: int
) -> tuple[int, int]:
    """Return how many tokens the lines of the record may take, as a share of the room, and how many are free now.

    Free is what nothing else takes, and of what a newest step of this size takes the part that it can give.
    """
    regions = request.size.regions
    limit = request.likely_limit
    present = request.text_tokens(request.record) - request.text_tokens(
        request.summary_text
    )
    frame = record_text("", Record(messages=len(request.history.messages)))
    others = request.total_tokens - present + summary_tokens
    others += request.text_tokens(frame)
    shared = int(RECORDED_SHARE * limit) - others + newest_tokens
    settings = request.settings
    kept = portion(settings.keep, request.room)
    given = min(int((1 - NEWEST_SHARE) * shared), request.room - kept)
    free = max(shared - newest_tokens, given)
    # Of what the history may take before it leaves, or a compaction at a low trigger would never pay.
    most = limit - regions.system_tokens - regions.tool_tokens
    most = min(most, settings.max_history_tokens or most)
    if settings.trigger is not None:
        most = portion(settings.trigger, most)
    room = int(settings.record_share * most)
    beside = summary_tokens or request.written_tokens
    return max(0, room - beside), max(0, free)


def _lines(
    request: Request, positions: Sequence[int], room_tokens: int
) -> Iterator[RecordLine]:
    """The lines of messages, as far as a record of this size can have a place for them.

    Of a long history that is met at once the oldest messages give only statements of people that hold or name things.
    """
    messages, settings = request.history.messages, request.settings
    holds = standing_test(settings.rules)
    taken = parameter_names(request.tools)
    start = max(0, len(positions) - room_tokens // LEAST_LINE_TOKENS)
    old = [i for i in positions[:start] if isinstance(messages[i], HumanMessage)]
    for is_old, places in ((True, old), (False, positions[start:])):
        for run in runs(places):
            left = [messages[i] for i in run]
            ids = [message_id(messages, i) for i in run]
            before = messages[run[0] - 1] if run[0] else None
            for line in record_lines(left, ids, before, holds, taken):
                if not is_old or (line.kind == "said" and line.uses >= USED):
                    yield line


def _named(lines: Sequence[RecordLine], focus: str) -> list[RecordLine]:
    """Return the lines, of which those that share most words with the focus stay longest."""
    every = focus.casefold().split()
    # short ones stand in many lines; a focus may have no others
    words = {word for word in every if len(word) >= FOCUS_CHARS} or {*every}
    shared = [sum(word in line.text.casefold() for word in words) for line in lines]
    most = max(shared, default=0)
    return [
        line._replace(uses=FOCUSED) if 2 * count > most else line
        for line, count in zip(lines, shared, strict=True)
    ]


# ---- the session after a compaction --------------------------------------------------------------------------------


def after_undo(window: Window) -> Session | None:
    """Return the session with the view before the latest compaction; None without one, or when its messages are gone.

    Counts as a compaction, because the prefix changes.
    """
    session = window.session
    messages = window.history.messages
    if not session.former:
        return None
    before = read_session(session.former, window.history)
    if before.faults:
        return None
    guard = guard_after(
        session, messages, reason="the latest compaction was taken back"
    )
    return replace(before, counts=session.unanchored, guard=guard)


def after_summary(
    compaction: Compaction,
    window: Window,
    text: str,
    *,
    block: Mapping[str, Any] | None = None,
) -> Request:
    """Return the request after a summary was written; one with which it is as large as before is not shown."""
    after = compaction.after.shown_as(replace(compaction.view, block=block), text)
    before_tokens = compaction.tokens_before
    if (text or block) and after.total_tokens < before_tokens:
        return compaction.applied(window, after)
    reason = (
        f"with the summary the request has {after.total_tokens:,} tokens, before it had {before_tokens:,}: change "
        "summary_max_tokens"
    )
    return replace(window, session=after_failure(window, reason))


def after_failure(window: Window, reason: str) -> Session:
    """Return the session after a summary that failed: only the guard changes, so that it is not tried forever."""
    guard = {
        **window.session.guard,
        **_ineffective(window),
        "reason": reason,
    }
    return replace(window.session, guard=guard, pending=None)


def with_spent(session: Session, usage: Usage, info: ModelInfo | None) -> Session:
    """Return the session with what a call took added to what its guard says of the thread: tokens, and USD as text.

    What nobody knows counts as nothing.
    """
    spent, calls = session.guard.get("spent") or {}, (usage, *usage.compactions)
    tokens = sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in calls)
    if not tokens:
        return session
    cost = Decimal(spent.get("cost", 0)) + (usage.cost(info) or 0)
    tokens += int(spent.get("tokens", 0))
    total = {"tokens": tokens, "cost": str(cost)}
    return replace(session, guard={**session.guard, "spent": total})


def pays(before: Request, tokens_after: int) -> bool:
    """True for what frees a tenth; a bound by number of messages is the user's own, and no price is weighed there."""
    is_by_number = before.settings.trigger_messages is not None
    freed = before.total_tokens - tokens_after
    return is_by_number or freed >= MIN_PROGRESS * before.total_tokens


def _ineffective(window: Window) -> dict[str, Any]:
    return {
        "ineffective": window.session.number("ineffective") + 1,
        "asked": last_user(window.history.messages),
    }
