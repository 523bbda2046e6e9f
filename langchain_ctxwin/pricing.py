"""Prices of messages, of tools, and of the shown steps of a conversation, each worked out once.

Pricings.of(model) -> Pricing(counter):  price(message), tools(tools), show(messages, ...) -> Shown
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from math import sqrt
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.assembly import filled
from langchain_ctxwin.core.blocks import compact_json
from langchain_ctxwin.core.calls import call_ids
from langchain_ctxwin.core.media import has_media
from langchain_ctxwin.core.model_info import family_of
from langchain_ctxwin.core.native import compaction_in, in_prompt, is_deferred
from langchain_ctxwin.core.pairing import unanswered_in
from langchain_ctxwin.core.priced_view import Before, Head, PinWhen, Price, after_steps, is_pinned, show_steps
from langchain_ctxwin.core.sizing import QUANTILE_SD, Doubt
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator
from langchain_ctxwin.core.tool_schemas import name_of, tool_definition
from langchain_ctxwin.core.turns import Shown, Step, checksum, starts_turn
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.guarded import GuardedCounter
from langchain_ctxwin.protocols import RequestCounter, TokenCounter, takes_tools
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, PerMessage, once

MAX_CONVERSATIONS = 64
"""Conversations whose shown steps are kept; each holds references only."""

OWN_COUNTERS = (TokenEstimator, CharRatioCounter)
"""Counters that cannot fail and take microseconds; others are guarded."""

PROBE_TOKENS = 100_000
"""Size at which a counter's bounds are read: large enough that rounding does not matter."""

NOISE_PART = 0.8
MAX_NOISE_SHARE = 0.1
"""Part of a counter's error that differs from text to text, and its most: a wider one doubts the tokenizer itself."""

EXACT_NOISE_SHARE = 0.02
"""What an exact counter of texts leaves open of a message: how the provider frames it."""

Found = tuple[frozenset[int], frozenset[int], frozenset[int]]
"""Positions in a history: of its explicit pins, of the answers with which a provider compacted what was before, and of
the messages with pictures or files."""

NOTHING_FOUND: Found = (frozenset(), frozenset(), frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSet:
    """What was worked out of some tools, which are kept alive, so that their ids cannot come to mean others."""

    tools: tuple[Any, ...]
    tokens: int
    digest: str
    """Fingerprint of the definitions."""

    is_deferred: bool
    """Some of them are not in a prompt until they are loaded."""


class Pricing:
    """The prices of one counter; thread-safe, bounded, shared by all conversations of an engine."""

    def __init__(self, counter: TokenCounter, *, family: str) -> None:
        self.remote = counter if isinstance(counter, RequestCounter) else None
        """Counts whole requests where the provider does; None for a counter that prices messages by itself."""
        self.counter = counter.estimator if isinstance(counter, RequestCounter) else counter
        """Counts messages and tools."""
        self._estimator = TokenEstimator(family)
        is_own = isinstance(self.counter, OWN_COUNTERS)
        self._guard = None if is_own else GuardedCounter(self.counter, self._estimator)
        self.count: TokenCounter = self._guard or self.counter
        """The counter, made safe."""
        self._doubts = (_doubt_of(self.counter), _doubt_of(self._estimator))
        self._base: tuple[int | None] | None = None
        self.price = PerMessage(lambda message: self._net([message]))
        self.show = Steps(self.price)
        self._filled: Lru[tuple[AnyMessage, AnyMessage]] = Lru(MAX_TEXTS, of_conversations=True)
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._in_prompt: Lru[tuple[tuple[Any, ...], Sequence[Any]]] = Lru(MAX_TEXTS)
        self._takes_tools = takes_tools(self.counter)

    @property
    def has_failed(self) -> bool:
        """True once something was estimated because the counter could not count it."""
        return self._guard is not None and self._guard.has_failed

    @property
    def doubt(self) -> Doubt:
        """How far the counts may be off before anything was reported: the estimator's doubt once it stood in."""
        return self._doubts[self.has_failed]

    @property
    def exact(self) -> bool:
        """True when the counter states that its counts are exact, and could count everything so far."""
        return bool(getattr(self.counter, "exact", False)) and not self.has_failed and self._asked_base() is not None

    @property
    def base_tokens(self) -> int:
        """What the counter adds once to every request; 0 when it cannot say."""
        return self._asked_base() or 0

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of the tool definitions."""
        return self._tool_set(tools).tokens if tools else 0

    def fill(self, message: AnyMessage, tenths: int) -> AnyMessage:
        """Return what `filled` returns, the same message each time, so that it is priced once."""
        if not isinstance(message.content, str):  # blocks may change in place
            return filled(message, tenths)
        # The message in the value keeps it alive, so an id in the key cannot come to mean another one.
        key = (id(message), message.content, tenths)
        return once(self._filled, key, lambda: (message, filled(message, tenths)))[1]

    def in_prompt(self, tools: Sequence[Any], provider: str) -> Sequence[Any]:
        """Return what the prompt of a provider holds of these tools at once; the same object each time."""
        if not tools or not self._tool_set(tools).is_deferred:
            return tools
        kept = tuple(tools)
        key = (provider, *map(id, kept))
        shown = once(self._in_prompt, key, lambda: (kept, in_prompt(kept, provider)))[1]
        return tools if shown is kept else shown

    def loaded(self, tools: Sequence[Any]) -> Callable[[str], int]:
        """Return what says how many tokens a message adds that loads one of these tools, by name; 0 for another."""
        by_name = {name_of(tool): tool for tool in tools if is_deferred(tool)}

        def price(name: str) -> int:
            tool = by_name.get(name)
            return 0 if tool is None else self.tools([tool, tool]) - self.tools([tool])

        return price

    def tools_digest(self, tools: Sequence[Any]) -> str:
        """Fingerprint of the tool definitions."""
        return self._tool_set(tools).digest if tools else ""

    def _asked_base(self) -> int | None:
        """Ask the counter at first use: it may be slow. Two threads at once may both ask, and hear the same."""
        if self._base is None:
            self._base = (self._guard.attempt([]) if self._guard else int(self.counter([])),)
        return self._base[0]

    def _net(self, messages: list[AnyMessage], tools: list[Any] | None = None) -> int:
        """Tokens beyond those of an empty request, by whoever counts: each adds something of its own to every one."""
        if self._guard is None:
            return max(0, int(self.counter(messages, tools=tools)) - self.base_tokens)
        tokens = self._guard.attempt(messages, tools=tools)
        if tokens is None:
            return max(0, self._guard.estimate(messages, tools=tools) - self._estimator([]))
        return max(0, tokens - self.base_tokens)

    def _tool_set(self, tools: Sequence[Any]) -> ToolSet:
        kept = tuple(tools)
        key = tuple(map(id, kept))
        if (known := self._tool_sets.get(key)) is not None:
            return known
        texts = [compact_json(tool_definition(tool)) for tool in kept]
        if self._takes_tools:
            tokens = self._net([], list(kept))
        else:
            tokens = sum(self._net([SystemMessage(content=text)]) for text in texts)
        found = ToolSet(
            tools=kept,
            tokens=tokens,
            digest=hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest(),
            is_deferred=any(map(is_deferred, kept)),
        )
        return self._tool_sets.put(key, found)


class Pricings:
    """The prices of one counter, or of the estimator of each tokenizer family that requests go to."""

    def __init__(self, counter: TokenCounter | None, *, family: str) -> None:
        self.default = Pricing(counter or TokenEstimator(family), family=family)
        """For requests that name no model of their own."""
        self._by_family = {family: self.default} if counter is None else None

    def of(self, model: object) -> Pricing:
        """Return the prices for the model of a request; with one counter for all, its."""
        if model is None or self._by_family is None:
            return self.default
        family = family_of(model)
        known = self._by_family.get(family)
        return known or self._by_family.setdefault(family, Pricing(TokenEstimator(family), family=family))


def _doubt_of(counter: TokenCounter) -> Doubt:
    """Read the bounds that a counter states; one that states none is taken as it is."""
    if getattr(counter, "exact", False):
        return Doubt(ratio_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)
    upper, lower = getattr(counter, "upper", None), getattr(counter, "lower", None)
    if upper is None or lower is None:
        return Doubt(has_margin=False)
    above = max(0.0, upper(PROBE_TOKENS) / PROBE_TOKENS - 1)
    below = max(0.0, 1 - lower(PROBE_TOKENS) / PROBE_TOKENS)
    sd = above / QUANTILE_SD
    # The bounds are those of single texts: what differs from text to text is noise, the rest is doubt about the ratio.
    noise_share = min(NOISE_PART * sd, MAX_NOISE_SHARE)
    ratio_sd = sqrt(sd**2 - noise_share**2)
    return Doubt(
        ratio_sd=ratio_sd,
        noise_share=max(noise_share, EXACT_NOISE_SHARE),
        lower_share=below / above if above else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The shown steps of one conversation and what they were made from."""

    view: View
    follows: Before
    messages: list[AnyMessage]
    shown: Shown
    closed: int
    """How many of the steps later messages cannot change."""

    after_closed: Before
    """What precedes the step after them."""

    def begins(self, shown: list[AnyMessage], view: View, before: Before) -> bool:
        """True when the conversation is this one with nothing but messages added.

        Of what precedes it only the kind of the last message and the taken call ids count: pairing asks for no more.
        """
        old, edits = self.follows, (view.cleared, view.clamped, view.without_media)
        if (self.view.cleared, self.view.clamped, self.view.without_media) != edits or type(old.message) is not type(
            before.message
        ):
            return False
        if (old.calls, old.unanswered, old.rules) != (before.calls, before.unanswered, before.rules):
            return False
        if old.unbound != before.unbound:
            return False
        return starts_with(shown, self.messages)


class Steps:
    """Shows and prices only the steps that are new since the same view was shown last."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._known: Lru[_Known] = Lru(MAX_CONVERSATIONS, of_conversations=True)

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
        """Return the steps of `show_steps`, after the head where they are not known, and where it is what it was."""
        if start >= len(messages):
            return Shown.of(())
        shown = list(messages[start:])
        key = (messages[start].id or id(messages[start]), start)
        known = self._known.get(key)
        if known is None or not known.begins(shown, view, before) or (known.shown.head_stop and head is None):
            known = self._begun(messages, start, view, before, head, head_tokens)
        elif len(known.messages) == len(shown):
            return known.shown
        known = self._known.put(key, self._extended(known, messages, start, shown))
        if known.shown.head_stop:
            history = list(messages)
            known.shown.whole = lambda: self(history, start, view, before)
        return known.shown

    def _extended(self, known: _Known, messages: Sequence[AnyMessage], start: int, shown: list[AnyMessage]) -> _Known:
        """Show what follows the closed steps."""
        resume = known.shown[known.closed - 1].stop if known.closed else known.shown.head_stop or start
        new = tuple(show_steps(messages, resume, known.view, known.after_closed, self._price))
        steps = Shown.of(new, known.shown, known.closed)
        closing = _closed(new)
        return replace(
            known,
            messages=shown,
            shown=steps,
            closed=known.closed + closing,
            after_closed=after_steps(new[:closing], known.after_closed),
        )

    def _begun(
        self,
        messages: Sequence[AnyMessage],
        start: int,
        view: View,
        before: Before,
        head: Head | None,
        head_tokens: int,
    ) -> _Known:
        """What is known of a view that was not shown before: nothing, or its head."""
        begin = list(messages[start : head.stop]) if head else []
        if head is None or checksum(begin) != head.checksum:
            nothing = Shown.of(())
            return _Known(view=view, follows=before, messages=[], shown=nothing, closed=0, after_closed=before)
        shown = begin
        if not head.is_plain:  # repaired as it was then, at no price
            steps = show_steps(messages[: head.stop], start, view, before, lambda _: 0)
            shown = [message for step in steps for message in step.messages]
        calls = frozenset(call_id for message in shown for call_id in call_ids(message))
        return _Known(
            view=view,
            follows=before,
            messages=begin,
            shown=Shown.after_head(
                shown, stop=head.stop, tokens=head_tokens, checksum=head.checksum, is_plain=head.is_plain
            ),
            closed=0,
            after_closed=replace(
                before,
                message=shown[-1] if shown else before.message,
                calls=before.calls | calls,
                unanswered=before.unanswered.union(unanswered_in(shown)),
            ),
        )


class Marks:
    """Finds the explicit pins of a history, the answers with which a provider compacted what was before, and pictures.

    It looks only at what is new since the last time.

    Args:
        pin_when: says which messages are pinned without a mark.

    Raises:
        ConfigError: `pin_when` cannot be called, or failed.
    """

    def __init__(self, pin_when: PinWhen | None = None) -> None:
        if pin_when is not None and (not callable(pin_when) or iscoroutinefunction(pin_when)):
            raise ConfigError(f"pin_when={pin_when!r}: pass a plain function that takes a message and returns a bool")
        self._pin_when = pin_when
        self._known: Lru[tuple[list[AnyMessage], int, Found]] = Lru(MAX_CONVERSATIONS, of_conversations=True)

    def __call__(self, messages: Sequence[AnyMessage], *, takes_marks: bool = True) -> Found:
        """Return the positions of pins (only those by `pin_when` without `takes_marks`), compactions and media."""
        name = (_name_of(messages), takes_marks)
        old, same, found = self._known.get(name) or ([], 0, NOTHING_FOUND)
        if len(old) != same or not starts_with(messages, old):  # another branch of the conversation, or another history
            old, same, found = [], 0, NOTHING_FOUND
        is_marked = is_pinned if takes_marks else _is_never
        now = (
            found[0].union(self._pins(messages, same, is_marked)),
            found[1].union(_compactions(messages, same)),
            found[2].union(_with_media(messages, same)),
        )
        if same == len(messages) and now == found:
            return found
        old.extend(messages[same:])  # what another thread adds meanwhile shows in the length
        self._known.put(name, (old, len(messages), now))
        return now

    def knows(self, messages: Sequence[AnyMessage]) -> bool:
        """True when the history is the one in which was looked last, message by message."""
        for takes_marks in (True, False):
            old, same, _ = self._known.get((_name_of(messages), takes_marks)) or ([], 0, None)
            if len(old) == same == len(messages) and starts_with(messages, old):
                return True
        return False

    def _pins(self, messages: Sequence[AnyMessage], begin: int, is_marked: Callable[[AnyMessage], bool]) -> list[int]:
        """The positions of messages that are marked or for which `pin_when` holds."""
        if self._pin_when is None:
            new = enumerate(messages[begin:], begin)
            return [index for index, message in new if message.additional_kwargs and is_marked(message)]
        marked = list[int]()
        try:
            for index in range(begin, len(messages)):
                if is_marked(messages[index]) or self._pin_when(messages[index]):
                    marked.append(index)
        except Exception as error:
            raise ConfigError(
                f"pin_when raised {type(error).__name__} ({error}) for the {messages[index].type} message "
                f"{message_id(messages, index)!r}: make it return True or False for every message"
            ) from error
        return marked


def _is_never(_: object) -> bool:
    return False


class Checksums:
    """`checksum` of what left a conversation's view, worked out once while that is the very same messages."""

    def __init__(self) -> None:
        self._known: Lru[tuple[list[AnyMessage], int]] = Lru(MAX_CONVERSATIONS, of_conversations=True)

    def __call__(self, left: list[AnyMessage]) -> int:
        """Return the checksum."""
        known, number = self._known.get(_name_of(left)) or ([], 0)
        if len(known) == len(left) and starts_with(left, known):
            return number
        return self._known.put(_name_of(left), (left, checksum(left)))[1]


def _name_of(messages: Sequence[AnyMessage]) -> Any:
    """By what a conversation is known: its first message."""
    return (messages[0].id or id(messages[0])) if messages else None


def _compactions(messages: Sequence[AnyMessage], begin: int) -> list[int]:
    found = enumerate(messages[begin:], begin)
    return [index for index, message in found if type(message.content) is list and compaction_in(message)]


def _with_media(messages: Sequence[AnyMessage], begin: int) -> list[int]:
    found = enumerate(messages[begin:], begin)
    return [index for index, message in found if type(message.content) is list and has_media(message)]


def starts_with(messages: Sequence[AnyMessage], old: list[AnyMessage]) -> bool:
    """True when the history begins with these very message objects."""
    if not old or len(messages) < len(old):
        return False
    # The ends first: lists of other objects would be compared by content, which takes longer than to start over.
    if messages[0] is not old[0] or messages[len(old) - 1] is not old[-1]:
        return False
    begin = messages if len(messages) == len(old) else messages[: len(old)]
    return old == (begin if isinstance(begin, list) else list(begin))


def _closed(steps: Sequence[Step]) -> int:
    """How many steps later messages cannot extend: not the last one, nor the one before notes that may join it."""
    count = len(steps) - 1
    while count > 0 and steps[count].size == 1:
        newest = steps[count].messages[-1:]  # a system note ends no step
        if newest and (starts_turn(steps[count]) or isinstance(newest[0], AIMessage)):
            break
        count -= 1
    return max(0, count)
