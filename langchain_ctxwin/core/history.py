"""The history of a conversation: its steps, what is marked in it, and its steps as a model sees them, priced.

A `MessageHistory` is built once and extended while a conversation grows: it is all that is remembered from one request
to the next. Losing it loses time only. Messages are replaced, as LangGraph does, and never changed in place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.media import has_media
from langchain_ctxwin.core.model_info import UNKNOWN, Rules
from langchain_ctxwin.core.pairing import (
    call_ids,
    repair_step,
    unanswered_in,
    unique_calls,
)
from langchain_ctxwin.core.provider_blocks import (
    compaction_in,
    is_stored,
    loading,
    readable,
    text_of,
    unsealed,
    without_bound_reasoning,
)
from langchain_ctxwin.core.turns import (
    Price,
    Step,
    checksum,
    is_pinned,
    split_steps,
    starts_turn,
)
from langchain_ctxwin.core.view import (
    View,
    cleared_in,
    first_after_system,
)

MAX_CHECKSUMS = 8  # positions whose checksum is kept: of the start of the view, of the answers before


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """The messages of one conversation with their steps, pins, media and checksums."""

    messages: list[AnyMessage] = field(default_factory=list)
    price: Price | None = field(default=None, repr=False)
    """What a message costs; None where nothing is priced."""

    first: int = 0
    """Number of leading system messages; they belong to the system region."""

    steps: list[Step] = field(default_factory=list)
    """The steps after those."""

    marked: frozenset[int] = frozenset()
    """Positions of the messages that were marked through `pin`."""

    compacted: frozenset[int] = frozenset()
    """Positions of the answers with which a provider compacted what was before."""

    media: frozenset[int] = frozenset()
    """Positions of the messages with pictures or files."""

    visible_steps: dict[Rules, dict[tuple[int, bool, bool], tuple[Step, Step]]] = field(
        default_factory=dict
    )
    """Steps that are not shown as they are: as they were shown last, with those of `steps` that they were made from."""

    checksums: dict[int, int] = field(default_factory=dict)
    """Checksums of what lies between the leading system messages and a position, as far as somebody asked."""

    def steps_from(self, start: int) -> Iterator[Step]:
        """Return the steps of the messages from `start` on."""
        place = bisect_left(self.steps, start, key=lambda step: step.index)
        if place < len(self.steps) and self.steps[place].index == start:
            return iter(self.steps[place:])
        return split_steps(self.messages, start, price=self.price)

    def step_at(self, index: int) -> Step:
        """Return the step that holds the message at a position."""
        return self.steps[
            bisect_left(self.steps, index + 1, key=lambda step: step.index) - 1
        ]

    def in_steps(self, wanted: Iterable[int]) -> set[int]:
        """Return the positions of all messages of the steps that hold those at the wanted positions."""
        steps = map(self.step_at, wanted)
        return {index for step in steps for index in range(step.index, step.stop)}

    def checksum_of(self, view: View) -> int:
        """Return the checksum of what summary and record may tell of: what is before the start, and cleared results.

        Leading system messages are shown as they are now.
        """
        start = max(self.first, view.start.index if view.start else 0)
        return checksum(cleared_in(view, self.messages), self.checksum_until(start))

    def with_checksum(self, view: View) -> View:
        """Return the view with a checksum of the messages that left it, so that later edits of them are noticed."""
        start = view.start.index if view.start else 0
        has_left = start > self.first or cleared_in(view, self.messages)
        return replace(view, left_checksum=self.checksum_of(view) if has_left else None)

    def checksum_until(self, stop: int) -> int:
        """Return the checksum of the messages before a position, which goes on from the last one before it."""
        if stop not in self.checksums:
            known = [at for at in [*self.checksums] if at <= stop]  # threads share them
            begin = max(known, default=self.first)
            total = self.checksums.get(begin, 0)
            self.checksums[stop] = checksum(self.messages[begin:stop], total)
        return self.checksums[stop]


def read_history(
    messages: Sequence[AnyMessage],
    before: MessageHistory | None = None,
    *,
    price: Price | None = None,
) -> MessageHistory:
    """Return the history of these messages: `before`, extended, where they begin with its messages, else built anew."""
    if before is None or not starts_with(messages, before.messages):
        before = MessageHistory(price=price)
    same = len(before.messages)
    if same and len(messages) == same:
        return before
    whole = [*before.messages, *messages[same:]]
    closed_steps = before.steps[: _closed(before.steps)]
    first = first_after_system(whole)
    new = enumerate(whole[same:], same)
    blocks = [
        (index, message) for index, message in new if type(message.content) is list
    ]
    return replace(
        before,
        messages=whole,
        first=first,
        steps=[
            *closed_steps,
            *split_steps(
                whole, closed_steps[-1].stop if closed_steps else first, price=price
            ),
        ],
        marked=before.marked.union(
            index for index in range(same, len(whole)) if is_pinned(whole[index])
        ),
        compacted=before.compacted.union(
            index for index, message in blocks if compaction_in(message)
        ),
        media=before.media.union(
            index for index, message in blocks if has_media(message)
        ),
        checksums=dict([*before.checksums.items()][-MAX_CHECKSUMS:])
        if first == before.first
        else {},
    )


def starts_with(
    messages: Sequence[AnyMessage], first_messages: Sequence[AnyMessage]
) -> bool:
    """True when a history begins with known messages: the same ones, or equal ones that were loaded anew."""
    if len(messages) < len(first_messages):
        return False
    return all(map(is_, messages, first_messages)) or all(
        map(_are_equal, messages, first_messages)
    )


def _are_equal(one: AnyMessage, other: AnyMessage) -> bool:
    return one is other or (type(one) is type(other) and one.__dict__ == other.__dict__)


def _closed(steps: Sequence[Step]) -> int:
    """How many steps later messages cannot extend: up to the last question or answer, which only its results extend."""
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if starts_turn(step) or isinstance(step.messages[0], AIMessage):
            return place if step.calls else place + 1
    return 0


# ---- the steps as the model sees them -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What precedes a step in the request."""

    message: AnyMessage | None = None
    """The message right before it; None at the start of the history."""

    calls: set[str] = field(default_factory=set)
    """Ids of the tool calls that were made before it; those of each step that is shown join them."""

    unanswered: set[str] = field(default_factory=set)
    """Those of them that are shown without a result."""

    unbound: int = 0
    """Position up to which reasoning is tied to a prefix that the request no longer has: it is left out."""

    is_answered: bool = False
    """An answer follows the step, or is asked for behind it."""

    unsealed: int = 0
    """Position up to which nothing is shown that a provider signed or encrypted: it took that no more."""

    rules: Rules = UNKNOWN
    """What the provider of the request takes."""

    def following(self, step: Step) -> Before:
        """Return the context of the step that follows this one."""
        self.unanswered.update(unanswered_in(step.messages))
        last = step.messages[-1] if step.messages else self.message
        return replace(self, message=last)


def show_steps(
    history: MessageHistory, start: int, view: View, before: Before
) -> Iterator[Step]:
    """Yield the steps of a history from `start` on as the model sees them.

    One in standard form that the view does not edit is shown as it is, behind a message that it may follow. Another is
    shown as it was shown last where nothing that it depends on has changed: the message before it is the one before it
    in the history, and its calls have ids of their own.
    """
    messages, edited, rules = history.messages, view.edited, before.rules
    memo = history.visible_steps.setdefault(rules, {})
    taken, last = before.calls, before.message
    for step in history.steps_from(start):
        is_unsealed = step.index < before.unsealed
        is_own = taken.isdisjoint(step.calls) and (
            not edited or edited.isdisjoint(_ids(step))
        )
        is_sent = is_own and step.is_standard and not is_unsealed
        if is_sent and may_follow(step, last, rules):
            taken.update(step.calls)
            last = step.messages[-1]
            yield step
            continue
        is_known = (
            is_own
            and step.is_paired
            and last is messages[step.index - 1]
            and not isinstance(step.messages[0], SystemMessage)
        )
        key = (step.index, step.index < before.unbound, is_unsealed)
        memoized = memo.get(key) if is_known else None
        if memoized is not None and memoized[0] is step:
            visible_step = memoized[1]
        else:
            follows = replace(
                before,
                message=last,
                is_answered=step.stop == len(messages) or _says(messages[step.stop]),
            )
            visible_step = show_step(step, view, follows)
            if is_known:
                memo[key] = (step, visible_step)
        taken.update(visible_step.calls)
        if visible_step is not step:
            before.unanswered.update(unanswered_in(visible_step.messages))
        if visible_step.messages:
            last = visible_step.messages[-1]
        yield visible_step


def may_follow(step: Step, last: AnyMessage | None, rules: Rules) -> bool:
    """Return whether a step in standard form needs no message between it and the one before."""
    if type(step.messages[0]) is HumanMessage:
        return True
    if last is None:
        return False
    return not step.calls or rules.calls_after_ai or not isinstance(last, AIMessage)


def show_step(step: Step, view: View, before: Before) -> Step:
    """Return one step as the model sees it after what precedes it: edited and valid.

    The same step where nothing of it changes.
    """
    messages: Sequence[AnyMessage] = step.messages
    if view.edited:
        named = zip(_ids(step), messages, strict=True)
        messages = [edit(m, key, view) for key, m in named]
    rules = before.rules
    if step.index < before.unsealed:
        messages = [unsealed(message) for message in messages]
    elif rules.provider:
        messages = [_sent(message, rules) for message in messages]
    if rules.loads_tools:
        messages = [loading(message) for message in messages]
    if step.index < before.unbound:
        messages = [without_bound_reasoning(message) for message in messages]
    messages = repair_step(
        messages,
        before.message,
        rules,
        before.unanswered,
        is_answered=before.is_answered,
    )
    visible_messages = unique_calls(messages, before.calls)
    if len(visible_messages) == step.size and all(
        map(is_, visible_messages, step.messages)
    ):
        return step
    return Step(
        index=step.index,
        size=step.size,
        messages=visible_messages,
        price=step.price,
        calls=tuple(key for message in visible_messages for key in call_ids(message)),
    )


def _sent(message: AnyMessage, rules: Rules) -> AnyMessage:
    """A message as its provider can take it."""
    if rules.is_stateless and is_stored(message):
        return unsealed(message)
    return readable(message, rules.provider)


def _says(message: AnyMessage) -> bool:
    """True for an answer that is sent in any case."""
    return isinstance(message, AIMessage) and bool(
        text_of(message.content).strip() or call_ids(message)
    )


def _ids(step: Step) -> list[str]:
    return [
        message.id or f"#{step.index + offset}"
        for offset, message in enumerate(step.messages)
    ]
