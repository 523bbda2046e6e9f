"""The parts of a request and their prices for any candidate view; pins among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Literal, Protocol, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage

from langchain_ctxwin.core.assembly import Fill, Preamble, assemble, constraints_text, filled, record_text, with_fill
from langchain_ctxwin.core.calls import call_ids, is_result, is_user, result_ids
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.media import NO_LIMITS, MediaLimits, MediaSize, left_out, without_media
from langchain_ctxwin.core.native import (
    has_bound_reasoning,
    is_kept,
    is_read,
    loaded_tools,
    loading,
    only_compaction,
    readable,
    without_bound_reasoning,
)
from langchain_ctxwin.core.pairing import (
    UNKNOWN,
    Rules,
    is_empty,
    is_valid_step,
    repair_step,
    unanswered_in,
    unique_calls,
)
from langchain_ctxwin.core.record import RecordLine, lazy
from langchain_ctxwin.core.sizing import Regions, SizeEstimate, Sizes
from langchain_ctxwin.core.turns import NOTE_KEY, Shown, Step, Turn, checksum, group_turns, split_steps
from langchain_ctxwin.core.view import Position, View, message_id, position_of
from langchain_ctxwin.errors import expect

M = TypeVar("M", bound=BaseMessage)

PIN_KEY = "ctxwin_pin"
"""Key in `additional_kwargs` that marks a pinned message; it survives every checkpointer."""

PinWhen = Callable[[AnyMessage], bool]
"""Says which messages are pinned without a mark. It must answer the same about an unchanged message every time."""

BINDS = frozenset({"", "anthropic"})
"""Providers whose reasoning may be tied to what precedes it: Anthropic, and whoever nobody knows."""

ANSWER_TEXT = "[left out]"
"""Stands for the rest of the turn of a pinned question whose answer is not carried along."""


def pin(message: M) -> M:
    """Return a copy of the message that stays in every request, verbatim.

    The copy keeps the id, so writing it back to the state pins a message that is already in the history.

    Raises:
        ConfigError: it is no message.

    Examples:
        >>> is_pinned(pin(SystemMessage("Never book before 9:00.")))
        True
    """
    expect(message, BaseMessage, "message", "a message, for example pin(HumanMessage(...))")
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, PIN_KEY: True}})


def is_pinned(message: BaseMessage) -> bool:
    """True when the message was marked through `pin`."""
    return bool(message.additional_kwargs.get(PIN_KEY))


def pins_before(
    messages: Sequence[AnyMessage],
    start: int,
    *,
    first: int,
    marked: Iterable[int],
    pin_first_user: bool,
    carry: Callable[[AnyMessage], bool],
    compacted: Collection[int] = (),
) -> tuple[Position, ...]:
    """Return what is shown although it lies before `start`, in order.

    Args:
        messages: the full history.
        start: first position of the view.
        first: first position that is not a leading system message.
        marked: positions of explicit pins.
        pin_first_user: keep the first user message.
        carry: True when a final answer is short enough to be kept with its pinned question.
        compacted: positions of compactions by a provider that stay, without the rest of their steps.
    """
    wanted = {index for index in marked if first <= index < start}
    current = last_user(messages)
    first_user = next((i for i in range(first, start) if is_user(messages[i])), None)
    wanted.update(index for index in (current, first_user if pin_first_user else None) if index is not None)
    before = [index for index in sorted(wanted) if index < start]
    shown = {index for index in compacted if index < start}.union(in_steps(messages, before, start))
    for index in before:
        shown.update(_answer(messages, index, start, carry) if index != current else ())
    return tuple(position_of(messages, index) for index in sorted(shown))


def last_user(messages: Sequence[AnyMessage]) -> int | None:
    """Return the position of the current user message; None when there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if is_user(messages[i])), None)


def needs_answer(question: AnyMessage, following: AnyMessage | None) -> bool:
    """True when a shown user message would look open although its turn is done."""
    return is_user(question) and (following is None or is_user(following))


def step_at(messages: Sequence[AnyMessage], index: int, stop: int) -> Step:
    """Return the step that holds the message at `index`."""
    return next(_steps_at(messages, [index], stop))


def in_steps(messages: Sequence[AnyMessage], wanted: Sequence[int], stop: int) -> set[int]:
    """Return the positions of all messages of the steps that hold those at the `wanted` positions, which ascend."""
    return {index for step in _steps_at(messages, wanted, stop) for index in range(step.index, step.stop)}


def _steps_at(messages: Sequence[AnyMessage], wanted: Sequence[int], stop: int) -> Iterator[Step]:
    """The steps that hold the messages at the `wanted` positions, in one pass over the history."""
    steps, seen = split_steps(messages, 0, stop), 0  # the steps after those that were seen
    for index in wanted:
        if index < seen:
            continue
        begin = index
        while begin > seen and not (is_user(messages[begin]) and not result_ids(messages[begin])):
            begin -= 1
        if begin > seen:
            steps = split_steps(messages, begin, stop)
        step = next(step for step in steps if index < step.stop)
        seen = step.stop
        yield step


def _answer(messages: Sequence[AnyMessage], index: int, stop: int, carry: Callable[[AnyMessage], bool]) -> list[int]:
    """Position of the final answer of a pinned question, when it is there and short enough."""
    if not is_user(messages[index]):
        return []
    end = next((i for i in range(index + 1, stop) if is_user(messages[i])), stop)
    last = end - 1
    answer = messages[last]
    final = last > index and isinstance(answer, AIMessage) and not call_ids(answer) and not is_empty(answer)
    return [last] if final and carry(answer) else []


Price = Callable[[AnyMessage], int]
"""Tokens of one message, role overhead included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What precedes a step in the request."""

    message: AnyMessage | None = None
    """The message right before it; None at the start of the history."""

    calls: frozenset[str] = frozenset()
    """Ids of the tool calls that were made before it."""

    unanswered: frozenset[str] = frozenset()
    """Those of them that are shown without a result."""

    unbound: int = 0
    """Position up to which reasoning is tied to a prefix that the request no longer has: it is left out."""

    rules: Rules = UNKNOWN
    """What the provider of the request takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The part of a history that a provider counted: what follows it is all that a measure has to look at."""

    start: int
    stop: int
    """Positions of its first message and after its last one."""

    total_tokens: int
    """Our estimate of the request that ended there."""

    checksum: int
    """That of its messages at that time; with another one they were edited."""

    is_plain: bool
    """Every message of it was shown as it is."""


class Shower(Protocol):
    """Shows and prices the steps of a history, remembering what it can."""

    def __call__(
        self,
        messages: Sequence[AnyMessage],
        start: int,
        view: View,
        before: Before,
        head: Head | None = None,
        *,
        head_tokens: int = 0,
    ) -> Shown:
        """Return the steps of `messages[start:]` after `before`.

        Where nothing is remembered they begin after the head, which counts `head_tokens`, if it is what it was.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PricedView:
    """The regions of one request under one view, each priced once."""

    view: View
    summary: str
    preamble: Preamble
    pinned: tuple[Step, ...]
    shown: Shown
    """The history as it is shown, its sums and messages; its head may not be told apart into steps."""

    start: int
    """Position of the view's first message."""

    estimates: Regions
    """What the counter says."""

    size: SizeEstimate
    """The same in the provider's counts, as far as they are known, with bounds."""

    leading: int = 0
    """Messages of the history that precede pins and record: the provider ignores what is before its own compaction."""

    @property
    def fixed_tokens(self) -> int:
        """Everything but the history."""
        return self.size.regions.fixed_tokens

    @property
    def least_fixed_tokens(self) -> int:
        """Everything but the history by the lower of both counts: what reports made us believe of it may be wrong."""
        return min(self.fixed_tokens, self.estimates.fixed_tokens)

    @property
    def total_tokens(self) -> int:
        """The most likely size of the whole input."""
        return self.size.regions.total_tokens

    @property
    def upper_tokens(self) -> int:
        """Upper bound of the whole input: a request within the limit by this count may be sent."""
        return self.size.upper_tokens

    @property
    def lower_tokens(self) -> int:
        """Lower bound of the whole input."""
        return self.size.lower_tokens

    @property
    def stop(self) -> int:
        """Position after the last message that is shown: that of the answer."""
        return self.shown.stop or self.start

    @lazy
    def steps(self) -> Shown:
        """The history as it is shown, every step of it."""
        return self.shown.whole() if self.shown.whole else self.shown

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The history by turn."""
        return group_turns(self.steps)

    @property
    def newest(self) -> Step | None:
        """The last step that is more than a note by this package or the application; None in an empty view."""
        told = (step for step in reversed(self.shown) if step.messages)
        return next((s for s in told if s.size > 1 or NOTE_KEY not in s.messages[-1].additional_kwargs), None)

    def messages(self) -> list[AnyMessage]:
        """Return the request."""
        lead, history = self.shown.messages[: self.leading], self.shown.messages[self.leading :]
        pinned = (message for step in self.pinned for message in step.messages)
        return assemble(self.preamble, [*lead, *pinned], history)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """Everything a request is made from, before anything is left out."""

    messages: Sequence[AnyMessage]
    """The full history."""

    first: int
    """Number of leading system messages; they belong to the system region."""

    system: SystemMessage | None
    """System prompt and leading system messages, merged."""

    pins: frozenset[int]
    """Positions of explicit pins: messages marked through `pin`, or for which the engine's `pin_when` holds."""

    constraints: tuple[str, ...]
    keeps: tuple[RecordLine, ...]
    """What the record takes up with the next compaction, whatever leaves: somebody asked to keep it."""

    placement: Literal["system", "user"]
    system_tokens: int
    tool_tokens: int
    price: Price
    show: Shower
    sizing: Sizes
    fill: Fill = filled
    """Adds the line that says how full the window is to a message."""

    head: Head | None = None
    """What of the history needs no look, under a view that begins where it does and edits nothing."""

    recall: str = ""
    """Name of the agent's tool that reads what was cut; empty when it has none."""

    full_tokens: int = 0
    """Input tokens that are a full window, for that line; 0 shows none."""

    rules: Rules = UNKNOWN
    """What its provider takes; what it would refuse is repaired."""

    compacted: frozenset[int] = frozenset()
    """Positions of the answers with which a provider compacted what was before."""

    answered: View | None = None
    """The view of the requests that the newest answers were given to."""

    unbound: int = 0
    """Position up to which reasoning is tied to what requests under that view no longer begin with."""

    media: MediaLimits = NO_LIMITS
    """What of pictures and files one request may have."""

    media_at: frozenset[int] = frozenset()
    """Positions of the messages that have some."""

    loaded: Callable[[str], int] | None = None
    """Tokens of a deferred tool, by name, whose definition comes into the prompt where a message loads it; None where
    there is none."""

    def priced_view(self, view: View, summary: str) -> PricedView:
        """Price the request as `view` shows it."""
        preamble = Preamble(
            system=self.system,
            constraints=constraints_text(self.constraints),
            record=record_text(summary, view.record),
            placement=self.placement,
        )
        start, begin = self.start_of(view), self._begin(view)
        view = replace(view, without_media=self._without_media(view, start))
        pinned = tuple(self._pinned_steps(view, start, begin))
        estimates = Regions(
            system_tokens=self.system_tokens,
            tool_tokens=self.tool_tokens,
            summary_tokens=self.price_text(preamble.record),
            pinned_tokens=self.price_text(preamble.constraints) + sum(step.tokens for step in pinned),
            history_tokens=0,
        )
        lead = self.lead(view)
        is_first = lead is not None and lead >= start
        is_edited = view.cleared or view.clamped or view.without_media or begin.unbound != self.unbound
        head = None if is_edited or self.full_tokens or self.loaded or is_first else self.head
        if head is not None and head.start != start:
            head = None
        head_tokens = head.total_tokens - estimates.fixed_tokens if head else 0
        before = after_steps(pinned, begin)
        before = replace(before, message=None) if is_first else before
        steps = self._with_loaded(self.show(self.messages, start, view, before, head, head_tokens=head_tokens))
        if self.full_tokens:
            limit, fixed = self.full_tokens, estimates.fixed_tokens
            steps = Shown.of(with_fill(steps, before_tokens=fixed, limit=limit, price=self.price, fill=self.fill))
        estimates = replace(estimates, history_tokens=steps.total_tokens)
        return PricedView(
            view=view,
            summary=summary,
            preamble=preamble,
            pinned=pinned,
            shown=steps,
            start=start,
            estimates=estimates,
            size=self.sizing.size(estimates, steps),
            leading=len(steps[0].messages) if is_first and steps else 0,
        )

    def _without_media(self, view: View, start: int) -> frozenset[str]:
        """Ids of the messages whose pictures the request has no room for; explicit pins are shown whole."""
        if self.media == NO_LIMITS or not self.media_at:
            return frozenset()
        before = {position.index for position in view.pinned}
        spared, shown = list[MediaSize](), dict[str, MediaSize]()
        for index in sorted(index for index in self.media_at if index >= start or index in before):
            key, size = message_id(self.messages, index), MediaSize.of(self.messages[index])
            if index in self.pins:
                spared.append(size)
            elif key not in view.cleared:
                shown[key] = size
        return left_out(shown, spared, self.media)

    def lead(self, view: View) -> int | None:
        """Position of the newest compaction by the provider that is shown, and that the provider reads."""
        return max(
            (i for i in self._shown_compactions(view) if is_read(self.messages[i], self.rules.provider)), default=None
        )

    def kept_compactions(self, view: View) -> set[int]:
        """Position of the newest compaction by a provider that is shown, and of use to this one, if there is one."""
        usable = (i for i in self._shown_compactions(view) if is_kept(self.messages[i], self.rules.provider))
        return {*sorted(usable)[-1:]}

    def _shown_compactions(self, view: View) -> Iterator[int]:
        if not self.compacted:
            return iter(())
        start, pinned = self.start_of(view), {position.index for position in view.pinned}
        return (index for index in self.compacted if index >= start or index in pinned)

    def least_tokens(self, priced_view: PricedView) -> int:
        """Lower bound of a candidate: one that is over the limit by this count is refused."""
        return self.sizing.least(priced_view.size, priced_view.estimates, priced_view.steps)

    def clamped_newest(self, priced_view: PricedView) -> dict[str, list[int]]:
        """Return by id what is shown of the current user message and of the newest results that are cut, and of what.

        Both in tokens, as we estimate them.
        """
        clamped = priced_view.view.clamped
        newest, current = priced_view.newest if clamped else None, last_user(self.messages) if clamped else None
        found = [] if current is None else [current]
        if newest:
            found += (index for index in range(newest.index, newest.stop) if is_result(self.messages[index]))
        named = [(message_id(self.messages, index), self.messages[index]) for index in found]
        cut = {name: edit(message, name, priced_view.view) for name, message in named if name in clamped}
        return {name: [self.price(cut[name]), self.price(message)] for name, message in named if name in cut}

    def start_of(self, view: View) -> int:
        """Position of the view's first message; the view must be valid for this history."""
        return max(self.first, view.start.index) if view.start else self.first

    def text_tokens(self, text: str) -> int:
        """The size of a text as the regions of a priced view count it; 0 for an empty one."""
        return round(self.sizing.ratio * self.price_text(text))

    def price_text(self, text: str) -> int:
        """Our estimate of a text as a message of its own; 0 for an empty one."""
        return self.price(SystemMessage(content=text)) if text else 0

    def _begin(self, view: View) -> Before:
        """What holds at the beginning of a request under a view; another view changes what all reasoning is tied to."""
        if view is self.answered or self.rules.provider not in BINDS:
            return Before(rules=self.rules, unbound=self.unbound)
        stop = unbound_before(self.messages, len(self.messages), self.rules)
        shown = (*(position.index for position in view.pinned), *range(self.start_of(view), stop))
        newest = (index + 1 for index in reversed(shown) if has_bound_reasoning(self.messages[index]))
        return Before(rules=self.rules, unbound=max(self.unbound, next(newest, 0)))

    def _with_loaded(self, steps: Shown) -> Shown:
        """The steps with the definitions of the deferred tools that each of them loads."""
        if self.loaded is None:
            return steps
        known, loaded = set[str](), list[Step]()
        for step in steps:
            names = {name for message in step.messages for name in loaded_tools(message)} - known
            known |= names
            loaded.append(replace(step, tokens=step.tokens + sum(map(self.loaded, names))))
        return Shown.of(loaded)

    def _pinned_steps(self, view: View, start: int, before: Before) -> Iterator[Step]:
        """The pinned messages before the start, by step; a finished question never looks open.

        Of a step that compacted only that stays, before all others when the provider ignores what precedes it.
        """
        lead, kept, taken = self.lead(view), self.kept_compactions(view), set[str]()
        pinned, groups = {position.index for position in view.pinned if position.index < start}, list[list[int]]()
        for begin in sorted(index for index in pinned if index - 1 not in pinned):
            end = next(index for index in range(begin, start + 1) if index not in pinned)
            groups += ([*range(step.index, step.stop)] for step in split_steps(self.messages, begin, end))
        groups.sort(key=lambda group: lead not in group)
        for number, group in enumerate(groups):
            index = group[0]
            messages = [self.messages[i] for i in group]
            if len(group) == 1 and index in kept:
                messages = [only_compaction(messages[0])]
            step = Step(index=index, size=len(group), messages=tuple(messages))
            step = show_step(step, view, before, taken, self.price)
            following = groups[number + 1][0] if number + 1 < len(groups) else start
            after = self.messages[following] if following < len(self.messages) else None
            if following > group[-1] + 1 and needs_answer(self.messages[index], after):
                marker = AIMessage(content=ANSWER_TEXT, id=f"{message_id(self.messages, index)}:answered")
                step = replace(step, messages=(*step.messages, marker), tokens=step.tokens + self.price(marker))
            before = _following(before, step)
            yield step


def unbound_before(messages: Sequence[AnyMessage], stop: int, rules: Rules) -> int:
    """Return the position up to which reasoning is left out when the prefix of the first `stop` messages changes.

    The step whose calls wait for an answer keeps its reasoning where the provider would refuse it without.
    """
    if not rules.calls_need_reasoning or not stop or not result_ids(messages[stop - 1]):
        return stop
    return next((index for index in range(stop - 1, -1, -1) if isinstance(messages[index], AIMessage)), stop)


def show_steps(messages: Sequence[AnyMessage], start: int, view: View, before: Before, price: Price) -> Iterator[Step]:
    """Yield the steps of `messages[start:]` as the model sees them, priced."""
    taken = set(before.calls)
    for step in split_steps(messages, start):
        shown = show_step(step, view, before, taken, price)
        before = _following(before, shown)
        yield shown


def _following(before: Before, step: Step) -> Before:
    """What precedes the step after this one, but for the ids of its calls."""
    late = [*unanswered_in(step.messages)] if not step.is_plain else []
    return Before(
        message=step.messages[-1] if step.messages else before.message,
        calls=before.calls,
        unanswered=before.unanswered.union(late) if late else before.unanswered,
        unbound=before.unbound,
        rules=before.rules,
    )


def show_step(step: Step, view: View, before: Before, taken: set[str], price: Price) -> Step:
    """Return one step as the model sees it after what precedes it: edited, valid, priced; its calls join `taken`."""
    messages: Sequence[AnyMessage] = step.messages
    if view.cleared or view.clamped or view.without_media:
        named = [(m.id or f"#{step.index + offset}", m) for offset, m in enumerate(messages)]
        messages = [edit(without_media(m, key) if key in view.without_media else m, key, view) for key, m in named]
    previous, rules = before.message, before.rules
    messages = [readable(message, rules.provider) for message in messages] if rules.provider else messages
    messages = [loading(message) for message in messages] if rules.loads_tools else messages
    messages = [without_bound_reasoning(m) for m in messages] if step.index < before.unbound else messages
    is_valid = is_valid_step(messages, previous, rules)
    valid = tuple(messages) if is_valid else repair_step(messages, previous, rules, before.unanswered)
    shown = unique_calls(valid, taken)
    is_plain = len(shown) == len(step.messages) and all(map(is_, shown, step.messages))
    tokens, number = sum(map(price, shown)), checksum(step.messages)
    return Step(index=step.index, size=step.size, messages=shown, tokens=tokens, checksum=number, is_plain=is_plain)


def after_steps(steps: Sequence[Step], before: Before | None = None) -> Before:
    """Return what precedes the step that follows `steps`."""
    earlier = before or Before()
    last = next((step.messages[-1] for step in reversed(steps) if step.messages), earlier.message)
    calls = {call_id for step in steps for message in step.messages for call_id in call_ids(message)}
    late = [key for step in steps if not step.is_plain for key in unanswered_in(step.messages)]
    return replace(earlier, message=last, calls=earlier.calls | calls, unanswered=earlier.unanswered.union(late))
