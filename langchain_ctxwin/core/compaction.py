"""Compaction as data: what leaves the view or is clamped in it, why, and what the request costs afterwards."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any, Literal

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.blocks import text_of
from langchain_ctxwin.core.calls import is_result, is_user, result_ids
from langchain_ctxwin.core.edits import clampable_chars
from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.notes import lasting, record_lines
from langchain_ctxwin.core.priced_view import PricedView, RequestParts, last_user, pins_before
from langchain_ctxwin.core.record import USED, RecordLine, extended, fitted
from langchain_ctxwin.core.standing import Rules, rules_of
from langchain_ctxwin.core.turns import Step, split_steps, starts_turn, tool_of
from langchain_ctxwin.core.view import Clamp, View, message_id, position_of
from langchain_ctxwin.errors import expect_each

# Of the room for history: the largest answer that a pinned question carries along, and what the current turn stays
# whole within; an agent does again what it no longer sees (measured on recorded agents and in the arena, at no cost).
ANSWER_SHARE, WHOLE_TURN_SHARE = 0.05, 0.35
WRITTEN_SHARE = 0.95  # of the room: where an inline summary is written unless told; what follows it has to fit, too
FILLED_SHARE = 0.95  # of the limit: fixed regions past it leave no history worth compacting
# What a bound by number of messages leaves: half of them, unless `keep` is a share that leaves room to grow.
KEPT_MESSAGES_SHARE, MAX_MESSAGES_SHARE = 0.5, 0.8
# Messages whose lines are read at once, and characters of each kind of line for each token of the record after which
# no more of it is read: a token has some four characters, so that is several times what a record shows.
NOTED_AT_ONCE, OLDER_CHARS = 300, 16
FAR = 8  # a cut that leaves so many times the limit is not priced: a history may be met at any length

LEAST_MESSAGES = 2  # a question and its answer
# What the record may take where its share would be too little to say anything, and its most of the room then.
LEAST_RECORD_TOKENS, LEAST_RECORD_SHARE = 400, 0.75
RECORD_FRAME_TOKENS = 24  # tokens around the lines of the record: its marks, and the count of what left
MIN_PROGRESS = 0.1  # smallest reduction of the request that a summary must promise; less would be repeated at once
# Longest accepted summary over the size asked for: models cannot count their own tokens, and our count estimates.
LENGTH_TOLERANCE = 1.5


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
    dropped_messages: int = 0
    """Whole turns, and messages, that leave without a summary."""

    snapshot: tuple[int, int] | None = None
    """Positions of the messages to summarize, stop excluded; None when no summary is asked for."""

    summary_max_tokens: int = 0
    summary: str | None = None
    """A finished summary that is shown from now on; None leaves the summary as it is."""

    spared: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """What a `before_compaction` hook wishes: ids of messages that stay, lines for the record."""

    def spare(self, *message_ids: str) -> Compaction:
        """Return it with the wish that these messages stay, whole, for a `before_compaction` hook to return.

        What the history does not have, such as the id of a message that has none, is passed over with a warning.

        Raises:
            ConfigError: one of them is no id, such as a list or a message.
        """
        named = expect_each(message_ids, str | None, "message_ids", "ids of messages, for example spare(message.id)")
        return replace(self, spared=(*self.spared, *named))

    def with_lines(self, *lines: str) -> Compaction:
        """Return it with the wish that the record says this from now on, for a `before_compaction` hook to return.

        Raises:
            ConfigError: one of them is no text.
        """
        return replace(self, lines=(*self.lines, *expect_each(lines, str, "lines", "texts, one for each line")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How small the request has to become. All sizes are tokens, as `PricedView` counts them."""

    limit: int  # largest input; a request fits when its upper bound is within it
    is_checked: bool
    """False while the provider reported no size: the current user message is then cut on the most likely count only. A
    question is not cut on a mere suspicion, and if the provider refuses it, recovery covers the rest."""

    keep: float  # low-water mark of the history: a share of its room when at most 1, else tokens
    record_share: float  # part of the room, pins included, that the lines of the record may take
    max_history_tokens: int | None
    pin_first_user: bool
    rules: str | Callable[[str], bool] | None = None  # which other sentences of people hold from then on
    max_messages: int | None = None  # largest number of messages in the view; None for any
    clear_tools: frozenset[str] = frozenset()  # tools whose results are cleared in place before anything is dropped
    spare_tools: frozenset[str] = frozenset()
    """Tools whose results are shown whole as long as anything else can be made smaller."""

    trigger: float | None = None
    prepare: float = 1.0
    """Size of the history past which something leaves, where somebody set one, and past which a summary is begun ahead
    of need; like `keep`."""

    summarize: Literal["background", "inline", "off"] = "inline"
    summary_max_tokens: int | None = None  # longest summary; None sizes it by the room of the history
    whole_turn_share: float = WHOLE_TURN_SHARE  # part of the room within which no step of the current turn has to leave

    def fits(self, priced_view: PricedView) -> bool:
        """True when the request may be sent."""
        return priced_view.upper_tokens <= self.limit

    @property
    def for_cuts(self) -> Goal:
        """The goal of messages that have to be cut, which leaves room for the record of what is cut out."""
        return replace(self, limit=min(int(CUT_SHARE * self.limit), self.limit - RECORD_FRAME_TOKENS))

    @property
    def beside_cuts(self) -> Goal:
        """The goal of the record beside messages that had to be cut, which leaves room for a short next step."""
        return replace(self, limit=int(RECORDED_SHARE * self.limit))

    def likely_fits(self, priced_view: PricedView) -> bool:
        """True when the current user message need not be cut."""
        return (priced_view.upper_tokens if self.is_checked else priced_view.total_tokens) <= self.limit

    def reaches(self, priced_view: PricedView) -> bool:
        """True when the request fits and is at or below its low-water mark."""
        is_few = self.max_messages is None or shown_messages(priced_view) <= self.kept_messages
        return self.fits(priced_view) and priced_view.total_tokens <= self.low_water(priced_view) and is_few

    def settles(self, priced_view: PricedView) -> bool:
        """True when a finished summary alone makes the request small enough: halfway to the low-water mark."""
        halfway = (self.ceiling(priced_view) + self.low_water(priced_view)) // 2
        is_few = self.max_messages is None or 2 * shown_messages(priced_view) <= self.max_messages + self.kept_messages
        return self.fits(priced_view) and priced_view.total_tokens <= halfway and is_few

    def leaves_whole(self, priced_view: PricedView) -> bool:
        """True when the current turn, which is all of the history that is left, is small enough to stay whole."""
        most = priced_view.fixed_tokens + portion(self.whole_turn_share, self.room(priced_view))
        return self.max_messages is None and self.fits(priced_view) and priced_view.total_tokens <= most

    def has_no_room(self, priced_view: PricedView) -> bool:
        """True when the fixed regions nearly fill the limit by themselves: no compaction of the history can help."""
        return priced_view.fixed_tokens > FILLED_SHARE * self.limit

    @property
    def kept_messages(self) -> int:
        """Messages that a compaction by their number leaves."""
        share = self.keep if self.keep <= MAX_MESSAGES_SHARE else KEPT_MESSAGES_SHARE
        return max(LEAST_MESSAGES, int(share * (self.max_messages or 0)))

    def likely_limit(self, priced_view: PricedView) -> int:
        """The limit as a most likely size: what the bound on an unsure count leaves of it."""
        return int(self.limit * priced_view.total_tokens / max(1, priced_view.upper_tokens))

    def room(self, priced_view: PricedView) -> int:
        """What the fixed regions leave for history, as most likely sizes: the limit less what they may be short of.

        While counts are unsure a request is at its limit long before its most likely size is.
        """
        room = max(0, self.likely_limit(priced_view) - priced_view.fixed_tokens)
        return room if self.max_history_tokens is None else min(room, self.max_history_tokens)

    def most_history(self, priced_view: PricedView) -> int:
        """Tokens of the history past which something leaves: the trigger, or all of the room."""
        return portion(1.0 if self.trigger is None else self.trigger, self.room(priced_view))

    def ceiling(self, priced_view: PricedView) -> int:
        """Total at which something has to leave."""
        return priced_view.fixed_tokens + self.most_history(priced_view)

    def low_water(self, priced_view: PricedView) -> int:
        """Total that a compaction aims for; pins, summary and record count as cost before it is set."""
        return priced_view.fixed_tokens + portion(self.keep, self.room(priced_view))


def shown_messages(priced_view: PricedView) -> int:
    """Return how many messages of the history the view holds."""
    return priced_view.stop - priced_view.start


def portion(share: float, room: int) -> int:
    """Return a setting that is a share of the room when at most 1, else a number of tokens capped by the room."""
    return int(share * room) if share <= 1 else min(int(share), room)


# ---- where to cut ---------------------------------------------------------------------------------------------------


def turn_cuts(priced_view: PricedView) -> list[int]:
    """Positions where whole turns can leave: the turn starts after the first, up to the current turn."""
    return [step.index for step in priced_view.steps if step.index > priced_view.start and starts_turn(step)]


def step_cuts(request: RequestParts, priced_view: PricedView) -> list[int]:
    """Positions inside the current turn where its oldest steps can leave; the newest step always stays."""
    user = last_user(request.messages)
    begin = priced_view.start if user is None else max(priced_view.start, user + 1)
    last = priced_view.newest.index if priced_view.newest else begin
    return [step.index for step in priced_view.steps if begin < step.index <= last and step.messages]


def first_enough(priced_view: PricedView, goal: Goal, cuts: Sequence[int], ok: Callable[[int], bool]) -> int:
    """Return the first of the cuts for which `ok` holds, if it holds for all later ones; the last when for none."""
    steps = priced_view.steps
    near = bisect_left(cuts, x=True, key=lambda cut: steps.between(cut, priced_view.stop)[0] <= FAR * goal.limit)
    best = first_that(cuts[near:], ok)
    return cuts[-1] if best is None else best


def first_that(values: Sequence[int], ok: Callable[[int], bool]) -> int | None:
    """Return the first of the ascending values for which `ok` holds, if `ok` stays true once it is; by bisection."""
    place = bisect_left(values, x=True, key=ok)
    return values[place] if place < len(values) else None


def cut(request: RequestParts, priced_view: PricedView, start: int, goal: Goal) -> View:
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
    if not (view.cleared or view.clamped):
        return moved
    shown = {message_id(messages, index) for index in range(start, len(messages))}
    shown.update(position.id for position in pinned)
    clamped = {key: clamp for key, clamp in view.clamped.items() if key in shown}
    return replace(moved, cleared=view.cleared & shown, clamped=clamped)


# ---- what left, and what the record says of it ----------------------------------------------------------------------


def left_behind(request: RequestParts, before: View, after: View) -> list[int]:
    """Return the positions of the messages that one view shows and the other, which starts later, does not."""
    shown = {position.index for position in after.pinned}
    pinned = {position.index for position in before.pinned if position.index < request.start_of(before)}
    return [i for i in (*sorted(pinned), *range(request.start_of(before), request.start_of(after))) if i not in shown]


def shown_again(request: RequestParts, before: View, after: View) -> list[int]:
    """Return the positions of the messages that had left one view and are pinned in the other, as an answer may be."""
    start, shown = request.start_of(before), {position.index for position in before.pinned}
    return [position.index for position in after.pinned if position.index < start and position.index not in shown]


def with_record(
    request: RequestParts,
    before: PricedView,
    after: PricedView,
    goal: Goal,
    *,
    summary_tokens: int = 0,
    is_first: bool = False,
) -> PricedView:
    """Return the request with the record of what left since `before`, as much of it as its room holds.

    `summary_tokens` is the size of a summary that is still to be written, and will stand above the record. With
    `is_first`, before anything is clamped, it may take half of what the newest results would fill, but no room of old
    messages that are kept.
    """
    old, new = before.view, after.view
    left, back = left_behind(request, old, new), shown_again(request, old, new)
    clamped = {key for key, clamp in new.clamped.items() if old.clamped.get(key) != clamp}
    edits = (new.cleared - old.cleared) | clamped  # what is shown shorter than before left, too
    places = range(after.start, len(request.messages)) if edits else ()
    edited = [i for i in places if message_id(request.messages, i) in edits]
    if not left and not back and not edited:
        return after
    record = old.record  # not that of `after`: what left on the way there may be in it already
    more, again = _sums(request, before, left), _sums(request, before, back)
    sums = {name: max(0, getattr(record, name) + more[name] - again[name]) for name in more}
    room, free = record_room(request, after, goal, summary_tokens=summary_tokens)
    if is_first:
        others = after.fixed_tokens - request.text_tokens(after.preamble.record)
        _, free = record_room(request, after, goal.beside_cuts)
        most = max(0, goal.beside_cuts.likely_limit(after) - others)
        free = max(free, min(int((1 - NEWEST_SHARE) * most), most - portion(goal.keep, most)))
    lines = chain(_lines(request, sorted({*left, *edited}), room, rules_of(goal.rules)), request.keeps)
    shown = "\n".join(text_of(m.content) for step in (*after.pinned, *after.steps) for m in step.messages)
    record = replace(record, **sums)
    record = extended(record, lines, shown=shown, room_tokens=room, free_tokens=free, price=request.text_tokens)
    return request.priced_view(replace(after.view, record=record), after.summary)


def record_room(
    request: RequestParts, priced_view: PricedView, goal: Goal, *, summary_tokens: int = 0
) -> tuple[int, int]:
    """Return how many tokens the lines of the record may take, as a share of the room, and how many are free now."""
    present = request.text_tokens(priced_view.preamble.record) - request.text_tokens(priced_view.summary)
    regions, limit = priced_view.size.regions, goal.likely_limit(priced_view)
    room = limit - regions.system_tokens - regions.tool_tokens
    free = limit - (priced_view.total_tokens - present + summary_tokens) - RECORD_FRAME_TOKENS
    is_alone = not (summary_tokens or priced_view.summary)
    least = min(LEAST_RECORD_TOKENS, int(LEAST_RECORD_SHARE * room)) if is_alone else 0
    return max(int(goal.record_share * room), least), max(0, free)


def _sums(request: RequestParts, before: PricedView, positions: Sequence[int]) -> dict[str, Any]:
    """What the record counts of some messages."""
    messages, steps, tokens = request.messages, 0, 0
    is_bare = not request.full_tokens and request.loaded is None  # each step has the price of its messages alone
    priced = {step.index: step for step in before.steps if step.is_plain} if is_bare else {}
    for run in _runs(positions):
        index, stop = run[0], run[-1] + 1
        while index < stop:
            step = priced.get(index)
            if step is None or step.stop > stop:
                step = next(split_steps(messages, index, stop))
                step = replace(step, tokens=sum(map(request.price, step.messages)))
            steps, tokens, index = steps + 1, tokens + step.tokens, step.stop
    turns = sum(is_user(messages[i]) for i in positions)
    return {"turns": turns, "steps": steps, "messages": len(positions), "tokens": tokens}


def _lines(request: RequestParts, positions: Sequence[int], room_tokens: int, rules: Rules) -> Iterator[RecordLine]:
    """The lines of messages, as far as any record could have a place for them.

    A long history that is met at once is read from the newest message on until there is several times as much as a
    record shows of each: calls, values that the agent used, and values of results. Of what came before only
    statements of people that go on to hold, or have a value, compete with that.
    """
    messages, parts, stop = request.messages, list[list[RecordLine]](), len(positions)
    room_chars = dict.fromkeys(("done", "used", "seen"), OLDER_CHARS * room_tokens)
    while stop and (not parts or max(room_chars.values()) > 0):
        start = max(0, stop - NOTED_AT_ONCE)
        while start and result_ids(messages[positions[start]]):
            start -= 1  # a result is read with its call
        parts.append([])
        for run in _runs(positions[start:stop]):
            ids = [message_id(messages, i) for i in run]
            parts[-1] += record_lines([messages[i] for i in run], ids, messages[run[0] - 1] if run[0] else None, rules)
        for line in parts[-1]:
            if line.kind == "seen" and line.uses >= USED:
                room_chars["used"] -= len(line.text)
            if line.kind in room_chars:
                room_chars[line.kind] -= len(line.text)
        stop = start
    for i in positions[:stop]:
        if is_user(messages[i]):
            yield from lasting(messages[i], message_id(messages, i), messages[i - 1] if i else None, rules)
    yield from chain.from_iterable(reversed(parts))


def _runs(positions: Sequence[int]) -> Iterator[list[int]]:
    """Positions that follow each other, together."""
    for _, run in groupby(enumerate(positions), key=lambda numbered: numbered[1] - numbered[0]):
        yield [position for _, position in run]


CLAMP_FLOOR_CHARS = 240  # shortest form of a clamped message: about three lines, enough to see what it was
HEAD_SHARE = 2 / 3  # part of a clamped text that shows its head; beginnings say more about what a text is than ends
# Of the limit: where a cut of messages ends, and the record of what is cut out, so that a short next step fits, too.
CUT_SHARE, RECORDED_SHARE = 0.94, 0.98
NEWEST_SHARE = 0.5  # of the room beside fixed regions: what the newest results take at least, beside the record
PINS_SHARE = 0.75  # of the limit: most of what fixed regions take once a pin had to be clamped
# Of the room: most of what a question takes that had filled it by itself, once something follows. With more, each of
# the next steps would be a compaction of its own.
LASTING_SHARE = 0.6
CAP_STEP = 0.99  # from one candidate length to the next: an exact cut is not worth more pricing
HALF = 0.5  # of a room for text that whole lines have to fill; a paragraph in one line would otherwise be left out
CUT_MARK = "..."
_LAST_WORD = re.compile(r"(?<![!-~])[!-~]++\Z")  # letters of scripts without spaces may stand alone

Kind = Callable[[int], bool]  # says by its position whether a message is one to be clamped


def clamp_lasting(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Cut a question that had filled the window when it was new to a part of it, once something follows it."""
    newest, clamped = priced_view.newest, priced_view.view.clamped
    if newest is None or not clamped:
        return priced_view
    messages, regions = request.messages, priced_view.size.regions
    begin = newest.index
    most = LASTING_SHARE * (goal.likely_limit(priced_view) - regions.system_tokens - regions.tool_tokens)

    def is_lasting(index: int) -> bool:
        is_old = index < begin and index not in request.pins
        return is_old and is_user(messages[index]) and message_id(messages, index) in clamped

    def is_small(candidate: PricedView) -> bool:
        steps: Iterator[Step] = chain(candidate.pinned, candidate.steps)
        return sum(step.tokens for step in steps if is_lasting(step.index)) <= most

    return priced_view if is_small(priced_view) else _clamp(request, priced_view, is_lasting, is_small)


def clamp_pins(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp the explicit pins that alone exceed the room."""
    bare = _without_account(request, priced_view)
    least = replace(goal, limit=goal.limit - RECORD_FRAME_TOKENS)  # a record will tell of what is cut out
    if least.likely_fits(bare) or not request.pins:
        return priced_view
    # The larger a pin, the sooner it exceeds the room: a few are asked about, however many there are.
    cuttable = [index for index in request.pins if clampable_chars(request.messages[index]) > CLAMP_FLOOR_CHARS]
    cuttable.sort(key=lambda index: request.price(request.messages[index]))
    first = bisect_left(cuttable, x=True, key=lambda index: _exceeds_alone(request, bare, least, index))
    large = {*cuttable[first:]}

    def leaves_room(candidate: PricedView) -> bool:
        return least.likely_fits(candidate) and candidate.fixed_tokens <= PINS_SHARE * goal.limit

    # Pins stay for good. If they filled the window, every message that follows would break the prompt cache once more.
    roomy = _clamp(request, bare, large.__contains__, leaves_room)
    cut = roomy if leaves_room(roomy) else _clamp(request, bare, large.__contains__, goal.for_cuts.likely_fits)
    return _with_account_of(request, cut, priced_view)


def clamp_until_fits(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Cut messages to what fits, kind by kind, while the request does not fit.

    Old results and calls come first, then other old messages, AI text, the newest results, those of spared tools, and
    the current user message last. Only the newest step leaves record and summary all that these take here; everything
    else is cut when it would not fit even without them.
    """
    if goal.fits(priced_view):
        return priced_view
    messages, pins, current = request.messages, request.pins, last_user(request.messages)
    begin = priced_view.newest.index if priced_view.newest else len(messages)
    spared = _sparing(request, goal)

    def is_old(index: int) -> bool:
        return index < begin and (is_result(messages[index]) or isinstance(messages[index], AIMessage))

    def is_other(index: int) -> bool:
        return index < begin or not (is_result(messages[index]) or isinstance(messages[index], AIMessage))

    def is_written(index: int) -> bool:
        return isinstance(messages[index], AIMessage)

    def is_new_result(index: int) -> bool:
        return index >= begin and is_result(messages[index])

    def cut(candidate: PricedView, kind: Kind) -> PricedView:
        def is_free(index: int) -> bool:
            return kind(index) and index != current and index not in pins and not spared(index)

        return candidate if goal.fits(candidate) else _clamp(request, candidate, is_free, goal.for_cuts.fits)

    bare = cut(cut(_without_account(request, priced_view), is_old), is_other)
    told = cut(cut(_with_account_of(request, bare, priced_view), is_written), is_new_result)
    bare = _without_account(request, told)
    if not goal.fits(bare):
        bare = _clamp(request, bare, lambda index: spared(index) and index not in pins, goal.for_cuts.fits)
    if not goal.likely_fits(bare) and current not in pins:
        bare = _clamp(request, bare, lambda index: index == current, goal.for_cuts.likely_fits)
    return _with_account_of(request, bare, priced_view)


def with_shorter_account(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Shorten the record, then the summary, where messages leave them less room."""
    if goal.fits(priced_view):
        return priced_view
    bare = _without_account(request, priced_view)
    room = goal.likely_limit(bare) - bare.total_tokens
    summary = first_part(priced_view.summary, room // 2, request.text_tokens)
    lines_room = max(0, room - request.text_tokens(summary) - RECORD_FRAME_TOKENS)
    view = replace(priced_view.view, record=fitted(priced_view.view.record, lines_room, request.text_tokens))
    if not summary:  # nothing of it fits: what it covered is in no summary any more, and is summarized again
        view = replace(view, covered=None, covered_tokens=0)
    return request.priced_view(view, summary)


def _without_account(request: RequestParts, priced_view: PricedView) -> PricedView:
    """The request with the frame of its record alone."""
    record = fitted(priced_view.view.record, 0, request.text_tokens)
    return request.priced_view(replace(priced_view.view, record=record), "")


def _with_account_of(request: RequestParts, priced_view: PricedView, other: PricedView) -> PricedView:
    return request.priced_view(replace(priced_view.view, record=other.view.record), other.summary)


def first_part(text: str, room_tokens: int, price: Callable[[str], int]) -> str:
    """Return whole lines from the start of a text, as many as the room holds; a long one is cut between words."""
    if not text or price(text) <= room_tokens:
        return text
    fit = take_while_fits(text.split("\n"), room_tokens, lambda line: price(line) + 1)
    if fit.tokens >= HALF * room_tokens:
        return "\n".join(fit.kept)
    line, room = fit.dropped[0], room_tokens - fit.tokens
    stop = first_that(range(len(line) - 1, 0, -1), lambda stop: price(f"{line[:stop]}{CUT_MARK}") < room)
    head = _LAST_WORD.sub("", line[:stop]) if stop else ""  # a word or value is never cut in two
    return "\n".join((*fit.kept, f"{head}{CUT_MARK}" if head.strip() else "")).strip()


def _sparing(request: RequestParts, goal: Goal) -> Kind:
    """Return what says of a position whether it holds the result of a spared tool."""
    return lambda index: bool(goal.spare_tools) and tool_of(request.messages, index) in goal.spare_tools


def _exceeds_alone(request: RequestParts, priced_view: PricedView, goal: Goal, index: int) -> bool:
    """True when a request with this explicit pin verbatim, and everything else at its smallest, would not fit.

    Constraints and other explicit pins are left out of it; pins after the start of the view, which cannot leave, are
    clamped. As with the current user message, a suspicion is not enough while no size was reported.
    """
    pin, view = message_id(request.messages, index), priced_view.view
    kept = pins_before(
        request.messages,
        priced_view.start,
        first=request.first,
        marked=(index,),
        pin_first_user=goal.pin_first_user,
        carry=lambda _: True,
    )
    alone = replace(
        view,
        pinned=tuple(position for position in view.pinned if position in kept),
        clamped={key: clamp for key, clamp in view.clamped.items() if key != pin},
    )
    smallest = _with_clamps(request, alone, _lengths(request, alone, lambda other: other != index), CLAMP_FLOOR_CHARS)
    return not goal.likely_fits(replace(request, constraints=()).priced_view(smallest, priced_view.summary))


def _clamp(
    request: RequestParts, priced_view: PricedView, kind: Kind, enough: Callable[[PricedView], bool]
) -> PricedView:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = _lengths(request, priced_view.view, kind)
    if not lengths:
        return priced_view

    def clamped_to(chars: int) -> PricedView:
        return request.priced_view(_with_clamps(request, priced_view.view, lengths, chars), priced_view.summary)

    caps, chars = list[int](), float(max(lengths.values()))
    while chars > CLAMP_FLOOR_CHARS:
        caps.append(int(chars))
        chars *= CAP_STEP
    caps = sorted({CLAMP_FLOOR_CHARS, *caps}, reverse=True)
    best = first_that(caps, lambda cap: enough(clamped_to(cap)))
    return clamped_to(caps[-1] if best is None else best)


def _lengths(request: RequestParts, view: View, kind: Kind) -> dict[int, int]:
    """Return the shown messages of a kind that can be cut: their lengths in characters, by position."""
    messages, start = request.messages, request.start_of(view)
    pinned = [position.index for position in view.pinned if position.index < start]
    lengths = dict[int, int]()
    for index in (*pinned, *range(start, len(messages))):
        if message_id(messages, index) not in view.cleared and kind(index):
            lengths[index] = clampable_chars(messages[index])
    return {index: chars for index, chars in lengths.items() if chars > CLAMP_FLOOR_CHARS}


def _with_clamps(request: RequestParts, view: View, lengths: Mapping[int, int], chars: int) -> View:
    clamps = dict(view.clamped)
    for index in (index for index, length in lengths.items() if length > chars):
        key, head = message_id(request.messages, index), int(chars * HEAD_SHARE)
        old = clamps.get(key) or Clamp(head_chars=head, tail_chars=chars - head)
        clamps[key] = Clamp(
            head_chars=min(head, old.head_chars),
            tail_chars=min(chars - head, old.tail_chars),
            of_pin=index in request.pins,
            tool=request.recall,
        )
    return replace(view, clamped=clamps)
