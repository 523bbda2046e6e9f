"""What a caller hands over for a request, before anything is left out: `Parts`, with settings and prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.blobs import digests_in
from langchain_ctxwin.core.history import MessageHistory
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.media import (
    ALL,
    NO_LIMITS,
    MediaLimits,
    MediaSize,
    left_out,
    surplus,
)
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.native import is_native_compaction, is_usable_compaction
from langchain_ctxwin.core.provider_rules import ELSEWHERE, UNKNOWN, Rules
from langchain_ctxwin.core.sizing import Doubt
from langchain_ctxwin.core.turns import Price
from langchain_ctxwin.core.view import View, message_id


class RequestSettings(Protocol):
    """The settings of `ContextConfig` that shape a request and its compaction; shares are shares of the room."""

    @property
    def prepare(self) -> float:
        """History past which a summary is begun ahead of need."""
        ...

    @property
    def prompt_cache(self) -> str:
        """How long a provider is asked to keep a prefix: `5m`, `1h` or `off`."""
        ...

    @property
    def trigger(self) -> float | None:
        """History past which something leaves; None for all of the room."""
        ...

    @property
    def keep(self) -> float:
        """History that a compaction leaves."""
        ...

    @property
    def trigger_messages(self) -> int | None:
        """Largest number of messages in the view; None for any."""
        ...

    @property
    def max_history_tokens(self) -> int | None:
        """Largest history; None for all of the room."""
        ...

    @property
    def summarize(self) -> Literal["background", "inline", "off"]:
        """How summaries are written."""
        ...

    @property
    def summary_max_tokens(self) -> int | None:
        """Longest summary; None sizes it by the room of the history."""
        ...

    @property
    def summary_placement(self) -> Literal["system", "user"]:
        """Where summary and record are shown."""
        ...

    @property
    def record_share(self) -> float:
        """Part of the room, pins included, that the lines of the record may take."""
        ...

    @property
    def rules(self) -> str | Callable[[str], bool] | None:
        """Which other sentences of people hold from then on."""
        ...

    @property
    def clear_tools(self) -> Sequence[str]:
        """Tools whose results are cleared in place before anything is dropped."""
        ...

    @property
    def pin_first_user(self) -> bool:
        """Keep the first user message."""
        ...

    @property
    def constraints(self) -> tuple[str, ...]:
        """Rules that are in each request."""
        ...

    @property
    def output_reserve(self) -> int | None:
        """Tokens that are kept for the answer, where configured."""
        ...


class Pricer(Protocol):
    """Prices messages and tools, and remembers what it priced."""

    @property
    def price(self) -> Price:
        """Tokens of one message."""
        ...

    @property
    def exact(self) -> bool:
        """True while every count is exact; asked after pricing, because a counter that failed no longer is."""
        ...

    @property
    def doubt(self) -> Doubt:
        """How far the counts may be off before anything was reported."""
        ...

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of tool definitions."""
        ...

    def parameters(self, tools: Sequence[Any]) -> frozenset[str]:
        """What the tools call their parameters."""
        ...

    def loaded(self, tools: Sequence[Any], name: str) -> int:
        """Tokens that a message adds which loads one of these tools, by name; 0 for another."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a request is made from, before anything is left out."""

    history: MessageHistory
    settings: RequestSettings = field(repr=False)
    """The settings that held when the request began; whatever is decided about it goes by them."""

    pricer: Pricer = field(repr=False)
    system: SystemMessage | None = None
    """System prompt and leading system messages, merged."""

    system_tokens: int = 0
    tools: Sequence[Any] = field(default=(), repr=False)
    """The tool definitions bound to the model."""

    tool_tokens: int = 0
    """Price of those that are in the prompt from its beginning."""

    tools_digest: str = ""
    has_deferred: bool = False
    """Some tools come into the prompt only where a message loads them."""

    model: str = ""
    """Name of the model that the request goes to; empty when unknown."""

    declared: ModelLimits | None = None
    """What is stated about the model's limits beside what was learned from refusals."""

    info: ModelInfo | None = None
    """Prices of the model, where who chose it knows them."""

    rules: Rules = UNKNOWN
    """What its provider takes; what it would refuse is repaired."""

    media: MediaLimits = NO_LIMITS
    """What of pictures and files one request may have."""

    pins: frozenset[int] = frozenset()
    """Positions of explicit pins: messages marked through `pin`, or for which the engine's `pin_when` holds."""

    now_seconds: float | None = None
    """Seconds since the epoch; None where no decision depends on the time."""

    focus: str = ""
    """What a host named when it asked to compact: lines of the record with its words are kept first."""

    unsealed: int = 0
    """Position up to which answers are shown without what their provider signed or encrypted: it took that no more."""

    recall: str = ""
    """Name of the agent's tool that reads what was cut; empty when it has none."""

    @property
    def messages(self) -> list[AnyMessage]:
        """The full history."""
        return self.history.messages

    @property
    def first(self) -> int:
        """Number of leading system messages."""
        return self.history.first

    @property
    def price(self) -> Price:
        """Tokens of one message."""
        return self.pricer.price

    def price_text(self, text: str) -> int:
        """Our estimate of a text as a message of its own; 0 for an empty one."""
        return self.price(SystemMessage(content=text)) if text else 0

    def start_of(self, view: View) -> int:
        """Position of the view's first message; the view must be valid for this history."""
        return max(self.first, view.start.index) if view.start else self.first

    def visible_indexes(self, view: View, stop: int) -> list[int]:
        """Return the positions of what is shown before `stop`: pins, then the history from the start of the view."""
        start = self.start_of(view)
        pins = (place.index for place in view.pinned if place.index < start)
        return [*pins, *range(start, stop)]

    def lead(self, view: View) -> int | None:
        """Position of the newest compaction by the provider that is shown, and that the provider reads."""
        return self._newest_compaction(view, is_native_compaction)

    def kept_compaction(self, view: View) -> int | None:
        """Position of the newest compaction by a provider that is shown, and of use to this one."""
        return self._newest_compaction(view, is_usable_compaction)

    def without_media(self, view: View) -> dict[str, int]:
        """Return how many pictures and files of a message are not shown: without room, or references alone."""
        if not self.history.media:
            return {}
        messages = self.messages
        return {
            message_id(messages, index): ALL if digests_in(messages[index]) else gone
            for index, gone in self.media_in(view).items()
            if gone or digests_in(messages[index])
        }

    def media_in(self, view: View) -> dict[int, int]:
        """Return where pictures and files are in a view, and how many of the first of a message have no room.

        Explicit pins have room, and the last one of the newest message.
        """
        start = self.start_of(view)
        pinned = {position.index for position in view.pinned}
        sizes = {
            index: MediaSize.of(self.messages[index])
            for index in sorted(self.history.media)
            if (index >= start or index in pinned)
            and message_id(self.messages, index) not in view.cleared
        }
        spared = MediaSize.sum_of(sizes[index] for index in self.pins & sizes.keys())
        others = {
            index: size for index, size in sizes.items() if index not in self.pins
        }
        without = left_out(others, spared, self.media)
        hidden = {index: ALL if index in without else 0 for index in sizes}
        if others:
            newest = [*others][-1]
            hidden[newest] = surplus(self.messages[newest], spared, self.media)
        return hidden

    def _reader(self, index: int) -> str:
        """Who reads the compaction of an answer: nobody does where its provider refused it."""
        return self.rules.provider if index >= self.unsealed else ELSEWHERE.provider

    def _newest_compaction(
        self, view: View, is_usable: Callable[[AnyMessage, str], bool]
    ) -> int | None:
        compacted = self.history.compacted
        if not compacted:
            return None
        pinned = {position.index for position in view.pinned}
        visible = (
            index
            for index in compacted
            if index >= self.start_of(view) or index in pinned
        )
        return max(
            (i for i in visible if is_usable(self.messages[i], self._reader(i))),
            default=None,
        )
