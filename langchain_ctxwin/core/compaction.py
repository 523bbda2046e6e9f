"""Compaction as data: what leaves the view, why, and what the request costs afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.notes import notes
from langchain_ctxwin.core.priced_view import PricedView, Request, last_user, pins_before
from langchain_ctxwin.core.record import extended
from langchain_ctxwin.core.turns import split_steps, starts_turn
from langchain_ctxwin.core.view import View, message_id, position_of

ANSWER_SHARE = 0.05
"""Largest answer that a pinned question carries along, as a share of the room for history: a tenth of what is kept."""


FILLED_SHARE = 0.95
"""Part of the limit past which the fixed regions leave no history worth compacting: the newest step needs the rest."""

KEPT_MESSAGES_SHARE = 0.5
MAX_MESSAGES_SHARE = 0.8
"""What a bound by number of messages leaves: half of them, unless `keep` is a share that leaves room to grow."""

LEAST_RECORD_TOKENS = 400
LEAST_RECORD_SHARE = 0.75
"""What the record may take where its share would be too little to say anything, and its most of the room then."""

RECORD_FRAME_TOKENS = 24
"""Tokens around the lines of the record: its marks, and the count of what left."""

WHOLE_TURN_SHARE = 0.35
"""Part of the room within which the current turn stays whole: an agent does again what it no longer sees, and on
recorded agents and in the arena this costs nothing."""

LEAST_MESSAGES = 2
"""A question and its answer."""

MIN_PROGRESS = 0.1
"""Smallest reduction of the request that a summary must promise; less would be repeated at once."""

LENGTH_TOLERANCE = 1.5
"""Longest accepted summary over the size asked for: models cannot count their own tokens, and our count estimates."""


def accepted_tokens(max_tokens: int) -> int:
    """Return the length past which a summary is cut when `max_tokens` were asked for."""
    return int(max_tokens * LENGTH_TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One reduction of the view. It changes nothing until `ContextEngine.apply` writes it to the session state."""

    kind: Literal["summarize", "force"]
    reason: str
    """Why, in words, with the sizes that decided it."""

    view: View
    """The view afterwards (of a summary: when the summarizer succeeds)."""

    actions: tuple[str, ...]
    """What it does, one line each, for people."""

    tokens_before: int
    tokens_after: int
    """Input tokens of the request afterwards; of a summary at its largest, because it is not written yet."""

    upper_after: int
    """Upper bound of `tokens_after`: what has to fit."""

    dropped_turns: int = 0
    """Whole turns that leave without a summary."""

    dropped_messages: int = 0
    """Messages that leave without a summary."""

    snapshot: tuple[int, int] | None = None
    """Positions of the messages to summarize, stop excluded; None when no summary is asked for."""

    summary_max_tokens: int = 0

    summary: str | None = None
    """A finished summary that is shown from now on; None leaves the summary as it is."""

    spared: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """What a `before_compaction` hook wishes: ids of messages that stay, lines for the record."""

    def spare(self, *message_ids: str) -> Compaction:
        """Return it with the wish that these messages stay, whole, for a `before_compaction` hook to return."""
        return replace(self, spared=(*self.spared, *message_ids))

    def with_lines(self, *lines: str) -> Compaction:
        """Return it with the wish that the record says this from now on, for a `before_compaction` hook to return."""
        return replace(self, lines=(*self.lines, *lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How small the request has to become. All sizes are tokens, as `PricedView` counts them."""

    limit: int
    """Largest input; a request fits when its upper bound is within it."""

    is_checked: bool
    """False while the provider reported no size: the current user message is then cut on the most likely count only. A
    question is not cut on a mere suspicion, and if the provider refuses it, recovery covers the rest."""

    keep: float
    """Low-water mark of the history: a share of its room when at most 1, else tokens."""

    record_share: float
    """Part of the room, pins included, that the lines of the record may take."""

    max_history_tokens: int | None
    pin_first_user: bool
    max_messages: int | None = None
    """Largest number of messages in the view; None for any."""

    clear_tools: frozenset[str] = frozenset()
    """Tools whose results are cleared in place before anything is dropped."""

    spare_tools: frozenset[str] = frozenset()
    """Tools whose results are shown whole as long as anything else can be made smaller."""

    trigger: float = 1.0
    prepare: float = 1.0
    """Size of the history past which a summary is due, and past which it is begun ahead of need; like `keep`."""

    summarize: Literal["background", "inline", "off"] = "inline"
    summary_max_tokens: int | None = None
    """Longest summary; None sizes it by the room of the history."""

    whole_turn_share: float = WHOLE_TURN_SHARE
    """Part of the room within which no step of the current turn has to leave."""

    def fits(self, priced_view: PricedView) -> bool:
        """True when the request may be sent."""
        return priced_view.upper_tokens <= self.limit

    def likely_fits(self, priced_view: PricedView) -> bool:
        """True when the current user message need not be cut."""
        return (priced_view.upper_tokens if self.is_checked else priced_view.total_tokens) <= self.limit

    def reaches(self, priced_view: PricedView) -> bool:
        """True when the request fits and is at or below its low-water mark."""
        is_few = self.max_messages is None or shown_messages(priced_view) <= self.kept_messages
        return self.fits(priced_view) and priced_view.total_tokens <= self.low_water(priced_view) and is_few

    def leaves_whole(self, priced_view: PricedView) -> bool:
        """True when the current turn, which is all of the history that is left, is small enough to stay whole."""
        most = priced_view.fixed_tokens + portion(self.whole_turn_share, self.room(priced_view))
        return self.max_messages is None and self.fits(priced_view) and priced_view.total_tokens <= most

    def has_no_room(self, priced_view: PricedView) -> bool:
        """True when the fixed regions nearly fill the limit by themselves: no compaction of the history can help."""
        return priced_view.fixed_tokens > FILLED_SHARE * self.limit

    def settles(self, priced_view: PricedView) -> bool:
        """True when a finished summary alone makes the request small enough: halfway to the low-water mark."""
        halfway = (self.ceiling(priced_view) + self.low_water(priced_view)) // 2
        is_few = self.max_messages is None or 2 * shown_messages(priced_view) <= self.max_messages + self.kept_messages
        return self.fits(priced_view) and priced_view.total_tokens <= halfway and is_few

    @property
    def kept_messages(self) -> int:
        """Messages that a compaction by their number leaves."""
        share = self.keep if self.keep <= MAX_MESSAGES_SHARE else KEPT_MESSAGES_SHARE
        return max(LEAST_MESSAGES, int(share * (self.max_messages or 0)))

    def ceiling(self, priced_view: PricedView) -> int:
        """Total at which something has to leave."""
        return priced_view.fixed_tokens + self.room(priced_view)

    def room(self, priced_view: PricedView) -> int:
        """What the fixed regions leave for history, as most likely sizes: the limit less what they may be short of.

        While counts are unsure a request is at its limit long before its most likely size is.
        """
        room = max(0, self.likely_limit(priced_view) - priced_view.fixed_tokens)
        return room if self.max_history_tokens is None else min(room, self.max_history_tokens)

    def likely_limit(self, priced_view: PricedView) -> int:
        """The limit as a most likely size: what the bound on an unsure count leaves of it."""
        return int(self.limit * priced_view.total_tokens / max(1, priced_view.upper_tokens))

    def low_water(self, priced_view: PricedView) -> int:
        """Total that a compaction aims for; pins, summary and record count as cost before it is set."""
        return priced_view.fixed_tokens + portion(self.keep, self.room(priced_view))


def shown_messages(priced_view: PricedView) -> int:
    """Return how many messages of the history the view holds."""
    return priced_view.stop - priced_view.start


def portion(share: float, room: int) -> int:
    """Return a setting that is a share of the room when at most 1, else a number of tokens capped by the room."""
    return int(share * room) if share <= 1 else min(int(share), room)


def cut(request: Request, priced_view: PricedView, start: int, goal: Goal) -> View:
    """Return the view that starts at `start`, with pins frozen; its record is still that of the view before."""
    view, messages = priced_view.view, request.messages
    carry_tokens = int(ANSWER_SHARE * goal.room(priced_view))
    pinned = pins_before(
        messages,
        start,
        first=request.first,
        marked=request.pins,
        compacted=request.kept_compactions(view),
        pin_first_user=goal.pin_first_user,
        carry=lambda answer: request.price(answer) <= carry_tokens,
    )
    moved = replace(view, start=position_of(messages, start), pinned=pinned)
    return _only_shown(moved, request, start)


def left_behind(request: Request, before: View, after: View) -> list[int]:
    """Return the positions of the messages that one view shows and the other, which starts later, does not."""
    shown = {position.index for position in after.pinned}
    pinned = {position.index for position in before.pinned if position.index < request.start_of(before)}
    return [i for i in (*sorted(pinned), *range(request.start_of(before), request.start_of(after))) if i not in shown]


def shown_again(request: Request, before: View, after: View) -> list[int]:
    """Return the positions of the messages that had left one view and are pinned in the other, as an answer may be."""
    start, shown = request.start_of(before), {position.index for position in before.pinned}
    return [position.index for position in after.pinned if position.index < start and position.index not in shown]


MAX_NOTED = 300
"""Newest messages whose lines are read when more leave at once; of older ones what people said is."""


def noted(request: Request, before: View, after: PricedView, goal: Goal, *, summary_tokens: int = 0) -> PricedView:
    """Return the request with the record of what left since `before`, as much of it as its room holds.

    Args:
        request: what the request is made from.
        before: the view that is left.
        after: the request without what leaves.
        goal: limit, and the share of the record.
        summary_tokens: size of a summary that is still to be written, and will stand above the record.
    """
    left = left_behind(request, before, after.view)
    back = shown_again(request, before, after.view)
    edited = _newly_edited(request, before, after)
    if not left and not back and not edited:
        return after
    messages = request.messages
    positions = sorted({*left, *edited})
    # Of a long history that is met for the first time: lines of older results have no place in any record.
    older = [i for i in positions[:-MAX_NOTED] if isinstance(messages[i], HumanMessage)]
    positions = [*older, *positions[-MAX_NOTED:]]
    lines = (
        line
        for run in _runs(positions)
        for line in notes(
            [messages[i] for i in run],
            [message_id(messages, i) for i in run],
            messages[run[0] - 1] if run[0] else None,
        )
    )
    record = before.record  # not that of `after`: what left on the way there may be in it already
    shown = "\n".join(text_of(m.content) for step in (*after.pinned, *after.steps) for m in step.messages)
    came_back = sum(request.price(messages[i]) for i in back)
    record = replace(
        record,
        turns=max(0, record.turns + _turns(messages, left) - _turns(messages, back)),
        steps=max(0, record.steps + _steps(messages, left) - _steps(messages, back)),
        messages=max(0, record.messages + len(left) - len(back)),
        tokens=max(0, record.tokens + sum(request.price(messages[i]) for i in left) - came_back),
    )
    room, free = record_room(request, after, goal, summary_tokens=summary_tokens)
    added = chain(lines, request.keeps)
    price = request.text_tokens
    record = extended(record, added, shown=shown, room_tokens=room, free_tokens=free, price=price)
    return request.priced_view(replace(after.view, record=record), after.summary)


def _turns(messages: Sequence[AnyMessage], positions: Sequence[int]) -> int:
    return sum(isinstance(messages[i], HumanMessage) for i in positions)


def _steps(messages: Sequence[AnyMessage], positions: Sequence[int]) -> int:
    return sum(1 for run in _runs(positions) for _ in split_steps(messages, run[0], run[-1] + 1))


def record_room(request: Request, priced_view: PricedView, goal: Goal, *, summary_tokens: int = 0) -> tuple[int, int]:
    """Return how many tokens the lines of the record may take, as a share of the room, and how many are free now."""
    present = request.text_tokens(priced_view.preamble.record) - request.text_tokens(priced_view.summary)
    room = (
        goal.likely_limit(priced_view) - priced_view.size.regions.system_tokens - priced_view.size.regions.tool_tokens
    )
    rest = priced_view.total_tokens - present + summary_tokens
    free = goal.likely_limit(priced_view) - rest - RECORD_FRAME_TOKENS
    is_alone = not (summary_tokens or priced_view.summary)
    least = min(LEAST_RECORD_TOKENS, int(LEAST_RECORD_SHARE * room)) if is_alone else 0
    return max(int(goal.record_share * room), least), max(0, free)


def _newly_edited(request: Request, before: View, after: PricedView) -> list[int]:
    """Positions of the messages that are shown shorter than before: what they no longer show left, too."""
    clamped = {key for key, clamp in after.view.clamped.items() if before.clamped.get(key) != clamp}
    fresh = (after.view.cleared - before.cleared) | clamped
    if not fresh:
        return []
    return [i for i in range(after.start, len(request.messages)) if message_id(request.messages, i) in fresh]


def _runs(positions: Sequence[int]) -> Iterator[list[int]]:
    """Positions that follow each other, together."""
    run: list[int] = []
    for position in positions:
        if run and position != run[-1] + 1:
            yield run
            run = []
        run.append(position)
    if run:
        yield run


def first_that(values: list[int], ok: Callable[[int], bool]) -> int | None:
    """Return the first of the ascending values for which `ok` holds, if `ok` stays true once it is; by bisection."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if ok(values[middle]) else (middle + 1, high)
    return values[low] if low < len(values) else None


def turn_cuts(priced_view: PricedView) -> list[int]:
    """Positions where whole turns can leave: the turn starts after the first, up to the current turn."""
    return [turn.index for turn in priced_view.turns if turn.index > priced_view.start and starts_turn(turn.steps[0])]


def step_cuts(request: Request, priced_view: PricedView) -> list[int]:
    """Positions inside the current turn where its oldest steps can leave; the newest step always stays."""
    user = last_user(request.messages)
    begin = priced_view.start if user is None else max(priced_view.start, user + 1)
    last = priced_view.newest.index if priced_view.newest else begin
    return [step.index for step in priced_view.steps if begin < step.index <= last and step.messages]


def _only_shown(view: View, request: Request, start: int) -> View:
    """Forget edits of messages that are no longer shown."""
    if not (view.cleared or view.clamped):
        return view
    shown = {message_id(request.messages, index) for index in range(start, len(request.messages))}
    shown.update(position.id for position in view.pinned)
    return replace(
        view,
        cleared=view.cleared & shown,
        clamped={key: clamp for key, clamp in view.clamped.items() if key in shown},
    )
