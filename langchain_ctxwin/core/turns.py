"""Turns and steps: where a conversation may be cut; pins; and the history of a conversation as a model sees it.

A turn is one user message and everything up to the next one. A step is the smallest group that stands or falls
together: AI messages with tool calls and all their results, or one lone message. Nothing else is a cut.

A `MessageHistory` is built once and extended while a conversation grows: what a request needs of the one before, prices
included. Losing it loses time only. Messages are replaced, as LangGraph does, and never changed in place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, repeat
from operator import is_
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxwin.core.pairing import (
    NOTE_KEY,
    Before,
    call_ids,
    is_empty,
    repair_step,
    sendable,
    standard,
)
from langchain_ctxwin.core.provider_blocks import (
    M,
    Messages,
    apart,
    compaction_in,
    digest,
    media_in,
    readable,
    text_of,
    unsealed,
    without_bound_reasoning,
)
from langchain_ctxwin.core.view import View, edit, first_after_system, message_id
from langchain_ctxwin.errors import ConfigError, expect

PIN_KEY = "ctxwin_pin"
"""Key in `additional_kwargs` that marks a pinned message; it survives every checkpointer."""

ANSWER_TEXT = "[left out]"
"""Stands for the rest of the turn of a pinned question whose answer is not carried along."""


def pin(message: M) -> M:
    """Return a copy of the message that stays in every request, verbatim.

    The copy keeps the id, so writing it back to the state pins a message that is already in the history.

    Raises:
        ConfigError: it is no message.

    Examples:
        >>> from langchain_core.messages import SystemMessage
        >>> is_pinned(pin(SystemMessage("Never book before 9:00.")))
        True
    """
    expect(
        message, BaseMessage, "message", "a message, for example pin(HumanMessage(...))"
    )
    return message.model_copy(
        update={"additional_kwargs": {**message.additional_kwargs, PIN_KEY: True}}
    )


def is_pinned(message: BaseMessage) -> bool:
    """True when the message was marked through `pin`."""
    return bool(message.additional_kwargs.get(PIN_KEY))


def last_user(messages: Messages) -> int | None:
    """Return the position of the current user message; None when there is none."""
    places = reversed(range(len(messages)))
    return next((i for i in places if isinstance(messages[i], HumanMessage)), None)


def runs(positions: Sequence[int]) -> Iterator[list[int]]:
    """Yield positions that follow each other, together."""
    numbered = enumerate(positions)
    for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0]):
        yield [position for _, position in run]


def final_answer(messages: Messages, index: int, stop: int) -> int | None:
    """Return the position of the answer that ends the turn of a pinned question; None while there is none."""
    if not isinstance(messages[index], HumanMessage):
        return None
    following = range(index + 1, stop)
    users = (i for i in following if isinstance(messages[i], HumanMessage))
    last = next(users, stop) - 1
    answer = messages[last]
    is_final = isinstance(answer, AIMessage) and not call_ids(answer)
    return last if is_final and not is_empty(answer) else None


Price = Callable[[AnyMessage], int]
"""Tokens of one message, role overhead included."""


@dataclass(kw_only=True)
class Step:
    """The smallest group of messages that must stay together.

    Nothing but its own memory changes. It is not frozen because thousands are made at once, and that takes three times
    as long.
    """

    index: int  # position of the first message in the history
    size: int  # number of messages of the history that the step covers
    # the messages; in a `Window` as the model sees them
    messages: tuple[AnyMessage, ...]
    calls: tuple[str, ...] = ()  # ids of its calls
    price: Price | None = field(default=None, repr=False, compare=False)
    sent: dict[tuple[Any, ...], Step] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    """The step as providers take it; worked out once for each."""

    @cached_property
    def tokens(self) -> int:
        """Price of the messages, in tokens; 0 where nothing prices them. It is worked out when it is asked for."""
        return sum(map(self.price, self.messages)) if self.price else 0

    @cached_property
    def is_paired(self) -> bool:
        """True for a message that says something, and for calls with ids of their own and their results in order."""
        first, *results = self.messages
        if not self.calls:
            return isinstance(first, AIMessage | HumanMessage) and not is_empty(first)
        answered = tuple([getattr(result, "tool_call_id", "") for result in results])
        is_unique = all(answered) and len({*answered}) == len(answered)
        return is_unique and answered == self.calls

    @property
    def stop(self) -> int:
        """Position after the last message."""
        return self.index + self.size


class Steps(tuple[Step, ...]):  # noqa: SLOT001  # a tuple cannot have slots of its own
    """The steps of a history, in order; what they cost is worked out where somebody asks."""

    counted: tuple[int, int] = (0, 0)
    """A position up to which the tokens of all steps are known from an earlier request, and these tokens."""

    @cached_property
    def total_tokens(self) -> int:
        """Tokens of all steps."""
        stop, tokens = self.counted
        return tokens + sum([step.tokens for step in self[self.place(stop) :]])

    @property
    def stop(self) -> int:
        """Position after the last message that is shown; 0 when none is."""
        return self[-1].stop if self else 0

    @property
    def messages(self) -> list[AnyMessage]:
        """The messages of all steps."""
        return [message for step in self for message in step.messages]

    def between(self, start: int, stop: int) -> int:
        """Return the tokens of the steps at `start <= index < stop`."""
        return sum(step.tokens for step in self[self.place(start) : self.place(stop)])

    def place(self, index: int) -> int:
        """Return the place of the first step at or behind a position of the history."""
        return bisect_left(self, index, key=lambda step: step.index)


def checksums(messages: Iterable[AnyMessage], before: str = "") -> list[str]:
    """Return fingerprints that change when texts, calls or the order of messages change: what a request is priced by.

    The first is that of the messages before; each message adds that of all until it.
    """
    sums = [before]
    for message in messages:
        content: Any = message.content
        text = content if isinstance(content, str) else repr(apart(message)[0].content)
        if isinstance(message, ToolMessage):
            text = f"{text}{message.tool_call_id}"
        elif isinstance(message, AIMessage):
            text = f"{text}{message.tool_calls}{message.invalid_tool_calls}"
        sums.append(digest(sums[-1], message.type, text))
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One user message and everything up to the next one."""

    steps: tuple[Step, ...]

    @property
    def index(self) -> int:
        """Position of the first message in the history."""
        return self.steps[0].index


def as_messages(
    messages: Sequence[MessageLikeRepresentation] | str,
) -> Messages:
    """Return messages as they are, and what LangChain takes for messages as such."""
    expect(
        messages,
        Sequence,
        "messages",
        "a list of messages, or of dicts, pairs or texts like them",
    )
    several = [messages] if isinstance(messages, str) else messages
    if all(issubclass(kind, BaseMessage) for kind in set(map(type, several))):
        return cast("Messages", several)
    try:
        return cast("Messages", convert_to_messages(several))
    except Exception as error:  # LangChain raises many kinds
        raise ConfigError(
            f"messages={messages!r:.120}: pass messages, or dicts with role and content, pairs of both, or texts"
        ) from error


def split_turns(messages: Messages) -> tuple[Turn, ...]:
    """Split a history into turns of steps; messages before the first user message are turn 0.

    Examples:
        >>> turns = split_turns([HumanMessage("a"), AIMessage("b"), HumanMessage("c")])
        >>> [(turn.index, len(turn.steps)) for turn in turns]
        [(0, 2), (2, 1)]
    """
    return group_turns(split_steps(messages))


def turn_starts(messages: Messages) -> list[int]:
    """Return the position of the first message of every turn; empty for an empty history."""
    return [turn.index for turn in split_turns(messages)]


def safe_boundary(messages: Messages, target: int) -> int:
    """Snap `target` to the nearest position where the history may be cut.

    Boundaries are turn starts; with a single turn, step starts. On a tie the earlier boundary wins unless it is 0.
    The result is never `len(messages)` (except 0 for an empty history).
    """
    starts = turn_starts(messages)
    if len(starts) == 1:
        starts = [step.index for step in split_steps(messages)]
    return min(
        starts, key=lambda start: (abs(start - target), start == 0, start), default=0
    )


def group_turns(steps: Iterable[Step]) -> tuple[Turn, ...]:
    """Group consecutive steps into turns; a step that holds a user message starts one."""
    groups: list[list[Step]] = []
    for step in steps:
        if not groups or starts_turn(step):
            groups.append([])
        groups[-1].append(step)
    return tuple(Turn(steps=tuple(group)) for group in groups)


def split_steps(
    messages: Messages,
    start: int = 0,
    stop: int | None = None,
    price: Price | None = None,
) -> Iterator[Step]:
    """Yield the steps of `messages[start:stop]`."""
    limit = len(messages) if stop is None else stop
    index = start
    while index < limit:
        end = index + 1
        calls = call_ids(messages[index])
        if calls:
            while end < limit and (others := call_ids(messages[end])):
                calls += others
                end += 1
            # notes stand between a call and its result, too
            while end < limit and isinstance(
                messages[end], ToolMessage | SystemMessage
            ):
                end += 1
        yield Step(
            index=index,
            size=end - index,
            messages=tuple(messages[index:end]),
            calls=calls,
            price=price,
        )
        index = end


def starts_turn(step: Step) -> bool:
    """True when the step is a user message; a note written by this package is none."""
    last = step.messages[-1] if step.messages else None
    return isinstance(last, HumanMessage) and NOTE_KEY not in last.additional_kwargs


# ---- the history of a conversation ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """The messages of one conversation with their steps, pins, media and checksums."""

    messages: list[AnyMessage] = field(default_factory=list)
    """In LangChain's own form."""

    first: int = 0
    """Number of leading system messages; they belong to the system region."""

    steps: Steps = field(default=Steps())
    """The steps after those."""

    marked: frozenset[int] = frozenset()
    """Positions of the messages that were marked through `pin`."""

    compacted: frozenset[int] = frozenset()
    """Positions of the answers with which a provider compacted what was before."""

    media: frozenset[int] = frozenset()
    """Positions of the messages with pictures or files."""

    given: list[AnyMessage] = field(default_factory=list)
    """The messages as the application keeps them: some state calls and results in other forms."""

    checksums: list[str] = field(default_factory=lambda: [""])
    """Of each position: the fingerprint of texts and calls between the leading system messages and it."""

    def steps_from(self, start: int) -> Iterable[Step]:
        """Return the steps of the messages from `start` on, which is where one begins."""
        return self.steps[self.steps.place(start) :]

    def step_at(self, index: int) -> Step:
        """Return the step that holds the message at a position."""
        return self.steps[self.steps.place(index + 1) - 1]

    def in_steps(self, wanted: Iterable[int]) -> set[int]:
        """Return the positions of all messages of the steps that hold those at the wanted positions."""
        steps = map(self.step_at, wanted)
        return {index for step in steps for index in range(step.index, step.stop)}

    def checksum_of(self, view: View) -> str:
        """Return the checksum of what record and summary may tell of; empty where nothing left.

        It is what is before the start of a view, leading system messages apart, and what is shown shorter than it is.
        """
        short = view.cleared.union(view.clamped)
        places = range(len(self.messages)) if short else ()
        cut = (
            self.messages[i] for i in places if message_id(self.messages, i) in short
        )
        return checksums(cut, self.checksums[view.start_index])[-1]

    def with_checksum(self, view: View) -> View:
        """Return the view with a checksum of the messages that left it, so that later edits of them are noticed."""
        return replace(view, left_checksum=self.checksum_of(view))


def read_history(
    messages: Messages,
    before: MessageHistory | None = None,
    *,
    price: Price | None = None,
) -> MessageHistory:
    """Return the history of these messages: `before`, extended, where they begin with its messages, else built anew."""
    # the same messages, or equal ones that were loaded anew
    if before is None or [*messages[: len(before.given)]] != before.given:
        before = MessageHistory()
    added = messages[len(before.given) :]
    if before.given and not added:
        return before
    same = len(before.messages)
    whole = [*before.messages, *(part for one in added for part in standard(one))]
    first = first_after_system(whole)
    lead = max(0, first - same)
    later_sums = checksums(whole[same + lead :], before.checksums[-1])
    new = [*enumerate(whole[same:], same)]
    blocks = [pair for pair in new if type(pair[1].content) is list]
    steps = Steps(before.steps[: _closed(before.steps)])
    later = split_steps(whole, steps.stop or first, price=price)
    return replace(
        before,
        messages=whole,
        given=[*before.given, *added],
        first=first,
        steps=Steps([*steps, *later]),
        marked=before.marked.union(i for i, one in new if is_pinned(one)),
        compacted=before.compacted.union(i for i, one in blocks if compaction_in(one)),
        media=before.media.union(i for i, one in blocks if media_in(one)),
        checksums=[*before.checksums, *[""] * lead, *later_sums[1:]],
    )


def _closed(steps: Sequence[Step]) -> int:
    """How many steps later messages cannot extend: up to the last question or answer, which only its results extend."""
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if starts_turn(step) or isinstance(step.messages[0], AIMessage):
            return place if step.calls else place + 1
    return 0


# ---- the steps as the model sees them -------------------------------------------------------------------------------


def show_steps(
    history: MessageHistory, start: int, view: View, before: Before
) -> Iterator[Step]:
    """Yield the steps of a history from `start` on as the model sees them."""
    messages = history.messages
    for step in history.steps_from(start):
        if before.rules.takes_system_behind_user:
            before.is_answered = step.stop == len(messages) or _says(
                messages[step.stop]
            )
        yield show_step(step, view, before)


def show_step(step: Step, view: View, before: Before) -> Step:
    """Return one step as the model sees it, as a valid continuation of what precedes it, which it joins.

    The same step where nothing of it changes.
    """
    step = _sent_step(step, view, before)
    previous = before.message
    is_opening = previous is None or isinstance(previous, AIMessage)
    if (
        step.is_paired
        and not (is_opening and isinstance(step.messages[0], AIMessage))
        and before.calls.isdisjoint(step.calls)
        and (before.rules.media_in_results or not any(map(media_in, step.messages)))
    ):
        before.calls.update(step.calls)
    else:
        step = _with_messages(step, repair_step(step.messages, before))
    if step.messages:
        before.message = step.messages[-1]
    return step


def _sent_step(step: Step, view: View, before: Before) -> Step:
    """The step as its provider takes it, whatever precedes it."""
    edited, rules = view.edited, before.rules
    is_unbound, is_unsealed = step.index < before.unbound, step.index < before.unsealed
    is_edited = edited and not edited.isdisjoint(_ids(step))
    key = (rules.provider, is_unbound, is_unsealed)
    if not is_edited and key in step.sent:
        return step.sent[key]
    messages: Iterable[AnyMessage] = step.messages
    if is_edited:
        messages = map(edit, messages, _ids(step), repeat(view))
    if is_unsealed:
        messages = map(unsealed, messages)
    messages = [readable(message, rules.provider) for message in messages]
    if is_unbound:
        messages = map(without_bound_reasoning, messages)
    sent = _with_messages(step, [sendable(one, rules.provider) for one in messages])
    if not is_edited:
        step.sent[key] = sent
    return sent


def _with_messages(step: Step, messages: Messages) -> Step:
    """The step with these messages; the same one where it has them."""
    if len(messages) == len(step.messages) and all(map(is_, messages, step.messages)):
        return step
    calls = tuple(key for message in messages for key in call_ids(message))
    return replace(step, messages=tuple(messages), calls=calls)


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
